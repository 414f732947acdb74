//! The certificate authority of the tests.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub(super) pem: String,
}

/// A certificate and its key, in PEM.
pub(super) type Issued = (String, String);

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of tests");
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Issues a certificate of `name` with a long validity.
    pub(super) fn certificate(&self, name: &str) -> Issued {
        self.issue(CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    /// Issues an expired certificate of `name`.
    pub(super) fn expired(&self, name: &str) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 12, 31));
        self.issue(params)
    }

    fn issue(&self, params: CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
