//! The trajectories of a run between two versions, and the checkpoint file for them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use experience::{Limits, Sample, Trajectory, TrajectoryId};
use rand_chacha::ChaCha8Rng;
use replay::{Table, TableSettings, TableTotals};
use serde::{Deserialize, Serialize};
use weights::WeightsVersion;

/// The actor of every trajectory.
const ACTOR: u64 = 0;

/// The replay table of one version. Each version builds a new table, with or without interruption, so that draws do
/// not depend on the order in which older trajectories left.
pub(super) struct Window {
    table: Table,
}

/// Metadata of a trajectory in the checkpoint; the columns follow separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    epoch: u64,
    sequence: u64,
    columns_bytes: u64,
}

/// Counts of all inserts in a checkpoint. [`TableTotals`] has no file format: that crate writes no files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Totals {
    /// Trajectories ever inserted.
    pub(super) trajectories: u64,
    /// Positions of these trajectories that can be drawn.
    pub(super) items: u64,
}

impl Window {
    /// Holds `trajectories`, oldest first, after `totals` inserts.
    pub(super) fn new(settings: TableSettings, trajectories: &[Trajectory], totals: Totals) -> Self {
        let mut table = Table::new(settings);
        for trajectory in trajectories {
            let _ = table.insert(trajectory.clone(), Duration::ZERO);
        }
        table.remember(TableTotals { trajectories: totals.trajectories, items: totals.items });
        Self { table }
    }

    /// Inserts the trajectories of a version.
    pub(super) fn insert(&mut self, version: WeightsVersion, trajectories: impl IntoIterator<Item = Trajectory>) {
        self.table.hold_to_newest(version);
        for trajectory in trajectories {
            let _ = self.table.insert(trajectory, Duration::ZERO);
        }
    }

    pub(super) fn totals(&self) -> Totals {
        let TableTotals { trajectories, items } = self.table.totals();
        Totals { trajectories, items }
    }

    /// Returns the number of positions that can be drawn.
    pub(super) fn items(&self) -> u64 {
        self.table.items()
    }

    /// Draws `count` samples of `1 + unroll_steps` steps.
    pub(super) fn draw(&mut self, count: usize, unroll_steps: usize, rng: &mut ChaCha8Rng) -> Vec<Sample> {
        let mut drawn = Vec::with_capacity(count);
        self.table.draw(count, rng, &mut drawn);
        drawn.iter().map(|drawn| drawn.sample(unroll_steps)).collect()
    }

    /// Returns the trajectories, oldest first.
    pub(super) fn trajectories(&self) -> Vec<Trajectory> {
        let mut trajectories: Vec<_> = self.table.held().map(|held| held.trajectory.clone()).collect();
        trajectories.reverse();
        trajectories
    }
}

/// Returns the id of a version's trajectory number `sequence`.
pub(super) fn id(version: WeightsVersion, sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: ACTOR, epoch: version.0, sequence }
}

/// Encodes trajectories as a line of JSON with ids and lengths, followed by the columns.
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

/// Decodes the output of [`write`].
///
/// # Errors
/// Bytes in another format, or trajectories beyond the limits.
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
