//! The section `[security]`: credentials that a server requires from clients, and credentials that a client presents.
//!
//! This module holds the keys and the rules that do not depend on file contents. `proto` opens the files and builds
//! connections and checks from them. Every key is off by default: processes on one machine connect over loopback and
//! trust each other.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use hyper::Uri;

use crate::ConfigError;

crate::section! {
    /// The section `[security]`: certificates and tokens, each as the path of a file, reloaded after a change.
    #[derive(Eq)]
    #[serde(deny_unknown_fields)]
    pub struct SecuritySection {
        /// Certificate chain of the server (PEM). If empty, TLS is off.
        certificate: PathBuf = PathBuf::new();
        /// Private key of `certificate` (PEM).
        key: PathBuf = PathBuf::new();
        /// Authorities that sign client certificates (PEM). If set, clients must present a certificate.
        client_ca: PathBuf = PathBuf::new();
        /// Revocation lists of the authorities in `client_ca` (PEM). A listed client certificate is not accepted.
        crl: PathBuf = PathBuf::new(), page "security.md#revocation";
        /// Scopes of client certificates if no tokens are set: on each line a DNS name and scopes. A certificate with
        /// another name has the scopes that the service of that name needs.
        client_scopes: PathBuf = PathBuf::new(), page "security.md#scopes-of-certificates";
        /// Accepted tokens: on each line a name, scopes and the SHA-256 of a token. If empty, clients need no token.
        tokens: PathBuf = PathBuf::new(), page "security.md#tokens";
        /// Time in seconds for which files that identify clients may be unreadable or invalid. After it the server
        /// refuses all calls except health checks; 0 means no limit.
        // A person who gets the alert can act, and a withdrawn credential is not accepted for long.
        unusable_seconds_max: u32 = 3600, page "security.md#revocation";
        /// Calls that one client may start per second, counted by token or certificate name, or else by address; 0
        /// means no limit.
        requests_per_second_max: u32 = 0;
        /// True to let a server without client certificates and tokens listen on addresses other than loopback.
        insecure_bind: bool = false;
        /// Authorities that sign server certificates (PEM). Required for `https` endpoints.
        ca: PathBuf = PathBuf::new();
        /// Client certificate chain of this process (PEM).
        client_certificate: PathBuf = PathBuf::new();
        /// Private key of `client_certificate` (PEM).
        client_key: PathBuf = PathBuf::new();
        /// File that contains only the token that this process sends to servers.
        token_file: PathBuf = PathBuf::new();
    }
}

impl SecuritySection {
    /// Checks, without reading files, that keys which depend on each other are set together.
    ///
    /// # Errors
    /// A key is missing; [`ConfigError`] names it.
    pub fn check(&self) -> Result<(), ConfigError> {
        let needs = |key: &Path, other: &Path, missing: &str, because: &str| {
            if is_set(key) && !is_set(other) {
                let reason = format!("is missing, but {because} is set");
                return Err(ConfigError::invalid(format!("security.{missing}"), reason));
            }
            Ok(())
        };
        needs(&self.certificate, &self.key, "key", "security.certificate")?;
        needs(&self.key, &self.certificate, "certificate", "security.key")?;
        needs(&self.client_ca, &self.certificate, "certificate", "security.client_ca")?;
        needs(&self.crl, &self.client_ca, "client_ca", "security.crl")?;
        needs(&self.client_scopes, &self.client_ca, "client_ca", "security.client_scopes")?;
        needs(&self.client_certificate, &self.client_key, "client_key", "security.client_certificate")?;
        needs(&self.client_key, &self.client_certificate, "client_certificate", "security.client_key")?;
        needs(&self.client_certificate, &self.ca, "ca", "security.client_certificate")
    }

    /// Checks that a server may listen at `address`. Loopback is always allowed; other addresses require client
    /// certificates or tokens, unless `insecure_bind` is set. Logs a warning for `insecure_bind` and for tokens
    /// without TLS.
    ///
    /// # Errors
    /// [`ConfigError`] names `security.client_ca` if the server has a certificate, else `security.insecure_bind`.
    pub fn check_listen(&self, address: SocketAddr) -> Result<(), ConfigError> {
        if is_loopback(address.ip()) {
            return Ok(());
        }
        if is_set(&self.tokens) {
            if !self.serves_tls() {
                tracing::warn!(%address, "tokens are sent unencrypted to this address: security.certificate is not set");
            }
            return Ok(());
        }
        if is_set(&self.client_ca) {
            return Ok(());
        }
        if self.insecure_bind {
            tracing::warn!(%address, "any client that reaches this address may call every method: \
                                      neither security.client_ca nor security.tokens is set");
            return Ok(());
        }
        let (key, state) = if self.serves_tls() {
            ("security.client_ca", "is missing: security.certificate alone accepts any client")
        } else {
            ("security.insecure_bind", "is false")
        };
        let reason = format!(
            "{state}, and {address} can be reached from other machines; require client certificates \
             (security.certificate, security.key, security.client_ca) or tokens (security.tokens), or listen on \
             127.0.0.1, or set security.insecure_bind = true to accept any client"
        );
        Err(ConfigError::invalid(key, reason))
    }

