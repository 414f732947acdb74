use training::Optimiser;

use crate::Path;
use crate::threads::Threads;
use crate::vector::{Task, Vector};

/// Numbers that a thread takes at once.
const CHUNK: usize = 1 << 14;

/// The settings of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepSettings {
    pub(crate) optimiser: Optimiser,
    pub(crate) learning_rate: f64,
    pub(crate) weight_decay: f64,
    /// The count of leading parameters that decay.
    pub(crate) decayed: usize,
    /// 1 for the first step ever taken.
    pub(crate) step: u64,
    /// The gradient is divided by it.
    pub(crate) scale: f64,
    /// The share of the newest parameters in their average.
    pub(crate) share: f64,
}

/// The numbers that a step changes, `[P]` each.
#[derive(Debug)]
pub(crate) struct Trained<'a> {
    pub(crate) parameters: &'a mut [f32],
    /// One per name of the optimiser.
    pub(crate) moments: &'a mut [Vec<f32>],
    pub(crate) average: &'a mut [f32],
}

/// Steps parameters along `gradient` `[P]` and moves their average, in one pass over memory.
///
/// AdamW: `m ← β₁m + (1−β₁)g`, `v ← β₂v + (1−β₂)g²`, `θ ← θ − η·λθ − η·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)`.
/// SGD: `b ← μb + g + λθ`, `θ ← θ − ηb`.
/// In both λ is zero beyond the decayed parameters.
pub(crate) fn apply(path: Path, threads: &mut Threads, settings: StepSettings, trained: Trained<'_>, gradient: &[f32]) {
    let Trained { parameters, moments, average } = trained;
    let decayed = settings.decayed;
    let (weights, vectors) = parameters.split_at_mut(decayed);
    let (of_weights, of_vectors) = average.split_at_mut(decayed);
    let (first, second) = gradient.split_at(decayed);
    let moments: Vec<(&mut [f32], &mut [f32])> =
        moments.iter_mut().map(|moment| moment.split_at_mut(decayed)).collect();
    let (of_first, of_second): (Vec<_>, Vec<_>) = moments.into_iter().unzip();
    let mut chunks = Vec::new();
    for (parameters, average, gradient, moments, weight_decay) in
        [(weights, of_weights, first, of_first, settings.weight_decay), (vectors, of_vectors, second, of_second, 0.0)]
    {
        let mut moments: Vec<_> = moments.into_iter().map(|moment| moment.chunks_mut(CHUNK)).collect();
        let numbers = parameters.chunks_mut(CHUNK).zip(average.chunks_mut(CHUNK)).zip(gradient.chunks(CHUNK));
        for ((parameters, average), gradient) in numbers {
            let moments = moments.iter_mut().filter_map(Iterator::next).collect();
            let settings = StepSettings { weight_decay, ..settings };
            chunks.push(Chunk { settings, parameters, moments, average, gradient });
        }
    }
    threads.each(chunks, |chunk| path.run(chunk));
}

/// The sum of squares of `numbers`.
pub(crate) fn sum_of_squares(path: Path, threads: &mut Threads, numbers: &[f32]) -> f64 {
    let mut sums = vec![0.0; numbers.len().div_ceil(CHUNK)];
    let items = numbers.chunks(CHUNK).zip(&mut sums).collect();
    threads.each(items, |(numbers, sum): (&[f32], &mut f64)| *sum = path.run(Squares(numbers)));
    sums.iter().sum()
}

/// Moves an average by `share` towards the newest numbers.
pub(crate) fn average(average: &mut [f32], newest: &[f32], share: f64) {
    average.iter_mut().zip(newest).for_each(|(average, newest)| *average += share as f32 * (newest - *average));
}

struct Squares<'a>(&'a [f32]);

impl Task for Squares<'_> {
    type Output = f64;

    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> f64 {
        let (rows, rest) = self.0.as_chunks::<16>();
        let mut sums = [0.0_f64; 16];
        for row in rows {
            for lane in 0..16 {
                sums[lane] += f64::from(row[lane]) * f64::from(row[lane]);
            }
        }
        sums.iter().sum::<f64>() + rest.iter().map(|&number| f64::from(number) * f64::from(number)).sum::<f64>()
    }
}

/// Some of the numbers that a step changes.
struct Chunk<'a> {
    settings: StepSettings,
    parameters: &'a mut [f32],
    moments: Vec<&'a mut [f32]>,
    average: &'a mut [f32],
    gradient: &'a [f32],
}

