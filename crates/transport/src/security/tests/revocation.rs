//! Credentials withdrawn while streams are open.

use std::time::Instant;

use tonic::Code;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{HeaderMap, HeaderValue};

use super::authority::Issued;
use super::certificates::{requiring_clients, showing};
use super::tokens::{line, sending, taking};
use super::*;

/// Frequent checks of open connections.
const OFTEN: Timing = Timing { first_call: Duration::from_secs(10), review: Duration::from_millis(20) };

/// Waits until the stream closes, with or without an error.
async fn ended(stream: &mut Streaming<u64>) {
    within(async { while let Ok(Some(_)) = stream.message().await {} }).await;
}

/// Publishes a number and waits until it arrives.
async fn goes_on(server: &Server, stream: &mut Streaming<u64>, number: u64) {
    server.publish(number);
    // Earlier numbers may be in flight.
    within(async { while stream.message().await.unwrap().unwrap() < number {} }).await;
}

/// Returns the reason for refusing calls; the first call may fail with the connection.
async fn refusal(channel: &Channel) -> Status {
    within(async {
        loop {
            match subscribe(channel).await {
                Err(status) if status.code() != Code::Unavailable && status.code() != Code::Unknown => return status,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn removing_a_token_ends_its_open_streams_and_no_others() {
    let files = Files::new();
    let (actor, learner) = (line("actor", "act", "one"), line("learner", "train", "two"));
    let server = Server::start_timed(&taking(&files, &[actor, learner.clone()]), OFTEN).await;
    let channel = server.channel("http", &sending(&files, "one"));
    let mut removed = subscription(&channel).await.unwrap();
    let mut kept = subscription(&server.channel("http", &sending(&files, "two"))).await.unwrap();
    goes_on(&server, &mut removed, 1).await;

    // An invalid file changes nothing; neither does an added name.
    files.write("tokens", "actor act secret");
    taking(&files, &[learner.clone(), line("actor", "act", "one"), line("more", "act", "three")]);
    goes_on(&server, &mut removed, 3).await;

    taking(&files, &[learner, line("actor", "act", "four")]);
    ended(&mut removed).await;
    assert_eq!(refusal(&channel).await.message(), "unknown token");
    goes_on(&server, &mut kept, 4).await;
}

#[tokio::test]
async fn a_token_that_loses_a_scope_is_checked_again() {
    let files = Files::new();
    let server = Server::start_timed(&taking(&files, &[line("actor", "act", "one")]), OFTEN).await;
    let channel = server.channel("http", &sending(&files, "one"));
    let mut stream = subscription(&channel).await.unwrap();
    taking(&files, &[line("actor", "admin", "one")]);
    ended(&mut stream).await;
    assert_eq!(refusal(&channel).await.code(), Code::PermissionDenied);
}

/// Returns a client with the given certificate.
fn client(server: &Server, files: &Files, ca: &Path, issued: Issued) -> Channel {
    server.channel("https", &showing(files, ca, issued))
}

#[tokio::test]
async fn revoking_a_certificate_ends_its_open_streams_and_refuses_new_ones() {
    let (files, others, authority, clients) = (Files::new(), Files::new(), Authority::new(), Authority::new());
    let crl = files.write("crl.pem", clients.revoking(&[]));
    let issued = authority.certificate("127.0.0.1");
    let section = SecuritySection { crl, ..requiring_clients(&files, issued, &clients) };
    let server = Server::start_timed(&section, OFTEN).await;
    let ca = files.write("ca.pem", &authority.pem);
    let one = client(&server, &files, &ca, clients.numbered("actor", 7));
    let two = client(&server, &others, &ca, clients.numbered("actor", 8));
    let (mut revoked, mut kept) = (subscription(&one).await.unwrap(), subscription(&two).await.unwrap());
    goes_on(&server, &mut revoked, 1).await;

    files.write("crl.pem", clients.revoking(&[6, 7]));
    ended(&mut revoked).await;
    let message = refusal(&one).await.to_string();
    assert!(message.contains("the server rejected the client certificate (CertificateRevoked)"), "{message}");
    goes_on(&server, &mut kept, 3).await;

    // Lists of other authorities do not concern these certificates.
    files.write("crl.pem", Authority::named("another authority").revoking(&[8]));
    subscribe(&two).await.unwrap();
    goes_on(&server, &mut kept, 4).await;
}

#[tokio::test]
async fn removing_an_authority_ends_the_streams_of_its_clients() {
    let (files, authority, clients, after) = (Files::new(), Authority::new(), Authority::new(), Authority::new());
    let section = requiring_clients(&files, authority.certificate("127.0.0.1"), &clients);
    let server = Server::start_timed(&section, OFTEN).await;
    let ca = files.write("ca.pem", &authority.pem);
    let mut stream = subscription(&client(&server, &files, &ca, clients.certificate("actor"))).await.unwrap();
    files.write("client_ca.pem", [clients.pem.clone(), after.pem.clone()].concat());
    goes_on(&server, &mut stream, 1).await;
    files.write("client_ca.pem", &after.pem);
    ended(&mut stream).await;
}

#[test]
fn a_revocation_list_needs_client_certificates_and_must_hold_a_list() {
    let (files, authority) = (Files::new(), Authority::new());
    let section = requiring_clients(&files, authority.certificate("127.0.0.1"), &authority);
    let refused = |section: SecuritySection| Security::open_looking(&section, Duration::ZERO).unwrap_err().to_string();
    let empty = refused(SecuritySection { crl: files.write("empty", ""), ..section.clone() });
    assert!(empty.starts_with("security.crl: ") && empty.ends_with("no PEM certificate revocation list"), "{empty}");
    let alone = SecuritySection { crl: files.path("empty"), ..SecuritySection::default() };
    assert!(refused(alone).starts_with("security.client_ca: "));
}

#[test]
fn after_the_time_without_usable_files_no_credentials_are_accepted_and_health_is() {
    let (files, authority) = (Files::new(), Authority::new());
    let by_tokens = taking(&files, &[line("actor", "act", "one")]);
    let by_certificates = requiring_clients(&files, authority.certificate("127.0.0.1"), &authority);
    let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer one"))]);
    for section in [by_tokens, by_certificates] {
        for (unusable_seconds_max, refused) in [(7200, false), (3600, true), (0, false)] {
            let section = SecuritySection { unusable_seconds_max, ..section.clone() };
            // The files are not read again meanwhile.
            let guard = Security::open_looking(&section, Duration::MAX).unwrap().guard();
            let now = Instant::now();
            let later = now + Duration::from_secs(5400);
            let check = |path, now| guard.check(path, &headers, None, now).map(|(caller, _)| caller);
            check("/zerofleet.replay.v1.Replay/Stats", now).unwrap();
            let code = check("/zerofleet.replay.v1.Replay/Stats", later).err().map(|status| status.code());
            assert_eq!(code, refused.then_some(Code::Unavailable), "{unusable_seconds_max}");
            check("/grpc.health.v1.Health/Check", later).unwrap();
            let holder = guard.holder(&headers, None, now).unwrap().unwrap();
            assert_eq!([now, later].map(|at| guard.accepts(&holder, at)), [true, !refused]);
        }
    }
}
