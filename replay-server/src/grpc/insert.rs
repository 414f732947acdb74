use std::collections::HashMap;
use std::time::Duration;

use experience::TrajectoryId;
use proto::convert;
use proto::limits::MESSAGE_BYTES_MAX;
use proto::replay::order::{InsertOrder, Inserted as Message};
use proto::replay::{Answer, v1};
use proto::security::Caller;
use service::trace::{self, Kind, Span};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until};
use tonic::{Status, Streaming};

use super::{Answers, INSERT_CREDIT, ReplayService, draining, until};
use crate::leases::{Lease, MISSED_MAX};
use crate::log::UnixMillis;
use crate::storage;
use crate::table_service::{Command, Inserted};

/// The delay after which a rejected client should retry; freeing space on a disk takes at least this long.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The size of an actor's unanswered trajectories at which its stream is no longer read, in bytes: two of the largest
/// trajectories.
const IN_FLIGHT_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// The stream of one actor: receives messages, sends one answer for each trajectory.
pub(super) struct InsertStream {
    inbound: Streaming<v1::InsertRequest>,
    order: InsertOrder,
    service: ReplayService,
    caller: Caller,
    answer: mpsc::Sender<Inserted>,
    answers: mpsc::Receiver<Inserted>,
    reading: Reading,
    /// The address of the client.
    address: String,
    heartbeat: Duration,
    /// The lease of the actor, from its `hello` on.
    lease: Option<Lease>,
    /// The time of the client's last message, or of the last moment at which the server did not read.
    last_message: Instant,
    /// The time of the last check of the lease.
    looked: Instant,
    /// The time before which the stream is not read, because the actor has exceeded its quota.
    ready: Option<Instant>,
    /// The memory of each unanswered trajectory in bytes, by sequence.
    in_flight: HashMap<u64, usize>,
    in_flight_bytes: usize,
    /// The spans of the traced unanswered trajectories, by sequence: each lasts from the arrival to the answer.
    traces: HashMap<u64, Span>,
    _permit: OwnedSemaphorePermit,
}

/// The state of reading: messages are still read, or the reason for which they are not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    On,
    ClientEnded,
    Draining,
}

impl InsertStream {
    pub(super) fn new(
        inbound: Streaming<v1::InsertRequest>,
        service: ReplayService,
        caller: Caller,
        address: String,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let settings = &service.settings;
        let heartbeat = settings.heartbeat;
        let order = InsertOrder::new(settings.game.as_str(), INSERT_CREDIT, settings.limits, heartbeat);
        // Capacity for the answers to all unanswered trajectories: the table service never finds the channel full.
        let (answer, answers) = mpsc::channel(INSERT_CREDIT as usize);
        Self {
            inbound,
            order,
            service,
            caller,
            answer,
            answers,
            reading: Reading::On,
            address,
            heartbeat,
            lease: None,
            last_message: Instant::now(),
            looked: Instant::now(),
            ready: None,
            in_flight: HashMap::new(),
            in_flight_bytes: 0,
            traces: HashMap::new(),
            _permit: permit,
        }
    }

    pub(super) fn answers(self) -> Answers<v1::InsertResponse> {
        Box::pin(futures::stream::try_unfold(self, async |mut stream| {
            Ok::<_, Status>(stream.next().await?.map(|answer| (answer, stream)))
        }))
    }

    /// Returns the next answer; an error or `None` ends the stream.
    async fn next(&mut self) -> Result<Option<v1::InsertResponse>, Status> {
        loop {
            match self.reading {
                Reading::ClientEnded if self.order.unanswered() == 0 => return Ok(None),
                Reading::Draining if self.order.unanswered() == 0 => return Err(draining()),
                _ => {}
            }
            let reading = self.reading == Reading::On;
            tokio::select! {
                biased;
                Some(inserted) = self.answers.recv() => {
                    self.order.answered();
                    self.landed(inserted.id());
                    if let Some(lease) = &self.lease {
                        lease.answered(u64::from(matches!(inserted, Inserted::New(_))));
                    }
                    self.end_trace(&inserted);
                    if let Some(answer) = self.convert(inserted)? {
                        return Ok(Some(answer.into()));
                    }
                }
                () = self.service.drain.cancelled(), if reading => self.reading = Reading::Draining,
                () = until(self.ready), if self.ready.is_some() => self.ready = None,
                message = self.inbound.message(), if reading && self.may_read() => match message? {
                    None => self.reading = Reading::ClientEnded,
                    Some(message) => if let Some(response) = self.receive(message).await? {
                        return Ok(Some(response));
                    }
                },
                () = sleep_until(self.looked + self.heartbeat / 2), if self.lease.is_some() => self.look()?,
            }
        }
    }

