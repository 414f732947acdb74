//! Targets for MuZero and, with K = 0, for AlphaZero in games scored by rewards. A row has a position under a symmetry,
//! the next K actions, and for each of the K + 1 states the search policy, the value, and the reward of the preceding
//! action (Schrittwieser et al. 2020, appendix G).
//!
//! In an episode scored by rewards, the value is an n-step return ([`n_step_return`]). In an episode scored by outcome,
//! the value is a mean of the outcome and the search value, and the action that ends the game has the outcome as
//! reward. This reward is the only sign of the end for a search with learned dynamics, which can thus find wins.
//!
//! A model with chance also learns from the observation after each action, including the final observation.
//!
//! States after a terminal state are absorbing: random actions lead from state to state, and rewards and values are
//! zero. The consistency loss compares states before the end with observations; from the end on, it has weight 0. After
//! any other end (truncation or resignation), the continuation is unknown: the values of later states, and the rewards
//! of actions in these states, have weight 0.

use experience::{Episode, Segment, Step};
use game::{Action, Error, Game, Outcome, Player, Players, Scoring, Spec};
use rand::{Rng, RngExt};
use training::{Observations, UnrolledBatch};

use super::returns::{End, Horizon, Played, n_step_return};
use super::{check_policy, observe, position_of};

/// Settings of unrolled targets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Unroll {
    /// K, the number of unrolled steps from each position; 0 for an AlphaZero network that predicts returns.
    pub unroll_steps: usize,
    /// n of the n-step return in episodes scored by rewards; 0 sums the rewards of the whole episode.
    pub td_steps: usize,
    /// γ, the discount per step in episodes scored by rewards.
    pub discount: f64,
    /// Share of the search value in the value target in episodes scored by outcome; the outcome has the remaining
    /// share.
    pub search_value_share: f32,
    /// True to include the observation after each action, for a model with chance or with the consistency loss.
    pub next_observations: bool,
}

impl Unroll {
    /// Returns the number of steps after the first in a sampled segment.
    pub(super) fn segment_steps(&self, spec: &Spec) -> usize {
        match (spec.scoring, self.td_steps) {
            (Scoring::Outcome, _) => self.unroll_steps,
            (Scoring::Rewards, 0) => self.unroll_steps.max(spec.max_plies.saturating_sub(1)),
            (Scoring::Rewards, td_steps) => self.unroll_steps + td_steps,
        }
    }
}

/// The value target of a state, with its weight in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ValueTarget {
    value: f32,
    weight: f32,
}

impl ValueTarget {
    /// A missing target, with weight 0.
    const NONE: Self = Self { value: 0.0, weight: 0.0 };

    fn of(value: f32) -> Self {
        Self { value, weight: 1.0 }
    }
}

/// The steps of a segment, replayed by the rules.
#[derive(Debug)]
struct Line {
    played: Vec<Played>,
    end: End,
    /// How the episode ends, if the segment reaches the end; used only in episodes scored by outcome.
    ending: Option<Ending>,
}

/// How an episode scored by outcome ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The game is over by the rules.
    Over,
    /// A player resigned; `to_move` is the player to move after the last action.
    Resigned { to_move: Player },
}

/// A batch under construction, with buffers that are reused for every row.
#[derive(Debug)]
pub(super) struct Rows {
    batch: UnrolledBatch,
    unroll: Unroll,
    planes: Vec<f32>,
    /// Observation planes after the symmetry transformation.
    image: Vec<f32>,
    /// Observation planes after each action of a row, up to the end of the episode: `[≤ K, C · H · W]`.
    next: Vec<f32>,
}

