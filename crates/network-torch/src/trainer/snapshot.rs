use std::collections::BTreeMap;

use tch::{Device, Tensor};
use training::checkpoint::{self, Files};
use training::{Contents, Layout, MixedPrecision, Numbers, Optimiser};

use super::Trainer;
use crate::{Error, SubmittingThreads, loss_scale::ScaleOnDevice, moments::Moment, network, share_device};

/// A trainer's state at one step.
#[derive(Debug)]
pub(super) struct Snapshot {
    layout: Layout,
    reader: SubmittingThreads,
    /// Parameters `[P]` and running statistics `[S]` of the average.
    average: [Tensor; 2],
    /// Remaining state; `None` in a copy of the average.
    state: Option<State>,
}

#[derive(Debug)]
struct State {
    /// Parameters `[P]` and running statistics `[S]` as trained.
    network: [Tensor; 2],
    optimiser: Optimiser,
    /// `[P]` each.
    moments: Vec<Moment>,
    step: u64,
    progress: f64,
    averaged_since: Option<u64>,
    loss_scale: Option<ScaleOnDevice>,
    float32_layers: BTreeMap<String, f64>,
}

impl Snapshot {
    /// Returns a view of the state in the memory of `trainer`.
    pub(super) fn of(trainer: &Trainer, contents: Contents) -> Self {
        let pair = |parameters: &Tensor, statistics: &Tensor| [parameters.shallow_clone(), statistics.shallow_clone()];
        let state = || State {
            network: pair(&trainer.network.flat_parameters, &trainer.network.flat_statistics),
            optimiser: trainer.settings.optimiser,
            moments: trainer.moments.iter().map(Moment::shallow_clone).collect(),
            step: trainer.step,
            progress: trainer.progress,
            averaged_since: trainer.averaged_since,
            loss_scale: trainer.loss_scale.as_ref().map(ScaleOnDevice::shallow_clone),
            float32_layers: trainer.float32_layers.clone(),
        };
        Self {
            layout: trainer.network.layout.clone(),
            reader: trainer.network.rules.submitting_threads,
            average: pair(&trainer.average_parameters, &trainer.average_statistics),
            state: (contents == Contents::All).then(state),
        }
    }

    /// Copies the state to separate memory.
    pub(super) fn copy(mut self) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let state = self.state.iter_mut();
        let of_state = state.flat_map(|state| {
            let moments = state.moments.iter_mut().flat_map(Moment::tensors_mut);
            let scale = state.loss_scale.iter_mut().flat_map(ScaleOnDevice::tensors_mut);
            state.network.iter_mut().chain(moments).chain(scale)
        });
        for tensor in self.average.iter_mut().chain(of_state) {
            *tensor = match self.reader {
                // A device that takes work of one thread only is read by this thread.
                SubmittingThreads::One => tensor.f_to_device_(Device::Cpu, tensor.kind(), false, true)?,
                SubmittingThreads::Many => tensor.f_detach_copy()?,
            };
        }
        Ok(self)
    }
}

/// Copies parameters and running statistics to host memory.
fn numbers([parameters, statistics]: &[Tensor; 2]) -> Result<Numbers, Error> {
    Ok(Numbers { parameters: network::download(parameters)?, statistics: network::download(statistics)? })
}

impl training::Snapshot for Snapshot {
    fn published(&self) -> Result<Vec<u8>, training::Error> {
        let guard = share_device();
        let Numbers { parameters, statistics } = numbers(&self.average)?;
        // Encoding takes no device, and a recording would wait for it.
        drop(guard);
        checkpoint::write(&self.layout.published(), &parameters, &statistics)
    }

    fn files(&self) -> Result<Files, training::Error> {
        let guard = share_device();
        let average = numbers(&self.average)?;
        let Some(state) = &self.state else {
            drop(guard);
            return checkpoint::average_file(&self.layout, &average);
        };
        let &State { optimiser, step, progress, averaged_since, .. } = state;
        let moments = state.moments.iter().map(Moment::download).collect::<Result<_, _>>()?;
        let network = numbers(&state.network)?;
        let loss_scale = state.loss_scale.as_ref().map(ScaleOnDevice::download).transpose()?;
        drop(guard);
        let mixed = MixedPrecision { loss_scale, float32_layers: state.float32_layers.clone() };
        let state = checkpoint::State { network, average, moments, step, progress, averaged_since, mixed };
        state.files(&self.layout, optimiser)
    }
}
