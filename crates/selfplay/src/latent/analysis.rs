use game::Game;
use inference::{Error, LatentModel, Slot};
use rand::Rng;
use search::{Exploration, Tree};

use crate::analysis::{Analysis, AnalysisSettings, analysis_of};
use crate::latent::batcher::LatentBatcher;
use crate::latent::search_settings;
use crate::round::Round;
use crate::tree_search::{TreeSearch, TreeSet};

/// The searches of one call of [`analyse`].
struct Searches(Vec<Analysed>);

/// A tree and the index of the searched position.
struct Analysed {
    search: TreeSearch<Slot>,
    /// The index of the position; `None` if the tree is free.
    index: Option<usize>,
}

impl TreeSet<Slot> for Searches {
    fn search(&mut self, owner: usize) -> &mut TreeSearch<Slot> {
        &mut self.0[owner].search
    }
}

/// Searches every position in a learned model without noise, and returns the analyses in the same order.
///
/// This is the counterpart of [`crate::analyse`] for learned models. The solver is off and values are normalised,
/// regardless of `settings.search`. The state pool of the model is overwritten.
///
/// # Errors
/// The model fails.
///
/// # Panics
/// If the game is over at a position: there is no action to choose.
pub fn analyse<G: Game>(
    game: &G,
    positions: &[G::Position],
    settings: &AnalysisSettings,
    model: &mut dyn LatentModel,
    rng: &mut impl Rng,
) -> Result<Vec<Analysis>, Error> {
    for position in positions {
        assert!(game.outcome(position).is_none(), "the game is over at the position, so there is nothing to analyse");
    }
    let leaves = settings.leaves_per_tree.max(1);
    let trees = (settings.batch / leaves).clamp(1, positions.len().max(1));
    let search = search_settings(&settings.search);
    let analysed = |tree| Analysed { search: TreeSearch::new(&search, tree), index: None };
    let mut searches = Searches((0..trees).map(analysed).collect());
    let mut batcher = LatentBatcher::new(game.spec(), trees, settings.simulations, settings.discount);
    let mut analyses: Vec<Option<Analysis>> = vec![None; positions.len()];
    let mut waiting = 0..positions.len();
    while analyses.iter().any(Option::is_none) {
        batcher.begin(model)?;
        for Analysed { search, index } in &mut searches.0 {
            while let Some(current) = index.or_else(|| waiting.next()) {
                *index = Some(current);
                let begin = |tree: &mut Tree<Slot>| tree.begin(settings.simulations, Exploration::Greedy, rng);
                if !batcher.gather(&(game, &positions[current]), search, leaves, begin).is_finished {
                    break;
                }
                analyses[current] = Some(analysis_of(&search.tree, settings.simulations));
                *index = None;
                search.restart();
            }
        }
        batcher.resolve(model, &mut searches, &mut Round::default())?;
    }
    Ok(analyses.into_iter().flatten().collect())
}
