/// A device that computes batches in the order of their submission.
///
/// One thread, which the engine starts, makes all calls, and creates and drops all weights and batches. Some devices
/// and libraries require that: Metal fails when two threads submit, and cuDNN keeps its selection of kernels for each
/// thread.
pub trait Device: Send + 'static {
    /// Weights in the memory of the host, prepared by any thread.
    type Prepared: Send + 'static;
    /// Weights in the memory of the device.
    type Weights;
    /// A submitted batch.
    type InFlight;

    /// Copies weights to the device.
    ///
    /// # Errors
    /// If the device rejects them; it stays usable.
    fn load(&mut self, prepared: Self::Prepared) -> Result<Self::Weights, DeviceError>;

    /// Submits a batch of `size` positions; a device with a queue returns before it is computed. `stage` fills a slice
    /// for observations `[size, C * H * W]` completely, in the order of
    /// [`LoadedNetwork::write_rows`](super::LoadedNetwork::write_rows).
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] if a smaller batch may fit; after any other error the device is not used again.
    fn submit(
        &mut self,
        weights: &Self::Weights,
        size: usize,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<Self::InFlight, DeviceError>;

    /// Returns true if the batch, the oldest in flight, is known to have ended, so that [`wait`](Self::wait) would not
    /// block. A device that cannot find out returns false.
    fn has_ended(&mut self, _batch: &Self::InFlight) -> bool {
        false
    }

    /// Waits for the end of the oldest batch in flight and passes its logits `[size, A + 3]` to `read`: those of the
    /// policy, then win, draw and loss.
    ///
    /// # Errors
    /// As of [`submit`](Self::submit).
    fn wait(&mut self, batch: Self::InFlight, read: &mut dyn FnMut(&[f32])) -> Result<(), DeviceError>;
}

/// The failure of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The memory of the device does not suffice; a smaller batch may fit.
    #[error("{0}")]
    OutOfMemory(String),
    /// The device failed.
    #[error("{0}")]
    Failed(String),
}
