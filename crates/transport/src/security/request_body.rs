//! Wraps request bodies with limits on the size of messages, on the time until a message is complete, and on the memory
//! for unfinished and for decompressed messages.
//!
//! tonic buffers a message until it is complete. Without limits, a client that sends the first half of many messages
//! would hold the memory for any length of time. A compressed message of a few kilobytes may decompress to the largest
//! message: tonic keeps the decompressed bytes of a single request until the body has ended, and those of a stream
//! until the next message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::methods::{Messages, RequestLimits};
use super::networks::{Network, UnfinishedPermit};
use crate::limits::MESSAGE_BYTES_MAX;

/// Time limit for receiving a message, in addition to the time that the message takes at the slowest rate.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Slowest rate of an arriving message, in bytes per second: half a megabit per second.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// Time after the deadline that shows that the server was not reading. If a read comes this late, the body was not
/// being read at the deadline, since it would otherwise have failed.
const READ_LATE: Duration = Duration::from_secs(1);

/// Maximum size of an unfinished message without a permit: the number of streams bounds the memory for such messages.
const FREE_BYTES_MAX: usize = 64 << 10;

/// Maximum factor by which deflate, and so gzip, compresses.
const COMPRESSION_MAX: usize = 1032;

/// Bytes before each message in gRPC: a flag, and the message length as a big-endian u32.
pub(super) const HEADER_BYTES: usize = 5;

/// A request body that fails when it exceeds a limit.
pub(super) struct RequestBody<B> {
    inner: B,
    limits: RequestLimits,
    network: Arc<Network>,
    position: Position,
    /// Number of completed messages.
    complete: u64,
    /// Deadline of the arriving message; for single-message requests, the deadline of the whole request.
    deadline: Option<Instant>,
    /// A timer for the deadline, set while the body waits for the client.
    timer: Option<Pin<Box<Sleep>>>,
    /// The permit of a single-message request, held until the message is complete; of a compressed message, until the
    /// body has ended.
    place: Option<OwnedSemaphorePermit>,
    /// Memory of the arriving message, held as `place` is.
    permit: Option<UnfinishedPermit>,
    /// Maximum size of the largest decompressed message so far; 0 without a compressed message.
    unpacked_bytes: usize,
    /// Memory for the decompressed messages of a stream.
    unpacked: Vec<UnfinishedPermit>,
    /// Data that waits for memory, and the acquisition of this memory.
    waiting: Option<(Frame<Bytes>, BoxFuture<'static, Option<UnfinishedPermit>>)>,
}

/// The position in the sequence of headers and messages.
#[derive(Debug, Default)]
struct Position {
    header: [u8; HEADER_BYTES],
    /// Received bytes of the header; all of them while the message arrives.
    header_bytes: usize,
    /// Size of the arriving message.
    message_bytes: usize,
    /// Missing bytes of the arriving message.
    left: usize,
}

impl<B> RequestBody<B> {
    /// Tracks the body of a call from `network`.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: too many single-message requests are arriving from the network. Streams are limited by
    /// the services.
    pub(super) fn new(inner: B, limits: RequestLimits, network: Arc<Network>) -> Result<Self, Status> {
        let (place, deadline) = match limits.messages {
            Messages::One => (Some(network.request()?), Some(Instant::now() + MESSAGE_TIMEOUT)),
            Messages::Many => (None, None),
        };
        Ok(Self {
            inner,
            limits,
            network,
            position: Position::default(),
            complete: 0,
            deadline,
            timer: None,
            place,
            permit: None,
            unpacked_bytes: 0,
            unpacked: Vec::new(),
            waiting: None,
        })
    }

    /// Tracks the messages in `data`.
    fn advance(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while !data.is_empty() {
            if self.limits.messages == Messages::One && self.complete > 0 {
                return Err(Status::invalid_argument("this method takes one message"));
            }
            if self.position.read_header(&mut data) {
                self.check_size()?;
                self.unpacked_bytes = self.unpacked_bytes.max(self.position.unpacked_bytes_max());
            }
            if self.position.is_complete_after(&mut data) {
                self.position = Position::default();
                self.complete += 1;
                if self.unpacked_bytes == 0 || self.limits.messages == Messages::Many {
                    (self.place, self.permit) = (None, None);
                }
                if self.limits.messages == Messages::Many {
                    self.deadline = None;
                }
            }
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), Status> {
        let (bytes, bytes_max) = (self.position.message_bytes, self.limits.message_bytes_max);
        if bytes > bytes_max {
            let message = format!("message of {bytes} bytes exceeds the limit of {bytes_max} bytes");
            return Err(Status::out_of_range(message));
        }
        Ok(())
    }

    /// Restarts the deadline if the server was not reading when it passed: HTTP/2 held the client back.
    fn excuse(&mut self) {
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline + READ_LATE) {
            self.start_deadline();
        }
    }

