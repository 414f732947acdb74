//! Reserves loopback ports for processes that are about to start.

use std::net::{Ipv4Addr, SocketAddr};
use std::{io, iter};

use tokio::net::TcpSocket;

use super::bound;

/// A free loopback port for a process to listen on.
///
/// On Linux the port stays bound here, without listening, as long as this value exists. A process that requests this
/// specific port can listen on it (with [`bind`](super::bind)), but the operating system assigns it to no process
/// that requests any free port. On other systems a bound port excludes every other process. It is therefore released
/// at once, and another process may take it first.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _bound: Option<TcpSocket>,
}

impl ReservedPort {
    /// Returns the loopback address with the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Reserves `N` distinct ports.
///
/// # Errors
/// No port is free.
pub fn reserve_ports<const N: usize>() -> io::Result<[ReservedPort; N]> {
    let reserved = reserve_wanted(iter::repeat_n(None, N))?;
    Ok(reserved.try_into().expect("as many ports are reserved as are wanted"))
}

/// Reserves ports as [`reserve_ports`] does; each is the wanted port if that is free.
///
/// # Errors
/// No port is free.
pub fn reserve_wanted(wanted: impl Iterator<Item = Option<SocketAddr>>) -> io::Result<Vec<ReservedPort>> {
    let reserve = |wanted: Option<SocketAddr>| match wanted.map(bound) {
        Some(Ok(socket)) => Ok(socket),
        Some(Err(_)) | None => bound((Ipv4Addr::LOCALHOST, 0).into()),
    };
    // All sockets stay bound until the last port is chosen, so that the ports are distinct.
    let sockets: Vec<TcpSocket> = wanted.map(reserve).collect::<io::Result<_>>()?;
    let reserved = sockets.into_iter().map(|socket| {
        let address = socket.local_addr()?;
        Ok(ReservedPort { address, _bound: cfg!(target_os = "linux").then_some(socket) })
    });
    reserved.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn no_two_ports_are_the_same() {
        let reserved = reserve_ports::<64>().unwrap();
        let distinct: BTreeSet<SocketAddr> = reserved.iter().map(ReservedPort::address).collect();
        assert_eq!(distinct.len(), 64);
    }

    #[test]
    fn a_process_listens_on_its_reserved_port_and_again_after_a_restart() {
        let [reserved] = reserve_ports().unwrap();
        for _ in 0..2 {
            drop(TcpListener::bind(reserved.address()).unwrap());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_operating_system_gives_a_reserved_port_to_no_other_process() {
        let reserved = reserve_ports::<256>().unwrap();
        let addresses: BTreeSet<SocketAddr> = reserved.iter().map(ReservedPort::address).collect();
        let any = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        assert!((0..2_000).map(|_| any()).all(|other| !addresses.contains(&other)));
    }

    #[test]
    fn a_wanted_port_is_reserved_where_it_is_free_and_replaced_where_a_process_listens_on_it() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = listener.local_addr().unwrap();
        let free = reserve_ports::<1>().unwrap()[0].address();
        let reserved = reserve_wanted([Some(free), Some(taken)].into_iter()).unwrap();
        assert_eq!(reserved[0].address(), free);
        assert_ne!(reserved[1].address(), taken);
    }
}
