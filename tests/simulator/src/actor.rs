//! Actors: they finish games, upload them and keep each until it is acknowledged.
//!
//! A model of the actor's writer, router, epoch file and spool for one server; the order of messages is that of the
//! real client.

use std::collections::VecDeque;

use experience::{Trajectory, TrajectoryId};
use prost::Message as _;
use proto::replay::order::{InsertReplies, InsertReply};
use proto::replay::v1::insert_request::Message;
use proto::replay::{Answer, Origin, v1};
use rand::RngExt;
use replay_server::defect::Defect;

use crate::bus::{Client, Packet, Service, StreamId};
use crate::content::{self, GAME, Items};
use crate::oracle::{Checked, Promise, broken};
use crate::world::World;

/// The maximum number of unacknowledged trajectories of an uplink.
const UNACKNOWLEDGED_MAX: usize = 24;

/// The time before an actor opens another stream, in nanoseconds.
const RETRY_NS: u64 = 200_000_000;

/// An actor, with what survives the end of its process.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) id: u64,
    home: Home,
    pub(crate) process: Option<Process>,
}

/// The files of an actor.
#[derive(Debug, Default)]
struct Home {
    epoch: Option<u64>,
    spool: Vec<Trajectory>,
}

/// One run of an actor.
#[derive(Debug)]
pub(crate) struct Process {
    /// The uplink of new games first, then those of the spool.
    uplinks: Vec<Uplink>,
    next_uplink: u64,
}

/// The upload of trajectories of one epoch.
#[derive(Debug)]
struct Uplink {
    number: u64,
    epoch: u64,
    /// True while the server may have stored this epoch before.
    is_unchecked: bool,
    next_sequence: u64,
    items: VecDeque<Item>,
    sent: usize,
    stream: Option<(StreamId, InsertReplies)>,
    retry_ns: u64,
    heartbeat_ns: u64,
}

/// An unacknowledged trajectory.
#[derive(Debug, Clone)]
struct Item {
    trajectory: Trajectory,
    /// True if it may have been sent before.
    resent: bool,
}

/// How the process of an actor ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Crash,
    /// It spools what is not acknowledged.
    Drain,
    /// Its files are lost, too.
    HomeLost,
}

impl Home {
    /// Returns an epoch above the one in the file and above `highest`, once it is durable; without a file, it is at
    /// least `first`.
    fn next_epoch(&mut self, highest: u64, first: u64) -> Option<u64> {
        let next = self.epoch.map_or(first, |epoch| epoch + 1);
        let epoch = next.max(highest.checked_add(1)?);
        self.epoch = Some(epoch);
        Some(epoch)
    }
}

impl Actor {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, home: Home::default(), process: None }
    }

    /// Starts the process, if it is down.
    fn start(&mut self, first_epoch: u64) {
        if self.process.is_some() {
            return;
        }
        let Some(epoch) = self.home.next_epoch(0, first_epoch) else { return };
        let mut process = Process { uplinks: Vec::new(), next_uplink: 0 };
        process.open(epoch, true, Vec::new());
        let mut spool = self.home.spool.clone();
        spool.sort_by_key(Trajectory::id);
        for epoch in spool.chunk_by(|a, b| a.id().epoch == b.id().epoch) {
            let items = epoch.iter().map(|trajectory| Item { trajectory: trajectory.clone(), resent: true });
            process.open(epoch[0].id().epoch, false, items.collect());
        }
        self.process = Some(process);
    }

    /// Returns the number of unacknowledged games of this run.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.process.as_ref().map_or(0, |process| process.uplinks[0].items.len())
    }
}

impl Process {
    fn open(&mut self, epoch: u64, is_unchecked: bool, items: Vec<Item>) {
        let number = self.next_uplink;
        self.next_uplink += 1;
        self.uplinks.push(Uplink {
            number,
            epoch,
            is_unchecked,
            next_sequence: 0,
            items: items.into(),
            sent: 0,
            stream: None,
            retry_ns: 0,
            heartbeat_ns: 0,
        });
    }
}

