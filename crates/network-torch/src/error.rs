/// Why the network could not be built, read, trained or asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// libtorch refused an operation: out of memory, or a device that lacks it.
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
    /// An architecture no network can have.
    #[error("a network of {what} {got} cannot be built, the limit is {least} to {limit}")]
    Architecture {
        /// Which dimension.
        what: &'static str,
        /// What was asked for.
        got: usize,
        /// The smallest that is accepted.
        least: usize,
        /// The largest that is accepted.
        limit: usize,
    },
    /// The bytes are not a safetensors file.
    #[error("the bytes are not a safetensors file: {0}")]
    Format(String),
    /// A tensor the network needs is not in the file.
    #[error("tensor `{name}` is missing")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// The file holds a tensor the network does not have.
    #[error("tensor `{name}` does not belong to this network")]
    UnexpectedTensor {
        /// Its name.
        name: String,
    },
    /// A tensor has the wrong shape or element type.
    #[error("tensor `{name}` is {got}, expected {expected}")]
    Shape {
        /// Its name.
        name: String,
        /// What the network has.
        expected: String,
        /// What the file has.
        got: String,
    },
    /// A tensor holds NaN, an infinity, or a variance below zero.
    #[error("tensor `{name}` holds {value}")]
    BadNumber {
        /// Its name.
        name: String,
        /// The first such number.
        value: f32,
    },
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
        /// What the network and the number of positions ask for.
        expected: usize,
        /// What is there.
        got: usize,
    },
    /// A setting outside its range.
    #[error("setting `{field}` is {got}, expected {expected}")]
    Setting {
        /// The field.
        field: &'static str,
        /// What was given.
        got: f64,
        /// What is accepted.
        expected: &'static str,
    },
    /// A training step gave NaN or an infinity; nothing of the step was applied.
    #[error("the {quantity} of training step {step} is not finite, the step was not applied")]
    NotFinite {
        /// What was not finite: a loss or the gradient norm.
        quantity: &'static str,
        /// The step that was refused, counted from 1.
        step: u64,
    },
}

impl From<tch::TchError> for Error {
    /// Keeps the first line: what follows is a C++ stack trace.
    fn from(error: tch::TchError) -> Self {
        Self::Libtorch(error.to_string().lines().next().unwrap_or_default().to_owned())
    }
}
