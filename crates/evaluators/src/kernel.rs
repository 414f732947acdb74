use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use inference::Evaluator;
use network_cpu::{ChosenVariant, Kernel};
use weights::Manifest;

use crate::{Backend, Error};

/// The CPU kernel as a backend.
pub(crate) struct Cpu {
    kernel: Kernel,
    /// The way to get a build that takes the networks that the kernel does not; `None` if this build does.
    remedy: Option<&'static str>,
    /// The variant that was logged last: it is known with the first weights and may change with others.
    announced: Mutex<Option<ChosenVariant>>,
}

impl Cpu {
    pub(crate) fn new(kernel: Kernel, remedy: Option<&'static str>) -> Self {
        Self { kernel, remedy, announced: Mutex::default() }
    }

    fn announce(&self) {
        let chosen = self.kernel.chosen();
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        if *announced != chosen {
            let reason = chosen.as_ref().map_or("", |chosen| &chosen.reason);
            tracing::info!(evaluator = self.describe(), reason, "the weights are ready to use");
            *announced = chosen;
        }
    }
}

impl Backend for Cpu {
    fn describe(&self) -> String {
        match self.kernel.chosen() {
            // Without the reason, which may name numbers of one version: this is a label of a metric.
            Some(chosen) => format!("cpu {}", chosen.path),
            None => "cpu".to_owned(),
        }
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        match (self.kernel.evaluator(manifest, bytes), self.remedy) {
            (Ok(evaluator), _) => {
                self.announce();
                Ok(Box::new(evaluator))
            }
            (Err(source), Some(remedy)) if source.is_of_the_kernel() => Err(Error::NeedsLibtorch { source, remedy }),
            (Err(error), _) => Err(error.into()),
        }
    }
}
