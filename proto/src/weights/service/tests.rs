use std::time::Duration;

use ::weights::Manifest;
use bytes::Bytes;
use futures::{StreamExt as _, poll};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};

use super::super::v1::weights_server::Weights as _;
use super::super::{FetchQuery, v1};
use super::{PublishError, RETIRED_MAX, WeightsService};
use crate::limits::CHUNK_BYTES_MAX;
use crate::scripted::{version, within};

fn query(manifest: &Manifest, offset: u64) -> Request<v1::FetchRequest> {
    Request::new(FetchQuery { version: manifest.version, digest: manifest.digest, offset }.into())
}

fn subscribe() -> Request<v1::SubscribeRequest> {
    Request::new(v1::SubscribeRequest { name: "arena".into() })
}

async fn fetched(service: &WeightsService, manifest: &Manifest, offset: u64) -> Vec<v1::Chunk> {
    let chunks = service.fetch(query(manifest, offset)).await.unwrap().into_inner();
    within(chunks.map(|chunk| chunk.unwrap()).collect()).await
}

#[tokio::test]
async fn bytes_come_in_chunks_from_any_offset() {
    let (service, publisher) = WeightsService::new(1);
    let bytes = (0..CHUNK_BYTES_MAX * 2 + 5).map(|index| (index % 251) as u8).collect::<Vec<_>>();
    let published = version(1, bytes.clone());
    publisher.publish(published.manifest.clone(), published.bytes).unwrap();
    for offset in [0, 1, CHUNK_BYTES_MAX, bytes.len() - 1, bytes.len()] {
        let mut got = Vec::new();
        for chunk in fetched(&service, &published.manifest, offset as u64).await {
            assert_eq!(chunk.offset, (offset + got.len()) as u64);
            assert!((1..=CHUNK_BYTES_MAX).contains(&chunk.data.len()));
            got.extend_from_slice(&chunk.data);
        }
        assert!(got == bytes[offset..], "other bytes from {offset} on");
    }
}

