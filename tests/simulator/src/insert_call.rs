//! Server side of an insert stream: drives the state machine of the server as the gRPC handler does.

use std::collections::BTreeMap;
use std::time::Instant;

use experience::{Trajectory, TrajectoryId};
use proto::replay::v1;
use replay_server::insert_stream::{INSERT_CREDIT, InsertStream, Looked, Received};
use replay_server::leases::Actors;
use replay_server::log::UnixMillis;
use replay_server::quota::Quota;
use replay_server::table_service::Inserted;
use run_file::replay::Settings;
use tokio::sync::mpsc;
use transport::security::Caller;

/// The insert call of one client.
#[derive(Debug)]
pub(crate) struct InsertCall {
    pub(crate) stream: InsertStream,
    answer: mpsc::Sender<Inserted>,
    answers: mpsc::Receiver<Inserted>,
    /// Trajectories without a response, by sequence; for a repeated sequence, the first trajectory.
    received: BTreeMap<u64, Trajectory>,
}

/// A response of the table service on the way to the client.
#[derive(Debug)]
pub(crate) enum Answered {
    /// A promise about this trajectory.
    Promise(Promise, TrajectoryId, Option<Trajectory>, v1::InsertResponse),
    /// The stream ends, since the trajectory is not stored.
    End(String),
}

/// Promise made by a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    Inserted,
    Duplicate,
    Stale,
}

impl Promise {
    /// Returns the promise of a result; `None` if the trajectory must be sent again.
    fn of(inserted: &Inserted) -> Option<Self> {
        match inserted {
            Inserted::New(_) => Some(Self::Inserted),
            Inserted::Duplicate(_) => Some(Self::Duplicate),
            Inserted::Stale(_) => Some(Self::Stale),
            Inserted::NotStored(..) | Inserted::OverMemory { .. } | Inserted::Draining(_) => None,
        }
    }
}

impl InsertCall {
    pub(crate) fn new(settings: &Settings, actors: Actors, now: Instant) -> Self {
        let (quota, address) = (Quota::new(None), "simulated".to_owned());
        let stream = InsertStream::new(settings, actors, quota, Caller::default(), address, now);
        let (answer, answers) = mpsc::channel(INSERT_CREDIT as usize);
        Self { stream, answer, answers, received: BTreeMap::new() }
    }

    /// Takes a message; an error ends the stream.
    pub(crate) fn receive(
        &mut self,
        message: v1::InsertRequest,
        now: Instant,
        wall: UnixMillis,
    ) -> Result<Received, String> {
        let received = self.stream.receive(message, now, wall).map_err(|status| status.message().to_owned())?;
        if let Received::Insert { trajectory, .. } = &received {
            self.received.entry(trajectory.id().sequence).or_insert_with(|| trajectory.clone());
        }
        Ok(received)
    }

    pub(crate) fn reply(&self) -> mpsc::Sender<Inserted> {
        self.answer.clone()
    }

    /// Makes the lease checks that are due; an error ends the stream.
    pub(crate) fn look(&mut self, now: Instant) -> Result<Looked, String> {
        let mut looked = Looked::Nothing;
        while let Some(due) = self.stream.next_look().filter(|due| *due <= now) {
            looked = self.stream.look(due).map_err(|status| status.message().to_owned())?;
        }
        Ok(looked)
    }

    /// Returns the next response of the table service.
    pub(crate) fn poll(&mut self) -> Option<Answered> {
        loop {
            let inserted = self.answers.try_recv().ok()?;
            let id = inserted.id();
            let received = self.received.remove(&id.sequence);
            let promise = Promise::of(&inserted);
            match (self.stream.inserted(inserted), promise) {
                (Ok(Some(response)), Some(promise)) => {
                    return Some(Answered::Promise(promise, id, received, response));
                }
                // The stream ends once every trajectory has a response.
                (Ok(_), _) => {}
                (Err(status), _) => return Some(Answered::End(status.message().to_owned())),
            }
        }
    }
}
