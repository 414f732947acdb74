use service::SecuritySection;
use transport::security::{Credentials, Security};

use super::*;
use crate::start_with;

/// Output of `sha256sum` for `secret`.
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// Output of `sha256sum` for `other`.
const OTHER: &str = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

/// Starts a server, and a client with a token of these `scopes`.
async fn serve_to(directory: &Path, scopes: &str) -> Server {
    serve_to_line(directory, &format!("client {scopes} {SECRET}")).await
}

/// Starts a server, and a client with the token in `line`.
async fn serve_to_line(directory: &Path, line: &str) -> Server {
    let file = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let security = SecuritySection {
        tokens: file("tokens", line.to_owned()),
        token_file: file("token", "secret".to_owned()),
        ..SecuritySection::default()
    };
    let mut config = Config::default();
    config.run.directory = directory.to_owned();
    let listener = service::net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let opened = Security::open(&security, listener.local_addr().unwrap()).unwrap();
    let drain = Drain::new();
    let (settings, health) = (config.settings().unwrap(), service::Health::default());
    let running = start_with(settings, opened, listener, health, drain.clone()).await.unwrap();
    let endpoint = format!("http://{}", running.address);
    let channel = transport::channel_with(&endpoint, Credentials::open(&security).unwrap()).unwrap();
    Server { client: proto::replay::client(channel), drain, running }
}

async fn may_insert(server: &Server) -> Result<(), Status> {
    server.client.clone().insert(tokio_stream::once(hello())).await.map(drop)
}

async fn may_sample(server: &Server) -> Result<(), Status> {
    server.client.clone().sample(tokio_stream::once(open(1))).await.map(drop)
}

/// Returns the denial, if there is one. The empty requests give other errors only after the scope check.
async fn may_revise(server: &Server) -> Result<(), Status> {
    let [chosen, revised] = [
        server.client.clone().choose(v1::ChooseRequest::default()).await.map(drop),
        server.client.clone().revise(v1::ReviseRequest::default()).await.map(drop),
    ]
    .map(|answer| answer.or_else(|status| if status.code() == Code::PermissionDenied { Err(status) } else { Ok(()) }));
    assert_eq!(chosen.is_ok(), revised.is_ok());
    revised
}

async fn may_release(server: &Server) -> Result<(), Status> {
    let request = v1::ReleaseRequest { suspect: Some(v1::release_request::Suspect::Actor(1)) };
    server.client.clone().release(request).await.map(drop)
}

#[tokio::test]
async fn the_scopes_of_a_token_decide_on_inserts_revisions_samples_and_releases_but_not_on_stats() {
    for (scopes, allowed) in [
        ("act", [true, false, false, false]),
        ("revise", [false, true, false, false]),
        ("train", [false, false, true, false]),
        ("admin", [false, false, false, true]),
        ("infer", [false, false, false, false]),
        ("act,revise,train,admin", [true, true, true, true]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let server = serve_to(directory.path(), scopes).await;
        let answers = [
            may_insert(&server).await,
            may_revise(&server).await,
            may_sample(&server).await,
            may_release(&server).await,
        ];
        for (answer, allowed) in answers.into_iter().zip(allowed) {
            match answer {
                Ok(()) => assert!(allowed, "{scopes}"),
                Err(status) => {
                    assert_eq!((status.code(), allowed), (Code::PermissionDenied, false), "{scopes}: {status}")
                }
            }
        }
        server.stats().await;
        server.stop().await;
    }
}

#[tokio::test]
async fn a_token_bound_to_actors_inserts_as_no_other() {
    for (actors, allowed) in [("1", true), ("0-5", true), ("2-9,11", false)] {
        let directory = tempfile::tempdir().unwrap();
        let server = serve_to_line(directory.path(), &format!("client act {SECRET} actors={actors}")).await;
        let (sender, mut answers) = server.insert().await;
        sender.send(hello()).await.unwrap();
        match answers.message().await {
            Ok(ready) => assert!(allowed && ready.is_some(), "{actors}"),
            Err(status) => assert_eq!((status.code(), allowed), (Code::PermissionDenied, false), "{actors}: {status}"),
        }
        let listed = server.client.clone().actors(v1::ActorsRequest {}).await.unwrap().into_inner().actors;
        assert_eq!(listed.len(), usize::from(allowed), "{actors}");
        drop((sender, answers));
        server.stop().await;
    }
}

#[tokio::test]
async fn a_token_sees_the_actors_that_it_may_insert_as_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let lines = format!("client act {SECRET}\nother act {OTHER} actors=2-9\n");
    let server = serve_to_line(directory.path(), &lines).await;
    let (sender, mut answers) = server.insert().await;
    sender.send(hello()).await.unwrap();
    answers.message().await.unwrap().unwrap();
    let token_file = directory.path().join("other.token");
    std::fs::write(&token_file, "other").unwrap();
    let other = Credentials::open(&SecuritySection { token_file, ..SecuritySection::default() }).unwrap();
    let other = transport::channel_with(&format!("http://{}", server.running.address), other).unwrap();
    for (client, seen) in [(server.client.clone(), 1), (proto::replay::client(other), 0)] {
        let listed = { client }.actors(v1::ActorsRequest {}).await.unwrap().into_inner().actors;
        assert_eq!(listed.len(), seen, "{listed:?}");
    }
    drop((sender, answers));
    server.stop().await;
}
