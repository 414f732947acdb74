//! A stand-in for contributions on a device, in a program without libtorch.

use collective::Numbers;

/// An uninhabited contribution: there is no device.
#[derive(Debug)]
pub(crate) enum DeviceContribution {}

impl DeviceContribution {
    pub(crate) fn numbers(&mut self) -> Numbers<'_> {
        match *self {}
    }

    pub(crate) fn beside(&self) -> anyhow::Result<Vec<f32>> {
        match *self {}
    }

    pub(crate) fn divide(&mut self, _batches: usize) -> anyhow::Result<()> {
        match *self {}
    }
}
