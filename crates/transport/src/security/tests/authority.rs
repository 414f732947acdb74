//! Certificate authority for tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the authority.
    pub(super) pem: String,
    key: String,
}

/// A certificate and the key, in PEM.
pub(super) type Issued = (String, String);

impl Authority {
    pub(super) fn new() -> Self {
        Self::named("authority of tests")
    }

    pub(super) fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let (pem, own_key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        Self { issuer: Issuer::new(params, key), pem, key: own_key }
    }

    /// Returns the certificate of the authority, used as the certificate of a server.
    pub(super) fn itself(&self) -> Issued {
        (self.pem.clone(), self.key.clone())
    }

    /// Returns a certificate for `name` that no authority signed and that is no authority.
    pub(super) fn self_signed(name: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    /// Issues a certificate for `name` with a long validity.
    pub(super) fn certificate(&self, name: &str) -> Issued {
        self.issue(CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    /// Issues an expired certificate for `name`.
    pub(super) fn expired(&self, name: &str) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 12, 31));
        self.issue(params)
    }

    /// Issues a certificate for `name` that a [revocation list](Self::revoking) can name.
    pub(super) fn numbered(&self, name: &str, serial: u64) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        self.issue(params)
    }

    /// Returns a list, in PEM, that revokes the certificates with these serial numbers.
    pub(super) fn revoking(&self, serials: &[u64]) -> String {
        let revoked = |&serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2020, 2, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    fn issue(&self, params: CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
