//! The server process: table service, log and streams, stepped by the world.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use prost::Message as _;
use proto::replay::v1;
use rand::{Rng as _, RngExt};
use replay_server::defect::Planted;
use replay_server::insert_stream::{INSERT_CREDIT, Looked, Received};
use replay_server::leases::Actors;
use replay_server::log::committer::{Committer, LogCommand};
use replay_server::log::power_disk::{Faults, PowerDisk};
use replay_server::log::{OpenError, UnixMillis};
use replay_server::storage::{self, Startup};
use replay_server::table_service::{Clock, Command, LOG_COMMANDS_MAX, Reply, TableService};
use run_file::replay::Ack;
use run_file::replay::TableIndex;
use tokio::sync::oneshot;

use crate::archive_store::Failing;
use crate::bus::{Packet, StreamId};
use crate::checks::After;
use crate::insert_call::InsertCall;
use crate::operator::Call;
use crate::oracle::{Checked, Promise, TABLES, broken};
use crate::sample_stream::SampleStream;
use crate::world::World;

/// One run of the process.
pub(crate) struct Server {
    pub(crate) tables: TableService,
    commands: Receiver<LogCommand>,
    /// Commands that the log has not taken yet.
    pub(crate) queue: VecDeque<LogCommand>,
    pub(crate) committer: Committer<PowerDisk>,
    actors: Actors,
    pub(crate) inserts: BTreeMap<StreamId, InsertCall>,
    pub(crate) samples: BTreeMap<StreamId, SampleStream>,
    pub(crate) calls: Vec<Call>,
    /// Items of the trajectories between the tables and the disk.
    pub(crate) in_log_items: u64,
    /// Number of changed items for each priority update on the way to the log.
    pub(crate) updated: VecDeque<u64>,
    /// Sizes of the log entries, oldest first, with the stored trajectory.
    pub(crate) sizes: VecDeque<(Option<experience::TrajectoryId>, u64)>,
    /// Number of trajectories that the tables have evicted for memory.
    pub(crate) evicted: u64,
    /// Cached settings in force of each table; reading them would take a third of the run time.
    settings: [Option<BTreeMap<String, String>>; TABLES],
    pub(crate) draining: bool,
}

impl Server {
    /// Returns the commands that the table service has sent to the log since the last call.
    pub(crate) fn sent(&mut self) -> Vec<LogCommand> {
        self.commands.try_iter().collect()
    }
}

impl World {
    /// Starts the server, if it is down.
    pub(crate) fn start_if_down(&mut self) -> Checked {
        if self.server.is_some() { Ok(()) } else { self.start() }
    }

    /// Starts the server; on a failing disk it may stay down.
    pub(crate) fn start(&mut self) -> Checked {
        if !self.start_archive()? {
            return Ok(());
        }
        let mut salt_seed = [0; 32];
        self.rng.fill_bytes(&mut salt_seed);
        let (now, planted) = (UnixMillis(self.wall_ms()), Planted::new(self.defect));
        let threads = NonZeroUsize::MIN;
        let startup = Startup { now, threads, salt_seed, memory_bytes_max: None, planted };
        let failures = self.disk.failures();
        let restored = storage::restore(self.disk.clone(), &self.settings, startup);
        let (log, restored, repairs) = match restored {
            Ok(restored) => restored,
            Err(error @ (OpenError::Io { .. } | OpenError::Full { .. })) if self.disk.failures() > failures => {
                self.disk.end_process();
                self.note("start failed", format!("{error}: the server stays down"));
                return Ok(());
            }
            Err(error @ OpenError::Head { .. }) => {
                let damage = std::mem::take(&mut self.head_damage);
                if damage.is_empty() {
                    return broken(Promise::Start, format!("{error:?}"));
                }
                self.note("heads restored", "the server refuses to start: an operator restores the heads".to_owned());
                self.disk.end_process();
                for (name, offset, bits) in damage {
                    self.disk.rot(&name, offset, bits);
                }
                return self.start();
            }
            Err(error) => return broken(Promise::Start, format!("{error:?}")),
        };
        for repair in &repairs {
            self.note("repair", format!("{} at {}: {}", repair.name, repair.offset, repair.what));
        }
        let (to_log, commands) = sync_channel(LOG_COMMANDS_MAX);
        let clock = Clock::at(self.instant(), Duration::from_millis(self.wall_ms()));
        let bytes = log.bytes();
        let tables = TableService::new(restored, &self.settings, to_log, clock);
        self.server = Some(Server {
            tables,
            commands,
            queue: VecDeque::new(),
            committer: Committer::new(log, Ack::Fsync),
            actors: Actors::new(self.settings.heartbeat, INSERT_CREDIT),
            inserts: BTreeMap::new(),
            samples: BTreeMap::new(),
            calls: Vec::new(),
            in_log_items: 0,
            updated: VecDeque::new(),
            sizes: VecDeque::new(),
            evicted: 0,
            settings: Default::default(),
            draining: false,
        });
        self.note("server starts", "the server starts".to_owned());
        self.check_start(bytes)
    }

