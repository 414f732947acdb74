//! Listening: one way to open a port, one error that says what to do when it cannot be opened.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

#[cfg(test)]
mod tests;

/// Connections that may wait to be accepted. A fleet that comes back after a restart comes at once, and what the standard library
/// asks for (128) sends most of it away to try again; the system lowers this to its own bound.
const BACKLOG: u32 = 4096;

/// A port that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody else listens there.
    #[error(
        "cannot listen on {address}: the port is in use; stop the process that holds it, or choose another port (0 picks a free one)"
    )]
    InUse {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The port needs rights that this process does not have.
    #[error("cannot listen on {address}: permission denied; choose a port above 1023 (0 picks a free one)")]
    Denied {
        /// What was asked for.
        address: SocketAddr,
    },
    /// This machine does not have the address.
    #[error("cannot listen on {address}: this machine has no such address; choose one of its own, such as 127.0.0.1")]
    NoSuchAddress {
        /// What was asked for.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("cannot listen on {address}")]
    Other {
        /// What was asked for.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// Opens `address` for listening; every listener of a process, gRPC or admin, comes from here.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    listen(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        io::ErrorKind::PermissionDenied => BindError::Denied { address },
        io::ErrorKind::AddrNotAvailable => BindError::NoSuchAddress { address },
        _ => BindError::Other { address, source },
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As `TcpListener::bind` does: connections of the process before may still hold the port for a while.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
