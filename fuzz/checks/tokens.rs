//! Token files: the list that a server accepts, and the token that a client sends.

use std::collections::BTreeSet;

use service::SecuritySection;
use transport::security::{Credentials, Security};

/// Scopes of a token.
const SCOPES: [&str; 6] = ["act", "revise", "train", "infer", "view", "admin"];
/// Minimum length of a word that counts as a secret: shorter words occur in messages by chance.
const SECRET_BYTES_MIN: usize = 12;
/// Words of at least that length in the messages themselves.
const WORDS_OF_MESSAGES: [&str; 3] = ["security.tokens:", "security.token_file:", "SCOPE[,SCOPE] SHA-256-OF-THE-TOKEN"];

/// Checks that any bytes are a token file or are refused, as a naive reader decides. The error must quote no word of
/// the file, which may be a token by mistake.
///
/// The first byte chooses the file of a server or of a client.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let file = tempfile::NamedTempFile::new().expect("the system has a folder for temporary files");
    std::fs::write(file.path(), bytes).expect("the file is written");
    let path = file.path().to_owned();
    let (error, is_valid) = if kind & 1 == 0 {
        let section = SecuritySection { tokens: path.clone(), ..SecuritySection::default() };
        let address = "127.0.0.1:0".parse().expect("it is an address");
        (Security::open(&section, address).err(), is_list(bytes))
    } else {
        let section = SecuritySection { token_file: path.clone(), ..SecuritySection::default() };
        (Credentials::open(&section).err(), is_token(bytes))
    };
    assert_eq!(error.is_none(), is_valid, "{error:?}");
    let Some(error) = error else { return };
    let message = error.to_string().replace(&path.display().to_string(), "");
    let text = String::from_utf8_lossy(bytes);
    let secrets = text
        .split_whitespace()
        .filter(|word| word.len() >= SECRET_BYTES_MIN && !WORDS_OF_MESSAGES.iter().any(|known| known.contains(word)));
    for secret in secrets {
        assert!(!message.contains(secret), "a word of the file is quoted: {message}");
    }
}

/// Returns true for lines with a name, scopes and the SHA-256 of a token, each token once.
fn is_list(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut digests = BTreeSet::new();
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).all(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, scopes, digest] = words[..] else { return false };
        let is_digest = digest.len() == 64 && digest.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_new = digests.insert(digest.to_lowercase());
        is_digest && is_new && scopes.split(',').all(|scope| SCOPES.contains(&scope))
    })
}

/// Returns true for one token, possibly surrounded by white space.
fn is_token(bytes: &[u8]) -> bool {
    let token = bytes.trim_ascii();
    !token.is_empty() && token.iter().all(u8::is_ascii_graphic)
}

/// Returns files of both kinds.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    // The SHA-256 of `secret`.
    let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let list =
        format!("# tokens of a fleet\n\nlearner train,admin {digest}\n  actors act {}\r\n", digest.replace('2', "3"));
    let lists = [
        list.clone(),
        format!("{list}again infer {}\n", digest.to_uppercase()),
        format!("learner 0123456789abcdef-a-token {digest}\n"),
        format!("learner {digest} train\n"),
        format!("learner train {digest}0\n"),
    ];
    let tokens = ["0123456789abcdef-a-token\n", "two-tokens-in one-file", " ", "token-with-\u{e4}-in-it"];
    let lists = lists.iter().map(|text| [&[0], text.as_bytes()].concat());
    lists.chain(tokens.iter().map(|text| [&[1], text.as_bytes()].concat())).collect()
}
