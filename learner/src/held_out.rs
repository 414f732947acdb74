//! Splits trajectories into a training set and a held-out validation set.
//!
//! A hash of the id decides to which set a trajectory belongs. All its positions and revisions are therefore in the
//! same set, in every batch, from every replay server, and after every restart.

use crossbeam_channel::Sender;
use experience::{Sample, TrajectoryId};
use game::mix;
use proto::replay::ShardedBatch;
use transport::servers::Server;

use crate::metrics;

/// A sample and the source server.
pub(crate) type Drawn = (Sample, Server);

/// The set of trajectories held out from training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldOut {
    /// Trajectories with an id hash below this value are held out.
    below: u64,
}

impl HeldOut {
    /// Returns a set that holds out the fraction `share` of all trajectories, from 0 to below 1. A set with a larger
    /// fraction contains every set with a smaller fraction.
    pub(crate) fn share(share: f64) -> Self {
        // The cast saturates. Hashes are uniform from 0 to 2⁶⁴ − 1.
        Self { below: (share * 2.0_f64.powi(64)) as u64 }
    }

    /// Returns true if the trajectory is held out.
    pub(crate) fn contains(self, id: TrajectoryId) -> bool {
        let TrajectoryId { actor, epoch, sequence } = id;
        mix(mix(mix(actor) ^ epoch) ^ sequence) < self.below
    }

    fn is_empty(self) -> bool {
        self.below == 0
    }
}

/// Splits sampled batches: samples of held-out trajectories go to validation, all other samples to training batches of
/// full size.
///
/// Replay servers count all sent samples, and sample both sets equally often. The ratio of samples to inserts is
/// therefore the same in both sets: if a fraction s is held out, training gets the fraction 1 − s of samples and of
/// inserts.
#[derive(Debug)]
pub(crate) struct Split {
    held_out: HeldOut,
    batch_size: usize,
    /// Training samples that do not yet fill a batch, fewer than `batch_size`.
    waiting: Vec<Drawn>,
    validation: Option<Sender<Vec<Drawn>>>,
}

impl Split {
    /// Creates a split with training batches of `batch_size` samples. `validation` receives the samples of held-out
    /// trajectories; a full or closed channel drops them.
    pub(crate) fn new(held_out: HeldOut, batch_size: usize, validation: Option<Sender<Vec<Drawn>>>) -> Self {
        Self { held_out, batch_size, waiting: Vec::new(), validation }
    }

    /// Takes a sampled batch of at most `batch_size` samples. Returns a training batch once enough training samples are
    /// waiting.
    pub(crate) fn take(&mut self, drawn: ShardedBatch) -> Option<ShardedBatch> {
        if self.held_out.is_empty() {
            return Some(drawn);
        }
        let ShardedBatch { samples, servers } = drawn;
        let (held_out, training): (Vec<Drawn>, Vec<Drawn>) = samples
            .into_iter()
            .zip(servers)
            .partition(|(sample, _)| self.held_out.contains(sample.segment.trajectory()));
        self.waiting.extend(training);
        if !held_out.is_empty() {
            metrics::held_out(held_out.len());
            if let Some(validation) = &self.validation {
                // Validation does not need all samples: dropped samples will be sampled again.
                drop(validation.try_send(held_out));
            }
        }
        if self.waiting.len() < self.batch_size {
            return None;
        }
        let (samples, servers) = self.waiting.drain(..self.batch_size).unzip();
        Some(ShardedBatch { samples, servers })
    }
}

#[cfg(test)]
mod tests {
    use experience::{Step, StepKind, Trajectory};
    use game::{Action, Outcome};
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;
    use weights::WeightsVersion;

    use super::*;

    fn ids() -> impl Iterator<Item = TrajectoryId> {
        (0..8).flat_map(|actor| {
            (1..=4).flat_map(move |epoch| (0..500).map(move |sequence| TrajectoryId { actor, epoch, sequence }))
        })
    }

    /// With 16 000 ids, the standard deviation of the share is at most √(0.25 / 16 000) = 0.004; the test allows six
    /// standard deviations.
    #[test]
    fn about_the_share_is_held_out_whatever_the_actor_epoch_and_sequence() {
        for share in [0.0, 0.02, 0.1, 0.5] {
            let held_out = HeldOut::share(share);
            let found = ids().filter(|id| held_out.contains(*id)).count() as f64 / 16_000.0;
            assert!((found - share).abs() <= 6.0 * (share * (1.0 - share) / 16_000.0).sqrt(), "{found} of {share}");
            for actor in 0..8 {
                let of_actor = ids().filter(|id| id.actor == actor && held_out.contains(*id)).count() as f64 / 2000.0;
                assert!((of_actor - share).abs() <= 6.0 * (share * (1.0 - share) / 2000.0).sqrt(), "{of_actor}");
            }
        }
    }

