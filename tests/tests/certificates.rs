//! Checks that real processes use the certificates from `cargo xtask certs`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use proto::replay::v1;
use service::SecuritySection;
use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, program, wait_until};
use transport::security::Credentials;

const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the credentials in a directory of secrets.
fn credentials(folder: &Path) -> SecuritySection {
    SecuritySection {
        ca: folder.join("ca.pem"),
        client_certificate: folder.join("client.pem"),
        client_key: folder.join("client.key"),
        token_file: folder.join("token"),
        ..SecuritySection::default()
    }
}

/// Returns true if the server lets a client with the credentials in this directory insert as an actor.
async fn inserts(endpoint: &str, folder: &Path, actor: u64) -> bool {
    let channel = transport::channel_with(endpoint, Credentials::open(&credentials(folder)).unwrap()).unwrap();
    let hello = v1::Hello { actor, epoch: 1, game: "tic_tac_toe".to_owned(), ..v1::Hello::default() };
    let message = Some(v1::insert_request::Message::Hello(hello));
    let hello = v1::InsertRequest { message, ..v1::InsertRequest::default() };
    let answers = proto::replay::client(channel).insert(tokio_stream::once(hello)).await;
    match answers.unwrap().into_inner().message().await {
        Ok(answer) => answer.is_some(),
        Err(status) => {
            assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status}");
            false
        }
    }
}

/// Returns the settings with which a process uses files in a directory of secrets.
fn shows(folder: &Path, keys: &[(&str, &str)]) -> Vec<String> {
    let setting = |(key, name): &(&str, &str)| format!("security.{key}={}", folder.join(name).display());
    keys.iter().flat_map(|key| ["--set".to_owned(), setting(key)]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_certificates_of_xtask_accepts_our_clients_and_refuses_one_without() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets");
    let mut certs = Command::new(program("xtask").unwrap());
    assert!(certs.args(["certs", "--actors", "2", "--out"]).arg(&secrets).status().unwrap().success());

    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    let server = [("certificate", "server.pem"), ("key", "server.key"), ("client_ca", "ca.pem"), ("tokens", "tokens")];
    let settings = shows(&secrets.join("replay"), &server);
    cluster.process(Role::Replay).argue(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    cluster.start(&[Role::Replay]).unwrap();

    // The actor trusts the authority and has a token, but no certificate.
    let endpoint = cluster.replay_endpoint().replace("http://", "https://");
    let mut settings = shows(&secrets.join("actor"), &[("ca", "ca.pem"), ("token_file", "token")]);
    settings.extend(["--set".to_owned(), format!("actor.replay={endpoint}")]);
    cluster.process(Role::Actor).argue(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    cluster.start(&[Role::Actor]).unwrap();
    wait_until("a client without a certificate receives the reason", DEADLINE, || {
        Ok(cluster.process(Role::Actor).log_text().contains("client certificate required"))
    })
    .unwrap();

    // Replicas insert only as actors with drawn ids; an actor with a configured id inserts only as itself.
    for (folder, actor, allowed) in
        [("actor", 1, false), ("actor", 1 << 20, true), ("actor-1", 1, true), ("actor-1", 0, false)]
    {
        assert_eq!(inserts(&endpoint, &secrets.join(folder), actor).await, allowed, "{folder} as {actor}");
    }

    transport::security::use_credentials(&credentials(&secrets.join("operator"))).unwrap();
    assert_eq!(tests::trajectories::list(&endpoint).await.unwrap(), []);
    let stats = proto::replay::stats(&endpoint).await.unwrap();
    assert_eq!(stats.trajectories_inserted_total, 0);
}
