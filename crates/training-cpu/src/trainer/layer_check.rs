//! The check of layers in an adaptive precision.

use training::Precision;
use training::mixed_precision::{CHECK_INTERVAL, loses_too_much, relative_error};

use super::Trainer;

impl Trainer {
    /// Has the next step compute the gradients of weights in float32 too, if it is one in [`CHECK_INTERVAL`].
    pub(super) fn begin_check_if_due(&mut self) {
        let is_due = self.settings.is_adaptive
            && self.path.precision() != Precision::F32
            && self.state.step.is_multiple_of(CHECK_INTERVAL);
        self.workshop.exact = is_due.then(|| vec![0.0; self.gradient.len()]);
    }

    /// Compares the gradient of each layer's weights with that in float32, from the same inputs and the same gradients of
    /// outputs; layers that lose too much multiply in float32 from the next step on.
    pub(super) fn end_check(&mut self, exact: &[f32]) {
        let errors = self.layer_errors(exact);
        let float32_layers = &mut self.state.mixed.float32_layers;
        let before = float32_layers.len();
        float32_layers.extend(errors.into_iter().filter(|&(_, error)| loses_too_much(error)));
        if float32_layers.len() > before {
            self.model.multiply_in_float32(float32_layers.keys());
        }
    }

    /// The relative error of each layer's gradient. That of a layer in float32 is 0.
    pub(super) fn layer_errors(&self, exact: &[f32]) -> Vec<(String, f64)> {
        let weights = self.model.layout().parameters.iter().filter(|entry| entry.tensor.role.is_weight());
        let error = |entry: &training::Entry| relative_error(&self.gradient[entry.range()], &exact[entry.range()]);
        weights.map(|entry| (entry.tensor.layer().to_owned(), error(entry))).collect()
    }
}

#[cfg(test)]
mod tests;