impl Uplink {
    fn broke(&mut self, now_ns: u64) {
        self.items.iter_mut().take(self.sent).for_each(|item| item.resent = true);
        (self.sent, self.stream, self.retry_ns) = (0, None, now_ns + RETRY_NS);
    }
}

impl World {
    /// Returns the first epoch of an actor without a file: the time, which no earlier process had.
    fn first_epoch(&self) -> u64 {
        if self.defect == Some(Defect::EpochReused) { 1 } else { self.wall_ms() }
    }

    /// Lets a random actor finish a game.
    pub(crate) fn play_one(&mut self) -> Checked {
        let index = self.rng.random_range(0..self.actors.len());
        self.play(index, Items::Any);
        self.pump(index);
        Ok(())
    }

    /// Lets an actor finish a game; returns its id, unless as many as it keeps are unacknowledged.
    pub(crate) fn play(&mut self, index: usize, items: Items) -> Option<TrajectoryId> {
        let first_epoch = self.first_epoch();
        let actor = &mut self.actors[index];
        actor.start(first_epoch);
        let id = actor.id;
        let uplink = &mut actor.process.as_mut()?.uplinks[0];
        if uplink.items.len() >= UNACKNOWLEDGED_MAX {
            return None;
        }
        self.serial += 1;
        let id = TrajectoryId { actor: id, epoch: uplink.epoch, sequence: uplink.next_sequence };
        let trajectory = content::game(id, self.serial, self.newest, items, &mut self.rng);
        uplink.next_sequence += 1;
        uplink.items.push_back(Item { trajectory, resent: false });
        self.note("game", format!("actor {} finishes game {id}", id.actor));
        Some(id)
    }

    /// Lets an actor open streams, send what it may and send heartbeats.
    pub(crate) fn pump(&mut self, index: usize) {
        let is_up = self.server.as_ref().is_some_and(|server| !server.draining);
        let Self { actors, bus, now_ns, .. } = self;
        let actor = &mut actors[index];
        let Some(process) = &mut actor.process else { return };
        for uplink in &mut process.uplinks {
            let Some((stream, order)) = &mut uplink.stream else {
                let is_needed = uplink.number == 0 || !uplink.items.is_empty();
                if is_needed && is_up && *now_ns >= uplink.retry_ns {
                    let stream = bus.open(Client::Actor { index, uplink: uplink.number }, Service::Insert);
                    let origin = Origin { actor: actor.id, epoch: uplink.epoch, game: GAME.to_owned() };
                    bus.send_to_server(stream, request(Message::Hello(origin.into())));
                    uplink.stream = Some((stream, InsertReplies::default()));
                }
                continue;
            };
            while order.may_send()
                && let Some(item) = uplink.items.get(uplink.sent)
            {
                order.sent(item.trajectory.id().sequence);
                bus.send_to_server(*stream, request(Message::Trajectory(item.trajectory.clone().into())));
                uplink.sent += 1;
            }
            if let Some(heartbeat) = order.heartbeat()
                && *now_ns >= uplink.heartbeat_ns
            {
                bus.send_to_server(*stream, request(Message::Heartbeat(v1::Heartbeat {})));
                uplink.heartbeat_ns = *now_ns + u64::try_from(heartbeat.as_nanos()).unwrap_or(u64::MAX);
            }
        }
    }

