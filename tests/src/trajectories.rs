//! Builds trajectories, and lists the contents of a replay server or a spool.

use std::path::Path;
use std::time::Duration;

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome, Player};
use proto::replay::{Inspector, ListQuery, RequestError, Writer, WriterSettings};
use weights::WeightsVersion;

/// Game of [`won`].
pub const GAME: &str = "tic_tac_toe";

/// Returns a game of tic-tac-toe that the first player wins in the top row.
#[must_use]
pub fn won(id: TrajectoryId) -> Trajectory {
    of_actions(id, &[0, 3, 1, 4, 2])
}

/// Returns a trajectory of these actions; the search policy of each step gives the action probability 1.
#[must_use]
pub fn of_actions(id: TrajectoryId, actions: &[u16]) -> Trajectory {
    let steps = actions.iter().map(|&action| {
        let action = Action(action);
        let policy = vec![ActionProbability { action, probability: 1.0 }];
        Step { action, reward: 0.0, kind: StepKind::Full { policy, value: 0.5 }, weights_version: WeightsVersion(1) }
    });
    Trajectory::of(id, GAME, &steps.collect::<Vec<_>>(), Outcome::Win(Player::First)).expect("its steps are valid")
}

/// Starts a writer for this actor and epoch.
#[must_use]
pub fn writer(endpoint: &str, actor: u64, epoch: u64) -> Writer {
    Writer::start(WriterSettings {
        endpoint: endpoint.to_owned(),
        actor,
        epoch,
        game: GAME.to_owned(),
        in_flight_max: 64,
    })
}

/// Returns the ids of all trajectories that a replay server holds.
///
/// # Errors
/// The server does not respond.
pub async fn list(endpoint: &str) -> anyhow::Result<Vec<TrajectoryId>> {
    let inspector = Inspector::new(endpoint)?;
    let ids: Result<_, RequestError> = inspector.list(ListQuery::default()).await;
    Ok(ids?)
}

/// Returns the ids in the spool of an actor at `path`; empty if there is no spool.
#[must_use]
pub fn spooled(path: &Path) -> Vec<TrajectoryId> {
    let bytes = std::fs::read(path).unwrap_or_default();
    // After the magic `zfspool1`, each record has a length and a checksum of the length, both twice, then a checksum of
    // the record and the trajectory id.
    let (mut rest, mut ids) = (bytes.get(8..).unwrap_or_default(), Vec::new());
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some((record, next)) = behind.split_at_checked(length) else { break };
        let (words, _) = record.get(4..28).unwrap_or_default().as_chunks();
        if let [actor, epoch, sequence] = *words {
            let [actor, epoch, sequence] = [actor, epoch, sequence].map(u64::from_le_bytes);
            ids.push(TrajectoryId { actor, epoch, sequence });
        }
        rest = next;
    }
    ids
}

/// Waits until every trajectory of the writer is acknowledged or rejected.
///
/// # Errors
/// A trajectory has no response at the deadline.
pub async fn answered(writer: &Writer, deadline: Duration) -> anyhow::Result<()> {
    let wait = async {
        while writer.unacknowledged() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    Ok(tokio::time::timeout(deadline, wait).await?)
}
