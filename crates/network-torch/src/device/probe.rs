//! Comparison of a device with the CPU before use.
//!
//! This finds an incompatible driver, a missing operation or a device that computes wrong numbers early and not in
//! the middle of a run. Start with [`probe`].

use tch::{Device, Kind, Tensor};
use weights::Architecture;

use crate::{
    DeviceRules, Error, Network, Purpose, Trainer, device::plain_tower, folded::Folded, layout, network,
    rules::device_name,
};
use training::{Decay, Examples, Optimiser, Precision, Trainer as _, TrainerSettings, TrainingBatch};

/// A device that can be compared with the CPU.
pub(crate) trait Subject {
    /// Evaluates the network of `case` on the batch of `case` and returns the logits, `[B · (A + 3)]`.
    fn infer(&self, case: &Case, precision: Precision) -> Result<Vec<f32>, Error>;

    /// Trains the network of `case` on the batch of `case`.
    fn train(&self, case: &Case, precision: Precision, schedule: Schedule) -> Result<Trained, Error>;
}

/// A network and a batch.
#[derive(Debug)]
pub(crate) struct Case {
    architecture: Architecture,
    /// A safetensors file.
    weights: Vec<u8>,
    batch: TrainingBatch,
}

/// Results of training steps.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trained {
    /// Total loss of each step, before the weight update.
    losses: Vec<f64>,
    /// Changes of parameters and running statistics over all steps, tensor by tensor.
    changes: Vec<Vec<f32>>,
}

/// Training steps of a trial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    steps: usize,
    learning_rate: f64,
}

impl Schedule {
    /// For comparing changes of parameters: so large that rounding hides none of the changes.
    const ONE_STEP: Self = Self { steps: 1, learning_rate: 10.0 };
    /// For comparing losses: they fall by nearly half without diverging.
    const FEW_STEPS: Self = Self { steps: 4, learning_rate: 0.2 };
}

/// Positions per case.
const POSITIONS: usize = 32;

/// Returns the maximum relative difference: in logits; in the changes by a training step in float32; in losses in
/// bfloat16, as those gradients are too inexact to compare.
///
/// On the networks of the probe, sums in another order change logits and gradients by 4e-6 at most. Gradients in
/// bfloat16 differ by up to 0.23, and TF32 has an eighth of that rounding error. A zero gradient in place of the
/// right one differs by more than 0.6, for any tensor.
fn bar(precision: Precision, purpose: Purpose, rules: DeviceRules) -> f64 {
    match (precision, purpose) {
        (Precision::F32, Purpose::Inference) if rules.tf32_convolutions => 3e-3,
        (Precision::F32, Purpose::Training) if rules.tf32_convolutions => 1e-1,
        (Precision::F32, _) => 1e-3,
        (Precision::Bf16 | Precision::F16, Purpose::Inference) => 2e-2,
        (Precision::Bf16 | Precision::F16, Purpose::Training) => 5e-2,
    }
}

/// Compares the results of a device in `precision` for `purpose` with the CPU in float32, on a plain network and on
/// one with squeeze-and-excitation and global pooling. Returns the largest relative difference.
///
/// # Errors
/// Returns the human-readable reason why the device called `name` cannot be used: an operation that fails, or a
/// difference above the bar. NaN counts as a difference.
pub(crate) fn probe(
    subject: &dyn Subject,
    name: &str,
    precision: Precision,
    purpose: Purpose,
    rules: DeviceRules,
) -> Result<f64, String> {
    let trial = match purpose {
        Purpose::Inference => "inference batch",
        Purpose::Training => "training step",
    };
    let failed = |error: Error| format!("a trial {trial} in {precision} failed: {error}");
    let plain = plain_tower([2, 6, 7], [16, 2]);
    let complete = Architecture { blocks: 3, squeeze_excitation: 8, global_pooling: 8, ..plain.clone() };
    let mut largest = 0.0_f64;
    for architecture in [plain, complete] {
        let case = Case::new(architecture).map_err(|error| format!("the {trial} on the CPU failed: {error}"))?;
        largest = largest.max(difference(subject, &case, precision, purpose).map_err(failed)?);
    }
    let bar = bar(precision, purpose, rules);
    if largest <= bar {
        return Ok(largest);
    }
    if largest.is_infinite() {
        return Err(format!("output of the {trial} on {name} is not finite"));
    }
    Err(format!("the {trial} on {name} differs from the CPU by {largest:.1e} (relative), the limit is {bar:.0e}"))
}

