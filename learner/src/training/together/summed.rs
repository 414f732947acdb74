//! The sum of all members' contributions, in device memory if the group can sum there, otherwise in host memory.

use std::time::Instant;

use anyhow::Context as _;
use collective::{Error, Memory, Numbers};
use training::{Contributed, Laps, StepTimes, Trained};

use super::{Prepared, Training};
use crate::group::{CONTROL_NUMBERS, Control, Group};
use crate::metrics;
use crate::trainer::DeviceContribution;
use crate::training::failed;

/// The sum of contributions over all members.
pub(super) enum Summed {
    Host { contributed: Contributed, sums: Vec<f32> },
    Device(Contributed<DeviceContribution>),
}

impl Training {
    /// Computes this member's contribution, with a batch or without, and sums contributions and control values over all
    /// members. The inner error means that a member was lost.
    pub(super) fn sum(
        &mut self,
        group: &mut Group,
        prepared: Option<&Prepared>,
        control: Control,
    ) -> anyhow::Result<Result<(Summed, Control), Error>> {
        let examples = prepared.map(|prepared| &prepared.examples);
        let clock = &mut Instant::now;
        let laps = &mut Laps::new(clock);
        if let Memory::Cuda(_) = group.memory() {
            let numbers = &control.numbers();
            let mut contributed = self.trainer.contribute_on_device(examples, numbers, laps).map_err(failed)?;
            if let Err(error) = timed(group, contributed.contribution.numbers()) {
                return Ok(Err(error));
            }
            let control = Control::of(&contributed.contribution.beside().context("read the sums")?);
            return Ok(Ok((Summed::Device(contributed), control)));
        }
        let contributed = match examples {
            Some(examples) => self.trainer.contribute(examples, laps).map_err(failed)?,
            None => Contributed {
                contribution: self.trainer.no_contribution(),
                value_errors: Vec::new(),
                times: StepTimes::default(),
            },
        };
        let mut sums = [contributed.contribution.numbers(), &control.numbers()].concat();
        if let Err(error) = timed(group, Numbers::Host(&mut sums)) {
            return Ok(Err(error));
        }
        let control = Control::of(&sums.split_off(sums.len() - CONTROL_NUMBERS));
        Ok(Ok((Summed::Host { contributed, sums }, control)))
    }

    /// Updates the weights with the mean contribution over `batches` batches.
    pub(super) fn apply_mean(&mut self, summed: Summed, batches: usize) -> Result<Trained, training::Error> {
        match summed {
            Summed::Host { mut contributed, sums } => {
                contributed.contribution.set_mean(&sums, batches);
                self.trainer.apply(contributed, &mut Laps::new(&mut Instant::now))
            }
            Summed::Device(mut contributed) => {
                contributed.contribution.divide(batches)?;
                self.trainer.apply_on_device(contributed, &mut Laps::new(&mut Instant::now))
            }
        }
    }
}

/// Replaces each value by the sum over all members, and records the time in the metrics.
fn timed(group: &mut Group, numbers: Numbers<'_>) -> Result<(), Error> {
    let begun = Instant::now();
    let reduced = group.all_reduce(numbers);
    metrics::reduced(begun.elapsed());
    reduced
}
