//! Asking a running process how it is, from the same binary.
//!
//! A container has no shell and no curl to ask with. A few lines of HTTP/1.1 are enough for a server that we wrote, and
//! start nothing: no runtime, no configuration, no logs.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

#[cfg(test)]
mod tests;

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
