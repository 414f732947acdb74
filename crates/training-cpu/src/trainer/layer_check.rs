//! Check of layers in an adaptive precision.

use training::mixed_precision::{CHECK_INTERVAL, loses_too_much, relative_error};
use training::{Examples, Laps, Precision};

use super::Trainer;
use crate::buffer::Store;

impl Trainer {
    /// Returns whether steps at intervals check their layers.
    pub(super) fn checks_layers(&self) -> bool {
        self.settings.is_adaptive && self.path.precision() != Precision::F32
    }

    /// Makes the next step also compute float32 weight gradients, if it is a multiple of [`CHECK_INTERVAL`].
    pub(super) fn begin_check_if_due(&mut self) {
        let is_due = self.checks_layers() && self.state.step.is_multiple_of(CHECK_INTERVAL);
        self.workshop.exact = is_due.then(|| vec![0.0; self.gradient.len()]);
    }

    /// Runs a pending check as a separate pass if values are stored as bfloat16, with float32 storage instead: then
    /// the factors have their bits before rounding. Returns the errors of the layers, or `None` if the step itself is
    /// the check or no check is pending.
    pub(super) fn check_apart(&mut self, examples: &Examples) -> Result<Option<Vec<(String, f64)>>, training::Error> {
        if self.workshop.exact.is_none() {
            return Ok(None);
        }
        self.model.positions(examples)?;
        if !self.model.graph(examples).store_in_float32() {
            return Ok(None);
        }
        let computed = self.compute(examples, &mut Laps::none());
        self.model.graph(examples).choose_formats();
        // The buffers are larger than in steps.
        self.workshop.store = Store::default();
        let exact = self.workshop.exact.take();
        self.state.network.statistics = computed?.running;
        Ok(exact.map(|exact| self.layer_errors(&exact)))
    }

    /// Switches layers with too large an error to float32 products from the next step on.
    pub(super) fn end_check(&mut self, errors: Vec<(String, f64)>) {
        let float32_layers = &mut self.state.mixed.float32_layers;
        let before = float32_layers.len();
        float32_layers.extend(errors.into_iter().filter(|&(_, error)| loses_too_much(error)));
        if float32_layers.len() > before {
            self.model.multiply_in_float32(float32_layers.keys());
        }
    }

    /// Returns the relative error of each layer's weight gradient from float32, for the same inputs and the same
    /// output gradients; 0 for a float32 layer.
    pub(super) fn layer_errors(&self, exact: &[f32]) -> Vec<(String, f64)> {
        let weights = self.model.layout().parameters.iter().filter(|entry| entry.tensor.role.is_weight());
        let error = |entry: &training::Entry| relative_error(&self.gradient[entry.range()], &exact[entry.range()]);
        weights.map(|entry| (entry.tensor.layer().to_owned(), error(entry))).collect()
    }
}

#[cfg(test)]
mod tests {
    use training::mixed_precision::{GRADIENT_ERROR_MAX, layers, loses_too_much};
    use training::{Examples, Precision, Trainer as _, TrainerSettings};
    use weights::{Architecture, Model};

    use super::super::Trainer;
    use crate::Path;
    use crate::tests::networks::{batch, complete, of_positions, plain, pooled_heads, unrolled, vectors};

    /// Returns a trainer in adaptive bfloat16; `None` if this CPU has no such products.
    #[expect(clippy::disallowed_macros, reason = "a test says what it leaves out")]
    fn adaptive(architecture: &Architecture) -> Option<Trainer> {
        if Path::fastest(Precision::Bf16).is_none() {
            println!("skipped: this CPU has no products of bfloat16");
            return None;
        }
        Some(Trainer::new(architecture, settings(true), 1, 2).unwrap())
    }

    fn settings(is_adaptive: bool) -> TrainerSettings {
        TrainerSettings { precision: Precision::Bf16, is_adaptive, warm_up_steps: 0, ..TrainerSettings::default() }
    }

    fn step(trainer: &mut Trainer, examples: &Examples) {
        trainer.step(examples).unwrap();
    }

    /// Returns the layer errors for a batch.
    fn errors(trainer: &mut Trainer, examples: &Examples) -> Vec<(String, f64)> {
        trainer.begin_check_if_due();
        if let Some(errors) = trainer.check_apart(examples).unwrap() {
            return errors;
        }
        trainer.compute(examples, &mut training::Laps::none()).unwrap();
        let exact = trainer.workshop.exact.take().expect("the first step checks its layers");
        trainer.layer_errors(&exact)
    }