impl Rows {
    /// Creates an empty batch with capacity for `capacity` rows.
    pub(super) fn new<G: Game>(game: &G, unroll: Unroll, capacity: usize) -> Self {
        let spec = game.spec();
        let (steps, states) = (capacity * unroll.unroll_steps, capacity * (unroll.unroll_steps + 1));
        let batch = UnrolledBatch {
            unroll_steps: unroll.unroll_steps,
            observations: Observations::with_capacity(capacity * spec.observation.len()),
            actions: Vec::with_capacity(steps),
            policies: Vec::with_capacity(states * spec.actions),
            policy_weights: Vec::with_capacity(states),
            values: Vec::with_capacity(states),
            value_weights: Vec::with_capacity(states),
            rewards: Vec::with_capacity(steps),
            ..UnrolledBatch::default()
        };
        let planes = vec![0.0; spec.observation.len()];
        Self { batch, unroll, image: planes.clone(), planes, next: Vec::new() }
    }

    /// Adds one row. If the segment violates the rules, adds nothing and returns a description of the violation.
    pub(super) fn push<G: Game>(&mut self, game: &G, segment: &Segment, rng: &mut impl Rng) -> Result<(), String> {
        let spec = game.spec();
        let position = position_of(game, segment)?;
        observe(game, &position, segment, 0, &mut self.planes)?;
        let steps: Vec<Step> = segment.steps().collect();
        let line = self.line(game, position, &steps, segment)?;
        let (values, rewards) = match spec.scoring {
            Scoring::Outcome => self.by_outcome(&line, segment.outcome()),
            Scoring::Rewards => self.by_rewards(&line, segment.ply())?,
        };

        let symmetries = game.symmetries();
        let symmetry = &symmetries[rng.random_range(0..symmetries.len())];
        symmetry.observation(&self.planes, &mut self.image);
        let batch = &mut self.batch;
        batch.observations.push(&self.image);
        if self.unroll.next_observations {
            let mut next = self.next.chunks_exact(self.planes.len());
            for state in 1..=self.unroll.unroll_steps {
                let observation = next.next();
                if let Some(observation) = observation {
                    symmetry.observation(observation, &mut self.image);
                }
                // After the end, the last observation is repeated, to limit the effect on batch statistics.
                batch.next_observations.push(&self.image);
                batch.chance_weights.push(if observation.is_some() { 1.0 } else { 0.0 });
                batch.next_weights.push(if state < steps.len() { 1.0 } else { 0.0 });
            }
        }
        for state in 0..=self.unroll.unroll_steps {
            let policy = steps.get(state).map_or(&[][..], |step| step.kind.policy());
            let row = batch.policies.len();
            batch.policies.resize(row + spec.actions, 0.0);
            for entry in policy {
                batch.policies[row + symmetry.action(entry.action).index()] = entry.probability;
            }
            batch.policy_weights.push(if policy.is_empty() { 0.0 } else { 1.0 });
        }
        for step in 0..self.unroll.unroll_steps {
            let action = match steps.get(step) {
                Some(step) => step.action,
                None => any_action(spec, rng),
            };
            batch.actions.push(symmetry.action(action).0);
        }
        batch.values.extend(values.iter().map(|target| target.value));
        batch.value_weights.extend(values.iter().map(|target| target.weight));
        batch.rewards.extend(rewards);
        Ok(())
    }

    /// Returns the batch; `importance` has one weight per row, or is empty.
    pub(super) fn batch(self, importance: Vec<f32>) -> UnrolledBatch {
        UnrolledBatch { importance, ..self.batch }
    }