/// Returns the largest relative difference from the CPU in float32; infinite if a number is not finite.
fn difference(subject: &dyn Subject, case: &Case, precision: Precision, purpose: Purpose) -> Result<f64, Error> {
    let train = |schedule| {
        Ok::<_, Error>((subject.train(case, precision, schedule)?, Device::Cpu.train(case, Precision::F32, schedule)?))
    };
    Ok(match (purpose, precision) {
        (Purpose::Inference, _) => {
            relative(&subject.infer(case, precision)?, &Device::Cpu.infer(case, Precision::F32)?, 0.0)
        }
        (Purpose::Training, Precision::F32) => {
            let (got, expected) = train(Schedule::ONE_STEP)?;
            // Tensors that hardly change are compared relative to all changes, since rounding may dominate such a
            // tensor's change.
            let least = 0.1 * root_mean_square(expected.changes.iter().flatten().copied());
            let tensors = got.changes.iter().zip(&expected.changes);
            tensors.map(|(got, expected)| relative(got, expected, least)).fold(of_losses(&got, &expected), f64::max)
        }
        (Purpose::Training, Precision::Bf16 | Precision::F16) => {
            let (got, expected) = train(Schedule::FEW_STEPS)?;
            let is_finite = got.changes.iter().flatten().all(|x| x.is_finite());
            if is_finite { of_losses(&got, &expected) } else { f64::INFINITY }
        }
    })
}

/// Returns the largest relative difference of a loss.
fn of_losses(got: &Trained, expected: &Trained) -> f64 {
    let narrow = |trained: &Trained| trained.losses.iter().map(|&loss| loss as f32).collect::<Vec<_>>();
    let (got, expected) = (narrow(got), narrow(expected));
    got.iter().zip(&expected).fold(0.0, |largest, (&got, &expected)| relative(&[got], &[expected], 0.0).max(largest))
}

/// Returns the root mean square difference, relative to the root mean square of the expected numbers or to `least` if
/// that is larger. Infinite if a number is not finite or the counts differ.
fn relative(got: &[f32], expected: &[f32], least: f64) -> f64 {
    if got.len() != expected.len() {
        return f64::INFINITY;
    }
    let apart = root_mean_square(got.iter().zip(expected).map(|(got, expected)| got - expected));
    let relative = apart / root_mean_square(expected.iter().copied()).max(least).max(f64::MIN_POSITIVE);
    if relative.is_finite() { relative } else { f64::INFINITY }
}

fn root_mean_square(numbers: impl Iterator<Item = f32>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0.0), |(sum, count), x| (sum + f64::from(x).powi(2), count + 1.0));
    if count > 0.0 { f64::sqrt(sum / count) } else { 0.0 }
}

/// Updates in proportion to the gradient: an epsilon far above the gradients takes away AdamW's normalisation, which
/// would hide every wrong gradient except for the sign.
fn settings(precision: Precision, learning_rate: f64) -> TrainerSettings {
    TrainerSettings {
        optimiser: Optimiser::AdamW { betas: [0.9, 0.999], epsilon: 1.0 },
        learning_rate,
        warm_up_steps: 0,
        decay: Decay::Constant,
        precision,
        ..TrainerSettings::default()
    }
}

impl Case {
    /// Creates a network after a few steps on the CPU, so that no parameter is at the initial value.
    fn new(architecture: Architecture) -> Result<Self, Error> {
        let batch = batch(&architecture);
        let examples = Examples::Positions(batch.clone());
        let settings = settings(Precision::F32, Schedule::FEW_STEPS.learning_rate);
        let mut trainer = Trainer::new(Network::new(&architecture, Device::Cpu, 0)?, settings)?;
        for _ in 0..3 {
            trainer.step(&examples)?;
        }
        Ok(Self { weights: trainer.network().to_safetensors()?, architecture, batch })
    }
}

