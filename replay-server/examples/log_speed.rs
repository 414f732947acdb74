//! Measures how fast the log takes trajectories and gives them back: 16 writers of credit 64, each compressing its own,
//! as connections do.
//!
//! `cargo run --release --package replay-server --example log_speed -- TRAJECTORIES WAIT_MS ACK DIRECTORY`
//!
//! It begins with what the levels of zstd cost.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement by hand")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay_server::log::committer::{self, Ack, CommitSettings, LogCommand, LogEvent};
use replay_server::log::{Disk, Entry, UnixMillis};
use replay_server::{Config, storage};
use weights::WeightsVersion;

const WRITERS: u64 = 16;
const CREDIT: usize = 64;
const STEPS: u64 = 30;
const DIFFERENT: u64 = 200;

/// A game of 30 steps with search policies of 400 simulations over seven actions.
fn trajectory(actor: u64, sequence: u64) -> Trajectory {
    let mut rng = ChaCha8Rng::seed_from_u64(actor << 32 | sequence);
    let steps = (0..STEPS).map(|ply| {
        let visits: Vec<f32> = (0..7).map(|_| rng.random_range(1..200) as f32).collect();
        let total: f32 = visits.iter().sum();
        let entry =
            |(action, visits): (u16, f32)| ActionProbability { action: Action(action), probability: visits / total };
        let kind =
            StepKind::Full { policy: (0..).zip(visits).map(entry).collect(), value: rng.random_range(-1.0..1.0) };
        let (action, weights_version) = (Action(rng.random_range(0..7)), WeightsVersion(1 + ply / 20));
        Step { action, reward: 0.0, kind, weights_version }
    });
    let id = TrajectoryId { actor, epoch: 1, sequence };
    Trajectory::of(id, "connect_four", &steps.collect::<Vec<_>>(), Outcome::Draw).unwrap()
}

fn write(actor: u64, count: u64, unanswered: &AtomicUsize, sender: &SyncSender<LogCommand>) {
    let own: Vec<Trajectory> = (0..DIFFERENT).map(|sequence| trajectory(actor, sequence)).collect();
    for sequence in 0..count {
        while unanswered.load(Ordering::Acquire) >= CREDIT {
            std::thread::park();
        }
        unanswered.fetch_add(1, Ordering::AcqRel);
        let id = TrajectoryId { actor, epoch: 1, sequence };
        let trajectory = own[(sequence % DIFFERENT) as usize].with_id(id);
        let content = storage::encode(&trajectory, UnixMillis(0)).unwrap();
        sender.send(LogCommand::Append(Entry::Trajectory { id, items: STEPS as u32, content })).unwrap();
    }
}

fn compare_levels() {
    let contents: Vec<Vec<u8>> = (0..1000).map(|sequence| trajectory(0, sequence).columns().to_vec()).collect();
    let raw: usize = contents.iter().map(Vec::len).sum();
    for level in [1, 3] {
        let mut compressor = zstd::bulk::Compressor::new(level).unwrap();
        let start = Instant::now();
        let bytes: usize = contents.iter().map(|content| compressor.compress(content).unwrap().len()).sum();
        let micros = start.elapsed().as_micros() as usize / contents.len();
        println!("level {level}: {} bytes of {} in {micros} us", bytes / contents.len(), raw / contents.len());
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let total: u64 = arguments.next().map_or(100_000, |n| n.parse().unwrap());
    let wait = Duration::from_millis(arguments.next().map_or(50, |n| n.parse().unwrap()));
    let ack = match arguments.next().as_deref() {
        Some("memory") => Ack::Memory,
        Some("flushed") => Ack::Flushed,
        _ => Ack::Fsync,
    };
    let temporary = tempfile::tempdir().unwrap();
    let directory = arguments.next().map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(&directory).unwrap();
    let mut config = Config::default();
    config.replay.capacity_items = 100_000_000;
    let settings = config.settings().unwrap();

    let open = Instant::now();
    let (log, restored, _) = storage::restore(Disk::new(&directory), &settings, [0; 32]).unwrap();
    println!(
        "read back {} trajectories, {} items, {} MB in {:.2} s",
        restored.tables[0].table().trajectories(),
        restored.tables[0].table().items(),
        restored.log_bytes >> 20,
        open.elapsed().as_secs_f64()
    );
    drop(restored);
    compare_levels();

    let (sender, receiver) = sync_channel(576);
    let unanswered: Vec<AtomicUsize> = (0..WRITERS).map(|_| AtomicUsize::new(0)).collect();
    let start = Instant::now();
    let mut commits = 0_u64;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|actor| {
                let (sender, unanswered) = (sender.clone(), &unanswered[actor as usize]);
                scope.spawn(move || write(actor, total / WRITERS, unanswered, &sender)).thread().clone()
            })
            .collect();
        drop(sender);
        committer::run(log, &receiver, CommitSettings { ack, wait }, |event| {
            let LogEvent::Committed { entries, .. } = event else { panic!("{event:?}") };
            commits += 1;
            for entry in &entries {
                let Entry::Trajectory { id, .. } = entry else { continue };
                unanswered[id.actor as usize].fetch_sub(1, Ordering::AcqRel);
            }
            writers.iter().for_each(std::thread::Thread::unpark);
        });
    });
    let took = start.elapsed().as_secs_f64();
    println!("{:.0} trajectories/s, {commits} commits in {took:.2} s", total as f64 / took);
}
