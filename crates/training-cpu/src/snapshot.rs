use training::checkpoint::{self, Files, State};
use training::{Error, Layout, Numbers, Optimiser};

/// A copy of a trainer's state at one step.
#[derive(Debug)]
pub(crate) struct Snapshot {
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

impl training::Snapshot for Snapshot {
    fn published(&self) -> Result<Vec<u8>, Error> {
        let average = match &self.copied {
            Copied::Average(average) => average,
            Copied::All(state) => &state.average,
        };
        checkpoint::write(&self.layout.published(), &average.parameters, &average.statistics)
    }

    fn files(&self) -> Result<Files, Error> {
        match &self.copied {
            Copied::Average(average) => checkpoint::average_file(&self.layout, average),
            Copied::All(state) => state.files(&self.layout, self.optimiser),
        }
    }
}
