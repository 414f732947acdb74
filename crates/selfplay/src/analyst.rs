//! Incremental search of one position.

use game::Game;
use inference::{Error, Evaluator};
use rand::Rng;
use search::{Exploration, Settings as SearchSettings, Tree};

use crate::analysis::{Analysis, searched};
use crate::leaf_batcher::{BatchContext, Buffers, LeafBatcher, Limits, NetworkLeaves};
use crate::tree_search::{TreeSearch, settings_by_rules, settings_of_any_length};

/// An incremental search of one position: each call continues the same tree. The search always uses pUCT, since
/// sequential halving requires a fixed budget. Rewards are not discounted, so use it for games scored by outcome.
pub struct Analyst<G: Game> {
    game: G,
    position: G::Position,
    search: TreeSearch<G::Position>,
    batcher: LeafBatcher<G>,
    buffers: Buffers,
    leaves_per_batch: usize,
}

impl<G: Game> std::fmt::Debug for Analyst<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Analyst").field("position", &self.position).finish_non_exhaustive()
    }
}

impl<G: Game> Analyst<G> {
    /// Creates an analyst of `position` without simulations. Up to `leaves_per_batch` leaves are evaluated together;
    /// with 1 the search is exactly sequential.
    ///
    /// # Panics
    /// If the game is over at the position: there is no action to choose.
    pub fn new(game: G, position: G::Position, search: &SearchSettings, leaves_per_batch: usize) -> Self {
        assert!(game.outcome(&position).is_none(), "the game is over at the position, so there is nothing to analyse");
        let search = settings_by_rules(game.spec(), &settings_of_any_length(search));
        Self {
            search: TreeSearch::new(&search, 0),
            batcher: LeafBatcher::new(&game),
            buffers: Buffers::new(&game),
            leaves_per_batch: leaves_per_batch.max(1),
            game,
            position,
        }
    }

    /// Searches until the tree has `simulations` simulations in total, or the position is proven.
    ///
    /// # Errors
    /// The evaluator fails. The completed simulations are kept.
    pub fn search_to(
        &mut self,
        simulations: u32,
        evaluator: &mut dyn Evaluator,
        rng: &mut impl Rng,
    ) -> Result<(), Error> {
        let Self { game, position, search, batcher, buffers, leaves_per_batch } = self;
        let mut leaves = NetworkLeaves::new(evaluator, buffers);
        let context = BatchContext::new(game, 1.0, &leaves);
        let limits = Limits { leaves: *leaves_per_batch, completed: usize::MAX };
        search.resume();
        loop {
            let begin = |tree: &mut Tree<G::Position>| tree.begin(simulations, Exploration::Greedy, rng);
            let gathered = batcher.gather(&context, search, position, limits, begin);
            if gathered.is_finished {
                return Ok(());
            }
            assert!(gathered.goes_on(), "an unfinished search waits for a batch");
            batcher.resolve(&context, &mut leaves, search)?;
        }
    }

    /// Returns the number of completed simulations.
    #[must_use]
    pub fn simulations(&self) -> u32 {
        if self.search.tree.is_ready() { self.search.tree.root().simulations() } else { 0 }
    }

    /// Returns the analysis so far. `None` before the first search.
    #[must_use]
    pub fn analysis(&self) -> Option<Analysis> {
        self.search.tree.is_ready().then(|| searched(&self.search.tree))
    }
}

#[cfg(test)]
mod tests {
    use evaluator_doubles::{Fault, Faulty};
    use game::{Action, Game};
    use games::connect_four::ConnectFour;
    use inference::Hashing;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use search::{EarlyStop, Proven, SearchAlgorithm, Settings as SearchSettings};

    use super::Analyst;
    use crate::{AnalysisSettings, analyse};

    const SEED: u64 = 3;

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(SEED)
    }

    fn analyst(moves: &[u16]) -> Analyst<ConnectFour> {
        let game = ConnectFour::new();
        let position = game.replay(&moves.iter().copied().map(Action).collect::<Vec<_>>()).unwrap();
        Analyst::new(game, position, &SearchSettings::default(), 1)
    }

    fn hashing() -> Hashing {
        Hashing::new(ConnectFour::new().spec().observation, SEED)
    }

    #[test]
    fn a_search_in_parts_is_the_search_in_one_piece() {
        let mut analyst = analyst(&[3, 3]);
        for simulations in [1, 7, 8, 50, 200] {
            analyst.search_to(simulations, &mut hashing(), &mut rng()).unwrap();
            assert_eq!(analyst.simulations(), simulations);
        }
        let game = ConnectFour::new();
        let position = game.replay(&[Action(3), Action(3)]).unwrap();
        let search = SearchSettings {
            algorithm: SearchAlgorithm::Puct,
            early_stop: EarlyStop::Never,
            ..SearchSettings::default()
        };
        let settings = AnalysisSettings { simulations: 200, search, leaves_per_tree: 1, batch: 1, discount: 1.0 };
        let whole = analyse(&game, &[position], &settings, &mut hashing(), &mut rng()).unwrap();
        assert_eq!(analyst.analysis().as_ref(), whole.first());
    }

    #[test]
    fn a_position_that_is_proven_is_searched_no_further() {
        // The first player has three stones in the first column and is to move.
        let mut analyst = analyst(&[0, 1, 0, 1, 0, 1]);
        analyst.search_to(100_000, &mut hashing(), &mut rng()).unwrap();
        assert!(analyst.simulations() < 1000, "{} simulations", analyst.simulations());
        let analysis = analyst.analysis().unwrap();
        assert_eq!((analysis.best, analysis.proven), (Action(0), Proven::Win));
    }

    #[test]
    fn a_failing_evaluator_loses_no_completed_simulation() {
        let mut faulty = Faulty::new(ConnectFour::new().spec().observation, Fault::Backend, 20);
        let mut analyst = analyst(&[]);
        assert!(analyst.analysis().is_none());
        assert!(analyst.search_to(100, &mut faulty, &mut rng()).is_err());
        let before = analyst.simulations();
        assert!(before > 10, "{before} simulations");
        analyst.search_to(before + 5, &mut hashing(), &mut rng()).unwrap();
        assert_eq!(analyst.simulations(), before + 5);
    }
}
