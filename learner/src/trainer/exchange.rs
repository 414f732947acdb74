//! Compares the training backends with each other, and exchanges states between backends.

use game::{Action, ObservationShape};
use inference::{Batch, Evaluator, Predictions};
use network_torch::{Device, LibtorchEvaluator, Network};
use training::checkpoint::State;
use training::growth::grow;
use training::{
    Decay, Laps, Layout, Losses, MomentFormat, Numbers, Optimiser, Precision, Recompute, TrainerSettings,
    TrainingBatch, TrainingKernel, UnrolledBatch, checkpoint,
};
use weights::{Activation, Architecture, BlockKind, Design, HeadKind, Model, NormKind, WeightsVersion};

use super::conformance::{files, published, step};
use super::*;

/// Returns an architecture with every optional layer.
fn complete() -> Architecture {
    Architecture { squeeze_excitation: 6, global_pooling: 5, ..Architecture::plain("any", [3, 6, 7], 7, [20, 3]) }
}

fn plain() -> Architecture {
    Architecture { squeeze_excitation: 0, global_pooling: 0, channels: 48, height: 5, width: 5, ..complete() }
}

/// Returns an architecture for vector observations.
fn vectors() -> Architecture {
    Architecture { height: 1, width: 1, blocks: 2, squeeze_excitation: 0, global_pooling: 0, ..complete() }
}

/// Returns architectures with latent states, each with the consistency loss weight to train with.
fn latent() -> Vec<(Architecture, f64)> {
    let small = Architecture { channels: 12, height: 4, width: 3, blocks: 1, ..complete() };
    let deep = Architecture { blocks: 3, ..small.clone() };
    let with = |architecture: &Architecture, model, weight| (Architecture { model, ..architecture.clone() }, weight);
    [vectors(), small]
        .iter()
        .flat_map(|architecture| {
            [
                with(architecture, Model::AlphazeroReturns { support: 5 }, 0.0),
                with(architecture, Model::Muzero { support: 5 }, 0.0),
                with(architecture, Model::Muzero { support: 5 }, 2.0),
                with(architecture, Model::StochasticMuzero { support: 5, codes: 6 }, 2.0),
            ]
        })
        .chain([with(&deep, Model::Muzero { support: 5 }, 0.0)])
        .collect()
}

/// Returns architectures with other designs.
fn designs() -> Vec<Architecture> {
    let activations = Activation::ALL.into_iter().skip(1);
    let designs = activations.map(|activation| Design { activation, ..Design::default() });
    // With ReLU, rounding would change the sign of some value after twelve convolutions, and thus the gradients.
    let bottleneck = Design { activation: Activation::Mish, block: BlockKind::Bottleneck, ..Design::default() };
    designs
        .chain([bottleneck])
        .map(|design| Architecture { design, ..complete() })
        .chain(of_positions().map(|design| Architecture { design, channels: 32, height: 4, width: 5, ..complete() }))
        .chain([pooled()])
        .collect()
}

/// Returns an architecture with pooled heads, and three actions for each cell plus one more.
fn pooled() -> Architecture {
    let design = Design { activation: Activation::Silu, heads: HeadKind::Pooled, ..Design::default() };
    Architecture { design, channels: 32, height: 4, width: 5, actions: 3 * 20 + 1, ..complete() }
}

/// Returns designs with attention blocks, and with norms of single positions.
fn of_positions() -> [Design; 3] {
    let smooth = Design { activation: Activation::Silu, ..Design::default() };
    let attention = Design { attention: 2, attention_heads: 4, ..smooth };
    [attention, Design { norm: NormKind::Layer, ..smooth }, Design { norm: NormKind::Group, ..attention }]
}

fn settings() -> TrainerSettings {
    TrainerSettings { warm_up_steps: 2, decay_steps: Some(9), ..TrainerSettings::default() }
}

fn libtorch(architecture: &Architecture, settings: TrainerSettings) -> Box<dyn Trainer> {
    // Waiting libtorch threads use the CPU, which slows concurrent tests by minutes.
    network_torch::set_threads(1);
    let settings = TrainerSettings { tower: TrainingKernel::Libtorch, ..settings };
    let network = Network::to_train(architecture, &settings, Device::Cpu, 1).unwrap();
    Box::new(network_torch::Trainer::new(network, settings).unwrap())
}

