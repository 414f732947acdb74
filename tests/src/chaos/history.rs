//! Client operations with times and results, for the [`checker`](super::checker).

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use experience::TrajectoryId;
use serde_json::{Value, json};

/// An operation of a client. Times count from the start of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Name of the client, which calls one operation after the other unless inserts are pipelined.
    pub client: String,
    /// Time just before the call.
    pub invoked: Duration,
    /// Time just after the result; `None` while the result is unknown.
    pub returned: Option<Duration>,
    /// Call with the result.
    pub call: Call,
}

/// A client call, with the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Inserts a trajectory.
    Insert {
        /// Number of the replay server.
        server: u8,
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Response; `None` while it is unknown.
        answer: Option<Inserted>,
    },
    /// Draws samples.
    Sample {
        /// Number of the replay server.
        server: u8,
        /// Trajectories of the samples.
        ids: Vec<TrajectoryId>,
    },
    /// Requests the statistics of a replay server over a new connection.
    Stats {
        /// Number of the replay server.
        server: u8,
        /// Reason for a failure.
        error: Option<String>,
    },
    /// Receives the latest weights.
    Weights {
        /// True if the client subscribed after the call, so that no older version can be in transit.
        subscribes: bool,
        /// Received version; `None` if the call failed.
        version: Option<u64>,
        /// Digest of the weights.
        digest: String,
        /// Latest version that the learner had written when the call returned.
        published: u64,
    },
}

/// Result of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It was new and is stored.
    New,
    /// It had been stored before, by this call or by an earlier one.
    Duplicate,
    /// It is stored: either of the two results above.
    Stored,
    /// Another trajectory has the same id, though this id was sent for the first time.
    Collision,
    /// It was rejected.
    Refused,
}

/// All operations of a run, shared by the clients.
#[derive(Debug)]
pub struct History {
    start: Instant,
    operations: Mutex<Vec<Operation>>,
}

impl Default for History {
    fn default() -> Self {
        Self { start: Instant::now(), operations: Mutex::default() }
    }
}

impl History {
    /// Returns the time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Records a call that starts now; returns the index for [`end`](Self::end).
    pub fn begin(&self, client: &str, call: Call) -> usize {
        let mut operations = self.locked();
        // The time is read under the lock, so that operations are in call order.
        let invoked = self.now();
        operations.push(Operation { client: client.to_owned(), invoked, returned: None, call });
        operations.len() - 1
    }

    /// Records that a call has returned with this result.
    pub fn end(&self, index: usize, result: Call) {
        let mut operations = self.locked();
        let operation = &mut operations[index];
        operation.returned = Some(self.now());
        operation.call = result;
    }

    /// Returns a copy of all operations, in call order.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        self.locked().clone()
    }

    /// Writes one JSON object per line: all operations, and the times of faults.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path, faults: &[Disturbance]) -> anyhow::Result<()> {
        let mut text = String::new();
        for value in faults.iter().map(Disturbance::json).chain(self.locked().iter().map(Operation::json)) {
            let _ = writeln!(text, "{value}");
        }
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Operation>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time from the first fault of a round until every process worked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disturbance {
    /// Description of the faults.
    pub what: String,
    /// Time of the first fault.
    pub from: Duration,
    /// Time of the last recovery.
    pub to: Duration,
    /// True if requests may fail meanwhile.
    pub may_fail: bool,
}

impl Disturbance {
    fn json(&self) -> Value {
        json!({"faults": self.what, "from": self.from.as_secs_f64(), "to": self.to.as_secs_f64()})
    }
}

impl Operation {
    fn json(&self) -> Value {
        let ids = |ids: &[TrajectoryId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
        let call = match &self.call {
            Call::Insert { server, id, answer } => {
                let answer = answer.map_or("unknown".to_owned(), |answer| format!("{answer:?}"));
                json!({"insert": id.to_string(), "server": server, "answer": answer})
            }
            Call::Sample { server, ids: drawn } => json!({"sample": ids(drawn), "server": server}),
            Call::Stats { server, error } => json!({"stats": error.as_deref().unwrap_or("ok"), "server": server}),
            Call::Weights { subscribes, version, digest, published } => {
                json!({"weights": version, "subscribes": subscribes, "digest": digest, "published": published})
            }
        };
        let returned = self.returned.map(|at| at.as_secs_f64());
        json!({"client": self.client, "invoked": self.invoked.as_secs_f64(), "returned": returned, "call": call})
    }
}
