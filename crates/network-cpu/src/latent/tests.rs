//! Tests of whole MuZero networks: every path against float64.

use std::sync::Arc;

use game::{Action, ObservationShape};
use inference::categorical::transform;
use inference::{Batch, Error, LatentModel, LatentPredictions, Slot, Unroll};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::{Architecture, Model, WeightsVersion};

use super::folded::FoldedLatent;
use super::reference::{self, Answer};
use super::{LatentEvaluator, LatentNetwork};
use crate::KernelVariant;

/// A network for observations `[planes, height, width]`.
fn architecture(shape: [usize; 3], channels: usize, blocks: usize, actions: usize) -> Architecture {
    Architecture {
        model: Model::Muzero { support: 10 },
        ..Architecture::plain("test", shape, actions, [channels, blocks])
    }
}

fn available() -> impl Iterator<Item = KernelVariant> {
    KernelVariant::ALL.into_iter().filter(|path| path.is_available())
}

/// Observations inside and outside `[0, 1]`, each with at least one legal action.
fn batch(architecture: &Architecture, positions: usize, rng: &mut ChaCha8Rng) -> Batch {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut batch = Batch::new(ObservationShape { planes, height, width });
    for _ in 0..positions {
        let legal: Vec<Action> =
            (0..actions as u16).filter(|&action| action == 0 || rng.random_bool(0.7)).map(Action).collect();
        batch.push(&legal, |cells| cells.iter_mut().for_each(|cell| *cell = rng.random_range(-3.0..3.0)));
    }
    batch
}

fn evaluator(network: &FoldedLatent, path: KernelVariant) -> LatentEvaluator {
    LatentEvaluator::new(Arc::new(LatentNetwork::from_folded(network, path).unwrap()), WeightsVersion(9))
}

/// Distances of predictions from float64: for priors, and for values and rewards in atoms.
#[derive(Debug, Clone, Copy)]
struct Distance {
    root_mean_square: f64,
    largest: f64,
}

impl Distance {
    /// Returns whether the path rounds no more than the format requires.
    ///
    /// float32 rounds by less than an atom in 10⁵. bfloat16 rounds to 8 bits: by a hundredth of an atom in most
    /// states, but tens of times that in a few. Layer norms and the rescaling divide by the spread of the units,
    /// which may be small.
    fn is_rounding_of(self, path: KernelVariant) -> bool {
        let [root_mean_square, largest] = if path.is_bf16() { [0.05, 0.5] } else { [3e-5, 3e-5] };
        self.root_mean_square <= root_mean_square && self.largest <= largest
    }
}

/// Compares predictions with the results in float64.
fn compare(answers: &[Answer], legal: impl Fn(usize) -> Vec<usize>, predictions: &LatentPredictions) -> Distance {
    assert_eq!(predictions.len(), answers.len());
    let mut distances = Vec::new();
    for (index, answer) in answers.iter().enumerate() {
        let legal = legal(index);
        let total: f64 = legal.iter().map(|&action| answer.policy[action].exp()).sum();
        for (action, &got) in predictions.priors(index).iter().enumerate() {
            let want = if legal.contains(&action) { answer.policy[action].exp() / total } else { 0.0 };
            distances.push((f64::from(got) - want).abs());
        }
        for (got, want) in [(predictions.value(index), answer.value), (predictions.reward(index), answer.reward)] {
            distances.push((transform(f64::from(got)) - transform(want)).abs());
        }
    }
    assert!(distances.iter().all(|distance| distance.is_finite()), "{predictions:?}");
    let mean_square = distances.iter().map(|distance| distance * distance).sum::<f64>() / distances.len() as f64;
    let largest = distances.iter().copied().fold(0.0, f64::max);
    Distance { root_mean_square: mean_square.sqrt(), largest }
}

/// Computes a few observations and chains of steps from them, in shuffled order and slots, with every path.
fn check_against_float64(architecture: &Architecture, positions: usize) {
    check_chains_against_float64::<3>(architecture, positions);
}

