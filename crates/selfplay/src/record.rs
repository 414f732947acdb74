//! The record of one episode: steps, random draws, and random choices of moves and searches.
//!
//! [`Episodes`](crate::Episodes), with search by the rules, and [`LatentEpisodes`](crate::LatentEpisodes), with search
//! in a learned model, use the same record.

use experience::{ActionProbability, POLICY_ENTRIES_MAX, Step, StepKind, WeightsVersion, bound_policies};
use game::{Action, Game, Outcome, Player, Players, mix};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use search::{Exploration, Proven, SearchAlgorithm, Tree};

use crate::episode::{Ending, FinishedEpisode};
use crate::forks::{Forks, surprise};
use crate::resignation::Watch;
use crate::round::Round;
use crate::seeds::training_seed;
use crate::settings::{GumbelMoves, Openings, Settings};

/// The smallest recorded probability of a search policy. Smaller entries are softmax noise and would waste space.
const PROBABILITY_MIN: f32 = 1e-5;
/// The temperature below which the best move is played without sampling, because the sampling weights would underflow.
const TEMPERATURE_MIN: f32 = 0.01;

/// The steps and the random state of an unfinished episode.
#[derive(Debug)]
pub(crate) struct EpisodeRecord {
    slot: usize,
    number: u64,
    seed: u64,
    players: Players,
    rng: ChaCha8Rng,
    /// The kind of search for the next move.
    kind: SearchKind,
    steps: Vec<Step>,
    /// The divergence of the search policy from the prior for each step, in nats; 0 for steps without a full search.
    surprises: Vec<f32>,
    /// The position hash of each step with a full search.
    positions: Vec<u64>,
    /// The number of search policy entries in all steps.
    policy_entries: usize,
    opening: Opening,
    forks: Forks,
    watch: Watch,
}

/// The remaining opening plies, which are played without a search.
#[derive(Debug, Default)]
struct Opening {
    /// The remaining plies of a fork, in reverse order.
    fork: Vec<Action>,
    random_plies: u16,
}

/// The kind of a search, drawn at random for each move (playout cap randomisation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchKind {
    Full,
    Fast,
}

/// The move chosen after a search, with the search result to record.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) action: Action,
    pub(crate) kind: StepKind,
    /// The expected value of the search policy for the player to move.
    pub(crate) value: f32,
}

impl EpisodeRecord {
    /// Creates the record of the first episode of a slot.
    pub(crate) fn new(players: Players, settings: &Settings, seed: u64, slot: usize) -> Self {
        let mut rng = generator(seed, slot, 0);
        let watch = Watch::new(settings.resignation, players, &mut rng);
        Self {
            slot,
            number: 0,
            seed,
            players,
            rng,
            kind: SearchKind::Full,
            steps: Vec::new(),
            surprises: Vec::new(),
            positions: Vec::new(),
            policy_entries: 0,
            opening: Opening::default(),
            forks: Forks::default(),
            watch,
        }
    }

    /// Returns the first position of the episode.
    pub(crate) fn start<G: Game>(&self, game: &G) -> G::Position {
        game.start_from(self.start_seed())
    }

