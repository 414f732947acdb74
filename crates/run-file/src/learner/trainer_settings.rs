use training::{Decay, Losses, Optimiser, TrainerSettings};

use crate::learner::{DecayKind, LearnerSection, OptimiserKind};

/// Converts the section `[learner]` to settings of a trainer, with the default precision.
#[must_use]
pub fn trainer_settings(section: &LearnerSection) -> TrainerSettings {
    let (optimiser, weight_decay) = match section.optimiser {
        OptimiserKind::Adamw => (Optimiser::adamw(), section.weight_decay),
        OptimiserKind::Lion => (Optimiser::lion(), section.weight_decay),
        OptimiserKind::Muon => (Optimiser::Muon { momentum: section.momentum }, section.weight_decay),
        OptimiserKind::Sgd => (Optimiser::Sgd { momentum: section.momentum }, section.l2),
    };
    TrainerSettings {
        optimiser,
        moments: section.moments,
        learning_rate: section.learning_rate,
        warm_up_steps: section.warm_up_steps,
        decay: match section.learning_rate_decay {
            DecayKind::Cosine => Decay::Cosine { floor: section.learning_rate_ratio_min },
            DecayKind::Constant => Decay::Constant,
        },
        weight_decay,
        gradient_clip_norm: section.gradient_clip_norm,
        ema_decay: section.ema_decay,
        // A value of 1 starts the average at the end of the schedule, when no weights are left to average.
        swa_start: (section.swa_start < 1.0).then_some(section.swa_start),
        loss_weights: Losses {
            value: section.value_loss_weight,
            consistency: section.consistency_loss_weight,
            ..Losses::WEIGHTS
        },
        tower: section.kernel,
        micro_batch: section.micro_batch,
        recompute: section.recompute,
        ..TrainerSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use inference::TrainingKernel;
    use training::{MomentFormat, Recompute};

    use super::*;

    #[test]
    fn each_optimiser_has_its_own_weight_decay() {
        let trainer = |optimiser| {
            let trainer = trainer_settings(&LearnerSection { optimiser, ..LearnerSection::default() });
            (trainer.optimiser, trainer.weight_decay)
        };
        assert_eq!(trainer(OptimiserKind::Adamw), (Optimiser::adamw(), 1e-2));
        assert_eq!(trainer(OptimiserKind::Lion), (Optimiser::lion(), 1e-2));
        assert_eq!(trainer(OptimiserKind::Muon), (Optimiser::Muon { momentum: 0.9 }, 1e-2));
        assert_eq!(trainer(OptimiserKind::Sgd), (Optimiser::Sgd { momentum: 0.9 }, 1e-4));
    }

    /// The expected value names all fields, so that adding a field without testing it here fails to compile.
    #[test]
    fn every_key_of_training_steps_reaches_the_trainer() {
        let section = LearnerSection {
            optimiser: OptimiserKind::Sgd,
            momentum: 0.75,
            l2: 0.125,
            moments: MomentFormat::Int8,
            learning_rate: 0.5,
            warm_up_steps: 7,
            learning_rate_decay: DecayKind::Constant,
            gradient_clip_norm: 3.0,
            ema_decay: 0.875,
            swa_start: 0.625,
            value_loss_weight: 1.5,
            consistency_loss_weight: 2.5,
            kernel: TrainingKernel::Libtorch,
            micro_batch: 48,
            recompute: Recompute::Blocks,
            ..LearnerSection::default()
        };
        let defaults = TrainerSettings::default();
        let expected = TrainerSettings {
            optimiser: Optimiser::Sgd { momentum: 0.75 },
            moments: MomentFormat::Int8,
            learning_rate: 0.5,
            warm_up_steps: 7,
            decay: Decay::Constant,
            weight_decay: 0.125,
            gradient_clip_norm: 3.0,
            ema_decay: 0.875,
            swa_start: Some(0.625),
            loss_weights: Losses { value: 1.5, consistency: 2.5, ..Losses::WEIGHTS },
            tower: TrainingKernel::Libtorch,
            micro_batch: 48,
            recompute: Recompute::Blocks,
            // The device determines the precision, and the schedule sets the progress.
            precision: defaults.precision,
            is_adaptive: defaults.is_adaptive,
            decay_steps: defaults.decay_steps,
        };
        assert_eq!(trainer_settings(&section), expected);
        // A loss without a key would have the weight 0.
        assert!(expected.loss_weights.parts().iter().all(|(_, weight)| *weight > 0.0), "{expected:?}");
        let adamw = LearnerSection {
            optimiser: OptimiserKind::Adamw,
            weight_decay: 0.0625,
            learning_rate_decay: DecayKind::Cosine,
            learning_rate_ratio_min: 0.1875,
            ..section
        };
        let decay = Decay::Cosine { floor: 0.1875 };
        let expected = TrainerSettings { optimiser: Optimiser::adamw(), weight_decay: 0.0625, decay, ..expected };
        assert_eq!(trainer_settings(&adamw), expected);
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
        assert_eq!(rates(DecayKind::Constant), [1.0, 1.0, 1.0]);
        assert_eq!(trainer(&|_| {}).swa_start, None);
        assert_eq!(trainer(&|section| section.swa_start = 0.75).swa_start, Some(0.75));
    }
}
