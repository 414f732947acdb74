use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const EPSILON: f32 = 1e-5;

/// A batch norm of random numbers, `[rows, channels]`.
struct Case {
    channels: usize,
    scale: Vec<f32>,
    shift: Vec<f32>,
    z: Vec<bf16>,
    around: Option<Vec<bf16>>,
    gradient: Vec<bf16>,
}

impl Case {
    fn random(rows: usize, channels: usize, adds: bool, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut values =
            |len: usize, low: f32, high: f32| -> Vec<f32> { (0..len).map(|_| rng.random_range(low..high)).collect() };
        let (scale, shift) = (values(channels, 0.5, 1.5), values(channels, -0.5, 0.5));
        // Means that lie away from zero, a different one for each channel.
        let means = values(channels, -3.0, 3.0);
        let mut narrow = |offsets: &[f32]| -> Vec<bf16> {
            let noise = values(rows * channels, -1.0, 1.0);
            noise.iter().enumerate().map(|(i, noise)| bf16::from_f32(noise + offsets[i % channels])).collect()
        };
        let zeros = vec![0.0; channels];
        let (z, gradient) = (narrow(&means), narrow(&zeros));
        let around = adds.then(|| narrow(&zeros));
        Self { channels, scale, shift, z, around, gradient }
    }

    fn forward(&self) -> (Norm, Vec<bf16>) {
        let mut y = vec![bf16::NAN; self.z.len()];
        let affine = Affine { scale: &self.scale, shift: &self.shift };
        let norm = Norm::forward(affine, EPSILON, &self.z, self.around.as_deref(), &mut y);
        (norm, y)
    }

    /// `y` by the formula in float64, and the loss `Σ gradient · y` that results from it; `moved` is added to one
    /// element each of `z`, the scale, the shift and `around`.
    fn expected(&self, moved: [(usize, f64); 4]) -> (Vec<f64>, f64) {
        let (channels, rows) = (self.channels, self.z.len() / self.channels);
        let with = |values: Vec<f64>, (at, by): (usize, f64)| {
            values.into_iter().enumerate().map(move |(i, value)| if i == at { value + by } else { value }).collect()
        };
        let exact = |values: &[bf16]| -> Vec<f64> { values.iter().map(|value| value.to_f64()).collect() };
        let z: Vec<f64> = with(exact(&self.z), moved[0]);
        let scale: Vec<f64> = with(self.scale.iter().copied().map(f64::from).collect(), moved[1]);
        let shift: Vec<f64> = with(self.shift.iter().copied().map(f64::from).collect(), moved[2]);
        let around: Vec<f64> = match &self.around {
            Some(around) => with(exact(around), moved[3]),
            None => vec![0.0; z.len()],
        };
        let mut y = vec![0.0; z.len()];
        for c in 0..channels {
            let column = || (0..rows).map(|row| row * channels + c);
            let mean = column().map(|i| z[i]).sum::<f64>() / rows as f64;
            let variance = column().map(|i| (z[i] - mean).powi(2)).sum::<f64>() / rows as f64;
            for i in column() {
                let normal = (z[i] - mean) / (variance + f64::from(EPSILON)).sqrt();
                y[i] = (scale[c] * normal + shift[c] + around[i]).max(0.0);
            }
        }
        let loss = y.iter().zip(&self.gradient).map(|(y, gradient)| y * gradient.to_f64()).sum();
        (y, loss)
    }
}

const STILL: [(usize, f64); 4] = [(0, 0.0); 4];

