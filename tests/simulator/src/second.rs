//! The second replay server: real tables, log and streams on a disk that works. Actors use it while the first server is
//! away.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use experience::{Trajectory, TrajectoryId};
use prost::Message as _;
use proto::replay::v1;
use rand::RngExt;
use replay_server::defect::Planted;
use replay_server::insert_stream::{INSERT_CREDIT, Looked, Received};
use replay_server::leases::Actors;
use replay_server::log::UnixMillis;
use replay_server::log::committer::{Committer, LogCommand};
use replay_server::log::power_disk::{Faults, PowerDisk};
use replay_server::storage::{self, Startup};
use replay_server::table_service::{Clock, Command, LOG_COMMANDS_MAX, Reply, TableService};
use run_file::replay::Ack;
use run_file::replay::TableIndex;
use run_file::replay::{Config, Settings};
use tokio::sync::oneshot;

use crate::bus::{Packet, StreamId};
use crate::content::{GAME, LIMITS, serial};
use crate::insert_call::{Answered, InsertCall, Promise as Answer};
use crate::oracle::{Checked, HOSTILE, Promise, broken, same_episode};
use crate::settings::HEARTBEAT;
use crate::world::World;

/// Time for which the first server may be away before an actor uses the second.
pub(crate) const AWAY_MAX: Duration = Duration::from_secs(5);

/// Maximum time from the last sign that one server stores to the acknowledgement of a game by the other. It covers the
/// limit, a heartbeat until silence counts, a second until the log counts as stalled, and a second for the new stream.
const FAILOVER_MAX: Duration = Duration::from_secs(9);

/// Virtual time between two rounds of an outage.
const ROUND_OF_OUTAGE: Duration = Duration::from_millis(100);

/// The second server, which never stops.
pub(crate) struct Second {
    settings: Settings,
    disk: PowerDisk,
    tables: TableService,
    log: Receiver<LogCommand>,
    committer: Committer<PowerDisk>,
    actors: Actors,
    inserts: BTreeMap<StreamId, InsertCall>,
    /// Acknowledged trajectories.
    acknowledged: BTreeMap<TrajectoryId, Trajectory>,
    /// Trajectories acknowledged as new. If two streams wait for the same trajectory, one receives `DUPLICATE`.
    new: BTreeSet<TrajectoryId>,
}

/// Way in which a server stops storing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    DiskFull,
    SyncsFail,
    LogHangs,
}

fn restored(disk: &PowerDisk, settings: &Settings, now: Instant) -> (Second, Vec<Trajectory>) {
    let (threads, planted) = (NonZeroUsize::MIN, Planted::default());
    let startup = Startup { now: UnixMillis(0), threads, salt_seed: [7; 32], memory_bytes_max: None, planted };
    let restored = storage::restore(disk.clone(), settings, startup);
    let (log, restored, _) = restored.expect("the second disk has no faults");
    let held = restored.tables[TableIndex::MAIN.0].table().held().map(|held| held.trajectory.clone()).collect();
    let (to_log, commands) = sync_channel(LOG_COMMANDS_MAX);
    let second = Second {
        settings: settings.clone(),
        disk: disk.clone(),
        tables: TableService::new(restored, settings, to_log, Clock::at(now, Duration::ZERO)),
        log: commands,
        committer: Committer::new(log, Ack::Fsync),
        actors: Actors::new(HEARTBEAT, INSERT_CREDIT),
        inserts: BTreeMap::new(),
        acknowledged: BTreeMap::new(),
        new: BTreeSet::new(),
    };
    (second, held)
}

impl Second {
    pub(crate) fn new(seed: u64, now: Instant) -> Self {
        let mut config = Config::default();
        GAME.clone_into(&mut config.run.game);
        // No limiter blocks the server, and it removes nothing.
        config.replay.main.error_items = 1e12;
        let settings = config.settings().expect("the settings are valid");
        let settings = Settings { heartbeat: HEARTBEAT, limits: LIMITS, ..settings };
        restored(&PowerDisk::new(!seed), &settings, now).0
    }

