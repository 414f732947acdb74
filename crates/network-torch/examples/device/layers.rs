//! Training steps and an evaluation of each optional layer, model and setting, compared with the CPU in float32.

use game::Action;
use inference::{Batch, Evaluator as _, LatentModel, LatentPredictions, Predictions, Slot, Unroll};
use network_torch::{Device, LibtorchEvaluator, LibtorchLatent, Network, Trainer};
use training::{
    Error, Examples, Losses, MomentFormat, Precision, Recompute, Trainer as _, TrainerSettings, TrainingKernel,
    UnrolledBatch,
};
use weights::{Architecture, Design, HeadKind, Model, NormKind, WeightsVersion};

use crate::output::Kind;
use crate::towers::{Board, CONNECT_FOUR, distance, plain, positions, training_batch};
use crate::{Result, Settings};

/// Positions of a batch, and unrolled steps of each.
const POSITIONS: usize = 32;
const UNROLL_STEPS: usize = 3;
/// Bars of gradients and of losses after three steps. A float16 has 10 bits after the point.
const F32_BAR: f64 = 1e-3;
const F16_BAR: f64 = 5e-2;
const LOSS_BAR: f64 = 1e-2;

/// A layer, model or setting that the other steps lack.
struct Case {
    name: &'static str,
    architecture: Architecture,
    training: TrainerSettings,
}

fn cases() -> Vec<Case> {
    // Each cell is an action, as pooled heads need it.
    const BOARD: Board = [3, 5, 5, 26];
    let training = || TrainerSettings { tower: TrainingKernel::Libtorch, ..TrainerSettings::default() };
    let of = |name, training, architecture| Case { name, architecture, training };
    let tower = |design| Architecture { design, ..plain(2, 32, BOARD) };
    let model = |model| Architecture { model, ..plain(2, 32, CONNECT_FOUR) };
    let norm = |norm| tower(Design { norm, ..Design::default() });
    let attention = Design { attention: 1, attention_heads: 4, ..Design::default() };
    let heads = Design { heads: HeadKind::Pooled, ..Design::default() };
    let (muzero, stochastic) = (Model::Muzero { support: 5 }, Model::StochasticMuzero { support: 5, codes: 4 });
    let loss_weights = Losses { consistency: 2.0, ..Losses::WEIGHTS };
    vec![
        of("odd channels", training(), plain(2, 15, CONNECT_FOUR)),
        of("attention", training(), tower(attention)),
        of("pooled heads", training(), tower(heads)),
        of("group norms", training(), norm(NormKind::Group)),
        of("layer norms", training(), norm(NormKind::Layer)),
        of("float16", TrainerSettings { precision: Precision::F16, ..training() }, plain(2, 32, CONNECT_FOUR)),
        of("int8 moments", TrainerSettings { moments: MomentFormat::Int8, ..training() }, plain(2, 32, CONNECT_FOUR)),
        of("recomputation", TrainerSettings { recompute: Recompute::Blocks, ..training() }, plain(4, 32, CONNECT_FOUR)),
        of("muzero", training(), model(muzero)),
        of("consistency", TrainerSettings { loss_weights, ..training() }, model(muzero)),
        of("stochastic muzero", training(), model(stochastic)),
    ]
}

/// Compares every case.
pub(super) fn run(settings: &Settings) -> Result<()> {
    let device = settings.training_device()?.device;
    for case in cases() {
        let (expected, expected_loss) = trained(&case, Device::Cpu, Precision::F32)?;
        let (got, loss) = trained(&case, device, case.training.precision)?;
        let bar = if case.training.precision == Precision::F32 { F32_BAR } else { F16_BAR };
        let of = |what: &str| format!("{}: {what}", case.name);
        settings.at_most(Kind::Correctness, &of("first gradient"), (relative(&got, &expected), "relative"), bar);
        let loss = (loss / expected_loss - 1.0).abs();
        settings.at_most(Kind::Correctness, &of("loss of the third step"), (loss, "relative"), bar.max(LOSS_BAR));
        let error = evaluation_error(&case.architecture, device)?;
        settings.at_most(Kind::Correctness, &of("evaluation"), (error, "relative"), F32_BAR);
    }
    Ok(())
}

/// Returns the gradient of the first step and the loss of the third one.
fn trained(case: &Case, device: Device, precision: Precision) -> Result<(Vec<f32>, f64)> {
    let of_training = TrainerSettings { precision, ..case.training.clone() };
    let network = Network::to_train(&case.architecture, &of_training, device, 3)?;
    let (mut trainer, examples) = (Trainer::new(network, of_training)?, examples(case));
    let first = step(&mut trainer, &examples)?;
    let gradient = trainer.take_gradient()?.ok_or("the step kept no gradient")?;
    let loss = (0..2).try_fold(first, |_, _| step(&mut trainer, &examples))?;
    Ok((gradient, loss))
}

