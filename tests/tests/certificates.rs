//! Real processes use the certificates that `cargo xtask certs` makes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use service::SecuritySection;
use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, program, wait_until};

const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the settings with which a process uses files in a folder of secrets.
fn shows(folder: &Path, keys: &[(&str, &str)]) -> Vec<String> {
    let setting = |(key, name): &(&str, &str)| format!("security.{key}={}", folder.join(name).display());
    keys.iter().flat_map(|key| ["--set".to_owned(), setting(key)]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_certificates_of_xtask_accepts_our_clients_and_refuses_one_without() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets");
    let made = Command::new(program("xtask").unwrap()).args(["certs", "--out"]).arg(&secrets).status().unwrap();
    assert!(made.success());

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
        Ok(cluster.process(Role::Actor).log_text().contains("requires a client certificate"))
    })
    .unwrap();

    let operator = secrets.join("operator");
    let security = SecuritySection {
        ca: operator.join("ca.pem"),
        client_certificate: operator.join("client.pem"),
        client_key: operator.join("client.key"),
        token_file: operator.join("token"),
        ..SecuritySection::default()
    };
    proto::security::use_credentials(&security).unwrap();
    assert_eq!(tests::trajectories::list(&endpoint).await.unwrap(), []);
    let stats = proto::replay::stats(&endpoint).await.unwrap();
    assert_eq!(stats.trajectories_inserted_total, 0);
}
