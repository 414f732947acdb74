use inference::TrainingKernel;
use weights::Architecture;

use crate::{Decay, Error, Losses, ModelLayers, MomentFormat, Optimiser, Precision, Recompute, decay};

/// Settings of a trainer, common to all backends.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainerSettings {
    /// The rule that computes parameter updates from gradients.
    pub optimiser: Optimiser,
    /// Storage format of the optimiser's moments.
    pub moments: MomentFormat,
    /// Peak learning rate, which is reached after the warm-up.
    pub learning_rate: f64,
    /// Number of training steps over which the learning rate grows linearly, starting near zero.
    pub warm_up_steps: u64,
    /// Decay of the learning rate with progress.
    pub decay: Decay,
    /// Number of training steps after which the progress is 1; `None` if progress is only set from outside.
    pub decay_steps: Option<u64>,
    /// Weight decay of convolutions and matrices. Norms and biases have no weight decay.
    pub weight_decay: f64,
    /// Maximum norm of the gradient; a larger gradient is scaled down to this norm.
    pub gradient_clip_norm: f64,
    /// Decay rate of the averaged weights per training step. In step t it is at most `(1 + t) / (10 + t)`, so that the
    /// influence of the initial weights vanishes quickly.
    pub ema_decay: f64,
    /// Progress from 0 to 1 at which the average becomes the plain mean of all later weights (stochastic weight
    /// averaging; Izmailov et al. 2018); `None` keeps the exponential average.
    pub swa_start: Option<f64>,
    /// Weight of each part of the loss in the total. The consistency loss (Ye et al. 2021) has the weight 2 in the
    /// publication. Above 0, the network has projection heads ([`layers`](Self::layers)), and batches must contain the
    /// observations of unrolled steps.
    pub loss_weights: Losses,
    /// Number format for convolutions and matrices. Parameters and losses are always float32.
    pub precision: Precision,
    /// True to compare layer gradients with float32 at intervals, and to switch layers with a large error to float32
    /// ([`mixed_precision`](crate::mixed_precision)).
    pub is_adaptive: bool,
    /// The kernels for stem and tower.
    pub tower: TrainingKernel,
    /// Maximum number of positions per pass through the network. Larger batches are split into micro-batches of about
    /// equal size, and the gradients are added. 0 splits a batch only after the device ran out of memory. Each
    /// micro-batch has separate batch norm statistics and updates the running statistics.
    pub micro_batch: usize,
    /// Activations that the backward pass recomputes.
    pub recompute: Recompute,
}

impl TrainerSettings {
    /// Returns the defaults for MuZero: as for AlphaZero, but with a weight of 1/4 for the value loss, to limit
    /// overfitting of the value (Schrittwieser et al. 2020, appendix H).
    #[must_use]
    pub fn muzero() -> Self {
        Self { loss_weights: Losses { value: 0.25, ..Losses::WEIGHTS }, ..Self::default() }
    }
}

impl Default for TrainerSettings {
    /// Returns AdamW with a learning rate of 1e-3, a short warm-up, and a cosine decay to 1/20. With these settings,
    /// small networks learn games on small boards in minutes.
    fn default() -> Self {
        Self {
            optimiser: Optimiser::adamw(),
            moments: MomentFormat::F32,
            learning_rate: 1e-3,
            warm_up_steps: 100,
            decay: Decay::Cosine { floor: 0.05 },
            decay_steps: None,
            weight_decay: 1e-4,
            gradient_clip_norm: 4.0,
            ema_decay: 0.999,
            swa_start: None,
            loss_weights: Losses::WEIGHTS,
            precision: Precision::F32,
            is_adaptive: false,
            tower: TrainingKernel::Auto,
            micro_batch: 0,
            recompute: Recompute::None,
        }
    }
}

impl TrainerSettings {
    /// Returns the layers of the network to train. They include consistency heads if the consistency loss has a weight
    /// above 0.
    ///
    /// # Errors
    /// [`Error::Network`] names a dimension that is out of range, or the model if it is AlphaZero, which has no
    /// consistency loss.
    pub fn layers(&self, architecture: &Architecture) -> Result<ModelLayers, Error> {
        match self.loss_weights.consistency > 0.0 {
            true => ModelLayers::with_consistency(architecture),
            false => ModelLayers::new(architecture),
        }
    }

    /// Returns the progress of a run after `steps` training steps: `set`, or `steps / decay_steps` if that is larger.
    #[must_use]
    pub fn progress_after(&self, steps: u64, set: f64) -> f64 {
        let by_steps = self.decay_steps.map_or(0.0, |all| steps as f64 / all.max(1) as f64);
        set.max(by_steps.min(1.0))
    }

    /// Returns the learning rate of the training step after `steps` steps. `set_progress` is the progress set from
    /// outside.
    #[must_use]
    pub fn learning_rate_after(&self, steps: u64, set_progress: f64) -> f64 {
        let warm_up = decay::warm_up(steps, self.warm_up_steps);
        self.learning_rate * warm_up * self.decay.factor(self.progress_after(steps, set_progress))
    }

    /// Returns the share of the current weights in the average after step `steps` (0-based). `since` is the number of
    /// steps before the equally weighted average started; `None` for the exponential average.
    #[must_use]
    pub fn average_share(&self, steps: u64, since: Option<u64>) -> f64 {
        match since {
            Some(since) => 1.0 / (steps.saturating_sub(since) + 1) as f64,
            // The formula is 1 − min(decay, (1 + t) / (10 + t)), after t steps.
            None => (9.0 / (steps + 10) as f64).max(1.0 - self.ema_decay),
        }
    }

    /// Returns true if the average is equally weighted at this progress.
    #[must_use]
    pub fn averages_equally(&self, progress: f64) -> bool {
        self.swa_start.is_some_and(|start| progress >= start)
    }

    /// Checks the range of every setting, for a network with these layers.
    ///
    /// # Errors
    /// [`Error::Setting`] names a setting that is out of range, or the weight of a consistency loss for a network
    /// without the required heads.
    pub fn check(&self, layers: &ModelLayers) -> Result<(), Error> {
        self.optimiser.check()?;
        self.decay.check()?;
        let is_factor = |x: f64| x >= 0.0 && x.is_finite();
        let factor = |field, x| (field, x, is_factor(x), "a finite number, 0 or above");
        let (clip, ema, consistency) = (self.gradient_clip_norm, self.ema_decay, self.loss_weights.consistency);
        let swa = self.swa_start.unwrap_or(1.0);
        let has_heads = consistency <= 0.0 || layers.consistency().is_some();
        let checks = [
            factor("learning_rate", self.learning_rate),
            factor("weight_decay", self.weight_decay),
            ("consistency", consistency, has_heads, "the weight 0 for a network without heads of this loss"),
            ("gradient_clip_norm", clip, clip > 0.0, "above 0"),
            ("ema_decay", ema, (0.0..1.0).contains(&ema), "from 0 to below 1"),
            ("swa_start", swa, (0.0..=1.0).contains(&swa), "a share from 0 to 1"),
        ];
        let weight = |(part, weight)| (part, weight, is_factor(weight), "the weight of a loss: finite, 0 or above");
        match checks.into_iter().chain(self.loss_weights.parts().map(weight)).find(|(.., is_good, _)| !is_good) {
            Some((field, got, _, expected)) => Err(Error::Setting { field, got, expected }),
            None => Ok(()),
        }
    }
}
