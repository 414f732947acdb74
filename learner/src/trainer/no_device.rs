//! Contributions on a device, which a program without libtorch has none of.

use collective::Numbers;

/// No contribution: there is no device.
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
