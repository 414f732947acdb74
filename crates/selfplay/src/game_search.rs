//! Defines [`GameSearch`], with which a game engine searches the successive positions of one game.

use std::ops::ControlFlow::{self, Break};

use game::{Action, Game};
use inference::{Error, Evaluator};
use rand::Rng;
use search::{EarlyStop, SearchAlgorithm, Settings as SearchSettings, Tree, VariationStep};

use crate::analysis::{Analysis, searched};
use crate::leaf_batcher;
use crate::parallel::{Effort, search_together};
use crate::tree_search::{TreeSearch, settings_by_rules};

/// Maximum number of simulations of a search. Visit counts are exact in f32 up to 2²⁴.
const SIMULATIONS_MAX: u32 = 10_000_000;
/// Maximum number of simulations that may complete without an evaluation between two calls of `progress`.
const COMPLETED_MAX: usize = 1024;

/// A search of the current position in a game, with a thread for each of several evaluators. The search stops at a
/// limit or when the caller requests it, and keeps the subtree after each move. It always uses pUCT, since sequential
/// halving requires a fixed budget. Rewards are not discounted, so use it for games scored by outcome.
pub struct GameSearch<G: Game> {
    game: G,
    position: G::Position,
    settings: SearchSettings,
    search: TreeSearch<G::Position>,
    /// The allowed actions at the root of the tree; `None` for all legal actions.
    restriction: Option<Vec<Action>>,
}

impl<G: Game> std::fmt::Debug for GameSearch<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GameSearch").field("position", &self.position).finish_non_exhaustive()
    }
}

/// The limits of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of simulations, including the visits already in the tree; `None` for the maximum of a tree.
    pub simulations: Option<u32>,
    /// Maximum number of leaves in one batch. With 1 leaf and a single evaluator, the search is exactly sequential.
    pub leaves_per_batch: usize,
    /// Tree memory in bytes at which the search stops, checked after every batch.
    pub tree_bytes_max: usize,
    /// Heap memory owned by each position in the tree, in bytes. [`Tree::bytes`] does not include this memory.
    pub position_heap_bytes: usize,
    /// The allowed root actions, including at least one legal action; `None` for all legal actions.
    pub actions: Option<Vec<Action>>,
}

impl Limits {
    /// Limits only the number of simulations.
    #[must_use]
    pub fn of_simulations(simulations: u32, leaves_per_batch: usize) -> Self {
        let (tree_bytes_max, position_heap_bytes) = (usize::MAX, 0);
        let simulations = Some(simulations);
        Self { simulations, leaves_per_batch, tree_bytes_max, position_heap_bytes, actions: None }
    }
}

/// A view of the search results so far.
#[derive(Debug)]
pub struct Findings<'a, S> {
    tree: &'a Tree<S>,
}

impl<S> Findings<'_, S> {
    /// Returns the number of simulations, including visits kept from earlier positions.
    #[must_use]
    pub fn simulations(&self) -> u32 {
        self.tree.root().simulations()
    }

    /// Returns the analysis. In a restricted search, it covers only the allowed actions, and the priors sum to 1.
    #[must_use]
    pub fn analysis(&self) -> Analysis {
        searched(self.tree)
    }

    /// Returns the best play of both players after the action `first`, starting with `first`.
    #[must_use]
    pub fn variation(&self, first: Action) -> Vec<VariationStep> {
        self.tree.variation(first)
    }
}

impl<G: Game> GameSearch<G> {
    /// Creates a search of `position` without simulations.
    #[must_use]
    pub fn new(game: G, position: G::Position, search: &SearchSettings) -> Self {
        // The caller decides when to stop.
        let (algorithm, early_stop) = (SearchAlgorithm::Puct, EarlyStop::Never);
        let settings = settings_by_rules(game.spec(), &SearchSettings { algorithm, early_stop, ..search.clone() });
        Self { search: TreeSearch::new(&settings, 0), game, position, settings, restriction: None }
    }

    /// Returns the rules of the game.
    pub const fn game(&self) -> &G {
        &self.game
    }

    /// Returns the current position.
    pub const fn position(&self) -> &G::Position {
        &self.position
    }

    /// Plays a legal action and keeps the subtree below the action.
    pub fn play(&mut self, action: Action) {
        if self.search.tree.is_ready() {
            self.search.tree.advance(action);
        }
        // The restriction applies only to the root: below the root, all actions were searched.
        self.restriction = None;
        self.game.play(&mut self.position, action);
    }

    /// Replaces the position and drops the tree.
    pub fn replace(&mut self, position: G::Position) {
        self.position = position;
        self.forget();
    }

