use ::network::Entry;
use tch::{Device, Kind, Tensor};

use super::Trainer;
use crate::{
    Error, SubmittingThreads,
    layout::{self, Layout},
    network,
};

/// The file of a checkpoint that holds the weights as trained.
pub(super) const NETWORK_FILE: &str = "network.safetensors";
/// The file of a checkpoint that holds the averaged weights.
pub(super) const AVERAGE_FILE: &str = "average.safetensors";
/// The file of a checkpoint that holds the optimiser's moments, the step and the progress.
pub(super) const OPTIMISER_FILE: &str = "optimiser.safetensors";

/// The parts of a trainer's state that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// The averaged weights, which are published.
    Average,
    /// The whole state, for a checkpoint.
    All,
}

/// A trainer's state at one step. Another thread can encode it while training continues.
#[derive(Debug)]
pub struct Snapshot {
    layout: Layout,
    reader: SubmittingThreads,
    /// Parameters `[P]` and running statistics `[S]` of the average.
    average: [Tensor; 2],
    /// The remaining state; empty in a copy of the average.
    state: Option<State>,
}

#[derive(Debug)]
struct State {
    /// Parameters `[P]` and running statistics `[S]` as trained.
    network: [Tensor; 2],
    /// `[P]` each, with their names.
    moments: Vec<(&'static str, Tensor)>,
    step: u64,
    progress: f64,
}

impl Snapshot {
    /// The state in the memory of `trainer`.
    pub(super) fn of(trainer: &Trainer, contents: Contents) -> Self {
        let pair = |parameters: &Tensor, statistics: &Tensor| [parameters.shallow_clone(), statistics.shallow_clone()];
        let names = trainer.settings.optimiser.moment_names().iter().copied();
        let state = || State {
            network: pair(&trainer.network.flat_parameters, &trainer.network.flat_statistics),
            moments: names.zip(trainer.moments.iter().map(Tensor::shallow_clone)).collect(),
            step: trainer.step,
            progress: trainer.progress,
        };
        Self {
            layout: trainer.network.layout.clone(),
            reader: trainer.network.rules.submitting_threads,
            average: pair(&trainer.average_parameters, &trainer.average_statistics),
            state: (contents == Contents::All).then(state),
        }
    }

    /// Copies it to memory of its own.
    pub(super) fn copy(mut self) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let state = self.state.iter_mut();
        let of_state =
            state.flat_map(|state| state.network.iter_mut().chain(state.moments.iter_mut().map(|(_, moment)| moment)));
        for tensor in self.average.iter_mut().chain(of_state) {
            *tensor = match self.reader {
                // A device that takes work of one thread only is read by this one.
                SubmittingThreads::One => tensor.f_to_device_(Device::Cpu, Kind::Float, false, true)?,
                SubmittingThreads::Many => tensor.f_detach_copy()?,
            };
        }
        Ok(self)
    }

    /// Returns the averaged weights as [`Trainer::published`] does.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device cannot be read.
    pub fn published(&self) -> Result<Vec<u8>, Error> {
        let [parameters, statistics] = &self.average;
        network::write(&self.layout.published(), parameters, statistics)
    }

    /// Returns the files of a checkpoint as [`Trainer::save`] does; those of a copy of the average hold the average
    /// alone.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device cannot be read.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let [parameters, statistics] = &self.average;
        let mut files = vec![(AVERAGE_FILE.to_owned(), network::write(&self.layout, parameters, statistics)?)];
        if let Some(State { network: [parameters, statistics], moments, step, progress }) = &self.state {
            let mut entries = vec![Entry::count("step", *step), Entry::real("progress", *progress)];
            for (name, moment) in moments {
                entries.extend(layout::file_entries(name, &self.layout.parameters, &network::download(moment)?));
            }
            files.insert(0, (NETWORK_FILE.to_owned(), network::write(&self.layout, parameters, statistics)?));
            files.push((OPTIMISER_FILE.to_owned(), ::network::write(entries)?));
        }
        Ok(files)
    }
}
