//! Integers in a running process: calibrated on evaluated positions, used while they agree with floating point.

mod inputs;
mod published;

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use inference::{Evaluator, PrecisionPreference, Predictions};
use inputs::{manifest, positions};
use network_cpu::{Drift, Kernel, KernelVariant, Tower, TowerEvaluator};
use published::{Tensors, architecture, file, tensors};
use weights::{Activation, Digest, WeightsVersion};

/// The same network after another training step.
fn later(mut tensors: Tensors) -> Tensors {
    let (_, values) = tensors.get_mut("value.output.bias").expect("a bias");
    values[0] += 0.1;
    tensors
}

/// A kernel of integers in plain Rust, with the first version in use and positions evaluated.
fn warm() -> Kernel {
    let kernel = Kernel::new(vec![KernelVariant::PortableI8], PrecisionPreference::Int8);
    let bytes = file(&tensors());
    let mut evaluator = kernel.evaluator(&manifest(1, &bytes), &bytes).expect("an evaluator");
    assert!(!evaluator.tower().path().is_int8(), "nothing has been seen to calibrate on");
    let chosen = kernel.chosen().expect("a choice").to_string();
    assert!(chosen.ends_with("(until portable-i8 has positions for calibration)"), "{chosen}");
    evaluator.evaluate(&positions(), &mut Predictions::new()).expect("answers");
    kernel
}

fn answers(evaluator: &mut TowerEvaluator) -> Predictions {
    let mut predictions = Predictions::new();
    evaluator.evaluate(&positions(), &mut predictions).expect("answers");
    predictions
}

#[test]
fn the_next_version_is_answered_in_integers() {
    let kernel = warm();
    let bytes = file(&later(tensors()));
    let mut integers = kernel.evaluator(&manifest(2, &bytes), &bytes).expect("an evaluator");
    assert_eq!(integers.tower().path(), KernelVariant::PortableI8, "{:?}", kernel.chosen());
    assert_eq!(&*integers.attributes().name, "cpu portable-i8");
    let float = Tower::new(&architecture(), &bytes, KernelVariant::PortableF32).expect("a tower");
    let mut float = TowerEvaluator::new(float.into(), WeightsVersion(2));
    let drift = Drift::between(&answers(&mut float), &answers(&mut integers));
    assert!(drift.is_small() && drift.divergence > 0.0, "{drift}");
}

/// A later version that integers cannot represent.
fn drifting() -> Tensors {
    let mut drifting = later(tensors());
    // In each block a channel that is always zero, with weights next to which all other weights round to zero.
    for block in 0..3 {
        drifting.get_mut(&format!("block.{block}.first.norm.bias")).expect("a bias").1[0] = -1e3;
        let (_, weights) = drifting.get_mut(&format!("block.{block}.second.convolution.weight")).expect("weights");
        weights.chunks_exact_mut(16 * 9).for_each(|of_output| of_output[..9].fill(1e9));
    }
    drifting
}

#[test]
fn a_version_that_drifts_is_answered_in_floating_point() {
    let kernel = warm();
    let bytes = file(&drifting());
    let evaluator = kernel.evaluator(&manifest(2, &bytes), &bytes).expect("an evaluator");
    assert!(!evaluator.tower().path().is_int8());
    let chosen = kernel.chosen().expect("a choice").to_string();
    assert!(chosen.contains("portable-i8 predictions differ: priors by "), "{chosen}");
    // The version after it may use integers again.
    let bytes = file(&later(later(tensors())));
    let evaluator = kernel.evaluator(&manifest(3, &bytes), &bytes).expect("an evaluator");
    assert_eq!(evaluator.tower().path(), KernelVariant::PortableI8);
}

