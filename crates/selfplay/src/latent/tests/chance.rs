//! Compares search in a fixed model with chance to brute-force expectimax.

use game::mix;
use inference::{Error, LatentPredictions, Slot, Unroll};

use super::*;

const CODES: usize = 4;
const DISCOUNT: f32 = 0.75;

/// A model with chance of a two-step environment, without rewards after the second step. All numbers are hashes.
#[derive(Debug, Default)]
struct Casino {
    pool: Vec<State>,
    /// The calls of [`LatentModel::act`] and [`LatentModel::recurrent`].
    calls: [usize; 2],
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct State {
    hash: u64,
    steps_left: u32,
    is_afterstate: bool,
}

impl State {
    fn root(observation: &[f32]) -> Self {
        Self { hash: mix(u64::from(observation[0].to_bits())), steps_left: 2, is_afterstate: false }
    }

    fn then(&self, choice: u16) -> Self {
        let hash = mix(self.hash ^ mix(100 + u64::from(choice)));
        let steps_left = if self.is_afterstate { self.steps_left.saturating_sub(1) } else { self.steps_left };
        Self { hash, steps_left, is_afterstate: !self.is_afterstate }
    }

    fn reward(&self) -> f32 {
        (mix(self.hash ^ 5) % 17) as f32 / 4.0 - 2.0
    }

    fn probabilities(&self) -> [f32; CODES] {
        [[0.5, 0.25, 0.125, 0.125], [0.0625, 0.0625, 0.125, 0.75], [0.25; 4]][(mix(self.hash ^ 6) % 3) as usize]
    }

    /// Returns the exact value by expectimax.
    fn exact(&self) -> f64 {
        if self.is_afterstate {
            let outcome = |(code, probability): (u16, f32)| {
                let next = self.then(code);
                let paid = if self.steps_left == 0 { 0.0 } else { f64::from(next.reward()) };
                f64::from(probability) * (paid + f64::from(DISCOUNT) * next.exact())
            };
            return (0..).zip(self.probabilities()).map(outcome).sum();
        }
        if self.steps_left == 0 {
            return 0.0;
        }
        (0..2).map(|action| self.then(action).exact()).fold(f64::MIN, f64::max)
    }
}

impl LatentModel for Casino {
    fn attributes(&self) -> Attributes {
        Attributes { name: "casino".into(), weights_version: 1, preferred_batch: 64, max_batch: 64 }
    }

    fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        self.pool.resize(self.pool.len().max(slots), State::default());
        Ok(())
    }

    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
        predictions.clear(2);
        for (i, slot) in to.iter().enumerate() {
            self.pool[slot.0 as usize] = State::root(batch.observation(i));
            assert!(predictions.push_logits(&[0.0; 2], Some(batch.legal(i)), 0.0, 0.0));
        }
        Ok(())
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        self.calls[1] += 1;
        predictions.clear(2);
        for Unroll { from, action, to } in steps {
            let from = self.pool[from.0 as usize];
            assert!(from.is_afterstate && action.index() < CODES, "a code follows an afterstate");
            let next = from.then(action.0);
            let reward = if from.steps_left == 0 { 0.0 } else { next.reward() };
            self.pool[to.0 as usize] = next;
            assert!(predictions.push_logits(&[0.0; 2], None, 0.0, reward));
        }
        Ok(())
    }

    fn codes(&self) -> usize {
        CODES
    }

    fn act(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        self.calls[0] += 1;
        predictions.clear(CODES);
        for Unroll { from, action, to } in steps {
            let from = self.pool[from.0 as usize];
            assert!(!from.is_afterstate && action.index() < 2, "an action is taken in a state");
            let next = from.then(action.0);
            self.pool[to.0 as usize] = next;
            let logits = next.probabilities().map(f32::ln);
            assert!(predictions.push_logits(&logits, None, 0.0, 0.0));
        }
        Ok(())
    }
}

fn roots(game: &Chain) -> Vec<Position> {
    (0..3).map(|state| Position { state, ply: state }).filter(|position| game.outcome(position).is_none()).collect()
}

#[test]
fn search_in_a_model_with_chance_finds_the_action_of_expectimax_and_its_value() {
    let game = Chain::new(20, 0.0, 60);
    let positions = roots(&game);
    for leaves in [1, 4] {
        let mut model = Casino::default();
        let settings = AnalysisSettings { discount: DISCOUNT, ..analysis(4000, SearchAlgorithm::Puct, leaves) };
        let found = analyse(&game, &positions, &settings, &mut model, &mut rng()).unwrap();
        assert!(model.calls.iter().all(|&calls| calls > 0));
        for (position, analysis) in positions.iter().zip(found) {
            let mut planes = [0.0; 2];
            game.observe(position, &mut planes);
            let root = State::root(&planes);
            let exact = |action: Action| root.then(action.0).exact();
            let lost = root.exact() - exact(analysis.best);
            assert!(lost < 0.03, "{leaves} leaves: {lost} of {} is lost", root.exact());
            let best = analysis.actions.iter().position(|&action| action == analysis.best).unwrap();
            // Afterstates and states on the way are evaluated as 0, and these evaluations are about 1 / 60 of the
            // visits.
            let error = f64::from(analysis.action_values[best]) - exact(analysis.best);
            assert!(error.abs() < 0.1, "{leaves} leaves: {error} beside {}", exact(analysis.best));
        }
    }
}

#[test]
fn a_model_with_chance_that_fails_now_and_then_changes_no_episode() {
    let game = Chain::new(20, 0.0, 8);
    let settings = Settings { leaves_per_tree: 2, games: 3, ..settings() };
    let episodes = || LatentEpisodes::new(game.clone(), settings.clone(), DISCOUNT, 5);
    let (expected, round, _) = play(episodes(), &mut Casino::default(), 3);
    let mut faulty = FaultyModel::new(Casino::default(), Fault::Backend, 4);
    let (finished, _, failures) = play(episodes(), &mut faulty, 3);
    assert!(failures > 10 && round.batches > 0);
    let steps = |episodes: &[FinishedEpisode]| episodes.iter().map(|e| format!("{:?}", e.steps)).collect::<Vec<_>>();
    assert_eq!(steps(&finished), steps(&expected));
}
