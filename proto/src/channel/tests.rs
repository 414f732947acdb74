use super::check;
use super::endpoint::Target;

#[test]
fn endpoints_are_http_or_https_with_a_host() {
    for good in [
        "http://127.0.0.1:5000",
        "http://[::1]:5000",
        "http://replay:80",
        "https://replay:443",
        "https://127.0.0.1:5000",
        "https://[::1]:5000",
        "https://replay",
        "https://replay@10.0.0.1:5000",
    ] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
}

#[test]
fn anything_else_is_refused_by_name() {
    let bad = [
        "",
        "127.0.0.1:5000",
        "unix:/socket",
        "http://",
        "https://",
        "https://@10.0.0.1:5000",
        "https://replay@",
        "not an endpoint",
    ];
    for bad in bad {
        let error = check(bad).expect_err(bad);
        let expected = format!("`{bad}` is not an endpoint, write it as `http://host:port` or `https://host:port`");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn one_address_of_a_name_is_dialled_and_the_certificate_is_the_names() {
    let Target { uri, dial, tls } = "https://replay@[::1]:5000".parse().unwrap();
    let tls = tls.unwrap();
    assert_eq!((uri.to_string().as_str(), tls.server.to_str().as_ref()), ("https://replay:5000/", "replay"));
    assert_eq!((&*dial.0, dial.1), ("::1", 5000));
}
