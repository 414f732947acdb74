use tch::Tensor;

use crate::Error;

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

/// The settings of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepSettings {
    pub(crate) learning_rate: f64,
    pub(crate) weight_decay: f64,
    /// The count of leading parameters that decay.
    pub(crate) decayed: usize,
    /// 1 for the first step ever taken.
    pub(crate) step: u64,
}

/// Steps `parameters` `[P]` along `gradient` `[P]` and updates `moments`, one `[P]` per name of the optimiser.
///
/// AdamW: `m ← β₁m + (1−β₁)g`, `v ← β₂v + (1−β₂)g²`, `θ ← θ − η·λθ − η·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)`.
/// SGD: `b ← μb + g + λθ`, `θ ← θ − ηb`.
/// In both λ is zero beyond the decayed parameters.
pub(crate) fn apply(
    optimiser: Optimiser,
    settings: StepSettings,
    gradient: &Tensor,
    moments: &mut [Tensor],
    parameters: &Tensor,
) -> Result<(), Error> {
    let StepSettings { learning_rate, weight_decay, decayed, step } = settings;
    let decayed = i64::try_from(decayed).expect("parameters fit memory");
    let mut parameters = parameters.shallow_clone();
    let mut weights = parameters.f_narrow(0, 0, decayed)?;
    match optimiser {
        Optimiser::AdamW { betas, epsilon } => {
            let [first, second] = moments else { unreachable!("AdamW keeps two moments") };
            let _ = first.f_lerp_(gradient, 1.0 - betas[0])?;
            let _ = second.f_lerp_(&gradient.f_square()?, 1.0 - betas[1])?;
            let [correction_first, correction_second] = betas.map(|beta| 1.0 - beta.powf(step as f64));
            let mut root = second.f_sqrt()?;
            let _ = root.f_multiply_scalar_(1.0 / correction_second.sqrt())?.f_add_scalar_(epsilon)?;
            let mut update = first.f_div(&root)?;
            let _ = update.f_multiply_scalar_(-learning_rate / correction_first)?;
            let _ = weights.f_multiply_scalar_(1.0 - learning_rate * weight_decay)?;
            let _ = parameters.f_add_(&update)?;
        }
        Optimiser::Sgd { momentum } => {
            let [sum] = moments else { unreachable!("SGD keeps one moment") };
            let _ = sum.f_multiply_scalar_(momentum)?.f_add_(gradient)?;
            let _ = sum.f_narrow(0, 0, decayed)?.f_add_(&weights.f_multiply_scalar(weight_decay)?)?;
            let _ = parameters.f_add_(&sum.f_multiply_scalar(-learning_rate)?)?;
        }
    }
    Ok(())
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

    use super::{Decay, Optimiser, StepSettings, apply, warm_up};
    use crate::tests::networks::{assert_close, numbers};

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
