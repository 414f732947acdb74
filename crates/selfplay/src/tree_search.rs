//! A tree with the state of the current search, for the leaf batcher.
//!
//! Episodes, analyses, reanalysis and parallel searches use these trees. They differ in where batches are evaluated and
//! in the use of finished searches.

use game::{Action, Game, Outcome, Player, Players, Scoring, Spec};
use search::{Expansion, Settings as SearchSettings, Solver, Tree, ValueRange};

/// One search of a position, in a tree with states `S`.
pub(crate) struct TreeSearch<S> {
    pub(crate) tree: Tree<S>,
    /// The number of this search in a [`TreeSet`].
    pub(crate) owner: usize,
    pub(crate) state: State,
    /// The allowed actions at the next evaluated root; `None` for all legal actions.
    pub(crate) root_actions: Option<Vec<Action>>,
}

/// A set of numbered searches that share a batcher.
pub(crate) trait TreeSet<S> {
    /// Returns the search with the number `owner`.
    fn search(&mut self, owner: usize) -> &mut TreeSearch<S>;
}

/// Searches numbered from 0.
pub(crate) struct Trees<S>(pub(crate) Vec<TreeSearch<S>>);

impl<S> Trees<S> {
    pub(crate) fn new(settings: &SearchSettings, count: usize) -> Self {
        Self((0..count).map(|owner| TreeSearch::new(settings, owner)).collect())
    }

    pub(crate) fn restart(&mut self) {
        self.0.iter_mut().for_each(TreeSearch::restart);
    }
}

impl<S> TreeSet<S> for Trees<S> {
    fn search(&mut self, owner: usize) -> &mut TreeSearch<S> {
        &mut self.0[owner]
    }
}

/// The progress of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The tree has no root for the position of this search.
    Unrooted,
    /// The root waits for an evaluation.
    AwaitingRoot,
    /// The tree has the root, but the search has not started.
    Rooted,
    Searching,
}

impl<S> TreeSearch<S> {
    pub(crate) fn new(settings: &SearchSettings, owner: usize) -> Self {
        Self { tree: Tree::new(settings.clone()), owner, state: State::Unrooted, root_actions: None }
    }

    /// Makes the next search start from a new root, even if the tree has a root.
    pub(crate) fn restart(&mut self) {
        self.state = State::Unrooted;
    }

    /// Makes the next search start from the current root of the tree, or from a new root if the tree has no root.
    pub(crate) fn resume(&mut self) {
        self.state = if self.tree.is_ready() { State::Rooted } else { State::Unrooted };
    }

    /// Starts the search with `begin` once the tree has a root. Returns true if the search has started.
    pub(crate) fn start(&mut self, begin: impl FnOnce(&mut Tree<S>)) -> bool {
        if self.state == State::Rooted {
            begin(&mut self.tree);
            self.state = State::Searching;
        }
        self.state == State::Searching
    }

    /// Replaces the tree with a new root, restricted to the allowed actions if set.
    pub(crate) fn root(&mut self, state: S, expansion: Expansion<'_>) {
        match (&self.root_actions, expansion) {
            (Some(allowed), Expansion::Evaluated { actions, priors, value }) => {
                let (actions, priors) = restricted(actions, priors, allowed);
                self.tree.reset(state, Expansion::Evaluated { actions: &actions, priors: &priors, value });
            }
            _ => self.tree.reset(state, expansion),
        }
        self.state = State::Rooted;
    }
}

/// Returns the elements of `actions` contained in `allowed`, with the priors renormalised to sum to 1.
fn restricted(actions: &[Action], priors: &[f32], allowed: &[Action]) -> (Vec<Action>, Vec<f32>) {
    let kept = actions.iter().zip(priors).filter(|(action, _)| allowed.contains(action));
    let (actions, mut priors): (Vec<Action>, Vec<f32>) = kept.unzip();
    let (total, count) = (priors.iter().sum::<f32>(), priors.len() as f32);
    priors.iter_mut().for_each(|prior| *prior = if total > 0.0 { *prior / total } else { 1.0 / count });
    (actions, priors)
}

/// A set with a single search.
impl<S> TreeSet<S> for TreeSearch<S> {
    fn search(&mut self, _owner: usize) -> &mut Self {
        self
    }
}