    /// Starts the deadline of a partially received message.
    fn start_deadline(&mut self) {
        let at_slowest = Duration::from_secs(self.position.message_bytes as u64 / BYTES_PER_SECOND_MIN);
        self.deadline = Some(Instant::now() + MESSAGE_TIMEOUT + at_slowest);
    }

    /// Returns request data, if necessary after acquiring memory for a message that the data leaves unfinished.
    fn receive(&mut self, frame: Frame<Bytes>) -> Result<Option<Frame<Bytes>>, Status> {
        let Some(data) = frame.data_ref() else { return Ok(Some(frame)) };
        let (complete, had_header, unpacked_bytes) = (self.complete, self.position.has_header(), self.unpacked_bytes);
        self.advance(data)?;
        let more = self.unpacked_bytes - unpacked_bytes;
        if more > 0 && self.unpacked_bytes > FREE_BYTES_MAX && self.limits.messages == Messages::Many {
            self.unpacked.push(self.network.unpacked(more)?);
        }
        let is_new = self.complete > complete || self.position.has_header() != had_header || self.deadline.is_none();
        let bytes = match self.limits.messages {
            Messages::One if more > 0 => self.unpacked_bytes,
            _ if !self.position.is_unfinished() || !is_new => return Ok(Some(frame)),
            _ => self.position.message_bytes,
        };
        self.start_deadline();
        if bytes <= FREE_BYTES_MAX || self.permit.is_some() {
            return Ok(Some(frame));
        }
        let memory = Arc::clone(&self.network).unfinished(self.limits.messages, bytes);
        self.waiting = Some((frame, Box::pin(memory)));
        Ok(None)
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Status::deadline_exceeded("timeout while receiving a message"))
    }
}

impl Position {
    fn has_header(&self) -> bool {
        self.header_bytes == HEADER_BYTES
    }

    fn is_unfinished(&self) -> bool {
        self.header_bytes > 0
    }

    /// Returns the maximum size of the message after decompression; 0 if the message is not compressed.
    fn unpacked_bytes_max(&self) -> usize {
        let is_compressed = self.header[0] != 0;
        if is_compressed { self.message_bytes.saturating_mul(COMPRESSION_MAX).min(MESSAGE_BYTES_MAX) } else { 0 }
    }

    /// Takes the rest of the header from `data`; returns true if the header is complete.
    fn read_header(&mut self, data: &mut &[u8]) -> bool {
        let taken = data.len().min(HEADER_BYTES - self.header_bytes);
        if taken == 0 {
            return false;
        }
        let (head, rest) = data.split_at(taken);
        self.header[self.header_bytes..self.header_bytes + taken].copy_from_slice(head);
        *data = rest;
        self.header_bytes += taken;
        if !self.has_header() {
            return false;
        }
        let [_, a, b, c, d] = self.header;
        self.message_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        self.left = self.message_bytes;
        true
    }

    /// Takes the rest of the message from `data`; returns true if the message is complete.
    fn is_complete_after(&mut self, data: &mut &[u8]) -> bool {
        let taken = data.len().min(self.left);
        *data = &data[taken..];
        self.left -= taken;
        self.has_header() && self.left == 0
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let body = self.get_mut();
        body.excuse();
        loop {
            if let Some((_, memory)) = &mut body.waiting {
                body.permit = ready!(memory.as_mut().poll(cx));
                // The client could not send while the message waited.
                body.start_deadline();
                return Poll::Ready(body.waiting.take().map(|(frame, _)| Ok(frame)));
            }
            match Pin::new(&mut body.inner).poll_frame(cx) {
                Poll::Pending => return body.poll_deadline(cx).map(|status| Some(Err(status))),
                Poll::Ready(Some(Ok(frame))) => match body.receive(frame) {
                    Ok(None) => {}
                    Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                    Err(status) => return Poll::Ready(Some(Err(status))),
                },
                Poll::Ready(ended) => return Poll::Ready(ended),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
