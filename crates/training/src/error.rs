/// Reasons why training cannot start or continue, common to all backends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The architecture or the encoded bytes are not a valid network.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// A board of a different game, or a board on which the network cannot be evaluated.
    #[error(transparent)]
    OtherGame(#[from] weights::OtherGame),
    /// An architecture that cannot be added as a board of the trainer's network.
    #[error("cannot add the board {game}: {reason}")]
    Board {
        /// The game name with the board size.
        game: String,
        /// The reason why the board cannot be added.
        reason: &'static str,
    },
    /// A training batch has the index of a board that was not added to the trainer.
    #[error("the batch is for board {board}, but the trainer has {boards} boards (indices from 0)")]
    BoardIndex {
        /// Board index in the batch.
        board: usize,
        /// Number of boards in the trainer.
        boards: usize,
    },
    /// The network cannot grow to the larger architecture without changing the outputs.
    #[error("the network cannot grow: {reason}")]
    Growth {
        /// The reason why the network cannot grow.
        reason: String,
    },
    /// A training cannot begin with these weights.
    #[error("the weights do not suit the network: {reason}")]
    InitialWeights {
        /// The reason why the weights are refused.
        reason: String,
    },
    /// A file is missing in the checkpoint.
    #[error("the checkpoint has no file `{name}`")]
    MissingFile {
        /// Name of the missing file.
        name: &'static str,
    },
    /// A field of a training batch has the wrong length for the network or the number of positions.
    #[error("the batch has {got} numbers in `{field}`, expected {expected}")]
    Batch {
        /// Name of the field in the batch.
        field: &'static str,
        /// Length required by the network and the number of positions.
        expected: usize,
        /// Actual length in the batch.
        got: usize,
    },
    /// A training batch contains an action that the network does not have.
    #[error("the batch has the action {action}, the network has {actions} actions")]
    Action {
        /// Action index in the batch.
        action: u16,
        /// Number of actions in the network.
        actions: usize,
    },
    /// A setting is outside the valid range.
    #[error("setting `{field}` is {got}, expected {expected}")]
    Setting {
        /// Name of the setting.
        field: &'static str,
        /// The rejected value.
        got: f64,
        /// The valid range.
        expected: &'static str,
    },
    /// A loss or the gradient of a training step is NaN or infinite. The step was not applied.
    #[error("the {quantity} of training step {step} is not finite; the step was not applied")]
    NotFinite {
        /// The first quantity that was not finite: a loss or the gradient norm.
        quantity: &'static str,
        /// Number of the rejected step, counted from 1.
        step: u64,
    },
    /// The gradient of a training step exceeded the float16 range. The step was not applied, and the next step has a
    /// smaller loss scale.
    #[error(
        "the gradient of training step {step} overflows with a loss scale of {loss_scale}; the step was not applied"
    )]
    Overflow {
        /// Loss scale of the skipped step.
        loss_scale: f64,
        /// Number of the skipped step, counted from 1.
        step: u64,
    },
    /// The device has failed, and refuses all further work of this process.
    #[error(transparent)]
    DeviceLost(Box<dyn std::error::Error + Send + Sync>),
    /// A backend failed, for example because this backend does not support the network.
    #[error(transparent)]
    Backend(Box<dyn std::error::Error + Send + Sync>),
}
