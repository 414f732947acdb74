use std::sync::Arc;

use ::weights::Manifest;
use bytes::Bytes;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use transport::security::Security;

use super::super::{FetchQuery, Published, Publisher, WeightsService, serve};
use super::{Subscriber, SubscriberSettings, SubscriberStats};
use crate::limits::CHUNK_BYTES_MAX;
use crate::scripted::{Link, WeightsScript, endpoint, until, version, within};

const SIZE_LIMIT_BYTES: u64 = 8 << 20;

fn subscriber(endpoint: String) -> Subscriber {
    Subscriber::start(SubscriberSettings { endpoint, name: "arena".into(), size_limit_bytes: SIZE_LIMIT_BYTES })
}

fn query(Published { manifest, .. }: &Published, offset: u64) -> FetchQuery {
    FetchQuery { version: manifest.version, digest: manifest.digest, offset }
}

/// Returns `length` bytes of varying values.
fn bytes(length: usize, seed: u8) -> Bytes {
    (0..length).map(|index| (index % 251) as u8 ^ seed).collect()
}

/// A real server, with publisher, address and drain.
struct Server {
    publisher: Publisher,
    address: std::net::SocketAddr,
    drain: CancellationToken,
    task: JoinSet<Result<(), tonic::transport::Error>>,
}

async fn server() -> Server {
    let (service, publisher) = WeightsService::new(2);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, drain) = (listener.local_addr().unwrap(), CancellationToken::new());
    let mut task = JoinSet::new();
    task.spawn(serve(service, None, Security::default(), listener, drain.clone()));
    Server { publisher, address, drain, task }
}

fn publish(publisher: &Publisher, published: &Published) {
    publisher.publish(published.manifest.clone(), published.bytes.clone()).unwrap();
}

#[tokio::test]
async fn a_subscriber_receives_the_newest_version_and_then_each_newer_one() {
    let server = server().await;
    let versions = [1, 2, 3].map(|number| version(number, bytes(CHUNK_BYTES_MAX + 9, number as u8)));
    publish(&server.publisher, &versions[0]);
    publish(&server.publisher, &versions[1]);
    let mut subscriber = subscriber(endpoint(server.address));
    assert_eq!(*within(subscriber.changed()).await, versions[1]);
    publish(&server.publisher, &versions[2]);
    assert_eq!(*within(subscriber.changed()).await, versions[2]);
    assert_eq!(subscriber.latest().as_deref(), Some(&versions[2]));
    assert_eq!(subscriber.stats(), SubscriberStats { versions: 2, ..SubscriberStats::default() });
    within(subscriber.close()).await;
}

#[tokio::test]
async fn a_version_arrives_whole_over_a_link_that_breaks_repeatedly() {
    let server = server().await;
    let link = Link::breaking_after(CHUNK_BYTES_MAX * 3 / 2, server.address).await;
    let large = version(1, bytes(CHUNK_BYTES_MAX * 4, 0));
    publish(&server.publisher, &large);
    let mut subscriber = subscriber(link.endpoint());
    assert_eq!(*within(subscriber.changed()).await, large);
    assert_eq!(link.connections(), 4);
    assert_eq!(subscriber.stats().refused, 0);
}

