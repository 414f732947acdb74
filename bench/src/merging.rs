//! `zerofleet bench merging`: self-play on a simulated accelerator, whose requests an engine merges, as a share of the
//! throughput of the device at a large batch.
//!
//! The device takes a fixed time for each batch and a time for each position, one batch at a time and in order, and
//! sleeps meanwhile, so that a machine without an accelerator shows what merging gains. Its answers are prepared random
//! numbers. Beside the engine the report has the same self-play with a batch for each thread, as without merging, and
//! with new weights at an interval. Start with [`run`].

mod device;

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ::selfplay::{Episodes, Round, Settings};
use anyhow::ensure;
use game::Game;
use games::{GameKind, with_game};
use inference::{BATCH_SIZES, DEPTH_MAX, Evaluator};

use crate::output::Destination;
use crate::report::{Report, Unit, Value, percent, value_of};
use crate::{Turns, threads, usage};
use device::{Cost, Merged, Separate};

/// Options of `zerofleet bench merging`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The game.
    #[arg(long, default_value = "connect_four")]
    pub game: GameKind,
    /// Self-play threads.
    #[arg(long, default_value_t = 16)]
    pub threads: usize,
    /// Games that advance together in each thread.
    #[arg(long, default_value_t = 384)]
    pub games: usize,
    /// Simulations of every move.
    #[arg(long, default_value_t = 32)]
    pub simulations: u32,
    /// The time of the device for a batch, besides that for its positions, in microseconds.
    #[arg(long, default_value_t = 60)]
    pub batch_us: u64,
    /// The time of the device for a position, in nanoseconds. The default is that of a network of 20 blocks and 256
    /// channels on an H100, which evaluates about 230,000 positions per second in batches of 2,048.
    #[arg(long, default_value_t = 4316)]
    pub position_ns: u64,
    /// The batch whose throughput is the bound.
    #[arg(long, default_value_t = 2048)]
    pub batch: usize,
    /// Batches that may be in flight.
    #[arg(long, default_value_t = 2)]
    pub in_flight: usize,
    /// The interval of new weights, in seconds.
    #[arg(long, default_value_t = 10.0)]
    pub swap_seconds: f64,
    /// The time that a thread needs to prepare new weights, in milliseconds.
    #[arg(long, default_value_t = 200)]
    pub prepare_ms: u64,
    /// The time that the device thread needs to copy new weights to the device, in milliseconds.
    #[arg(long, default_value_t = 15)]
    pub upload_ms: u64,
    /// The turns of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, then prints and writes the report.
///
/// # Errors
/// Invalid options, an engine that fails, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("merging", out, |_| measure(args))
}

/// Runs the measurements and returns the report.
///
/// # Errors
/// The errors of [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    args.check()?;
    with_game!(args.game, |game| measure_game(&game, args))
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.threads > 0 && self.games > 0, "--threads and --games must be at least 1");
        ensure!(self.simulations > 0, "--simulations must be at least 1");
        ensure!(BATCH_SIZES.contains(&self.batch), "--batch must be one of {BATCH_SIZES:?}");
        ensure!((1..=DEPTH_MAX).contains(&self.in_flight), "--in-flight must be from 1 to {DEPTH_MAX}");
        ensure!(self.swap_seconds > 0.0, "--swap-seconds must be greater than 0");
        Duration::try_from_secs_f64(self.swap_seconds)?;
        self.turns.time().map(drop)
    }

    fn cost(&self) -> Cost {
        let (batch, position) = (Duration::from_micros(self.batch_us), Duration::from_nanos(self.position_ns));
        Cost { batch, position }
    }

    fn settings(&self) -> Settings {
        Settings {
            games: self.games,
            full_simulations: self.simulations,
            full_search_probability: 1.0,
            ..Settings::default()
        }
    }
}

/// How the threads use the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Separate,
    Merged,
    MergedWithSwaps,
}

impl Use {
    const ALL: [Self; 3] = [Self::Separate, Self::Merged, Self::MergedWithSwaps];

    fn name(self) -> &'static str {
        match self {
            Self::Separate => SEPARATE,
            Self::Merged => MERGED,
            Self::MergedWithSwaps => SWAPS,
        }
    }
}