#[test]
fn a_design_that_integers_do_not_take_is_answered_in_floating_point() {
    let kernel = warm();
    let bytes = file(&tensors());
    let mut manifest = manifest(2, &bytes);
    manifest.digest = Digest::of(b"the same tensors behind another activation");
    manifest.architecture.design.activation = Activation::Silu;
    let mut evaluator = kernel.evaluator(&manifest, &bytes).expect("an evaluator");
    assert!(!evaluator.tower().path().is_int8());
    let chosen = kernel.chosen().expect("a choice").to_string();
    assert!(chosen.contains("int8 supports residual blocks with relu only"), "{chosen}");
    let relu = Tower::new(&architecture(), &bytes, KernelVariant::PortableF32).expect("a tower");
    let drift =
        Drift::between(&answers(&mut TowerEvaluator::new(relu.into(), WeightsVersion(2))), &answers(&mut evaluator));
    assert!(drift.divergence > 1e-4, "another function gives other answers: {drift}");
}

thread_local! {
    /// Readings of the clock so far, time since the first reading, and time of a floating-point evaluation in percent
    /// of an integer evaluation.
    static READINGS: Cell<u32> = const { Cell::new(0) };
    static ELAPSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static SPEED_UP_PERCENT: Cell<u64> = const { Cell::new(100) };
}

/// A clock by which evaluations, alternately in floating point and in integers, take the times of the test.
fn scripted() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "an Instant has no other beginning; only differences count")]
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let reading = READINGS.replace(READINGS.get() + 1);
    let time = match reading % 4 {
        1 => SPEED_UP_PERCENT.get(),
        3 => 100,
        _ => 0,
    };
    ELAPSED.set(ELAPSED.get() + Duration::from_micros(time));
    *START + ELAPSED.get()
}

/// Returns the versions after the first from a kernel without a configured precision, with integers this much faster.
fn tried(speed_up_percent: u64) -> [(KernelVariant, String); 2] {
    SPEED_UP_PERCENT.set(speed_up_percent);
    let kernel = Kernel::new(vec![KernelVariant::PortableF32], PrecisionPreference::Auto)
        .try_integers(KernelVariant::PortableI8, scripted);
    let (mut tensors, mut version) = (tensors(), 1);
    let mut next = || {
        let bytes = file(&tensors);
        let mut evaluator = kernel.evaluator(&manifest(version, &bytes), &bytes).expect("an evaluator");
        evaluator.evaluate(&positions(), &mut Predictions::new()).expect("answers");
        (tensors, version) = (later(std::mem::take(&mut tensors)), version + 1);
        (evaluator.tower().path(), kernel.chosen().expect("a choice").to_string())
    };
    assert_eq!(next().0, KernelVariant::PortableF32, "nothing has been seen to measure with");
    [next(), next()]
}

#[test]
fn integers_that_are_a_quarter_faster_are_taken_unasked_and_measured_once() {
    READINGS.set(0);
    for (path, reason) in tried(126) {
        assert_eq!(path, KernelVariant::PortableI8, "{reason}");
        assert!(reason.contains("calibrated on recent positions, checked against portable-f32"), "{reason}");
    }
    // Seven turns of two evaluations, with a reading before and after each.
    assert_eq!(READINGS.get(), 28);
}

#[test]
fn integers_that_are_less_than_a_quarter_faster_are_not_taken_unasked() {
    READINGS.set(0);
    for (path, reason) in tried(124) {
        assert_eq!(path, KernelVariant::PortableF32);
        assert!(reason.contains("portable-i8 is 1.24 times as fast, not enough for int8"), "{reason}");
    }
    assert_eq!(READINGS.get(), 28);
}

#[test]
fn integers_that_are_fast_and_drift_are_not_taken_unasked() {
    SPEED_UP_PERCENT.set(400);
    let kernel = Kernel::new(vec![KernelVariant::PortableF32], PrecisionPreference::Auto)
        .try_integers(KernelVariant::PortableI8, scripted);
    let bytes = file(&tensors());
    let mut evaluator = kernel.evaluator(&manifest(1, &bytes), &bytes).expect("an evaluator");
    evaluator.evaluate(&positions(), &mut Predictions::new()).expect("answers");
    let bytes = file(&drifting());
    let evaluator = kernel.evaluator(&manifest(2, &bytes), &bytes).expect("an evaluator");
    assert_eq!(evaluator.tower().path(), KernelVariant::PortableF32);
    let chosen = kernel.chosen().expect("a choice").to_string();
    assert!(chosen.contains("portable-i8 predictions differ: priors by "), "{chosen}");
}
