use tch::{Device, Kind, Tensor};

use crate::{
    Error,
    dispatcher::{self, AdamW},
};

/// The rule that turns gradients into steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimiser {
    /// Adam with decoupled weight decay, Loshchilov and Hutter 2019, algorithm 2.
    AdamW {
        /// Decay of the mean of gradients and of the mean of their squares, each in `[0, 1)`.
        betas: [f64; 2],
        /// Added to the root of the second moment.
        epsilon: f64,
    },
    /// Gradient descent with heavy-ball momentum; weight decay is part of the gradient, as L2 in the loss.
    Sgd {
        /// Decay of the sum of gradients, in `[0, 1)`.
        momentum: f64,
    },
}

impl Optimiser {
    /// AdamW with the constants of its paper.
    #[must_use]
    pub const fn adamw() -> Self {
        Self::AdamW { betas: [0.9, 0.999], epsilon: 1e-8 }
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        let below_one = |field, got: f64| match got {
            _ if (0.0..1.0).contains(&got) => Ok(()),
            _ => Err(Error::Setting { field, got, expected: "a number from 0 to below 1" }),
        };
        match self {
            Self::AdamW { betas, epsilon } => {
                betas.iter().try_for_each(|&beta| below_one("optimiser.betas", beta))?;
                if !(epsilon > 0.0 && epsilon.is_finite()) {
                    return Err(Error::Setting { field: "optimiser.epsilon", got: epsilon, expected: "above 0" });
                }
                Ok(())
            }
            Self::Sgd { momentum } => below_one("optimiser.momentum", momentum),
        }
    }

    /// The names of the moments in a checkpoint.
    pub(crate) fn moment_names(self) -> &'static [&'static str] {
        match self {
            Self::AdamW { .. } => &["first_moment.", "second_moment."],
            Self::Sgd { .. } => &["momentum."],
        }
    }
}

/// The settings of one step. Tensors are `[1]` and on the device of the parameters, so that no step waits for another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepSettings<'a> {
    /// float32.
    pub(crate) learning_rate: &'a Tensor,
    pub(crate) weight_decay: f64,
    /// The count of leading parameters that decay.
    pub(crate) decayed: usize,
    /// float32: 1 for the first step ever taken.
    pub(crate) step: &'a Tensor,
    /// float32: the gradient is divided by it.
    pub(crate) scale: &'a Tensor,
    /// bool: whether the step changes anything.
    pub(crate) is_applied: &'a Tensor,
}

/// Steps `parameters` `[P]` along `gradient` `[P]`, which it uses up, and updates `moments`, one `[P]` per name of the
/// optimiser.
///
/// AdamW: `m ← β₁m + (1−β₁)g`, `v ← β₂v + (1−β₂)g²`, `θ ← θ − η·λθ − η·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)`.
/// SGD: `b ← μb + g + λθ`, `θ ← θ − ηb`.
/// In both λ is zero beyond the decayed parameters.
pub(crate) fn apply(
    optimiser: Optimiser,
    settings: StepSettings<'_>,
    gradient: Tensor,
    moments: &mut [Tensor],
    parameters: &Tensor,
) -> Result<(), Error> {
    match (optimiser, parameters.device()) {
        // One pass over all numbers instead of a dozen.
        (Optimiser::AdamW { .. }, Device::Cpu | Device::Cuda(_)) => {
            in_one_pass(optimiser, settings, &gradient, moments, parameters)
        }
        _ => by_operations(optimiser, settings, gradient, moments, parameters),
    }
}

/// [`apply`] for AdamW by libtorch's fused operator, which the CPU and CUDA have.
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
    let StepSettings { learning_rate, weight_decay, decayed, step, scale, is_applied } = settings;
    let is_refused = &is_applied.f_logical_not()?.f_to_kind(Kind::Float)?;
    let decayed = i64::try_from(decayed).expect("parameters fit memory");
    let all = i64::try_from(parameters.numel()).expect("parameters fit memory");
    for (start, len, weight_decay) in [(0, decayed, weight_decay), (decayed, all - decayed, 0.0)] {
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, len);
        let adamw = AdamW { learning_rate, betas, weight_decay, epsilon, scale, is_refused, step };
        let moments = [&part(first)?, &part(second)?];
        dispatcher::fused_adamw(&part(parameters)?, &part(gradient)?, moments, adamw)?;
    }
    Ok(())
}