/// Positions without regularity, with the policy on one action and the next.
fn batch(architecture: &Architecture) -> TrainingBatch {
    let Architecture { planes, height, width, actions, .. } = *architecture;
    let mut batch = TrainingBatch::default();
    for position in 0..POSITIONS {
        let bits = (position as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let cell = |index: usize| bits.rotate_left(u32::try_from(7 * index % 64).expect("below 64")) & 3 == 0;
        batch.observations.extend((0..planes * height * width).map(|index| f32::from(u8::from(cell(index)))));
        let of_action = |action: usize| match (action + position) % actions {
            0 => 0.75,
            1 => 0.25,
            _ => 0.0,
        };
        batch.policies.extend((0..actions).map(of_action));
        batch.legal.extend((0..actions).map(|_| 1));
        batch.wdl.extend((0..3).map(|result| f32::from(u8::from(result == position % 3))));
        batch.policy_weights.push(1.0);
    }
    batch
}

impl Subject for Device {
    fn infer(&self, case: &Case, precision: Precision) -> Result<Vec<f32>, Error> {
        infer(&Network::from_safetensors(&case.architecture, &case.weights, *self)?, case, precision)
    }

    fn train(&self, case: &Case, precision: Precision, schedule: Schedule) -> Result<Trained, Error> {
        train(Network::from_safetensors(&case.architecture, &case.weights, *self)?, case, precision, schedule)
    }
}

fn infer(network: &Network, Case { architecture, batch, .. }: &Case, precision: Precision) -> Result<Vec<f32>, Error> {
    let _guard = tch::no_grad_guard();
    let mut staged = vec![0.0; batch.observations.len()];
    let cells = architecture.height * architecture.width;
    layout::channels_last(&batch.observations.to_floats(), architecture.planes, cells, &mut staged);
    let folded = Folded::new(network, precision)?;
    network::download(&folded.forward(&Tensor::f_from_slice(&staged)?, POSITIONS)?)
}

fn train(network: Network, case: &Case, precision: Precision, schedule: Schedule) -> Result<Trained, Error> {
    let numbers = |network: &Network| -> Result<[Vec<f32>; 2], Error> {
        Ok([network::download(&network.flat_parameters)?, network::download(&network.flat_statistics)?])
    };
    let before = numbers(&network)?;
    let mut trainer = Trainer::new(network, settings(precision, schedule.learning_rate))?;
    let examples = Examples::Positions(case.batch.clone());
    let steps = (0..schedule.steps).map(|_| Ok(trainer.step(&examples)?.total));
    let losses = steps.collect::<Result<_, Error>>()?;
    let network = trainer.network();
    let after = numbers(network)?;
    let mut changes = Vec::new();
    let entries = [&network.layout.parameters, &network.layout.statistics];
    for ((before, after), entries) in before.iter().zip(&after).zip(entries) {
        changes.extend(entries.iter().map(|entry| {
            let pairs = before[entry.range()].iter().zip(&after[entry.range()]);
            pairs.map(|(before, after)| after - before).collect::<Vec<f32>>()
        }));
    }
    Ok(Trained { losses, changes })
}

/// Probes `device` in `precision`: see [`probe`].
pub(crate) fn probe_device(device: Device, precision: Precision, purpose: Purpose) -> Result<f64, String> {
    // A bare allocation first: without it a missing kernel and a missing device look the same.
    let allocated = Tensor::f_zeros([1_i64], (Kind::Float, device)).map_err(Error::from);
    drop(allocated.map_err(|error| format!("cannot allocate memory: {error}"))?);
    probe(&device, &device_name(device), precision, purpose, DeviceRules::of(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CPU as a stand-in for a device, with the device's rules and with modified results.
    struct StandIn {
        rules: DeviceRules,
        spoil_logits: fn(&mut Vec<f32>),
        spoil_training: fn(&mut Trained),
    }

    const RIGHT: StandIn = StandIn { rules: DeviceRules::CPU, spoil_logits: |_| (), spoil_training: |_| () };

    impl StandIn {
        fn network(&self, case: &Case) -> Result<Network, Error> {
            Ok(Network::from_safetensors(&case.architecture, &case.weights, Device::Cpu)?.with_rules(self.rules))
        }
    }

    impl Subject for StandIn {
        fn infer(&self, case: &Case, precision: Precision) -> Result<Vec<f32>, Error> {
            let mut logits = infer(&self.network(case)?, case, precision)?;
            (self.spoil_logits)(&mut logits);
            Ok(logits)
        }

        fn train(&self, case: &Case, precision: Precision, schedule: Schedule) -> Result<Trained, Error> {
            let mut trained = train(self.network(case)?, case, precision, schedule)?;
            (self.spoil_training)(&mut trained);
            Ok(trained)
        }
    }

    /// A device with too little memory for anything.
    struct Full;

    impl Full {
        fn refusal<T>() -> Result<T, Error> {
            Err(Error::OutOfMemory { message: "MPS backend out of memory (MPS allocated: 9.05 GB)".to_owned() })
        }
    }

    impl Subject for Full {
        fn infer(&self, _: &Case, _: Precision) -> Result<Vec<f32>, Error> {
            Self::refusal()
        }

        fn train(&self, _: &Case, _: Precision, _: Schedule) -> Result<Trained, Error> {
            Self::refusal()
        }
    }

    fn probed(subject: &dyn Subject, precision: Precision, purpose: Purpose) -> Result<f64, String> {
        crate::set_threads(1);
        probe(subject, "mps", precision, purpose, DeviceRules::MPS)
    }

    const F32: Precision = Precision::F32;
    const BF16: Precision = Precision::Bf16;

    #[test]
    fn a_device_that_computes_in_another_order_passes_far_below_the_bar() {
        for rules in [DeviceRules::MPS, DeviceRules::cuda(None)] {
            let other = StandIn { rules, ..RIGHT };
            assert!(probed(&other, F32, Purpose::Inference).unwrap() < 1e-5);
            assert!(probed(&other, F32, Purpose::Training).unwrap() < 1e-5);
            assert!(probed(&other, BF16, Purpose::Inference).unwrap() < 1e-2);
            assert!(probed(&other, Precision::F16, Purpose::Inference).unwrap() < 5e-3);
        }
        assert!(probed(&RIGHT, BF16, Purpose::Training).unwrap() < 1e-2);
    }

    #[test]
    fn a_wrong_gradient_of_a_single_tensor_is_refused_with_the_figure_and_inference_is_not() {
        // The scale of the stem's batch norm, the first vector, changes by half of the gradient.
        let wrong = StandIn {
            spoil_training: |trained| {
                let change = trained.changes.iter_mut().find(|change| change.len() == 16).unwrap();
                change.iter_mut().for_each(|change| *change *= 0.5);
            },
            ..RIGHT
        };
        let reason = probed(&wrong, F32, Purpose::Training).unwrap_err();
        let expected = "the training step on mps differs from the CPU by 5.0e-1 (relative), the limit is 1e-3";
        assert_eq!(reason, expected);
        assert_eq!(probed(&wrong, F32, Purpose::Inference), Ok(0.0));
    }

    /// The smallest difference due to a missing gradient is above every float32 bar.
    #[test]
    fn a_missing_gradient_is_refused_for_every_tensor() {
        crate::set_threads(1);
        let plain = plain_tower([2, 6, 7], [16, 2]);
        for architecture in
            [Architecture { blocks: 3, squeeze_excitation: 8, global_pooling: 8, ..plain.clone() }, plain]
        {
            let case = Case::new(architecture).unwrap();
            let expected = Device::Cpu.train(&case, F32, Schedule::ONE_STEP).unwrap();
            let least = 0.1 * root_mean_square(expected.changes.iter().flatten().copied());
            let parameters = Network::from_safetensors(&case.architecture, &case.weights, Device::Cpu).unwrap();
            for (entry, change) in parameters.layout.parameters.iter().zip(&expected.changes) {
                let missing = relative(&vec![0.0; change.len()], change, least);
                assert!(missing > 0.6, "{}: {missing}", entry.tensor.name);
            }
        }
    }

    #[test]
    fn wrong_logits_and_wrong_losses_are_refused_with_the_figure() {
        let wrong = StandIn {
            spoil_logits: |logits| logits.iter_mut().for_each(|logit| *logit *= 1.03),
            spoil_training: |trained| trained.losses.iter_mut().for_each(|loss| *loss *= 1.06),
            ..RIGHT
        };
        let reason = probed(&wrong, F32, Purpose::Inference).unwrap_err();
        assert!(reason.ends_with("differs from the CPU by 3.0e-2 (relative), the limit is 1e-3"), "{reason}");
        let reason = probed(&wrong, BF16, Purpose::Inference).unwrap_err();
        assert!(reason.ends_with("the limit is 2e-2"), "{reason}");
        let reason = probed(&wrong, F32, Purpose::Training).unwrap_err();
        assert!(reason.ends_with("by 6.0e-2 (relative), the limit is 1e-3"), "{reason}");
        let reason = probed(&wrong, BF16, Purpose::Training).unwrap_err();
        assert!(reason.ends_with("(relative), the limit is 5e-2"), "{reason}");
    }

    #[test]
    fn nan_is_refused() {
        let broken = StandIn {
            spoil_logits: |logits| logits[3] = f32::NAN,
            spoil_training: |trained| trained.changes[1][0] = f32::NAN,
            ..RIGHT
        };
        let reason = probed(&broken, Precision::F16, Purpose::Inference).unwrap_err();
        assert_eq!(reason, "output of the inference batch on mps is not finite");
        for precision in [F32, BF16] {
            let reason = probed(&broken, precision, Purpose::Inference).unwrap_err();
            assert_eq!(reason, "output of the inference batch on mps is not finite");
            let reason = probed(&broken, precision, Purpose::Training).unwrap_err();
            assert_eq!(reason, "output of the training step on mps is not finite");
        }
    }

    #[test]
    fn a_device_without_memory_is_refused_with_its_message() {
        let reason = probed(&Full, F32, Purpose::Training).unwrap_err();
        let expected =
            "a trial training step in f32 failed: libtorch: MPS backend out of memory (MPS allocated: 9.05 GB)";
        assert_eq!(reason, expected);
        assert!(
            probed(&Full, BF16, Purpose::Inference).unwrap_err().starts_with("a trial inference batch in bf16 failed")
        );
    }

    /// Training in bfloat16 aborts the process on some devices, so that it must not be tried.
    #[test]
    fn a_precision_that_the_rules_do_not_permit_is_refused_before_it_is_tried() {
        let mps = StandIn { rules: DeviceRules::MPS, ..RIGHT };
        let reason = probed(&mps, BF16, Purpose::Training).unwrap_err();
        assert!(reason.ends_with(": the device supports training in f32 only"), "{reason}");
    }
}
