use training::moments::{MomentPart, Rounding};
use training::{Group, Moment, Optimiser};

use crate::Path;
use crate::muon::Matrix;
use crate::threads::Threads;
use crate::vector::{Task, Vector};

/// Numbers per work item of a thread: whole blocks of moments.
const CHUNK: usize = 1 << 14;

/// Settings of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepSettings<'a> {
    /// All parameters, in order; zeros may be between two groups.
    pub(crate) groups: &'a [Group],
    pub(crate) learning_rate: f64,
    pub(crate) weight_decay: f64,
    /// Step number, 1 for the first step ever taken.
    pub(crate) step: u64,
    /// Divisor of the gradient.
    pub(crate) scale: f64,
    /// Share of the new parameters in their average.
    pub(crate) share: f64,
}

/// State that a step changes, `[P]` each.
#[derive(Debug)]
pub(crate) struct Trained<'a> {
    pub(crate) parameters: &'a mut [f32],
    /// One per moment name of the optimiser.
    pub(crate) moments: &'a mut [Moment],
    pub(crate) average: &'a mut [f32],
}

/// Steps the parameters along `gradient` `[P]`, which is consumed, and updates the average. One pass over memory,
/// plus another over the parameters that Muon steps.
///
/// AdamW: `m ← β₁m + (1−β₁)g`, `v ← β₂v + (1−β₂)g²`, `θ ← θ − η·λθ − η·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)`.
/// Lion: `θ ← θ − η·λθ − η·sign(β₁m + (1−β₁)g)`, `m ← β₂m + (1−β₂)g`.
/// Muon: `b ← μb + g`, `θ ← θ − η·λθ − ηs·O` with O approximately the orthogonalised `g + μb` and s from
/// [`training::muon::scale`].
/// SGD: `b ← μb + g + λθ`, `θ ← θ − ηb`.
/// λ is zero in groups without decay. Moments are computed in float32 and rounded stochastically to their format.
pub(crate) fn apply(
    path: Path,
    threads: &mut Threads,
    settings: StepSettings<'_>,
    trained: Trained<'_>,
    gradient: &mut [f32],
) {
    let Trained { parameters, moments, average } = trained;
    let mut moments: Vec<_> = moments.iter_mut().map(|moment| moment.parts(CHUNK).into_iter()).collect();
    let numbers = parameters.chunks_mut(CHUNK).zip(average.chunks_mut(CHUNK)).zip(gradient.chunks_mut(CHUNK));
    let chunk = |(index, ((parameters, average), gradient))| {
        let moments = moments.iter_mut().filter_map(Iterator::next).collect();
        Chunk { settings, first: index * CHUNK, parameters, moments, average, gradient }
    };
    let chunks = numbers.enumerate().map(chunk).collect();
    threads.each(chunks, |chunk: Chunk<'_>| chunk.step(path));

    let mut all = [parameters, average, gradient];
    let (mut matrices, mut from) = (Vec::new(), 0);
    for Group { range, matrix, .. } in settings.groups {
        let of_group = |numbers: &mut _| {
            let taken = <[f32]>::split_off_mut(numbers, ..range.end - from).expect("groups are in order");
            // Zeros may be between two groups.
            &mut taken[range.start - from..]
        };
        let numbers = all.each_mut().map(of_group);
        from = range.end;
        if let &Some(shape) = matrix {
            let [parameters, average, directions] = numbers.map(|all| all.chunks_exact_mut(shape[0] * shape[1]));
            let of_matrix =
                |((parameters, average), direction)| Matrix { settings, shape, parameters, average, direction };
            matrices.extend(parameters.zip(average).zip(directions).map(of_matrix));
        }
    }
    threads.each(matrices, Matrix::step);
}

/// Returns the sum of squares of `numbers`.
pub(crate) fn sum_of_squares(path: Path, threads: &mut Threads, numbers: &[f32]) -> f64 {
    let mut sums = vec![0.0; numbers.len().div_ceil(CHUNK)];
    let items = numbers.chunks(CHUNK).zip(&mut sums).collect();
    threads.each(items, |(numbers, sum): (&[f32], &mut f64)| *sum = path.run(Squares(numbers)));
    sums.iter().sum()
}

/// Moves an average by `share` towards the new numbers.
pub(crate) fn average(average: &mut [f32], newest: &[f32], share: f64) {
    average.iter_mut().zip(newest).for_each(|(average, newest)| *average += share as f32 * (newest - *average));
}

pub(crate) struct Squares<'a>(pub(crate) &'a [f32]);

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

