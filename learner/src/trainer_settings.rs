use training::{Decay, Optimiser, TrainerSettings};

use crate::config::{DecayKind, LearnerSection, OptimiserKind};

/// Returns the settings of training steps in the section `[learner]`, in the default precision.
#[must_use]
pub fn trainer_settings(section: &LearnerSection) -> TrainerSettings {
    let (optimiser, weight_decay) = match section.optimiser {
        OptimiserKind::Adamw => (Optimiser::adamw(), section.weight_decay),
        OptimiserKind::Lion => (Optimiser::lion(), section.weight_decay),
        OptimiserKind::Sgd => (Optimiser::Sgd { momentum: section.momentum }, section.l2),
    };
    TrainerSettings {
        optimiser,
        moments: section.moments.format(),
        learning_rate: section.learning_rate,
        warm_up_steps: section.warm_up_steps,
        decay: match section.learning_rate_decay {
            DecayKind::Cosine => Decay::Cosine { floor: section.learning_rate_ratio_min },
            DecayKind::Linear => Decay::Linear { floor: section.learning_rate_ratio_min },
            DecayKind::Steps => {
                Decay::Steps { factor: section.learning_rate_step_factor, at: section.learning_rate_steps.clone() }
            }
            DecayKind::Constant => Decay::Constant,
        },
        weight_decay,
        gradient_clip_norm: section.gradient_clip_norm,
        ema_decay: section.ema_decay,
        // At the end of the schedule there is nothing left to average.
        swa_start: (section.swa_start < 1.0).then_some(section.swa_start),
        value_loss_weight: section.value_loss_weight,
        consistency_loss_weight: section.consistency_loss_weight,
        tower: section.kernel,
        micro_batch: section.micro_batch,
        recompute: section.recompute.of_trainer(),
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
        assert_eq!(trainer(OptimiserKind::Lion), (Optimiser::lion(), 1e-2));
        assert_eq!(trainer(OptimiserKind::Sgd), (Optimiser::Sgd { momentum: 0.9 }, 1e-4));
    }

    #[test]
    fn the_learning_rate_and_the_average_follow_the_configured_schedule() {
        let trainer = |set: &dyn Fn(&mut LearnerSection)| {
            let mut section = LearnerSection { learning_rate: 1.0, warm_up_steps: 0, ..LearnerSection::default() };
            set(&mut section);
            trainer_settings(&section)
        };
        let rates = |decay| {
            let trainer = trainer(&|section| section.learning_rate_decay = decay);
            [0.0, 0.5, 1.0].map(|progress| (trainer.learning_rate_after(9, progress) * 1e4).round() / 1e4)
        };
        assert_eq!(rates(DecayKind::Cosine), [1.0, 0.525, 0.05]);
        assert_eq!(rates(DecayKind::Linear), [1.0, 0.525, 0.05]);
        assert_eq!(rates(DecayKind::Steps), [1.0, 0.1, 0.01]);
        assert_eq!(rates(DecayKind::Constant), [1.0, 1.0, 1.0]);
        assert_eq!(trainer(&|_| {}).swa_start, None);
        assert_eq!(trainer(&|section| section.swa_start = 0.75).swa_start, Some(0.75));
    }

    #[test]
    fn the_configured_kernel_trains() {
        let kernel = |kernel| trainer_settings(&LearnerSection { kernel, ..LearnerSection::default() }).tower;
        assert_eq!(kernel(TrainingKernel::Auto), TrainingKernel::Auto);
        assert_eq!(kernel(TrainingKernel::Libtorch), TrainingKernel::Libtorch);
    }

    #[test]
    fn the_settings_of_memory_reach_the_trainer() {
        use training::{MomentFormat, Recompute};

        use crate::config::{MomentsKind, RecomputeKind};

        let of = |moments, recompute| {
            let trainer = trainer_settings(&LearnerSection { moments, recompute, ..LearnerSection::default() });
            (trainer.moments, trainer.recompute)
        };
        assert_eq!(of(MomentsKind::F32, RecomputeKind::None), (MomentFormat::F32, Recompute::None));
        assert_eq!(of(MomentsKind::Bf16, RecomputeKind::Blocks), (MomentFormat::Bf16, Recompute::Blocks));
        assert_eq!(of(MomentsKind::Int8, RecomputeKind::None).0, MomentFormat::Int8);
    }
}
