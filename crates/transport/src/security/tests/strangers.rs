//! Clients without credentials, or with a part of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use super::tokens::{line, sending, taking};
use super::*;

/// The preface of an HTTP/2 connection, and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Waits until the server closes a connection.
async fn closed(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    // Closed or reset.
    let _ = within(stream.read_to_end(&mut bytes)).await;
}

/// Calls `path` with a request that has a first field of `bytes` bytes.
async fn call(channel: &Channel, path: &'static str, bytes: usize) -> Status {
    let mut grpc = Grpc::new(channel.clone());
    within(grpc.ready()).await.unwrap();
    let request = HealthCheckRequest { service: "x".repeat(bytes) };
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let answer = grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec);
    within(answer).await.unwrap_err()
}

#[tokio::test]
async fn a_connection_without_a_preface_a_call_or_credentials_is_closed_in_time() {
    let files = Files::new();
    let section = taking(&files, &[line("actor", "act", "right")]);
    let timing = Timing { first_call: Duration::from_secs(1), ..Timing::default() };
    let server = Server::start_timed(&section, timing).await;
    let stranger = server.channel("http", &SecuritySection::default());
    let holder = server.channel("http", &sending(&files, "right"));
    let mut subscribed = subscription(&holder).await.unwrap();
    let mut silent = Vec::new();
    for sent in [&b""[..], &PREFACE[..10], PREFACE] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        silent.push(stream);
    }
    // Health is served to strangers, but keeps no connection open.
    let mut watch =
        within(HealthClient::new(stranger).watch(HealthCheckRequest::default())).await.unwrap().into_inner();
    within(watch.message()).await.unwrap();
    within(watch.message()).await.unwrap_err();
    for mut stream in silent {
        closed(&mut stream).await;
    }
    // A client with a token is not affected.
    server.publish(1);
    within(subscribed.message()).await.unwrap().unwrap();
}

#[tokio::test]
async fn silent_connections_that_take_every_place_make_room_for_clients_of_the_same_and_of_other_addresses() {
    // No connection is closed for exceeding the time limit.
    let timing = Timing { first_call: Duration::from_secs(3600), ..Timing::default() };
    let security = Security { timing, ..Security::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = crate::server(&security).add_service(health_service());
    let mut task = JoinSet::new();
    task.spawn(served.serve_with_incoming(crate::incoming(listener, 64, security)));
    let connect = || channel_with(&format!("http://{address}"), Credentials::default()).unwrap();
    let known = connect();
    health(&known).await.unwrap();
    let mut silent = Vec::new();
    // More than there are connections.
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for _ in 0..10 {
        health(&connect()).await.unwrap();
    }
    // The oldest silent connections made room, and the connection of a known client is open.
    closed(&mut silent[0]).await;
    health(&known).await.unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(address).await.unwrap();
    other.write_all(PREFACE).await.unwrap();
    let mut answer = [0; 9];
    within(other.read_exact(&mut answer)).await.unwrap();
}

#[tokio::test]
async fn a_request_beyond_the_limit_of_its_method_is_refused() {
    let files = Files::new();
    let section = taking(&files, &[line("actor", "act", "right")]);
    let server = Server::start(&section).await;
    let stranger = server.channel("http", &SecuritySection::default());
    let holder = server.channel("http", &sending(&files, "right"));
    health(&stranger).await.unwrap();
    assert_eq!(call(&stranger, "/grpc.health.v1.Health/Check", 5_000).await.code(), Code::OutOfRange);
    assert_eq!(call(&holder, "/zerofleet.weights.v1.Weights/Subscribe", 70_000).await.code(), Code::OutOfRange);
}

#[tokio::test]
async fn a_connection_without_credentials_has_few_calls_in_progress() {
    let files = Files::new();
    let server = Server::start(&taking(&files, &[line("actor", "act", "right")])).await;
    let stranger = server.channel("http", &SecuritySection::default());
    let mut watches = Vec::new();
    let refused = within(async {
        loop {
            match HealthClient::new(stranger.clone()).watch(HealthCheckRequest::default()).await {
                Ok(watch) => watches.push(watch),
                Err(status) => break status,
            }
        }
    })
    .await;
    assert_eq!((refused.code(), watches.len()), (Code::ResourceExhausted, 8), "{refused}");
    // A place is free again after a call.
    drop(watches);
    within(async { while health(&stranger).await.is_err() {} }).await;
}

#[tokio::test]
async fn a_connection_of_the_maximum_age_takes_no_more_calls_and_its_streams_go_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (service, numbers) = Numbers::new();
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let incoming = crate::incoming(listener, 100, Security::default());
    let incoming = incoming.inspect(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut task = JoinSet::new();
    let mut server = crate::server::server_aged(&Security::default(), Duration::from_millis(50));
    let served = server.add_service(health_service()).add_service(service);
    task.spawn(served.serve_with_incoming(incoming));
    let channel = channel_with(&format!("http://{address}"), Credentials::default()).unwrap();
    let mut subscribed = subscription(&channel).await.unwrap();
    within(async {
        while opened.load(Ordering::SeqCst) < 2 {
            // A call may fail because the first connection closes.
            drop(health(&channel).await);
        }
    })
    .await;
    numbers.send_replace(1);
    within(subscribed.message()).await.unwrap().unwrap();
}

#[tokio::test]
async fn one_token_leaves_connections_for_another() {
    let files = Files::new();
    let section = taking(&files, &[line("actor", "act", "one"), line("learner", "train", "two")]);
    let security = Security::open_looking(&section, Duration::ZERO).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (service, _numbers) = Numbers::new();
    let served = crate::server(&security).add_service(service);
    let mut task = JoinSet::new();
    task.spawn(served.serve_with_incoming(crate::incoming(listener, 8, security)));
    let connect = |token: &str| {
        let credentials = Credentials::open(&sending(&files, token)).unwrap();
        channel_with(&format!("http://{address}"), credentials).unwrap()
    };
    let mut open = Vec::new();
    for _ in 0..6 {
        let channel = connect("one");
        open.push((subscription(&channel).await.unwrap(), channel));
    }
    let refused = subscription(&connect("one")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "6 connections open for actor, three quarters of the total");
    subscription(&connect("two")).await.unwrap();
}
