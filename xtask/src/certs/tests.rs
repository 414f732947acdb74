use super::*;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn every_service_has_what_it_shows_and_whom_it_trusts_and_nobody_else_may_read_it() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("secrets");
    make(&folder, &["fleet.example".to_owned()], 30, Existing::Refuse).unwrap();
    for role in &ROLES {
        let own = folder.join(role.name);
        for name in ["ca.pem", "client.pem", "client.key", "token"] {
            assert!(own.join(name).exists(), "{name} of {}", role.name);
        }
        assert_eq!(own.join("server.key").exists(), role.serves, "{}", role.name);
        assert_eq!(own.join("tokens").exists(), role.serves, "{}", role.name);
        assert!(!own.join("ca.key").exists(), "the key of the authority is in no container");
    }
    for path in files(&folder) {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
}

#[test]
fn servers_know_tokens_by_their_digests_only() {
    let scratch = tempfile::tempdir().unwrap();
    make(scratch.path(), &[], 30, Existing::Refuse).unwrap();
    let tokens = read(scratch.path(), "replay/tokens");
    let token = read(scratch.path(), "actor/token");
    assert_eq!(token.len(), 2 * TOKEN_BYTES);
    assert!(!tokens.contains(&token));
    let digest = hexadecimal(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    assert!(tokens.lines().any(|line| line == format!("actor act,infer {digest}")), "{tokens}");
}

#[test]
fn what_is_there_stays_unless_it_is_to_be_renewed_and_then_the_authority_stays() {
    let scratch = tempfile::tempdir().unwrap();
    make(scratch.path(), &[], 30, Existing::Refuse).unwrap();
    let before = files(scratch.path()).into_iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    let error = make(scratch.path(), &[], 30, Existing::Refuse).unwrap_err().to_string();
    assert!(error.contains("--renew"), "{error}");
    ensure(scratch.path()).unwrap();
    let after = files(scratch.path()).into_iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    assert!(before == after, "nothing was touched");

    let of = |name| read(scratch.path(), name);
    let (authority, certificate, token) = (of("authority/ca.pem"), of("replay/server.pem"), of("actor/token"));
    make(scratch.path(), &[], 30, Existing::Renew).unwrap();
    assert_eq!(of("authority/ca.pem"), authority);
    assert_ne!((of("replay/server.pem"), of("actor/token")), (certificate, token));
}
