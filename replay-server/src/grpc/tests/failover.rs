//! An outbox, an insert stream and the table service with a log that works, is full or hangs, in virtual time.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use proto::replay::{EpochUse, InsertWait, Origin, Outbox, v1};
use run_file::replay::Settings;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use transport::security::Caller;

use super::{Config, GAME, INSERT_CREDIT, TableKeys};
use crate::insert_stream::{InsertStream, Looked, Received};
use crate::leases::Actors;
use crate::log::committer::{LogCommand, LogEvent};
use crate::log::tests::Memory;
use crate::log::{Entry, SegmentNumber, UnixMillis};
use crate::quota::Quota;
use crate::storage::{self, Startup};
use crate::table_service::{Clock, Command, Inserted, LOG_COMMANDS_MAX, Reply, TableService};

/// Time between two steps.
const STEP: Duration = Duration::from_millis(100);

/// Trajectories in flight at a writer.
const IN_FLIGHT: usize = 4;

/// Maximum time from a failure to the last sign of a storing server: a stall of the log, and a step.
const LAST_SIGN: Duration = Duration::from_millis(1100);

/// Time from a failure until the server counts as away: one heartbeat interval after the last sign, from which the
/// away time counts.
const NOTICED: Duration = Duration::from_millis(3100);

const SECOND: Duration = Duration::from_secs(1);

/// More items than any test inserts.
const ITEMS_MAX: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    Works,
    Full,
    Hangs,
}

/// A writer that always has a next trajectory, with the server.
struct Upload {
    now: Instant,
    settings: Settings,
    outbox: Outbox,
    actors: Actors,
    stream: Option<InsertStream>,
    service: TableService,
    log: Receiver<LogCommand>,
    answer: mpsc::Sender<Inserted>,
    answers: mpsc::Receiver<Inserted>,
    sequence: u64,
}

impl Upload {
    /// Starts an upload to a server that admits `min_items` and a band of items before the first sample is drawn.
    fn new(min_items: u64) -> Self {
        let now = Instant::now();
        let mut config = Config::default();
        let main = config.replay.main.clone();
        config.replay.main = TableKeys { min_items, samples_per_insert: 2.0, error_items: 8.0, ..main };
        let settings = config.settings().unwrap();
        let (_, restored, _) = storage::restore(Memory::default(), &settings, Startup::in_tests()).unwrap();
        let (to_log, log) = sync_channel(LOG_COMMANDS_MAX);
        let service = TableService::new(restored, &settings, to_log, Clock::start());
        let origin = Origin { actor: 1, epoch: 1, game: GAME.to_owned() };
        let outbox = Outbox::new(origin, EpochUse::New, now);
        let actors = Actors::new(settings.heartbeat, INSERT_CREDIT);
        let (answer, answers) = mpsc::channel(INSERT_CREDIT as usize);
        Self { now, settings, outbox, actors, stream: None, service, log, answer, answers, sequence: 0 }
    }

    /// Runs for `time`; returns the maximum time that the server was away.
    fn run(&mut self, time: Duration, disk: Disk) -> Duration {
        let (end, mut away_max) = (self.now + time, Duration::ZERO);
        while self.now < end {
            self.step(disk);
            away_max = away_max.max(self.away_for());
        }
        away_max
    }

    fn away_for(&self) -> Duration {
        self.outbox.status().away_for(self.now).unwrap_or_default()
    }

    fn step(&mut self, disk: Disk) {
        while self.outbox.unacknowledged() < IN_FLIGHT {
            self.outbox.accept(super::message(self.sequence).try_into().unwrap(), None, self.now);
            self.sequence += 1;
        }
        let stepped = self.exchange(disk);
        if stepped.is_err() {
            self.stream = None;
            self.outbox.broke(self.now);
            (self.answer, self.answers) = mpsc::channel(INSERT_CREDIT as usize);
        }
        self.service.apply(Command::Tick, self.now);
        self.now += STEP;
    }

    /// Exchanges all messages; an error is the status that ends the stream.
    fn exchange(&mut self, disk: Disk) -> Result<(), Status> {
        if self.stream.is_none() {
            let (actors, address) = (self.actors.clone(), "10.0.0.1:4000".to_owned());
            self.stream =
                Some(InsertStream::new(&self.settings, actors, Quota::new(None), Caller::default(), address, self.now));
            let hello = self.outbox.open();
            self.request(hello)?;
        }
        while let Some(request) = self.outbox.next_request(self.now) {
            self.request(request)?;
        }
        if self.outbox.next_heartbeat().is_some_and(|due| due <= self.now) {
            let heartbeat = self.outbox.heartbeat(self.now);
            self.request(heartbeat)?;
        }
        self.turn_log(disk);
        while let Ok(inserted) = self.answers.try_recv() {
            if let Some(answer) = self.stream().inserted(inserted)? {
                self.outbox.receive(answer, self.now)?;
            }
        }
        let now = self.now;
        if self.stream().next_look().is_some_and(|due| due <= now) && self.stream().look(now)? == Looked::FindWait {
            let wait = self.ask(Command::InsertWait);
            self.reply(wait)?;
        }
        Ok(())
    }

