//! The server side of one insert stream as a pure state machine: it admits messages, counts trajectories in flight,
//! renews the lease of the actor and replies to each trajectory.
//!
//! It depends on no sockets, tasks or clocks: calls that need the time take it as an argument. The driver is the
//! handler in [`grpc`](crate::grpc), or a simulator. Start with [`InsertStream::new`], which documents the order of the
//! calls.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use experience::Trajectory;
use proto::replay::order::{InsertOrder, Inserted as Message};
use proto::replay::{Answer, InsertWait, Origin, trace_of, v1};
use run_file::replay::Settings;
use service::trace::{self, Kind, Span};
use tonic::Status;
use transport::limits::MESSAGE_BYTES_MAX;
use transport::security::Caller;

use crate::leases::{Actors, Lease, MISSED_MAX};
use crate::log::{EncodedTrajectory, UnixMillis};
use crate::metrics;
use crate::quota::Quota;
use crate::storage;
use crate::table_service::Inserted;

/// Maximum number of unanswered trajectories per actor. Equals the maximum number of entries in a commit, so that
/// one actor alone can fill a commit.
pub const INSERT_CREDIT: u32 = 256;

/// Retry delay for rejected clients; freeing space on a disk takes at least this long.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Total size of an actor's unanswered trajectories at which the stream is no longer read, in bytes: twice the
/// maximum size of a trajectory.
const IN_FLIGHT_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// The insert stream of one actor.
#[derive(Debug)]
pub struct InsertStream {
    order: InsertOrder,
    actors: Actors,
    quota: Quota,
    /// The client; it may insert for some actors only.
    caller: Caller,
    reading: Reading,
    /// Address of the client.
    address: String,
    heartbeat: Duration,
    /// The lease of the actor, once `hello` was received.
    lease: Option<Lease>,
    /// Time of the client's last message, or the last time at which the server was not reading, if later.
    last_message: Instant,
    /// Time of the last check of the lease.
    looked: Instant,
    /// Time before which the stream is not read, because the actor has exceeded the quota.
    quota_wait: Option<Instant>,
    /// True while a trajectory waits for a client credit; the stream is not read then.
    awaits_credit: bool,
    /// Memory of each unanswered trajectory in bytes, by sequence.
    in_flight: HashMap<u64, usize>,
    in_flight_bytes: usize,
    /// Spans of traced unanswered trajectories, by sequence: each lasts from the arrival to the reply.
    traces: HashMap<u64, Span>,
}

/// Whether messages are read, or the reason why they are no longer read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    On,
    ClientEnded,
    Draining,
}

/// What the driver must do after a client message.
#[derive(Debug)]
pub enum Received {
    /// Nothing is to be done.
    Nothing,
    /// The stream is open: find the highest stored epoch of the actor and send [`InsertStream::ready`].
    Hello(Origin),
    /// Store a trajectory and pass the result to [`InsertStream::inserted`].
    Insert {
        /// Trajectory to store.
        trajectory: Trajectory,
        /// The encoded record for the log.
        content: EncodedTrajectory,
        /// Time of the insert, as in the record.
        inserted: UnixMillis,
    },
    /// An invalid trajectory: count it and send this reply.
    Refused(v1::InsertResponse),
}

/// What the driver must do after a lease check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// Nothing is to be done.
    Nothing,
    /// Find the reason why inserts wait and send [`InsertStream::waiting`].
    FindWait,
}

impl InsertStream {
    /// Creates the stream of a client at `address`; the lease is opened in `actors`.
    ///
    /// While [`end`](Self::end) returns `None`, the driver passes the client's messages to [`receive`](Self::receive)
    /// as long as [`reads`](Self::reads) is true, and the results of inserts to [`inserted`](Self::inserted). It
    /// calls [`look`](Self::look) at the time [`next_look`](Self::next_look), and [`proceed`](Self::proceed) at the
    /// time [`quota_wait`](Self::quota_wait). An error ends the stream with this status. Dropping the stream records
    /// that it is closed.
    pub fn new(
        settings: &Settings,
        actors: Actors,
        quota: Quota,
        caller: Caller,
        address: String,
        now: Instant,
    ) -> Self {
        let heartbeat = settings.heartbeat;
        Self {
            order: InsertOrder::new(settings.game.as_str(), INSERT_CREDIT, settings.limits, heartbeat),
            actors,
            quota,
            caller,
            reading: Reading::On,
            address,
            heartbeat,
            lease: None,
            last_message: now,
            looked: now,
            quota_wait: None,
            awaits_credit: false,
            in_flight: HashMap::new(),
            in_flight_bytes: 0,
            traces: HashMap::new(),
        }
    }