/// A range of the numbers that a step changes.
struct Chunk<'a> {
    settings: StepSettings<'a>,
    /// Index of the first number.
    first: usize,
    parameters: &'a mut [f32],
    moments: Vec<MomentPart<'a>>,
    average: &'a mut [f32],
    gradient: &'a mut [f32],
}

impl Chunk<'_> {
    fn step(self, path: Path) {
        let Self { settings, first, parameters, mut moments, average, gradient } = self;
        let mut copies: Vec<Vec<f32>> = moments.iter_mut().map(|moment| widened(moment, parameters.len())).collect();
        let numbers = moments.iter_mut().zip(&mut copies);
        let mut numbers: Vec<&mut [f32]> = numbers.map(|(moment, copy)| moment.floats_mut().unwrap_or(copy)).collect();
        for group in settings.groups {
            let [start, end] =
                [group.range.start, group.range.end].map(|place| place.saturating_sub(first).min(parameters.len()));
            let (range, weight_decay) = (start..end, if group.is_decayed { settings.weight_decay } else { 0.0 });
            if range.is_empty() {
                continue;
            }
            path.run(Numbers {
                optimiser: group.optimiser,
                settings: StepSettings { weight_decay, ..settings },
                parameters: &mut parameters[range.clone()],
                moments: numbers.iter_mut().map(|numbers| &mut numbers[range.clone()]).collect(),
                average: &mut average[range.clone()],
                gradient: &mut gradient[range],
            });
        }
        for (index, (moment, copy)) in moments.iter_mut().zip(&copies).enumerate() {
            if moment.floats_mut().is_none() {
                moment.write(copy, Rounding::stochastic(settings.step, index), first);
            }
        }
    }
}

/// Returns a float32 copy of a moment in another storage format; empty for float32 storage.
fn widened(moment: &mut MomentPart<'_>, len: usize) -> Vec<f32> {
    if moment.floats_mut().is_some() {
        return Vec::new();
    }
    let mut copy = vec![0.0; len];
    moment.read(&mut copy);
    copy
}

/// Numbers of one group, in float32.
struct Numbers<'a> {
    optimiser: Optimiser,
    settings: StepSettings<'a>,
    parameters: &'a mut [f32],
    moments: Vec<&'a mut [f32]>,
    average: &'a mut [f32],
    gradient: &'a mut [f32],
}

