use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tonic::transport::Uri;

use super::Server;

/// The default port of an endpoint without one: as http and https have it.
const PORT_HTTP: u16 = 80;
const PORT_HTTPS: u16 = 443;

/// One endpoint of the configuration, and what its host name stood for when it was last looked up.
#[derive(Debug)]
pub(super) struct Name {
    written: Arc<str>,
    /// The name on the certificate of its servers, if they speak TLS.
    certificate: Option<String>,
    host: String,
    port: u16,
    /// It is an address, or this machine: used as written, and never looked up.
    is_fixed: bool,
    addresses: BTreeSet<SocketAddr>,
    /// The address that goes by the endpoint as written: the one it stood for while it stood for one alone. It stays
    /// when others are added, so that a client does not take another server for the one it knew.
    sole: Option<SocketAddr>,
    /// It has stood for several addresses at once: an address that comes may be any of them.
    was_several: bool,
    /// True if the last lookup failed; logged once.
    failing: bool,
}

impl Name {
    /// `endpoint` was checked.
    pub(super) fn new(endpoint: &str) -> Self {
        let uri = endpoint.parse::<Uri>().unwrap_or_default();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        // This machine has an address of either family, and they are one server.
        let is_fixed = host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost");
        let certificate = endpoint.strip_prefix("https://").map(|rest| {
            let name = rest.split_once('@').map(|(name, _)| name);
            name.unwrap_or(&host).to_owned()
        });
        let port = uri.port_u16().unwrap_or(if certificate.is_some() { PORT_HTTPS } else { PORT_HTTP });
        Self {
            written: endpoint.into(),
            certificate,
            host,
            port,
            is_fixed,
            addresses: BTreeSet::new(),
            sole: None,
            was_several: false,
            failing: false,
        }
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Takes in an answer. A lookup that fails changes nothing: servers do not go because a name server does.
    pub(super) fn learn(&mut self, answer: io::Result<Vec<SocketAddr>>) {
        match answer {
            Ok(addresses) => {
                self.failing = false;
                self.hold(one_family(addresses));
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(host = self.host, %error, "a host name cannot be looked up; its last addresses hold");
                }
            }
        }
    }

    fn hold(&mut self, addresses: BTreeSet<SocketAddr>) {
        self.was_several |= addresses.len() > 1;
        if !self.was_several {
            // A server that moves takes its name along.
            self.sole = addresses.first().copied().or(self.sole);
        }
        self.addresses = addresses;
    }

    pub(super) fn servers(&self) -> Vec<Server> {
        if self.is_fixed {
            return vec![Server::at(&self.written)];
        }
        let server = |&address: &SocketAddr| {
            let endpoint: Arc<str> = match &self.certificate {
                Some(name) => format!("https://{name}@{address}").into(),
                None => format!("http://{address}").into(),
            };
            let is_sole = self.sole == Some(address);
            let id = if is_sole { Arc::clone(&self.written) } else { Arc::clone(&endpoint) };
            Server { id, endpoint, has_own_name: is_sole && !self.was_several }
        };
        self.addresses.iter().map(server).collect()
    }
}

/// A server that listens on both families has two addresses; where a name has both, those of one are all its servers.
fn one_family(addresses: Vec<SocketAddr>) -> BTreeSet<SocketAddr> {
    let any_v4 = addresses.iter().any(SocketAddr::is_ipv4);
    addresses.into_iter().filter(|address| address.is_ipv4() == any_v4).collect()
}
