use super::*;

#[test]
fn a_batch_larger_than_the_rate_limiter_ever_hands_out_is_refused() {
    let mut fleet = Fleet::default();
    (fleet.replay.error_items, fleet.replay.samples_per_insert) = (100.0, 8.0);
    fleet.learner.batch_size = 192;
    fleet.check().unwrap();
    fleet.learner.batch_size = 193;
    let error = fleet.check().unwrap_err().to_string();
    assert!(error.starts_with("learner.batch_size: is 193, more than the 192 samples"), "{error}");
}

#[test]
fn a_fleet_whose_processes_would_not_let_each_other_in_is_refused_by_the_key_that_is_missing() {
    let refused = |set: fn(&mut SecuritySection)| {
        let mut fleet = Fleet::default();
        set(&mut fleet.security);
        fleet.check().unwrap_err().to_string()
    };
    let tls = refused(|security| (security.certificate, security.key) = ("server.pem".into(), "server.key".into()));
    assert!(tls.starts_with("security.ca: is missing, and security.certificate is set"), "{tls}");
    let tokens = refused(|security| security.tokens = "tokens".into());
    assert!(tokens.starts_with("security.token_file: is missing, and security.tokens is set"), "{tokens}");
}
