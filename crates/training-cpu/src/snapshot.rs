use training::checkpoint::{self, Files, State};
use training::{Layout, Numbers, Optimiser};

use crate::Error;

/// A copy of a trainer's state at one step. Another thread can encode it while training continues.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) layout: Layout,
    pub(crate) optimiser: Optimiser,
    pub(crate) copied: Copied,
}

/// Copied part of the state.
#[derive(Debug, Clone)]
pub(crate) enum Copied {
    /// Averaged weights.
    Average(Numbers),
    /// The whole state.
    All(State),
}

impl Snapshot {
    /// Returns the averaged weights, including running statistics, as a safetensors file for the actors.
    ///
    /// # Errors
    /// [`training::Error::Network`] if two tensors have the same name.
    pub fn published(&self) -> Result<Vec<u8>, Error> {
        let average = match &self.copied {
            Copied::Average(average) => average,
            Copied::All(state) => &state.average,
        };
        Ok(checkpoint::write(&self.layout.published(), &average.parameters, &average.statistics)?)
    }

    /// Returns the files of a checkpoint; a copy of the average gives the average alone.
    ///
    /// # Errors
    /// The same as [`published`](Self::published).
    pub fn files(&self) -> Result<Files, Error> {
        Ok(match &self.copied {
            Copied::Average(average) => checkpoint::average_file(&self.layout, average)?,
            Copied::All(state) => state.files(&self.layout, self.optimiser)?,
        })
    }
}