    /// Replays the steps of a segment as far as targets depend on the rules. Policies and actions of the unrolled steps
    /// must be legal. In games for two players, all steps are replayed to find the player to move at each step.
    ///
    /// If the batch includes next observations, computes the observation after each unrolled action.
    fn line<G: Game>(
        &mut self,
        game: &G,
        mut position: G::Position,
        steps: &[Step],
        segment: &Segment,
    ) -> Result<Line, String> {
        let spec = game.spec();
        let last = self.unroll.unroll_steps;
        if steps.len() <= last && !segment.reaches_end() {
            return Err(format!("the segment has {} of the {} drawn steps", steps.len(), last + 1));
        }
        let needed = match spec.players {
            Players::One => last,
            Players::Two => usize::MAX,
        };
        let mut played = Vec::with_capacity(steps.len());
        self.next.clear();
        for (index, Step { action, reward, kind, .. }) in steps.iter().enumerate() {
            let player = if index <= needed { game.to_move(&position) } else { Player::First };
            played.push(Played { player, reward: *reward, search_value: kind.value() });
            if index <= last {
                check_policy(game, &position, kind.policy(), segment.ply() + index)?;
            }
            if index < needed {
                let (name, ply, action) = (spec.name.clone(), segment.ply() + index, *action);
                let illegal = |_| Error::IllegalAt { game: name, ply, action }.to_string();
                game.try_play(&mut position, action).map_err(illegal)?;
            }
            if self.unroll.next_observations && index < last {
                let filled = self.next.len();
                self.next.resize(filled + self.planes.len(), 0.0);
                observe(game, &position, segment, index + 1, &mut self.next[filled..])?;
            }
        }
        let (mut end, mut ending) = (End::Cut, None);
        if segment.reaches_end() {
            let to_move = game.to_move(&position);
            let Episode { outcome, truncation_value: value, .. } = segment.episode();
            end = match outcome {
                Outcome::Truncated => End::Truncated { to_move, value },
                _ => End::Terminal,
            };
            ending = Some(match game.outcome(&position) {
                Some(_) => Ending::Over,
                None => Ending::Resigned { to_move },
            });
        }
        Ok(Line { played, end, ending })
    }

    /// Returns the values `[K + 1]` and rewards `[K]` of a row in an episode scored by outcome.
    fn by_outcome(&self, line: &Line, outcome: Outcome) -> (Vec<ValueTarget>, Vec<f32>) {
        let Unroll { unroll_steps, search_value_share: share, .. } = self.unroll;
        let Line { played, ending, .. } = line;
        let value = |state: usize| match (played.get(state), ending) {
            (Some(step), _) => {
                let outcome = outcome.value_for(step.player);
                let mixed = |search_value: f32| (1.0 - share) * outcome + share * search_value.clamp(-1.0, 1.0);
                ValueTarget::of(step.search_value.map_or(outcome, mixed))
            }
            (None, Some(Ending::Resigned { to_move })) if state == played.len() => {
                ValueTarget::of(outcome.value_for(*to_move))
            }
            (None, Some(Ending::Resigned { .. })) => ValueTarget::NONE,
            (None, _) => ValueTarget::of(0.0),
        };
        let reward = |step: usize| match (played.get(step), ending) {
            (Some(last), Some(Ending::Over)) if step + 1 == played.len() => outcome.value_for(last.player),
            _ => 0.0,
        };
        ((0..=unroll_steps).map(value).collect(), (0..unroll_steps).map(reward).collect())
    }

    /// Returns the values `[K + 1]` and rewards `[K]` of a row in an episode scored by rewards.
    fn by_rewards(&self, line: &Line, ply: usize) -> Result<(Vec<ValueTarget>, Vec<f32>), String> {
        let Unroll { unroll_steps, td_steps, discount, .. } = self.unroll;
        let Line { played, end, .. } = line;
        let horizon = Horizon { td_steps, discount };
        let value = |state: usize| {
            if state >= played.len() {
                let is_truncated = matches!(end, End::Truncated { .. });
                return Ok(if is_truncated { ValueTarget::NONE } else { ValueTarget::of(0.0) });
            }
            match n_step_return(played, *end, state, horizon).map(|value| value as f32) {
                Some(value) if !value.is_finite() => Err(format!("the return at ply {} is {value}", ply + state)),
                found => Ok(found.map_or(ValueTarget::NONE, ValueTarget::of)),
            }
        };
        let values = (0..=unroll_steps).map(value).collect::<Result<_, _>>()?;
        let reward = |step: usize| played.get(step).map_or(0.0, |step| step.reward);
        Ok((values, (0..unroll_steps).map(reward).collect()))
    }
}

/// Returns a uniformly random action, legal or not.
fn any_action(spec: &Spec, rng: &mut impl Rng) -> Action {
    Action(u16::try_from(rng.random_range(0..spec.actions)).expect("actions are 16 bits"))
}

#[cfg(test)]
mod tests;