/// The same with chains of this length.
fn check_chains_against_float64<const STEPS: usize>(architecture: &Architecture, positions: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let network = FoldedLatent::random(architecture, 7).unwrap();
    let batch = batch(architecture, positions, &mut rng);
    let mut slots: Vec<u32> = (0..(STEPS as u32 + 1) * positions as u32).collect();
    slots.shuffle(&mut rng);
    let slot = |step: usize, index: usize| Slot(slots[step * positions + index]);
    let to: Vec<Slot> = (0..positions).map(|index| slot(0, index)).collect();
    // With chance, actions and chance codes alternate.
    let is_act = |step: usize| architecture.model.codes() > 0 && step.is_multiple_of(2);

    let first: Vec<Answer> =
        (0..positions).map(|index| reference::initial(&network, batch.observation(index))).collect();
    let mut steps = Vec::new();
    let mut wanted = vec![first];
    for step in 0..STEPS {
        let mut order: Vec<usize> = (0..positions).collect();
        order.shuffle(&mut rng);
        let before = &wanted[step];
        let take = if is_act(step) { reference::act } else { reference::recurrent };
        let choices = if is_act(step) { architecture.actions } else { reference::choices(&network) };
        let (mut unrolls, mut answers) = (Vec::new(), Vec::new());
        for (index, &parent) in order.iter().enumerate() {
            let choice = rng.random_range(0..choices);
            unrolls.push(Unroll { from: slot(step, parent), action: Action(choice as u16), to: slot(step + 1, index) });
            answers.push(take(&network, &before[parent], choice));
        }
        steps.push(unrolls);
        wanted.push(answers);
    }

    for path in available() {
        let mut evaluator = evaluator(&network, path);
        evaluator.reserve(slots.len()).unwrap();
        let mut predictions = LatentPredictions::default();
        evaluator.initial(&batch, &to, &mut predictions).unwrap();
        let legal = |index: usize| batch.legal(index).iter().map(|action| action.index()).collect();
        let distance = compare(&wanted[0], legal, &predictions);
        assert!(distance.is_rounding_of(path), "{path} on {architecture:?}: observations are off by {distance:?}");
        for (step, unrolls) in steps.iter().enumerate() {
            let take = if is_act(step) { LatentEvaluator::act } else { LatentEvaluator::recurrent };
            take(&mut evaluator, unrolls, &mut predictions).unwrap();
            let wanted = &wanted[step + 1];
            let distance = compare(wanted, |index| (0..wanted[index].policy.len()).collect(), &predictions);
            assert!(distance.is_rounding_of(path), "{path} on {architecture:?}: step {step} is off by {distance:?}");
        }
    }
}

#[test]
fn every_path_agrees_with_float64_for_networks_of_returns_which_take_no_step() {
    for (shape, channels, positions) in
        [([4, 1, 1], 7, 3), ([4, 1, 1], 64, 257), ([4, 4, 4], 16, 5), ([2, 3, 5], 32, 70)]
    {
        let model = Model::AlphazeroReturns { support: 10 };
        let architecture = Architecture { model, ..architecture(shape, channels, 1, 4) };
        let network = FoldedLatent::random(&architecture, 7).unwrap();
        let batch = batch(&architecture, positions, &mut ChaCha8Rng::seed_from_u64(12));
        let wanted: Vec<Answer> =
            (0..positions).map(|index| reference::initial(&network, batch.observation(index))).collect();
        for path in available() {
            let mut evaluator = evaluator(&network, path);
            evaluator.reserve(positions).unwrap();
            let (to, mut predictions) =
                ((0..positions as u32).map(Slot).collect::<Vec<_>>(), LatentPredictions::default());
            evaluator.initial(&batch, &to, &mut predictions).unwrap();
            let legal = |index: usize| batch.legal(index).iter().map(|action| action.index()).collect();
            let distance = compare(&wanted, legal, &predictions);
            assert!(distance.is_rounding_of(path), "{path} on {architecture:?}: off by {distance:?}");
            let step = Unroll { from: Slot(0), action: Action(0), to: Slot(1) };
            let refused = evaluator.recurrent(&[step], &mut predictions);
            assert!(matches!(refused, Err(Error::Backend(_))), "{refused:?}");
        }
    }
}

