use bytes::Bytes;
use inference::Evaluator;
use network_torch::Libtorch;
use weights::Manifest;

use crate::{Backend, Error};

impl Backend for Libtorch {
    fn describe(&self) -> String {
        Self::describe(self)
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        Ok(Box::new(self.evaluator(manifest, bytes)?))
    }

    fn set_in_flight(&self, depth: usize) {
        Self::set_in_flight(self, depth);
    }
}
