//! bfloat16 in a running process: used while the predictions agree with float32.

mod inputs;
mod published;

use inference::{Evaluator, PrecisionPreference, Predictions};
use inputs::{manifest, positions};
use network_cpu::{Kernel, KernelVariant, Tower, TowerEvaluator};
use published::{Tensors, architecture, file, tensors};
use weights::WeightsVersion;

/// Returns a bfloat16 path and a float32 path, if this CPU has both.
fn paths() -> Option<[KernelVariant; 2]> {
    let coarse = KernelVariant::ALL.into_iter().find(|path| path.is_bf16() && path.is_available())?;
    Some([coarse, KernelVariant::PortableF32])
}

/// A network that amplifies the difference between a position and the first position, which has even priors.
fn drifting() -> Tensors {
    const SCALE: f32 = 300.0;
    let mut tensors = tensors();
    let bytes = file(&tensors);
    let calm = Tower::new(&architecture(), &bytes, KernelVariant::PortableF32).expect("a tower");
    let mut predictions = Predictions::new();
    TowerEvaluator::new(calm.into(), WeightsVersion(1)).evaluate(&positions(), &mut predictions).expect("answers");
    tensors.get_mut("policy.output.weight").expect("weights").1.iter_mut().for_each(|weight| *weight *= SCALE);
    let (_, biases) = tensors.get_mut("policy.output.bias").expect("a bias");
    for (action, prior) in positions().legal(0).iter().zip(predictions.priors(0)) {
        let bias = &mut biases[action.index()];
        *bias = -SCALE * (prior.ln() - *bias);
    }
    tensors
}

/// Returns the path of the second version, after the first has evaluated positions.
fn path_of_second(kernel: &Kernel, second: &Tensors) -> KernelVariant {
    let bytes = file(&tensors());
    let mut evaluator = kernel.evaluator(&manifest(1, &bytes), &bytes).expect("an evaluator");
    evaluator.evaluate(&positions(), &mut Predictions::new()).expect("answers");
    let bytes = file(second);
    kernel.evaluator(&manifest(2, &bytes), &bytes).expect("an evaluator").tower().path()
}

#[test]
fn a_version_that_drifts_in_bfloat16_is_answered_in_float32() {
    let Some([coarse, fine]) = paths() else { return };
    let kernel = Kernel::new(vec![coarse, fine], PrecisionPreference::Bf16).adaptive();
    assert_eq!(path_of_second(&kernel, &drifting()), fine);
    let chosen = kernel.chosen().expect("a choice").to_string();
    assert!(chosen.contains(&format!("{coarse} predictions differ: priors by ")), "{chosen}");
}

#[test]
fn a_version_that_does_not_drift_is_answered_in_bfloat16() {
    let Some([coarse, fine]) = paths() else { return };
    let mut calm = tensors();
    calm.get_mut("value.output.bias").expect("a bias").1[0] += 0.1;
    let kernel = Kernel::new(vec![coarse, fine], PrecisionPreference::Bf16).adaptive();
    assert_eq!(path_of_second(&kernel, &calm), coarse, "{:?}", kernel.chosen());
}

#[test]
fn without_an_alternative_path_or_adaptation_the_chosen_path_is_kept() {
    let Some([coarse, fine]) = paths() else { return };
    let only = Kernel::new(vec![coarse], PrecisionPreference::Bf16).adaptive();
    assert_eq!(path_of_second(&only, &drifting()), coarse);
    let steady = Kernel::new(vec![coarse, fine], PrecisionPreference::Bf16);
    assert_eq!(path_of_second(&steady, &drifting()), coarse);
}