#[tokio::test]
async fn fetches_over_the_limit_wait_for_those_before_them() {
    let (service, publisher) = WeightsService::new(1);
    let service = service.with_fetches_at_once(1);
    let published = version(1, vec![7; CHUNK_BYTES_MAX + 1]);
    publisher.publish(published.manifest.clone(), published.bytes).unwrap();
    let [mut first, mut second] = [
        service.fetch(query(&published.manifest, 0)).await.unwrap().into_inner(),
        service.fetch(query(&published.manifest, 0)).await.unwrap().into_inner(),
    ];
    within(first.next()).await.unwrap().unwrap();
    assert!(poll!(second.next()).is_pending());
    within(first.next()).await.unwrap().unwrap();
    assert!(within(first.next()).await.is_none());
    assert_eq!(within(second.count()).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_of_a_version_that_is_no_longer_kept_ends_after_its_time() {
    let (service, publisher) = WeightsService::new(1);
    let old = version(1, vec![7; 8 * CHUNK_BYTES_MAX]);
    let held = old.bytes.clone();
    let publish = |number: u64| {
        let published = version(number, vec![number as u8; 9]);
        publisher.publish(published.manifest, published.bytes).unwrap();
    };
    publisher.publish(old.manifest.clone(), old.bytes).unwrap();
    let mut chunks = service.fetch(query(&old.manifest, 0)).await.unwrap().into_inner();
    within(chunks.next()).await.unwrap().unwrap();
    publish(2);
    // The fetch may continue after the version is retired.
    within(chunks.next()).await.unwrap().unwrap();
    tokio::time::advance(Duration::from_secs(30)).await;
    publish(3);
    within(chunks.next()).await.unwrap().unwrap();
    // 8 MiB at 256 KiB/s, and 10 s.
    tokio::time::advance(Duration::from_secs(13)).await;
    publish(4);
    assert!(held.is_unique(), "the version is still held for a fetch");
    assert_eq!(within(chunks.next()).await.unwrap().unwrap_err().code(), Code::NotFound);
    assert!(within(chunks.next()).await.is_none());
}

#[tokio::test]
async fn fetches_that_stall_hold_few_versions() {
    let (service, publisher) = WeightsService::new(1);
    let mut held = Vec::new();
    let mut stalled = Vec::new();
    for number in 1..=20 {
        let published = version(number, vec![number as u8; 2 * CHUNK_BYTES_MAX]);
        held.push(published.bytes.clone());
        publisher.publish(published.manifest.clone(), published.bytes).unwrap();
        stalled.push(service.fetch(query(&published.manifest, 0)).await.unwrap().into_inner());
    }
    assert_eq!(held.iter().filter(|bytes| !bytes.is_unique()).count(), 1 + RETIRED_MAX);
}

#[tokio::test]
async fn an_offset_past_the_end_is_out_of_range() {
    let (service, publisher) = WeightsService::new(1);
    let published = version(1, &b"abc"[..]);
    publisher.publish(published.manifest.clone(), published.bytes).unwrap();
    for offset in [4, u64::MAX] {
        let status = service.fetch(query(&published.manifest, offset)).await.err().unwrap();
        assert_eq!(status.code(), Code::OutOfRange);
    }
}

#[tokio::test]
async fn the_newest_few_versions_are_kept() {
    let (service, publisher) = WeightsService::new(2);
    let versions = [1, 2, 3].map(|number| version(number, Bytes::from(format!("weights {number}"))));
    for published in &versions {
        publisher.publish(published.manifest.clone(), published.bytes.clone()).unwrap();
    }
    let status = service.fetch(query(&versions[0].manifest, 0)).await.err().unwrap();
    assert_eq!(status.code(), Code::NotFound);
    for kept in &versions[1..] {
        assert_eq!(fetched(&service, &kept.manifest, 0).await[0].data, kept.bytes);
    }
}

#[tokio::test]
async fn a_version_with_another_digest_is_not_found() {
    let (service, publisher) = WeightsService::new(2);
    let published = version(1, &b"abc"[..]);
    publisher.publish(published.manifest, published.bytes).unwrap();
    let status = service.fetch(query(&version(1, &b"abd"[..]).manifest, 0)).await.err().unwrap();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn subscribers_receive_the_newest_manifest_at_once_and_each_newer_one() {
    let (service, publisher) = WeightsService::new(2);
    let mut early = service.subscribe(subscribe()).await.unwrap().into_inner();
    for number in 1..=2 {
        let published = version(number, Bytes::from(vec![1; number as usize]));
        publisher.publish(published.manifest, published.bytes).unwrap();
        assert_eq!(within(early.next()).await.unwrap().unwrap().version, number);
    }
    let mut late = service.subscribe(subscribe()).await.unwrap().into_inner();
    assert_eq!(within(late.next()).await.unwrap().unwrap().version, 2);
    publisher.close();
    assert!(within(early.next()).await.is_none());
}

#[tokio::test]
async fn subscriptions_end_when_the_server_drains() {
    let drain = CancellationToken::new();
    let (service, _publisher) = WeightsService::new(1);
    let service = service.until(drain.clone());
    let mut manifests = service.subscribe(subscribe()).await.unwrap().into_inner();
    drain.cancel();
    assert!(within(manifests.next()).await.is_none());
}

#[tokio::test]
async fn a_subscriber_without_a_name_is_refused() {
    let (service, _publisher) = WeightsService::new(1);
    for name in [String::new(), "x".repeat(257)] {
        let status = service.subscribe(Request::new(v1::SubscribeRequest { name })).await.err().unwrap();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with("name: "), "{status}");
    }
}

#[test]
fn only_newer_versions_are_published() {
    let (_service, publisher) = WeightsService::new(1);
    let [two, one] = [version(2, &b"abc"[..]), version(1, &b"abd"[..])];
    publisher.publish(two.manifest.clone(), two.bytes.clone()).unwrap();
    for old in [one, two.clone()] {
        let error = publisher.publish(old.manifest, old.bytes).unwrap_err();
        assert!(matches!(error, PublishError::NotNewer { .. }), "{error}");
    }
    assert_eq!(publisher.newest().as_deref(), Some(&two));
}

#[test]
fn a_manifest_of_other_bytes_is_not_published() {
    let (_service, publisher) = WeightsService::new(1);
    let abc = version(1, &b"abc"[..]);
    for (size_bytes, bytes) in [(3, &b"abd"[..]), (4, &b"abc"[..])] {
        let manifest = Manifest { size_bytes, ..abc.manifest.clone() };
        let error = publisher.publish(manifest, bytes.into()).unwrap_err();
        assert!(matches!(error, PublishError::OtherBytes { .. }), "{error}");
    }
    assert_eq!(publisher.newest(), None);
}