fn kernels(architecture: &Architecture, settings: TrainerSettings) -> Box<dyn Trainer> {
    Box::new(training_cpu::Trainer::new(architecture, settings, 1, 2).unwrap())
}

/// Returns a pseudo-random value from 0 to below 1, which depends only on `index`.
fn noise(index: usize) -> f32 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as f32 / (1 << 24) as f32
}

/// Returns training examples for an architecture of any model: AlphaZero, MuZero or Stochastic MuZero.
fn batch(architecture: &Architecture, positions: usize, first: usize) -> Examples {
    match architecture.model {
        Model::Alphazero => positions_of(architecture, positions, first),
        Model::AlphazeroReturns { .. } => unrolled(architecture, positions, 0, first),
        Model::Muzero { .. } | Model::StochasticMuzero { .. } => unrolled(architecture, positions, 3, first),
    }
}

/// Returns positions with unrolled steps, some without weight, and importance weights.
fn unrolled(architecture: &Architecture, positions: usize, steps: usize, first: usize) -> Examples {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let (observation, states) = (planes * height * width, positions * (steps + 1));
    let draw = |len: usize, nth: usize| (0..len).map(move |index| noise(first + 31 * nth + index));
    let weights = |len: usize, nth: usize| draw(len, nth).map(|x| f32::from(u8::from(x > 0.2))).collect();
    let shares: Vec<f32> = draw(states * actions, 1).collect();
    let policies = shares.chunks(actions).flat_map(|row| row.iter().map(|share| share / row.iter().sum::<f32>()));
    Examples::Unrolled(UnrolledBatch {
        unroll_steps: steps,
        observations: draw(positions * observation, 2).map(f32::round).collect(),
        actions: draw(positions * steps, 3).map(|x| (x * actions as f32) as u16).collect(),
        policies: policies.collect(),
        policy_weights: weights(states, 4),
        values: draw(states, 5).map(|x| 6.0 * x - 3.0).collect(),
        value_weights: weights(states, 6),
        rewards: draw(positions * steps, 7).map(|x| 2.0 * x - 1.0).collect(),
        next_observations: draw(positions * steps * observation, 8).map(f32::round).collect(),
        next_weights: weights(positions * steps, 9),
        chance_weights: weights(positions * steps, 10),
        importance: draw(positions, 11).map(|x| 1.0 - 0.5 * x).collect(),
    })
}

/// Returns positions with illegal actions and importance weights. The last position has no policy target.
fn positions_of(architecture: &Architecture, positions: usize, first: usize) -> Examples {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut batch = TrainingBatch {
        observations: (0..positions * planes * height * width).map(|cell| noise(first + cell).round()).collect(),
        ..TrainingBatch::default()
    };
    for position in 0..positions {
        let legal: Vec<u8> = (0..actions).map(|action| u8::from(action % 3 != position % 3)).collect();
        let shares: Vec<f32> = (0..actions).map(|action| noise(first + 7 * position + action)).collect();
        let sum: f32 = shares.iter().zip(&legal).map(|(share, &legal)| share * f32::from(legal)).sum();
        batch.policies.extend(shares.iter().zip(&legal).map(|(share, &legal)| share * f32::from(legal) / sum));
        batch.legal.extend(legal);
        batch.wdl.extend([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]][position % 3]);
        batch.policy_weights.push(if position + 1 == positions { 0.0 } else { 1.0 });
        batch.importance.push(1.0 - 0.5 * noise(first + position));
    }
    Examples::Positions(batch)
}

fn trained(trainer: &mut dyn Trainer, examples: &Examples) -> Trained {
    trainer.queue(examples, &mut Laps::none()).unwrap();
    trainer.collect(&mut Laps::none()).unwrap().unwrap()
}

/// Returns the trained parameters.
fn numbers(layout: &Layout, trainer: &dyn Trainer) -> Numbers {
    checkpoint::read(layout, &files(trainer)[0].1).unwrap()
}