#[test]
fn every_path_agrees_with_float64_for_vectors_of_every_size() {
    for units in [1, 7, 64, 100] {
        for actions in [2, 5] {
            for positions in [1, 3, 64, 257] {
                check_against_float64(&architecture([4, 1, 1], units, 1, actions), positions);
            }
        }
    }
    check_against_float64(&architecture([4, 1, 1], 512, 1, 5), 67);
    check_against_float64(&architecture([network::PLANES_MAX, 1, 1], 48, 1, 5), 3);
}

#[test]
fn every_path_agrees_with_float64_for_dense_networks_of_every_depth_and_support() {
    for (blocks, support) in [(0, 1), (2, 7), (3, 8), (1, 300)] {
        let model = Model::Muzero { support };
        check_against_float64(&Architecture { model, ..architecture([19, 1, 1], 48, blocks, 3) }, 5);
    }
    check_against_float64(&architecture([70, 1, 1], 32, 1, 40), 600);
}

#[test]
fn every_path_agrees_with_float64_for_planes_of_many_sizes() {
    for shape in [[1, 1, 2], [2, 3, 3], [2, 6, 7], [3, 1, 9], [5, 9, 1], [17, 5, 8], [4, 13, 13], [2, 3, 70]] {
        check_against_float64(&architecture(shape, 32, 2, 7), 3);
    }
    // Channels that fill lines of bfloat16, and channels that share a line with the planes of actions.
    for (channels, blocks) in [(16, 0), (16, 3), (48, 2), (64, 1), (80, 1), (128, 1)] {
        check_against_float64(&architecture([2, 4, 5], channels, blocks, 20), 2);
    }
}

#[test]
fn every_path_agrees_with_float64_for_batches_of_planes_smaller_and_larger_than_a_pass() {
    for positions in [1, 2, 15, 27, 33, 70] {
        check_against_float64(&architecture([2, 3, 3], 16, 1, 9), positions);
    }
}

#[test]
fn every_path_agrees_with_float64_for_planes_with_excitation_and_pooling() {
    for (units, pooled) in [(8, 0), (0, 20), (12, 16)] {
        let plain = architecture([2, 4, 4], 48, 3, 7);
        check_against_float64(&Architecture { squeeze_excitation: units, global_pooling: pooled, ..plain }, 16);
    }
}

/// The same network with chance, with this many codes.
fn with_chance(architecture: Architecture, codes: usize) -> Architecture {
    Architecture { model: Model::StochasticMuzero { support: 10, codes }, ..architecture }
}

#[test]
fn afterstates_of_vectors_and_the_states_after_them_agree_with_float64_on_every_path() {
    for (units, actions, codes, positions) in [(24, 3, 5, 9), (64, 25, 32, 65), (100, 2, 40, 257)] {
        check_chains_against_float64::<4>(&with_chance(architecture([6, 1, 1], units, 1, actions), codes), positions);
    }
}

#[test]
fn afterstates_of_planes_and_the_states_after_them_agree_with_float64_on_every_path() {
    // Fewer and more positions than a pass has, on boards that are turned and boards that are not.
    for (shape, codes) in [([2, 3, 3], 5), ([2, 6, 7], 32), ([1, 1, 2], 1), ([3, 5, 1], 40), ([16, 4, 4], 32)] {
        for positions in [1, 67] {
            check_chains_against_float64::<4>(&with_chance(architecture(shape, 16, 1, 4), codes), positions);
        }
    }
    for (units, pooled) in [(8, 0), (0, 20), (12, 16)] {
        let plain = with_chance(architecture([2, 4, 4], 48, 3, 7), 6);
        let with_parts = Architecture { squeeze_excitation: units, global_pooling: pooled, ..plain };
        check_chains_against_float64::<4>(&with_parts, 9);
    }
}

