//! Holds the tokens that a server accepts, as digests, so that the file reveals no token.

use std::collections::HashMap;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use tonic::Status;
use tonic::codegen::http::HeaderMap;
use tonic::codegen::http::header::AUTHORIZATION;

use super::caller::ActorIds;
use super::scope::{Credential, Holder};
use super::watched::Fault;

type Digest = [u8; 32];

/// All tokens of a server.
///
/// Tokens are looked up by digest. The timing therefore depends on the digest of the received token, and reveals no
/// accepted token.
#[derive(Debug, Default)]
pub(super) struct Tokens(HashMap<Digest, Arc<Holder>>);

/// Reads the file of `security.tokens`.
pub(super) fn of_files(files: &[Vec<u8>]) -> Result<Tokens, Fault> {
    Tokens::read(&files[0])
}

/// Returns the numbered lines of a file, without empty lines and lines that start with `#`.
pub(super) fn lines(bytes: &[u8]) -> Result<impl Iterator<Item = (usize, &str)>, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|_| bad_line(1, "the file is not UTF-8"))?;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    Ok(lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')))
}

/// Returns the fault of an invalid line. The reason does not repeat the line, which may hold a token by mistake.
pub(super) fn bad_line(number: usize, reason: &str) -> Fault {
    Fault { file: 0, reason: format!("line {number}: {reason}") }
}

impl Tokens {
    /// Parses lines of name, scopes, digest and, optionally, actors.
    fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut tokens = HashMap::new();
        for (number, line) in lines(bytes)? {
            let (digest, holder) = read_line(line).map_err(|reason| bad_line(number, &reason))?;
            if tokens.insert(digest, Arc::new(holder)).is_some() {
                return Err(bad_line(number, "duplicate token"));
            }
        }
        Ok(Self(tokens))
    }

    /// Returns the holder of the token in the `authorization` header.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`: no token, or an unknown token.
    pub(super) fn holder(&self, headers: &HeaderMap) -> Result<Arc<Holder>, Status> {
        let Some(sent) = headers.get(AUTHORIZATION) else {
            let message =
                "this server requires a token; send `authorization: Bearer TOKEN`, or set security.token_file";
            return Err(Status::unauthenticated(message));
        };
        let Some(token) = bearer(sent.as_bytes()) else {
            return Err(Status::unauthenticated("the authorization header is not `Bearer TOKEN`"));
        };
        self.0.get(&digest_of(token)).cloned().ok_or_else(|| Status::unauthenticated("unknown token"))
    }

    /// Returns the holder of the token with this digest.
    pub(super) fn of_digest(&self, digest: &Digest) -> Option<&Arc<Holder>> {
        self.0.get(digest)
    }
}

fn read_line(line: &str) -> Result<(Digest, Holder), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (name, scopes, digest, actors) = match words[..] {
        [name, scopes, digest] => (name, scopes, digest, None),
        [name, scopes, digest, actors] => (name, scopes, digest, Some(actors)),
        _ => return Err("is not NAME SCOPE[,SCOPE] SHA-256-OF-THE-TOKEN [actors=ID[-ID][,ID[-ID]]]".to_owned()),
    };
    let digest = from_hex(digest).ok_or("the third word is not a SHA-256 digest (64 digits from 0 to f)")?;
    let (scopes, actors) = (scopes.parse()?, ActorIds::of_word(actors)?);
    Ok((digest, Holder { credential: Credential::Token(digest), name: name.into(), scopes, actors }))
}

fn from_hex(text: &str) -> Option<Digest> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let bytes: Vec<u8> = digits?.chunks(2).map(|pair| pair.iter().fold(0, |sum, digit| sum << 4 | digit)).collect();
    // `chunks` accepts an odd number of digits; 64 is even.
    if text.len() == 64 { bytes.try_into().ok() } else { None }
}

/// Returns the token after `Bearer`, in upper or lower case (RFC 7235).
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii()).filter(|token| !token.is_empty())
}

fn digest_of(token: &[u8]) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, token).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
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
        let file = format!("# known tokens\n\n  learner train,admin {}  \n", SECRET.to_uppercase());
        let tokens = Tokens::read(file.as_bytes()).unwrap();
        for sent in ["Bearer secret", "bearer secret", "BEARER  secret "] {
            let holder = tokens.holder(&headers(sent)).unwrap();
            assert_eq!((&*holder.name, holder.scopes.to_string()), ("learner", "train, admin".to_owned()));
        }
    }

    #[test]
    fn a_request_without_a_token_or_with_a_wrong_one_is_unauthenticated() {
        let tokens = Tokens::read(format!("learner train {SECRET}").as_bytes()).unwrap();
        let refused = |headers: &HeaderMap| {
            let status = tokens.holder(headers).unwrap_err();
            assert_eq!(status.code(), Code::Unauthenticated);
            status.message().to_owned()
        };
        assert!(refused(&HeaderMap::new()).starts_with("this server requires a token"));
        for wrong in ["secret", "Basic secret", "Bearer", "Bearer ", ""] {
            assert_eq!(refused(&headers(wrong)), "the authorization header is not `Bearer TOKEN`", "{wrong}");
        }
        for unknown in ["Bearer Secret", "Bearer secret2", "Bearer secre"] {
            let message = refused(&headers(unknown));
            assert_eq!(message, "unknown token", "{unknown}");
        }
        assert!(Tokens::default().holder(&headers("Bearer secret")).is_err(), "an empty file accepts no token");
    }

    #[test]
    fn an_invalid_line_is_named_by_its_number_and_not_repeated() {
        let digest = SECRET;
        for (line, reason) in [
            ("learner train".to_owned(), "is not NAME"),
            ("learner train my-secret".to_owned(), "the third word is not a SHA-256"),
            (format!("learner train {}", &digest[1..]), "the third word is not a SHA-256"),
            (format!("learner train {digest} 1-3"), "the last word is not actors="),
            (format!("learner train {digest} actors=3-1"), "`3-1` is not an actor id"),
            (format!("learner train {digest} actors=1 more"), "is not NAME"),
            (format!("learner train {digest}0"), "the third word is not a SHA-256"),
            (format!("learner fly {digest}"), "invalid scope `fly`"),
            (format!("again act {digest}"), "duplicate token"),
        ] {
            let error = Tokens::read(format!("first act {digest}\n{line}").as_bytes()).unwrap_err().reason;
            assert!(error.starts_with(&format!("line 2: {reason}")), "{error}");
            assert!(!error.contains("my-secret"), "{error}");
        }
    }
}
