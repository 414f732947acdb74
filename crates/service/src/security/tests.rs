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
