//! Tests of whole networks: every path against float64, and the contract of every evaluator.

use std::sync::Arc;

use game::{Action, ObservationShape};
use inference::{Batch, Evaluator, Predictions};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::{Activation, Architecture, BlockKind, Design, HeadKind, NormKind, WeightsVersion};

use crate::folded::Folded;
use crate::{Error, KernelVariant, Tower, TowerEvaluator, choose_variant, reference, supports};

/// A plain tower for a board.
fn architecture([planes, height, width]: [usize; 3], channels: usize, blocks: usize) -> Architecture {
    Architecture::plain("test", [planes, height, width], width + 1, [channels, blocks])
}

fn available() -> impl Iterator<Item = KernelVariant> {
    KernelVariant::ALL.into_iter().filter(|path| path.is_available())
}

/// Zero-one observations, each with at least one legal action.
fn batch(architecture: &Architecture, positions: usize, seed: u64) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut batch = Batch::new(ObservationShape { planes, height, width });
    for _ in 0..positions {
        let legal: Vec<Action> =
            (0..actions as u16).filter(|&action| action == 0 || rng.random_bool(0.7)).map(Action).collect();
        batch.push(&legal, |cells| cells.iter_mut().for_each(|cell| *cell = f32::from(rng.random_bool(0.4))));
    }
    batch
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - max).exp()).sum();
    logits.iter().map(|logit| (logit - max).exp() / sum).collect()
}

/// Returns the float64 logits of all observations in a batch.
fn reference_logits(network: &Folded, batch: &Batch) -> Vec<Vec<f64>> {
    (0..batch.len()).map(|index| reference::logits(network, batch.observation(index))).collect()
}

/// Returns the largest distance of a prior or result probability from the float64 softmax of the logits.
fn distance(logits: &[Vec<f64>], evaluator: &mut TowerEvaluator, batch: &Batch) -> f64 {
    let mut predictions = Predictions::new();
    evaluator.evaluate(batch, &mut predictions).unwrap();
    let mut worst = 0.0_f64;
    for (index, logits) in logits.iter().enumerate() {
        let (policy, wdl) = logits.split_at(logits.len() - 3);
        let legal: Vec<f64> = batch.legal(index).iter().map(|action| policy[action.index()]).collect();
        let value = predictions.wdl()[index];
        let got = predictions.priors(index).iter().chain([&value.win, &value.draw, &value.loss]);
        for (&got, want) in got.zip(softmax(&legal).into_iter().chain(softmax(wdl))) {
            worst = worst.max((f64::from(got) - want).abs());
        }
    }
    worst
}

fn check_against_float64(architecture: &Architecture, positions: usize) {
    check_folded_against_float64(&Folded::random(architecture, 7).unwrap(), positions);
}

fn check_folded_against_float64(network: &Folded, positions: usize) {
    let batch = batch(&network.architecture, positions, 11);
    check_logits(network, &batch, &reference_logits(network, &batch));
}

/// Checks three contiguous positions, and sixteen, which are interleaved if the path supports that. The three are the
/// first of the sixteen, so that float64 evaluates them once.
fn check_three_and_sixteen(architecture: &Architecture) {
    let network = Folded::random(architecture, 7).unwrap();
    let sixteen = batch(architecture, 16, 11);
    let logits = reference_logits(&network, &sixteen);
    let three = batch(architecture, 3, 11);
    assert!(sixteen.observations().starts_with(three.observations()));
    check_logits(&network, &three, &logits[..3]);
    check_logits(&network, &sixteen, &logits);
}

fn check_logits(network: &Folded, batch: &Batch, logits: &[Vec<f64>]) {
    for path in available() {
        let tower = Arc::new(Tower::from_folded(network, path, None).unwrap());
        let worst = distance(logits, &mut TowerEvaluator::new(tower, WeightsVersion(1)), batch);
        let tolerance = if path.is_bf16() { 0.02 } else { 2e-5 };
        assert!(worst <= tolerance, "{path} on {:?} is off by {worst}", network.architecture);
    }
}

#[test]
fn every_path_agrees_with_float64_on_boards_of_many_sizes() {
    for shape in [[1, 1, 1], [2, 3, 3], [2, 6, 7], [3, 1, 9], [5, 9, 1], [4, 13, 13], [17, 5, 8]] {
        check_against_float64(&architecture(shape, 32, 2), 3);
    }
    check_against_float64(&architecture([17, 19, 19], 32, 1), 2);
    check_against_float64(&architecture([2, 32, 3], 32, 1), 2);
    check_against_float64(&architecture([2, 3, 32], 32, 1), 2);
}

