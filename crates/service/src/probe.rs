//! Asking a running process how it is, from the same binary.
//!
//! A container has no shell and no curl to ask with. A few lines of HTTP/1.1 are enough for a server that we wrote, and
//! start nothing: no runtime, no configuration, no logs.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// An admin port that takes longer, to connect or between two reads, does not count as answering.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest answer that is read: a reason, not a page.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Probe {
    /// Whether it is alive: `/healthz`.
    Health,
    /// Whether it can do its work: `/readyz`.
    Ready,
}

/// Why the process does not count as well.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It was not said which process is meant.
    #[error("--probe needs the port of the process that it asks: `--admin 127.0.0.1:9100`")]
    NoPort,
    /// Nobody is there, or does not answer in time.
    #[error("{address} does not answer")]
    Away {
        /// Who was asked.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// What answers is no admin port.
    #[error("{address} does not answer as an admin port does")]
    Foreign {
        /// Who was asked.
        address: SocketAddr,
    },
    /// It says no.
    #[error("{status}: {text}")]
    Unwell {
        /// The status of its answer.
        status: u16,
        /// Its reason.
        text: String,
    },
}

impl Probe {
    /// Asks the process whose `--admin` this is; its answer, if it is well.
    ///
    /// # Errors
    /// Says whether nobody is there, or who is there is not well.
    pub fn ask(self, admin: SocketAddr) -> Result<String, ProbeError> {
        if admin.port() == 0 {
            return Err(ProbeError::NoPort);
        }
        let address = reachable(admin);
        let answer = self.exchange(address).map_err(|source| ProbeError::Away { address, source })?;
        let answer = String::from_utf8_lossy(&answer);
        let (status, text) = parse(&answer).ok_or(ProbeError::Foreign { address })?;
        match status {
            200 => Ok(text.to_owned()),
            _ => Err(ProbeError::Unwell { status, text: text.trim().to_owned() }),
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Health => "/healthz",
            Self::Ready => "/readyz",
        }
    }

    fn exchange(self, address: SocketAddr) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let path = self.path();
        // It ends the connection after the answer, so that the end of the stream is the end of the answer.
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

/// Where a process that listens at `admin` is reached from beside it: an address that stands for all is none to connect to.
fn reachable(admin: SocketAddr) -> SocketAddr {
    let ip = match admin.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, admin.port())
}

/// Status and body of an answer.
fn parse(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.parse().ok()?, body))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::{Admin, Readiness, net};

    async fn ask(probe: Probe, admin: SocketAddr) -> Result<String, String> {
        tokio::task::spawn_blocking(move || probe.ask(admin).map_err(|error| error.to_string())).await.unwrap()
    }

    #[tokio::test]
    async fn a_probe_says_what_the_admin_port_says() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let readiness = Readiness::starting();
        let listener = net::bind("0.0.0.0:0".parse().unwrap()).await.unwrap();
        let admin = Admin::start(listener, recorder.handle(), readiness.clone()).unwrap();
        // An address that stands for all of the machine's is asked on loopback.
        let address = admin.address();

        assert_eq!(ask(Probe::Health, address).await, Ok("ok\n".to_owned()));
        assert_eq!(ask(Probe::Ready, address).await, Err("503: starting".to_owned()));
        readiness.ready();
        assert_eq!(ask(Probe::Ready, address).await, Ok("ready\n".to_owned()));
        admin.stop().await;
        let error = ask(Probe::Health, address).await.unwrap_err();
        assert!(error.contains("127.0.0.1") && error.contains("does not answer"), "{error}");
    }

    #[test]
    fn a_probe_without_a_port_says_what_it_needs() {
        let error = Probe::Ready.ask("127.0.0.1:0".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("--admin"), "{error}");
    }

    #[test]
    fn what_is_no_admin_port_is_not_well() {
        for answer in [&b""[..], b"SSH-2.0-x\r\n", b"HTTP/1.1 x\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"\xff\xfe\r\n\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 16];
                stream.read_exact(&mut request).unwrap();
                stream.write_all(answer).unwrap();
            });
            assert!(Probe::Health.ask(address).is_err(), "{answer:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn an_endless_answer_is_read_to_its_bound_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Until the other end has enough.
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        assert!(Probe::Health.ask(address).is_err());
        server.join().unwrap();
    }
}