    /// Returns the result of a finished stream: an error if the client must connect again. `None` before.
    pub fn end(&self) -> Option<Result<(), Status>> {
        match self.reading {
            Reading::ClientEnded if self.order.unanswered() == 0 => Some(Ok(())),
            Reading::Draining if self.order.unanswered() == 0 => Some(Err(draining())),
            _ => None,
        }
    }

    /// Returns true while the client's messages are read.
    pub fn reads(&self) -> bool {
        self.is_open() && self.quota_wait.is_none() && !self.awaits_credit && self.in_flight_bytes < IN_FLIGHT_BYTES_MAX
    }

    /// Returns true until the client has closed the requests or the server drains.
    pub fn is_open(&self) -> bool {
        self.reading == Reading::On
    }

    /// Handles the client's next message, which arrives at `now`; `wall` is the same moment as a stored time.
    ///
    /// # Errors
    /// The status that ends the stream.
    pub fn receive(&mut self, message: v1::InsertRequest, now: Instant, wall: UnixMillis) -> Result<Received, Status> {
        let trace = trace::joined("store", trace_of(&message)).map(|span| span.of_kind(Kind::Server));
        let message = self.order.receive(message)?;
        self.renew_lease(now);
        match message {
            Message::Heartbeat => Ok(Received::Nothing),
            Message::Goodbye => {
                self.lease.iter().for_each(Lease::goodbye);
                Ok(Received::Nothing)
            }
            Message::Hello(origin) => {
                self.caller.check_actor(origin.actor)?;
                tracing::info!(actor = origin.actor, epoch = origin.epoch, "insert stream opened");
                let address = std::mem::take(&mut self.address);
                self.lease = Some(self.actors.open(origin.actor, origin.epoch, address, now));
                Ok(Received::Hello(origin))
            }
            Message::Trajectory(trajectory) => self.accept(trajectory, trace, now, wall),
            Message::Refused(answer) => {
                self.order.answered();
                if let Answer::Refused { sequence, fault } = &answer {
                    metrics::count_defect(fault);
                    tracing::warn!(sequence, %fault, "invalid trajectory refused");
                }
                Ok(Received::Refused(answer.into()))
            }
        }
    }

    /// Returns the reply to `hello`; `highest_epoch` is the highest epoch of this actor with a stored trajectory, or 0.
    pub fn ready(&self, highest_epoch: u64) -> v1::InsertResponse {
        self.order.ready(highest_epoch)
    }

    /// Returns the message with the reason why trajectories wait, if the client supports such messages.
    pub fn waiting(&self, wait: InsertWait) -> Option<v1::InsertResponse> {
        self.order.reads_waiting().then(|| wait.into())
    }

    /// Handles the result of an insert and returns the reply to send, if there is one.
    ///
    /// # Errors
    /// The status that ends the stream: the trajectory was neither stored nor rejected and must be sent again.
    pub fn inserted(&mut self, inserted: Inserted) -> Result<Option<v1::InsertResponse>, Status> {
        self.order.answered();
        let bytes = self.in_flight.remove(&inserted.id().sequence).unwrap_or(0);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        if let Some(lease) = &self.lease {
            lease.answered(u64::from(matches!(inserted, Inserted::New(_))));
        }
        self.end_trace(&inserted);
        Ok(self.convert(inserted)?.map(v1::InsertResponse::from))
    }

    /// Records that the client sends nothing more.
    pub fn client_ended(&mut self) {
        self.reading = Reading::ClientEnded;
    }