#[test]
fn every_path_agrees_with_float64_where_a_line_of_cells_makes_several_runs() {
    for shape in [[1, 33, 2], [2, 3, 64], [1, 65, 3], [1, 2, 96], [2, 40, 37]] {
        check_against_float64(&architecture(shape, 16, 1), 3);
        check_against_float64(&architecture(shape, 64, 1), 2);
    }
    check_against_float64(&pooled([2, 5, 70], [1, 1], Design::default()), 3);
    let side = network::SIDE_MAX;
    check_against_float64(&architecture([4, side, side], 16, 1), 1);
}

#[test]
fn every_path_agrees_with_float64_on_every_side_of_a_board_up_to_nineteen() {
    for side in 1..=19 {
        check_against_float64(&architecture([2, side, side], 32, 1), 2);
        check_against_float64(&architecture([2, side, 20 - side], 32, 1), 2);
    }
}

#[test]
fn every_path_agrees_with_float64_for_batches_smaller_and_larger_than_a_pass() {
    for positions in [1, 2, 7, 25, 26, 27, 33] {
        check_against_float64(&architecture([2, 6, 7], 32, 1), positions);
    }
}

#[test]
fn every_path_agrees_with_float64_for_many_channels_and_depths() {
    for (channels, blocks) in [(16, 0), (16, 3), (48, 2), (64, 4), (80, 1), (128, 2), (256, 1)] {
        check_against_float64(&architecture([2, 4, 5], channels, blocks), 3);
        check_against_float64(&architecture([2, 6, 7], channels, blocks), 3);
    }
}

#[test]
fn every_path_agrees_with_float64_with_excitation_and_pooling() {
    for (units, pooled) in [(8, 0), (0, 4), (0, 20), (12, 16), (32, 1)] {
        let architecture =
            Architecture { squeeze_excitation: units, global_pooling: pooled, ..architecture([2, 6, 7], 48, 4) };
        check_three_and_sixteen(&architecture);
    }
}

#[test]
fn every_path_agrees_with_float64_with_every_activation() {
    for activation in Activation::ALL {
        let plain =
            Architecture { design: Design { activation, ..Design::default() }, ..architecture([2, 6, 7], 48, 4) };
        let complete = Architecture { squeeze_excitation: 12, global_pooling: 16, ..plain.clone() };
        for architecture in [Architecture { channels: 64, ..plain }, complete] {
            check_three_and_sixteen(&architecture);
        }
    }
}

#[test]
fn every_path_agrees_with_float64_with_bottleneck_blocks() {
    for (activation, channels) in [(Activation::Relu, 32), (Activation::Relu, 128), (Activation::Mish, 96)] {
        let design = Design { activation, block: BlockKind::Bottleneck, ..Design::default() };
        let plain = Architecture { design, ..architecture([2, 6, 7], channels, 4) };
        let complete = Architecture { squeeze_excitation: 12, global_pooling: 8, ..plain.clone() };
        for architecture in [plain, complete] {
            check_three_and_sixteen(&architecture);
        }
    }
    let narrow = Design { block: BlockKind::Bottleneck, ..Design::default() };
    let odd = Architecture { design: narrow, ..architecture([2, 3, 3], 48, 1) };
    let error = Tower::random(&odd, 1, KernelVariant::PortableF32).unwrap_err();
    assert!(error.to_string().contains("48 channels, only a multiple of 32 in bottleneck blocks"), "{error}");
    let wide = Architecture { design: narrow, ..architecture([2, 6, 7], 256, 6) };
    choose_variant(&wide, &KernelVariant::ALL).unwrap();
}

/// Designs with attention blocks and norms of single positions.
fn of_positions() -> [Design; 5] {
    let attention = |attention, attention_heads| Design { attention, attention_heads, ..Design::default() };
    let normed = |norm| Design { norm, ..Design::default() };
    [
        attention(2, 4),
        Design { activation: Activation::Mish, norm: NormKind::Group, ..attention(1, 2) },
        normed(NormKind::Layer),
        normed(NormKind::Group),
        Design { block: BlockKind::Bottleneck, activation: Activation::Silu, ..normed(NormKind::Layer) },
    ]
}

#[test]
fn every_path_agrees_with_float64_with_attention_and_norms_of_positions() {
    for design in of_positions() {
        let plain = Architecture { design, ..architecture([2, 6, 7], 64, 3) };
        let complete = Architecture { squeeze_excitation: 12, global_pooling: 8, ..plain.clone() };
        for architecture in [plain, complete] {
            check_three_and_sixteen(&architecture);
        }
    }
}

