use inference::TrainingKernel;
use weights::Architecture;

use crate::{Decay, Error, ModelLayers, MomentFormat, Optimiser, Precision, Recompute, decay};

/// Settings of training.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainerSettings {
    /// The rule that turns gradients into steps.
    pub optimiser: Optimiser,
    /// The format in which the moments of the optimiser are stored.
    pub moments: MomentFormat,
    /// The learning rate at its peak, after the warm-up.
    pub learning_rate: f64,
    /// Training steps over which the learning rate rises linearly from near zero.
    pub warm_up_steps: u64,
    /// The decay of the learning rate with progress.
    pub decay: Decay,
    /// The number of training steps after which progress is 1; `None` if progress is only set.
    pub decay_steps: Option<u64>,
    /// Weight decay of convolutions and matrices; batch norms and biases have none.
    pub weight_decay: f64,
    /// Gradients with a larger norm are scaled down to this norm.
    pub gradient_clip_norm: f64,
    /// Share of the old average that each step keeps; early steps keep less, `min(this, (1 + t) / (10 + t))`, so that
    /// the initial weights soon lose their influence.
    pub ema_decay: f64,
    /// The progress from which on the average is that of all weights since then, with equal shares (stochastic weight
    /// averaging; Izmailov et al. 2018), in `[0, 1]`; `None` if it stays exponential.
    pub swa_start: Option<f64>,
    /// The factor of the value loss.
    pub value_loss_weight: f64,
    /// The factor of the consistency loss of MuZero (Ye et al. 2021), 2 as published; above 0 the network has its heads
    /// ([`layers`](Self::layers)), and batches hold the observations of the unrolled steps.
    pub consistency_loss_weight: f64,
    /// The number format of convolutions and matrices; parameters and losses are float32.
    pub precision: Precision,
    /// Whether the gradients of layers are compared with those of float32 once in a while, and layers that lose too
    /// much go back to it ([`mixed_precision`](crate::mixed_precision)).
    pub is_adaptive: bool,
    /// The kernel of stem and tower.
    pub tower: TrainingKernel,
    /// The most positions that are run through the network at once; a larger batch is split into micro-batches of about
    /// equal size whose gradients are added. 0 splits a batch only after the device ran out of memory for it. Each
    /// micro-batch has its own statistics of batch norms and moves the running ones.
    pub micro_batch: usize,
    /// The activations that are computed again in the backward pass instead of being kept.
    pub recompute: Recompute,
}

impl TrainerSettings {
    /// The defaults for MuZero: those for AlphaZero with a quarter of the value loss, against overfitting of the value
    /// (Schrittwieser et al. 2020, appendix H).
    #[must_use]
    pub fn muzero() -> Self {
        Self { value_loss_weight: 0.25, ..Self::default() }
    }
}

impl Default for TrainerSettings {
    /// AdamW at 1e-3 with a short warm-up and a cosine decay to a twentieth: with these, small towers learn small
    /// boards in minutes.
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
            value_loss_weight: 1.0,
            consistency_loss_weight: 0.0,
            precision: Precision::F32,
            is_adaptive: false,
            tower: TrainingKernel::Auto,
            micro_batch: 0,
            recompute: Recompute::None,
        }
    }
}

impl TrainerSettings {
    /// The layers of the network that these settings train: with the heads of the consistency loss, if it has a weight.
    ///
    /// # Errors
    /// [`Error::Network`] names the dimension that is out of range, or the model, since AlphaZero has no consistency
    /// loss.
    pub fn layers(&self, architecture: &Architecture) -> Result<ModelLayers, Error> {
        match self.consistency_loss_weight > 0.0 {
            true => ModelLayers::with_consistency(architecture),
            false => ModelLayers::new(architecture),
        }
    }

    /// The progress of a run after `steps` training steps: the larger of the set value and the share of steps.
    #[must_use]
    pub fn progress_after(&self, steps: u64, set: f64) -> f64 {
        let by_steps = self.decay_steps.map_or(0.0, |all| steps as f64 / all.max(1) as f64);
        set.max(by_steps.min(1.0))
    }

    /// The learning rate of the training step after `steps` others, with the set progress.
    #[must_use]
    pub fn learning_rate_after(&self, steps: u64, set_progress: f64) -> f64 {
        let warm_up = decay::warm_up(steps, self.warm_up_steps);
        self.learning_rate * warm_up * self.decay.factor(self.progress_after(steps, set_progress))
    }

    /// The share of the newest weights in their average after the training step that follows `steps` others; `since` is
    /// the number of steps before the first one that the average holds with equal shares.
    #[must_use]
    pub fn average_share(&self, steps: u64, since: Option<u64>) -> f64 {
        match since {
            Some(since) => 1.0 / (steps.saturating_sub(since) + 1) as f64,
            // 1 − min(decay, (1 + t) / (10 + t)) with t steps before.
            None => (9.0 / (steps + 10) as f64).max(1.0 - self.ema_decay),
        }
    }

    /// Returns whether the average has equal shares at this progress.
    #[must_use]
    pub fn averages_equally(&self, progress: f64) -> bool {
        self.swa_start.is_some_and(|start| progress >= start)
    }

    /// Checks every setting for a network of `layers`.
    ///
    /// # Errors
    /// [`Error::Setting`] names a setting outside its range, or a consistency loss for a network without its heads.
    pub fn check(&self, layers: &ModelLayers) -> Result<(), Error> {
        self.optimiser.check()?;
        self.decay.check()?;
        let is_factor = |x: f64| x >= 0.0 && x.is_finite();
        let factor = |field, x| (field, x, is_factor(x), "a finite number, 0 or above");
        let (clip, ema, consistency) = (self.gradient_clip_norm, self.ema_decay, self.consistency_loss_weight);
        let swa = self.swa_start.unwrap_or(1.0);
        let has_heads = consistency == 0.0 || layers.consistency().is_some();
        let checks = [
            factor("learning_rate", self.learning_rate),
            factor("weight_decay", self.weight_decay),
            factor("value_loss_weight", self.value_loss_weight),
            factor("consistency_loss_weight", consistency),
            ("consistency_loss_weight", consistency, has_heads, "0 for a network without its heads"),
            ("gradient_clip_norm", clip, clip > 0.0, "above 0"),
            ("ema_decay", ema, (0.0..1.0).contains(&ema), "from 0 to below 1"),
            ("swa_start", swa, (0.0..=1.0).contains(&swa), "a share from 0 to 1"),
        ];
        match checks.into_iter().find(|(.., is_good, _)| !is_good) {
            Some((field, got, _, expected)) => Err(Error::Setting { field, got, expected }),
            None => Ok(()),
        }
    }
}
