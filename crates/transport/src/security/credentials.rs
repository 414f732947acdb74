use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::ClientConfig;
use service::security::is_set;
use service::{ConfigError, SecuritySection};
use tonic::codegen::http::HeaderValue;

use super::watched::{Fault, Times, Watched};
use super::{LOOK_INTERVAL, tls};

/// The credentials of this process, and the section from which they were read.
static OF_PROCESS: OnceLock<(SecuritySection, Credentials)> = OnceLock::new();

/// The trusted authorities, the certificate and the token of a client. Cheap to clone; the default trusts no server
/// over `https` and sends nothing.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    tls: Option<Arc<Watched<ClientConfig>>>,
    authorization: Option<Arc<Watched<HeaderValue>>>,
}

impl Credentials {
    /// Reads the client files in `section`.
    ///
    /// # Errors
    /// Names the key of a file that cannot be read or used, or that another key requires.
    pub fn open(section: &SecuritySection) -> Result<Self, ConfigError> {
        Self::open_looking(section, LOOK_INTERVAL)
    }

    pub(super) fn open_looking(section: &SecuritySection, interval: Duration) -> Result<Self, ConfigError> {
        section.check()?;
        // Servers refuse withdrawn credentials, so a client keeps the last usable credentials.
        let times = Times { interval, unusable_max: Duration::MAX };
        let tls = is_set(&section.ca).then(|| Watched::open(tls::client_files(section), times, tls::client));
        let token = || Watched::open(vec![("security.token_file", section.token_file.clone())], times, authorization);
        let authorization = is_set(&section.token_file).then(token);
        Ok(Self { tls: tls.transpose()?.map(Arc::new), authorization: authorization.transpose()?.map(Arc::new) })
    }

    /// Returns the TLS settings for new connections; `None`: no server is trusted.
    pub(crate) fn tls(&self) -> Option<Arc<ClientConfig>> {
        self.tls.as_ref().map(|tls| tls.current())
    }

    /// Returns the `authorization` header of every call.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        self.authorization.as_ref().map(|header| HeaderValue::clone(&header.current()))
    }

    /// Returns the credentials of this process; the default until [`use_credentials`].
    pub(crate) fn of_process() -> Self {
        OF_PROCESS.get().map(|(_, credentials)| credentials.clone()).unwrap_or_default()
    }
}

/// Opens the credentials in `section` for all later channels of this process, from [`channel`](crate::channel()) or
/// in a client. Set once, since a process has one identity, and clients are opened in many places. A section without
/// credentials changes nothing.
///
/// # Errors
/// The errors of [`Credentials::open`]; or other credentials are in use already.
pub fn use_credentials(section: &SecuritySection) -> Result<(), ConfigError> {
    // A server that asks again neither reads the files nor starts to watch them.
    if OF_PROCESS.get().is_some_and(|(used, _)| used == section) {
        return Ok(());
    }
    let credentials = Credentials::open(section)?;
    if credentials.tls.is_none() && credentials.authorization.is_none() {
        return Ok(());
    }
    let (used, _) = OF_PROCESS.get_or_init(|| (section.clone(), credentials));
    if used == section {
        return Ok(());
    }
    Err(ConfigError::invalid("security", "this process already uses other credentials"))
}

/// Builds the header from the token file.
fn authorization(files: &[Vec<u8>]) -> Result<HeaderValue, Fault> {
    let fault = |reason: &str| Fault { file: 0, reason: reason.to_owned() };
    let token = files[0].trim_ascii();
    if token.is_empty() {
        return Err(fault("contains no token"));
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(fault("is not one token of printable ASCII characters"));
    }
    let mut header =
        HeaderValue::from_bytes(&[b"Bearer ", token].concat()).map_err(|error| fault(&error.to_string()))?;
    // Excluded from debug output and from the compression table of headers.
    header.set_sensitive(true);
    Ok(header)
}
