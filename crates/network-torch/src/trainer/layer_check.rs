//! Check of layers in an adaptive precision.

use tch::{Kind, Tensor};
use training::Examples;
use training::mixed_precision::{CHECK_INTERVAL, CHECK_POSITIONS, loses_too_much};

use super::{Staged, Trainer};
use crate::loss_scale::scaled;
use crate::{Error, network, tower::Mode};

impl Trainer {
    /// Checks the layers with a batch if the next step is a multiple of [`CHECK_INTERVAL`]; layers with too large an
    /// error go back to float32. A device without memory for the check skips it.
    pub(super) fn check_layers_if_due(&mut self, examples: &Examples) -> Result<(), Error> {
        let steps = self.submitted();
        if !self.settings.is_adaptive || !steps.is_multiple_of(CHECK_INTERVAL) || self.lowered.is_none() {
            return Ok(());
        }
        let staged = Staged::new(examples, &self.network, &self.boards, [0.0; 2])?;
        let errors = match self.layer_errors(&staged) {
            Err(Error::OutOfMemory { .. }) => return Ok(()),
            errors => errors?,
        };
        let lossy: Vec<_> = errors.into_iter().filter(|&(_, error)| loses_too_much(error)).collect();
        if lossy.is_empty() {
            return Ok(());
        }
        self.float32_layers.extend(lossy);
        let float32_layers = self.float32_layers.keys().cloned().collect();
        self.lowered = self.network.lowered(self.settings.precision, float32_layers)?;
        self.graphs.clear();
        Ok(())
    }

    /// Returns the relative error of each layer's low-precision weight gradient from float32, for the same inputs and
    /// the same output gradients. A float32 pass over a few rows computes both.
    pub(super) fn layer_errors(&self, staged: &Staged) -> Result<Vec<(String, f64)>, Error> {
        let Some(lowered) = &self.lowered else { return Ok(Vec::new()) };
        lowered.cast_again(&self.network)?;
        let most = self.micro_batch(staged.board).unwrap_or(CHECK_POSITIONS).min(CHECK_POSITIONS);
        let rows = staged.rows(0, staged.positions.min(most))?;
        let network = self.network.shadowed(lowered)?;
        // Batch statistics, without an update of the running statistics.
        let losses = self.losses(&network, &rows, Kind::Float, Mode::TrainingAgain)?;
        let total = scaled(&losses.scalars.total, self.loss_scale.as_ref())?;
        let (names, pairs): (Vec<&str>, Vec<[&Tensor; 2]>) = network.shadow_pairs().unzip();
        let gradients = Tensor::f_run_backward(&[total], &pairs.concat(), false, false)?;

        let _guard = tch::no_grad_guard();
        let error = |pair: &[Tensor]| -> Result<Tensor, Error> {
            let (exact, low) = (&pair[0], pair[1].f_to_kind(Kind::Float)?);
            Ok(low.f_sub(exact)?.f_norm()?.f_div(&exact.f_norm()?)?)
        };
        let errors = gradients.chunks_exact(2).map(error).collect::<Result<Vec<_>, _>>()?;
        let errors = network::download(&Tensor::f_stack(&errors, 0)?)?;
        Ok(names.into_iter().map(str::to_owned).zip(errors.into_iter().map(f64::from)).collect())
    }
}
