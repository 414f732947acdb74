/// Reasons why a network cannot be trained on the CPU.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting, batch or checkpoint that every backend rejects, or a step that is not finite.
    #[error(transparent)]
    Training(#[from] training::Error),
    /// A network or setting that these kernels do not support, but another backend may.
    #[error("the CPU kernels cannot train {what}")]
    Unsupported {
        /// Unsupported part, as the end of the message.
        what: &'static str,
    },
    /// The system cannot start another thread.
    #[error("cannot start the threads of the training step: {0}")]
    Threads(#[from] std::io::Error),
}

impl From<Error> for training::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Training(error) => error,
            error => Self::Backend(Box::new(error)),
        }
    }
}
