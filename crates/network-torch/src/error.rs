/// Reasons why a network could not be built, read, trained or evaluated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A libtorch operation failed: memory ran out, or the device does not support it.
    #[error("libtorch: {0}")]
    Libtorch(String),
    /// A device that was named and cannot be used.
    #[error("the device {device} cannot be used: {reason}")]
    Device {
        /// Its name in a configuration.
        device: String,
        /// The cause.
        reason: String,
    },
    /// The architecture or the bytes are not those of a network.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// A file of a checkpoint is missing.
    #[error("the checkpoint has no file `{name}`")]
    MissingFile {
        /// Its name.
        name: &'static str,
    },
    /// A training batch does not fit the network or itself.
    #[error("the batch has {got} numbers in `{field}`, expected {expected}")]
    Batch {
        /// The field.
        field: &'static str,
        /// The count for the network and the number of positions.
        expected: usize,
        /// The count in the batch.
        got: usize,
    },
    /// A setting outside its range.
    #[error("setting `{field}` is {got}, expected {expected}")]
    Setting {
        /// The field.
        field: &'static str,
        /// The value.
        got: f64,
        /// The accepted range.
        expected: &'static str,
    },
    /// A training step gave NaN or an infinity; nothing of the step was applied.
    #[error("the {quantity} of training step {step} is not finite, the step was not applied")]
    NotFinite {
        /// The quantity that was not finite: a loss or the gradient norm.
        quantity: &'static str,
        /// The step that was refused, counted from 1.
        step: u64,
    },
}

impl From<tch::TchError> for Error {
    /// Keeps the first line: the others are a C++ stack trace.
    fn from(error: tch::TchError) -> Self {
        Self::Libtorch(error.to_string().lines().next().unwrap_or_default().to_owned())
    }
}