    /// Records that the server drains: nothing more is read.
    pub fn drain(&mut self) {
        self.reading = Reading::Draining;
    }

    /// Returns the time until which the quota keeps the actor waiting.
    pub fn quota_wait(&self) -> Option<Instant> {
        self.quota_wait
    }

    /// Records that the time of [`quota_wait`](Self::quota_wait) has come.
    pub fn proceed(&mut self) {
        self.quota_wait = None;
    }

    /// Records whether a trajectory waits for a client credit.
    pub fn await_credit(&mut self, awaits_credit: bool) {
        self.awaits_credit = awaits_credit;
    }

    /// Returns the time of the next lease check; `None` before there is a lease.
    pub fn next_look(&self) -> Option<Instant> {
        self.lease.is_some().then(|| self.looked + self.heartbeat / 2)
    }

    /// Checks that the client is alive. Silence does not count while the server reads nothing, for a client without
    /// heartbeats, or during a stall of this server.
    ///
    /// # Errors
    /// The status that ends the stream of a silent client.
    pub fn look(&mut self, now: Instant) -> Result<Looked, Status> {
        let looked = std::mem::replace(&mut self.looked, now);
        let is_excused = !self.order.keeps_lease()
            || !self.reads()
            || now.saturating_duration_since(looked) > self.heartbeat + self.heartbeat / 2;
        if is_excused {
            self.renew_lease(now);
        }
        let silent = now.saturating_duration_since(self.last_message);
        if silent <= self.heartbeat * MISSED_MAX {
            return Ok(if self.order.reads_waiting() { Looked::FindWait } else { Looked::Nothing });
        }
        let reason = format!("no message for {silent:.1?}; the heartbeat interval is {:?}", self.heartbeat);
        Err(transport::retry_after(Status::unavailable(reason), RETRY_AFTER))
    }

    /// Encodes a trajectory in the task of the connection rather than on the log's single thread.
    fn accept(
        &mut self,
        trajectory: Trajectory,
        trace: Option<Span>,
        now: Instant,
        inserted: UnixMillis,
    ) -> Result<Received, Status> {
        let content = storage::encode(&trajectory, inserted).map_err(|error| Status::internal(error.to_string()))?;
        let id = trajectory.id();
        let bytes = trajectory.bytes() + content.payload().len();
        self.traces.extend(trace.map(|span| (id.sequence, span)));
        // A trajectory that arrives twice before the reply is counted once.
        self.in_flight_bytes += bytes - self.in_flight.insert(id.sequence, bytes).unwrap_or(0).min(bytes);
        if let Some(lease) = &self.lease {
            lease.arrived(Some(trajectory.last_weights_version().0));
        }
        self.quota_wait = self.quota.count(id.actor, now);
        Ok(Received::Insert { trajectory, content, inserted })
    }

    /// Renews the lease after a message from the client, or while this server prevents messages.
    fn renew_lease(&mut self, now: Instant) {
        self.last_message = now;
        if let Some(lease) = &self.lease {
            lease.renew(now);
        }
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
                span.fail("not stored; the actor sends it again");
            }
        }
        span.end();
    }

    /// Returns the reply for the actor; `None` if the server drains, so that the actor must send the trajectory
    /// again. An error ends the stream.
    fn convert(&mut self, inserted: Inserted) -> Result<Option<Answer>, Status> {
        match inserted {
            Inserted::New(id) => Ok(Some(Answer::Inserted { sequence: id.sequence })),
            Inserted::Stale(id) => Ok(Some(self.order.understood(Answer::Stale { sequence: id.sequence }))),
            Inserted::Duplicate(id) => Ok(Some(Answer::Duplicate { sequence: id.sequence })),
            // The trajectory is neither stored nor rejected. The protocol has no reply for it, so the stream ends: the
            // actor keeps all unanswered trajectories and sends them again on the next stream.
            Inserted::NotStored(id, error) => Err(exhausted(format!(
                "trajectory {id} cannot be stored now ({error}) and is sent again; free space on the disk of the \
                 replay log"
            ))),
            Inserted::OverMemory { id, bytes_max } => Err(exhausted(format!(
                "trajectory {id} does not fit in {bytes_max} bytes (replay.memory_bytes_max) and is sent again; raise \
                 the limit, or lower the capacity of tables"
            ))),
            Inserted::Draining(_) => {
                self.drain();
                Ok(None)
            }
        }
    }
}

