use ring::digest::{SHA256, digest};
use tonic::Code;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use super::*;

pub(super) fn line(name: &str, scopes: &str, token: &str) -> String {
    let digest: String = digest(&SHA256, token.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name} {scopes} {digest}\n")
}

pub(super) fn taking(files: &Files, lines: &[String]) -> SecuritySection {
    SecuritySection { tokens: files.write("tokens", lines.concat()), ..SecuritySection::default() }
}

pub(super) fn sending(files: &Files, token: &str) -> SecuritySection {
    let token_file = files.write(&format!("{token}.token"), format!("{token}\n"));
    SecuritySection { token_file, ..SecuritySection::default() }
}

async fn reflect(channel: &Channel) -> Result<(), Status> {
    let request = tokio_stream::once(ServerReflectionRequest::default());
    within(ServerReflectionClient::new(channel.clone()).server_reflection_info(request)).await.map(drop)
}

#[tokio::test]
async fn a_call_without_a_token_or_with_an_unknown_one_is_unauthenticated() {
    let files = Files::new();
    let server = Server::start(&taking(&files, &[line("actor", "act", "right")])).await;
    let without = subscribe(&server.channel("http", &SecuritySection::default())).await.unwrap_err();
    assert_eq!(without.code(), Code::Unauthenticated);
    assert!(without.message().starts_with("this server requires a token"), "{without}");
    let wrong = subscribe(&server.channel("http", &sending(&files, "wrong"))).await.unwrap_err();
    assert_eq!((wrong.code(), wrong.message()), (Code::Unauthenticated, "unknown token"));
    subscribe(&server.channel("http", &sending(&files, "right"))).await.unwrap();
}

#[tokio::test]
async fn a_call_beyond_the_scopes_of_its_token_is_denied_with_those_it_needs() {
    let files = Files::new();
    let lines = [line("operator", "admin", "high"), line("learner", "train", "low")];
    let server = Server::start(&taking(&files, &lines)).await;
    let denied = subscribe(&server.channel("http", &sending(&files, "high"))).await.unwrap_err();
    let expected = "/zerofleet.weights.v1.Weights/Subscribe needs the scope act or train or infer; \
                    the token of operator has admin";
    assert_eq!((denied.code(), denied.message()), (Code::PermissionDenied, expected));
    subscribe(&server.channel("http", &sending(&files, "low"))).await.unwrap();
}

#[test]
fn a_channel_that_would_send_a_token_unencrypted_off_loopback_is_not_opened() {
    let files = Files::new();
    let credentials = Credentials::open(&sending(&files, "right")).unwrap();
    for endpoint in ["http://replay:7001", "http://10.0.0.1:7001", "http://[2001:db8::1]:7001"] {
        let error = channel_with(endpoint, credentials.clone()).unwrap_err();
        assert_eq!(error, crate::InvalidEndpoint::UnencryptedToken { endpoint: endpoint.to_owned() });
        assert!(error.to_string().contains("security.token_file would be sent unencrypted"), "{error}");
    }
}

#[tokio::test]
async fn health_is_open_to_all_and_reflection_to_every_token() {
    let files = Files::new();
    let server = Server::start(&taking(&files, &[line("operator", "admin", "right")])).await;
    let (stranger, operator) =
        (server.channel("http", &SecuritySection::default()), server.channel("http", &sending(&files, "right")));
    health(&stranger).await.unwrap();
    assert_eq!(reflect(&stranger).await.unwrap_err().code(), Code::Unauthenticated);
    reflect(&operator).await.unwrap();
}

#[tokio::test]
async fn a_token_that_is_added_or_taken_out_counts_without_a_restart_on_either_side() {
    let files = Files::new();
    let server = Server::start(&taking(&files, &[line("actor", "act", "old")])).await;
    let section = sending(&files, "old");
    let channel = server.channel("http", &section);
    subscribe(&channel).await.unwrap();
    taking(&files, &[line("actor", "act", "new")]);
    assert_eq!(subscribe(&channel).await.unwrap_err().code(), Code::Unauthenticated);
    std::fs::write(&section.token_file, "new").unwrap();
    subscribe(&channel).await.unwrap();
    // An invalid file changes nothing.
    files.write("tokens", "actor act secret");
    subscribe(&channel).await.unwrap();
}

#[tokio::test]
async fn tokens_are_required_over_tls_too() {
    let (files, authority) = (Files::new(), Authority::new());
    let (certificate, key) = authority.certificate("127.0.0.1");
    let section = SecuritySection {
        certificate: files.write("server.pem", certificate),
        key: files.write("server.key", key),
        ..taking(&files, &[line("actor", "act", "right")])
    };
    let server = Server::start(&section).await;
    let trusted = trusting(&files.write("ca.pem", &authority.pem));
    let without = subscribe(&server.channel("https", &trusted)).await.unwrap_err();
    assert!(without.message().starts_with("this server requires a token"), "{without}");
    let with = SecuritySection { token_file: sending(&files, "right").token_file, ..trusted };
    subscribe(&server.channel("https", &with)).await.unwrap();
}

#[tokio::test]
async fn a_client_over_its_quota_receives_a_retry_delay_and_another_is_served() {
    let files = Files::new();
    let lines = [line("actor", "act", "busy"), line("learner", "train", "calm")];
    let section = SecuritySection { requests_per_second_max: 1, ..taking(&files, &lines) };
    let server = Server::start(&section).await;
    let busy = server.channel("http", &sending(&files, "busy"));
    // Output of `printf %s secret | sha256sum`.
    let refused = within(async {
        loop {
            if let Err(status) = subscribe(&busy).await {
                return status;
            }
        }
    })
    .await;
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let wait_ms: u64 = refused.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap().parse().unwrap();
    assert!((1..=1000).contains(&wait_ms), "{wait_ms}");
    subscribe(&server.channel("http", &sending(&files, "calm"))).await.unwrap();
}
