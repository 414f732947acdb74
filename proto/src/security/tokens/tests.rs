use tonic::Code;
use tonic::codegen::http::HeaderValue;

use super::*;

/// `printf %s secret | sha256sum`
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

fn headers(authorization: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(authorization))])
}

#[test]
fn a_token_is_known_by_the_digest_that_sha256sum_prints() {
    let file = format!("# who may come\n\n  learner train,admin {}  \n", SECRET.to_uppercase());
    let tokens = Tokens::read(file.as_bytes()).unwrap();
    for sent in ["Bearer secret", "bearer secret", "BEARER  secret "] {
        let holder = tokens.holder(&headers(sent)).unwrap();
        assert_eq!((&*holder.name, holder.scopes.to_string()), ("learner", "train, admin".to_owned()));
    }
}

#[test]
fn whoever_sends_no_token_or_a_wrong_one_is_not_known() {
    let tokens = Tokens::read(format!("learner train {SECRET}").as_bytes()).unwrap();
    let refused = |headers: &HeaderMap| {
        let status = tokens.holder(headers).unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        status.message().to_owned()
    };
    assert!(refused(&HeaderMap::new()).starts_with("this server asks for a token"));
    for wrong in ["secret", "Basic secret", "Bearer", "Bearer ", ""] {
        assert_eq!(refused(&headers(wrong)), "the authorization header is not `Bearer TOKEN`", "{wrong}");
    }
    for unknown in ["Bearer Secret", "Bearer secret2", "Bearer secre"] {
        let message = refused(&headers(unknown));
        assert_eq!(message, "this server does not know the token", "{unknown}");
    }
    assert!(Tokens::default().holder(&headers("Bearer secret")).is_err(), "an empty file lets nobody in");
}

#[test]
fn a_line_that_makes_no_sense_is_named_by_its_number_and_not_repeated() {
    let digest = SECRET;
    for (line, reason) in [
        ("learner train".to_owned(), "is not NAME"),
        ("learner train my-secret".to_owned(), "the third word is not a SHA-256"),
        (format!("learner train {}", &digest[1..]), "the third word is not a SHA-256"),
        (format!("learner train {digest}0"), "the third word is not a SHA-256"),
        (format!("learner fly {digest}"), "`fly` is no scope"),
        (format!("again act {digest}"), "this token stands in a line before"),
    ] {
        let error = Tokens::read(format!("first act {digest}\n{line}").as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line 2: {reason}")), "{error}");
        assert!(!error.contains("my-secret"), "{error}");
    }
}
