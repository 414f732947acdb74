//! Counts of latent states that are copied between the device of an engine and the host.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of latent states that the models of several threads have copied.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    to_host_bytes: AtomicU64,
    to_device_bytes: AtomicU64,
}

impl Traffic {
    pub(super) fn to_host(&self, bytes: usize) {
        self.to_host_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn to_device(&self, bytes: usize) {
        self.to_device_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes of both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.to_host_bytes.load(Ordering::Relaxed) + self.to_device_bytes.load(Ordering::Relaxed)
    }
}
