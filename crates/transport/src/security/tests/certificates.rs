use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;

use super::authority::Issued;
use super::*;

/// Returns the server part of a section, with files that the test may overwrite.
fn serving(files: &Files, (certificate, key): Issued) -> SecuritySection {
    SecuritySection {
        certificate: files.write("server.pem", certificate),
        key: files.write("server.key", key),
        ..SecuritySection::default()
    }
}

pub(super) fn requiring_clients(files: &Files, issued: Issued, clients: &Authority) -> SecuritySection {
    SecuritySection { client_ca: files.write("client_ca.pem", &clients.pem), ..serving(files, issued) }
}

pub(super) fn showing(files: &Files, ca: &Path, (certificate, key): Issued) -> SecuritySection {
    SecuritySection {
        client_certificate: files.write("client.pem", certificate),
        client_key: files.write("client.key", key),
        ..trusting(ca)
    }
}

/// Returns the message of a call that is rejected because of a certificate.
async fn refused(channel: &Channel) -> String {
    let status = health(channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    status.message().to_owned()
}

#[tokio::test]
async fn calls_go_over_tls_to_a_server_whose_certificate_is_trusted() {
    let (files, authority) = (Files::new(), Authority::new());
    let server = Server::start(&serving(&files, authority.certificate("127.0.0.1"))).await;
    let ca = files.write("ca.pem", &authority.pem);
    health(&server.channel("https", &trusting(&ca))).await.unwrap();
    subscribe(&server.channel("https", &trusting(&ca))).await.unwrap();
}

#[tokio::test]
async fn the_certificate_of_a_server_dialled_by_address_is_verified_by_the_name_in_the_endpoint() {
    let (files, authority) = (Files::new(), Authority::new());
    let server = Server::start(&serving(&files, authority.certificate("replay"))).await;
    let credentials = Credentials::open(&trusting(&files.write("ca.pem", &authority.pem))).unwrap();
    let named = channel_with(&format!("https://replay@{}", server.address), credentials).unwrap();
    health(&named).await.unwrap();
}

#[tokio::test]
async fn an_expired_certificate_is_refused_and_the_status_gives_the_reason() {
    let (files, authority) = (Files::new(), Authority::new());
    let server = Server::start(&serving(&files, authority.expired("127.0.0.1"))).await;
    let message = refused(&server.channel("https", &trusting(&files.write("ca.pem", &authority.pem)))).await;
    let expected = format!("https://{}: server certificate rejected: expired", server.address);
    assert_eq!(message, expected);
}

#[tokio::test]
async fn a_certificate_of_another_name_or_signer_is_refused_and_the_status_gives_the_reason() {
    let (files, authority, other) = (Files::new(), Authority::new(), Authority::new());
    let ca = files.write("ca.pem", &authority.pem);
    let server = Server::start(&serving(&files, authority.certificate("elsewhere"))).await;
    let message = refused(&server.channel("https", &trusting(&ca))).await;
    assert!(message.contains("server certificate rejected: ") && message.contains("127.0.0.1"), "{message}");

    let server = Server::start(&serving(&files, other.certificate("127.0.0.1"))).await;
    let message = refused(&server.channel("https", &trusting(&ca))).await;
    assert!(message.ends_with("not signed by a CA in security.ca"), "{message}");
    let message = refused(&server.channel("https", &SecuritySection::default())).await;
    assert!(message.contains("security.ca (CA certificates of the servers) is not set"), "{message}");
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_refused_with_the_remedy_and_accepted_without_the_mark_of_a_ca() {
    let (files, authority) = (Files::new(), Authority::new());
    let server = Server::start(&serving(&files, authority.itself())).await;
    let message = refused(&server.channel("https", &trusting(&files.write("ca.pem", &authority.pem)))).await;
    let words = "must be signed by a CA, or be made with `-addext basicConstraints=critical,CA:FALSE`";
    assert!(message.contains("server certificate rejected: a CA (CA:TRUE)") && message.contains(words), "{message}");

    let own = Authority::self_signed("127.0.0.1");
    let ca = files.write("own.pem", &own.0);
    let server = Server::start(&serving(&files, own)).await;
    health(&server.channel("https", &trusting(&ca))).await.unwrap();
}

#[tokio::test]
async fn a_server_without_tls_is_not_taken_for_one_with_it() {
    let (files, authority) = (Files::new(), Authority::new());
    let server = Server::start(&SecuritySection::default()).await;
    let message = refused(&server.channel("https", &trusting(&files.write("ca.pem", &authority.pem)))).await;
    assert!(message.ends_with("the server does not speak TLS; is it an http endpoint?"), "{message}");
}

#[tokio::test]
async fn a_client_without_a_valid_certificate_is_refused_where_one_is_required() {
    let (files, authority, clients) = (Files::new(), Authority::new(), Authority::new());
    let server = Server::start(&requiring_clients(&files, authority.certificate("127.0.0.1"), &clients)).await;
    let ca = files.write("ca.pem", &authority.pem);
    let message = refused(&server.channel("https", &trusting(&ca))).await;
    assert!(message.contains("client certificate required; set security.client_certificate"), "{message}");

    let message = refused(&server.channel("https", &showing(&files, &ca, clients.expired("actor")))).await;
    assert!(message.ends_with("the server rejected the client certificate: expired"), "{message}");
    let message = refused(&server.channel("https", &showing(&files, &ca, authority.certificate("actor")))).await;
    assert!(message.contains("the server rejected the client certificate ("), "{message}");

    health(&server.channel("https", &showing(&files, &ca, clients.certificate("actor")))).await.unwrap();
}

#[tokio::test]
async fn a_replaced_certificate_is_used_without_a_restart_while_old_connections_go_on() {
    let (files, before, after) = (Files::new(), Authority::new(), Authority::new());
    let section = serving(&files, before.certificate("127.0.0.1"));
    let server = Server::start(&section).await;
    let (old_ca, new_ca) = (files.write("old.pem", &before.pem), files.write("new.pem", &after.pem));
    let early = server.channel("https", &trusting(&old_ca));
    health(&early).await.unwrap();

    serving(&files, after.certificate("127.0.0.1"));
    health(&server.channel("https", &trusting(&new_ca))).await.unwrap();
    refused(&server.channel("https", &trusting(&old_ca))).await;
    health(&early).await.unwrap();

    // Invalid files change nothing.
    files.write("server.pem", "-----BEGIN");
    health(&server.channel("https", &trusting(&new_ca))).await.unwrap();
    std::fs::remove_file(&section.key).unwrap();
    health(&server.channel("https", &trusting(&new_ca))).await.unwrap();
}

#[tokio::test]
async fn a_client_verifies_certificates_by_the_current_contents_of_its_ca_file() {
    let (files, before, after) = (Files::new(), Authority::new(), Authority::new());
    let server = Server::start(&serving(&files, after.certificate("127.0.0.1"))).await;
    let ca = files.write("ca.pem", &before.pem);
    let channel = server.channel("https", &trusting(&ca));
    refused(&channel).await;
    files.write("ca.pem", &after.pem);
    health(&channel).await.unwrap();
}

#[tokio::test]
async fn clients_that_never_finish_their_handshake_block_no_others() {
    let (files, authority) = (Files::new(), Authority::new());
    let server = Server::start(&serving(&files, authority.certificate("127.0.0.1"))).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut garbage = TcpStream::connect(server.address).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nHost: replay\r\n\r\n").await.unwrap();
    let ca = files.write("ca.pem", &authority.pem);
    health(&server.channel("https", &trusting(&ca))).await.unwrap();
    garbage.shutdown().await.unwrap();
    let mut answer = Vec::new();
    // An alert, or nothing; then the connection is closed.
    let _ = within(garbage.read_to_end(&mut answer)).await;
    assert!(answer.len() < 16, "{answer:?}");
    health(&server.channel("https", &trusting(&ca))).await.unwrap();
}

#[tokio::test]
async fn a_handshake_that_is_not_done_takes_no_place_among_the_connections() {
    let (files, authority) = (Files::new(), Authority::new());
    let section = serving(&files, authority.certificate("127.0.0.1"));
    let security = Security::open_looking(&section, Duration::ZERO).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = health_service();
    let mut task = JoinSet::new();
    task.spawn(async move {
        crate::server(&security).add_service(service).serve_with_incoming(crate::incoming(listener, 1, security)).await
    });
    let _silent = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    let credentials = Credentials::open(&trusting(&files.write("ca.pem", &authority.pem))).unwrap();
    health(&channel_with(&format!("https://{address}"), credentials).unwrap()).await.unwrap();
}

/// Starts a server that requires client certificates and no tokens; returns a channel for each certificate name.
async fn mutual(files: &Files, more: impl FnOnce(&mut SecuritySection)) -> (Server, impl Fn(&str) -> Channel) {
    let (authority, clients) = (Authority::new(), Authority::new());
    let mut section = requiring_clients(files, authority.certificate("127.0.0.1"), &clients);
    more(&mut section);
    let server = Server::start(&section).await;
    let (ca, address) = (files.write("ca.pem", &authority.pem), server.address);
    let shown = files.path("");
    let channel = move |name: &str| {
        let (certificate, key) = clients.certificate(name);
        let write = |file: String, contents: String| {
            let path = shown.join(file);
            std::fs::write(&path, contents).unwrap();
            path
        };
        let section = SecuritySection {
            client_certificate: write(format!("{name}.pem"), certificate),
            client_key: write(format!("{name}.key"), key),
            ..trusting(&ca)
        };
        channel_with(&format!("https://{address}"), Credentials::open(&section).unwrap()).unwrap()
    };
    (server, channel)
}

#[tokio::test]
async fn without_tokens_a_client_certificate_has_the_scopes_of_its_name() {
    let files = Files::new();
    let (_server, channel) = mutual(&files, |_| {}).await;
    for name in ["actor", "learner", "arena", "operator"] {
        subscribe(&channel(name)).await.unwrap();
    }
    let denied = subscribe(&channel("stranger")).await.unwrap_err();
    let expected = "/zerofleet.weights.v1.Weights/Subscribe needs the scope act or train or infer; \
                    the certificate of stranger has none";
    assert_eq!((denied.code(), denied.message()), (Code::PermissionDenied, expected));
    // An address is no DNS name.
    let denied = subscribe(&channel("127.0.0.1")).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    health(&channel("stranger")).await.unwrap();
}

#[tokio::test]
async fn scopes_of_certificates_are_configured_by_name_and_count_without_a_restart() {
    let files = Files::new();
    let scopes = files.write("scopes", "actor admin\n");
    let (_server, channel) = mutual(&files, |section| section.client_scopes = scopes).await;
    let actor = channel("actor");
    let denied = subscribe(&actor).await.unwrap_err();
    assert!(denied.message().ends_with("the certificate of actor has admin"), "{denied}");
    files.write("scopes", "actor act,admin\n");
    subscribe(&actor).await.unwrap();
    // An invalid file changes nothing.
    files.write("scopes", "actor fly\n");
    subscribe(&actor).await.unwrap();
}

#[tokio::test]
async fn where_tokens_are_set_a_client_certificate_alone_is_unauthenticated() {
    let files = Files::new();
    let tokens = files.write("tokens", "");
    let (_server, channel) = mutual(&files, |section| section.tokens = tokens).await;
    let denied = subscribe(&channel("operator")).await.unwrap_err();
    assert_eq!(denied.code(), Code::Unauthenticated);
    assert!(denied.message().starts_with("this server requires a token"), "{denied}");
}