    /// Stops the process of the server.
    pub(crate) fn crash(&mut self, how: &'static str) -> Checked {
        if self.server.is_none() {
            return Ok(());
        }
        self.down(how);
        self.disk.end_process();
        self.start_soon()
    }

    pub(crate) fn lose_power(&mut self) -> Checked {
        self.down("the machine of the server loses power");
        self.disk.lose_power();
        self.start_soon()
    }

    /// Drops the process with everything in memory.
    pub(crate) fn down(&mut self, how: &'static str) {
        self.note(how, how);
        self.server = None;
        self.end_archive();
        self.bus.server_ended();
        self.oracle.crashed();
    }

    /// Starts the server again, unless that happens later; sometimes the start is interrupted.
    fn start_soon(&mut self) -> Checked {
        match self.rng.random_range(0..4) {
            0 => Ok(()),
            1 => {
                let left = self.rng.random_range(0..12);
                self.disk.set_faults(Faults { operations_left: Some(left), ..self.faults });
                let started = self.start();
                self.disk.set_faults(self.faults);
                started?;
                if self.server.is_some() { Ok(()) } else { self.start() }
            }
            _ => self.start(),
        }
    }

    /// Stops the process after it has drained.
    pub(crate) fn drain_server(&mut self) -> Checked {
        if self.server.is_none() {
            return Ok(());
        }
        self.note("server drains", "the server drains");
        self.apply(Command::Drain)?;
        if let Some(server) = &mut self.server {
            server.draining = true;
            server.inserts.values_mut().for_each(|call| call.stream.drain());
        }
        for _ in 0..100 {
            self.commit(64)?;
        }
        if let Some(server) = &mut self.server {
            server.committer.finish();
        }
        self.archive_pass(Failing::default())?;
        self.crash("the drained server ends")
    }

    /// Applies a command to the table service, with all checks.
    pub(crate) fn apply(&mut self, command: Command) -> Checked {
        let now = self.instant();
        if let Some(server) = &mut self.server {
            if let Command::Configure(table, ..) = &command {
                server.settings[table.0] = None;
            }
            server.tables.apply(command, now);
        }
        self.check_apply()
    }

    /// Applies a command that responds at once.
    pub(crate) fn ask<T>(&mut self, command: impl FnOnce(Reply<T>) -> Command) -> Option<T> {
        let (reply, mut answer) = oneshot::channel();
        let now = self.instant();
        self.server.as_mut()?.tables.apply(command(reply), now);
        answer.try_recv().ok()
    }

    /// Ends a stream, with the reason.
    pub(crate) fn end_stream(&mut self, id: StreamId, reason: String) {
        if let Some(server) = &mut self.server {
            server.inserts.remove(&id);
            server.samples.remove(&id);
        }
        self.note("stream ended by the server", format!("the server ends stream {id}: {reason}"));
        self.bus.send_to_client(id, Packet::End(reason));
        self.bus.server_left(id);
    }

    /// Handles a packet of an insert stream at the server.
    pub(crate) fn insert_message(&mut self, id: StreamId, packet: Packet) -> Checked {
        let (now, wall) = (self.instant(), UnixMillis(self.wall_ms()));
        let Some(server) = &mut self.server else { return Ok(()) };
        let new = || InsertCall::new(&self.settings, server.actors.clone(), now);
        let call = server.inserts.entry(id).or_insert_with(new);
        let Packet::Message(bytes) = packet else {
            call.stream.client_ended();
            self.end_if_done(id);
            return Ok(());
        };
        let message = v1::InsertRequest::decode(bytes.as_slice()).map_err(|error| error.to_string());
        match message.and_then(|message| call.receive(message, now, wall)) {
            Err(reason) => self.end_stream(id, reason),
            Ok(Received::Nothing) => {}
            Ok(Received::Hello(origin)) => {
                let actor = origin.actor;
                let highest = self.ask(|reply| Command::HighestEpoch(actor, reply)).unwrap_or(0);
                self.note("hello", format!("actor {actor} opens stream {id}; its highest epoch is {highest}"));
                self.respond(id, |call| Some(call.stream.ready(highest)));
            }
            Ok(Received::Refused(response)) => {
                self.note("refused", format!("a trajectory of stream {id} is refused"));
                self.respond(id, |_| Some(response));
                return self.apply(Command::CountRefused);
            }
            Ok(Received::Insert { trajectory, content, inserted }) => {
                let reply = call.reply();
                self.oracle.offer(&trajectory);
                self.note("trajectory arrives", format!("{} arrives on stream {id}", trajectory.id()));
                return self.apply(Command::Insert { trajectory, content, inserted, reply: reply.into() });
            }
        }
        Ok(())
    }

