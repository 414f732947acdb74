use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;

use super::{endpoint, listen};

/// A link between a client and a server that can be cut.
#[derive(Debug)]
pub struct Link {
    endpoint: String,
    cuts: watch::Sender<()>,
    connections: watch::Receiver<usize>,
    _task: JoinSet<()>,
}

impl Link {
    /// Creates a link to `server` without a limit on bytes.
    pub async fn to(server: SocketAddr) -> Self {
        Self::start(server, usize::MAX).await
    }

    /// Creates a link to `server` that closes each connection after `bytes` bytes from the server.
    pub async fn breaking_after(bytes: usize, server: SocketAddr) -> Self {
        Self::start(server, bytes).await
    }

    /// Returns the endpoint for clients.
    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// Closes every open connection; new connections are accepted.
    pub fn cut(&self) {
        self.cuts.send_replace(());
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        *self.connections.borrow()
    }

    async fn start(server: SocketAddr, bytes_max: usize) -> Self {
        let (mut incoming, address) = listen().await;
        let (cuts, cut) = watch::channel(());
        let (count, connections) = watch::channel(0);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Some(client) = incoming.next().await {
                count.send_modify(|count| *count += 1);
                let mut cut = cut.clone();
                cut.mark_unchanged();
                open.spawn(async move {
                    tokio::select! {
                        _ = cut.changed() => {}
                        _ = carry(client.expect("the link accepts"), server, bytes_max) => {}
                    }
                });
            }
        });
        Self { endpoint: endpoint(address), cuts, connections, _task: task }
    }
}

/// Copies bytes in both directions until either side closes or the server has sent `bytes_max` bytes.
async fn carry(client: TcpStream, server: SocketAddr, bytes_max: usize) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = TcpStream::connect(server).await?.into_split();
    let up = tokio::io::copy(&mut from_client, &mut to_server);
    let down = async {
        let (mut left, mut buffer) = (bytes_max, vec![0; 64 << 10]);
        while left > 0 {
            let most = buffer.len().min(left);
            let bytes = from_server.read(&mut buffer[..most]).await?;
            if bytes == 0 {
                break;
            }
            to_client.write_all(&buffer[..bytes]).await?;
            left -= bytes;
        }
        to_client.shutdown().await
    };
    tokio::select! {
        result = up => result.map(drop),
        result = down => result,
    }
}
