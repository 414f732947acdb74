//! Targets for AlphaZero: a position under a symmetry, the search policy, and a mean of outcome and search value.

use experience::Segment;
use game::{Action, Game, Outcome, Player};
use rand::{Rng, RngExt};
use training::{Observations, TrainingBatch};

use super::{check_policy, observe, position_of};

/// A batch under construction, with buffers that are reused for every row.
#[derive(Debug)]
pub(super) struct Rows {
    batch: TrainingBatch,
    search_value_share: f32,
    planes: Vec<f32>,
    /// Observation planes after the symmetry transformation.
    image: Vec<f32>,
    legal: Vec<Action>,
}

impl Rows {
    /// Creates an empty batch with capacity for `capacity` rows.
    pub(super) fn new<G: Game>(game: &G, search_value_share: f32, capacity: usize) -> Self {
        let spec = game.spec();
        let batch = TrainingBatch {
            observations: Observations::with_capacity(capacity * spec.observation.len()),
            policies: Vec::with_capacity(capacity * spec.actions),
            legal: Vec::with_capacity(capacity * spec.actions),
            wdl: Vec::with_capacity(capacity * Outcome::RESULTS),
            policy_weights: Vec::with_capacity(capacity),
            ..TrainingBatch::default()
        };
        let planes = vec![0.0; spec.observation.len()];
        Self { batch, search_value_share, image: planes.clone(), planes, legal: Vec::new() }
    }

    /// Adds one row. If the segment violates the rules, adds nothing and returns a description of the violation.
    pub(super) fn push<G: Game>(&mut self, game: &G, segment: &Segment, rng: &mut impl Rng) -> Result<(), String> {
        let spec = game.spec();
        let position = position_of(game, segment)?;
        let target = segment.steps().next().ok_or("the segment has no target")?.kind;
        let policy = target.policy();
        check_policy(game, &position, policy, segment.ply())?;
        let symmetries = game.symmetries();
        let symmetry = &symmetries[rng.random_range(0..symmetries.len())];

        observe(game, &position, segment, 0, &mut self.planes)?;
        symmetry.observation(&self.planes, &mut self.image);
        self.batch.observations.push(&self.image);

        let row = self.batch.policies.len();
        self.batch.policies.resize(row + spec.actions, 0.0);
        for entry in policy {
            self.batch.policies[row + symmetry.action(entry.action).index()] = entry.probability;
        }
        let row = self.batch.legal.len();
        self.batch.legal.resize(row + spec.actions, 0);
        game.legal_actions(&position, &mut self.legal);
        for &action in &self.legal {
            self.batch.legal[row + symmetry.action(action).index()] = 1;
        }
        self.batch.policy_weights.push(if policy.is_empty() { 0.0 } else { 1.0 });

        let outcome = of_outcome(segment.outcome(), game.to_move(&position));
        let search = of_value(target.value().unwrap_or(0.0));
        let share = self.search_value_share;
        self.batch
            .wdl
            .extend(outcome.iter().zip(search).map(|(outcome, search)| (1.0 - share) * outcome + share * search));
        Ok(())
    }

    /// Returns the batch; `importance` has one weight per row, or is empty.
    pub(super) fn batch(self, importance: Vec<f32>) -> TrainingBatch {
        TrainingBatch { importance, ..self.batch }
    }
}

/// Returns the probabilities `[win, draw, loss]` of an outcome for the player to move.
fn of_outcome(outcome: Outcome, to_move: Player) -> [f32; Outcome::RESULTS] {
    match outcome {
        // Unreachable: the configuration excludes games scored by rewards, and `position_of` rejects episodes scored by
        // rewards.
        Outcome::Draw | Outcome::Finished | Outcome::Truncated => [0.0, 1.0, 0.0],
        Outcome::Win(winner) if winner == to_move => [1.0, 0.0, 0.0],
        Outcome::Win(_) => [0.0, 0.0, 1.0],
    }
}

/// Returns the probabilities `[win, draw, loss]` for a search value `q`, which contains no information about draws.
fn of_value(q: f32) -> [f32; Outcome::RESULTS] {
    let q = q.clamp(-1.0, 1.0);
    [(1.0 + q) / 2.0, 0.0, (1.0 - q) / 2.0]
}

#[cfg(test)]
mod tests {
    use experience::{ActionProbability, Sample, Step, StepKind, Trajectory, TrajectoryId};
    use game::Symmetry;
    use games::connect_four::ConnectFour;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use training::Examples;
    use weights::WeightsVersion;

    use super::*;
    use crate::{Built, Rejected, Targets};

    const OUTCOME_ONLY: f32 = 0.0;

    fn sample(actions: &[u16], policy: &[(u16, f32)], value: f32, outcome: Outcome) -> Sample {
        let policy = policy
            .iter()
            .map(|&(action, probability)| ActionProbability { action: Action(action), probability })
            .collect();
        let step =
            |action, kind| Step { action: Action(action), reward: 0.0, kind, weights_version: WeightsVersion(1) };
        let mut steps: Vec<Step> = actions.iter().map(|&action| step(action, StepKind::Opening)).collect();
        steps.push(step(0, StepKind::Full { policy, value }));
        let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
        let trajectory = Trajectory::of(id, "connect_four", &steps, outcome).unwrap();
        let segment = trajectory.segment(actions.len(), 0).unwrap();
        Sample { segment, probability: 1.0, table_items: 1 }
    }