/// Asserts that the parameter changes of both backends agree: for every tensor, the distance is at most `tolerance`
/// times the norm.
fn assert_changes_agree(entries: &[training::Entry], before: &[f32], [got, expected]: [&[f32]; 2], tolerance: f64) {
    for entry in entries {
        let change = |after: &[f32], index: usize| f64::from(after[index]) - f64::from(before[index]);
        let norm = |of: &dyn Fn(usize) -> f64| entry.range().map(|index| of(index).powi(2)).sum::<f64>().sqrt();
        let apart = norm(&|index| change(got, index) - change(expected, index));
        let size = norm(&|index| change(expected, index));
        assert!(apart <= tolerance * size.max(1e-2), "{}: {apart} of {size}", entry.tensor.name);
    }
}

/// Returns settings for plain gradient descent, which changes each parameter by the gradient.
fn descent(consistency: f64) -> TrainerSettings {
    TrainerSettings {
        loss_weights: Losses { consistency, ..Losses::WEIGHTS },
        optimiser: Optimiser::Sgd { momentum: 0.0 },
        learning_rate: 1.0,
        warm_up_steps: 0,
        decay: Decay::Constant,
        weight_decay: 0.0,
        gradient_clip_norm: 1e9,
        ..TrainerSettings::default()
    }
}

