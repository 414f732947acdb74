//! Stands in for device contributions in a program without libtorch.

use collective::Numbers;
use training::Error;

/// A device contribution, which cannot exist without libtorch.
#[derive(Debug)]
pub(crate) enum DeviceContribution {}

impl DeviceContribution {
    pub(crate) fn numbers(&mut self) -> Numbers<'_> {
        match *self {}
    }

    pub(crate) fn beside(&self) -> Result<Vec<f32>, Error> {
        match *self {}
    }

    pub(crate) fn divide(&mut self, _batches: usize) -> Result<(), Error> {
        match *self {}
    }
}
