use tonic::Status;

use super::{check, is_our_fault};

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

#[test]
fn a_server_that_is_away_or_full_is_no_fault_of_ours() {
    for (status, ours) in [
        (Status::unavailable(""), false),
        (Status::resource_exhausted(""), false),
        (Status::unknown("connection reset"), false),
        (Status::invalid_argument("game"), true),
        (Status::failed_precondition(""), true),
        (Status::unimplemented(""), true),
    ] {
        assert_eq!(is_our_fault(&status), ours, "{status}");
    }
}