#[test]
fn both_backends_begin_alike_and_have_the_same_gradients_losses_and_statistics() {
    let alphazero = [complete(), plain()].into_iter().chain(designs()).map(|architecture| (architecture, 0.0));
    for (architecture, consistency) in alphazero.chain(latent()) {
        let mut backends = [libtorch, kernels].map(|make| make(&architecture, descent(consistency)));
        let layout = descent(consistency).layers(&architecture).unwrap().layout();
        let before = backends.each_ref().map(|trainer| numbers(&layout, trainer.as_ref()));
        assert_eq!(before[0], before[1]);
        // With many positions in a long unroll, rounding changes the sign before some ReLU, and thus the gradients.
        let positions = if architecture.model == Model::Alphazero { 37 } else { 12 };
        let batch = batch(&architecture, positions, 5);
        let [expected, got] = backends.each_mut().map(|trainer| trained(trainer.as_mut(), &batch));
        let of = |trained: &Trained| trained.losses.into_array();
        for (got, expected) in of(&got).into_iter().zip(of(&expected)) {
            assert!((got - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{got} instead of {expected}");
        }
        assert_eq!(got.value_errors.len(), positions);
        for (got, expected) in got.value_errors.iter().zip(&expected.value_errors) {
            assert!((got - expected).abs() < 1e-4, "{got} instead of {expected}");
        }
        let [expected, got] = backends.each_ref().map(|trainer| numbers(&layout, trainer.as_ref()));
        let pair = [&got.parameters[..], &expected.parameters];
        assert_changes_agree(&layout.parameters, &before[0].parameters, pair, 1e-4);
        let pair = [&got.statistics[..], &expected.statistics];
        assert_changes_agree(&layout.statistics, &before[0].statistics, pair, 1e-4);
    }
}

#[test]
fn recomputed_activations_of_both_backends_give_the_gradients_losses_and_statistics_of_kept_ones() {
    let deep = Architecture { blocks: 9, channels: 10, ..complete() };
    let attention = Design { attention: 9, attention_heads: 4, ..Design::default() };
    let transformer = Architecture { blocks: 0, design: attention, ..plain() };
    let of_positions = designs().into_iter().filter(|architecture| architecture.channels == 32);
    for architecture in [complete(), plain(), deep, transformer].into_iter().chain(of_positions) {
        let layout = descent(0.0).layers(&architecture).unwrap().layout();
        let batch = batch(&architecture, 37, 5);
        let before = numbers(&layout, kernels(&architecture, descent(0.0)).as_ref());
        let [expected, in_libtorch, in_kernels] =
            [(libtorch as fn(&Architecture, TrainerSettings) -> Box<dyn Trainer>, Recompute::None)]
                .into_iter()
                .chain([(libtorch as _, Recompute::Blocks), (kernels as _, Recompute::Blocks)])
                .map(|(make, recompute)| {
                    let mut trainer = make(&architecture, TrainerSettings { recompute, ..descent(0.0) });
                    let losses = step(trainer.as_mut(), &batch).unwrap();
                    (losses.total, numbers(&layout, trainer.as_ref()))
                })
                .collect::<Vec<_>>()
                .try_into()
                .unwrap();
        for (loss, got) in [in_libtorch, in_kernels] {
            assert!((loss - expected.0).abs() < 1e-4, "{loss} instead of {}", expected.0);
            let pair = [&got.parameters[..], &expected.1.parameters];
            assert_changes_agree(&layout.parameters, &before.parameters, pair, 1e-4);
            let pair = [&got.statistics[..], &expected.1.statistics];
            assert_changes_agree(&layout.statistics, &before.statistics, pair, 1e-4);
        }
    }
}

#[test]
fn a_checkpoint_of_one_backend_resumes_in_the_other() {
    let muzero = Architecture { model: Model::Muzero { support: 5 }, blocks: 1, ..complete() };
    let consistent = Architecture { model: Model::Muzero { support: 5 }, ..vectors() };
    let designs = designs().into_iter().map(|architecture| (architecture, 0.0));
    for (architecture, consistency) in [(complete(), 0.0), (muzero, 0.0), (consistent, 2.0)].into_iter().chain(designs)
    {
        for (optimiser, moments) in [
            (Optimiser::adamw(), MomentFormat::F32),
            (Optimiser::adamw(), MomentFormat::Int8),
            (Optimiser::Sgd { momentum: 0.9 }, MomentFormat::Bf16),
            (Optimiser::lion(), MomentFormat::Bf16),
            (Optimiser::Muon { momentum: 0.95 }, MomentFormat::F32),
        ] {
            // Key biases shift all attention scores equally. Gradients of such biases, and of biases before batch
            // norms, are rounding errors, which other optimisers would amplify to full steps.
            if architecture.design.attention > 0 && !matches!(optimiser, Optimiser::Sgd { .. }) {
                continue;
            }
            let loss_weights = Losses { consistency, ..Losses::WEIGHTS };
            let settings = TrainerSettings { optimiser, moments, loss_weights, ..settings() };
            for [first, second] in [[libtorch, kernels], [kernels, libtorch]] {
                let mut one = first(&architecture, settings.clone());
                for start in 0..3 {
                    trained(one.as_mut(), &batch(&architecture, 20, 1000 * start));
                }
                let next = batch(&architecture, 20, 7000);
                resume(one, second(&architecture, settings.clone()), &architecture, &settings, &next);
            }
        }
    }
}

/// Alternates between batches of two boards: the network's board and an added board.
#[test]
fn both_backends_train_alike_on_two_boards_and_resume_each_other() {
    let own = pooled();
    let other = Architecture { game: "any-5x3".into(), height: 5, width: 3, actions: 3 * 15 + 1, ..pooled() };
    let next = |turn: usize| match turn % 2 {
        0 => batch(&own, 20, 1000 * turn),
        _ => on_board(1, batch(&other, 20, 1000 * turn)),
    };
    let settings = TrainerSettings { optimiser: Optimiser::Sgd { momentum: 0.9 }, ..settings() };
    let trainer = |make: fn(&Architecture, TrainerSettings) -> Box<dyn Trainer>| {
        let mut trainer = make(&own, settings.clone());
        assert_eq!(trainer.add_board(&other).unwrap(), 1);
        trainer
    };
    let mut backends = [libtorch, kernels].map(trainer);
    let layout = settings.layers(&own).unwrap().layout();
    let before = numbers(&layout, backends[0].as_ref());
    for turn in 0..4 {
        let examples = next(turn);
        let [expected, got] = backends.each_mut().map(|backend| step(backend.as_mut(), &examples).unwrap().total);
        assert!((got - expected).abs() < 1e-4, "{got} instead of {expected} in step {turn}");
    }
    let [expected, got] = backends.each_ref().map(|backend| numbers(&layout, backend.as_ref()));
    let pair = [&got.parameters[..], &expected.parameters];
    assert_changes_agree(&layout.parameters, &before.parameters, pair, 1e-3);
    for ([one, other], turn) in [[libtorch, kernels], [kernels, libtorch]].into_iter().zip([4, 5]) {
        let mut one = trainer(one);
        one.load(&files(backends[0].as_ref())).unwrap();
        resume(one, trainer(other), &own, &settings, &next(turn));
    }
}

fn on_board(board: usize, examples: Examples) -> Examples {
    match examples {
        Examples::Positions(batch) => Examples::Positions(TrainingBatch { board, ..batch }),
        Examples::Unrolled(_) => panic!("learned models have one board"),
    }
}

/// Loads the state of `one` into `other`, and trains the same step with both.
fn resume(
    mut one: Box<dyn Trainer>,
    mut other: Box<dyn Trainer>,
    architecture: &Architecture,
    settings: &TrainerSettings,
    next: &Examples,
) {
    other.load(&files(one.as_ref())).unwrap();
    assert_eq!(files(other.as_ref()), files(one.as_ref()));
    assert_eq!(published(other.as_ref()), published(one.as_ref()));
    assert_eq!((other.step_count(), other.learning_rate()), (one.step_count(), one.learning_rate()));

    let layout = settings.layers(architecture).unwrap().layout();
    let before = numbers(&layout, one.as_ref());
    let losses = [&mut one, &mut other].map(|trainer| step(trainer.as_mut(), next).unwrap().total);
    assert!((losses[0] - losses[1]).abs() < 1e-4, "{losses:?}");
    let [expected, got] = [&one, &other].map(|trainer| numbers(&layout, trainer.as_ref()));
    // AdamW divides by roots of small second moments, which amplifies rounding errors. Lion uses the sign of means;
    // near 0, rounding changes the sign. Muon multiplies small singular values by up to 485, including rounding errors.
    let tolerance = match settings.optimiser {
        Optimiser::Lion { .. } => 0.2,
        Optimiser::Muon { .. } => 3e-2,
        _ => 1e-2,
    };
    let pair = [&got.parameters[..], &expected.parameters];
    assert_changes_agree(&layout.parameters, &before.parameters, pair, tolerance);
}

/// Returns priors and outcome probabilities computed from published weights.
fn answers(architecture: &Architecture, bytes: &[u8], positions: usize) -> Vec<f32> {
    let evaluator =
        LibtorchEvaluator::new(architecture, WeightsVersion(1), bytes, Device::Cpu, Precision::F32).unwrap();
    answers_of(Box::new(evaluator), architecture, positions)
}

/// Returns priors and outcome probabilities of an evaluator.
fn answers_of(mut evaluator: Box<dyn Evaluator>, architecture: &Architecture, positions: usize) -> Vec<f32> {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut batch = Batch::new(ObservationShape { planes, height, width });
    let legal: Vec<Action> = (0..actions as u16).map(Action).collect();
    for position in 0..positions {
        batch.push(&legal, |planes| {
            planes.iter_mut().enumerate().for_each(|(index, x)| *x = noise(97 * position + index).round());
        });
    }
    let mut predictions = Predictions::new();
    evaluator.evaluate(&batch, &mut predictions).unwrap();
    let of_position = |index: usize| {
        let value = predictions.wdl()[index];
        predictions.priors(index).iter().copied().chain([value.win, value.draw, value.loss]).collect::<Vec<_>>()
    };
    (0..positions).flat_map(of_position).collect()
}

#[test]
fn the_kernels_of_the_cpu_answer_as_libtorch_does_from_what_was_trained_in_every_design() {
    for architecture in designs().into_iter().map(|architecture| Architecture { channels: 32, ..architecture }) {
        let descent = TrainerSettings { learning_rate: 0.05, ..descent(0.0) };
        let mut trainer = kernels(&architecture, descent);
        for start in 0..3 {
            trained(trainer.as_mut(), &batch(&architecture, 20, 1000 * start));
        }
        let bytes = published(trainer.as_ref());
        let expected = answers(&architecture, &bytes, 9);
        for path in network_cpu::KernelVariant::ALL.into_iter().filter(|path| path.is_available()) {
            let tower = network_cpu::Tower::new(&architecture, &bytes, path).unwrap();
            let evaluator = network_cpu::TowerEvaluator::new(std::sync::Arc::new(tower), WeightsVersion(1));
            let got = answers_of(Box::new(evaluator), &architecture, 9);
            let worst = got.iter().zip(&expected).map(|(got, expected)| (got - expected).abs()).fold(0.0, f32::max);
            let tolerance = if path.is_bf16() { 0.03 } else { 1e-4 };
            assert!(worst < tolerance, "{path} is off by {worst} on {architecture:?}");
        }
    }
}

#[test]
fn a_network_that_grows_answers_as_before_and_trains_on_in_both_backends() {
    let mish = Design { activation: Activation::Mish, block: BlockKind::Bottleneck, ..Design::default() };
    let narrow = Architecture { design: mish, ..complete() };
    let attention = Design { attention: 2, attention_heads: 6, ..Design::default() };
    for (from, to) in [
        (complete(), Architecture { blocks: 5, channels: 32, squeeze_excitation: 8, ..complete() }),
        (narrow.clone(), Architecture { channels: 26, ..narrow }),
        (plain(), Architecture { design: attention, ..plain() }),
    ] {
        let [old, new] = [&from, &to].map(|architecture| settings().layers(architecture).unwrap().layout());
        let mut small = kernels(&from, settings());
        for start in 0..3 {
            trained(small.as_mut(), &batch(&from, 20, 1000 * start));
        }
        let state = State::read(&old, settings().optimiser, MomentFormat::F32, &files(small.as_ref())).unwrap();
        let grown = grow(&from, &to, &state, 7).unwrap().files(&new, settings().optimiser).unwrap();
        let mut large = [libtorch, kernels].map(|make| make(&to, settings()));
        for trainer in &mut large {
            trainer.load(&grown).unwrap();
            assert_eq!((files(trainer.as_ref()), trainer.step_count()), (grown.clone(), 3));
            let before = answers(&from, &published(small.as_ref()), 10);
            let after = answers(&to, &published(trainer.as_ref()), 10);
            assert!(before.iter().zip(&after).all(|(before, after)| (before - after).abs() < 1e-5), "{to:?}");
        }
        let next = batch(&to, 20, 7000);
        let [first, second] = large.each_mut().map(|trainer| step(trainer.as_mut(), &next).unwrap().total);
        assert!((first - second).abs() < 1e-4, "{first} and {second}");
    }
}

/// Returns the gradients of a batch, as the parameter changes in a step of plain gradient descent.
fn gradient(mut trainer: Box<dyn Trainer>, layout: &Layout, examples: &Examples) -> Vec<f32> {
    let before = numbers(layout, trainer.as_ref());
    trained(trainer.as_mut(), examples);
    let after = numbers(layout, trainer.as_ref());
    before.parameters.iter().zip(&after.parameters).map(|(before, after)| before - after).collect()
}

#[test]
fn gradients_of_bfloat16_are_as_near_to_those_of_float32_as_in_libtorch() {
    if training_cpu::Path::fastest(Precision::Bf16).is_none() {
        println!("skipped: this CPU has no products of bfloat16");
        return;
    }
    let wide = Architecture { channels: 96, height: 6, width: 7, blocks: 2, ..plain() };
    // The channels suit matrix tiles, on a CPU that has tiles.
    let tiled = Architecture { channels: 64, ..complete() };
    for (architecture, consistency) in
        [complete(), plain(), wide, tiled].map(|alphazero| (alphazero, 0.0)).into_iter().chain(latent())
    {
        let layout = descent(consistency).layers(&architecture).unwrap().layout();
        let examples = batch(&architecture, 64, 5);
        let gradient = |make: fn(&Architecture, TrainerSettings) -> Box<dyn Trainer>, precision| {
            gradient(make(&architecture, TrainerSettings { precision, ..descent(consistency) }), &layout, &examples)
        };
        let exact = gradient(kernels, Precision::F32);
        // The mean distance over all tensors, relative to the norm of each tensor.
        let error = |gradient: &[f32]| {
            let of_tensor = |entry: &training::Entry| {
                let norm =
                    |of: &dyn Fn(usize) -> f32| entry.range().map(|index| f64::from(of(index)).powi(2)).sum::<f64>();
                (norm(&|index| gradient[index] - exact[index]) / norm(&|index| exact[index]).max(1e-12)).sqrt()
            };
            layout.parameters.iter().map(of_tensor).sum::<f64>() / layout.parameters.len() as f64
        };
        let errors = [kernels, libtorch].map(|make| error(&gradient(make, Precision::Bf16)));
        println!("errors of the kernels and of libtorch: {errors:?}, {architecture:?}");
        // In a dense MuZero network the projections of the consistency loss round more often than in libtorch: over
        // four batches the error is 1.24 times as large.
        let is_dense = architecture.height == 1 && matches!(architecture.model, Model::Muzero { .. });
        let factor = if is_dense && consistency > 0.0 { 1.3 } else { 1.1 };
        assert!(errors[0] <= factor * errors[1] && errors[0] > 1e-6, "{errors:?} of {architecture:?}");
    }
}