#[test]
fn every_path_agrees_with_float64_with_attention_alone_on_boards_and_batches_of_many_sizes() {
    for (shape, channels, heads) in [
        ([1, 1, 1], 16, 1),
        ([2, 3, 3], 32, 8),
        ([3, 9, 5], 48, 3),
        ([2, 1, 20], 80, 5),
        ([4, 13, 11], 64, 2),
        ([2, 19, 19], 32, 4),
    ] {
        let design = Design { attention: 2, attention_heads: heads, activation: Activation::Gelu, ..Design::default() };
        let architecture = Architecture { design, ..architecture(shape, channels, 0) };
        for positions in [1, 2, 7, 33] {
            if shape[1] * shape[2] * positions < 1500 {
                check_against_float64(&architecture, positions);
            }
        }
        choose_variant(&architecture, &KernelVariant::ALL).unwrap();
    }
}

/// A network with pooled heads, with k actions per cell and m further actions.
fn pooled(shape: [usize; 3], [k, m]: [usize; 2], design: Design) -> Architecture {
    let [_, height, width] = shape;
    let (game, actions) = (format!("test-{height}x{width}"), k * height * width + m);
    Architecture { game, actions, design: Design { heads: HeadKind::Pooled, ..design }, ..architecture(shape, 32, 1) }
}

#[test]
fn every_path_agrees_with_float64_with_pooled_heads_on_boards_of_many_sizes() {
    // Including one cell, the size with a mean scale of 0, and turned boards.
    for shape in [[1, 1, 1], [2, 3, 3], [3, 5, 7], [12, 9, 9], [2, 15, 3], [1, 14, 14], [2, 19, 19], [2, 3, 32]] {
        for actions in [[1, 0], [1, 1], [3, 0], [2, 7], [17, 2]] {
            let architecture = pooled(shape, actions, Design::default());
            if actions[1] < shape[1] * shape[2] {
                check_against_float64(&architecture, 2);
            }
        }
    }
    check_against_float64(&pooled([2, 8, 8], [73, 0], Design::default()), 2);
}

#[test]
fn every_path_agrees_with_float64_with_pooled_heads_for_batches_smaller_and_larger_than_a_pass() {
    for positions in [1, 3, 11, 12, 16, 17, 33, 70] {
        check_against_float64(&pooled([2, 5, 7], [1, 1], Design::default()), positions);
        check_against_float64(&pooled([2, 3, 3], [3, 0], Design::default()), positions);
    }
}

#[test]
fn every_path_agrees_with_float64_with_pooled_heads_behind_every_design() {
    let mish = Design { activation: Activation::Mish, ..Design::default() };
    for design in of_positions().into_iter().chain([mish]) {
        let plain = Architecture { channels: 64, blocks: 3, ..pooled([2, 6, 7], [1, 1], design) };
        let complete = Architecture { squeeze_excitation: 12, global_pooling: 8, ..plain.clone() };
        for architecture in [plain, complete] {
            check_three_and_sixteen(&architecture);
            choose_variant(&architecture, &KernelVariant::ALL).unwrap();
        }
    }
}

#[test]
fn the_same_weights_on_another_board_agree_with_float64_there() {
    for actions in [[1, 1], [3, 0]] {
        let small = Folded::random(&pooled([2, 3, 3], actions, Design::default()), 7).unwrap();
        for [height, width] in [[5, 7], [9, 9], [19, 19], [3, 3]] {
            let there = pooled([2, height, width], actions, Design::default());
            let network = Folded { architecture: small.architecture.on(there.board()).unwrap(), ..small.clone() };
            assert_eq!(network.architecture, there);
            check_folded_against_float64(&network, 3);
        }
    }
}

#[test]
fn every_path_passes_the_conformance_suite_with_pooled_heads() {
    for (path, actions) in available().flat_map(|path| [[1, 1], [4, 0]].map(|actions| (path, actions))) {
        for [planes, height, width] in [[2, 6, 7], [3, 11, 5]] {
            let architecture = pooled([planes, height, width], actions, Design::default());
            let tower = Arc::new(Tower::random(&architecture, 3, path).unwrap());
            let mut evaluator = TowerEvaluator::new(tower, WeightsVersion(1));
            let shape = ObservationShape { planes, height, width };
            evaluator_doubles::conformance::run(&mut evaluator, shape, architecture.actions, 0.0);
        }
    }
}

#[test]
fn the_self_check_takes_networks_of_few_and_of_many_actions_of_each_cell() {
    for (shape, actions) in [([2, 19, 19], [1, 1]), ([2, 8, 8], [73, 0]), ([1, 1, 1], [1, 0])] {
        let architecture = Architecture { channels: 256, blocks: 6, ..pooled(shape, actions, Design::default()) };
        choose_variant(&architecture, &KernelVariant::ALL).unwrap();
    }
}