/// Returns a status that advises the client to retry.
pub(crate) fn exhausted(reason: String) -> Status {
    transport::retry_after(Status::resource_exhausted(reason), RETRY_AFTER)
}

/// Returns the status that ends every stream and call of a draining server.
pub(crate) fn draining() -> Status {
    Status::unavailable("the replay server is shutting down")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use experience::TrajectoryId;
    use proto::replay::v1::insert_request::Message as Request;
    use proto::replay::v1::insert_response::Message as Response;
    use tonic::Code;

    const GAME: &str = "connect_four";

    /// Returns a stream after a hello of revision 1.
    fn opened(now: Instant) -> InsertStream {
        let settings = Config::default().settings().unwrap();
        let actors = Actors::new(settings.heartbeat, INSERT_CREDIT);
        let mut stream =
            InsertStream::new(&settings, actors, Quota::new(None), Caller::default(), "10.0.0.1:4000".to_owned(), now);
        let hello = v1::Hello { actor: 1, epoch: 1, game: GAME.into(), revision: 1 };
        let received = stream.receive(request(Request::Hello(hello)), now, UnixMillis(0)).unwrap();
        assert!(matches!(received, Received::Hello(_)), "{received:?}");
        stream
    }

    fn request(message: Request) -> v1::InsertRequest {
        v1::InsertRequest { message: Some(message), ..v1::InsertRequest::default() }
    }

    fn trajectory(sequence: u64) -> Trajectory {
        use experience::{ActionProbability, Step, StepKind};
        let policy = vec![ActionProbability { action: game::Action(0), probability: 1.0 }];
        let kind = StepKind::Full { policy, value: 0.0 };
        let step = Step { action: game::Action(0), reward: 0.0, kind, weights_version: weights::WeightsVersion(1) };
        let id = TrajectoryId { actor: 1, epoch: 1, sequence };
        Trajectory::of(id, GAME, &vec![step; 4], game::Outcome::Draw).unwrap()
    }

    fn receive(stream: &mut InsertStream, sequence: u64, now: Instant) -> TrajectoryId {
        let message = request(Request::Trajectory(trajectory(sequence).into()));
        match stream.receive(message, now, UnixMillis(0)).unwrap() {
            Received::Insert { trajectory, .. } => trajectory.id(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_draining_stream_reads_nothing_and_ends_when_all_is_answered() {
        let now = Instant::now();
        let mut stream = opened(now);
        let id = receive(&mut stream, 0, now);
        stream.drain();
        assert!(!stream.reads() && stream.end().is_none());
        let answer = stream.inserted(Inserted::New(id)).unwrap().unwrap();
        assert!(matches!(answer.message, Some(Response::Ack(v1::Ack { sequence: 0, .. }))), "{answer:?}");
        assert_eq!(stream.end().unwrap().unwrap_err().code(), Code::Unavailable);
    }

    #[test]
    fn a_trajectory_that_was_not_stored_ends_the_stream() {
        let now = Instant::now();
        let mut stream = opened(now);
        let id = receive(&mut stream, 0, now);
        let status = stream.inserted(Inserted::NotStored(id, "the disk is full".to_owned())).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }

    #[test]
    fn a_silent_client_ends_its_stream_after_three_heartbeats_unless_the_server_was_stalled() {
        let start = Instant::now();
        let mut stream = opened(start);
        let half = stream.next_look().unwrap() - start;
        for looks in 1..=6 {
            stream.look(start + half * looks).unwrap();
        }
        assert_eq!(stream.look(start + half * 7).unwrap_err().code(), Code::Unavailable);

        let mut stalled = opened(start);
        stalled.look(start + half * 20).unwrap();
    }
}