/// [`apply`] by one operation for each term of the formulas.
fn by_operations(
    optimiser: Optimiser,
    settings: StepSettings<'_>,
    mut gradient: Tensor,
    moments: &mut [Tensor],
    parameters: &Tensor,
) -> Result<(), Error> {
    let StepSettings { learning_rate, weight_decay, decayed, step, scale, is_applied } = settings;
    let decayed = i64::try_from(decayed).expect("parameters fit memory");
    let keep = |new: &Tensor, old: &Tensor| -> Result<(), Error> {
        Ok(old.shallow_clone().f_copy_(&new.f_where_self(is_applied, old)?)?)
    };
    let mut stepped = parameters.f_detach_copy()?;
    let mut weights = stepped.f_narrow(0, 0, decayed)?;
    let _ = gradient.f_div_(scale)?;
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
            let _ = weights.f_multiply_(&learning_rate.f_multiply_scalar(-weight_decay)?.f_add_scalar(1.0)?)?;
            let _ = stepped.f_sub_(&update)?;
            keep(&mean, first)?;
            keep(&squares, second)?;
        }
        Optimiser::Sgd { momentum } => {
            let [sum] = moments else { unreachable!("SGD keeps one moment") };
            let moved = sum.f_multiply_scalar(momentum)?.f_add(&gradient)?;
            let _ = moved.f_narrow(0, 0, decayed)?.f_add_(&weights.f_multiply_scalar(weight_decay)?)?;
            let _ = stepped.f_sub_(&moved.f_mul(learning_rate)?)?;
            keep(&moved, sum)?;
        }
    }
    keep(&stepped, parameters)
}

/// The decay of the learning rate with the progress of a run, from 0 at its start to 1 at its end.
#[derive(Debug, Clone, PartialEq)]
pub enum Decay {
    /// The learning rate does not decay.
    Constant,
    /// Half a cosine from the peak to `floor` times the peak.
    Cosine {
        /// Share of the peak that remains at the end, in `[0, 1]`.
        floor: f64,
    },
    /// The learning rate is multiplied by `factor` at each progress in `at`.
    Steps {
        /// The factor of each step, in `(0, 1]`.
        factor: f64,
        /// Progress at which the steps occur, each in `[0, 1]`.
        at: Vec<f64>,
    },
}

impl Decay {
    /// The share of the peak at `progress`.
    pub(crate) fn factor(&self, progress: f64) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Cosine { floor } => floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
            Self::Steps { factor, at } => {
                let taken = at.iter().filter(|&&at| progress >= at).count();
                factor.powi(i32::try_from(taken).unwrap_or(i32::MAX))
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let share = |field, got: f64| match got {
            _ if (0.0..=1.0).contains(&got) => Ok(()),
            _ => Err(Error::Setting { field, got, expected: "a share from 0 to 1" }),
        };
        match self {
            Self::Constant => Ok(()),
            Self::Cosine { floor } => share("decay.floor", *floor),
            Self::Steps { factor, at } => {
                share("decay.factor", *factor)?;
                at.iter().try_for_each(|&at| share("decay.at", at))
            }
        }
    }
}

