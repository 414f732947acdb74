use game::{Action, Game};
use inference::{Batch, Error, Evaluator, Predictions};

/// Evaluates positions rather than observations, for the leaf batcher.
///
/// A batch is pushed position by position and evaluated at once.
pub trait LeafEvaluator<G: Game> {
    /// The most positions of one batch.
    fn batch_max(&self) -> usize;

    /// The version that stands behind the answers.
    fn weights_version(&self) -> u64;

    /// True if the same position always has the same answer, so that one answer may serve many.
    fn is_deterministic(&self) -> bool;

    /// Adds a position that is not over, with its legal actions.
    fn push(&mut self, game: &G, position: &G::Position, legal: &[Action]);

    /// Answers everything pushed since the last call, in order.
    ///
    /// # Errors
    /// Those of the evaluator behind it. What was pushed is gone.
    fn evaluate(&mut self) -> Result<&Predictions, Error>;
}

/// Observes positions into a batch for an [`Evaluator`].
pub struct NetworkLeaves<'a> {
    evaluator: &'a mut dyn Evaluator,
    buffers: &'a mut Buffers,
    batch_max: usize,
    weights_version: u64,
}

/// The memory of [`NetworkLeaves`], which outlives the evaluator it is used with.
#[derive(Debug)]
pub(crate) struct Buffers {
    batch: Batch,
    predictions: Predictions,
}

impl Buffers {
    pub(crate) fn new<G: Game>(game: &G) -> Self {
        Self { batch: Batch::new(game.spec().observation), predictions: Predictions::new() }
    }
}

impl Buffers {
    /// The answers to the last batch.
    pub(crate) fn predictions(&self) -> &Predictions {
        &self.predictions
    }
}

impl std::fmt::Debug for NetworkLeaves<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetworkLeaves").field("evaluator", &self.evaluator.attributes()).finish_non_exhaustive()
    }
}

impl<'a> NetworkLeaves<'a> {
    pub(crate) fn new(evaluator: &'a mut dyn Evaluator, buffers: &'a mut Buffers) -> Self {
        buffers.batch.clear();
        let attributes = evaluator.attributes();
        Self { evaluator, buffers, batch_max: attributes.max_batch, weights_version: attributes.weights_version }
    }
}

impl<G: Game> LeafEvaluator<G> for NetworkLeaves<'_> {
    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn weights_version(&self) -> u64 {
        self.weights_version
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn push(&mut self, game: &G, position: &G::Position, legal: &[Action]) {
        self.buffers.batch.push(legal, |planes| game.observe(position, planes));
    }

    fn evaluate(&mut self) -> Result<&Predictions, Error> {
        let Buffers { batch, predictions } = &mut *self.buffers;
        let evaluated = self.evaluator.evaluate(batch, predictions);
        batch.clear();
        evaluated.map(|()| &*predictions)
    }
}
