//! The replay window of a deterministic run between two weights versions, and the checkpoint format for trajectories.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use experience::{Limits, Trajectory, TrajectoryId};
use replay::{Table, TableSettings, TableTotals};
use serde::{Deserialize, Serialize};
use weights::WeightsVersion;

/// Actor id in every trajectory id of a deterministic run.
const ACTOR: u64 = 0;

/// Metadata of a trajectory in the checkpoint. The encoded columns of all trajectories follow the metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    epoch: u64,
    sequence: u64,
    columns_bytes: u64,
}

/// Numbers of all inserts so far, as stored in a checkpoint. [`TableTotals`] itself cannot be serialised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Totals {
    /// Number of trajectories inserted since the start of the run.
    pub(super) trajectories: u64,
    /// Number of positions in these trajectories that can be sampled.
    pub(super) items: u64,
}

impl From<TableTotals> for Totals {
    fn from(TableTotals { trajectories, items }: TableTotals) -> Self {
        Self { trajectories, items }
    }
}

/// Creates a replay table for one weights version with `trajectories`, in order from the oldest, after `totals` inserts
/// since the start of the run. Every version builds a new table, so that samples are the same after an interruption:
/// they do not depend on the order in which older trajectories were removed.
pub(super) fn table(settings: TableSettings, trajectories: &[Trajectory], totals: Totals) -> Table {
    let mut table = Table::new(settings);
    insert(&mut table, trajectories.iter().cloned());
    table.remember(TableTotals { trajectories: totals.trajectories, items: totals.items });
    table
}

pub(super) fn insert(table: &mut Table, trajectories: impl IntoIterator<Item = Trajectory>) {
    for trajectory in trajectories {
        let _ = table.insert(trajectory, Duration::ZERO);
    }
}

/// Returns all trajectories in the table, in order from the oldest.
pub(super) fn trajectories(table: &Table) -> Vec<Trajectory> {
    let mut trajectories: Vec<_> = table.held().map(|held| held.trajectory.clone()).collect();
    trajectories.reverse();
    trajectories
}

/// Returns the id of trajectory number `sequence` of a weights version.
pub(super) fn id(version: WeightsVersion, sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: ACTOR, epoch: version.0, sequence }
}

/// Encodes trajectories as a line of JSON with ids and lengths in bytes, followed by the columns.
pub(super) fn write(trajectories: &[Trajectory]) -> anyhow::Result<Vec<u8>> {
    let held: Vec<Held> = trajectories
        .iter()
        .map(|trajectory| {
            let TrajectoryId { epoch, sequence, .. } = trajectory.id();
            Held { epoch, sequence, columns_bytes: trajectory.columns().len() as u64 }
        })
        .collect();
    let mut bytes = serde_json::to_vec(&held)?;
    bytes.push(b'\n');
    trajectories.iter().for_each(|trajectory| bytes.extend_from_slice(trajectory.columns()));
    Ok(bytes)
}

/// Decodes trajectories from the output of [`write`].
///
/// # Errors
/// The bytes have another format, or a trajectory exceeds the limits.
pub(super) fn read(bytes: &[u8], limits: Limits) -> anyhow::Result<Vec<Trajectory>> {
    let end = bytes.iter().position(|&byte| byte == b'\n').context("the list of trajectories is truncated")?;
    let held: Vec<Held> = serde_json::from_slice(&bytes[..end]).context("read the list of trajectories")?;
    let mut rest = &bytes[end + 1..];
    let mut trajectories = Vec::with_capacity(held.len());
    for Held { epoch, sequence, columns_bytes } in held {
        let columns = usize::try_from(columns_bytes).ok().and_then(|len| rest.split_at_checked(len));
        let (columns, after) = columns.context("the trajectory columns are truncated")?;
        let id = TrajectoryId { actor: ACTOR, epoch, sequence };
        trajectories.push(Trajectory::parse(id, columns, limits).with_context(|| format!("read trajectory {id}"))?);
        rest = after;
    }
    ensure!(rest.is_empty(), "{} bytes follow the last trajectory", rest.len());
    Ok(trajectories)
}
