use super::*;

/// The CPU as a stand-in for a device: with the rules of that device, and with results that are changed.
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

/// A device whose memory is too small for anything.
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
    }
    assert!(probed(&RIGHT, BF16, Purpose::Training).unwrap() < 1e-2);
}

#[test]
fn a_wrong_gradient_of_a_single_tensor_is_refused_with_the_figure_and_inference_is_not() {
    // The scale of the stem's batch norm, the first vector, changes by half its gradient.
    let wrong = StandIn {
        spoil_training: |trained| {
            let change = trained.changes.iter_mut().find(|change| change.len() == 16).unwrap();
            change.iter_mut().for_each(|change| *change *= 0.5);
        },
        ..RIGHT
    };
    let reason = probed(&wrong, F32, Purpose::Training).unwrap_err();
    let expected = "the training step on mps differs from the CPU's by 5.0e-1 (relative), at most 1e-3 is accepted";
    assert_eq!(reason, expected);
    assert_eq!(probed(&wrong, F32, Purpose::Inference), Ok(0.0));
}

/// The smallest difference that a missing gradient makes lies above every bar of float32.
#[test]
fn a_missing_gradient_is_refused_for_every_tensor() {
    crate::set_threads(1);
    let plain = plain_tower([2, 6, 7], [16, 2]);
    for architecture in [Architecture { blocks: 3, squeeze_excitation: 8, global_pooling: 8, ..plain.clone() }, plain] {
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
    assert!(reason.ends_with("differs from the CPU's by 3.0e-2 (relative), at most 1e-3 is accepted"), "{reason}");
    let reason = probed(&wrong, BF16, Purpose::Inference).unwrap_err();
    assert!(reason.ends_with("at most 2e-2 is accepted"), "{reason}");
    let reason = probed(&wrong, F32, Purpose::Training).unwrap_err();
    assert!(reason.ends_with("by 6.0e-2 (relative), at most 1e-3 is accepted"), "{reason}");
    let reason = probed(&wrong, BF16, Purpose::Training).unwrap_err();
    assert!(reason.ends_with("(relative), at most 5e-2 is accepted"), "{reason}");
}

#[test]
fn nan_is_refused() {
    let broken = StandIn {
        spoil_logits: |logits| logits[3] = f32::NAN,
        spoil_training: |trained| trained.changes[1][0] = f32::NAN,
        ..RIGHT
    };
    for precision in [F32, BF16] {
        let reason = probed(&broken, precision, Purpose::Inference).unwrap_err();
        assert_eq!(reason, "the inference batch on mps gives numbers that are not finite");
        let reason = probed(&broken, precision, Purpose::Training).unwrap_err();
        assert_eq!(reason, "the training step on mps gives numbers that are not finite");
    }
}

#[test]
fn a_device_without_memory_is_refused_with_its_message() {
    let reason = probed(&Full, F32, Purpose::Training).unwrap_err();
    let expected = "a trial training step in f32 failed: libtorch: MPS backend out of memory (MPS allocated: 9.05 GB)";
    assert_eq!(reason, expected);
    assert!(probed(&Full, BF16, Purpose::Inference).unwrap_err().starts_with("a trial inference batch in bf16 failed"));
}

/// Training in bfloat16 aborts the process on some devices, so that it must not be tried.
#[test]
fn a_precision_that_the_rules_do_not_permit_is_refused_before_it_is_tried() {
    let mps = StandIn { rules: DeviceRules::MPS, ..RIGHT };
    let reason = probed(&mps, BF16, Purpose::Training).unwrap_err();
    assert!(reason.ends_with("cannot be used: training on it is in f32 only"), "{reason}");
}
