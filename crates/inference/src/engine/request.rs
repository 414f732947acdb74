use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::{Device, Version};
use crate::Error;

/// The memory of a request; travels to the device thread and back.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// `[B, C * H * W]`, in the order that the device takes.
    pub(super) observations: Vec<f32>,
    /// `[B, A + 3]`.
    pub(super) logits: Vec<f32>,
}

/// The channel on which one evaluator waits for answers, one request at a time.
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

/// Positions of one evaluator. A request dropped without an answer, for example after a panic of the device thread,
/// sends an error, so that the evaluator never waits forever.
pub(super) struct Request<D: Device> {
    pub(super) version: Arc<Version<D>>,
    /// Number of the evaluator.
    pub(super) caller: u64,
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
        caller: u64,
        positions: usize,
        buffers: Buffers,
        reply: Arc<Reply>,
    ) -> Self {
        Self { version, caller, positions, unanswered: positions, buffers, reply: Some(reply) }
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