    /// Returns the seed for the rules: a function of the run seed, the slot and the episode number. No evaluation
    /// episode has the same seed.
    pub(crate) fn start_seed(&self) -> u64 {
        training_seed(mix(mix(mix(self.seed) ^ self.slot as u64) ^ self.number))
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn plies(&self) -> usize {
        self.steps.len()
    }

    /// Returns the actions so far.
    pub(crate) fn actions(&self) -> Vec<Action> {
        self.steps.iter().map(|step| step.action).collect()
    }

    pub(crate) fn rng(&mut self) -> &mut ChaCha8Rng {
        &mut self.rng
    }

    /// Plays the opening plies of an episode. `legal` is scratch memory.
    pub(crate) fn open<G: Game>(
        &mut self,
        game: &G,
        position: &mut G::Position,
        settings: &Settings,
        weights_version: u64,
        legal: &mut Vec<Action>,
    ) {
        self.draw_opening(settings);
        loop {
            game.legal_actions(position, legal);
            let mut played = None;
            let action = self.next_of_opening(legal, |action| {
                let mut next = position.clone();
                let reward = game.play(&mut next, action);
                let goes_on = game.outcome(&next).is_none();
                played = goes_on.then_some((next, reward));
                goes_on
            });
            let (Some(action), Some((next, reward))) = (action, played) else { break };
            *position = next;
            self.push(action, reward, StepKind::Opening, weights_version);
        }
    }

    /// Draws the opening of the episode: a fork with one random ply, random plies only, or no opening.
    pub(crate) fn draw_opening(&mut self, settings: &Settings) {
        let fork_probability = settings.openings.fork_probability;
        let is_fork = fork_probability > 0.0 && self.rng.random::<f32>() < fork_probability;
        let fork = if is_fork { self.forks.draw(&mut self.rng) } else { None };
        let fork: Vec<Action> = fork.into_iter().flatten().rev().copied().collect();
        let random_plies = if fork.is_empty() { draw_length(&settings.openings, &mut self.rng) } else { 1 };
        self.opening = Opening { fork, random_plies };
    }

    /// Returns the next action of the opening: a legal action for which `accepts` returns true. `None` if the opening
    /// has ended or no legal action is accepted. Consumes `legal`.
    pub(crate) fn next_of_opening(
        &mut self,
        legal: &mut Vec<Action>,
        mut accepts: impl FnMut(Action) -> bool,
    ) -> Option<Action> {
        if let Some(action) = self.opening.fork.pop() {
            if legal.contains(&action) && accepts(action) {
                return Some(action);
            }
            // A different chance outcome has led to another position.
            self.opening.fork.clear();
        }
        if self.opening.random_plies == 0 {
            return None;
        }
        self.opening.random_plies -= 1;
        draw_action(legal, &mut self.rng, accepts)
    }

    /// Draws the kind of the next search, once for each move. A new draw at each search restart would make full
    /// searches rarer, because long searches are interrupted more often.
    pub(crate) fn draw_kind(&mut self, settings: &Settings) {
        let is_full = self.rng.random::<f32>() < settings.full_search_probability && !self.watch.is_resigned();
        self.kind = if is_full { SearchKind::Full } else { SearchKind::Fast };
    }

    /// Returns the simulation budget and the exploration of the next search.
    pub(crate) fn budget(&self, settings: &Settings) -> (u32, Exploration) {
        match self.kind {
            SearchKind::Full => (settings.full_simulations, Exploration::Explore),
            SearchKind::Fast if self.temperature(settings) < TEMPERATURE_MIN => {
                (settings.fast_simulations, Exploration::Greedy)
            }
            SearchKind::Fast => (settings.fast_simulations, Exploration::Sample),
        }
    }

    /// Chooses the move after a finished search. `policy` is scratch memory.
    pub(crate) fn choose<S>(&mut self, settings: &Settings, tree: &Tree<S>, policy: &mut Vec<f32>) -> Choice {
        tree.search_policy(policy);
        let (root, value) = (tree.root(), tree.root().value_under(policy));
        let kind = match self.kind {
            SearchKind::Full => StepKind::Full { policy: sparse(root.actions(), policy), value },
            SearchKind::Fast => StepKind::Fast { value },
        };
        self.surprises.resize(self.steps.len(), 0.0);
        self.surprises.push(if self.kind == SearchKind::Full { surprise(policy, root.priors()) } else { 0.0 });
        Choice { action: self.choose_action(settings, tree), kind, value }
    }

    fn choose_action<S>(&mut self, settings: &Settings, tree: &Tree<S>) -> Action {
        let temperature = self.temperature(settings);
        let is_gumbel =
            matches!(settings.search.algorithm, SearchAlgorithm::Gumbel { .. }) && self.kind == SearchKind::Full;
        let moves = if is_gumbel { settings.gumbel_moves } else { GumbelMoves::Policy };
        if moves == GumbelMoves::Best || temperature < TEMPERATURE_MIN || tree.root().proven() == Proven::Win {
            tree.best_action()
        } else {
            tree.sample_action(temperature, &mut self.rng)
        }
    }

    /// Returns the temperature of the next move.
    fn temperature(&self, settings: &Settings) -> f32 {
        settings.temperature.at(self.steps.len())
    }

    /// Stores the position hash of the next step, which must be a full step.
    pub(crate) fn keep_position(&mut self, position: u64) {
        self.positions.push(position);
    }

    /// Adds a step. Shortens the recorded policies if the total number of entries exceeds the limit for one episode.
    pub(crate) fn push(&mut self, action: Action, reward: f32, kind: StepKind, weights_version: u64) {
        self.policy_entries += kind.policy().len();
        self.steps.push(Step { action, reward, kind, weights_version: WeightsVersion(weights_version) });
        if self.policy_entries > POLICY_ENTRIES_MAX {
            self.policy_entries = bound_policies(&mut self.steps);
        }
    }

    /// Records the search value of a move by `mover`. Returns the game outcome if a resignation ends the game.
    pub(crate) fn resigned(&mut self, mover: Player, value: f32) -> Option<Outcome> {
        self.watch.observe(mover, value)
    }

    /// Ends the episode, updates the counters of `round` and starts the record of the next episode in the slot. `seed`
    /// and `truncation_value` are as in [`experience::Episode`].
    pub(crate) fn finish(
        &mut self,
        seed: u64,
        settings: &Settings,
        (outcome, ending): (Outcome, Ending),
        truncation_value: f32,
        round: &mut Round,
    ) -> FinishedEpisode {
        round.episodes_finished += 1;
        round.calibration.count(&self.watch, outcome);
        self.surprises.resize(self.steps.len(), 0.0);
        if settings.openings.fork_probability > 0.0 {
            self.forks.keep(&self.steps, &mut self.rng);
        }
        let (steps, positions) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.positions));
        let full = steps.iter().zip(&self.surprises).filter(|(step, _)| matches!(step.kind, StepKind::Full { .. }));
        let surprises = full.map(|(_, &surprise)| surprise).collect();
        let facts = experience::Episode { seed, outcome, truncation_value };
        let (slot, number) = (self.slot, self.number);
        let finished = FinishedEpisode { slot, number, steps, facts, ending, observations: None, positions, surprises };
        self.next_episode(settings);
        finished
    }

    /// Drops the current steps and starts the record of the next episode in the slot.
    pub(crate) fn next_episode(&mut self, settings: &Settings) {
        self.steps.clear();
        self.surprises.clear();
        self.positions.clear();
        self.policy_entries = 0;
        self.number += 1;
        self.rng = generator(self.seed, self.slot, self.number);
        self.watch = Watch::new(settings.resignation, self.players, &mut self.rng);
    }
}

