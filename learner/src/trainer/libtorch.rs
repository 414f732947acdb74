//! The libtorch backend of training.

use super::*;

/// Converts the result of a libtorch step.
fn collected(trained: Result<Trained, network_torch::Error>) -> anyhow::Result<Collected> {
    match trained {
        Ok(trained) => Ok(Collected::Trained(trained)),
        Err(network_torch::Error::Training(training::Error::NotFinite { quantity, .. })) => {
            Ok(Collected::NotFinite { quantity })
        }
        Err(network_torch::Error::Training(training::Error::Overflow { loss_scale, .. })) => {
            Ok(Collected::Skipped { loss_scale })
        }
        Err(error) => Err(error.into()),
    }
}

impl Trainer for network_torch::Trainer {
    fn add_board(&mut self, architecture: &Architecture) -> anyhow::Result<usize> {
        Ok(Self::add_board(self, architecture)?)
    }

    fn queue(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<()> {
        Ok(Self::queue(self, examples, clock)?)
    }

    fn queue_nothing(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<()> {
        Ok(Self::queue_nothing(self, examples, clock)?)
    }

    fn collect(&mut self, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Collected> {
        collected(Self::collect(self, clock).context("no step is queued")?)
    }

    fn contribute(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Contributed> {
        Ok(Self::contribute(self, examples, clock)?)
    }

    fn no_contribution(&self) -> Contribution {
        Self::no_contribution(self)
    }

    fn apply(&mut self, mean: Contributed, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Collected> {
        collected(Self::apply(self, mean, clock))
    }

    fn contribute_on_device(
        &mut self,
        examples: Option<&Examples>,
        beside: &[f32],
        clock: &mut dyn FnMut() -> Instant,
    ) -> anyhow::Result<Contributed<DeviceContribution>> {
        Ok(Self::contribute_on_device(self, examples, beside, clock)?)
    }

    fn apply_on_device(
        &mut self,
        mean: Contributed<DeviceContribution>,
        clock: &mut dyn FnMut() -> Instant,
    ) -> anyhow::Result<Collected> {
        collected(Self::apply_on_device(self, mean, clock))
    }

    fn memory(&mut self, batch: usize, unroll_steps: usize) -> Memory {
        Self::memory(&*self, batch, unroll_steps)
    }

    fn queue_depth(&self) -> usize {
        Self::queue_depth(self)
    }

    fn micro_batches(&self) -> usize {
        Self::micro_batches(self)
    }

    fn set_progress(&mut self, progress: f64) {
        Self::set_progress(self, progress);
    }

    fn step_count(&self) -> u64 {
        Self::step_count(self)
    }

    fn learning_rate(&self) -> f64 {
        Self::learning_rate(self)
    }

    fn loss_scale(&self) -> Option<f64> {
        Self::loss_scale(self)
    }

    fn float32_layers(&self) -> &BTreeMap<String, f64> {
        Self::float32_layers(self)
    }

    fn keep_gradient(&mut self) {
        Self::keep_gradient(self);
    }

    fn take_gradient(&mut self) -> anyhow::Result<Option<Vec<f32>>> {
        Ok(Self::take_gradient(self)?)
    }

    fn snapshot(&self, contents: Contents) -> anyhow::Result<Box<dyn Snapshot>> {
        Ok(Box::new(Self::snapshot(self, contents)?))
    }

    fn load(&mut self, files: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
        Ok(Self::load(self, files)?)
    }

    fn placement(&self) -> Vec<Placed> {
        let placed = |(what, device)| Placed { what, device: network_torch::device_name(device) };
        Self::placement(self).map(placed).collect()
    }
}

impl Snapshot for network_torch::Snapshot {
    fn published(&self) -> anyhow::Result<Vec<u8>> {
        Ok(Self::published(self)?)
    }

    fn files(&self) -> anyhow::Result<Files> {
        Ok(Self::files(self)?)
    }
}

#[cfg(test)]
mod tests {
    use network_torch::{Device, Network};
    use training::TrainerSettings;

    use super::*;
    use crate::trainer::conformance::{keep_the_contract, subjects};

    fn libtorch(architecture: &Architecture, settings: TrainerSettings) -> Box<dyn Trainer> {
        let network = Network::to_train(architecture, &settings, Device::Cpu, 1).unwrap();
        Box::new(network_torch::Trainer::new(network, settings).unwrap())
    }

    #[test]
    fn libtorch_keeps_the_contract_of_trainers_for_every_model() {
        keep_the_contract(&subjects(libtorch));
    }
}
