//! Defines [`Driver`], the common interface of searches by the rules and of searches in a learned model.

use game::Game;
use inference::Error;
use search::Tree;

use crate::leaf_batcher::{BatchContext, Gathered, LeafBatcher, LeafEvaluator, Limits};
use crate::round::Round;
use crate::tree_search::{TreeSearch, TreeSet};

/// Advances the trees of many searches in rounds. In each round, all searches share the batches.
pub(crate) trait Driver<G: Game> {
    /// The state of a tree node.
    type State;

    /// Returns true if the batch has no capacity for the leaf of any search.
    fn is_full(&self) -> bool;

    /// Advances a search of `root` until a limit is reached, no leaf can be selected, the batch is full or the search
    /// is finished. `begin` starts the search once the tree has a root. The game must not be over at `root`.
    fn gather(
        &mut self,
        root: &SearchRoot<G>,
        search: &mut TreeSearch<Self::State>,
        limits: Limits,
        begin: impl FnOnce(&mut Tree<Self::State>),
    ) -> Gathered;

    /// Requests the value of the last position of a truncated episode. Returns false if the batch is full.
    fn gather_last(&mut self, owner: usize, last: &SearchRoot<G>) -> bool;

    /// Evaluates the gathered leaves, applies the predictions to the trees and adds the counters to `round`.
    ///
    /// # Errors
    /// The evaluator or model fails. All unanswered leaves are cancelled, so nothing is in flight.
    fn resolve(&mut self, trees: &mut impl TreeSet<Self::State>, round: &mut Round) -> Result<(), Error>;

    /// Returns pairs of the owner and the value of the last position, one for each truncated episode. The caller
    /// removes the pairs.
    fn last_values(&mut self) -> &mut Vec<(usize, f32)>;
}

/// The root of a search.
pub(crate) enum SearchRoot<G: Game> {
    Position(G::Position),
    /// A stored observation `[C, H, W]`, with every action legal. Only a learned model can search an observation.
    Observation(Vec<f32>),
}

/// Search by the rules of a game.
pub(crate) struct ByRules<'a, G: Game> {
    pub(crate) context: BatchContext<'a, G>,
    pub(crate) batcher: &'a mut LeafBatcher<G>,
    pub(crate) leaves: &'a mut dyn LeafEvaluator<G>,
}

impl<G: Game> Driver<G> for ByRules<'_, G> {
    type State = G::Position;

    fn is_full(&self) -> bool {
        self.batcher.batch() >= self.context.leaves.batch_max
    }

    fn gather(
        &mut self,
        root: &SearchRoot<G>,
        search: &mut TreeSearch<G::Position>,
        limits: Limits,
        begin: impl FnOnce(&mut Tree<G::Position>),
    ) -> Gathered {
        self.batcher.gather(&self.context, search, position(root), limits, begin)
    }

    fn gather_last(&mut self, owner: usize, last: &SearchRoot<G>) -> bool {
        self.batcher.gather_last(&self.context, owner, position(last))
    }

    fn resolve(&mut self, trees: &mut impl TreeSet<G::Position>, round: &mut Round) -> Result<(), Error> {
        let Self { context, batcher, leaves } = self;
        round.batch = batcher.batch();
        round.cache_lookups += std::mem::take(&mut batcher.cache_lookups);
        round.cache_hits += std::mem::take(&mut batcher.cache_hits);
        let resolved = batcher.resolve(context, &mut **leaves, trees);
        round.observing += std::mem::take(&mut batcher.observing);
        round.simulations += resolved?;
        round.evaluated += round.batch;
        round.batches += usize::from(round.batch > 0);
        Ok(())
    }

    fn last_values(&mut self) -> &mut Vec<(usize, f32)> {
        &mut self.batcher.last_values
    }
}

fn position<G: Game>(root: &SearchRoot<G>) -> &G::Position {
    match root {
        SearchRoot::Position(position) => position,
        SearchRoot::Observation(_) => unreachable!("a search by the rules starts from a position"),
    }
}

#[cfg(test)]
mod tests {
    use games::TicTacToe;
    use inference::Hashing;

    use super::*;
    use crate::leaf_batcher::{Buffers, NetworkLeaves};
    use crate::tree_search::Trees;

    #[test]
    fn a_round_that_evaluates_nothing_has_no_batch() {
        let game = TicTacToe::new();
        let (mut buffers, mut hashing) = (Buffers::new(&game), Hashing::new(game.spec().observation, 1));
        let mut leaves = NetworkLeaves::new(&mut hashing, &mut buffers);
        let context = BatchContext::new(&game, 1.0, &leaves);
        let mut driver = ByRules { context, batcher: &mut LeafBatcher::new(&game), leaves: &mut leaves };
        let mut round = Round::default();
        driver.resolve(&mut Trees(Vec::new()), &mut round).unwrap();
        assert_eq!(round, Round::default());
    }
}