/// Returns the settings `search` adapted to a game: for games scored by rewards, values are normalised and the solver
/// is off.
pub(crate) fn settings_by_rules(spec: &Spec, search: &SearchSettings) -> SearchSettings {
    match spec.scoring {
        Scoring::Outcome => search.clone(),
        Scoring::Rewards => SearchSettings { solver: Solver::Off, values: ValueRange::Normalised, ..search.clone() },
    }
}

/// Returns all actions of a game, in ascending order.
pub(crate) fn every_action(spec: &Spec) -> impl Iterator<Item = Action> + use<> {
    (0..spec.actions).map(|action| Action(action.try_into().expect("actions are 16-bit")))
}

/// The transition after an action, for a search tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Reward of the action for the player who moved.
    pub reward: f32,
    /// Factor that converts a value after the action to the view of the player who moved: 1 or −1, without γ.
    pub discount: f32,
    /// Continuation of the episode after the action.
    pub next: Next,
}

/// Continuation of an episode after an action.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// The episode continues with another action.
    Action,
    /// The game is over.
    Terminal {
        /// Result for the opponent of the player who moved; in single-player games, for the player.
        value: f32,
    },
    /// A step limit truncated the episode. The position has the network value, since further rewards are cut off.
    Truncated,
}

impl Step {
    /// Plays the legal action `action` at `position`.
    pub fn play<G: Game>(game: &G, position: &mut G::Position, action: Action) -> Self {
        Self::by(game, position, |position| game.play(position, action))
    }

    /// Plays the legal action `action` at `position` with the chance outcome `outcome`, one of the
    /// [`chances`](Game::chances) of the action.
    pub fn play_chance<G: Game>(game: &G, position: &mut G::Position, action: Action, outcome: u16) -> Self {
        Self::by(game, position, |position| game.play_chance(position, action, outcome))
    }

    /// Applies `play` to the position and returns the step. `play` returns the reward.
    fn by<G: Game>(game: &G, position: &mut G::Position, play: impl FnOnce(&mut G::Position) -> f32) -> Self {
        let mover = game.to_move(position);
        let reward = play(position);
        if let Some(outcome) = game.outcome(position) {
            // No player is to move after the end of a game. The result is from the view of the mover's opponent,
            // so that the solver treats the players as alternating.
            let (judge, discount) = match game.spec().players {
                Players::One => (mover, 1.0),
                Players::Two => (mover.opponent(), -1.0),
            };
            let next = match outcome {
                Outcome::Truncated => Next::Truncated,
                _ => Next::Terminal { value: outcome.value_for(judge) },
            };
            return Self { reward, discount, next };
        }
        Self { reward, discount: discount(mover, game.to_move(position)), next: Next::Action }
    }
}

/// Returns the discount without γ: −1 if the other player moves next, because the value changes sign, otherwise 1.
fn discount(mover: Player, next: Player) -> f32 {
    if mover == next { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use game::Game as _;
    use games::TicTacToe;

    use super::*;

    #[test]
    fn nothing_is_proven_in_games_scored_by_rewards() {
        let outcome = TicTacToe::new().spec().clone();
        let rewards = Spec { scoring: Scoring::Rewards, ..outcome.clone() };
        let search = SearchSettings { solver: Solver::On, values: ValueRange::Board, ..SearchSettings::default() };
        let of = |spec| {
            let SearchSettings { solver, values, .. } = settings_by_rules(spec, &search);
            (solver, values)
        };
        assert_eq!(of(&rewards), (Solver::Off, ValueRange::Normalised));
        assert_eq!(of(&outcome), (Solver::On, ValueRange::Board));
    }

    #[test]
    fn priors_of_the_allowed_actions_sum_to_one_even_if_all_are_zero() {
        let actions = [Action(1), Action(4), Action(6)];
        let of = |priors, allowed: &[u16]| {
            restricted(&actions, priors, &allowed.iter().copied().map(Action).collect::<Vec<_>>())
        };
        assert_eq!(of(&[0.5, 0.25, 0.25], &[1, 6]), (vec![Action(1), Action(6)], vec![2.0 / 3.0, 1.0 / 3.0]));
        assert_eq!(of(&[1.0, 0.0, 0.0], &[4, 6]), (vec![Action(4), Action(6)], vec![0.5, 0.5]));
    }
}
