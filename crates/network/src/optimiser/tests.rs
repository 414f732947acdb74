use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Kind, Tensor};

use super::{Optimiser, StepSettings, apply};
use crate::testing::{assert_close, numbers};

const DECAYED: usize = 4;

/// Ten steps with random gradients by libtorch in float32 and by `formula` in float64, one parameter at a time.
/// `formula` takes the step, the gradient, the weight decay of this parameter, its moments and itself.
fn agrees(optimiser: Optimiser, formula: fn(i32, f64, f64, &mut [f64; 2], &mut f64)) {
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let mut draw = || -> Vec<f32> { (0..7).map(|_| rng.random_range(-1.0..1.0)).collect() };
    let start = draw();
    let parameters = Tensor::from_slice(&start);
    let mut moments: Vec<Tensor> = optimiser.moment_names().iter().map(|_| parameters.zeros_like()).collect();
    let mut expected: Vec<(f64, [f64; 2])> = start.iter().map(|&value| (f64::from(value), [0.0; 2])).collect();
    for step in 1..=10 {
        let gradient = draw();
        let settings = StepSettings {
            learning_rate: 0.05,
            weight_decay: 0.1,
            decayed: DECAYED,
            step: u64::try_from(step).unwrap(),
        };
        apply(optimiser, settings, &Tensor::from_slice(&gradient), &mut moments, &parameters).unwrap();
        for (index, (value, moments)) in expected.iter_mut().enumerate() {
            let weight_decay = if index < DECAYED { 0.1 } else { 0.0 };
            formula(step, f64::from(gradient[index]), weight_decay, moments, value);
        }
    }
    let expected: Vec<f64> = expected.into_iter().map(|(value, _)| value).collect();
    assert_eq!(parameters.kind(), Kind::Float);
    assert_close(&numbers(&parameters), &expected, 1e-5);
}

/// Loshchilov and Hutter 2019, algorithm 2.
#[test]
fn adamw_follows_its_paper() {
    agrees(Optimiser::AdamW { betas: [0.9, 0.99], epsilon: 1e-8 }, |step, g, decay, [m, v], value| {
        *m = 0.9 * *m + 0.1 * g;
        *v = 0.99 * *v + 0.01 * g * g;
        let (m, v) = (*m / (1.0 - 0.9_f64.powi(step)), *v / (1.0 - 0.99_f64.powi(step)));
        *value -= 0.05 * (m / (v.sqrt() + 1e-8) + decay * *value);
    });
}

#[test]
fn sgd_adds_the_decay_to_the_gradient_and_keeps_momentum() {
    agrees(Optimiser::Sgd { momentum: 0.8 }, |_, g, decay, [sum, _], value| {
        *sum = 0.8 * *sum + g + decay * *value;
        *value -= 0.05 * *sum;
    });
}

#[test]
fn constants_outside_their_range_are_refused_by_name() {
    assert!(Optimiser::Sgd { momentum: 1.0 }.check().unwrap_err().to_string().contains("optimiser.momentum"));
    assert!(Optimiser::AdamW { betas: [0.9, -0.1], epsilon: 1e-8 }.check().is_err());
    assert!(Optimiser::AdamW { betas: [0.9, 0.99], epsilon: 0.0 }.check().is_err());
}
