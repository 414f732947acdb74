//! Reports the end of validity of the certificates that this process presents, in a metric and in warnings.

use std::path::PathBuf;
use std::time::Duration;

use metrics::gauge;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// Keys of the certificates that peers verify. Ends of trusted authorities are not verified.
const KEYS: [&str; 2] = ["security.certificate", "security.client_certificate"];
const DAY_SECONDS: u64 = 24 * 60 * 60;
/// Remaining validity below which a certificate is to be replaced, as in the alert `CertificateExpires`.
const DAYS_MIN: u64 = 30;

/// Publishes the end of each certificate in the files, which have a key and a path each, and warns of certificates that
/// have expired at `now` or soon will.
pub(super) fn report(names: &[(&'static str, PathBuf)], contents: &[Vec<u8>], now: UnixTime) {
    for ((key, path), pem) in names.iter().zip(contents).filter(|((key, _), _)| KEYS.contains(key)) {
        let Some(end) = end(pem) else { continue };
        gauge!("zerofleet_security_certificate_expiry_seconds", "key" => key.trim_start_matches("security."))
            .set(end.as_secs() as f64);
        if let Some(warning) = warning(end, now) {
            tracing::warn!(key, path = %path.display(), "{warning}");
        }
    }
}

fn warning(end: UnixTime, now: UnixTime) -> Option<String> {
    if end < now {
        return Some(format!("the certificate expired {} days ago", (now.as_secs() - end.as_secs()) / DAY_SECONDS));
    }
    let days = (end.as_secs() - now.as_secs()) / DAY_SECONDS;
    (days < DAYS_MIN).then(|| format!("the certificate expires in {days} days"))
}

/// Returns the earliest end of the certificates in a chain; `None` if no end can be read.
fn end(pem: &[u8]) -> Option<UnixTime> {
    CertificateDer::pem_slice_iter(pem).filter_map(|certificate| end_of_certificate(&certificate.ok()?)).min()
}

/// Returns the end of one certificate. The verification checks validity first, and at the end of time an error gives
/// the end: a parser of the fields would be another dependency.
fn end_of_certificate(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let end_of_time = UnixTime::since_unix_epoch(Duration::MAX);
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let verified = certificate.verify_for_usage(&[], &[], &[], end_of_time, KeyUsage::server_auth(), None, None);
    match verified.err()? {
        Error::CertExpired { not_after, .. } => Some(not_after),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Returns a certificate that ends with the start of a day, in PEM.
    fn ends(year: i32, month: u8, day: u8) -> String {
        let mut params = CertificateParams::new(vec!["replay".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(year, month, day));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    /// `date -u -d 2020-02-01 +%s`
    const FEBRUARY_2020: u64 = 1_580_515_200;

    #[test]
    fn a_chain_ends_with_the_first_certificate_to_end() {
        assert_eq!(end(ends(2020, 2, 1).as_bytes()), Some(at(FEBRUARY_2020)));
        // A year from 2050 on has another encoding.
        let chain = ends(2051, 1, 1) + &ends(2020, 2, 1) + &ends(4000, 1, 1);
        assert_eq!(end(chain.as_bytes()), Some(at(FEBRUARY_2020)));
        assert_eq!(end(ends(2051, 1, 1).as_bytes()), Some(at(2_556_144_000)));
        assert_eq!(end(b"no certificate"), None);
    }

    #[test]
    fn the_last_thirty_days_and_an_expired_certificate_are_warned_of() {
        let warned = |now: u64| warning(at(FEBRUARY_2020), at(now));
        assert_eq!(warned(FEBRUARY_2020 - 30 * DAY_SECONDS), None);
        let last = warned(FEBRUARY_2020 - 30 * DAY_SECONDS + 1);
        assert_eq!(last.as_deref(), Some("the certificate expires in 29 days"));
        assert_eq!(warned(FEBRUARY_2020).as_deref(), Some("the certificate expires in 0 days"));
        let expired = warned(FEBRUARY_2020 + 3 * DAY_SECONDS);
        assert_eq!(expired.as_deref(), Some("the certificate expired 3 days ago"));
    }

    #[test]
    fn the_end_of_own_certificates_is_a_metric_and_that_of_trusted_authorities_is_not() {
        let keys = ["security.certificate", "security.key", "security.client_ca"];
        let names = keys.map(|key| (key, PathBuf::from("file")));
        let contents = [ends(2020, 2, 1), String::new(), ends(2020, 1, 1)].map(String::into_bytes);
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || report(&names, &contents, at(0)));
        let text = recorder.handle().render();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let expected = format!("zerofleet_security_certificate_expiry_seconds{{key=\"certificate\"}} {FEBRUARY_2020}");
        assert_eq!(lines, [expected]);
    }
}
