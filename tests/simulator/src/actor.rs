//! Actors: they finish games, upload them and keep each game until it is acknowledged.
//!
//! Models the epoch file and the spool of an actor for two servers. Uploads and the choice of a server use the state
//! machines of the real client.

use std::time::Instant;

use experience::{Trajectory, TrajectoryId};
use prost::Message as _;
use proto::replay::{EpochUse, LinkState, Links, Origin, Outbox, Received, Route, next_epoch, v1};
use rand::RngExt;
use replay_server::defect::Defect;

use crate::bus::{Client, Packet, Service, StreamId};
use crate::content::{self, GAME, Items};
use crate::oracle::{Checked, Promise, broken};
use crate::second::AWAY_MAX;
use crate::world::World;

/// Maximum unacknowledged trajectories per uplink.
const UNACKNOWLEDGED_MAX: usize = 24;

/// Time before an actor opens another stream, in nanoseconds.
const RETRY_NS: u64 = 200_000_000;

/// An actor, with the state that survives a stop of the process.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) id: u64,
    home: Home,
    pub(crate) process: Option<Process>,
}

/// Files of an actor.
#[derive(Debug, Default)]
struct Home {
    epoch: Option<u64>,
    /// Trajectories with destination servers.
    spool: Vec<(Server, Trajectory)>,
}

/// One run of an actor process.
#[derive(Debug)]
pub(crate) struct Process {
    route: Route,
    uplinks: Vec<Uplink>,
    next_uplink: u64,
}

/// Upload of trajectories from one epoch.
#[derive(Debug)]
struct Uplink {
    number: u64,
    server: Server,
    content: Content,
    epoch: u64,
    next_sequence: u64,
    outbox: Outbox,
    stream: Option<StreamId>,
    retry_ns: u64,
    /// Time since which no stream is ready. With a planted defect, this alone counts as the absence of the server.
    unready_since: Option<Instant>,
}

/// Content that an uplink uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    NewGames,
    Spool,
}

/// One of the two servers; all actors prefer the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Server {
    First,
    Second,
}

/// Links of a process, as seen by the route.
struct ProcessLinks<'a> {
    process: &'a mut Process,
    home: &'a mut Home,
    actor: u64,
    first_epoch: u64,
    now: Instant,
    defect: Option<Defect>,
}

/// Way in which an actor process stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Crash,
    /// Unacknowledged trajectories are spooled.
    Drain,
    /// The files are lost, too.
    HomeLost,
}

impl Home {
    /// Returns the next epoch, once it is durable.
    fn next_epoch(&mut self, highest: u64, first: u64, gap: u32) -> Option<u64> {
        self.epoch = Some(next_epoch(self.epoch, highest, first, gap)?);
        self.epoch
    }
}

impl Actor {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, home: Home::default(), process: None }
    }

    /// Starts the process, if it is down.
    fn start(&mut self, first_epoch: u64, now: Instant, defect: Option<Defect>) {
        if self.process.is_some() {
            return;
        }
        let mut process = Process { route: Route::new(AWAY_MAX), uplinks: Vec::new(), next_uplink: 0 };
        let mut spool = self.home.spool.clone();
        spool.sort_by_key(|(server, trajectory)| (*server, trajectory.id()));
        let owner = |(server, trajectory): &(Server, Trajectory)| (*server, trajectory.id().epoch);
        for owed in spool.chunk_by(|a, b| owner(a) == owner(b)) {
            let (server, epoch) = owner(&owed[0]);
            let trajectories = owed.iter().map(|(_, trajectory)| trajectory.clone()).collect();
            let outbox = outbox(self.id, epoch, EpochUse::Known, trajectories, now);
            process.open(server, Content::Spool, outbox, epoch, now);
        }
        self.process = Some(process);
        self.steer(first_epoch, now, defect);
    }

    /// Chooses the server for new games; returns true if the choice has changed.
    fn steer(&mut self, first_epoch: u64, now: Instant, defect: Option<Defect>) -> bool {
        let Some(process) = &mut self.process else { return false };
        let mut route = process.route.clone();
        let failovers = route.failovers();
        let home = &mut self.home;
        let mut links = ProcessLinks { process, home, actor: self.id, first_epoch, now, defect };
        route.steer(&[Server::First, Server::Second].map(Server::named), &mut links);
        process.route = route;
        process.route.failovers() > failovers
    }

    /// Returns the number of unacknowledged games for the current server.
    pub(crate) fn unacknowledged(&mut self) -> usize {
        let uplink = self.process.as_mut().and_then(Process::current);
        uplink.map_or(0, |uplink| uplink.outbox.unacknowledged())
    }
}

