//! The other side of the clients in tests: servers whose streams the test itself drives, and a link that can be cut.
//!
//! A server here decides nothing. It hands each stream that a client opens to the test, which reads the requests and
//! writes the replies, one after another: what a test claims does not depend on time. Whatever is not as the test
//! expects panics. The unit tests of `proto` include these sources as a module: the types of a dependency would be
//! those of another build of `proto`.

mod inference;
mod link;
mod replay;
mod weights;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use inference::{EvalStream, InferenceScript};
pub use link::Link;
pub use replay::{ReplayScript, Stream, batch, trajectory};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
pub use weights::{Replies, WeightsScript, version};

use proto::servers::{Server, Servers};

/// Whatever is awaited comes long before that, or never.
const DEADLINE: Duration = Duration::from_secs(30);

/// Awaits what must come.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it comes before the deadline")
}

/// Waits until `condition` holds; other tasks run between two looks.
pub async fn until(condition: impl Fn() -> bool) {
    within(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A listener on a free port, and its address.
pub async fn listen() -> (TcpListenerStream, SocketAddr) {
    listen_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
}

/// Returns a listener at the address of an earlier one, and that address. An unrelated connection may hold the port for
/// a moment.
pub async fn listen_at(address: SocketAddr) -> (TcpListenerStream, SocketAddr) {
    let listener = within(async {
        loop {
            match TcpListener::bind(address).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => tokio::task::yield_now().await,
                bound => break bound.expect("the port is free"),
            }
        }
    })
    .await;
    let address = listener.local_addr().expect("a listener has an address");
    (TcpListenerStream::new(listener), address)
}

/// The server of this script, as a member of a set of servers.
pub fn server(script: &ReplayScript) -> Server {
    Server::at(&script.endpoint())
}

/// A set of servers that the test changes.
pub fn servers(servers: &[Server]) -> (watch::Sender<Arc<[Server]>>, Servers) {
    let mut sorted = servers.to_vec();
    sorted.sort();
    let (sender, set) = watch::channel(sorted.into());
    (sender, Servers::watching(set))
}

/// Returns the endpoint of `address` for clients.
pub fn endpoint(address: SocketAddr) -> String {
    format!("http://{address}")
}
