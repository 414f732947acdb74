use tch::{Device, Kind, Tensor};
use training::muon::{COEFFICIENTS, EPSILON, ITERATIONS, scale};
use training::{Group, Optimiser};

use crate::{
    Error,
    dispatcher::{self, AdamW},
    moments::{Moment, Rounding},
};

/// Numbers rounded at once if moments are not float32, in whole blocks: the float32 scratch memory per moment.
const CHUNK: i64 = 1 << 20;

/// Settings of one step. Tensors are `[1]` and on the device of the parameters, so that no step waits for another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepSettings<'a> {
    /// All parameters, in order.
    pub(crate) groups: &'a [Group],
    /// float32.
    pub(crate) learning_rate: &'a Tensor,
    pub(crate) weight_decay: f64,
    /// float32: step number, 1 for the first step ever taken.
    pub(crate) step: &'a Tensor,
    /// float32: divisor of the gradient.
    pub(crate) scale: &'a Tensor,
    /// bool: whether the step changes anything.
    pub(crate) is_applied: &'a Tensor,
}

/// Steps `parameters` `[P]` along `gradient` `[P]`, which is consumed, and updates `moments`, one `[P]` per moment
/// name of the optimiser.
///
/// AdamW: `m ← β₁m + (1−β₁)g`, `v ← β₂v + (1−β₂)g²`, `θ ← θ − η·λθ − η·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)`.
/// Lion: `θ ← θ − η·λθ − η·sign(β₁m + (1−β₁)g)`, `m ← β₂m + (1−β₂)g`.
/// Muon: `b ← μb + g`, `θ ← θ − η·λθ − ηs·O` with O approximately the orthogonalised `g + μb` and s from
/// [`training::muon::scale`].
/// SGD: `b ← μb + g + λθ`, `θ ← θ − ηb`.
/// λ is zero in groups without decay. Moments are computed in float32 and rounded stochastically to the stored
/// format.
pub(crate) fn apply(
    settings: StepSettings<'_>,
    gradient: Tensor,
    moments: &[Moment],
    parameters: &Tensor,
) -> Result<(), Error> {
    if let Some(floats) = moments.iter().map(Moment::floats).collect::<Option<Vec<_>>>() {
        apply_in_float32(settings, 0, &gradient, &floats, parameters)?;
        return step_matrices(settings, &gradient, parameters);
    }
    let all = i64::try_from(parameters.numel()).expect("parameters fit memory");
    let roundings: Vec<Rounding> =
        (0..moments.len()).map(|index| Rounding::stochastic(settings.step, index)).collect::<Result<_, _>>()?;
    let mut start = 0;
    while start < all {
        let len = CHUNK.min(all - start);
        let floats: Vec<Tensor> = moments.iter().map(|moment| moment.read(start, len)).collect::<Result<_, _>>()?;
        let [parameters, gradient] = [parameters, &gradient].map(|tensor| tensor.f_narrow(0, start, len));
        apply_in_float32(settings, start, &gradient?, &floats, &parameters?)?;
        for ((moment, numbers), rounding) in moments.iter().zip(&floats).zip(&roundings) {
            moment.write(start, numbers, rounding, settings.is_applied)?;
        }
        start += len;
    }
    step_matrices(settings, &gradient, parameters)
}

/// Applies [`apply`] to the numbers from `first` on, with float32 moments.
fn apply_in_float32(
    settings: StepSettings<'_>,
    first: i64,
    gradient: &Tensor,
    moments: &[Tensor],
    parameters: &Tensor,
) -> Result<(), Error> {
    let all = i64::try_from(parameters.numel()).expect("parameters fit memory");
    for group in settings.groups {
        let place = |place| i64::try_from(place).expect("parameters fit memory").saturating_sub(first).clamp(0, all);
        let [start, end] = [group.range.start, group.range.end].map(place);
        if start == end {
            continue;
        }
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, end - start);
        let moments = moments.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let weight_decay = if group.is_decayed { settings.weight_decay } else { 0.0 };
        let step = match (group.optimiser, parameters.device()) {
            // One pass over all numbers instead of a dozen.
            (Optimiser::AdamW { .. }, Device::Cpu | Device::Cuda(_)) => in_one_pass,
            _ => by_operations,
        };
        let settings = StepSettings { weight_decay, ..settings };
        step(group.optimiser, settings, &part(gradient)?, &moments, &part(parameters)?)?;
    }
    Ok(())
}

