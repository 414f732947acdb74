//! Pins each self-play thread to a cpu.

use std::sync::atomic::{AtomicBool, Ordering};

use service::cpus::{self, Cpu};

use crate::config::ActorSection;

/// A cpu for each thread, or none.
#[derive(Debug, Default)]
pub(crate) struct Pinning {
    cpus: Vec<Cpu>,
    /// A thread has logged that it could not be pinned.
    is_told: AtomicBool,
}

impl Pinning {
    /// Follows `actor.pin_threads`. Cpus are those of the calling thread.
    pub(crate) fn new(section: &ActorSection) -> Self {
        if !section.pin_threads {
            return Self::default();
        }
        match cpus::allowed() {
            Ok(cpus) => Self { cpus, is_told: AtomicBool::new(false) },
            Err(error) => {
                tracing::warn!(%error, "self-play threads run anywhere (actor.pin_threads)");
                Self::default()
            }
        }
    }

    /// Keeps the calling thread, by its number, on its cpu. Threads beyond the number of cpus share them.
    pub(crate) fn pin(&self, thread: usize) {
        let Some(cpu) = thread.checked_rem(self.cpus.len()).and_then(|index| self.cpus.get(index)) else { return };
        match cpu.pin() {
            Ok(()) => tracing::debug!(thread, %cpu, "a self-play thread stays on its cpu"),
            Err(error) if !self.is_told.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%cpu, %error, "self-play threads run anywhere (actor.pin_threads)");
            }
            Err(_) => {}
        }
    }
}