impl Server {
    fn named(self) -> transport::servers::Server {
        transport::servers::Server::at(match self {
            Self::First => "first",
            Self::Second => "second",
        })
    }

    fn service(self) -> Service {
        match self {
            Self::First => Service::Insert,
            Self::Second => Service::InsertSecond,
        }
    }
}

impl Links for ProcessLinks<'_> {
    fn open(&mut self, server: &transport::servers::Server) {
        let server = if *server == Server::First.named() { Server::First } else { Server::Second };
        if self.process.link(server).is_some() {
            return;
        }
        let Some(epoch) = self.home.next_epoch(0, self.first_epoch, 0) else { return };
        let outbox = outbox(self.actor, epoch, EpochUse::New, Vec::new(), self.now);
        self.process.open(server, Content::NewGames, outbox, epoch, self.now);
    }

    fn state(&self, server: &transport::servers::Server) -> LinkState {
        let is_of = |uplink: &&Uplink| uplink.content == Content::NewGames && uplink.server.named() == *server;
        let Some(uplink) = self.process.uplinks.iter().find(is_of) else { return LinkState::Missing };
        let away = if self.defect == Some(Defect::NotStoredCountsAsProgress) {
            uplink.unready_since.map(|since| self.now.saturating_duration_since(since))
        } else {
            uplink.outbox.status().away_for(self.now)
        };
        away.map_or(LinkState::Works, LinkState::Away)
    }
}

/// Returns an outbox with these trajectories of an epoch.
fn outbox(actor: u64, epoch: u64, epoch_use: EpochUse, trajectories: Vec<Trajectory>, now: Instant) -> Outbox {
    let mut outbox = Outbox::new(Origin { actor, epoch, game: GAME.to_owned() }, epoch_use, now);
    trajectories.into_iter().for_each(|trajectory| outbox.accept(trajectory, None, now));
    outbox
}

impl Process {
    fn open(&mut self, server: Server, content: Content, outbox: Outbox, epoch: u64, now: Instant) {
        let number = self.next_uplink;
        self.next_uplink += 1;
        let unready_since = Some(now);
        let (next_sequence, stream, retry_ns) = (0, None, 0);
        self.uplinks.push(Uplink {
            number,
            server,
            content,
            epoch,
            next_sequence,
            outbox,
            stream,
            retry_ns,
            unready_since,
        });
    }

    /// Returns the uplink of new games to a server.
    fn link(&mut self, server: Server) -> Option<&mut Uplink> {
        self.uplinks.iter_mut().find(|uplink| uplink.content == Content::NewGames && uplink.server == server)
    }

    /// Returns the uplink of the next game.
    fn current(&mut self) -> Option<&mut Uplink> {
        let id = self.route.current().cloned()?;
        [Server::First, Server::Second]
            .into_iter()
            .find(|server| server.named().id == id)
            .and_then(|server| self.link(server))
    }
}

impl Uplink {
    fn broke(&mut self, now_ns: u64, now: Instant) {
        self.outbox.broke(now);
        self.unready_since.get_or_insert(now);
        (self.stream, self.retry_ns) = (None, now_ns + RETRY_NS);
    }

    /// Gives all unacknowledged trajectories ids in a new epoch, in which none was sent.
    fn begin_epoch(&mut self, actor: u64, epoch: u64, now: Instant) {
        let before = std::mem::replace(&mut self.outbox, outbox(actor, epoch, EpochUse::New, Vec::new(), now));
        self.epoch = epoch;
        self.next_sequence = 0;
        for trajectory in before.into_unacknowledged() {
            let id = TrajectoryId { actor, epoch, sequence: self.next_sequence };
            self.next_sequence += 1;
            self.outbox.accept(trajectory.with_id(id), None, now);
        }
    }
}

impl World {
    /// Returns the first epoch of an actor without a file: the time, which no earlier process used.
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

    /// Lets an actor finish a game; returns the id, unless the maximum of unacknowledged games is reached.
    pub(crate) fn play(&mut self, index: usize, items: Items) -> Option<TrajectoryId> {
        let (first_epoch, now) = (self.first_epoch(), self.instant());
        let actor = &mut self.actors[index];
        actor.start(first_epoch, now, self.defect);
        let id = actor.id;
        let uplink = actor.process.as_mut()?.current()?;
        if uplink.outbox.unacknowledged() >= UNACKNOWLEDGED_MAX {
            return None;
        }
        self.serial += 1;
        let id = TrajectoryId { actor: id, epoch: uplink.epoch, sequence: uplink.next_sequence };
        let trajectory = content::game(id, self.serial, self.newest, items, &mut self.rng);
        uplink.next_sequence += 1;
        uplink.outbox.accept(trajectory, None, now);
        self.note("game", format!("actor {} finishes game {id}", id.actor));
        Some(id)
    }

