//! Limits on the messages of a request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::channel::mpsc;
use futures::{FutureExt as _, StreamExt as _};
use http_body::{Body, Frame};
use tokio::time::Instant;
use tonic::Code;

use super::super::methods::{Messages, RequestLimits};
use super::super::networks::{Network, Networks, REQUESTS_MAX};
use super::super::request_body::{HEADER_BYTES, MESSAGE_TIMEOUT, RequestBody};
use super::*;

/// Request data sent by the test.
struct Sent(mpsc::UnboundedReceiver<Bytes>);

impl Body for Sent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0.poll_next_unpin(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

type Sender = mpsc::UnboundedSender<Bytes>;

const SMALL: RequestLimits = RequestLimits { messages: Messages::One, message_bytes_max: 64 << 10 };
const LARGE: RequestLimits = RequestLimits { messages: Messages::Many, message_bytes_max: 16 << 20 };

fn body(limits: RequestLimits, network: &Arc<Network>) -> (Sender, RequestBody<Sent>) {
    let (sender, sent) = mpsc::unbounded();
    (sender, RequestBody::new(Sent(sent), limits, Arc::clone(network)).unwrap())
}

fn network() -> Arc<Network> {
    Networks::default().of("192.0.2.1".parse().unwrap())
}

/// Returns a message that announces `announced` bytes and carries `sent`.
fn message(announced: u32, sent: usize) -> Bytes {
    let mut bytes = vec![0];
    bytes.extend(announced.to_be_bytes());
    bytes.resize(HEADER_BYTES + sent, 7);
    bytes.into()
}

async fn next(body: &mut RequestBody<Sent>) -> Option<Result<Bytes, Code>> {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
    Some(frame.map(|frame| frame.into_data().unwrap()).map_err(|status| status.code()))
}

#[tokio::test(start_paused = true)]
async fn whole_messages_pass_whatever_their_boundaries() {
    let network = network();
    let (sender, mut body) = body(LARGE, &network);
    let bytes: Vec<u8> = (0..50).flat_map(|size| message(size * 97, size as usize * 97)).collect();
    for piece in bytes.chunks(113) {
        sender.unbounded_send(Bytes::copy_from_slice(piece)).unwrap();
        assert_eq!(next(&mut body).await.unwrap().unwrap(), piece);
    }
    // A stream may be silent between two messages.
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(next(&mut body).now_or_never().is_none());
    drop(sender);
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_message_above_the_limit_of_its_method_is_refused_by_its_header() {
    let network = network();
    let (sender, mut body) = body(SMALL, &network);
    sender.unbounded_send(message((64 << 10) + 1, 0)).unwrap();
    assert_eq!(next(&mut body).await, Some(Err(Code::OutOfRange)));
}

#[tokio::test(start_paused = true)]
async fn a_second_message_is_refused_where_a_method_takes_one() {
    let network = network();
    let (sender, mut body) = body(SMALL, &network);
    sender.unbounded_send(message(3, 3)).unwrap();
    next(&mut body).await.unwrap().unwrap();
    sender.unbounded_send(message(3, 3)).unwrap();
    assert_eq!(next(&mut body).await, Some(Err(Code::InvalidArgument)));
}

#[tokio::test(start_paused = true)]
async fn a_request_or_message_that_is_not_complete_in_time_ends_its_call() {
    let network = network();
    // Nothing, a partial header, a partial message, or a whole message of a request that does not stop.
    for sent in [message(0, 0).slice(..0), message(9, 0).slice(..3), message(9, 4), message(9, 9)] {
        let (sender, mut body) = body(SMALL, &network);
        let start = Instant::now();
        if !sent.is_empty() {
            sender.unbounded_send(sent.clone()).unwrap();
            next(&mut body).await.unwrap().unwrap();
        }
        assert_eq!(next(&mut body).await, Some(Err(Code::DeadlineExceeded)), "{sent:?}");
        assert!(start.elapsed() <= MESSAGE_TIMEOUT + Duration::from_secs(1), "{sent:?}");
    }
    let (sender, mut body) = body(LARGE, &network);
    let start = Instant::now();
    for _ in 0..20 {
        // Each byte arrives in time, the message does not.
        tokio::time::advance(Duration::from_secs(1)).await;
        let sent = if start.elapsed() <= Duration::from_secs(1) { message(90, 1) } else { Bytes::from_static(b"7") };
        sender.unbounded_send(sent).unwrap();
        next(&mut body).await.unwrap().unwrap();
        if start.elapsed() > Duration::from_secs(10) {
            break;
        }
    }
    assert_eq!(next(&mut body).await, Some(Err(Code::DeadlineExceeded)));
    assert!(start.elapsed() <= MESSAGE_TIMEOUT + Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_has_its_time_again_after_the_server_has_not_read() {
    let network = network();
    let (sender, mut body) = body(LARGE, &network);
    sender.unbounded_send(message(9, 4)).unwrap();
    next(&mut body).await.unwrap().unwrap();
    sender.unbounded_send(Bytes::from_static(b"7")).unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    next(&mut body).await.unwrap().unwrap();
    assert!(next(&mut body).now_or_never().is_none(), "the rest may still come");
    sender.unbounded_send(Bytes::from_static(b"7777")).unwrap();
    next(&mut body).await.unwrap().unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(next(&mut body).now_or_never().is_none(), "the message is complete");
}

#[tokio::test(start_paused = true)]
async fn a_request_needs_no_memory_that_streams_hold() {
    let network = network();
    let mut streams = Vec::new();
    for _ in 0..5 {
        let (sender, mut half) = body(LARGE, &network);
        sender.unbounded_send(message(16 << 20, 100)).unwrap();
        let passes = next(&mut half).now_or_never().is_some();
        streams.push((sender, half, passes));
    }
    assert!(!streams[4].2);
    let (sender, mut request) = body(RequestLimits { messages: Messages::One, ..LARGE }, &network);
    sender.unbounded_send(message(16 << 20, 100)).unwrap();
    next(&mut request).now_or_never().unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn half_sent_messages_of_one_address_hold_bounded_memory_until_their_deadline() {
    let networks = Networks::default();
    let (one, other) = (networks.of("192.0.2.1".parse().unwrap()), networks.of("192.0.2.2".parse().unwrap()));
    let mut passed = 0;
    let mut bodies = Vec::new();
    for _ in 0..1024 {
        let (sender, mut half) = body(LARGE, &one);
        sender.unbounded_send(message(16 << 20, 100)).unwrap();
        passed += usize::from(next(&mut half).now_or_never().is_some());
        bodies.push((sender, half));
    }
    // Four of the largest messages.
    assert_eq!(passed, 4);
    let (sender, mut whole) = body(LARGE, &other);
    sender.unbounded_send(message(1 << 20, 100)).unwrap();
    next(&mut whole).now_or_never().unwrap().unwrap().unwrap();
    // A small message needs no permit.
    let (sender, mut small) = body(LARGE, &one);
    sender.unbounded_send(message(60 << 10, 100)).unwrap();
    next(&mut small).now_or_never().unwrap().unwrap().unwrap();
    // After a failed message, the next may arrive.
    let (sender, mut first) = bodies.remove(0);
    assert_eq!(next(&mut first).await, Some(Err(Code::DeadlineExceeded)));
    drop((sender, first));
    let waiting = bodies.iter_mut().skip(3);
    let passed: usize = waiting.map(|(_, half)| usize::from(next(half).now_or_never().is_some())).sum();
    assert_eq!(passed, 1);
}

#[tokio::test(start_paused = true)]
async fn the_requests_that_are_arriving_from_one_address_are_limited_and_complete_ones_do_not_count() {
    let networks = Networks::default();
    let (one, other) = (networks.of("192.0.2.1".parse().unwrap()), networks.of("192.0.2.2".parse().unwrap()));
    let mut arriving: Vec<_> = (0..REQUESTS_MAX).map(|_| body(SMALL, &one)).collect();
    let another = |network| RequestBody::new(Sent(mpsc::unbounded().1), SMALL, Arc::clone(network));
    assert_eq!(another(&one).err().unwrap().code(), Code::ResourceExhausted);
    assert!(another(&other).is_ok());
    body(LARGE, &one);
    let (sender, complete) = &mut arriving[7];
    sender.unbounded_send(message(3, 3)).unwrap();
    next(complete).await.unwrap().unwrap();
    assert!(another(&one).is_ok());
}

/// Returns a whole message of `bytes` bytes that is marked as compressed.
fn packed(bytes: u32) -> Bytes {
    let mut message = message(bytes, bytes as usize).to_vec();
    message[0] = 1;
    message.into()
}

#[tokio::test(start_paused = true)]
async fn compressed_requests_hold_the_memory_that_they_may_decompress_to_until_they_have_ended() {
    let network = network();
    let limits = RequestLimits { messages: Messages::One, ..LARGE };
    let mut bodies = Vec::new();
    for _ in 0..5 {
        let (sender, mut request) = body(limits, &network);
        sender.unbounded_send(packed(20 << 10)).unwrap();
        let passes = next(&mut request).now_or_never().is_some();
        bodies.push((sender, request, passes));
    }
    // Four of the largest messages.
    assert_eq!(bodies.iter().map(|(.., passes)| *passes).collect::<Vec<_>>(), [true, true, true, true, false]);
    // A message that stays small needs no memory.
    let (sender, mut small) = body(limits, &network);
    sender.unbounded_send(packed(60)).unwrap();
    next(&mut small).now_or_never().unwrap().unwrap().unwrap();
    bodies.remove(0);
    next(&mut bodies[3].1).now_or_never().unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn streams_with_compressed_messages_hold_bounded_memory_and_leave_some_to_other_addresses() {
    let networks = Networks::default();
    let (one, other) = (networks.of("192.0.2.1".parse().unwrap()), networks.of("192.0.2.2".parse().unwrap()));
    let mut streams = Vec::new();
    for number in 0..17 {
        let (sender, mut stream) = body(LARGE, &one);
        for _ in 0..2 {
            sender.unbounded_send(packed(20 << 10)).unwrap();
            let passes = next(&mut stream).await.unwrap();
            assert_eq!(passes.is_ok(), number < 16, "stream {number}");
            if let Err(code) = passes {
                assert_eq!(code, Code::ResourceExhausted);
                break;
            }
        }
        streams.push((sender, stream));
    }
    let (sender, mut stream) = body(LARGE, &other);
    sender.unbounded_send(packed(20 << 10)).unwrap();
    next(&mut stream).await.unwrap().unwrap();
    // A stream of the first address that ends leaves the memory to another.
    streams.truncate(15);
    let (sender, mut stream) = body(LARGE, &one);
    sender.unbounded_send(packed(20 << 10)).unwrap();
    next(&mut stream).await.unwrap().unwrap();
}