/// Second half of a Muon step: along the orthogonalised `directions` `[P]`, which the first half left in place of the
/// gradient.
fn step_matrices(settings: StepSettings<'_>, directions: &Tensor, parameters: &Tensor) -> Result<(), Error> {
    let StepSettings { groups, learning_rate, weight_decay, is_applied, .. } = settings;
    for Group { range, matrix, .. } in groups {
        let &Some(shape) = matrix else { continue };
        let size = |size: usize| i64::try_from(size).expect("parameters fit memory");
        let [outputs, inputs] = shape.map(size);
        let part = |all: &Tensor| all.f_narrow(0, size(range.start), size(range.len()))?.f_view([-1, outputs, inputs]);
        let (directions, mut weights) = (orthogonalised(&part(directions)?)?, part(parameters)?);
        let kept = learning_rate.f_multiply_scalar(-weight_decay)?.f_add_scalar(1.0)?;
        let update = directions.f_mul(&learning_rate.f_multiply_scalar(scale(shape))?)?;
        let stepped = weights.f_mul(&kept)?.f_sub(&update)?;
        weights.f_copy_(&stepped.f_where_self(is_applied, &weights)?)?;
    }
    Ok(())
}

/// Returns approximately the nearest orthogonal matrices to `matrices` `[n, outputs, inputs]`. With X each matrix
/// divided by the Frobenius norm, or the transpose if that is taller, each iteration is `X ← X (aI + bA + cA²)` with
/// `A = XᵀX` of the smaller dimension.
fn orthogonalised(matrices: &Tensor) -> Result<Tensor, Error> {
    let (_, outputs, inputs) = matrices.size3()?;
    let turned = |x: &Tensor| if inputs > outputs { x.f_transpose(1, 2) } else { Ok(x.shallow_clone()) };
    let norms = matrices.f_square()?.f_sum_dim_intlist([1_i64, 2].as_slice(), true, None::<Kind>)?.f_sqrt()?;
    let mut x = turned(&matrices.f_div(&norms.f_add_scalar(EPSILON)?)?)?;
    let [a, b, c] = COEFFICIENTS;
    let identity = Tensor::f_eye(outputs.min(inputs), (Kind::Float, matrices.device()))?.f_multiply_scalar(a)?;
    for _ in 0..ITERATIONS {
        let gram = x.f_transpose(1, 2)?.f_matmul(&x)?;
        let squares = gram.f_matmul(&gram)?.f_multiply_scalar(c)?;
        x = x.f_matmul(&gram.f_multiply_scalar(b)?.f_add(&squares)?.f_add(&identity)?)?;
    }
    Ok(turned(&x)?)
}

/// Applies [`apply`] to an AdamW group with libtorch's fused operator, which the CPU and CUDA have.
fn in_one_pass(
    optimiser: Optimiser,
    settings: StepSettings<'_>,
    gradient: &Tensor,
    moments: &[Tensor],
    parameters: &Tensor,
) -> Result<(), Error> {
    let (Optimiser::AdamW { betas, epsilon }, [first, second]) = (optimiser, moments) else {
        unreachable!("AdamW keeps two moments")
    };
    let StepSettings { learning_rate, weight_decay, step, scale, is_applied, .. } = settings;
    let is_refused = &is_applied.f_logical_not()?.f_to_kind(Kind::Float)?;
    let adamw = AdamW { learning_rate, betas, weight_decay, epsilon, scale, is_refused, step };
    dispatcher::fused_adamw(parameters, gradient, [first, second], adamw)
}

