use training::{Decay, Optimiser, TrainerSettings};

use crate::config::{LearnerSection, OptimiserKind};

/// Returns the settings of training steps in the section `[learner]`, in the default precision.
#[must_use]
pub fn trainer_settings(section: &LearnerSection) -> TrainerSettings {
    let (optimiser, weight_decay) = match section.optimiser {
        OptimiserKind::Adamw => (Optimiser::adamw(), section.weight_decay),
        OptimiserKind::Sgd => (Optimiser::Sgd { momentum: section.momentum }, section.l2),
    };
    TrainerSettings {
        optimiser,
        learning_rate: section.learning_rate,
        warm_up_steps: section.warm_up_steps,
        decay: Decay::Cosine { floor: section.learning_rate_ratio_min },
        weight_decay,
        gradient_clip_norm: section.gradient_clip_norm,
        ema_decay: section.ema_decay,
        value_loss_weight: section.value_loss_weight,
        consistency_loss_weight: section.consistency_loss_weight,
        tower: section.kernel,
        micro_batch: section.micro_batch,
        ..TrainerSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use inference::TrainingKernel;

    use super::*;

    #[test]
    fn each_optimiser_has_its_own_weight_decay() {
        let trainer = |optimiser| {
            let trainer = trainer_settings(&LearnerSection { optimiser, ..LearnerSection::default() });
            (trainer.optimiser, trainer.weight_decay)
        };
        assert_eq!(trainer(OptimiserKind::Adamw), (Optimiser::adamw(), 1e-2));
        assert_eq!(trainer(OptimiserKind::Sgd), (Optimiser::Sgd { momentum: 0.9 }, 1e-4));
    }

    #[test]
    fn the_configured_kernel_trains() {
        let kernel = |kernel| trainer_settings(&LearnerSection { kernel, ..LearnerSection::default() }).tower;
        assert_eq!(kernel(TrainingKernel::Auto), TrainingKernel::Auto);
        assert_eq!(kernel(TrainingKernel::Libtorch), TrainingKernel::Libtorch);
    }
}