#[test]
fn activations_are_normalised_added_to_and_rectified_as_in_float64() {
    for (rows, channels, adds) in
        [(50, 64, true), (301, 64, false), (40, 128, true), (33, 83, true), (7, 1, false), (300, 17, true)]
    {
        let case = Case::random(rows, channels, adds, 3);
        let (norm, y) = case.forward();
        let (expected, _) = case.expected(STILL);
        for (i, (y, expected)) in y.iter().zip(&expected).enumerate() {
            let error = (y.to_f64() - expected).abs();
            // Half a unit in the last of eight bits.
            assert!(
                error <= 1e-5 + expected.abs() / 250.0,
                "{rows} rows, {channels} channels: {y} at {i} for {expected}"
            );
        }
        for c in 0..channels {
            let column: Vec<f64> = case.z[c..].iter().step_by(channels).map(|z| z.to_f64()).collect();
            let mean = column.iter().sum::<f64>() / rows as f64;
            let variance = column.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / rows as f64;
            assert!(
                (f64::from(norm.mean[c]) - mean).abs() < 1e-5 && (f64::from(norm.variance[c]) - variance).abs() < 1e-5
            );
        }
    }
}

#[test]
fn gradients_are_the_slopes_of_the_loss_in_float64() {
    for (rows, channels, adds) in [(60, 64, true), (150, 19, false)] {
        let case = Case::random(rows, channels, adds, 5);
        let (norm, y) = case.forward();
        let (mut gradient, mut of_z) = (case.gradient.clone(), vec![bf16::NAN; case.z.len()]);
        let affine = norm.backward(&case.scale, &case.z, &y, &mut gradient, None, &mut of_z);
        let slope = |which: usize, at: usize| {
            let step = 1e-4;
            let mut moved = STILL;
            let mut loss = |by: f64| {
                moved[which] = (at, by);
                case.expected(moved).1
            };
            (loss(step) - loss(-step)) / (2.0 * step)
        };
        let close = |got: f64, expected: f64, what: &str| {
            assert!((got - expected).abs() < 0.01 * (1.0 + expected.abs()), "{what}: {got} for {expected}");
        };
        for at in (0..case.z.len()).step_by(97) {
            // Next to the kink of ReLU there is no slope to compare with.
            if (1e-9..1e-2).contains(&y[at].to_f64()) {
                continue;
            }
            close(of_z[at].to_f64(), slope(0, at), "z");
            if adds {
                close(gradient[at].to_f64(), slope(3, at), "around");
            }
        }
        for c in 0..channels {
            close(f64::from(affine.scale[c]), slope(1, c), "scale");
            close(f64::from(affine.shift[c]), slope(2, c), "shift");
        }
    }
}

#[test]
fn a_second_gradient_is_added_before_the_backward_pass() {
    let case = Case::random(140, 70, false, 6);
    let (norm, y) = case.forward();
    let besides = Case::random(140, 70, false, 8).gradient;
    let sum: Vec<bf16> =
        case.gradient.iter().zip(&besides).map(|(a, b)| bf16::from_f32(a.to_f32() + b.to_f32())).collect();
    let outcome = |mut gradient: Vec<bf16>, besides: Option<&[bf16]>| {
        let mut of_z = vec![bf16::NAN; y.len()];
        let affine = norm.backward(&case.scale, &case.z, &y, &mut gradient, besides, &mut of_z);
        (affine, gradient, of_z)
    };
    assert_eq!(outcome(case.gradient.clone(), Some(&besides)), outcome(sum, None));
}

#[test]
fn a_nan_input_spreads_over_its_channel_only() {
    let mut case = Case::random(40, 64, true, 7);
    case.z[5] = bf16::NAN;
    let (_, y) = case.forward();
    assert!(y[5].is_nan() && y[64 + 5].is_nan(), "NaN spreads over its channel");
    assert!(!y[4].is_nan());
}

#[test]
fn the_wide_passes_agree_with_the_plain_ones() {
    let case = Case::random(130, 96, true, 9);
    let (norm, y) = case.forward();
    let mut plain = vec![bf16::NAN; y.len()];
    let affine = Affine { scale: &case.scale, shift: &case.shift };
    let plain_norm = passes::forward(affine, EPSILON, &case.z, case.around.as_deref(), &mut plain);
    assert_eq!((norm, y), (plain_norm, plain));
}