    #[test]
    #[expect(clippy::disallowed_macros, reason = "the figures of docs/kernels.md")]
    fn healthy_networks_have_no_layer_that_loses_too_much() {
        let wide = Architecture { channels: 96, blocks: 2, ..plain(6, 7) };
        let all = [complete(), plain(6, 7), wide].into_iter().chain(of_positions()).chain(pooled_heads());
        let alphazero = all.map(|it| (Examples::Positions(batch(&it, 32, 3)), it));
        let muzero = Architecture { model: Model::Muzero { support: 5 }, ..vectors() };
        let muzero = (Examples::Unrolled(unrolled(&muzero, 16, 3, 5)), muzero);
        for (examples, architecture) in alphazero.chain([muzero]) {
            let Some(mut trainer) = adaptive(&architecture) else { return };
            let errors = errors(&mut trainer, &examples);
            let names: Vec<&str> = layers(trainer.model.layout()).collect();
            assert_eq!(errors.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
            let of_layers = errors.iter().map(|(_, error)| *error);
            let (mean, largest) = (of_layers.clone().sum::<f64>() / names.len() as f64, of_layers.fold(0.0, f64::max));
            println!(
                "{} layers of {}x{}: mean {mean:.4}, largest {largest:.4}",
                names.len(),
                architecture.blocks,
                architecture.channels
            );
            assert!(mean > 1e-5 && errors.iter().all(|&(_, error)| !loses_too_much(error)), "{errors:?}");
        }
    }

    #[test]
    fn the_stated_memory_is_enough_for_a_check() {
        let architecture = Architecture { channels: 64, blocks: 3, ..plain(6, 7) };
        let Some(mut trainer) = adaptive(&architecture) else { return };
        let stated = trainer.memory(48, 0);
        let unchecked = Trainer::new(&architecture, settings(false), 1, 2).unwrap().memory(48, 0).activations;
        // Values are stored as bfloat16 on matrix tiles alone, and a check then widens them.
        match trainer.path() {
            Path::Amx => assert!(stated.activations > unchecked),
            _ => assert_eq!(stated.activations, unchecked),
        }
        let examples = Examples::Positions(batch(&architecture, 48, 3));
        trainer.begin_check_if_due();
        trainer.model.graph(&examples).store_in_float32();
        trainer.compute(&examples, &mut training::Laps::none()).unwrap();
        let allocated = trainer.workshop.store.bytes();
        let apart = stated.activations.abs_diff(allocated);
        assert!(20 * apart <= allocated, "{} stated, {allocated} allocated", stated.activations);
    }

    /// Makes the tower end in nearly constant numbers: the last norm has a shift so large compared with the
    /// differences between positions that bfloat16 has no bit for them. The heads read the output, and the norm after
    /// their convolutions removes the constant.
    fn plant(trainer: &mut Trainer, architecture: &Architecture) {
        let place = trainer.model.layout().parameter(&format!("block.{}.second.norm.bias", architecture.blocks - 1));
        trainer.state.network.parameters[place].fill(1000.0);
    }

    #[test]
    fn planted_layers_are_found_alone_and_named_and_computed_in_float32_from_then_on() {
        let architecture = plain(6, 7);
        let examples = Examples::Positions(batch(&architecture, 32, 3));
        let Some(mut trainer) = adaptive(&architecture) else { return };
        plant(&mut trainer, &architecture);
        let before = errors(&mut trainer, &examples);
        step(&mut trainer, &examples);
        let names: Vec<&str> = trainer.float32_layers().keys().map(String::as_str).collect();
        assert_eq!(names, ["policy", "value"], "{before:?}");
        assert!(trainer.float32_layers().values().all(|&error| error > GRADIENT_ERROR_MAX));

        // A restored trainer computes them in float32; without adaptive precision it uses the configured one.
        let files = trainer.files().unwrap();
        let restored = |is_adaptive| {
            let mut restored = Trainer::new(&architecture, settings(is_adaptive), 2, 1).unwrap();
            restored.load(&files).unwrap();
            restored
        };
        assert_eq!(restored(true).float32_layers(), trainer.float32_layers());
        assert!(restored(false).float32_layers().is_empty());
        for trainer in [&mut trainer, &mut restored(true)] {
            trainer.state.step = 0;
            let after = errors(trainer, &examples);
            let of = |errors: &[(String, f64)], name| errors.iter().find(|(layer, _)| layer == name).unwrap().1;
            for name in ["policy", "value"] {
                assert!(
                    of(&after, name) < 1e-5 && of(&before, name) > GRADIENT_ERROR_MAX,
                    "{before:?}, then {after:?}"
                );
            }
            assert!(of(&after, "stem") > 1e-4, "the others stay in bfloat16: {after:?}");
        }
    }

    #[test]
    fn only_one_step_in_five_hundred_of_an_adaptive_trainer_is_checked_and_a_check_changes_no_bit() {
        let architecture = plain(3, 3);
        let examples = Examples::Positions(batch(&architecture, 8, 3));
        let Some(mut trainer) = adaptive(&architecture) else { return };
        let mut unwatched = Trainer::new(&architecture, settings(false), 1, 2).unwrap();
        for checked in [true, false, false] {
            trainer.begin_check_if_due();
            assert_eq!(trainer.workshop.exact.is_some(), checked);
            step(&mut trainer, &examples);
            step(&mut unwatched, &examples);
        }
        for (step, checked) in [(499, false), (500, true), (501, false), (1000, true)] {
            trainer.state.step = step;
            trainer.begin_check_if_due();
            assert_eq!(trainer.workshop.exact.is_some(), checked, "after {step} steps");
        }
        assert_eq!(trainer.state.network, unwatched.state.network);
    }
}
