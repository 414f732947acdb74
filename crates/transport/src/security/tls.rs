//! Reads certificates and keys for rustls. The cryptography comes from ring, which needs a C compiler but no cmake.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::pki_types::{CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use service::SecuritySection;
use service::security::is_set;

use super::faults::{SUPPORTED, certificate_fault, pem_fault};
use super::watched::{Fault, Named};

/// ALPN name of HTTP/2, the only protocol for gRPC.
const HTTP2: &[u8] = b"h2";
/// ALPN name of HTTP/1.1, the only protocol for web pages.
const HTTP1: &[u8] = b"http/1.1";

/// The TLS settings of a server.
#[derive(Debug)]
pub(crate) struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl ServerTls {
    /// Verifies a client certificate as a handshake at time `at` would, under these settings.
    pub(crate) fn verify_client(&self, chain: &[CertificateDer<'_>], at: UnixTime) -> Result<(), rustls::Error> {
        let (Some(verifier), Some((own, intermediates))) = (&self.clients, chain.split_first()) else { return Ok(()) };
        verifier.verify_client_cert(own, intermediates, at).map(drop)
    }
}

/// Returns the files for [`server`]: certificate, key and, if clients must present certificates, the signing
/// authorities and, if set, the revocation lists.
pub(super) fn server_files(section: &SecuritySection) -> Vec<Named> {
    let clients = [("security.client_ca", section.client_ca.clone()), ("security.crl", section.crl.clone())];
    let own = [("security.certificate", section.certificate.clone()), ("security.key", section.key.clone())];
    own.into_iter().chain(clients.into_iter().filter(|(_, path)| is_set(path))).collect()
}

/// Returns the files for [`client`]: the authorities that sign server certificates and, if set, the certificate and
/// key of this process.
pub(super) fn client_files(section: &SecuritySection) -> Vec<Named> {
    let mut files = vec![("security.ca", section.ca.clone())];
    if is_set(&section.client_certificate) {
        files.push(("security.client_certificate", section.client_certificate.clone()));
        files.push(("security.client_key", section.client_key.clone()));
    }
    files
}

pub(super) fn server(files: &[Vec<u8>]) -> Result<ServerTls, Fault> {
    server_of(files, HTTP2)
}

/// Like [`server`], for web pages.
pub(super) fn web_server(files: &[Vec<u8>]) -> Result<ServerTls, Fault> {
    server_of(files, HTTP1)
}

fn server_of(files: &[Vec<u8>], protocol: &[u8]) -> Result<ServerTls, Fault> {
    let (chain, key) = (certificates(files, 0)?, private_key(files, 1)?);
    let clients = match files.get(2) {
        None => None,
        Some(_) => Some(client_verifier(files)?),
    };
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(fault(0))?;
    let builder = match &clients {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable(0, 1))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(ServerTls { config: Arc::new(config), clients })
}

/// Verifies client certificates against the authorities in the third file and the revocation lists in the fourth. A
/// certificate is accepted if the authority has no list there or an outdated list: an expired list must not stop a
/// fleet.
fn client_verifier(files: &[Vec<u8>]) -> Result<Arc<dyn ClientCertVerifier>, Fault> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(files, 2)?), provider());
    match files.get(3) {
        None => verifier.build().map_err(fault(2)),
        Some(_) => {
            let lists: Vec<CertificateRevocationListDer<'static>> = objects(files, 3, "certificate revocation list")?;
            verifier.with_crls(lists).allow_unknown_revocation_status().build().map_err(fault(3))
        }
    }
}

pub(super) fn client(files: &[Vec<u8>]) -> Result<ClientConfig, Fault> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(fault(0))?;
    let builder = builder.with_root_certificates(roots(files, 0)?);
    let mut config = match files.get(1) {
        None => builder.with_no_client_auth(),
        Some(_) => {
            let (chain, key) = (certificates(files, 1)?, private_key(files, 2)?);
            builder.with_client_auth_cert(chain, key).map_err(unusable(1, 2))?
        }
    };
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn fault<E: std::fmt::Display>(file: usize) -> impl Fn(E) -> Fault {
    move |error| Fault { file, reason: error.to_string() }
}

/// Attributes an error to the file of the certificate or to that of the key.
fn unusable(certificate: usize, key: usize) -> impl Fn(rustls::Error) -> Fault {
    move |error| match &error {
        rustls::Error::InvalidCertificate(fault) => {
            Fault { file: certificate, reason: certificate_fault(fault, "security.ca") }
        }
        rustls::Error::InconsistentKeys(_) => Fault { file: key, reason: "not the key of the certificate".to_owned() },
        _ => Fault { file: key, reason: format!("{error}; {SUPPORTED}") },
    }
}

fn certificates(files: &[Vec<u8>], file: usize) -> Result<Vec<CertificateDer<'static>>, Fault> {
    objects(files, file, "certificate")
}

/// Returns the objects of a PEM file, at least one; the error calls an object `what`.
fn objects<T: PemObject>(files: &[Vec<u8>], file: usize, what: &str) -> Result<Vec<T>, Fault> {
    let found: Result<Vec<T>, _> = T::pem_slice_iter(&files[file]).collect();
    let found = found.map_err(|error| Fault { file, reason: pem_fault(&error) })?;
    if found.is_empty() {
        return Err(Fault { file, reason: format!("contains no PEM {what}") });
    }
    Ok(found)
}

fn private_key(files: &[Vec<u8>], file: usize) -> Result<PrivateKeyDer<'static>, Fault> {
    PrivateKeyDer::from_pem_slice(&files[file]).map_err(|error| {
        let is_encrypted = files[file].windows(9).any(|word| word == b"ENCRYPTED");
        let remedy =
            if is_encrypted { "; it is encrypted: write it without the passphrase by `openssl pkey`" } else { "" };
        Fault { file, reason: format!("contains no PEM private key ({}){remedy}", pem_fault(&error)) }
    })
}

fn roots(files: &[Vec<u8>], file: usize) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(files, file)? {
        roots.add(certificate).map_err(unusable(file, file))?;
    }
    Ok(roots)
}