#[test]
fn chance_and_players_choose_among_different_numbers() {
    for shape in [[4, 1, 1], [2, 3, 4]] {
        let architecture = with_chance(architecture(shape, 16, 1, 3), 5);
        let network = FoldedLatent::random(&architecture, 3).unwrap();
        let mut evaluator = evaluator(&network, KernelVariant::PortableF32);
        evaluator.reserve(3).unwrap();
        let mut predictions = LatentPredictions::default();
        evaluator.initial(&batch(&architecture, 1, &mut rng(6)), &[Slot(0)], &mut predictions).unwrap();
        assert_eq!((evaluator.codes(), predictions.priors(0).len()), (5, 3));
        evaluator.act(&[unroll(0, 2, 1)], &mut predictions).unwrap();
        assert_eq!(predictions.priors(0).len(), 5);
        evaluator.recurrent(&[unroll(1, 4, 2)], &mut predictions).unwrap();
        assert_eq!(predictions.priors(0).len(), 3);
    }
}

#[test]
fn a_network_without_chance_has_no_afterstates() {
    for shape in [[4, 1, 1], [2, 3, 4]] {
        let network = FoldedLatent::random(&architecture(shape, 16, 1, 3), 3).unwrap();
        let mut evaluator = evaluator(&network, KernelVariant::PortableF32);
        evaluator.reserve(2).unwrap();
        let answer = evaluator.act(&[unroll(0, 0, 1)], &mut LatentPredictions::default());
        assert!(matches!(answer, Err(Error::Backend(_))), "{answer:?}");
    }
}

#[test]
fn a_head_of_afterstates_that_overflows_is_refused_as_not_finite() {
    type Change = fn(&mut FoldedLatent);
    let changes: [(bool, Change); 3] = [
        (true, |_| {}),
        (false, |network| network.chance.as_mut().unwrap().code.output.bias[2] = f32::INFINITY),
        (false, |network| network.chance.as_mut().unwrap().value.output.bias[20] = f32::NEG_INFINITY),
    ];
    for shape in [[4, 1, 1], [2, 3, 4]] {
        let architecture = with_chance(architecture(shape, 16, 1, 3), 5);
        for (path, (is_finite, change)) in available().flat_map(|path| changes.map(|change| (path, change))) {
            let mut network = FoldedLatent::random(&architecture, 3).unwrap();
            change(&mut network);
            let mut evaluator = evaluator(&network, path);
            evaluator.reserve(3).unwrap();
            let mut predictions = LatentPredictions::default();
            // Neither the predictions in states nor the way to them read these heads.
            evaluator.initial(&batch(&architecture, 1, &mut rng(6)), &[Slot(0)], &mut predictions).unwrap();
            let act = evaluator.act(&[unroll(0, 1, 1)], &mut predictions);
            assert_eq!(act.is_ok(), is_finite, "{path}, {shape:?}: {act:?}");
            assert!(act.is_ok() || matches!(act, Err(Error::NotFinite { weights_version: 9 })), "{act:?}");
            evaluator.recurrent(&[unroll(1, 4, 2)], &mut predictions).unwrap();
        }
    }
}

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// An evaluator with room for 32 states of a small network of vectors, on the widest path.
fn small(change: impl FnOnce(&mut FoldedLatent)) -> LatentEvaluator {
    let mut network = FoldedLatent::random(&architecture([4, 1, 1], 20, 1, 3), 3).unwrap();
    change(&mut network);
    let mut evaluator = evaluator(&network, available().next().unwrap());
    evaluator.reserve(32).unwrap();
    evaluator
}

fn observations(values: &[f32]) -> Batch {
    let mut batch = Batch::new(ObservationShape { planes: 4, height: 1, width: 1 });
    values.iter().for_each(|value| batch.push(&[Action(0), Action(1)], |cells| cells.fill(*value)));
    batch
}

fn unroll(from: u32, action: u16, to: u32) -> Unroll {
    Unroll { from: Slot(from), action: Action(action), to: Slot(to) }
}

