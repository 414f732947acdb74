/// A device that computes batches in submission order.
///
/// One thread, started by the engine, makes all calls, and creates and drops all weights and batches. Some devices
/// and libraries require that: Metal fails if two threads submit, and cuDNN keeps a separate selection of kernels for
/// each thread.
pub trait Device: Send + 'static {
    /// Weights in host memory, prepared by any thread.
    type Prepared: Send + 'static;
    /// Weights in device memory.
    type Weights;
    /// A submitted batch.
    type InFlight;

    /// Copies weights to the device.
    ///
    /// # Errors
    /// The device rejects the weights and stays usable.
    fn load(&mut self, prepared: Self::Prepared) -> Result<Self::Weights, DeviceError>;

    /// Submits a batch of `size` positions; a device with a queue returns before the batch is computed. `stage`
    /// completely fills a slice for observations `[size, C * H * W]`, in the order of
    /// [`LoadedNetwork::write_rows`](super::LoadedNetwork::write_rows).
    ///
    /// Evaluators send requests of the kind 0. Of another kind, or for weights without evaluators, the slice is for
    /// rows as a [`Caller`](super::Caller) has sent them, and rows of zeros.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] if a smaller batch may fit; after any other error the device is not used again.
    /// The positions of a failed batch may be submitted again.
    fn submit(
        &mut self,
        weights: &Self::Weights,
        kind: usize,
        size: usize,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<Self::InFlight, DeviceError>;

    /// Returns true if the batch, the oldest in flight, is known to be finished, so that [`wait`](Self::wait) would
    /// not block. A device that cannot find out returns false.
    fn has_ended(&mut self, _batch: &Self::InFlight) -> bool {
        false
    }

    /// Waits for the oldest batch in flight and passes the logits `[size, A + 3]` to `read`: policy, then win, draw
    /// and loss; of other kinds, the numbers of each row.
    ///
    /// # Errors
    /// Same as [`submit`](Self::submit).
    fn wait(&mut self, batch: Self::InFlight, read: &mut dyn FnMut(&[f32])) -> Result<(), DeviceError>;
}

/// The error of a device call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The device memory does not suffice; a smaller batch may fit.
    #[error("{0}")]
    OutOfMemory(String),
    /// The device failed.
    #[error("{0}")]
    Failed(String),
}
