//! Maps client certificates to scopes by DNS name, on a server that requires certificates and no tokens.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::caller::ActorIds;
use super::scope::{Credential, Holder, Scope, Scopes};
use super::tokens::{bad_line, lines};
use super::watched::Fault;

/// The client scopes of each service, by the name in the certificates that `cargo xtask certs` creates.
const BY_SERVICE: [(&str, &[Scope]); 6] = [
    ("replay", &[]),
    ("learner", &[Scope::Train]),
    ("inference", &[Scope::Infer]),
    ("actor", &[Scope::Act, Scope::Infer]),
    ("arena", &[Scope::Infer]),
    ("operator", &Scope::ALL),
];

/// Maps the name of a client certificate to scopes: by `security.client_scopes`, else by service. Any other certificate
/// has no scope, and may only read.
#[derive(Debug)]
pub(super) struct CertificateScopes(HashMap<Box<str>, Arc<Holder>>);

/// Reads the file of `security.client_scopes`; without a file, only the default scopes of the services apply.
pub(super) fn of_files(files: &[Vec<u8>]) -> Result<CertificateScopes, Fault> {
    let written = files.first().map_or(&[][..], Vec::as_slice);
    CertificateScopes::read(written)
}

impl CertificateScopes {
    /// Parses lines of name, scopes and, optionally, actors. A line replaces the defaults of the service with this
    /// name.
    fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut written = HashMap::new();
        for (number, line) in lines(bytes)? {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (name, scopes, actors) = match words[..] {
                [name, scopes] => (name, scopes, None),
                [name, scopes, actors] => (name, scopes, Some(actors)),
                _ => return Err(bad_line(number, "is not NAME SCOPE[,SCOPE] [actors=ID[-ID][,ID[-ID]]]")),
            };
            let invalid = |reason: String| bad_line(number, &reason);
            let (scopes, actors) = (scopes.parse().map_err(invalid)?, ActorIds::of_word(actors).map_err(invalid)?);
            if written.insert(name.into(), holder(Some(name), scopes, actors)).is_some() {
                return Err(bad_line(number, "duplicate name"));
            }
        }
        for (name, scopes) in BY_SERVICE {
            written.entry(name.into()).or_insert_with(|| holder(Some(name), Scopes::of(scopes), ActorIds::Any));
        }
        Ok(Self(written))
    }

    /// Returns the holder of a certificate for this name.
    pub(super) fn holder(&self, name: Option<&str>) -> Arc<Holder> {
        let known = name.and_then(|name| self.0.get(name)).cloned();
        known.unwrap_or_else(|| holder(name, Scopes::of(&[]), ActorIds::Any))
    }
}

fn holder(name: Option<&str>, scopes: Scopes, actors: ActorIds) -> Arc<Holder> {
    let credential = Credential::Certificate(name.map(Arc::from));
    Arc::new(Holder { credential, name: name.unwrap_or("a client without a DNS name").into(), scopes, actors })
}

/// Returns the first DNS name in a client's certificate chain.
pub(crate) fn client_name(chain: &[CertificateDer<'_>]) -> Option<Arc<str>> {
    let certificate = EndEntityCert::try_from(chain.first()?).ok()?;
    certificate.valid_dns_names().next().map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(table: &CertificateScopes, name: Option<&str>) -> String {
        table.holder(name).scopes.to_string()
    }

    #[test]
    fn a_certificate_has_the_scopes_that_its_service_needs_and_any_other_has_none() {
        let table = of_files(&[]).unwrap();
        for (name, expected) in [
            ("actor", "act, infer"),
            ("learner", "train"),
            ("inference", "infer"),
            ("arena", "infer"),
            ("replay", "none"),
            ("operator", "act, revise, train, infer, view, admin"),
            ("stranger", "none"),
            ("Actor", "none"),
        ] {
            assert_eq!(scopes(&table, Some(name)), expected, "{name}");
        }
        assert_eq!(scopes(&table, None), "none");
    }

    #[test]
    fn written_scopes_replace_those_of_a_service_and_add_names() {
        let table = CertificateScopes::read(b"# ours\nci.example infer,admin\nactor act\n").unwrap();
        assert_eq!(scopes(&table, Some("ci.example")), "infer, admin");
        assert_eq!(scopes(&table, Some("actor")), "act");
        assert_eq!(scopes(&table, Some("learner")), "train");
    }

    #[test]
    fn an_invalid_line_is_named_by_its_number() {
        for (line, reason) in [
            ("actor", "is not NAME SCOPE[,SCOPE]"),
            ("actor act more", "the last word is not actors="),
            ("actor act actors=1 more", "is not NAME SCOPE[,SCOPE]"),
            ("actor fly", "invalid scope `fly`"),
            ("first infer", "duplicate name"),
        ] {
            let error = CertificateScopes::read(format!("first act\n{line}").as_bytes()).unwrap_err().reason;
            assert!(error.starts_with(&format!("line 2: {reason}")), "{error}");
        }
    }
}