impl Task for Chunk<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { settings, parameters, mut moments, average, gradient } = self;
        let StepSettings { learning_rate, weight_decay, share, .. } = settings;
        let len = parameters.len();
        let (average, gradient) = (&mut average[..len], &gradient[..len]);
        let (scale, share) = (settings.scale as f32, share as f32);
        match (settings.optimiser, &mut moments[..]) {
            (Optimiser::AdamW { betas, epsilon }, [first, second]) => {
                let (first, second) = (&mut first[..len], &mut second[..len]);
                // 1 − βᵗ, without cancellation.
                let correction = betas.map(|beta| -(settings.step as f64 * beta.ln()).exp_m1());
                let kept = (1.0 - learning_rate * weight_decay) as f32;
                let rate = (learning_rate / correction[0]) as f32;
                let root = correction[1].sqrt().recip() as f32;
                let epsilon = epsilon as f32;
                let newest = betas.map(|beta| (1.0 - beta) as f32);
                for i in 0..len {
                    let gradient = gradient[i] / scale;
                    first[i] += newest[0] * (gradient - first[i]);
                    second[i] += newest[1] * (gradient * gradient - second[i]);
                    let update = rate * first[i] / (second[i].sqrt() * root + epsilon);
                    parameters[i] = parameters[i] * kept - update;
                    average[i] += share * (parameters[i] - average[i]);
                }
            }
            (Optimiser::Sgd { momentum }, [sum]) => {
                let sum = &mut sum[..len];
                let (rate, momentum, decay) = (learning_rate as f32, momentum as f32, weight_decay as f32);
                for i in 0..len {
                    sum[i] = momentum * sum[i] + gradient[i] / scale + decay * parameters[i];
                    parameters[i] -= rate * sum[i];
                    average[i] += share * (parameters[i] - average[i]);
                }
            }
            _ => unreachable!("an optimiser has its moments"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use training::Optimiser;

    use super::{StepSettings, Trained, apply, sum_of_squares};
    use crate::Path;
    use crate::threads::Threads;

    const SIZE: usize = 40_000;
    const DECAYED: usize = 20_001;

    /// Ten steps with random gradients, and by `formula` in float64, one parameter at a time. `formula` takes the step,
    /// the gradient, the weight decay of this parameter, its moments and itself.
    fn agrees(optimiser: Optimiser, formula: fn(i32, f64, f64, &mut [f64; 2], &mut f64)) {
        let mut rng = ChaCha8Rng::seed_from_u64(31);
        let mut draw = || -> Vec<f32> { (0..SIZE).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let mut threads = Threads::new(2).unwrap();
        let (mut parameters, mut average) = (draw(), vec![0.0; SIZE]);
        let mut moments = vec![vec![0.0; SIZE]; optimiser.moment_names().len()];
        let mut expected: Vec<(f64, [f64; 2], f64)> =
            parameters.iter().map(|&value| (f64::from(value), [0.0; 2], 0.0)).collect();
        for step in 1..=10_u8 {
            let gradient = draw();
            let settings = StepSettings {
                optimiser,
                learning_rate: 0.05,
                weight_decay: 0.1,
                decayed: DECAYED,
                step: step.into(),
                scale: 2.0,
                share: 0.25,
            };
            let trained = Trained { parameters: &mut parameters, moments: &mut moments, average: &mut average };
            apply(Path::widest(), &mut threads, settings, trained, &gradient);
            for (index, (value, moments, average)) in expected.iter_mut().enumerate() {
                let weight_decay = if index < DECAYED { 0.1 } else { 0.0 };
                formula(step.into(), f64::from(gradient[index]) / 2.0, weight_decay, moments, value);
                *average += 0.25 * (*value - *average);
            }
        }
        for (index, (value, _, mean)) in expected.into_iter().enumerate() {
            let apart = [f64::from(parameters[index]) - value, f64::from(average[index]) - mean];
            assert!(apart.iter().all(|apart| apart.abs() < 1e-5), "parameter {index}: {apart:?}");
        }
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
    fn squares_are_summed_in_float64() {
        let numbers = vec![0.1; SIZE + 3];
        let sum = sum_of_squares(Path::widest(), &mut Threads::new(2).unwrap(), &numbers);
        let expected = (SIZE + 3) as f64 * f64::from(0.1_f32).powi(2);
        assert!((sum - expected).abs() < 1e-9 * expected, "{sum} instead of {expected}");
    }
}
