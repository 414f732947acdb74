use super::check;

#[test]
fn endpoints_are_http_with_a_host() {
    for good in ["http://127.0.0.1:5000", "http://[::1]:5000", "http://replay:80"] {
        assert_eq!(check(good), Ok(()));
    }
}

#[test]
fn anything_else_is_refused_by_name() {
    for bad in ["", "127.0.0.1:5000", "https://replay:443", "unix:/socket", "http://", "not an endpoint"] {
        let error = check(bad).expect_err(bad);
        assert_eq!(error.to_string(), format!("`{bad}` is not an endpoint, write it as `http://host:port`"));
    }
}
