//! Listening ports with errors that name a remedy, and reservation of ports for processes that are about to start.

mod reserve;

use std::io;
use std::net::SocketAddr;

pub use reserve::{ReservedPort, reserve_ports, reserve_wanted};
use tokio::net::{TcpListener, TcpSocket};

/// The accept backlog. After a restart the whole fleet reconnects at once, and with the standard library's 128 most
/// connections would be retried. The system lowers this to the system limit.
const BACKLOG: u32 = 4096;

/// Opens `address` for listening; every listener of a process, gRPC or admin, is created here.
///
/// # Errors
/// The address cannot be opened; the text names a remedy if one is known.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen(address).map_err(|source| {
        let remedy = match source.kind() {
            io::ErrorKind::AddrInUse => {
                ": the port is in use; stop the process that holds it, or choose another port (0 picks a free one)"
            }
            io::ErrorKind::PermissionDenied => ": permission denied; choose a port above 1023 (0 picks a free one)",
            io::ErrorKind::AddrNotAvailable => {
                ": this machine has no such address; choose one of its own, such as 127.0.0.1"
            }
            _ => return anyhow::Error::new(source).context(format!("cannot listen on {address}")),
        };
        anyhow::anyhow!("cannot listen on {address}{remedy}")
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bound(address)?.listen(BACKLOG)
}

/// Returns a socket that is bound to `address` but does not listen yet.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // The option is set as in `TcpListener::bind`: connections of a previous process may still occupy the port for a
    // while. A reserved port also needs it, so that another socket can listen on it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_zero_picks_a_free_port() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        assert_ne!(listener.local_addr().unwrap().port(), 0);
    }

    #[tokio::test]
    async fn a_port_in_use_is_named_with_what_to_do() {
        let holder = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = holder.local_addr().unwrap();
        let error = bind(address).await.unwrap_err();
        let expected = format!(
            "cannot listen on {address}: the port is in use; stop the process that holds it, \
         or choose another port (0 picks a free one)"
        );
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_named() {
        // The address is from TEST-NET-1 of RFC 5737, which no machine has.
        let error = bind("192.0.2.1:0".parse().unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("this machine has no such address"), "{error}");
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn simultaneous_connections_fit_in_the_backlog_of_a_listener() {
        let bound = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse::<usize>().unwrap();
        // No connection is accepted, so that all of them wait in the backlog. A connection beyond it would retry the
        // SYN after a second.
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for _ in 0..bound.min(300) {
            let connecting = tokio::net::TcpStream::connect(address);
            let patience = std::time::Duration::from_millis(500);
            waiting.push(tokio::time::timeout(patience, connecting).await.expect("room to wait").unwrap());
        }
    }
}