    /// Lets an actor open streams, send within the credit, and send heartbeats.
    pub(crate) fn pump(&mut self, index: usize) {
        let is_up = self.server.as_ref().is_some_and(|server| !server.draining);
        let (now, first_epoch) = (self.instant(), self.first_epoch());
        if self.actors[index].steer(first_epoch, now, self.defect) {
            self.note("another server", format!("the games of actor {} go to another server", index + 1));
        }
        let Self { actors, bus, now_ns, .. } = self;
        let Some(process) = &mut actors[index].process else { return };
        for Uplink { number, server, content, outbox, stream, retry_ns, .. } in &mut process.uplinks {
            let Some(id) = *stream else {
                let is_needed = *content == Content::NewGames || outbox.unacknowledged() > 0;
                if is_needed && (is_up || *server == Server::Second) && *now_ns >= *retry_ns {
                    let opened = bus.open(Client::Actor { index, uplink: *number }, server.service());
                    bus.send_to_server(opened, message(&outbox.open()));
                    *stream = Some(opened);
                }
                continue;
            };
            while let Some(request) = outbox.next_request(now) {
                bus.send_to_server(id, message(&request));
            }
            if outbox.next_heartbeat().is_some_and(|due| due <= now) {
                bus.send_to_server(id, message(&outbox.heartbeat(now)));
            }
        }
    }

    /// Handles a packet of an insert stream at the actor.
    pub(crate) fn actor_message(&mut self, index: usize, number: u64, id: StreamId, packet: Packet) -> Checked {
        let (now_ns, now, first_epoch) = (self.now_ns, self.instant(), self.first_epoch());
        let actor = &mut self.actors[index];
        let Some(process) = &mut actor.process else { return Ok(()) };
        let Some(at) = process.uplinks.iter().position(|uplink| uplink.number == number) else { return Ok(()) };
        let uplink = &mut process.uplinks[at];
        if uplink.stream != Some(id) {
            return Ok(());
        }
        let Packet::Message(bytes) = packet else {
            uplink.broke(now_ns, now);
            self.bus.client_left(id);
            self.trace.fired("actor reconnects");
            return Ok(());
        };
        let reply = v1::InsertResponse::decode(bytes.as_slice()).map_err(|error| error.to_string());
        match reply.and_then(|reply| uplink.outbox.receive(reply, now).map_err(|fault| fault.to_string())) {
            Err(fault) => return broken(Promise::Own, format!("actor {} received {fault}", actor.id)),
            Ok(Received::EpochTaken) => {
                let highest = uplink.outbox.status().epoch_taken.unwrap_or_default();
                let gap = self.rng.random();
                let Some(epoch) = actor.home.next_epoch(highest, first_epoch, gap) else { return Ok(()) };
                uplink.broke(now_ns, now);
                uplink.begin_epoch(actor.id, epoch, now);
                self.bus.send_to_server(id, Packet::End("the client has another epoch".to_owned()));
                self.bus.client_left(id);
                self.note("epoch taken", format!("an actor has epoch {epoch} instead of one at most {highest}"));
            }
            Ok(Received::Answered) => {
                let stats = uplink.outbox.status().stats;
                if stats.collisions > 0 {
                    let what =
                        format!("a game of actor {} was answered as a duplicate when it was first sent", actor.id);
                    return broken(Promise::Own, what);
                }
                if stats.refused > 0 {
                    return broken(Promise::Own, format!("a game of actor {} was refused", actor.id));
                }
                // The spool is removed once it is uploaded.
                let mut spooled = process.uplinks.iter().filter(|uplink| uplink.content == Content::Spool);
                if spooled.all(|uplink| uplink.outbox.unacknowledged() == 0) {
                    actor.home.spool.clear();
                }
            }
            Ok(Received::Ready) => uplink.unready_since = None,
            Ok(Received::Waiting(_)) => {}
        }
        self.pump(index);
        Ok(())
    }

    /// Stops the process of a random actor.
    pub(crate) fn end_actor(&mut self, end: End) -> Checked {
        let index = self.rng.random_range(0..self.actors.len());
        let actor = &mut self.actors[index];
        let Some(process) = actor.process.take() else { return Ok(()) };
        if end == End::Drain {
            let uplinks = process.uplinks.into_iter();
            let owed = |Uplink { server, outbox, .. }: Uplink| {
                outbox.into_unacknowledged().into_iter().map(move |trajectory| (server, trajectory))
            };
            actor.home.spool = uplinks.flat_map(owed).collect();
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

fn message(request: &v1::InsertRequest) -> Packet {
    Packet::Message(request.encode_to_vec())
}