    fn built(search_value_share: f32, samples: &[Sample], importance: &[f32]) -> (TrainingBatch, Built) {
        let (targets, mut rng) = (Targets::Positions { search_value_share }, ChaCha8Rng::seed_from_u64(1));
        let built = targets.examples(&ConnectFour::new(), samples, importance, &mut rng);
        let Examples::Positions(batch) = &built.examples else { panic!("{built:?}") };
        (batch.clone(), built)
    }

    fn batch(search_value_share: f32, samples: &[Sample]) -> (TrainingBatch, Vec<Rejected>) {
        let (batch, built) = built(search_value_share, samples, &[]);
        (batch, built.rejected)
    }

    #[test]
    fn the_outcome_is_seen_by_the_player_to_move() {
        let second_wins = Outcome::Win(Player::Second);
        let (batch, rejected) = batch(
            OUTCOME_ONLY,
            &[sample(&[3], &[(3, 1.0)], 0.0, second_wins), sample(&[], &[(3, 1.0)], 0.0, second_wins)],
        );
        assert_eq!(rejected, []);
        assert_eq!(batch.wdl, [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn the_search_value_takes_its_share_of_the_value_target() {
        let (batch, _) = batch(0.5, &[sample(&[], &[(3, 1.0)], 0.5, Outcome::Draw)]);
        assert_eq!(batch.wdl, [0.375, 0.5, 0.125]);
    }

    /// Planes and policy get the same transformation: under either symmetry, the policy prefers the column with the
    /// stones.
    #[test]
    fn policy_and_planes_turn_by_the_same_symmetry() {
        let game = ConnectFour::new();
        let spec = game.spec();
        let samples: Vec<Sample> = (0..32).map(|_| sample(&[0, 0], &[(0, 1.0)], 0.0, Outcome::Draw)).collect();
        let (batch, _) = batch(OUTCOME_ONLY, &samples);
        let mut expected = vec![0.0; spec.observation.len()];
        game.observe(&game.replay(&[Action(0), Action(0)]).unwrap(), &mut expected);
        let images: Vec<(usize, Vec<f32>)> =
            game.symmetries().iter().map(|symmetry| image(symmetry, &expected)).collect();
        let mut seen = vec![false; images.len()];
        for (row, planes) in batch.observations.to_floats().chunks(spec.observation.len()).enumerate() {
            let action = batch.policies[row * spec.actions..][..spec.actions].iter().position(|&p| p == 1.0).unwrap();
            let which = images.iter().position(|image| *image == (action, planes.to_vec())).expect("an image");
            seen[which] = true;
        }
        assert_eq!(seen, [true, true]);
    }

    #[test]
    fn the_legal_actions_turn_by_the_symmetry_of_the_policy() {
        let full = [0; 6];
        let samples: Vec<Sample> = (0..32).map(|_| sample(&full, &[(1, 1.0)], 0.0, Outcome::Draw)).collect();
        let (batch, rejected) = batch(OUTCOME_ONLY, &samples);
        assert_eq!(rejected, []);
        let columns = ConnectFour::new().spec().actions;
        let mut seen = [false; 2];
        for (policy, legal) in batch.policies.chunks(columns).zip(batch.legal.chunks(columns)) {
            let mirrored = policy[1] == 0.0;
            let closed = if mirrored { columns - 1 } else { 0 };
            let open: Vec<u8> = (0..columns).map(|column| u8::from(column != closed)).collect();
            assert_eq!(legal, open, "policy {policy:?}");
            seen[usize::from(mirrored)] = true;
        }
        assert_eq!(seen, [true, true], "both images are drawn");
    }

    fn image(symmetry: &Symmetry, planes: &[f32]) -> (usize, Vec<f32>) {
        let mut to = vec![0.0; planes.len()];
        symmetry.observation(planes, &mut to);
        (symmetry.action(Action(0)).index(), to)
    }

    #[test]
    fn a_sample_that_breaks_the_rules_is_left_out_and_named() {
        let illegal = sample(&[0, 0, 0, 0, 0, 0, 0], &[(1, 1.0)], 0.0, Outcome::Draw);
        let full_column = sample(&[0, 0, 0, 0, 0, 0], &[(0, 1.0)], 0.0, Outcome::Draw);
        let over = sample(&[0, 1, 0, 1, 0, 1, 0], &[(1, 1.0)], 0.0, Outcome::Draw);
        let good = sample(&[], &[(3, 1.0)], 0.0, Outcome::Draw);
        let (batch, rejected) = batch(OUTCOME_ONLY, &[illegal, full_column, over, good]);
        assert_eq!(batch.policy_weights, [1.0]);
        let reasons: Vec<&str> = rejected.iter().map(|rejected| rejected.reason.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "action 0 is not legal at ply 6 of connect_four",
                "the search policy holds action 0, which is not legal at ply 6",
                "the game is over at ply 7",
            ]
        );
    }

    #[test]
    fn rows_keep_the_importance_of_their_samples_when_others_break_the_rules() {
        let good = || sample(&[3], &[(3, 1.0)], 0.0, Outcome::Draw);
        let samples = [good(), sample(&[99], &[(3, 1.0)], 0.0, Outcome::Draw), good()];
        let (batch, built) = built(OUTCOME_ONLY, &samples, &[0.25, 0.5, 1.0]);
        assert_eq!((built.rows, batch.importance), (vec![0, 2], vec![0.25, 1.0]));
        assert_eq!(built.rejected.len(), 1);
    }
}