    /// Drops the tree and the restriction, and keeps the position.
    pub fn forget(&mut self) {
        self.search = TreeSearch::new(&self.settings, 0);
        self.restriction = None;
    }

    /// Continues the search of the position until a limit is reached, the position is proven, or `progress` returns
    /// `Break`. `progress` is called after every batch. A search with a new set of allowed actions starts from an empty
    /// tree.
    ///
    /// # Errors
    /// An evaluator fails. The tree keeps the completed simulations; with several evaluators it is dropped.
    ///
    /// # Panics
    /// If the game is over at the position, no allowed action is legal, or `evaluators` is empty.
    pub fn search(
        &mut self,
        limits: &Limits,
        evaluators: &mut [Box<dyn Evaluator>],
        rng: &mut impl Rng,
        progress: &mut dyn FnMut(&Findings<'_, G::Position>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        assert!(self.game.outcome(&self.position).is_none(), "the game is over, so there is nothing to search");
        if self.restriction != limits.actions {
            self.forget();
            self.restriction.clone_from(&limits.actions);
        }
        let simulations = limits.simulations.map_or(SIMULATIONS_MAX, |simulations| simulations.min(SIMULATIONS_MAX));
        let of_batch = leaf_batcher::Limits { leaves: limits.leaves_per_batch.max(1), completed: COMPLETED_MAX };
        let effort = Effort { simulations, limits: of_batch, discount: 1.0 };
        let mut progress = |tree: &Tree<G::Position>| {
            let bytes = tree.bytes() + tree.node_count() * limits.position_heap_bytes;
            let is_large = bytes >= limits.tree_bytes_max;
            let next = progress(&Findings { tree });
            if is_large { Break(()) } else { next }
        };
        let Self { game, position, search, restriction, .. } = self;
        search.root_actions.clone_from(restriction);
        search.resume();
        let searched = search_together(game, position, search, &effort, evaluators, rng, &mut progress);
        // The batches of other evaluators may still be in flight.
        if searched.is_err() && evaluators.len() > 1 {
            self.forget();
        }
        searched
    }

    /// Returns the search results of the position. `None` before the first search.
    #[must_use]
    pub fn findings(&self) -> Option<Findings<'_, G::Position>> {
        self.search.tree.is_ready().then_some(Findings { tree: &self.search.tree })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow::Continue;

    use evaluator_doubles::{Fault, Faulty};
    use games::{ConnectFour, TicTacToe};
    use inference::Hashing;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;
    use search::Proven;

    use super::*;
    use crate::{AnalysisSettings, analyse};

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(3)
    }

    fn hashing(count: usize) -> Vec<Box<dyn Evaluator>> {
        let shape = ConnectFour::new().spec().observation;
        (0..count).map(|_| Box::new(Hashing::new(shape, 3)) as _).collect()
    }

    fn limits(simulations: u32) -> Limits {
        Limits::of_simulations(simulations, 1)
    }

    fn game_search(moves: &[u16]) -> GameSearch<ConnectFour> {
        let game = ConnectFour::new();
        let position = game.replay(&moves.iter().copied().map(Action).collect::<Vec<_>>()).unwrap();
        GameSearch::new(game, position, &SearchSettings::default())
    }

    /// Searches with one evaluator until finished.
    fn search(search: &mut GameSearch<ConnectFour>, limits: &Limits) {
        search.search(limits, &mut hashing(1), &mut rng(), &mut |_| Continue(())).unwrap();
    }

    fn analysis<G: Game>(search: &GameSearch<G>) -> Analysis {
        search.findings().unwrap().analysis()
    }

