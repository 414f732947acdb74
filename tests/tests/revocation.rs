//! A running replay server ends the streams of a client whose token or certificate is revoked.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proto::replay::v1::insert_request::Message;
use proto::replay::v1::replay_client::ReplayClient;
use proto::replay::{Origin, v1};
use service::SecuritySection;
use tests::{Cluster, Role, SMALL_TIC_TAC_TOE};
use tonic::Streaming;
use transport::security::Credentials;

use authority::{Authority, Issued};

#[path = "../../crates/transport/src/security/tests/authority.rs"]
#[allow(dead_code, reason = "the tests of transport use all of it")]
mod authority;

/// Time that docs/security.md promises.
const PROMISED: Duration = Duration::from_secs(30);
/// Names of clients, which are also the tokens, with SHA-256 digests.
const CLIENTS: [(&str, &str); 3] = [
    ("one", "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"),
    ("two", "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"),
    ("three", "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f"),
];

/// A directory of certificates, tokens and lists.
struct Files<'a>(&'a Path);

impl Files<'_> {
    /// Replaces a file by a rename, as docs/security.md requires.
    fn replace(&self, name: &str, text: &str) -> PathBuf {
        let (path, new) = (self.0.join(name), self.0.join("new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
        path
    }

    /// Writes a certificate and the key.
    fn certify(&self, file: &str, (certificate, key): Issued) -> [PathBuf; 2] {
        [self.replace(&format!("{file}.pem"), &certificate), self.replace(&format!("{file}.key"), &key)]
    }

    /// Replaces the list of accepted tokens.
    fn accept(&self, clients: &[(&str, &str)]) -> PathBuf {
        let lines = clients.iter().map(|(name, digest)| format!("{name} act {digest}\n"));
        self.replace("tokens", &lines.collect::<String>())
    }
}

/// Opens an insert stream as the client of this index, and waits for the first response.
async fn stream(endpoint: &str, files: &Files<'_>, issued: Issued, client: usize) -> Streaming<v1::InsertResponse> {
    let (name, _) = CLIENTS[client];
    let [client_certificate, client_key] = files.certify(name, issued);
    let (ca, token_file) = (files.0.join("ca.pem"), files.replace(&format!("{name}.token"), name));
    let section = SecuritySection { ca, client_certificate, client_key, token_file, ..SecuritySection::default() };
    let channel = transport::channel_with(endpoint, Credentials::open(&section).unwrap()).unwrap();
    let origin = Origin { actor: client as u64, epoch: 1, game: "tic_tac_toe".to_owned() };
    let hello = v1::InsertRequest { message: Some(Message::Hello(origin.into())), trace: String::new() };
    let requests = tokio_stream::StreamExt::chain(tokio_stream::once(hello), tokio_stream::pending());
    let mut answers = ReplayClient::new(channel).insert(requests).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();
    answers
}

/// Waits until the stream ends; returns false if it is still open at the deadline.
async fn ends(stream: &mut Streaming<v1::InsertResponse>, deadline: Instant) -> bool {
    let end = async { while let Ok(Some(_)) = stream.message().await {} };
    tokio::time::timeout_at(deadline.into(), end).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_and_a_revoked_certificate_end_their_streams_and_no_others_within_thirty_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let (files, authority) = (Files(folder.path()), Authority::new());
    let [certificate, key] = files.certify("server", authority.certificate("127.0.0.1"));
    let settings = [
        ("certificate", certificate),
        ("key", key),
        ("client_ca", files.replace("ca.pem", &authority.pem)),
        ("crl", files.replace("crl.pem", &authority.revoking(&[]))),
        ("tokens", files.accept(&CLIENTS)),
    ];
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    for (key, path) in settings {
        cluster.process(Role::Replay).argue(&["--set", &format!("security.{key}={}", path.display())]);
    }
    cluster.start(&[Role::Replay]).unwrap();
    let endpoint = cluster.replay_endpoint().replace("http://", "https://");
    let mut streams = Vec::new();
    for (client, (name, _)) in CLIENTS.iter().enumerate() {
        let issued = authority.numbered(name, client as u64 + 1);
        streams.push(stream(&endpoint, &files, issued, client).await);
    }
    let [mut without_token, mut without_certificate, mut accepted] = streams.try_into().unwrap();

    files.accept(&CLIENTS[1..]);
    files.replace("crl.pem", &authority.revoking(&[2]));
    let deadline = Instant::now() + PROMISED;
    let (token, certificate) =
        tokio::join!(ends(&mut without_token, deadline), ends(&mut without_certificate, deadline));
    assert!(token, "the stream of the removed token is open");
    assert!(certificate, "the stream of the revoked certificate is open");
    assert!(
        !ends(&mut accepted, Instant::now() + Duration::from_millis(200)).await,
        "another client's stream has ended"
    );
}
