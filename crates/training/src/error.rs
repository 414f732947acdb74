/// Reasons why a training cannot begin or continue, which do not depend on the backend.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The architecture or the bytes are not those of a network.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// A board of another game, or one on which the network cannot be evaluated.
    #[error(transparent)]
    OtherGame(#[from] weights::OtherGame),
    /// An architecture is not that of the trainer's network on another board.
    #[error("{game} is no other board of the network: {reason}")]
    Board {
        /// The game, with its board.
        game: String,
        /// The reason.
        reason: &'static str,
    },
    /// A training batch names a board that the trainer does not have.
    #[error("the batch is of board {board}, and the trainer has {boards} boards, counted from 0")]
    BoardIndex {
        /// The index of the board.
        board: usize,
        /// The number of boards.
        boards: usize,
    },
    /// A network cannot become another one that computes the same.
    #[error("the network cannot grow: {reason}")]
    Growth {
        /// The reason.
        reason: String,
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
        /// The count for the network and the number of positions.
        expected: usize,
        /// The count in the batch.
        got: usize,
    },
    /// A training batch names an action that the network does not have.
    #[error("the batch has the action {action}, the network has {actions} actions")]
    Action {
        /// The action.
        action: u16,
        /// The number of actions.
        actions: usize,
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
    /// The gradient of a training step was out of the range of float16, so that nothing of the step was applied; the
    /// next one has a smaller scale.
    #[error(
        "the gradient of training step {step} overflows with a loss scale of {loss_scale}, the step was not applied"
    )]
    Overflow {
        /// The scale of the step's loss.
        loss_scale: f64,
        /// The step that was skipped, counted from 1.
        step: u64,
    },
}