impl Task for Numbers<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { optimiser, settings, parameters, mut moments, average, gradient } = self;
        let StepSettings { learning_rate, weight_decay, share, .. } = settings;
        let len = parameters.len();
        let (average, gradient) = (&mut average[..len], &mut gradient[..len]);
        let (scale, share) = (settings.scale as f32, share as f32);
        let kept = (1.0 - learning_rate * weight_decay) as f32;
        match (optimiser, &mut moments[..]) {
            (Optimiser::AdamW { betas, epsilon }, [first, second]) => {
                let (first, second) = (&mut first[..len], &mut second[..len]);
                // 1 − βᵗ, without cancellation.
                let correction = betas.map(|beta| -(settings.step as f64 * beta.ln()).exp_m1());
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
            (Optimiser::Lion { betas }, [mean]) => {
                let mean = &mut mean[..len];
                let rate = learning_rate as f32;
                let newest = betas.map(|beta| (1.0 - beta) as f32);
                for i in 0..len {
                    let gradient = gradient[i] / scale;
                    let direction = mean[i] + newest[0] * (gradient - mean[i]);
                    parameters[i] = parameters[i] * kept - rate * sign(direction);
                    mean[i] += newest[1] * (gradient - mean[i]);
                    average[i] += share * (parameters[i] - average[i]);
                }
            }
            (Optimiser::Muon { momentum }, [sum, _]) => {
                let (sum, momentum) = (&mut sum[..len], momentum as f32);
                for i in 0..len {
                    let newest = gradient[i] / scale;
                    sum[i] = momentum * sum[i] + newest;
                    // The direction before orthogonalisation, which needs the whole matrix.
                    gradient[i] = newest + momentum * sum[i];
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

/// Returns the sign of a number, 0 for 0.
fn sign(number: f32) -> f32 {
    f32::from(u8::from(number > 0.0)) - f32::from(u8::from(number < 0.0))
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use training::{Group, Moment, MomentFormat, MomentKind, Optimiser};

    use super::{StepSettings, Trained, apply, sum_of_squares};
    use crate::Path;
    use crate::threads::Threads;

    const SIZE: usize = 40_000;
    const DECAYED: usize = 20_001;

    /// Parameters and averages, with the reference from a formula in float64.
    struct Compared {
        got: Vec<[f32; 2]>,
        expected: Vec<[f64; 2]>,
        moments: Vec<Moment>,
    }

    type Formula = fn(i32, f64, f64, &mut [f64; 2], &mut f64);

    /// Takes ten steps with random gradients, and the same with `formula` in float64, one parameter at a time.
    /// `formula` takes the step, the gradient, the weight decay of the parameter, the moments and the parameter.
    fn compared(optimiser: Optimiser, format: MomentFormat, threads: usize, formula: Formula) -> Compared {
        let mut rng = ChaCha8Rng::seed_from_u64(31);
        let mut draw = || -> Vec<f32> { (0..SIZE).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let mut threads = Threads::new(threads).unwrap();
        let (mut parameters, mut average) = (draw(), vec![0.0; SIZE]);
        let zeros = |&kind: &MomentKind| Moment::zeros(kind, format, SIZE);
        let groups = [(0..DECAYED, true), (DECAYED..SIZE, false)].map(|(range, is_decayed)| Group {
            range,
            matrix: None,
            optimiser,
            is_decayed,
        });
        let mut moments: Vec<Moment> = optimiser.moment_kinds().iter().map(zeros).collect();
        let mut expected: Vec<(f64, [f64; 2], f64)> =
            parameters.iter().map(|&value| (f64::from(value), [0.0; 2], 0.0)).collect();
        for step in 1..=10_u8 {
            let gradient = draw();
            let settings = StepSettings {
                groups: &groups,
                learning_rate: 0.05,
                weight_decay: 0.1,
                step: step.into(),
                scale: 2.0,
                share: 0.25,
            };
            let trained = Trained { parameters: &mut parameters, moments: &mut moments, average: &mut average };
            apply(Path::widest(), &mut threads, settings, trained, &mut gradient.clone());
            for (index, (value, moments, average)) in expected.iter_mut().enumerate() {
                let weight_decay = if index < DECAYED { 0.1 } else { 0.0 };
                formula(step.into(), f64::from(gradient[index]) / 2.0, weight_decay, moments, value);
                *average += 0.25 * (*value - *average);
            }
        }
        Compared {
            got: parameters.into_iter().zip(average).map(|(value, average)| [value, average]).collect(),
            expected: expected.into_iter().map(|(value, _, average)| [value, average]).collect(),
            moments,
        }
    }

    fn agrees(optimiser: Optimiser, formula: Formula) {
        let Compared { got, expected, .. } = compared(optimiser, MomentFormat::F32, 2, formula);
        for (index, (got, expected)) in got.into_iter().zip(expected).enumerate() {
            let apart = [0, 1].map(|of| f64::from(got[of]) - expected[of]);
            assert!(apart.iter().all(|apart| apart.abs() < 1e-5), "parameter {index}: {apart:?}");
        }
    }

    /// Loshchilov and Hutter 2019, algorithm 2.
    fn adamw(step: i32, g: f64, decay: f64, [m, v]: &mut [f64; 2], value: &mut f64) {
        *m = 0.9 * *m + 0.1 * g;
        *v = 0.99 * *v + 0.01 * g * g;
        let (m, v) = (*m / (1.0 - 0.9_f64.powi(step)), *v / (1.0 - 0.99_f64.powi(step)));
        *value -= 0.05 * (m / (v.sqrt() + 1e-8) + decay * *value);
    }

    /// Chen et al. 2023, algorithm 2.
    fn lion(_: i32, g: f64, decay: f64, [m, _]: &mut [f64; 2], value: &mut f64) {
        let direction = 0.9 * *m + 0.1 * g;
        *value -= 0.05 * (if direction == 0.0 { 0.0 } else { direction.signum() } + decay * *value);
        *m = 0.99 * *m + 0.01 * g;
    }

    fn sgd(_: i32, g: f64, decay: f64, [sum, _]: &mut [f64; 2], value: &mut f64) {
        *sum = 0.8 * *sum + g + decay * *value;
        *value -= 0.05 * *sum;
    }

    const ADAMW: Optimiser = Optimiser::AdamW { betas: [0.9, 0.99], epsilon: 1e-8 };
    const SGD: Optimiser = Optimiser::Sgd { momentum: 0.8 };

    #[test]
    fn adamw_follows_its_paper() {
        agrees(ADAMW, adamw);
    }

    #[test]
    fn lion_follows_its_paper() {
        agrees(Optimiser::lion(), lion);
    }

    #[test]
    fn sgd_adds_the_decay_to_the_gradient_and_keeps_momentum() {
        agrees(SGD, sgd);
    }

    /// Adjacent numbers are at most 1/128 apart in bfloat16; adjacent 8-bit codes of gradients at most 0.0071 of the
    /// largest in the block, codes of roots half of that.
    #[test]
    fn moments_of_few_bits_move_parameters_nearly_as_the_formulas_do() {
        // Ten rounding errors of a step of 0.05: for SGD in the momentum, which decays by 0.8; for AdamW relative to
        // a root of the second moment; for Lion a few signs near 0, each of which moves a parameter by 0.1.
        let cases: [(Optimiser, Formula, [f64; 2]); 3] =
            [(ADAMW, adamw, [6e-3, 2e-2]), (SGD, sgd, [3e-3, 3e-3]), (Optimiser::lion(), lion, [2e-2, 5e-2])];
        for (optimiser, formula, bounds) in cases {
            for (format, bound) in [MomentFormat::Bf16, MomentFormat::Int8].into_iter().zip(bounds) {
                let Compared { got, expected, .. } = compared(optimiser, format, 2, formula);
                let squares = got.iter().zip(expected).map(|(got, expected)| (f64::from(got[0]) - expected[0]).powi(2));
                let error = (squares.sum::<f64>() / SIZE as f64).sqrt();
                assert!(error < bound && error > 1e-6, "{optimiser:?} in {format}: {error}");
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit_of_any_format() {
        for format in [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Int8] {
            let [one, three] = [1, 3].map(|threads| compared(ADAMW, format, threads, adamw));
            assert!(one.got == three.got && one.moments == three.moments, "{format}");
        }
    }

    #[test]
    fn squares_are_summed_in_float64() {
        let numbers = vec![0.1; SIZE + 3];
        let sum = sum_of_squares(Path::widest(), &mut Threads::new(2).unwrap(), &numbers);
        let expected = (SIZE + 3) as f64 * f64::from(0.1_f32).powi(2);
        assert!((sum - expected).abs() < 1e-9 * expected, "{sum} instead of {expected}");
    }
}
