/// Reasons why a training cannot start or continue, common to all backends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The architecture or the bytes are no valid network.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// A board of another game, or one on which the network cannot be evaluated.
    #[error(transparent)]
    OtherGame(#[from] weights::OtherGame),
    /// An architecture is no board variant of the trainer's network.
    #[error("{game} is no other board of the network: {reason}")]
    Board {
        /// The game name, with the board.
        game: String,
        /// Reason for the refusal.
        reason: &'static str,
    },
    /// A training batch names a board that the trainer does not have.
    #[error("the batch is of board {board}, and the trainer has {boards} boards, counted from 0")]
    BoardIndex {
        /// Index in the batch.
        board: usize,
        /// Boards of the trainer.
        boards: usize,
    },
    /// A network cannot grow into another one with the same outputs.
    #[error("the network cannot grow: {reason}")]
    Growth {
        /// Reason for the refusal.
        reason: String,
    },
    /// A file of a checkpoint is missing.
    #[error("the checkpoint has no file `{name}`")]
    MissingFile {
        /// File name in the checkpoint.
        name: &'static str,
    },
    /// A training batch does not fit the network, or has inconsistent lengths.
    #[error("the batch has {got} numbers in `{field}`, expected {expected}")]
    Batch {
        /// Field name in the batch.
        field: &'static str,
        /// Length for the network and the number of positions.
        expected: usize,
        /// Length in the batch.
        got: usize,
    },
    /// A training batch names an action that the network does not have.
    #[error("the batch has the action {action}, the network has {actions} actions")]
    Action {
        /// Action index in the batch.
        action: u16,
        /// Actions of the network.
        actions: usize,
    },
    /// A setting outside the accepted range.
    #[error("setting `{field}` is {got}, expected {expected}")]
    Setting {
        /// Setting name in a configuration.
        field: &'static str,
        /// Rejected value.
        got: f64,
        /// The accepted range.
        expected: &'static str,
    },
    /// A training step gave NaN or an infinity; nothing of the step was applied.
    #[error("the {quantity} of training step {step} is not finite, the step was not applied")]
    NotFinite {
        /// First quantity that was not finite: a loss or the gradient norm.
        quantity: &'static str,
        /// Number of the refused step, counted from 1.
        step: u64,
    },
    /// The gradient of a training step exceeded the float16 range. Nothing of the step was applied; the next one
    /// has a smaller loss scale.
    #[error(
        "the gradient of training step {step} overflows with a loss scale of {loss_scale}, the step was not applied"
    )]
    Overflow {
        /// Loss scale of the skipped step.
        loss_scale: f64,
        /// Number of the skipped step, counted from 1.
        step: u64,
    },
    /// A backend failed: the device is lost, or only other backends train this network.
    #[error(transparent)]
    Backend(Box<dyn std::error::Error + Send + Sync>),
}
