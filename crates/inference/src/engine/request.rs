use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::queue::Lane;
use super::{Device, Version};
use crate::Error;

/// The memory of a request; travels to the device thread and back.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// `[B, C * H * W]`, in the order that the device takes; or other rows.
    pub(super) observations: Vec<f32>,
    /// `[B, A + 3]`, or other rows.
    pub(super) logits: Vec<f32>,
}

/// The channel on which one caller waits for answers, one request at a time.
#[derive(Debug, Default)]
pub(super) struct Reply {
    answer: Mutex<Option<(Result<(), Error>, Buffers)>>,
    arrived: Condvar,
}

impl Reply {
    fn send(&self, result: Result<(), Error>, buffers: Buffers) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some((result, buffers));
        self.arrived.notify_one();
    }

    pub(super) fn wait(&self) -> (Result<(), Error>, Buffers) {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(answer) = answer.take() {
                return answer;
            }
            answer = self.arrived.wait(answer).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Positions of one caller. A request dropped without an answer, for example after a panic of the device thread,
/// sends an error, so that the caller never waits forever.
pub(super) struct Request<D: Device> {
    pub(super) version: Arc<Version<D>>,
    /// Number of the caller.
    pub(super) caller: u64,
    pub(super) kind: usize,
    /// B, the number of positions.
    pub(super) positions: usize,
    /// Number of positions without logits.
    pub(super) unanswered: usize,
    pub(super) buffers: Buffers,
    reply: Option<Arc<Reply>>,
}

impl<D: Device> Request<D> {
    pub(super) fn new(
        version: Arc<Version<D>>,
        (caller, kind): (u64, usize),
        positions: usize,
        buffers: Buffers,
        reply: Arc<Reply>,
    ) -> Self {
        Self { version, caller, kind, positions, unanswered: positions, buffers, reply: Some(reply) }
    }

    /// Returns the requests that can share a batch with this request.
    pub(super) fn lane(&self) -> Lane {
        Lane { version: self.version.number, kind: self.kind }
    }

    /// Sends the logits back, or the error.
    pub(super) fn answer(mut self, result: Result<(), Error>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<(), Error>) {
        if let Some(reply) = self.reply.take() {
            reply.send(result, std::mem::take(&mut self.buffers));
        }
    }
}

impl<D: Device> Drop for Request<D> {
    fn drop(&mut self) {
        if self.reply.is_some() {
            self.send(Err(self.version.shared.lost()));
        }
    }
}
