//! The validation positions: the latest samples of held-out trajectories, without repeated positions.

use std::collections::VecDeque;

use game::{Action, Game, Outcome};
use rand_chacha::ChaCha8Rng;
use targets::{Built, PolicyTemperature, Rejected, Targets, Unroll};
use training::{Examples, Observations, TrainingBatch, UnrolledBatch};

use crate::held_out::Drawn;
use crate::priorities::Item;

/// Maximum total memory for the observations of all positions, in bytes.
const BYTES_MAX: usize = 256 << 20;

/// A validation position with training targets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Item of the sample, for sending priorities.
    pub(crate) item: Item,
    /// Observation, `[C, H, W]`.
    pub(crate) observation: Observations,
    /// Actions that the network predicts a prior for: the legal actions, or all actions for a model that does not know
    /// the rules.
    pub(crate) actions: Vec<Action>,
    /// Search policy over `actions`.
    pub(crate) policy: Vec<f32>,
    /// Weight of the policy target; 0 without a policy target.
    pub(crate) policy_weight: f32,
    /// Value target of the position.
    pub(crate) value: ValueTarget,
    /// Episode score for the player to move: 1 for a win, ½ for a draw, 0 for a loss. `None` in games scored by
    /// rewards, or if the episode ended without an outcome.
    pub(crate) score: Option<f32>,
    /// True until the position is evaluated for the first time.
    pub(crate) is_new: bool,
}

/// The value target of a position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ValueTarget {
    /// Probabilities of win, draw and loss, for the player to move.
    Wdl([f32; Outcome::RESULTS]),
    /// A return with a weight.
    Return {
        /// Return for the player to move, before the invertible transform.
        value: f32,
        /// Weight of the return; 0 without a value target.
        weight: f32,
    },
}

impl ValueTarget {
    /// Returns the target as a scalar (win minus loss, or the return), and the weight of the target.
    pub(crate) fn scalar(&self) -> (f32, f32) {
        match *self {
            Self::Wdl([win, _, loss]) => (win - loss, 1.0),
            Self::Return { value, weight } => (value, weight),
        }
    }
}

/// The latest validation positions, oldest first.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) rows: VecDeque<Row>,
    positions_max: usize,
}

impl Buffer {
    /// Creates a buffer for `positions_max` positions. It holds fewer if the observations exceed the memory limit.
    pub(crate) fn new(positions_max: usize) -> Self {
        Self { rows: VecDeque::new(), positions_max }
    }

    /// Adds a position. It replaces an earlier sample of the same position, or the oldest position if the buffer is
    /// full.
    pub(crate) fn add(&mut self, row: Row) {
        let same = |other: &Row| (other.item.trajectory, other.item.ply) == (row.item.trajectory, row.item.ply);
        if let Some(at) = self.rows.iter().position(same) {
            self.rows.remove(at);
        }
        let bytes = match &row.observation {
            Observations::Bytes(bytes) => bytes.len(),
            Observations::Floats(floats) => size_of_val(floats.as_slice()),
        };
        let most = self.positions_max.min(BYTES_MAX / bytes.max(1)).max(1);
        self.rows.push_back(row);
        while self.rows.len() > most {
            self.rows.pop_front();
        }
    }
}

/// Converts samples to rows, each under a random symmetry. Also returns the trajectories that break the rules.
pub(crate) fn rows<G: Game>(
    game: &G,
    targets: Targets,
    policy_temperature: PolicyTemperature,
    drawn: &[Drawn],
    rng: &mut ChaCha8Rng,
) -> (Vec<Row>, Vec<Rejected>) {
    let samples: Vec<_> = drawn.iter().map(|(sample, _)| sample.clone()).collect();
    let realised = of_outcomes(targets).examples(game, &samples, &[], &mut rng.clone());
    let Built { mut examples, rows, rejected } = targets.examples(game, &samples, &[], rng);
    debug_assert_eq!(rows, realised.rows, "the share of the search in a target breaks no rule");
    policy_temperature.apply(&mut examples);
    let values = game.spec().observation.len();
    let row = |(row, &sample): (usize, &usize)| {
        let (sample, server) = &drawn[sample];
        let observation = observation(&examples, row, values);
        let score = score(game, &realised.examples, row);
        let item = Item::of(sample, server);
        match &examples {
            Examples::Positions(batch) => of_position(batch, row, item, observation, score),
            Examples::Unrolled(batch) => of_root(batch, row, item, observation, score),
        }
    };
    (rows.iter().enumerate().map(row).collect(), rejected)
}

/// Returns `targets` with value targets from game outcomes only.
fn of_outcomes(targets: Targets) -> Targets {
    match targets {
        Targets::Positions { .. } => Targets::Positions { search_value_share: 0.0 },
        Targets::Unrolled(unroll) => Targets::Unrolled(Unroll { search_value_share: 0.0, ..unroll }),
    }
}

/// Returns the observation of a row, which has `values` values.
fn observation(examples: &Examples, row: usize, values: usize) -> Observations {
    let observations = match examples {
        Examples::Positions(batch) => &batch.observations,
        Examples::Unrolled(batch) => &batch.observations,
    };
    let range = row * values..(row + 1) * values;
    match observations {
        Observations::Bytes(bytes) => Observations::Bytes(bytes[range].to_vec()),
        Observations::Floats(floats) => Observations::Floats(floats[range].to_vec()),
    }
}

/// Returns the final score of the episode from a row of outcome targets.
fn score<G: Game>(game: &G, examples: &Examples, row: usize) -> Option<f32> {
    if game.spec().scoring != game::Scoring::Outcome {
        return None;
    }
    match examples {
        Examples::Positions(batch) => {
            let wdl = &batch.wdl[row * Outcome::RESULTS..][..Outcome::RESULTS];
            Some(wdl[0] + wdl[1] / 2.0)
        }
        Examples::Unrolled(batch) => {
            let at = row * (batch.unroll_steps + 1);
            (batch.value_weights[at] > 0.0).then(|| (1.0 + batch.values[at]) / 2.0)
        }
    }
}

fn of_position(batch: &TrainingBatch, row: usize, item: Item, observation: Observations, score: Option<f32>) -> Row {
    let actions = batch.policies.len() / batch.policy_weights.len();
    let numbers = row * actions..(row + 1) * actions;
    let legal = batch.legal[numbers.clone()].iter().zip(&batch.policies[numbers]).enumerate();
    let legal = legal.filter(|(_, (legal, _))| **legal > 0);
    let (actions, policy) = legal.map(|(action, (_, &share))| (of_index(action), share)).unzip();
    let wdl = std::array::from_fn(|result| batch.wdl[row * Outcome::RESULTS + result]);
    let policy_weight = batch.policy_weights[row];
    Row { item, observation, actions, policy, policy_weight, value: ValueTarget::Wdl(wdl), score, is_new: true }
}

/// Returns the position of an unrolled row, without the unrolled steps.
fn of_root(batch: &UnrolledBatch, row: usize, item: Item, observation: Observations, score: Option<f32>) -> Row {
    let actions = batch.policies.len() / batch.policy_weights.len();
    let at = row * (batch.unroll_steps + 1);
    Row {
        item,
        observation,
        actions: (0..actions).map(of_index).collect(),
        policy: batch.policies[at * actions..][..actions].to_vec(),
        policy_weight: batch.policy_weights[at],
        value: ValueTarget::Return { value: batch.values[at], weight: batch.value_weights[at] },
        score,
        is_new: true,
    }
}

fn of_index(action: usize) -> Action {
    Action(u16::try_from(action).expect("a game has at most 65 536 actions"))
}