    /// Sends a response of an insert stream to the client.
    fn respond(&mut self, id: StreamId, response: impl FnOnce(&InsertCall) -> Option<v1::InsertResponse>) {
        let call = self.server.as_ref().and_then(|server| server.inserts.get(&id));
        if let Some(response) = call.and_then(response) {
            self.bus.send_to_client(id, Packet::Message(response.encode_to_vec()));
        }
    }

    /// Ends an insert stream that is done.
    pub(crate) fn end_if_done(&mut self, id: StreamId) {
        let call = self.server.as_ref().and_then(|server| server.inserts.get(&id));
        if let Some(end) = call.and_then(|call| call.stream.end()) {
            let reason =
                end.map_or_else(|status| status.message().to_owned(), |()| "everything is answered".to_owned());
            self.end_stream(id, reason);
        }
    }

    /// Makes the lease checks that are due: silent clients lose their streams, and all other clients receive the reason
    /// why inserts wait.
    fn look_at_inserts(&mut self) {
        let now = self.instant();
        let Some(server) = &self.server else { return };
        for id in server.inserts.keys().copied().collect::<Vec<_>>() {
            let call = self.server.as_mut().and_then(|server| server.inserts.get_mut(&id));
            match call.map(|call| call.look(now)) {
                Some(Err(reason)) => self.end_stream(id, reason),
                Some(Ok(Looked::FindWait)) => {
                    let Some(wait) = self.ask(Command::InsertWait) else { continue };
                    self.trace.fired("wait reported");
                    self.respond(id, |call| call.stream.waiting(wait));
                }
                Some(Ok(Looked::Nothing)) | None => {}
            }
        }
    }

    /// Handles a packet of a sample stream at the server.
    pub(crate) fn sample_message(&mut self, id: StreamId, packet: Packet) -> Checked {
        let Some(server) = &mut self.server else { return Ok(()) };
        let stream = server.samples.entry(id).or_insert_with(SampleStream::new);
        let Packet::Message(bytes) = packet else {
            self.end_stream(id, "the client has ended it".to_owned());
            return Ok(());
        };
        let message = v1::SampleRequest::decode(bytes.as_slice()).map_err(|error| error.to_string());
        let (asked, reply) = match message.and_then(|message| stream.receive(message)) {
            Ok(asked) => (asked, stream.reply()),
            Err(reason) => {
                self.end_stream(id, reason);
                return Ok(());
            }
        };
        if let Some((table, items)) = asked.check {
            let items_max = self.ask(|reply| Command::BatchItemsMax(table, reply)).unwrap_or(0);
            if items > items_max {
                self.end_stream(id, format!("{items} items are more than {items_max}"));
            }
        }
        if let Some(version) = asked.newest {
            self.apply(Command::NewestWeights(version))?;
        }
        if let Some((table, batches, items)) = asked.draw {
            for _ in 0..batches {
                self.apply(Command::Sample { table, items, reply: reply.clone() })?;
            }
        }
        Ok(())
    }

    /// Does the periodic work of the server.
    pub(crate) fn tick(&mut self) -> Checked {
        if self.server.is_none() {
            return Ok(());
        }
        self.look_at_inserts();
        self.note("tick", "the server ticks");
        self.apply(Command::Tick)?;
        self.check_tables(After::Expiry)
    }

    /// Reads the settings in force of a table.
    pub(crate) fn settings_in_force(&mut self, table: TableIndex) -> Option<BTreeMap<String, String>> {
        if let Some(settings) = &self.server.as_ref()?.settings[table.0] {
            return Some(settings.clone());
        }
        let settings = self.ask(|reply| Command::Configure(table, BTreeMap::new(), reply))?.ok()?;
        self.server.as_mut()?.settings[table.0] = Some(settings.clone());
        Some(settings)
    }

    /// Returns the value of a numeric setting in force.
    pub(crate) fn setting(&mut self, table: TableIndex, key: &str) -> f64 {
        self.settings_in_force(table);
        let settings = self.server.as_ref().and_then(|server| server.settings[table.0].as_ref());
        settings.and_then(|settings| settings.get(key)).and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }
}
