//! `[security]`: what a server asks of those who connect, and what a client shows to servers.
//!
//! Here is what is written; `proto` makes connections and checks of it. All of it is off unless it is set: processes on one
//! machine meet over loopback and trust each other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// The section `[security]`: certificates and tokens, each the path of a file that is read again when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecuritySection {
    /// The certificate that servers show, with those between it and who signed it (PEM). Empty: no TLS.
    pub certificate: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
    /// Whose certificates clients must show (PEM). Empty: clients need none.
    pub client_ca: PathBuf,
    /// The tokens that a server takes: on each line a name, scopes and the SHA-256 of a token. Empty: clients need none.
    pub tokens: PathBuf,
    /// Calls that one client may begin per second, by its token or else its address; 0: any number.
    pub requests_per_second_max: u32,
    /// Lets a server without TLS and without tokens listen where other machines reach it.
    pub insecure_bind: bool,
    /// Whose certificates servers must show to this process (PEM). Needed for `https` endpoints.
    pub ca: PathBuf,
    /// The certificate that this process shows to servers, with those between it and who signed it (PEM).
    pub client_certificate: PathBuf,
    /// Its private key (PEM).
    pub client_key: PathBuf,
    /// A file with the token that this process sends to servers, and nothing else.
    pub token_file: PathBuf,
}

impl SecuritySection {
    /// Checks what can be without reading a file: that keys which need each other are there together.
    ///
    /// # Errors
    /// Names the key that is missing.
    pub fn check(&self) -> Result<(), ConfigError> {
        let needs = |key: &Path, other: &Path, missing: &str, because: &str| {
            if is_set(key) && !is_set(other) {
                let reason = format!("is missing, and {because} is set");
                return Err(ConfigError::invalid(format!("security.{missing}"), reason));
            }
            Ok(())
        };
        needs(&self.certificate, &self.key, "key", "security.certificate")?;
        needs(&self.key, &self.certificate, "certificate", "security.key")?;
        needs(&self.client_ca, &self.certificate, "certificate", "security.client_ca")?;
        needs(&self.client_certificate, &self.client_key, "client_key", "security.client_certificate")?;
        needs(&self.client_key, &self.client_certificate, "client_certificate", "security.client_key")?;
        needs(&self.client_certificate, &self.ca, "ca", "security.client_certificate")
    }

    /// Whether a server may listen at `address`: anywhere with TLS or tokens, else on loopback only, unless
    /// `insecure_bind` is set; then it is told in the log.
    ///
    /// # Errors
    /// Names `security.insecure_bind`.
    pub fn check_listen(&self, address: SocketAddr) -> Result<(), ConfigError> {
        // An IPv4 address may be written as one of IPv6.
        if address.ip().to_canonical().is_loopback() || self.serves_tls() || is_set(&self.tokens) {
            return Ok(());
        }
        if self.insecure_bind {
            tracing::warn!(%address, "anyone who reaches this address may do anything: no TLS and no tokens are set");
            return Ok(());
        }
        let reason = format!(
            "is false, and {address} is reached from other machines: set security.certificate and security.key, or \
             security.tokens, or listen on 127.0.0.1, or set it to true and let in whoever comes"
        );
        Err(ConfigError::invalid("security.insecure_bind", reason))
    }

    /// Whether this process can tell the server at `endpoint`, written at `key`, from an impostor; also several, separated by
    /// commas.
    ///
    /// # Errors
    /// Names `key`, where an endpoint is `https` and `security.ca` is not set.
    pub fn check_endpoint(&self, key: &str, endpoint: &str) -> Result<(), ConfigError> {
        if endpoint.contains("https://") && !is_set(&self.ca) {
            let reason = "is https, which needs security.ca: whose certificates to trust";
            return Err(ConfigError::invalid(key, reason));
        }
        Ok(())
    }

    /// Whether servers speak TLS.
    #[must_use]
    pub fn serves_tls(&self) -> bool {
        is_set(&self.certificate)
    }

    /// How the endpoints of servers with these settings begin.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.serves_tls() { "https" } else { "http" }
    }
}

/// Whether a path was written.
#[must_use]
pub fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: impl FnOnce(&mut SecuritySection)) -> SecuritySection {
        let mut section = SecuritySection::default();
        set(&mut section);
        section
    }

    fn everywhere() -> [SocketAddr; 3] {
        ["0.0.0.0:7001", "192.0.2.1:7001", "[::]:7001"].map(|address| address.parse().unwrap())
    }

    #[test]
    fn without_tls_and_tokens_a_server_listens_on_loopback_only() {
        let open = SecuritySection::default();
        for loopback in ["127.0.0.1:0", "127.8.8.8:7001", "[::1]:7001", "[::ffff:127.0.0.1]:7001"] {
            open.check_listen(loopback.parse().unwrap()).unwrap();
        }
        for address in everywhere() {
            let error = open.check_listen(address).unwrap_err().to_string();
            let named = error.starts_with("security.insecure_bind: is false");
            assert!(named && error.contains(&address.to_string()), "{error}");
        }
    }

    #[test]
    fn with_tls_or_tokens_or_where_it_is_allowed_a_server_listens_anywhere() {
        for section in [
            with(|section| section.certificate = "server.pem".into()),
            with(|section| section.tokens = "tokens".into()),
            with(|section| section.insecure_bind = true),
        ] {
            for address in everywhere() {
                section.check_listen(address).unwrap();
            }
        }
    }

    #[test]
    fn a_key_that_another_one_needs_is_missed_by_name() {
        let refused = |set: fn(&mut SecuritySection)| with(set).check().unwrap_err().to_string();
        let missing = |key: &str, because: &str| format!("security.{key}: is missing, and security.{because} is set");
        assert_eq!(refused(|section| section.certificate = "a".into()), missing("key", "certificate"));
        assert_eq!(refused(|section| section.key = "a".into()), missing("certificate", "key"));
        assert_eq!(refused(|section| section.client_ca = "a".into()), missing("certificate", "client_ca"));
        assert_eq!(refused(|section| section.client_key = "a".into()), missing("client_certificate", "client_key"));
        let alone = |section: &mut SecuritySection| {
            section.client_certificate = "a".into();
            section.client_key = "b".into();
        };
        assert_eq!(refused(alone), missing("ca", "client_certificate"));
        SecuritySection::default().check().unwrap();
    }

    #[test]
    fn an_https_endpoint_needs_to_know_whom_to_trust() {
        let open = SecuritySection::default();
        open.check_endpoint("actor.learner", "http://127.0.0.1:7002").unwrap();
        let error = open.check_endpoint("actor.replay", "http://a:1,https://b:1").unwrap_err().to_string();
        assert!(error.starts_with("actor.replay: is https, which needs security.ca"), "{error}");
        let trusting = with(|section| section.ca = "ca.pem".into());
        trusting.check_endpoint("actor.replay", "http://a:1,https://b:1").unwrap();
    }
}
