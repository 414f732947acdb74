//! The positions that weights are validated on: the newest samples of held-out trajectories, each position once.

use std::collections::VecDeque;

use game::{Action, Game, Outcome};
use rand_chacha::ChaCha8Rng;
use targets::{Built, Rejected, Smoothing, Targets, Unroll};
use training::{Examples, Observations, TrainingBatch, UnrolledBatch};

use crate::held_out::Drawn;
use crate::priorities::Item;

/// The most memory of the observations of all positions.
const BYTES_MAX: usize = 256 << 20;

/// A position with its targets, which are those of training.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// The item that it was drawn as.
    pub(crate) item: Item,
    /// `[C, H, W]`.
    pub(crate) observation: Observations,
    /// The actions that have a prior: the legal ones, or all for a model without rules.
    pub(crate) actions: Vec<Action>,
    /// The search policy over these actions.
    pub(crate) policy: Vec<f32>,
    /// 0 if there is no policy target.
    pub(crate) policy_weight: f32,
    /// The target of the value.
    pub(crate) value: ValueTarget,
    /// The score of the episode for the player to move: 1 for a win, ½ for a draw, 0 for a loss; `None` in games scored
    /// by rewards, and where the episode has no outcome by the rules.
    pub(crate) score: Option<f32>,
    /// Whether it was not evaluated yet.
    pub(crate) is_new: bool,
}

/// The target of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ValueTarget {
    /// Win, draw and loss of the player to move.
    Wdl([f32; Outcome::RESULTS]),
    /// A return, with its weight.
    Return {
        /// For the player to move, before the transform.
        value: f32,
        /// 0 if there is no target.
        weight: f32,
    },
}

impl ValueTarget {
    /// The target as a number, win − loss or the return, and its weight.
    pub(crate) fn scalar(&self) -> (f32, f32) {
        match *self {
            Self::Wdl([win, _, loss]) => (win - loss, 1.0),
            Self::Return { value, weight } => (value, weight),
        }
    }
}

/// The newest positions, oldest first.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) rows: VecDeque<Row>,
    positions_max: usize,
}

impl Buffer {
    /// A buffer of at most `positions_max` positions, and of fewer if their observations take too much memory.
    pub(crate) fn new(positions_max: usize) -> Self {
        Self { rows: VecDeque::new(), positions_max }
    }

    /// Adds a position. It replaces itself if it was drawn before, else the oldest one if there is no room.
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

/// Makes rows of samples, each under a random symmetry, and returns those that break the rules.
pub(crate) fn rows<G: Game>(
    game: &G,
    targets: Targets,
    smoothing: Smoothing,
    drawn: &[Drawn],
    rng: &mut ChaCha8Rng,
) -> (Vec<Row>, Vec<Rejected>) {
    let samples: Vec<_> = drawn.iter().map(|(sample, _)| sample.clone()).collect();
    let realised = of_outcomes(targets).examples(game, &samples, &[], &mut rng.clone());
    let Built { mut examples, rows, rejected } = targets.examples(game, &samples, &[], rng);
    debug_assert_eq!(rows, realised.rows, "the share of the search in a target breaks no rule");
    smoothing.apply(&mut examples);
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

/// The same targets with values of the outcome alone.
fn of_outcomes(targets: Targets) -> Targets {
    match targets {
        Targets::Positions { .. } => Targets::Positions { search_value_share: 0.0 },
        Targets::Unrolled(unroll) => Targets::Unrolled(Unroll { search_value_share: 0.0, ..unroll }),
    }
}

/// The observation of a row, of `values` numbers.
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

/// The realised score of a row of targets of outcomes.
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

/// The position of an unrolled row, without the steps that follow it.
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