    async fn receive(&mut self, message: v1::InsertRequest) -> Result<Option<v1::InsertResponse>, Status> {
        let trace = trace::joined("store", convert::trace_of(&message)).map(|span| span.of_kind(Kind::Server));
        let message = self.order.receive(message)?;
        self.renew_lease(Instant::now());
        match message {
            Message::Heartbeat => Ok(None),
            Message::Goodbye => {
                self.lease.iter().for_each(Lease::goodbye);
                Ok(None)
            }
            Message::Hello(origin) => {
                self.caller.check_actor(origin.actor)?;
                tracing::info!(actor = origin.actor, epoch = origin.epoch, "an actor inserts");
                let address = std::mem::take(&mut self.address);
                self.lease = Some(self.service.actors.open(origin.actor, origin.epoch, address));
                let highest = self.service.handle.request(|reply| Command::HighestEpoch(origin.actor, reply)).await?;
                Ok(Some(self.order.ready(highest)))
            }
            Message::Trajectory(trajectory) => {
                // The trajectory is encoded here, in the connection's own task, rather than on the log's single thread.
                let inserted = UnixMillis::now();
                let content =
                    storage::encode(&trajectory, inserted).map_err(|error| Status::internal(error.to_string()))?;
                let id = trajectory.id();
                let bytes = trajectory.bytes() + content.payload().len();
                // A trajectory that is received twice before it is answered is counted once.
                self.traces.extend(trace.map(|span| (id.sequence, span)));
                self.in_flight_bytes += bytes - self.in_flight.insert(id.sequence, bytes).unwrap_or(0).min(bytes);
                if let Some(lease) = &self.lease {
                    lease.arrived(Some(trajectory.last_weights_version().0));
                }
                self.ready = self.service.quota.count(id.actor, Instant::now());
                let command = Command::Insert { trajectory, content, inserted, reply: self.answer.clone() };
                self.service.handle.send(command).await?;
                Ok(None)
            }
            Message::Refused(answer) => {
                self.service.handle.send(Command::CountRefused).await?;
                self.order.answered();
                if let Answer::Refused { sequence, fault } = &answer {
                    tracing::warn!(sequence, %fault, "an invalid trajectory was refused");
                }
                Ok(Some(answer.into()))
            }
        }
    }

    fn may_read(&self) -> bool {
        self.ready.is_none() && self.in_flight_bytes < IN_FLIGHT_BYTES_MAX
    }

    /// Renews the lease of a client that sent a message, or that this server keeps from sending one.
    fn renew_lease(&mut self, now: Instant) {
        self.last_message = now;
        if let Some(lease) = &self.lease {
            lease.renew(now);
        }
    }

    /// Checks that the client is alive. Silence does not count while the server reads nothing, nor from a client
    /// without heartbeats, nor for the time in which this server was itself stalled.
    fn look(&mut self) -> Result<(), Status> {
        let now = Instant::now();
        let looked = std::mem::replace(&mut self.looked, now);
        let is_excused = !self.order.keeps_lease()
            || self.reading != Reading::On
            || !self.may_read()
            || now.saturating_duration_since(looked) > self.heartbeat + self.heartbeat / 2;
        if is_excused {
            self.renew_lease(now);
        }
        let silent = now.saturating_duration_since(self.last_message);
        if silent <= self.heartbeat * MISSED_MAX {
            return Ok(());
        }
        let reason = format!("nothing came for {silent:.1?}, and a heartbeat is due every {:?}", self.heartbeat);
        Err(convert::retry_after(Status::unavailable(reason), RETRY_AFTER))
    }

    fn landed(&mut self, id: TrajectoryId) {
        let bytes = self.in_flight.remove(&id.sequence).unwrap_or(0);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
    }

    fn end_trace(&mut self, inserted: &Inserted) {
        let Some(mut span) = self.traces.remove(&inserted.id().sequence) else { return };
        span.set("trajectory", inserted.id().to_string().as_str());
        match inserted {
            Inserted::New(_) => span.set("disposition", "inserted"),
            Inserted::Duplicate(_) => span.set("disposition", "duplicate"),
            Inserted::Stale(_) => span.set("disposition", "stale"),
            Inserted::NotStored(..) | Inserted::OverMemory { .. } | Inserted::Draining(_) => {
                span.set("disposition", "none");
                span.fail("left to be sent again");
            }
        }
        span.end();
    }

    /// Returns the answer for the actor, or `None` if the actor must send the trajectory again.
    fn convert(&mut self, inserted: Inserted) -> Result<Option<Answer>, Status> {
        match inserted {
            Inserted::New(id) => Ok(Some(Answer::Inserted { sequence: id.sequence })),
            Inserted::Stale(id) => Ok(Some(self.order.understood(Answer::Stale { sequence: id.sequence }))),
            Inserted::Duplicate(id) => Ok(Some(Answer::Duplicate { sequence: id.sequence })),
            Inserted::NotStored(id, error) => Err(not_stored(id, &error)),
            Inserted::OverMemory { id, bytes_max } => Err(exhausted(format!(
                "trajectory {id} finds no room in the {bytes_max} bytes of replay.memory_bytes_max: raise it, or lower \
                 the capacity of tables; nothing is lost, it is sent again"
            ))),
            Inserted::Draining(_) => {
                self.reading = Reading::Draining;
                Ok(None)
            }
        }
    }
}

/// Returns the status for a trajectory that is neither stored nor rejected. The protocol has no answer for it, so the
/// stream ends: the actor keeps its unanswered trajectories and sends them again on the next stream.
fn not_stored(id: TrajectoryId, error: &str) -> Status {
    let reason = format!(
        "trajectory {id} cannot be stored now ({error}): make room on the disk of the replay log; nothing is lost, it is \
         sent again"
    );
    exhausted(reason)
}

/// Returns a status that advises the client to retry.
pub(super) fn exhausted(reason: String) -> Status {
    convert::retry_after(Status::resource_exhausted(reason), RETRY_AFTER)
}
