//! Handles revisions: a revision is compared with the trajectory that it is based on, goes to the log, and replaces the
//! searches in all tables once it is durable. It counts neither towards the limiter nor as an insert.

use std::collections::HashMap;

use experience::{Trajectory, TrajectoryId, WeightsVersion};
use proto::replay::Revisable;
use rand_chacha::ChaCha8Rng;
use run_file::replay::TableIndex;

use super::commands::{Refusal, Reply};
use super::memory::InFlight;
use super::{IN_LOG_MAX, TableService};
use crate::log::{EncodedTrajectory, Entry, UnixMillis};
use crate::metrics;

/// Maximum number of revisions in flight to the disk: an eighth of the log's capacity, which leaves the rest to
/// inserts.
const REVISIONS_IN_LOG_MAX: usize = IN_LOG_MAX / 8;

/// The state of the revisions in a table service.
#[derive(Debug)]
pub(super) struct Revisions {
    /// Random number generator for choosing trajectories. It is separate so that these choices do not affect the draws
    /// of items.
    rng: ChaCha8Rng,
    in_log: HashMap<TrajectoryId, InLog>,
}

/// A revision in flight to the disk; at most one for each trajectory.
#[derive(Debug)]
struct InLog {
    /// The trajectory with the new searches.
    trajectory: Trajectory,
    revision: u64,
    at: UnixMillis,
    /// Weights version of the last step whose search is replaced.
    replaced: WeightsVersion,
    /// Size of the record, in bytes.
    record_bytes: usize,
    reply: Reply<Result<u64, Refusal>>,
}

impl InLog {
    fn bytes(&self) -> u64 {
        (self.trajectory.bytes() + self.record_bytes) as u64
    }
}

impl Revisions {
    pub(super) fn new(rng: ChaCha8Rng) -> Self {
        Self { rng, in_log: HashMap::new() }
    }
}

impl TableService {
    pub(super) fn choose(&mut self, table: TableIndex, older_than: WeightsVersion) -> Option<Revisable> {
        let held = self.tables[table.0].choose(older_than, &mut self.revisions.rng)?;
        Some(Revisable { trajectory: held.trajectory.clone(), revision: held.revision })
    }

    pub(super) fn revise(
        &mut self,
        revised: &Revisable,
        content: EncodedTrajectory,
        at: UnixMillis,
        reply: Reply<Result<u64, Refusal>>,
    ) {
        let record_bytes = content.payload().len();
        match self.check_revision(revised) {
            Err(refusal) => refuse(reply, refusal),
            Ok((trajectory, replaced)) => {
                let (id, revision) = (trajectory.id(), revised.revision + 1);
                let revising = InLog { trajectory, revision, at, replaced, record_bytes, reply };
                let more = InFlight::revision(revising.bytes());
                if let Err(bytes_max) = self.make_room(more) {
                    return refuse(revising.reply, Refusal::OverMemory { id, bytes_max });
                }
                self.in_flight += more;
                self.revisions.in_log.insert(id, revising);
                self.append(Entry::Revision { id, content });
            }
        }
    }

    /// Returns the trajectory with the new searches, and the version of the last replaced step.
    fn check_revision(&mut self, revised: &Revisable) -> Result<(Trajectory, WeightsVersion), Refusal> {
        let &Revisable { trajectory: ref searched, revision: from } = revised;
        if self.draining {
            return Err(Refusal::Draining);
        }
        let id = searched.id();
        let held = self.tables.iter_mut().find_map(|table| table.lookup(id)).ok_or(Refusal::NotHeld(id))?;
        let revision = self.revisions.in_log.get(&id).map_or(held.revision, |revising| revising.revision);
        if revision != from {
            return Err(Refusal::StaleRevision { id, held: revision, from });
        }
        let trajectory = held.trajectory.revised_by(searched).map_err(Refusal::OtherEpisode)?;
        let (replaced, sent) = (held.trajectory.last_weights_version(), trajectory.last_weights_version());
        if sent < replaced {
            return Err(Refusal::OlderWeights { id, held: replaced, sent });
        }
        // A revision based on one in flight, with a number that can only be guessed, would have to wait for it.
        if self.revisions.in_log.contains_key(&id)
            || self.revisions.in_log.len() >= REVISIONS_IN_LOG_MAX
            || self.in_log_entries >= IN_LOG_MAX
        {
            return Err(Refusal::TooManyRevisions(self.revisions.in_log.len()));
        }
        Ok((trajectory, replaced))
    }

    /// Replaces the searches of a trajectory after the revision has become durable.
    pub(super) fn revised(&mut self, id: TrajectoryId) {
        let Some(InLog { trajectory, revision, at, replaced, reply, .. }) = self.land_revision(id) else { return };
        let mut is_held = false;
        for table in &mut self.tables {
            is_held |= table.revise(&trajectory, revision, at.since_1970());
        }
        if !is_held {
            // The record has no effect: at a restart the trajectory is removed in the same way.
            return refuse(reply, Refusal::NotHeld(id));
        }
        metrics::revised(&trajectory, replaced);
        let _ = reply.send(Ok(revision));
    }

    pub(super) fn revision_failed(&mut self, id: TrajectoryId, error: &str) {
        if let Some(InLog { reply, .. }) = self.land_revision(id) {
            refuse(reply, Refusal::RevisionNotStored(error.to_owned()));
        }
    }

    fn land_revision(&mut self, id: TrajectoryId) -> Option<InLog> {
        let landed = self.revisions.in_log.remove(&id)?;
        self.in_flight -= InFlight::revision(landed.bytes());
        Some(landed)
    }
}

/// Replies with a refusal and counts it. A disconnected caller does not need it.
fn refuse(reply: Reply<Result<u64, Refusal>>, refusal: Refusal) {
    metrics::count_revision_refused(refusal.of_revision());
    let _ = reply.send(Err(refusal));
}

#[cfg(test)]
mod tests;
