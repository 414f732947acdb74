use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::request::{Buffers, Reply, Request};
use super::{Device, Version};
use crate::Error;

/// Sends requests of one thread to the device of an engine, one at a time: rows that the weights map to other rows.
/// Requests with the same version and kind share batches.
pub struct Caller<D: Device> {
    pub(super) version: Arc<Version<D>>,
    number: u64,
    kind: usize,
    reply: Arc<Reply>,
    /// Memory for requests.
    buffers: Buffers,
    is_waiting: bool,
}

impl<D: Device> fmt::Debug for Caller<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("network", &self.version.network).finish_non_exhaustive()
    }
}

impl<D: Device> Caller<D> {
    pub(super) fn new(version: &Arc<Version<D>>, kind: usize) -> Self {
        let (version, number) = (Arc::clone(version), version.shared.numbers.fetch_add(1, Ordering::Relaxed));
        Self { version, number, kind, reply: Arc::default(), buffers: Buffers::default(), is_waiting: false }
    }

    /// Sends at least one row, and returns before it is computed. `write` completely fills a slice for all rows. Rows
    /// and answers have `widths` numbers each, the same in every request of a kind.
    ///
    /// # Panics
    /// If there is a request without [`receive`](Self::receive).
    pub fn send(&mut self, rows: usize, widths: [usize; 2], write: impl FnOnce(&mut [f32])) {
        assert!(!self.is_waiting, "a caller has one request at a time");
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.observations.resize(rows * widths[0], 0.0);
        buffers.logits.resize(rows * widths[1], 0.0);
        write(&mut buffers.observations);
        let (version, reply) = (Arc::clone(&self.version), Arc::clone(&self.reply));
        self.is_waiting = true;
        self.version.shared.send(Request::new(version, (self.number, self.kind), rows, buffers, reply));
    }

    /// Returns whether there is a request without [`receive`](Self::receive).
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Waits for the answers to the request that was sent, row by row.
    ///
    /// # Errors
    /// [`Error::Lost`] if the device has failed.
    ///
    /// # Panics
    /// If no request was sent.
    pub fn receive(&mut self) -> Result<&[f32], Error> {
        assert!(self.is_waiting, "an answer belongs to a request");
        let (result, buffers) = self.reply.wait();
        (self.buffers, self.is_waiting) = (buffers, false);
        result?;
        Ok(&self.buffers.logits)
    }
}

impl<D: Device> Drop for Caller<D> {
    /// Waits for the request, which may use memory that the owner frees next.
    fn drop(&mut self) {
        if self.is_waiting {
            let _ = self.receive();
        }
    }
}