#[test]
fn an_observation_that_is_not_finite_is_refused() {
    let mut evaluator = small(|_| {});
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let answer = evaluator.initial(
            &observations(&[0.0, bad, 1.0]),
            &[Slot(0), Slot(1), Slot(2)],
            &mut LatentPredictions::default(),
        );
        assert!(matches!(answer, Err(Error::NotFinite { weights_version: 9 })), "{bad}: {answer:?}");
    }
}

#[test]
fn an_observation_that_is_not_finite_does_not_reach_later_batches() {
    let shapes = [[4, 1, 1], [2, 3, 4]].map(|shape| architecture(shape, 16, 2, 3));
    let architectures = shapes.into_iter().flat_map(|plain| [with_chance(plain.clone(), 3), plain]);
    for (path, architecture) in architectures.flat_map(|it| available().map(move |path| (path, it.clone()))) {
        let network = FoldedLatent::random(&architecture, 3).unwrap();
        let good = batch(&architecture, 20, &mut rng(1));
        let mut bad = Batch::new(good.shape());
        (0..20).for_each(|_| bad.push(&[Action(0)], |cells| cells.fill(f32::NAN)));
        let to: Vec<Slot> = (0..20).map(Slot).collect();
        let steps: Vec<Unroll> = (0..20).map(|slot| unroll(slot, 1, slot + 20)).collect();
        type Take = fn(&mut LatentEvaluator, &[Unroll], &mut LatentPredictions) -> Result<(), Error>;
        let takes: &[Take] = match architecture.model.codes() {
            0 => &[LatentEvaluator::recurrent],
            _ => &[LatentEvaluator::recurrent, LatentEvaluator::act],
        };
        let answers = |evaluator: &mut LatentEvaluator| {
            let mut answers = vec![LatentPredictions::default(); 1 + takes.len()];
            evaluator.initial(&good, &to, &mut answers[0]).unwrap();
            takes.iter().zip(&mut answers[1..]).for_each(|(take, then)| take(evaluator, &steps, then).unwrap());
            answers
        };
        let (mut fresh, mut poisoned) = (evaluator(&network, path), evaluator(&network, path));
        [&mut fresh, &mut poisoned].into_iter().for_each(|evaluator| evaluator.reserve(40).unwrap());
        assert!(poisoned.initial(&bad, &to, &mut LatentPredictions::default()).is_err());
        takes.iter().for_each(|take| assert!(take(&mut poisoned, &steps, &mut LatentPredictions::default()).is_err()));
        assert_eq!(answers(&mut poisoned), answers(&mut fresh), "{path}, {architecture:?}");
    }
}

#[test]
fn a_head_that_overflows_is_refused_as_not_finite() {
    type Change = fn(&mut FoldedLatent);
    let changes: [Change; 3] = [
        |network| network.policy.output.bias[2] = f32::INFINITY,
        |network| network.value.output.bias[20] = f32::NEG_INFINITY,
        |network| network.dynamics.as_mut().unwrap().reward.output.bias[0] = f32::INFINITY,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut evaluator = small(change);
        let mut predictions = LatentPredictions::default();
        let first = evaluator.initial(&observations(&[0.5]), &[Slot(0)], &mut predictions);
        // The reward of an observation is not computed.
        assert_eq!(first.is_ok(), index == 2, "{index}: {first:?}");
        let step = evaluator.recurrent(&[unroll(0, 1, 1)], &mut predictions);
        assert!(matches!(step, Err(Error::NotFinite { weights_version: 9 })), "{index}: {step:?}");
    }
}

#[test]
fn answers_do_not_depend_on_the_rest_of_the_batch_nor_on_growth_of_the_pool() {
    for path in available() {
        let network = FoldedLatent::random(&architecture([4, 1, 1], 20, 1, 3), 3).unwrap();
        let mut evaluator = evaluator(&network, path);
        evaluator.reserve(2).unwrap();
        let (mut one, mut many) = (LatentPredictions::default(), LatentPredictions::default());
        evaluator.initial(&observations(&[0.7]), &[Slot(1)], &mut one).unwrap();
        evaluator.recurrent(&[unroll(1, 2, 0)], &mut one).unwrap();
        evaluator.reserve(700).unwrap();
        let steps: Vec<Unroll> = (0..600).map(|index| unroll(1, (index % 3) as u16, 100 + index)).collect();
        evaluator.recurrent(&steps, &mut many).unwrap();
        for index in (2..600).step_by(3) {
            assert_eq!(
                (many.priors(index), many.value(index), many.reward(index)),
                (one.priors(0), one.value(0), one.reward(0))
            );
        }
        assert_ne!(many.priors(1), one.priors(0), "{path}: another action has another answer");
    }
}