    /// Compares with an uninterrupted search of the same position by [`analyse`].
    #[test]
    fn a_search_that_is_broken_off_and_continued_is_the_search_in_one_piece() {
        let game = ConnectFour::new();
        let position = game.replay(&[Action(3), Action(3)]).unwrap();
        let puct = SearchSettings {
            algorithm: SearchAlgorithm::Puct,
            early_stop: EarlyStop::Never,
            ..SearchSettings::default()
        };
        let settings = AnalysisSettings { simulations: 300, search: puct, leaves_per_tree: 1, batch: 1, discount: 1.0 };
        let whole = analyse(&game, &[position], &settings, &mut *hashing(1)[0], &mut rng()).unwrap().remove(0);
        for batches in [1, 7, 1000] {
            let mut parts = game_search(&[3, 3]);
            for _ in 0..300 {
                let mut left = batches;
                let mut progress = |_: &Findings<'_, _>| {
                    left -= 1;
                    if left == 0 { Break(()) } else { Continue(()) }
                };
                parts.search(&limits(300), &mut hashing(1), &mut rng(), &mut progress).unwrap();
            }
            search(&mut parts, &limits(300));
            assert_eq!(analysis(&parts), whole, "{batches} batches at a time");
        }
    }

    #[test]
    fn many_evaluators_make_every_simulation_and_report_how_many_there_are() {
        let mut together = game_search(&[]);
        let mut counts = Vec::new();
        let limits = Limits { leaves_per_batch: 4, ..limits(500) };
        let mut progress = |findings: &Findings<'_, _>| {
            counts.push(findings.simulations());
            Continue(())
        };
        together.search(&limits, &mut hashing(3), &mut rng(), &mut progress).unwrap();
        assert!(counts.is_sorted() && counts.len() > 40 && counts.last() == Some(&500), "{counts:?}");
    }

    #[test]
    fn only_the_allowed_actions_are_searched_and_another_restriction_begins_anew() {
        let mut restricted = game_search(&[3, 3]);
        search(&mut restricted, &limits(50));
        let allowed = Limits { actions: Some(vec![Action(1), Action(6)]), ..limits(100) };
        search(&mut restricted, &allowed);
        let Analysis { actions, visit_counts, priors, .. } = analysis(&restricted);
        assert_eq!((actions, visit_counts.iter().sum::<u32>()), (vec![Action(1), Action(6)], 100));
        assert!((priors.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{priors:?}");
        search(&mut restricted, &limits(100));
        let mut fresh = game_search(&[3, 3]);
        search(&mut fresh, &limits(100));
        assert_eq!(analysis(&restricted), analysis(&fresh));
    }

    #[test]
    fn the_subtree_of_a_move_is_kept_and_counts() {
        for actions in [None, Some(vec![Action(2), Action(4)])] {
            let mut kept = game_search(&[]);
            search(&mut kept, &Limits { actions, ..limits(400) });
            let best = analysis(&kept).best;
            let variation = kept.findings().unwrap().variation(best);
            kept.play(best);
            let findings = kept.findings().unwrap();
            // The first visit of a position is the evaluation.
            assert_eq!(findings.simulations() + 1, variation[0].visits);
            assert_eq!(findings.analysis().actions.len(), 7);
            let mut evaluations = 0;
            let mut progress = |_: &Findings<'_, _>| {
                evaluations += 1;
                Continue(())
            };
            kept.search(&limits(400), &mut hashing(1), &mut rng(), &mut progress).unwrap();
            assert_eq!(analysis(&kept).visit_counts.iter().sum::<u32>(), 400);
            assert!(evaluations + variation[0].visits <= 402, "{evaluations} batches");
        }
    }

    #[test]
    fn a_search_without_a_number_of_simulations_ends_at_the_limit_of_memory() {
        let mut endless = game_search(&[]);
        let limits = Limits { simulations: None, tree_bytes_max: 1 << 20, ..limits(0) };
        search(&mut endless, &limits);
        let bytes = endless.search.tree.bytes();
        assert!((1 << 20..(1 << 20) + 1000).contains(&bytes), "{bytes} bytes");
        let mut of_boxes = game_search(&[]);
        search(&mut of_boxes, &Limits { position_heap_bytes: 1000, ..limits });
        let tree = &of_boxes.search.tree;
        let bytes = tree.bytes() + 1000 * tree.node_count();
        assert!((1 << 20..(1 << 20) + 2000).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn a_search_without_limits_ends_when_the_position_is_proven() {
        let game = TicTacToe::new();
        let mut evaluators: Vec<Box<dyn Evaluator>> = vec![Box::new(Hashing::new(game.spec().observation, 3))];
        let position = game.replay(&[4, 0, 2].map(Action)).unwrap();
        let mut endless = GameSearch::new(game, position, &SearchSettings::default());
        let limits = Limits { simulations: None, ..limits(0) };
        endless.search(&limits, &mut evaluators, &mut rng(), &mut |_| Continue(())).unwrap();
        assert_eq!(analysis(&endless).proven, Proven::Draw);
    }

    #[test]
    fn a_search_whose_evaluator_fails_keeps_the_completed_simulations() {
        let shape = ConnectFour::new().spec().observation;
        let mut faulty: Vec<Box<dyn Evaluator>> = vec![Box::new(Faulty::new(shape, Fault::Backend, 20))];
        let mut broken = game_search(&[]);
        assert!(broken.search(&limits(100), &mut faulty, &mut rng(), &mut |_| Continue(())).is_err());
        let kept = broken.findings().unwrap().simulations();
        assert!((1..100).contains(&kept), "{kept} simulations");
        search(&mut broken, &limits(100));
        let visit_counts = analysis(&broken).visit_counts;
        assert_eq!(visit_counts.iter().sum::<u32>(), 100, "{kept} of {visit_counts:?} are from the first search");
    }
}