    /// Checks that this process can authenticate the server at `endpoint`, which is configured at `key`, and would
    /// not send the token unencrypted. `endpoint` may be a list separated by commas.
    ///
    /// # Errors
    /// [`ConfigError`] names `key` if an endpoint is `https` and `security.ca` is not set, or if an endpoint that is
    /// not on loopback is `http` and `security.token_file` is set.
    pub fn check_endpoint(&self, key: &str, endpoint: &str) -> Result<(), ConfigError> {
        for endpoint in endpoint.split(',').map(str::trim) {
            if endpoint.starts_with("https://") && !is_set(&self.ca) {
                let reason = "is https, which requires security.ca (CA certificates of the servers)";
                return Err(ConfigError::invalid(key, reason));
            }
            if is_set(&self.token_file) && is_plain_off_loopback(endpoint) {
                let reason = format!(
                    "would send the token of security.token_file unencrypted to {endpoint}; use https:// and set \
                     security.ca, or leave security.token_file out"
                );
                return Err(ConfigError::invalid(key, reason));
            }
        }
        Ok(())
    }

    /// Returns true if servers use TLS.
    #[must_use]
    pub fn serves_tls(&self) -> bool {
        is_set(&self.certificate)
    }

    /// Returns the endpoint scheme of servers with these settings.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.serves_tls() { "https" } else { "http" }
    }
}

/// Returns true if a path is configured.
#[must_use]
pub fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

/// Returns true if `endpoint` is `http` and the host is not known to be this machine, so that other machines could
/// read the traffic.
#[must_use]
pub fn is_plain_off_loopback(endpoint: &str) -> bool {
    endpoint.starts_with("http://") && is_off_loopback(endpoint)
}

/// Returns true if the host of `endpoint` is not known to be this machine. A host name other than `localhost` counts
/// as remote.
#[must_use]
pub fn is_off_loopback(endpoint: &str) -> bool {
    let is_local = |uri: Uri| {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse().is_ok_and(is_loopback)
    };
    !endpoint.parse().is_ok_and(is_local)
}

/// Returns true if `address` is a loopback address, including an IPv4 address mapped to IPv6.
#[must_use]
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
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
    fn without_client_certificates_and_tokens_a_server_listens_on_loopback_only() {
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
    fn a_server_certificate_alone_does_not_open_other_addresses_than_loopback() {
        let section = with(|section| section.certificate = "server.pem".into());
        section.check_listen("127.0.0.1:7001".parse().unwrap()).unwrap();
        for address in everywhere() {
            let error = section.check_listen(address).unwrap_err().to_string();
            assert!(error.starts_with("security.client_ca: is missing"), "{error}");
            assert!(error.contains("security.tokens") && error.contains(&address.to_string()), "{error}");
        }
    }

    #[test]
    fn with_client_certificates_or_tokens_or_where_it_is_allowed_a_server_listens_anywhere() {
        for section in [
            with(|section| section.client_ca = "ca.pem".into()),
            with(|section| section.tokens = "tokens".into()),
            with(|section| section.insecure_bind = true),
        ] {
            for address in everywhere() {
                section.check_listen(address).unwrap();
            }
        }
    }

    #[test]
    fn a_missing_key_that_another_key_requires_is_named() {
        let refused = |set: fn(&mut SecuritySection)| with(set).check().unwrap_err().to_string();
        let missing = |key: &str, because: &str| format!("security.{key}: is missing, but security.{because} is set");
        assert_eq!(refused(|section| section.certificate = "a".into()), missing("key", "certificate"));
        assert_eq!(refused(|section| section.key = "a".into()), missing("certificate", "key"));
        assert_eq!(refused(|section| section.client_ca = "a".into()), missing("certificate", "client_ca"));
        assert_eq!(refused(|section| section.client_scopes = "a".into()), missing("client_ca", "client_scopes"));
        assert_eq!(refused(|section| section.client_key = "a".into()), missing("client_certificate", "client_key"));
        let alone = |section: &mut SecuritySection| {
            section.client_certificate = "a".into();
            section.client_key = "b".into();
        };
        assert_eq!(refused(alone), missing("ca", "client_certificate"));
        SecuritySection::default().check().unwrap();
    }

    #[test]
    fn an_https_endpoint_needs_the_authorities_of_servers() {
        let open = SecuritySection::default();
        open.check_endpoint("actor.learner", "http://127.0.0.1:7002").unwrap();
        let error = open.check_endpoint("actor.replay", "http://a:1,https://b:1").unwrap_err().to_string();
        assert!(error.starts_with("actor.replay: is https, which requires security.ca"), "{error}");
        let trusting = with(|section| section.ca = "ca.pem".into());
        trusting.check_endpoint("actor.replay", "http://a:1,https://b:1").unwrap();
    }

    #[test]
    fn a_token_is_not_sent_unencrypted_off_loopback() {
        let section = with(|section| (section.token_file, section.ca) = ("token".into(), "ca.pem".into()));
        for good in [
            "http://127.0.0.1:7001",
            "http://[::1]:7001, http://localhost:7001",
            "http://localhost",
            "https://replay:7001,https://replay@10.0.0.1:7001",
        ] {
            section.check_endpoint("actor.replay", good).unwrap();
        }
        for bad in [
            "http://replay:7001",
            "http://10.0.0.1:7001",
            "https://a:1, http://b:1",
            "http://127.0.0.1.example:7001",
            "http://localhost@10.0.0.1:7001",
            "http://[2001:db8::1]:7001",
        ] {
            let error = section.check_endpoint("actor.replay", bad).unwrap_err().to_string();
            assert!(error.starts_with("actor.replay: would send the token of security.token_file"), "{bad}: {error}");
        }
        SecuritySection::default().check_endpoint("actor.replay", "http://10.0.0.1:7001").unwrap();
    }
}
