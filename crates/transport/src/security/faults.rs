//! Words the faults of certificates and keys for operators. The TLS libraries name most faults by the identifier of a
//! variant.

use rustls::CertificateError as Fault;
use rustls::pki_types::pem;

/// Keys and signatures that the TLS library supports.
pub(super) const SUPPORTED: &str =
    "supported are ECDSA on P-256 or P-384, Ed25519, and RSA of 2048 to 8192 bits with SHA-2";
const CA: &str = "a CA (CA:TRUE), as `openssl req -x509` makes by default; security.certificate and \
                  security.client_certificate must be signed by a CA, or be made with `-addext \
                  basicConstraints=critical,CA:FALSE`";
const VERSION_1: &str = "version 1 of X.509, as `openssl x509 -req` makes without `-extfile`; version 3 with the names \
                         in subjectAltName is required";

/// Describes a server's error in a handshake or in a later verification of a client certificate.
pub(crate) fn client_fault(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(fault) => {
            format!("client certificate rejected: {}", certificate_fault(fault, "security.client_ca"))
        }
        other => other.to_string(),
    }
}

/// Describes a rejected certificate; `authorities` is the key of the trusted authorities.
pub(crate) fn certificate_fault(fault: &Fault, authorities: &str) -> String {
    let known = match fault {
        Fault::Expired | Fault::ExpiredContext { .. } => "expired",
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => "not valid yet",
        // `BadSignature`: the issuer has the name of a trusted authority, but another key.
        Fault::UnknownIssuer | Fault::BadSignature => return format!("not signed by a CA in {authorities}"),
        Fault::Revoked => "revoked",
        Fault::BadEncoding => "not a valid X.509 certificate",
        Fault::UnsupportedSignatureAlgorithmContext { .. }
        | Fault::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            return format!("signed by an unsupported algorithm; {SUPPORTED}");
        }
        Fault::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            Some(webpki::Error::CaUsedAsEndEntity) => CA,
            Some(webpki::Error::UnsupportedCertVersion) => VERSION_1,
            Some(webpki::Error::EndEntityUsedAsCa) => "signed by a certificate that is no CA",
            _ => return other.to_string(),
        },
        other => return other.to_string(),
    };
    known.to_owned()
}

/// Describes a file that is not PEM.
pub(super) fn pem_fault(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a PEM section has no end; copy the whole file".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a PEM section has a malformed first line".to_owned(),
        other => other.to_string(),
    }
}