fn measure_game<G: Game>(game: &G, args: &Args) -> anyhow::Result<Report> {
    let mut turns = [const { Vec::new() }; Use::ALL.len()];
    for repeat in 0..args.turns.repeats as u64 {
        for (values, how) in turns.iter_mut().zip(Use::ALL) {
            values.push(play(game, args, how, args.turns.seed.wrapping_add(repeat << 32))?);
        }
    }
    let mut report = Report::new("merging", "Self-play on a simulated accelerator");
    report.set("game", &game.spec().name);
    report.set("threads", args.threads);
    report.set("games per thread", args.games);
    report.set("simulations", args.simulations);
    report.set("time of a batch, us", args.batch_us);
    report.set("time of a position, ns", args.position_ns);
    report.set("batches in flight", args.in_flight);
    report.note_turns(args.turns);
    report.note(format!(
        "new weights every {} s: prepared in {} ms by one thread, copied in {} ms by the device thread",
        args.swap_seconds, args.prepare_ms, args.upload_ms
    ));
    let bound = args.batch as f64 / args.cost().of(args.batch).as_secs_f64();
    report.at(DEVICE, &[("batch", &args.batch)]).value(EVALUATIONS, Unit::PerSecond, bound);
    let of = |metric| move |values: &Vec<Value>| value_of(values, metric).unwrap_or(f64::NAN);
    let mut speeds = Vec::new();
    for (values, how) in turns.into_iter().zip(Use::ALL) {
        let values = args.turns.turn.of(values, of(EVALUATIONS)).unwrap_or_default();
        let speed = of(EVALUATIONS)(&values);
        report.at(SELF_PLAY, &[("requests", &how.name())]).values(&values).value(SHARE, Unit::Share, speed / bound);
        speeds.push(speed);
    }
    report.finding(format!(
        "**Merged requests reach {} of the device's throughput at {}, separate ones {}; new weights every {} s cost {}.**",
        percent(Some(speeds[1] / bound)),
        args.batch,
        percent(Some(speeds[0] / bound)),
        args.swap_seconds,
        percent(Some(1.0 - speeds[2] / speeds[1])),
    ));
    report.plot(SELF_PLAY, EVALUATIONS, None, None);
    Ok(report)
}

