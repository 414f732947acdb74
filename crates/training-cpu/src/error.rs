/// Reasons why a network cannot be trained on the CPU.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting, a batch or a checkpoint that no backend takes, or a step that is not finite.
    #[error(transparent)]
    Training(#[from] training::Error),
    /// A network or a setting that these kernels do not take, but another backend may.
    #[error("the kernels of the CPU do not train {what}")]
    Unsupported {
        /// The part that is not supported.
        what: &'static str,
    },
    /// The system has no more threads.
    #[error("threads of the training step: {0}")]
    Threads(#[from] std::io::Error),
}