    /// A run resumed by a different build must hold out the same trajectories as before.
    #[test]
    fn the_set_never_changes() {
        let held_out = HeldOut::share(0.05);
        let first: Vec<(u64, u64, u64)> = ids()
            .filter(|id| held_out.contains(*id))
            .take(6)
            .map(|TrajectoryId { actor, epoch, sequence }| (actor, epoch, sequence))
            .collect();
        assert_eq!(first, GOLDEN);
    }

    const GOLDEN: [(u64, u64, u64); 6] = [(0, 1, 3), (0, 1, 8), (0, 1, 49), (0, 1, 59), (0, 1, 133), (0, 1, 180)];

    #[test]
    fn a_larger_share_contains_a_smaller_one() {
        let (small, large) = (HeldOut::share(0.02), HeldOut::share(0.1));
        assert!(ids().filter(|id| small.contains(*id)).all(|id| large.contains(id)));
        assert!(ids().any(|id| large.contains(id) && !small.contains(id)));
    }

    fn drawn(sequence: u64) -> Drawn {
        let kind = StepKind::Fast { value: 0.0 };
        let step = Step { action: Action(0), reward: 0.0, kind, weights_version: WeightsVersion(1) };
        let id = TrajectoryId { actor: sequence % 7, epoch: 1, sequence };
        let trajectory = Trajectory::of(id, "any", &[step], Outcome::Draw).unwrap();
        let sample = Sample { segment: trajectory.segment(0, 0).unwrap(), probability: 0.5, table_items: 2 };
        (sample, Server::at(&format!("http://host-{}:7001", sequence % 3)))
    }

    fn sequence_of(sample: &Sample) -> u64 {
        sample.segment.trajectory().sequence
    }

    #[test]
    fn no_held_out_trajectory_reaches_a_batch_and_every_sample_goes_to_one_side_in_its_order() {
        for share in [0.01, 0.2, 0.5] {
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            let held_out = HeldOut::share(share);
            let (sender, validation) = crossbeam_channel::unbounded();
            // The second split represents a learner that restarts in the middle of the samples.
            let split = || Split::new(held_out, 16, Some(sender.clone()));
            let mut splits = [split(), split()];
            let (mut all, mut trained) = ([vec![], vec![]], [vec![], vec![]]);
            for draw in 0..400 {
                let (samples, servers): (Vec<_>, Vec<_>) = (0..16).map(|_| drawn(rng.random_range(0..300))).unzip();
                let run = usize::from(draw >= 200);
                all[run].extend(samples.iter().map(sequence_of));
                let Some(batch) = splits[run].take(ShardedBatch { samples, servers }) else { continue };
                assert_eq!((batch.samples.len(), batch.servers.len()), (16, 16));
                for (sample, server) in batch.samples.iter().zip(&batch.servers) {
                    assert!(!held_out.contains(sample.segment.trajectory()));
                    assert_eq!(*server, drawn(sequence_of(sample)).1);
                    trained[run].push(sequence_of(sample));
                }
            }
            for (run, split) in splits.iter().enumerate() {
                assert!(split.waiting.len() < 16);
                trained[run].extend(split.waiting.iter().map(|(sample, _)| sequence_of(sample)));
                let is_trained_on = |sequence: &&u64| !held_out.contains(drawn(**sequence).0.segment.trajectory());
                assert!(all[run].iter().filter(is_trained_on).eq(&trained[run]), "share {share}");
            }
            let validated: usize = validation.try_iter().map(|held_out| held_out.len()).sum();
            assert_eq!(validated + trained[0].len() + trained[1].len(), all[0].len() + all[1].len());
            assert!(validated > 0);
        }
    }

    #[test]
    fn without_a_share_draws_pass_unchanged_and_a_validation_that_is_busy_or_gone_blocks_nothing() {
        let batch = || {
            let (samples, servers) = (0..16).map(drawn).unzip();
            ShardedBatch { samples, servers }
        };
        assert_eq!(Split::new(HeldOut::share(0.0), 16, None).take(batch()), Some(batch()));
        let (sender, validation) = crossbeam_channel::bounded(1);
        let mut split = Split::new(HeldOut::share(0.5), 4, Some(sender));
        (0..4).for_each(|_| assert!(split.take(batch()).is_some()));
        assert_eq!(validation.len(), 1);
        drop(validation);
        assert!(split.take(batch()).is_some());
    }
}