/// Plays on a device of its own.
fn play<G: Game>(game: &G, args: &Args, how: Use, seed: u64) -> anyhow::Result<Vec<Value>> {
    let spec = game.spec();
    let shared = match how {
        Use::Separate => Shared::Separate(Arc::new(Separate::new(spec, args.cost(), args.in_flight))),
        Use::Merged | Use::MergedWithSwaps => Shared::Merged(Merged::start(spec, args)?),
    };
    let (version, time) = (AtomicU64::new(1), args.turns.time()?);
    let player = |thread| {
        let episodes = Episodes::new(game.clone(), args.settings(), 1.0, seed.wrapping_add(thread));
        Ok(Player { evaluator: shared.evaluator(1)?, version: 1, episodes, shared: &shared, newest: &version })
    };
    let mut players = (0..args.threads as u64).map(player).collect::<anyhow::Result<Vec<_>>>()?;
    let swap = Duration::from_secs_f64(args.swap_seconds);
    // A whole number of intervals, so that each has new weights once.
    let intervals = if how == Use::MergedWithSwaps { time.div_duration_f64(swap).ceil().max(1.0) } else { 1.0 };
    let time = if how == Use::MergedWithSwaps { swap.mul_f64(intervals) } else { time };
    let before = Mutex::new(None);
    let over = Over::default();
    let played = std::thread::scope(|scope| {
        if how == Use::MergedWithSwaps {
            // The warm-up is shorter than an interval, so the first change falls into the measurement.
            scope.spawn(|| {
                while !over.wait(swap) {
                    version.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let warm_up = |player: &mut Player<'_, G>| player.play(WARM_UP).map(drop);
        let measured = |player: &mut Player<'_, G>| {
            before.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert_with(cpu_seconds);
            player.play(time)
        };
        let played = threads::together(&[], &mut players, warm_up, measured);
        over.end();
        played
    })?;
    let cpu = before.into_inner().ok().flatten().zip(Some(cpu_seconds()));
    let seconds = played.iter().map(|played| played.seconds).fold(0.0, f64::max);
    let evaluations = played.iter().map(|played| played.round.evaluated as f64 / played.seconds).sum::<f64>();
    let mut values = vec![
        (EVALUATIONS, Unit::PerSecond, Some(evaluations)),
        ("cores used", Unit::Cores, cpu.and_then(|(before, after)| Some((after? - before?) / seconds))),
    ];
    if let Shared::Merged(merged) = &shared {
        let counts = merged.counts();
        let batches = counts.batches.max(1) as f64;
        values.push(("mean batch", Unit::Count, Some(counts.positions as f64 / batches)));
        values.push(("fill", Unit::Share, Some(counts.positions as f64 / counts.padded_positions.max(1) as f64)));
        let in_flight = counts.in_flight.div_duration_f64(counts.busy.max(Duration::from_nanos(1)));
        values.push(("mean batches in flight", Unit::Count, Some(in_flight)));
    }
    Ok(values)
}

/// The warm-up of every measurement: all games begin with the same position and must spread out.
const WARM_UP: Duration = Duration::from_secs(1);

fn cpu_seconds() -> Option<f64> {
    usage::cpu_seconds(Some(std::process::id()))
}

/// A flag that a thread can wait for.
#[derive(Default)]
struct Over {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Over {
    fn end(&self) {
        *self.is_over.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for the end, at most for `time`; returns whether it has come.
    fn wait(&self, time: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_over, time, |is_over| !*is_over);
        !waited.unwrap_or_else(std::sync::PoisonError::into_inner).1.timed_out()
    }
}

/// The device, as all threads share it.
enum Shared {
    Separate(Arc<Separate>),
    Merged(Merged),
}

impl Shared {
    /// Builds the evaluator of a version, and waits for another thread that does.
    fn evaluator(&self, version: u64) -> anyhow::Result<Box<dyn Evaluator>> {
        match self {
            Self::Separate(separate) => Ok(Separate::evaluator(separate)),
            Self::Merged(merged) => merged.evaluator(version),
        }
    }

    /// Builds the evaluator of a version; `None` while another thread prepares it.
    fn try_evaluator(&self, version: u64) -> anyhow::Result<Option<Box<dyn Evaluator>>> {
        match self {
            Self::Separate(separate) => Ok(Some(Separate::evaluator(separate))),
            Self::Merged(merged) => merged.try_evaluator(version),
        }
    }
}

/// The games of one thread.
struct Player<'a, G: Game> {
    evaluator: Box<dyn Evaluator>,
    version: u64,
    episodes: Episodes<G>,
    shared: &'a Shared,
    newest: &'a AtomicU64,
}

/// The results of self-play in one thread.
struct Played {
    round: Round,
    seconds: f64,
}

impl<G: Game> Player<'_, G> {
    /// Plays for `time`, as a thread of an actor does.
    fn play(&mut self, time: Duration) -> anyhow::Result<Played> {
        let (start, mut round) = (Instant::now(), Round::default());
        while start.elapsed() < time {
            let newest = self.newest.load(Ordering::Relaxed);
            if newest != self.version
                && let Some(evaluator) = self.shared.try_evaluator(newest)?
            {
                round += self.episodes.settle(self.evaluator.as_mut(), None)?;
                (self.evaluator, self.version) = (evaluator, newest);
            }
            round += self.episodes.advance(self.evaluator.as_mut(), None)?;
            self.episodes.drain_finished().for_each(drop);
        }
        Ok(Played { round, seconds: start.elapsed().as_secs_f64() })
    }
}

const DEVICE: &str = "the device alone";
const SELF_PLAY: &str = "self-play";
const SEPARATE: &str = "separate, a batch for each thread";
const MERGED: &str = "merged";
const SWAPS: &str = "merged, with new weights at intervals";
const EVALUATIONS: &str = "evaluations/s";
const SHARE: &str = "share of the device alone";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::args;

    const TINY: &str = "--game tic_tac_toe --threads 3 --games 16 --simulations 4 --batch 16 --batch-us 100 \
                        --position-ns 10 --seconds 0.2 --repeats 1 --swap-seconds 0.1 --prepare-ms 1 --upload-ms 1";

    #[test]
    fn a_tiny_run_measures_separate_and_merged_requests_and_swaps() {
        let report = measure(&args(TINY)).unwrap();
        for requests in [SEPARATE, MERGED, SWAPS] {
            let speed = report.value(SELF_PLAY, &[("requests", requests)], EVALUATIONS);
            assert!(speed > Some(0.0), "{report:?}");
        }
        assert!(report.value(SELF_PLAY, &[("requests", MERGED)], "fill").is_some_and(|fill| fill > 0.0 && fill <= 1.0));
        assert_eq!(report.findings.len(), 1);
    }

    #[test]
    fn options_out_of_range_are_named() {
        let error = |line: &str| measure(&args(&format!("{TINY} {line}"))).unwrap_err().to_string();
        assert!(error("--in-flight 9").contains("--in-flight"));
        let error = measure(&Args { batch: 100, ..args(TINY) }).unwrap_err();
        assert!(error.to_string().contains("--batch"), "{error}");
    }
}