/// Returns the entries of a search policy that are large enough to record, renormalised to sum to 1.
pub(crate) fn sparse(actions: &[Action], policy: &[f32]) -> Vec<ActionProbability> {
    let kept = || actions.iter().zip(policy).filter(|&(_, &share)| share >= PROBABILITY_MIN);
    let sum: f64 = kept().map(|(_, &share)| f64::from(share)).sum();
    let entry = |(&action, &share): (&Action, &f32)| ActionProbability { action, probability: share / sum as f32 };
    kept().map(entry).collect()
}

/// Creates the random number generator of one episode, independent of all other episodes.
fn generator(seed: u64, slot: usize, number: u64) -> ChaCha8Rng {
    /// The offset between the random streams of two slots. A slot plays fewer episodes, so no two episodes have the
    /// same stream.
    const EPISODES_PER_SLOT: u64 = 1 << 40;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((slot as u64).wrapping_mul(EPISODES_PER_SLOT).wrapping_add(number));
    rng
}

/// Draws the number of random plies at the start of an episode.
fn draw_length(openings: &Openings, rng: &mut impl Rng) -> u16 {
    if openings.random_plies_max == 0 || rng.random::<f32>() >= openings.probability {
        return 0;
    }
    rng.random_range(1..=openings.random_plies_max)
}

/// Draws a legal action for which `accepts` returns true. `None` if no legal action is accepted. Consumes `legal`.
fn draw_action(legal: &mut Vec<Action>, rng: &mut impl Rng, mut accepts: impl FnMut(Action) -> bool) -> Option<Action> {
    while !legal.is_empty() {
        let action = legal.swap_remove(rng.random_range(0..legal.len()));
        if accepts(action) {
            return Some(action);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_many_actions_are_shortened_while_an_episode_grows_and_the_next_one_has_all_the_space() {
        let settings = Settings::default();
        let mut record = EpisodeRecord::new(Players::One, &settings, 1, 0);
        let probability = 1.0 / f32::from(u16::MAX);
        let policy: Vec<ActionProbability> =
            (0..u16::MAX).map(|action| ActionProbability { action: Action(action), probability }).collect();
        let entries = |steps: &[Step]| steps.iter().map(|step| step.kind.policy().len()).sum::<usize>();
        for episode in 0..2 {
            for ply in 0..60 {
                record.push(Action(0), 0.0, StepKind::Full { policy: policy.clone(), value: 0.0 }, 1);
                let held = entries(&record.steps);
                assert!(held <= POLICY_ENTRIES_MAX && held == record.policy_entries, "{episode}, {ply}: {held}");
                assert!(ply > 20 || record.steps.iter().all(|step| step.kind.policy().len() == policy.len()), "{ply}");
            }
            let ending = (Outcome::Finished, Ending::Rules);
            let finished = record.finish(1, &settings, ending, 0.0, &mut Round::default());
            assert_eq!(finished.steps.len(), 60);
        }
    }
}
