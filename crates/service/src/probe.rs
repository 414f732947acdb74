//! Health probes of a running process, sent by the same binary.
//!
//! The images have no shell and no curl. A few lines of HTTP/1.1 suffice for the admin server and need no runtime, no
//! configuration and no logs.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// Time limit for connecting, and between two reads.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of the response in bytes; it contains one reason.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// The probed endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Probe {
    /// `/healthz`: the process is alive.
    Health,
    /// `/readyz`: the process can work.
    Ready,
}

impl Probe {
    /// Probes the process with this `--admin` address; returns the response if it is healthy.
    ///
    /// # Errors
    /// There is no response, or the process is not healthy.
    pub fn send(self, admin: SocketAddr) -> anyhow::Result<String> {
        ensure!(admin.port() != 0, "--probe needs the admin address of the process: `--admin 127.0.0.1:9100`");
        let address = reachable(admin);
        let answer = self.exchange(address).with_context(|| format!("no response from {address}"))?;
        let answer = String::from_utf8_lossy(&answer);
        let (status, text) = parse(&answer).with_context(|| format!("{address} is not an admin port"))?;
        ensure!(status == 200, "{status}: {}", text.trim());
        Ok(text.to_owned())
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
        // With `Connection: close` the response ends with the stream.
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

/// Returns the address for connections to a process that listens at `admin`: loopback instead of a wildcard address.
fn reachable(admin: SocketAddr) -> SocketAddr {
    let ip = match admin.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, admin.port())
}

/// Parses the status and the body of a response.
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

    async fn probe(probe: Probe, admin: SocketAddr) -> Result<String, String> {
        tokio::task::spawn_blocking(move || probe.send(admin).map_err(|error| error.to_string())).await.unwrap()
    }

    #[tokio::test]
    async fn a_probe_prints_the_response_of_the_admin_port() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let readiness = Readiness::starting();
        let listener = net::bind("0.0.0.0:0".parse().unwrap()).await.unwrap();
        let (health, live) = (crate::Health::default(), crate::Live::default());
        let admin = Admin::start(listener, recorder.handle(), health, readiness.clone(), live).unwrap();
        // A wildcard address is probed on loopback.
        let address = admin.address;

        assert_eq!(probe(Probe::Health, address).await, Ok("ok\n".to_owned()));
        assert_eq!(probe(Probe::Ready, address).await, Err("503: starting".to_owned()));
        readiness.ready();
        assert_eq!(probe(Probe::Ready, address).await, Ok("ready\n".to_owned()));
        admin.stop().await;
        let error = probe(Probe::Health, address).await.unwrap_err();
        assert!(error.contains("no response from 127.0.0.1"), "{error}");
    }

    #[test]
    fn a_probe_without_a_port_is_an_error_with_a_remedy() {
        let error = Probe::Ready.send("127.0.0.1:0".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("--admin"), "{error}");
    }

    #[test]
    fn a_malformed_or_truncated_response_fails_the_probe() {
        for answer in [&b""[..], b"SSH-2.0-x\r\n", b"HTTP/1.1 x\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"\xff\xfe\r\n\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 16];
                stream.read_exact(&mut request).unwrap();
                stream.write_all(answer).unwrap();
            });
            assert!(Probe::Health.send(address).is_err(), "{answer:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn an_endless_answer_is_read_to_its_bound_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The loop stops when the other side closes the connection.
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        assert!(Probe::Health.send(address).is_err());
        server.join().unwrap();
    }
}
