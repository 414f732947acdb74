//! Servers for tests of clients: the test itself drives the streams. The crate also has a network link that can be cut.
//!
//! A server here has no logic. It passes each client stream to the test, which reads the requests and writes the
//! replies in sequence, so that the result of a test does not depend on timing. Unexpected messages panic. The unit
//! tests of `proto` include these sources as a module: as a dependency, this crate would use the types of another build
//! of `proto`.

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

use transport::servers::{Server, Servers};

/// Time limit of every wait, far longer than any expected event takes.
const DEADLINE: Duration = Duration::from_secs(30);

/// Awaits `future`, and panics if it does not complete before the deadline.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it comes before the deadline")
}

/// Waits until `condition` holds; other tasks run between two checks.
pub async fn until(condition: impl Fn() -> bool) {
    within(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Returns a listener on a free port, and the address.
pub async fn listen() -> (TcpListenerStream, SocketAddr) {
    listen_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
}

/// Returns a listener at the address of an earlier listener, and that address. Retries while an unrelated connection
/// holds the port.
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

/// Returns this script's server as a member of a set of servers.
pub fn server(script: &ReplayScript) -> Server {
    Server::at(&script.endpoint())
}

/// Returns a set of servers, and the sender with which the test changes it.
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