#[test]
fn integers_refuse_other_designs() {
    for design in [
        Design { activation: Activation::Mish, ..Design::default() },
        Design { heads: HeadKind::Pooled, ..Design::default() },
        Design { block: BlockKind::Bottleneck, ..Design::default() },
    ]
    .into_iter()
    .chain(of_positions())
    {
        let architecture = Architecture { design, actions: 9, ..architecture([2, 3, 3], 32, 1) };
        let error = Tower::random(&architecture, 1, KernelVariant::PortableI8).unwrap_err();
        assert!(error.is_of_the_kernel() && error.to_string().contains("residual blocks with relu only"), "{error}");
    }
}

#[test]
fn batches_larger_than_a_pass_are_answered_in_order() {
    check_against_float64(&architecture([2, 3, 3], 16, 1), 70);
}

#[test]
fn every_path_passes_the_conformance_suite() {
    let float = available().map(|path| (path, vec![([2, 6, 7], (0, 0)), ([17, 19, 19], (8, 8)), ([3, 11, 5], (8, 0))]));
    let int8 = KernelVariant::INT8.into_iter().filter(|path| path.is_available());
    for (path, networks) in float.chain(int8.map(|path| (path, vec![([2, 6, 7], (0, 0)), ([5, 3, 4], (8, 8))]))) {
        for (shape, options) in networks {
            let architecture =
                Architecture { squeeze_excitation: options.0, global_pooling: options.1, ..architecture(shape, 32, 3) };
            let tower = Arc::new(Tower::random(&architecture, 3, path).unwrap());
            let mut evaluator = TowerEvaluator::new(tower, WeightsVersion(1));
            let shape = ObservationShape { planes: shape[0], height: shape[1], width: shape[2] };
            // The order of sums does not depend on the batch.
            evaluator_doubles::conformance::run(&mut evaluator, shape, architecture.actions, 0.0);
        }
    }
}

#[test]
fn every_path_passes_the_conformance_suite_with_attention_and_norms_of_positions() {
    for (path, design) in available().flat_map(|path| of_positions().map(|design| (path, design))) {
        for [planes, height, width] in [[2, 6, 7], [3, 11, 5]] {
            let architecture = Architecture { design, ..architecture([planes, height, width], 32, 2) };
            let tower = Arc::new(Tower::random(&architecture, 3, path).unwrap());
            let mut evaluator = TowerEvaluator::new(tower, WeightsVersion(1));
            let shape = ObservationShape { planes, height, width };
            evaluator_doubles::conformance::run(&mut evaluator, shape, architecture.actions, 0.0);
        }
    }
}

#[test]
fn the_first_path_that_works_is_chosen() {
    let architecture = architecture([2, 6, 7], 64, 6);
    let available: Vec<KernelVariant> = available().collect();
    assert_eq!(choose_variant(&architecture, &available).unwrap().path, available[0]);
    let portable = choose_variant(&architecture, &[KernelVariant::PortableF32]).unwrap();
    assert_eq!((portable.path, portable.reason.as_str()), (KernelVariant::PortableF32, "the widest available"));
    if available[0] != KernelVariant::PortableF32 {
        let slow_first = choose_variant(&architecture, &[KernelVariant::PortableF32, available[0]]).unwrap();
        assert_eq!(slow_first.reason, format!("faster than {}", available[0]));
    }
    assert!(matches!(choose_variant(&architecture, &[]), Err(Error::Unavailable { .. })));
}

#[test]
fn an_unavailable_path_is_refused_by_name() {
    let architecture = architecture([2, 3, 3], 16, 1);
    for path in KernelVariant::ALL.into_iter().filter(|path| !path.is_available()) {
        assert!(matches!(Tower::random(&architecture, 1, path), Err(Error::Unavailable { .. })));
        let error = choose_variant(&architecture, &[path]).unwrap_err();
        assert!(error.to_string().contains(path.name()), "{error}");
    }
}