#[tokio::test]
async fn a_draining_server_ends_with_its_subscribers_connected() {
    let Server { publisher, address, drain, mut task } = server().await;
    let small = version(1, bytes(10, 0));
    publish(&publisher, &small);
    let mut subscriber = subscriber(endpoint(address));
    within(subscriber.changed()).await;
    drain.cancel();
    within(task.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(subscriber.latest().as_deref(), Some(&small));
}

#[tokio::test]
async fn a_broken_fetch_goes_on_at_its_offset() {
    let mut server = WeightsScript::start().await;
    let mut subscriber = subscriber(server.endpoint());
    let wanted = version(1, bytes(300, 0));
    let manifests = server.subscription().await;
    manifests.announce(&wanted).await;
    let (requested, chunks) = server.fetch().await;
    assert_eq!(requested, query(&wanted, 0));
    chunks.chunk(0, &wanted.bytes[..100]).await;
    chunks.end(Status::unavailable("restarting")).await;

    let manifests = server.subscription().await;
    manifests.announce(&wanted).await;
    let (requested, chunks) = server.fetch().await;
    assert_eq!(requested, query(&wanted, 100));
    chunks.chunk(100, &wanted.bytes[100..200]).await;
    // The fetch stops without an error, but too early.
    drop(chunks);

    let manifests = server.subscription().await;
    manifests.announce(&wanted).await;
    let (requested, chunks) = server.fetch().await;
    assert_eq!(requested, query(&wanted, 200));
    chunks.chunk(200, &wanted.bytes[200..]).await;
    drop(chunks);
    assert_eq!(*within(subscriber.changed()).await, wanted);
    assert_eq!(subscriber.stats(), SubscriberStats { versions: 1, refused: 0, broken_streams: 2 });
}

#[tokio::test]
async fn partial_bytes_of_an_older_version_are_not_mixed_into_a_newer_one() {
    let mut server = WeightsScript::start().await;
    let mut subscriber = subscriber(server.endpoint());
    let [old, new] = [version(1, bytes(300, 1)), version(2, bytes(300, 2))];
    let manifests = server.subscription().await;
    manifests.announce(&old).await;
    let (_, chunks) = server.fetch().await;
    chunks.chunk(0, &old.bytes[..100]).await;
    chunks.end(Status::unavailable("restarting")).await;

    let manifests = server.subscription().await;
    manifests.announce(&new).await;
    let (requested, chunks) = server.fetch().await;
    assert_eq!(requested, query(&new, 0));
    chunks.chunk(0, &new.bytes).await;
    drop(chunks);
    assert_eq!(*within(subscriber.changed()).await, new);
}

#[tokio::test]
async fn bytes_with_a_wrong_digest_are_refused_and_the_last_good_version_stays() {
    let mut server = WeightsScript::start().await;
    let mut subscriber = subscriber(server.endpoint());
    let [good, next] = [version(1, bytes(100, 1)), version(2, bytes(100, 2))];
    let manifests = server.subscription().await;
    manifests.announce(&good).await;
    let (_, chunks) = server.fetch().await;
    chunks.chunk(0, &good.bytes).await;
    drop(chunks);
    assert_eq!(*within(subscriber.changed()).await, good);

    manifests.announce(&next).await;
    let (_, chunks) = server.fetch().await;
    chunks.chunk(0, &bytes(100, 3)).await;
    drop(chunks);
    until(|| subscriber.stats().refused == 1).await;
    assert_eq!(subscriber.latest().as_deref(), Some(&good));

    // The version is fetched again, from the first byte.
    let manifests = server.subscription().await;
    manifests.announce(&next).await;
    let (requested, chunks) = server.fetch().await;
    assert_eq!(requested, query(&next, 0));
    chunks.chunk(0, &next.bytes).await;
    drop(chunks);
    assert_eq!(*within(subscriber.changed()).await, next);
    assert_eq!(subscriber.stats(), SubscriberStats { versions: 2, refused: 1, broken_streams: 1 });
}

#[tokio::test]
async fn chunks_that_leave_a_gap_or_pass_the_end_are_refused() {
    for (offset, length) in [(1, 50), (0, 101), (u64::MAX, 1)] {
        let mut server = WeightsScript::start().await;
        let subscriber = subscriber(server.endpoint());
        let manifests = server.subscription().await;
        manifests.announce(&version(1, bytes(100, 1))).await;
        let (_, chunks) = server.fetch().await;
        chunks.chunk(offset, &bytes(length, 1)).await;
        until(|| subscriber.stats().refused == 1).await;
        assert_eq!(subscriber.latest(), None);
    }
}

#[tokio::test]
async fn a_version_over_the_limit_is_refused_before_it_is_fetched_and_the_next_is_followed() {
    let mut server = WeightsScript::start().await;
    let mut subscriber = subscriber(server.endpoint());
    let small = version(2, bytes(100, 2));
    let manifest = Manifest { size_bytes: SIZE_LIMIT_BYTES + 1, ..version(1, bytes(100, 1)).manifest };
    let manifests = server.subscription().await;
    manifests.send((&manifest).into()).await;
    until(|| subscriber.stats().refused == 1).await;
    manifests.announce(&small).await;
    let (requested, chunks) = server.fetch().await;
    assert_eq!(requested, query(&small, 0));
    chunks.chunk(0, &small.bytes).await;
    drop(chunks);
    assert_eq!(*within(subscriber.changed()).await, small);
    assert_eq!(subscriber.stats().broken_streams, 0);
}

#[tokio::test]
async fn the_newest_version_is_followed_where_older_ones_were_announced_before_it() {
    let mut server = WeightsScript::start().await;
    let mut subscriber = subscriber(server.endpoint());
    let versions = [1, 2, 3].map(|number| version(number, bytes(10, number as u8)));
    let manifests = server.subscription().await;
    manifests.announce(&versions[0]).await;
    let (_, chunks) = server.fetch().await;
    manifests.announce(&versions[1]).await;
    manifests.announce(&versions[2]).await;
    // The server no longer keeps the version that is being fetched.
    chunks.end(Status::not_found("not kept")).await;
    loop {
        let (requested, chunks) = server.fetch().await;
        if requested == query(&versions[2], 0) {
            chunks.chunk(0, &versions[2].bytes).await;
            break;
        }
        // Announcements that did not arrive together are followed one by one.
        assert_eq!(requested, query(&versions[1], 0));
        chunks.end(Status::not_found("not kept")).await;
    }
    assert_eq!(*within(subscriber.changed()).await, versions[2]);
}

#[tokio::test]
async fn a_version_that_is_there_is_not_fetched_again_after_a_cut() {
    let server = server().await;
    let link = Link::to(server.address).await;
    let [first, second] = [1, 2].map(|number| version(number, bytes(10, number as u8)));
    publish(&server.publisher, &first);
    let mut subscriber = subscriber(link.endpoint());
    let before = within(subscriber.changed()).await;
    link.cut();
    until(|| link.connections() == 2).await;
    publish(&server.publisher, &second);
    assert_eq!(*within(subscriber.changed()).await, second);
    assert_eq!(*before, first);
    assert_eq!(subscriber.stats(), SubscriberStats { versions: 2, refused: 0, broken_streams: 1 });
}

#[tokio::test]
async fn a_handle_follows_the_same_weights() {
    let server = server().await;
    let subscriber = subscriber(endpoint(server.address));
    let mut handle = subscriber.handle();
    let published = version(1, bytes(10, 1));
    publish(&server.publisher, &published);
    within(handle.changed()).await.unwrap();
    let seen = handle.borrow_and_update().clone().unwrap();
    assert!(Arc::ptr_eq(&seen, &subscriber.latest().unwrap()));
    assert_eq!(*seen, published);
}

#[tokio::test]
async fn a_version_announced_before_its_stream_ended_is_followed() {
    let mut server = WeightsScript::start().await;
    let mut subscriber = subscriber(server.endpoint());
    let published = version(1, bytes(10, 1));
    server.subscription().await.announce(&published).await;
    let (_, chunks) = server.fetch().await;
    chunks.chunk(0, &published.bytes).await;
    drop(chunks);
    assert_eq!(*within(subscriber.changed()).await, published);
}

#[tokio::test]
async fn an_older_version_is_refused_on_the_same_stream_and_followed_on_a_new_one() {
    let mut script = WeightsScript::start().await;
    let mut subscriber = subscriber(script.endpoint());
    let [older, newer, newest] = [(4, 4), (5, 5), (6, 6)].map(|(number, seed)| version(number, bytes(9, seed)));
    let other_bytes = version(5, bytes(9, 9));
    let stream = script.subscription().await;
    stream.send((&newer.manifest).into()).await;
    let (_, chunks) = script.fetch().await;
    chunks.send(whole(&newer)).await;
    drop(chunks);
    assert_eq!(*within(subscriber.changed()).await, newer);
    for (refused, wrong) in [&older, &other_bytes].into_iter().enumerate() {
        stream.send((&wrong.manifest).into()).await;
        until(|| subscriber.stats().refused == refused as u64 + 1).await;
    }
    stream.send((&newest.manifest).into()).await;
    let (requested, chunks) = script.fetch().await;
    assert_eq!(requested, query(&newest, 0));
    chunks.send(whole(&newest)).await;
    drop(chunks);
    assert_eq!(*within(subscriber.changed()).await, newest);
    drop(stream);

    let stream = script.subscription().await;
    stream.send((&older.manifest).into()).await;
    let (requested, chunks) = script.fetch().await;
    assert_eq!(requested, query(&older, 0));
    chunks.send(whole(&older)).await;
    drop(chunks);
    assert_eq!(*within(subscriber.changed()).await, older);
}

#[tokio::test]
async fn a_subscriber_is_away_until_it_holds_the_newest_version_announced_on_its_stream() {
    let mut script = WeightsScript::start().await;
    let mut subscriber = subscriber(script.endpoint());
    let away = subscriber.away();
    let first = version(1, bytes(9, 1));
    let stream = script.subscription().await;
    assert!(away.borrow().is_some());
    stream.send((&first.manifest).into()).await;
    let (_, chunks) = script.fetch().await;
    assert!(away.borrow().is_some(), "it is not here yet");
    chunks.send(whole(&first)).await;
    drop(chunks);
    within(subscriber.changed()).await;
    until(|| away.borrow().is_none()).await;
    drop(stream);
    until(|| away.borrow().is_some()).await;
    let stream = script.subscription().await;
    assert!(away.borrow().is_some());
    stream.send((&first.manifest).into()).await;
    until(|| away.borrow().is_none()).await;
}

fn whole(published: &Published) -> crate::weights::v1::Chunk {
    crate::weights::v1::Chunk { offset: 0, data: published.bytes.clone() }
}