    /// Handles a packet of an insert stream at its actor.
    pub(crate) fn actor_message(&mut self, index: usize, number: u64, id: StreamId, packet: Packet) -> Checked {
        let (now_ns, first_epoch) = (self.now_ns, self.first_epoch());
        let actor = &mut self.actors[index];
        let Some(process) = &mut actor.process else { return Ok(()) };
        let Some(at) = process.uplinks.iter().position(|uplink| uplink.number == number) else { return Ok(()) };
        let uplink = &mut process.uplinks[at];
        let Some((_, order)) = uplink.stream.as_mut().filter(|(stream, _)| *stream == id) else { return Ok(()) };
        let Packet::Message(bytes) = packet else {
            uplink.broke(now_ns);
            self.bus.client_left(id);
            self.trace.fired("actor reconnects");
            return Ok(());
        };
        let reply = v1::InsertResponse::decode(bytes.as_slice()).map_err(|error| error.to_string());
        match reply.and_then(|reply| order.receive(reply).map_err(|fault| fault.to_string())) {
            Err(fault) => return broken(Promise::Own, format!("actor {} received {fault}", actor.id)),
            Ok(InsertReply::Ready { highest_epoch }) => {
                let is_taken = uplink.is_unchecked && highest_epoch > 0 && highest_epoch >= uplink.epoch;
                uplink.is_unchecked = false;
                if is_taken {
                    let Some(epoch) = actor.home.next_epoch(highest_epoch, first_epoch) else { return Ok(()) };
                    uplink.broke(now_ns);
                    (uplink.epoch, uplink.next_sequence, uplink.is_unchecked) = (epoch, 0, true);
                    for item in &mut uplink.items {
                        let sequence = uplink.next_sequence;
                        uplink.next_sequence += 1;
                        let id = TrajectoryId { epoch, sequence, ..item.trajectory.id() };
                        *item = Item { trajectory: item.trajectory.with_id(id), resent: false };
                    }
                    self.bus.send_to_server(id, Packet::End("the client has another epoch".to_owned()));
                    self.bus.client_left(id);
                    self.note(
                        "epoch taken",
                        format!("an actor has epoch {epoch} instead of one at most {highest_epoch}"),
                    );
                }
            }
            // Model actors stay at their server, whatever it waits for.
            Ok(InsertReply::Waiting(_)) => {}
            Ok(InsertReply::Answer(answer)) => return self.settle_answer(index, at, &answer),
        }
        self.pump(index);
        Ok(())
    }

    fn settle_answer(&mut self, index: usize, at: usize, answer: &Answer) -> Checked {
        let actor = &mut self.actors[index];
        let Some(process) = &mut actor.process else { return Ok(()) };
        let uplink = &mut process.uplinks[at];
        let is_answered = |item: &Item| item.trajectory.id().sequence == answer.sequence();
        let Some(position) = uplink.items.iter().take(uplink.sent).position(is_answered) else { return Ok(()) };
        uplink.sent -= 1;
        let Some(Item { trajectory, resent }) = uplink.items.remove(position) else { return Ok(()) };
        match answer {
            Answer::Duplicate { .. } if !resent => {
                let what = format!("{} was sent for the first time and answered as a duplicate", trajectory.id());
                return broken(Promise::Own, what);
            }
            Answer::Refused { fault, .. } => {
                return broken(Promise::Own, format!("{} was refused: {fault}", trajectory.id()));
            }
            _ => {}
        }
        // The spool is removed once it is uploaded.
        if at > 0 && process.uplinks[1..].iter().all(|uplink| uplink.items.is_empty()) {
            actor.home.spool.clear();
        }
        self.pump(index);
        Ok(())
    }

    /// Ends the process of a random actor.
    pub(crate) fn end_actor(&mut self, end: End) -> Checked {
        let index = self.rng.random_range(0..self.actors.len());
        let actor = &mut self.actors[index];
        let Some(process) = actor.process.take() else { return Ok(()) };
        if end == End::Drain {
            let items = process.uplinks.into_iter().flat_map(|uplink| uplink.items);
            actor.home.spool = items.map(|item| item.trajectory).collect();
        }
        if end == End::HomeLost {
            actor.home = Home::default();
        }
        let id = actor.id;
        self.bus.actor_ended(index);
        self.note("actor ends", format!("actor {id} ends: {end:?}"));
        Ok(())
    }
}

fn request(message: Message) -> Packet {
    Packet::Message(v1::InsertRequest { message: Some(message), trace: String::new() }.encode_to_vec())
}