    fn ask<T>(&mut self, command: impl FnOnce(Reply<T>) -> Command, now: Instant) -> Option<T> {
        let (reply, mut answer) = oneshot::channel();
        self.tables.apply(command(reply), now);
        answer.try_recv().ok()
    }

    /// Takes a message; returns the response, or the reason why the stream ends.
    fn receive(&mut self, id: StreamId, bytes: &[u8], now: Instant) -> Result<Option<v1::InsertResponse>, String> {
        let new = || InsertCall::new(&self.settings, self.actors.clone(), now);
        let call = self.inserts.entry(id).or_insert_with(new);
        let message = v1::InsertRequest::decode(bytes).map_err(|error| error.to_string())?;
        match call.receive(message, now, UnixMillis(0))? {
            Received::Nothing => Ok(None),
            Received::Refused(response) => Ok(Some(response)),
            Received::Hello(origin) => {
                let highest = self.ask(|reply| Command::HighestEpoch(origin.actor, reply), now).unwrap_or(0);
                Ok(self.inserts.get(&id).map(|call| call.stream.ready(highest)))
            }
            Received::Insert { trajectory, content, inserted } => {
                let reply = call.reply();
                self.tables.apply(Command::Insert { trajectory, content, inserted, reply: reply.into() }, now);
                Ok(None)
            }
        }
    }

    /// Stores everything in flight, and returns the responses.
    fn store(&mut self, now: Instant) -> Vec<(StreamId, Answered)> {
        self.log.try_iter().for_each(|command| self.committer.take(command));
        let mut events = Vec::new();
        self.committer.commit(&mut |event| events.push(event));
        events.into_iter().for_each(|event| self.tables.apply(Command::Log(event), now));
        let calls = self.inserts.iter_mut();
        calls
            .flat_map(|(id, call)| std::iter::from_fn(|| call.poll()).map(|answer| (*id, answer)).collect::<Vec<_>>())
            .collect()
    }
}

impl World {
    /// Handles a packet of an insert stream at the second server.
    pub(crate) fn second_message(&mut self, id: StreamId, packet: Packet) {
        let now = self.instant();
        let received = match &packet {
            Packet::Message(bytes) => self.second.receive(id, bytes, now),
            Packet::End(reason) => Err(reason.clone()),
        };
        match received {
            Ok(response) => self.second_sends(id, response),
            Err(reason) => {
                self.second.inserts.remove(&id);
                self.bus.send_to_client(id, Packet::End(reason));
                self.bus.server_left(id);
            }
        }
    }

    fn second_sends(&mut self, id: StreamId, response: Option<v1::InsertResponse>) {
        if let Some(response) = response {
            self.bus.send_to_client(id, Packet::Message(response.encode_to_vec()));
        }
    }

    /// Lets the second server store received trajectories, and report why the rest waits.
    pub(crate) fn turn_second(&mut self) -> Checked {
        let now = self.instant();
        for (id, answered) in self.second.store(now) {
            let Answered::Promise(promise, trajectory, received, response) = answered else { continue };
            let Some(received) = received.filter(|received| received.full_steps() > 0) else {
                // A trajectory without items is acknowledged as new each time, and not stored.
                self.second_sends(id, Some(response));
                continue;
            };
            let second = &mut self.second;
            if promise == Answer::Inserted && !second.new.insert(trajectory) {
                return broken(Promise::Once, format!("the second server acknowledges {trajectory} as new again"));
            }
            if !same_episode(second.acknowledged.entry(trajectory).or_insert_with(|| received.clone()), &received) {
                return broken(
                    Promise::Own,
                    format!("{trajectory} was answered by the second server for another game"),
                );
            }
            self.note("second server stores", format!("the second server has {trajectory}: {promise:?}"));
            self.second_sends(id, Some(response));
        }
        for id in self.second.inserts.keys().copied().collect::<Vec<_>>() {
            let looked = self.second.inserts.get_mut(&id).map(|call| call.look(now));
            match looked {
                Some(Ok(Looked::FindWait)) => {
                    let wait = self.second.ask(Command::InsertWait, now);
                    let call = self.second.inserts.get(&id);
                    let waiting = wait.zip(call).and_then(|(wait, call)| call.stream.waiting(wait));
                    self.second_sends(id, waiting);
                }
                Some(Err(reason)) => self.second_message(id, Packet::End(reason)),
                Some(Ok(Looked::Nothing)) | None => {}
            }
        }
        Ok(())
    }

