//! A stand-in for graphs of an accelerator, which computes recorded work again on the CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tch::Tensor;

use crate::{Error, graph::Work};

/// Behaviour of a stand-in that does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing can be recorded.
    Capture,
    /// There is no memory for a recording.
    Memory,
    /// A replay computes wrong numbers.
    Replay,
}

/// Counts of a stand-in, shared by all clones.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) recorded: AtomicUsize,
    pub(crate) replayed: AtomicUsize,
}

/// Records and replays on the CPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct StandIn {
    pub(crate) fault: Option<Fault>,
    pub(crate) counts: Arc<Counts>,
}

impl StandIn {
    /// Computes `work` once for the shapes of the outputs, which hold zeros.
    pub(crate) fn record(&self, work: Work<'_>) -> Result<Vec<Tensor>, Error> {
        let outputs = work()?;
        match self.fault {
            Some(Fault::Capture) => {
                Err(Error::Libtorch("CUDA error: operation not permitted when stream is capturing".to_owned()))
            }
            Some(Fault::Memory) => Err(Error::OutOfMemory { message: "CUDA out of memory".to_owned() }),
            _ => {
                self.counts.recorded.fetch_add(1, Ordering::Relaxed);
                outputs.iter().map(|output| Ok(output.f_zeros_like()?)).collect()
            }
        }
    }

    /// Computes `work` and copies the results into `outputs`.
    pub(crate) fn replay(&self, work: Work<'_>, outputs: &[Tensor]) -> Result<(), Error> {
        for (output, computed) in outputs.iter().zip(work()?) {
            let mut output = output.shallow_clone();
            output.f_copy_(&computed)?;
            if self.fault == Some(Fault::Replay) && output.is_floating_point() {
                let _ = output.f_add_scalar_(1.0)?;
            }
        }
        self.counts.replayed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