#[test]
fn unsupported_architectures_are_refused_with_the_reason() {
    let odd = architecture([2, 6, 7], 40, 1);
    let error = choose_variant(&odd, &KernelVariant::ALL).unwrap_err();
    assert_eq!(error.to_string(), "the CPU kernel does not support 40 channels, only a multiple of 16");
    let design = Design { block: BlockKind::Bottleneck, ..Design::default() };
    let narrow = Architecture { design, ..architecture([2, 6, 7], 48, 1) };
    let returns = Architecture { model: weights::Model::AlphazeroReturns { support: 3 }, ..odd.clone() };
    let reasons = [narrow, returns].map(|of| supports(&of).unwrap_err().to_string());
    let expected = ["48 channels, only a multiple of 32 in bottleneck blocks", "40 channels, only a multiple of 16"];
    assert_eq!(reasons, expected.map(|sizes| format!("the CPU kernel does not support {sizes}")));
    let vectors = Architecture { model: weights::Model::Muzero { support: 3 }, ..architecture([2, 1, 1], 40, 1) };
    supports(&vectors).unwrap();
    let pooled = Architecture { global_pooling: 32, ..architecture([2, 6, 7], 32, 1) };
    assert!(matches!(
        choose_variant(&pooled, &KernelVariant::ALL),
        Err(Error::Network(network::Error::Architecture { what: "global_pooling", .. }))
    ));
}

#[test]
fn weights_that_overflow_are_refused_as_not_finite() {
    let architecture = architecture([2, 3, 3], 16, 2);
    let mut network = Folded::random(&architecture, 1).unwrap();
    network.stem.bias.fill(f32::MAX);
    for path in available() {
        let tower = Arc::new(Tower::from_folded(&network, path, None).unwrap());
        let mut evaluator = TowerEvaluator::new(tower, WeightsVersion(9));
        let answer = evaluator.evaluate(&batch(&architecture, 3, 1), &mut Predictions::new());
        assert!(matches!(answer, Err(inference::Error::NotFinite { weights_version: 9 })), "{path}: {answer:?}");
    }
}

#[test]
fn path_names_are_read_back() {
    for path in KernelVariant::ALL.into_iter().chain(KernelVariant::INT8) {
        assert_eq!(path.name().parse::<KernelVariant>(), Ok(path));
    }
    let error = "sse".parse::<KernelVariant>().unwrap_err();
    assert!(error.starts_with("`sse` is not a path of the CPU kernel: expected one of amx-bf16, "), "{error}");
}

/// A tower of `network` for an integer path, calibrated on the batch that it will evaluate.
fn quantised(network: &Folded, path: KernelVariant, batch: &Batch) -> Tower {
    let ranges = Tower::from_folded(network, path.base(), None).unwrap().ranges(batch.observations());
    Tower::from_folded(network, path, Some(&ranges)).unwrap()
}

#[test]
fn every_path_of_integers_stays_near_float64() {
    let excited = Architecture { squeeze_excitation: 8, global_pooling: 8, ..architecture([2, 6, 7], 48, 4) };
    for architecture in [architecture([2, 6, 7], 64, 4), architecture([17, 9, 9], 80, 2), excited] {
        let network = Folded::random(&architecture, 7).unwrap();
        let batch = batch(&architecture, 6, 11);
        let logits = reference_logits(&network, &batch);
        for path in KernelVariant::INT8.into_iter().filter(|path| path.is_available()) {
            let tower = Arc::new(quantised(&network, path, &batch));
            let worst = distance(&logits, &mut TowerEvaluator::new(tower, WeightsVersion(1)), &batch);
            assert!(worst <= 0.01, "{path} on {architecture:?} is off by {worst}");
        }
    }
}

#[test]
fn paths_of_integers_give_the_same_answers() {
    let architecture = architecture([2, 6, 7], 64, 3);
    let network = Folded::random(&architecture, 3).unwrap();
    let batch = batch(&architecture, 5, 2);
    let mut plain =
        TowerEvaluator::new(Arc::new(quantised(&network, KernelVariant::PortableI8, &batch)), WeightsVersion(1));
    let (mut want, mut got) = (Predictions::new(), Predictions::new());
    plain.evaluate(&batch, &mut want).unwrap();
    for path in KernelVariant::INT8.into_iter().filter(|path| path.is_available()) {
        TowerEvaluator::new(Arc::new(quantised(&network, path, &batch)), WeightsVersion(1))
            .evaluate(&batch, &mut got)
            .unwrap();
        for index in 0..batch.len() {
            let pairs = got.priors(index).iter().zip(want.priors(index));
            let worst = pairs.map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
            // The floating-point parts round differently, and so occasionally does an integer.
            assert!(worst < 0.004, "{path} is off by {worst} from plain Rust");
        }
    }
}

#[test]
fn a_path_of_integers_needs_ranges() {
    let network = Folded::random(&architecture([2, 3, 3], 16, 1), 1).unwrap();
    let error = Tower::from_folded(&network, KernelVariant::PortableI8, None).unwrap_err();
    assert!(matches!(error, Error::Unavailable { path: KernelVariant::PortableI8, .. }), "{error}");
}