    fn stream(&mut self) -> &mut InsertStream {
        self.stream.as_mut().unwrap()
    }

    fn request(&mut self, request: v1::InsertRequest) -> Result<(), Status> {
        let now = self.now;
        match self.stream().receive(request, now, UnixMillis(0))? {
            Received::Hello(origin) => {
                let highest = self.ask(|reply| Command::HighestEpoch(origin.actor, reply));
                let ready = self.stream().ready(highest);
                self.outbox.receive(ready, now)?;
            }
            Received::Insert { trajectory, content, inserted } => {
                let reply = self.answer.clone();
                self.service.apply(Command::Insert { trajectory, content, inserted, reply: reply.into() }, now);
            }
            Received::Nothing | Received::Refused(_) => {}
        }
        Ok(())
    }

    fn reply(&mut self, wait: InsertWait) -> Result<(), Status> {
        let now = self.now;
        if let Some(waiting) = self.stream().waiting(wait) {
            self.outbox.receive(waiting, now)?;
        }
        Ok(())
    }

    fn ask<T>(&mut self, command: impl FnOnce(Reply<T>) -> Command) -> T {
        let (reply, mut received) = oneshot::channel();
        self.service.apply(command(reply), self.now);
        received.try_recv().unwrap()
    }

    /// Replies to the entries in the log.
    fn turn_log(&mut self, disk: Disk) {
        if disk == Disk::Hangs {
            return;
        }
        let append = |command| if let LogCommand::Append(entry) = command { Some(entry) } else { None };
        let entries: Vec<Entry> = self.log.try_iter().filter_map(append).collect();
        if entries.is_empty() {
            return;
        }
        let event = match disk {
            Disk::Full => LogEvent::Failed { entries, error: "no space left".to_owned() },
            Disk::Works | Disk::Hangs => LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 },
        };
        self.service.apply(Command::Log(event), self.now);
    }
}

#[test]
fn a_server_that_cannot_store_is_away_from_then_on_and_back_with_its_first_answer() {
    for disk in [Disk::Full, Disk::Hangs] {
        let mut upload = Upload::new(ITEMS_MAX);
        upload.run(20 * SECOND, Disk::Works);
        assert_eq!(upload.away_for(), Duration::ZERO, "{disk:?}");
        upload.run(NOTICED, disk);
        let away = upload.away_for();
        assert!(away >= NOTICED - LAST_SIGN && away <= NOTICED, "{disk:?}: {away:?}");
        upload.run(60 * SECOND, disk);
        assert_eq!(upload.away_for(), away + 60 * SECOND, "{disk:?}");
        upload.run(SECOND, Disk::Works);
        assert_eq!(upload.away_for(), Duration::ZERO, "{disk:?}");
    }
}

#[test]
fn a_server_that_is_full_or_hangs_from_the_start_is_away_from_the_start() {
    for disk in [Disk::Full, Disk::Hangs] {
        let mut upload = Upload::new(ITEMS_MAX);
        upload.run(10 * SECOND, disk);
        let away = upload.away_for();
        assert!(away >= 10 * SECOND - LAST_SIGN, "{disk:?}: {away:?}");
    }
}

#[test]
fn a_server_whose_limiter_blocks_inserts_is_not_away() {
    let mut upload = Upload::new(4);
    upload.run(10 * SECOND, Disk::Works);
    let (inserted, owed) = (upload.outbox.status().stats.inserted, upload.outbox.unacknowledged());
    assert_eq!((upload.run(600 * SECOND, Disk::Works), upload.away_for()), (Duration::ZERO, Duration::ZERO));
    assert_eq!((upload.outbox.status().stats.inserted, upload.outbox.unacknowledged()), (inserted, owed));
    assert_eq!(owed, IN_FLIGHT);
}

#[test]
fn a_limiter_does_not_hide_a_log_that_hangs() {
    // The first trajectories reach the log; the limiter blocks the next.
    let mut upload = Upload::new(4);
    upload.run(20 * SECOND, Disk::Hangs);
    assert_eq!(upload.ask(Command::InsertWait), InsertWait::Log);
    assert!(upload.away_for() >= 20 * SECOND - LAST_SIGN, "{:?}", upload.away_for());
}