#[test]
fn a_step_may_replace_the_state_that_it_reads() {
    let mut evaluator = small(|_| {});
    let (mut apart, mut same) = (LatentPredictions::default(), LatentPredictions::default());
    evaluator.initial(&observations(&[0.7, 0.7]), &[Slot(0), Slot(1)], &mut apart).unwrap();
    for _ in 0..2 {
        evaluator.recurrent(&[unroll(0, 1, 0)], &mut same).unwrap();
    }
    evaluator.recurrent(&[unroll(1, 1, 2)], &mut apart).unwrap();
    evaluator.recurrent(&[unroll(2, 1, 3)], &mut apart).unwrap();
    assert_eq!(same, apart);
}

#[test]
fn an_action_may_replace_the_state_that_it_leads_from_by_the_afterstate() {
    for (path, shape) in available().flat_map(|path| [[4, 1, 1], [2, 3, 4]].map(|shape| (path, shape))) {
        let architecture = with_chance(architecture(shape, 16, 1, 3), 5);
        let mut evaluator = evaluator(&FoldedLatent::random(&architecture, 3).unwrap(), path);
        evaluator.reserve(32).unwrap();
        let (mut apart, mut same) = (LatentPredictions::default(), LatentPredictions::default());
        for to in [0, 1] {
            evaluator.initial(&batch(&architecture, 1, &mut rng(6)), &[Slot(to)], &mut apart).unwrap();
        }
        evaluator.act(&[unroll(0, 1, 0)], &mut same).unwrap();
        evaluator.act(&[unroll(1, 1, 2)], &mut apart).unwrap();
        assert_eq!(same, apart, "{path}");
        evaluator.recurrent(&[unroll(0, 4, 0)], &mut same).unwrap();
        evaluator.recurrent(&[unroll(2, 4, 3)], &mut apart).unwrap();
        assert_eq!(same, apart, "{path}");
    }
}

#[test]
fn an_empty_batch_has_no_answers() {
    let mut evaluator = small(|_| {});
    let mut predictions = LatentPredictions::default();
    evaluator.initial(&observations(&[0.5]), &[Slot(0)], &mut predictions).unwrap();
    evaluator.initial(&observations(&[]), &[], &mut predictions).unwrap();
    assert!(predictions.is_empty());
    evaluator.recurrent(&[], &mut predictions).unwrap();
    assert!(predictions.is_empty());
}

#[test]
fn a_batch_of_another_shape_and_slots_of_another_number_are_refused() {
    let mut evaluator = small(|_| {});
    let mut predictions = LatentPredictions::default();
    let other = Batch::new(ObservationShape { planes: 5, height: 1, width: 1 });
    assert!(matches!(evaluator.initial(&other, &[], &mut predictions), Err(Error::Shape { .. })));
    let error = evaluator.initial(&observations(&[0.5, 0.5]), &[Slot(0)], &mut predictions).unwrap_err();
    assert_eq!(error.to_string(), "the batch has 1 slots, the network accepts 2 slots");
}

#[test]
#[should_panic(expected = "an action is out of range")]
fn an_action_out_of_range_is_a_bug_of_the_caller() {
    let _ = small(|_| {}).recurrent(&[unroll(0, 3, 1)], &mut LatentPredictions::default());
}

#[test]
#[should_panic(expected = "out of range")]
fn a_slot_that_was_not_reserved_is_a_bug_of_the_caller() {
    let _ = small(|_| {}).recurrent(&[unroll(0, 0, 32)], &mut LatentPredictions::default());
}