/// Applies [`apply`] to a group with one operation per term of the formulas.
fn by_operations(
    optimiser: Optimiser,
    settings: StepSettings<'_>,
    gradient: &Tensor,
    moments: &[Tensor],
    parameters: &Tensor,
) -> Result<(), Error> {
    let StepSettings { learning_rate, weight_decay, step, scale, is_applied, .. } = settings;
    let keep = |new: &Tensor, old: &Tensor| -> Result<(), Error> {
        Ok(old.shallow_clone().f_copy_(&new.f_where_self(is_applied, old)?)?)
    };
    let mut gradient = gradient.shallow_clone();
    let _ = gradient.f_div_(scale)?;
    let kept = || learning_rate.f_multiply_scalar(-weight_decay)?.f_add_scalar(1.0);
    let mut stepped = parameters.f_detach_copy()?;
    match optimiser {
        Optimiser::AdamW { betas, epsilon } => {
            let [first, second] = moments else { unreachable!("AdamW keeps two moments") };
            let mean = first.f_lerp(&gradient, 1.0 - betas[0])?;
            let squares = second.f_lerp(&gradient.f_square()?, 1.0 - betas[1])?;
            // 1 − βᵗ, without cancellation.
            let correction = |beta: f64| step.f_multiply_scalar(beta.ln())?.f_expm1()?.f_neg();
            let root = squares.f_div(&correction(betas[1])?)?.f_sqrt()?.f_add_scalar(epsilon)?;
            let mut update = mean.f_div(&root)?;
            let _ = update.f_multiply_(&learning_rate.f_div(&correction(betas[0])?)?)?;
            let _ = stepped.f_multiply_(&kept()?)?.f_sub_(&update)?;
            keep(&mean, first)?;
            keep(&squares, second)?;
        }
        Optimiser::Lion { betas } => {
            let [mean] = moments else { unreachable!("Lion keeps one moment") };
            let direction = mean.f_lerp(&gradient, 1.0 - betas[0])?.f_sign()?;
            let _ = stepped.f_multiply_(&kept()?)?.f_sub_(&direction.f_mul(learning_rate)?)?;
            keep(&mean.f_lerp(&gradient, 1.0 - betas[1])?, mean)?;
        }
        Optimiser::Muon { momentum } => {
            let [sum, _] = moments else { unreachable!("Muon keeps two moments") };
            let moved = sum.f_multiply_scalar(momentum)?.f_add(&gradient)?;
            // The direction before orthogonalisation, which needs the whole matrix.
            let _ = gradient.f_add_(&moved.f_multiply_scalar(momentum)?)?;
            return keep(&moved, sum);
        }
        Optimiser::Sgd { momentum } => {
            let [sum] = moments else { unreachable!("SGD keeps one moment") };
            let decay = stepped.f_multiply_scalar(weight_decay)?;
            let moved = sum.f_multiply_scalar(momentum)?.f_add(&gradient)?.f_add(&decay)?;
            let _ = stepped.f_sub_(&moved.f_mul(learning_rate)?)?;
            keep(&moved, sum)?;
        }
    }
    keep(&stepped, parameters)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use tch::{Kind, Tensor};
    use training::Optimiser;

    use super::{COEFFICIENTS, ITERATIONS, StepSettings, by_operations, in_one_pass, orthogonalised};
    use crate::{
        Error,
        tests::networks::{assert_close, numbers},
    };

    const DECAYED: usize = 4;
    const SCALE: f32 = 2.0;

    type Apply = fn(Optimiser, StepSettings<'_>, &Tensor, &[Tensor], &Tensor) -> Result<(), Error>;

    /// Applies a step to the decaying parameters and to all other parameters.
    fn to_groups(
        apply: Apply,
        optimiser: Optimiser,
        settings: StepSettings<'_>,
        all: (&[f32], &[Tensor], &Tensor),
    ) -> Result<(), Error> {
        let (gradient, moments, parameters) = all;
        let gradient = Tensor::from_slice(gradient);
        for (start, len, weight_decay) in [(0, DECAYED, settings.weight_decay), (DECAYED, 7 - DECAYED, 0.0)] {
            let part = |tensor: &Tensor| tensor.narrow(0, start as i64, len as i64);
            let moments: Vec<Tensor> = moments.iter().map(part).collect();
            let settings = StepSettings { weight_decay, ..settings };
            apply(optimiser, settings, &part(&gradient), &moments, &part(parameters))?;
        }
        Ok(())
    }

    /// Takes ten steps with random gradients by libtorch in float32 and by `formula` in float64, one parameter at a
    /// time, with a refused step after each. `formula` takes the step, the gradient, the weight decay of the
    /// parameter, the moments and the parameter.
    fn agrees(optimiser: Optimiser, apply: Apply, formula: fn(i32, f64, f64, &mut [f64; 2], &mut f64)) {
        let mut rng = ChaCha8Rng::seed_from_u64(31);
        let mut draw = || -> Vec<f32> { (0..7).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let start = draw();
        let parameters = Tensor::from_slice(&start);
        let moments: Vec<Tensor> = optimiser.moment_names().iter().map(|_| parameters.zeros_like()).collect();
        let mut expected: Vec<(f64, [f64; 2])> = start.iter().map(|&value| (f64::from(value), [0.0; 2])).collect();
        for step in 1..=10_u8 {
            let gradient = draw();
            let settings = StepSettings {
                groups: &[],
                learning_rate: &Tensor::from_slice(&[0.05_f32]),
                weight_decay: 0.1,
                step: &Tensor::from_slice(&[f32::from(step)]),
                scale: &Tensor::from_slice(&[SCALE]),
                is_applied: &Tensor::from_slice(&[true]),
            };
            to_groups(apply, optimiser, settings, (&gradient, &moments, &parameters)).unwrap();
            let state = |moments: &[Tensor]| -> Vec<Vec<f32>> {
                let all = moments.iter().chain([&parameters]);
                all.map(|tensor| Vec::try_from(tensor).unwrap()).collect()
            };
            let before = state(&moments);
            let refused = StepSettings { is_applied: &Tensor::from_slice(&[false]), ..settings };
            to_groups(apply, optimiser, refused, (&[f32::NAN; 7], &moments, &parameters)).unwrap();
            assert_eq!(state(&moments), before, "a refused step changed something");
            for (index, (value, moments)) in expected.iter_mut().enumerate() {
                let weight_decay = if index < DECAYED { 0.1 } else { 0.0 };
                formula(i32::from(step), f64::from(gradient[index] / SCALE), weight_decay, moments, value);
            }
        }
        let expected: Vec<f64> = expected.into_iter().map(|(value, _)| value).collect();
        assert_eq!(parameters.kind(), Kind::Float);
        assert_close(&numbers(&parameters), &expected, 1e-5);
    }

    /// Loshchilov and Hutter 2019, algorithm 2.
    #[test]
    fn adamw_follows_its_paper_in_one_pass_and_by_operations() {
        for apply in [in_one_pass as Apply, by_operations] {
            agrees(Optimiser::AdamW { betas: [0.9, 0.99], epsilon: 1e-8 }, apply, |step, g, decay, [m, v], value| {
                *m = 0.9 * *m + 0.1 * g;
                *v = 0.99 * *v + 0.01 * g * g;
                let (m, v) = (*m / (1.0 - 0.9_f64.powi(step)), *v / (1.0 - 0.99_f64.powi(step)));
                *value -= 0.05 * (m / (v.sqrt() + 1e-8) + decay * *value);
            });
        }
    }

    /// Chen et al. 2023, algorithm 2.
    #[test]
    fn lion_follows_its_paper() {
        agrees(Optimiser::lion(), by_operations, |_, g, decay, [m, _], value| {
            let direction = 0.9 * *m + 0.1 * g;
            *value -= 0.05 * (direction.signum() + decay * *value);
            *m = 0.99 * *m + 0.01 * g;
        });
    }

    /// Matrices are products of known singular values and vectors: the iteration changes the values alone.
    #[test]
    fn singular_values_become_about_one_as_in_float64() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut orthonormal = |len: i64, rank: i64| {
            let numbers: Vec<f64> = (0..2 * len * rank).map(|_| rng.random_range(-1.0..1.0)).collect();
            Tensor::linalg_qr(&Tensor::from_slice(&numbers).view([2, len, rank]), "reduced").0
        };
        let [a, b, c] = COEFFICIENTS;
        for [outputs, inputs, rank] in [[64, 576, 64], [96, 40, 40], [33, 33, 33], [20, 48, 3], [48, 20, 7], [1, 7, 1]]
        {
            let [left, right] = [outputs, inputs].map(|len| orthonormal(len, rank));
            let values = (Tensor::linspace(-1.0, 1.0, rank, (Kind::Double, tch::Device::Cpu)) * 10.0_f64.ln()).exp();
            let matrices = |values: &Tensor| (&left * values).matmul(&right.transpose(1, 2));
            let got = orthogonalised(&matrices(&values).to_kind(Kind::Float)).unwrap().to_kind(Kind::Double);
            let begun = &values / values.norm();
            let ends =
                (0..ITERATIONS).fold(begun, |x, _| a * &x + b * x.pow_tensor_scalar(3) + c * x.pow_tensor_scalar(5));
            // The extrema of the polynomial near 1, where it moves values towards 1, are 0.6817 and 1.2024.
            assert!(ends.min().double_value(&[]) > 0.68 && ends.max().double_value(&[]) < 1.21, "{ends}");
            let error = ((&got - matrices(&ends)).norm() / got.norm()).double_value(&[]);
            assert!(error < 1e-4, "[{outputs}, {inputs}] of rank {rank}: relative error {error}");
        }
        let zeros = Tensor::zeros([1, 3, 4], (Kind::Float, tch::Device::Cpu));
        assert_eq!(orthogonalised(&zeros).unwrap(), zeros);
    }

    #[test]
    fn sgd_adds_the_decay_to_the_gradient_and_keeps_momentum() {
        agrees(Optimiser::Sgd { momentum: 0.8 }, by_operations, |_, g, decay, [sum, _], value| {
            *sum = 0.8 * *sum + g + decay * *value;
            *value -= 0.05 * *sum;
        });
    }
}