/// The share of the peak while the learning rate warms up: it rises linearly over the first `steps` training steps.
pub(crate) fn warm_up(step: u64, steps: u64) -> f64 {
    if step >= steps { 1.0 } else { (step + 1) as f64 / (steps + 1) as f64 }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use tch::{Kind, Tensor};

    use super::{Decay, Optimiser, StepSettings, by_operations, in_one_pass, warm_up};
    use crate::{
        Error,
        tests::networks::{assert_close, numbers},
    };

    const DECAYED: usize = 4;
    const SCALE: f32 = 2.0;

    type Apply = fn(Optimiser, StepSettings<'_>, Tensor, &mut [Tensor], &Tensor) -> Result<(), Error>;

    fn fused(
        optimiser: Optimiser,
        settings: StepSettings<'_>,
        gradient: Tensor,
        moments: &mut [Tensor],
        parameters: &Tensor,
    ) -> Result<(), Error> {
        in_one_pass(optimiser, settings, &gradient, moments, parameters)
    }

    /// Ten steps with random gradients by libtorch in float32 and by `formula` in float64, one parameter at a time,
    /// with a refused step after each. `formula` takes the step, the gradient, the weight decay of this parameter, its
    /// moments and itself.
    fn agrees(optimiser: Optimiser, apply: Apply, formula: fn(i32, f64, f64, &mut [f64; 2], &mut f64)) {
        let mut rng = ChaCha8Rng::seed_from_u64(31);
        let mut draw = || -> Vec<f32> { (0..7).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let start = draw();
        let parameters = Tensor::from_slice(&start);
        let mut moments: Vec<Tensor> = optimiser.moment_names().iter().map(|_| parameters.zeros_like()).collect();
        let mut expected: Vec<(f64, [f64; 2])> = start.iter().map(|&value| (f64::from(value), [0.0; 2])).collect();
        for step in 1..=10_u8 {
            let gradient = draw();
            let settings = StepSettings {
                learning_rate: &Tensor::from_slice(&[0.05_f32]),
                weight_decay: 0.1,
                decayed: DECAYED,
                step: &Tensor::from_slice(&[f32::from(step)]),
                scale: &Tensor::from_slice(&[SCALE]),
                is_applied: &Tensor::from_slice(&[true]),
            };
            apply(optimiser, settings, Tensor::from_slice(&gradient), &mut moments, &parameters).unwrap();
            let state = |moments: &[Tensor]| -> Vec<Vec<f32>> {
                let all = moments.iter().chain([&parameters]);
                all.map(|tensor| Vec::try_from(tensor).unwrap()).collect()
            };
            let before = state(&moments);
            let refused = StepSettings { is_applied: &Tensor::from_slice(&[false]), ..settings };
            apply(optimiser, refused, Tensor::from_slice(&[f32::NAN; 7]), &mut moments, &parameters).unwrap();
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
        for apply in [fused as Apply, by_operations] {
            agrees(Optimiser::AdamW { betas: [0.9, 0.99], epsilon: 1e-8 }, apply, |step, g, decay, [m, v], value| {
                *m = 0.9 * *m + 0.1 * g;
                *v = 0.99 * *v + 0.01 * g * g;
                let (m, v) = (*m / (1.0 - 0.9_f64.powi(step)), *v / (1.0 - 0.99_f64.powi(step)));
                *value -= 0.05 * (m / (v.sqrt() + 1e-8) + decay * *value);
            });
        }
    }

    #[test]
    fn sgd_adds_the_decay_to_the_gradient_and_keeps_momentum() {
        agrees(Optimiser::Sgd { momentum: 0.8 }, by_operations, |_, g, decay, [sum, _], value| {
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

    #[test]
    fn a_cosine_falls_from_the_peak_to_its_floor_through_the_middle() {
        let cosine = Decay::Cosine { floor: 0.1 };
        let factors = [0.0, 0.5, 1.0].map(|progress| cosine.factor(progress));
        for (got, expected) in factors.into_iter().zip([1.0, 0.55, 0.1]) {
            assert!((got - expected).abs() < 1e-12, "{factors:?}");
        }
    }

    #[test]
    fn steps_multiply_at_their_places() {
        let steps = Decay::Steps { factor: 0.5, at: vec![0.25, 0.75] };
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|progress| steps.factor(progress)), [1.0, 0.5, 0.5, 0.25, 0.25]);
    }

    #[test]
    fn the_warm_up_is_a_line_that_never_gives_zero() {
        assert_eq!([0, 1, 2, 3, 9].map(|step| warm_up(step, 3)), [0.25, 0.5, 0.75, 1.0, 1.0]);
        assert_eq!(warm_up(0, 0), 1.0);
    }

    #[test]
    fn shares_outside_their_range_are_refused_by_name() {
        let error = Decay::Cosine { floor: f64::NAN }.check().unwrap_err();
        assert_eq!(error.to_string(), "setting `decay.floor` is NaN, expected a share from 0 to 1");
        assert!(Decay::Steps { factor: 0.1, at: vec![0.5, 1.5] }.check().is_err());
    }
}
