//! Prioritised replay (Schaul et al. 2016): sends the value errors of trained positions to the source replay servers,
//! as priorities. The priority is MuZero's |z − ν|, the distance between the target and the network's value for the
//! position. For MuZero, the position is the first step of the unrolled segment.
//!
//! The protocol does not state whether a table samples by priority. If no server used the latest priorities, sending
//! pauses for [`RETRY_INTERVAL`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use experience::{Sample, TrajectoryId};
use proto::replay::{Inspector, ItemPriority, MAIN_TABLE, PriorityUpdate, UpdatedPriorities};
use tokio::sync::mpsc;
use transport::servers::Server;

/// Minimum priority, so that a position with value error 0 is still sampled occasionally.
const PRIORITY_MIN: f64 = 0.01;
/// Pause before trying again to send priorities to servers that do not use them: a table may be reconfigured at run
/// time.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Capacity of the queue of batches with value errors. A full queue drops value errors; the positions will be sampled
/// again.
const WAITING_MAX: usize = 8;

/// An item of a batch, with the source server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// Replay server that sent the sample.
    pub(crate) server: Server,
    /// Trajectory that contains the item.
    pub(crate) trajectory: TrajectoryId,
    /// Ply of the item within the trajectory.
    pub(crate) ply: usize,
}

impl Item {
    /// Returns the item of a sample that was received from `server`.
    pub(crate) fn of(sample: &Sample, server: &Server) -> Self {
        Self { server: server.clone(), trajectory: sample.segment.trajectory(), ply: sample.segment.ply() }
    }
}

/// The items of a batch in row order, and for each the distance between value and target: from 0 to 2 in games scored
/// by outcome, unbounded in games scored by rewards.
type Errors = (Vec<Item>, Vec<f32>);

/// The sender of value errors, shared by training and preparing threads.
#[derive(Debug, Clone)]
pub(crate) struct Priorities {
    errors: mpsc::Sender<Errors>,
    /// False during the pause after an attempt in which no server used the priorities.
    wanted: Arc<AtomicBool>,
}

impl Priorities {
    /// Creates the sender of value errors, and the task that forwards the value errors to the replay servers. The task
    /// ends once the sender is dropped.
    pub(crate) fn new() -> (Self, impl Future<Output = ()>) {
        let (errors, waiting) = mpsc::channel(WAITING_MAX);
        let wanted = Arc::new(AtomicBool::new(true));
        (Self { errors, wanted: Arc::clone(&wanted) }, send(waiting, wanted))
    }

    /// Returns true if value errors should be computed and reported.
    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Queues the value errors of these items for sending.
    pub(crate) fn report(&self, items: &[Item], value_errors: &[f32]) {
        if !items.is_empty() && items.len() == value_errors.len() {
            // A full queue drops the value errors.
            drop(self.errors.try_send((items.to_vec(), value_errors.to_vec())));
        }
    }
}

async fn send(mut waiting: mpsc::Receiver<Errors>, wanted: Arc<AtomicBool>) {
    // Connections to the servers of the latest batch.
    let mut inspectors: BTreeMap<Server, Inspector> = BTreeMap::new();
    while let Some((items, errors)) = waiting.recv().await {
        let mut sum = UpdatedPriorities::default();
        let updates = by_server(items, &errors);
        inspectors.retain(|server, _| updates.contains_key(server));
        for (server, priorities) in updates {
            match update(&mut inspectors, &server, priorities).await {
                Ok(updated) => {
                    sum.updated += updated.updated;
                    sum.unused += updated.unused;
                }
                // The server may be temporarily unreachable. The positions will be sampled again.
                Err(error) => {
                    let (server, error) = (&*server.endpoint, service::chain(&error));
                    tracing::debug!(server, error, "cannot send priorities");
                }
            }
        }
        if sum.unused > 0 && sum.updated == 0 {
            wanted.store(false, Ordering::Relaxed);
            tokio::time::sleep(RETRY_INTERVAL).await;
            // Value errors queued during the pause are from outdated weights.
            while waiting.try_recv().is_ok() {}
            wanted.store(true, Ordering::Relaxed);
        }
    }
}

async fn update(
    inspectors: &mut BTreeMap<Server, Inspector>,
    server: &Server,
    priorities: Vec<ItemPriority>,
) -> anyhow::Result<UpdatedPriorities> {
    let inspector = match inspectors.entry(server.clone()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(Inspector::new(&server.endpoint)?),
    };
    Ok(inspector.update_priorities(PriorityUpdate { table: MAIN_TABLE.to_owned(), priorities }).await?)
}

fn by_server(items: Vec<Item>, errors: &[f32]) -> BTreeMap<Server, Vec<ItemPriority>> {
    let mut servers: BTreeMap<Server, Vec<ItemPriority>> = BTreeMap::new();
    for (Item { server, trajectory, ply }, &error) in items.into_iter().zip(errors) {
        // Servers reject non-finite priorities, so an overflowed value error becomes the maximum priority.
        let priority = f64::from(error).max(PRIORITY_MIN).min(f64::from(f32::MAX));
        servers.entry(server).or_default().push(ItemPriority { trajectory, ply, priority });
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_updates_go_to_the_server_of_each_item() {
        let item = |server: &str, sequence| Item {
            server: Server::at(server),
            trajectory: TrajectoryId { actor: 1, epoch: 1, sequence },
            ply: 3,
        };
        let items = vec![item("http://a:1", 0), item("http://b:1", 1), item("http://a:1", 2)];
        let updates = by_server(items, &[0.5, 0.25, 0.0]);
        let of = |server: &str| -> Vec<(u64, f64)> {
            updates[&Server::at(server)].iter().map(|update| (update.trajectory.sequence, update.priority)).collect()
        };
        assert_eq!(of("http://a:1"), [(0, 0.5), (2, PRIORITY_MIN)]);
        assert_eq!(of("http://b:1"), [(1, 0.25)]);
    }

    #[test]
    fn value_errors_of_rewards_are_priorities_on_their_own_scale_and_always_finite() {
        let items = (0..4).map(|sequence| Item {
            server: Server::at("http://a:1"),
            trajectory: TrajectoryId { actor: 1, epoch: 1, sequence },
            ply: 0,
        });
        let updates = by_server(items.collect(), &[480.0, 0.5, f32::INFINITY, f32::NAN]);
        let priorities: Vec<f64> = updates[&Server::at("http://a:1")].iter().map(|update| update.priority).collect();
        assert_eq!(priorities, [480.0, 0.5, f64::from(f32::MAX), PRIORITY_MIN]);
    }

    #[tokio::test]
    async fn priority_reports_beyond_the_queue_limit_do_not_block() {
        let (priorities, _sending) = Priorities::new();
        let item = Item {
            server: Server::at("http://a:1"),
            trajectory: TrajectoryId { actor: 1, epoch: 1, sequence: 0 },
            ply: 0,
        };
        for _ in 0..3 * WAITING_MAX {
            priorities.report(std::slice::from_ref(&item), &[0.5]);
        }
        assert!(priorities.are_wanted());
    }
}