/// Takes a step and returns the total loss. In float16 the loss scale falls until the gradient has no overflow.
fn step(trainer: &mut Trainer, examples: &Examples) -> Result<f64> {
    loop {
        trainer.keep_gradient();
        match trainer.step(examples) {
            Err(Error::Overflow { .. }) => {}
            taken => return Ok(taken?.total),
        }
    }
}

fn examples(Case { architecture, training, .. }: &Case) -> Examples {
    if architecture.model == Model::Alphazero {
        return training_batch(architecture, POSITIONS, 1).into();
    }
    let (steps, states) = (POSITIONS * UNROLL_STEPS, POSITIONS * (UNROLL_STEPS + 1));
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let observations = |positions: usize| {
        let numbers = positions * planes * height * width;
        (0..numbers).map(|index| f32::from(u8::from(index * 37 % 101 < 30))).collect()
    };
    // Other models take no observations after the first one.
    let next = if training.loss_weights.consistency > 0.0 || architecture.model.codes() > 0 { steps } else { 0 };
    let batch = UnrolledBatch {
        unroll_steps: UNROLL_STEPS,
        observations: observations(POSITIONS),
        actions: (0..steps).map(|index| (index * 5 % actions) as u16).collect(),
        policies: vec![1.0 / actions as f32; states * actions],
        policy_weights: vec![1.0; states],
        values: (0..states).map(|index| (index % 7) as f32 - 3.0).collect(),
        value_weights: vec![1.0; states],
        rewards: (0..steps).map(|index| (index % 3) as f32).collect(),
        next_observations: observations(next),
        next_weights: vec![1.0; next],
        chance_weights: vec![1.0; next],
        importance: Vec::new(),
    };
    batch.into()
}

/// Returns the relative error of an evaluation; of a learned model with a step from each state.
fn evaluation_error(architecture: &Architecture, device: Device) -> Result<f64> {
    let bytes = Network::new(architecture, Device::Cpu, 7)?.to_safetensors()?;
    let batch = positions(architecture, POSITIONS, 8);
    if architecture.model != Model::Alphazero {
        let [expected, got] = [Device::Cpu, device].map(|device| latent(architecture, &bytes, &batch, device));
        return Ok(relative(&got?, &expected?));
    }
    let [expected, got] = [Device::Cpu, device].map(|device| -> Result<Predictions> {
        let mut predictions = Predictions::new();
        LibtorchEvaluator::new(architecture, WeightsVersion(1), &bytes, device, Precision::F32)?
            .evaluate(&batch, &mut predictions)?;
        Ok(predictions)
    });
    let (expected, got) = (expected?, got?);
    let (errors, wholes): (Vec<f64>, Vec<f64>) = (0..POSITIONS).map(|i| distance(&got, i, &expected, i)).unzip();
    Ok((errors.iter().sum::<f64>() / wholes.iter().sum::<f64>()).sqrt())
}

fn latent(architecture: &Architecture, bytes: &[u8], batch: &Batch, device: Device) -> Result<Vec<f32>> {
    answers(&mut LibtorchLatent::new(architecture, WeightsVersion(1), bytes, device, Precision::F32)?, batch)
}

/// Returns all numbers that a learned model predicts for the positions and after one step from each.
pub(super) fn answers(model: &mut dyn LatentModel, batch: &Batch) -> Result<Vec<f32>> {
    let slots: Vec<Slot> = (0..2 * u32::try_from(batch.len())?).map(Slot).collect();
    model.reserve(slots.len())?;
    let (from, to) = slots.split_at(batch.len());
    let mut predictions = LatentPredictions::default();
    model.initial(batch, from, &mut predictions)?;
    let mut numbers = flat(&predictions);
    let step = |(&from, &to): (&Slot, &Slot)| Unroll { from, action: Action(2), to };
    let steps: Vec<Unroll> = from.iter().zip(to).map(step).collect();
    match model.codes() {
        0 => model.recurrent(&steps, &mut predictions)?,
        _ => model.act(&steps, &mut predictions)?,
    }
    numbers.extend(flat(&predictions));
    Ok(numbers)
}

fn flat(predictions: &LatentPredictions) -> Vec<f32> {
    let of = |i| predictions.priors(i).iter().copied().chain([predictions.value(i), predictions.reward(i)]);
    (0..predictions.len()).flat_map(of).collect()
}

/// Returns ‖got − expected‖ / ‖expected‖.
pub(super) fn relative(got: &[f32], expected: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let error = squares(&mut got.iter().zip(expected).map(|(got, expected)| f64::from(got - expected)));
    (error / squares(&mut expected.iter().map(|&expected| f64::from(expected)))).sqrt()
}
