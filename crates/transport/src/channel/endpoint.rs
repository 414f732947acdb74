use std::str::FromStr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tonic::transport::Uri;

/// A reason why no channel is opened to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// The text is not the address of a server.
    #[error("`{endpoint}` is not an endpoint; expected `http://host:port` or `https://host:port`")]
    Malformed {
        /// The text as configured.
        endpoint: String,
    },
    /// `http` off loopback in a process with a token: every call would send the token unencrypted.
    #[error("the token of security.token_file would be sent unencrypted to `{endpoint}`; use https://")]
    UnencryptedToken {
        /// The text as configured.
        endpoint: String,
    },
}

/// Checks `endpoint` without connecting, so that a configuration can be rejected before anything starts.
///
/// # Errors
/// [`InvalidEndpoint`].
pub fn check(endpoint: &str) -> Result<(), InvalidEndpoint> {
    endpoint.parse::<Target>().map(drop)
}

/// The parts of an endpoint.
#[derive(Debug)]
pub(crate) struct Target {
    /// The authority in requests.
    pub(super) uri: Uri,
    /// Host and port to connect to.
    pub(crate) dial: (Arc<str>, u16),
    /// The name that the server's certificate must have; `None` for `http`.
    pub(crate) tls_server: Option<ServerName<'static>>,
}

/// The default port of `http` endpoints.
const HTTP_PORT: u16 = 80;
/// The default port of `https` endpoints.
const HTTPS_PORT: u16 = 443;

impl FromStr for Target {
    type Err = InvalidEndpoint;

    /// Parses `http://host:port`, `https://host:port`, or `https://name@host:port`: one address of the server `name`,
    /// which must present a certificate for that name.
    fn from_str(endpoint: &str) -> Result<Self, InvalidEndpoint> {
        let invalid = || InvalidEndpoint::Malformed { endpoint: endpoint.to_owned() };
        // Checks the text, not only the parsed form: tonic reads `unix:` paths as sockets with a made-up address.
        if endpoint.starts_with("http://") {
            let uri = endpoint.parse::<Uri>().map_err(|_| invalid())?;
            let dial = (bare_host(&uri).into(), uri.port_u16().unwrap_or(HTTP_PORT));
            return if has_host(&uri) { Ok(Self { uri, dial, tls_server: None }) } else { Err(invalid()) };
        }
        let rest = endpoint.strip_prefix("https://").ok_or_else(invalid)?;
        let (name, address) = rest.split_once('@').map_or((None, rest), |(name, address)| (Some(name), address));
        let dialled = format!("https://{address}").parse::<Uri>().map_err(|_| invalid())?;
        if !has_host(&dialled) {
            return Err(invalid());
        }
        let uri = match name {
            None => dialled.clone(),
            Some(name) => {
                let port = dialled.port_u16().unwrap_or(HTTPS_PORT);
                format!("https://{name}:{port}").parse().map_err(|_| invalid())?
            }
        };
        let server = ServerName::try_from(bare_host(&uri).to_owned()).map_err(|_| invalid())?;
        let dial = (bare_host(&dialled).into(), dialled.port_u16().unwrap_or(HTTPS_PORT));
        Ok(Self { uri, dial, tls_server: Some(server) })
    }
}

fn has_host(uri: &Uri) -> bool {
    uri.host().is_some_and(|host| !host.is_empty())
}

/// Returns the host, without the brackets of an IPv6 address.
fn bare_host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_matches(['[', ']'])
}