    /// Stops the first server from storing, in one of three ways, until the second server has stored a game of every
    /// actor.
    pub(crate) fn outage(&mut self) -> Checked {
        let outage = [Outage::DiskFull, Outage::SyncsFail, Outage::LogHangs][self.rng.random_range(0..3_usize)];
        self.note("outage", format!("the first server stores nothing: {outage:?}"));
        self.faults = match outage {
            Outage::DiskFull => Faults { room: Some(0), ..Faults::default() },
            Outage::SyncsFail => Faults { sync: 1.0, ..Faults::default() },
            Outage::LogHangs => Faults::default(),
        };
        self.disk.set_faults(self.faults);
        let before: BTreeSet<TrajectoryId> = self.second.acknowledged.keys().copied().collect();
        let rounds = (FAILOVER_MAX.as_millis() / ROUND_OF_OUTAGE.as_millis()) as usize;
        let mut waiting = Vec::new();
        for round in 0..rounds {
            self.pass(ROUND_OF_OUTAGE);
            let new = |id: &&TrajectoryId| !before.contains(*id);
            let stored: BTreeSet<u64> = self.second.acknowledged.keys().filter(new).map(|id| id.actor).collect();
            waiting = (0..self.actors.len()).filter(|index| !stored.contains(&self.actors[*index].id)).collect();
            if waiting.is_empty() {
                self.note("failover", format!("every actor has used the second server after {round} rounds"));
                break;
            }
            for &index in &waiting {
                if self.actors[index].unacknowledged() < 4 {
                    self.play(index, crate::content::Items::Some);
                }
            }
            self.look()?;
            self.deliver_all()?;
            match outage {
                Outage::LogHangs => self.turn_second()?,
                Outage::DiskFull | Outage::SyncsFail => self.commit(usize::MAX)?,
            }
            if round % 8 == 0 {
                self.tick()?;
            }
            self.deliver_all()?;
        }
        (self.faults, self.is_slow) = (Faults::default(), false);
        self.disk.set_faults(self.faults);
        if waiting.is_empty() {
            return Ok(());
        }
        let what = format!("the first server stores nothing ({outage:?}), and the actors {waiting:?} stay with it");
        broken(Promise::Liveness, what)
    }

    /// Checks that after a power loss the second server holds everything that it has acknowledged, and that no game
    /// counts on both servers.
    pub(crate) fn check_second(&mut self) -> Checked {
        self.second.disk.lose_power();
        let (_, held) = restored(&self.second.disk, &self.second.settings, self.instant());
        let held: BTreeSet<TrajectoryId> = held.iter().map(Trajectory::id).collect();
        if let Some(id) = self.second.acknowledged.keys().find(|id| !held.contains(*id)) {
            return broken(Promise::Held, format!("{id} was acknowledged by the second server, which lost it"));
        }
        let honest = self.oracle.stored.iter().filter(|(id, _)| id.actor < HOSTILE);
        let first: BTreeMap<u32, TrajectoryId> = honest.map(|(id, stored)| (serial(&stored.content), *id)).collect();
        let both = self.second.acknowledged.iter().find_map(|(id, game)| Some((*id, first.get(&serial(game))?)));
        match both {
            Some((id, other)) => {
                broken(Promise::Once, format!("one game is {other} on one server and {id} on the other"))
            }
            None => Ok(()),
        }
    }
}
