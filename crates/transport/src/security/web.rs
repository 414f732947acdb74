//! Checks requests for web pages, which are no gRPC calls: with the same tokens, scopes, quotas and limits.

use std::net::SocketAddr;
use std::time::Instant;

use ring::rand::{SecureRandom as _, SystemRandom};
use service::security::{is_loopback, is_set};
use service::{ConfigError, SecuritySection};
use tonic::Code;
use tonic::codegen::http::HeaderMap;

use super::caller::Caller;
use super::peer::Peer;
use super::scope::{Need, Scope};
use super::{LOOK_INTERVAL, Security, tls};

/// A refused request, with a reason that may be shown to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The request has no token, or an unknown one.
    #[error("{0}")]
    Unknown(String),
    /// The token lacks the scope.
    #[error("{0}")]
    Forbidden(String),
    /// Too many requests, or the files of the server are unusable.
    #[error("{0}")]
    Later(String),
}

impl Security {
    /// Reads the files in `section` like [`open`](Self::open), for a server of web pages at `address`, with HTTP/1.1
    /// below TLS. Pages can change a run, so that other machines reach them with TLS and a token only.
    ///
    /// # Errors
    /// Names the key of a file that is missing, or that cannot be read or used.
    pub fn open_web(section: &SecuritySection, address: SocketAddr) -> Result<Self, ConfigError> {
        let needed = [("security.certificate", &section.certificate), ("security.tokens", &section.tokens)];
        if let Some((key, _)) = needed.iter().find(|(_, path)| !is_loopback(address.ip()) && !is_set(path)) {
            let reason = format!(
                "is missing, and {address} can be reached from other machines; set certificate, key and tokens in \
                 [security], or listen on 127.0.0.1"
            );
            return Err(ConfigError::invalid(*key, reason));
        }
        Self::open_with(section, LOOK_INTERVAL, tls::web_server)
    }

    /// Checks that the token in the `authorization` header of a request for the page `what` has `scope`, and returns
    /// the caller. An accepted request makes the connection of `peer` known: see [`incoming`](crate::incoming()).
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn check_page(&self, what: &str, scope: Scope, headers: &HeaderMap, peer: &Peer) -> Result<Caller, Refused> {
        let checked = self.guard.check_need(what, Need::One(scope), headers, Some(peer), Instant::now());
        checked.map(|(caller, _)| caller).map_err(|status| {
            let message = status.message().to_owned();
            match status.code() {
                Code::Unauthenticated => Refused::Unknown(message),
                Code::PermissionDenied => Refused::Forbidden(message),
                _ => Refused::Later(message),
            }
        })
    }
}

/// Returns a word of 32 random digits, impossible to guess; `None` if the system has no entropy.
#[must_use]
pub fn secret_word() -> Option<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_for_other_machines_need_a_certificate_and_tokens() {
        let everywhere: SocketAddr = "0.0.0.0:7080".parse().unwrap();
        let refused = |section: &SecuritySection| Security::open_web(section, everywhere).unwrap_err().to_string();
        let mut section = SecuritySection { insecure_bind: true, ..SecuritySection::default() };
        assert!(refused(&section).starts_with("security.certificate: is missing, and 0.0.0.0:7080 can be reached"));
        section.certificate = "server.pem".into();
        assert!(refused(&section).starts_with("security.tokens: is missing"), "{}", refused(&section));
        Security::open_web(&SecuritySection::default(), "127.0.0.1:0".parse().unwrap()).unwrap();
    }

    #[test]
    fn secret_words_differ() {
        let words = [secret_word().unwrap(), secret_word().unwrap()];
        assert!(words[0] != words[1] && words.iter().all(|word| word.len() == 32), "{words:?}");
    }
}
