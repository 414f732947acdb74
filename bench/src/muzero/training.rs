//! A whole training loop in one process: environments, searches in a learned model, replay and updates, each either
//! optimised or not.
//!
//! One iteration is a number of steps of environments and one update. Searching threads and the learner are bound to
//! each other: the update of an iteration begins when its steps are played, and the threads play at most one iteration
//! ahead of it, or none where the learner works between them. Rules, searches, targets, replay and updates are those of
//! the processes of a run; nothing crosses a network. Start with [`measure`].

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use clap::ValueEnum as _;
use experience::TrajectoryId;
use game::Game;
use games::{GameKind, with_game};
use inference::LatentModel;
use network_torch::{Network, Purpose, Trainer, choose_device, choose_training_precision, device_name};
use proto::weights::Published;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use selfplay::LatentEpisodes;
use training::TrainerSettings;
use weights::WeightsVersion;

use super::engine::{Calls, Engine, EngineArgs, Latents, first_weights, published};
use super::replay::{Form, Replay};
use super::traffic::Traffic;
use super::workload::{DISCOUNT, TrainingPrecision, Workload};
use crate::machine;
use crate::output::Destination;
use crate::report::{Report, Unit};

/// The order of self-play and updates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Updates {
    /// The update of an iteration is computed while the next one is played.
    #[default]
    Beside,
    /// Nothing is played during an update.
    Between,
}

/// The optimisations of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct Variant {
    /// Environments that advance together, over all threads.
    #[arg(long, default_value_t = 256)]
    pub environments: usize,
    /// The engine of evaluations.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Evaluations of one call of the engine.
    #[arg(long, value_enum, default_value_t)]
    pub calls: Calls,
    /// The place of latent states.
    #[arg(long, value_enum, default_value_t)]
    pub latents: Latents,
    /// The form of the replay.
    #[arg(long, value_enum, default_value_t)]
    pub replay: Form,
    /// The order of self-play and updates.
    #[arg(long, value_enum, default_value_t)]
    pub updates: Updates,
    /// The precision of updates.
    #[command(flatten)]
    pub precision: TrainingPrecision,
}

impl Variant {
    /// The options as words, for another process.
    pub(super) fn words(&self) -> Vec<String> {
        let Self { environments, engine, calls, latents, replay, updates, precision } = self;
        let EngineArgs { device, precision: engine_precision, kernel } = engine;
        let name =
            |value: Option<clap::builder::PossibleValue>| value.expect("no value is hidden").get_name().to_owned();
        let text = format!(
            "--environments {environments} --device {device} --precision {engine_precision} --kernel {kernel} --calls {} \
             --latents {} --replay {} --updates {} --training-precision {}",
            name(calls.to_possible_value()),
            name(latents.to_possible_value()),
            name(replay.to_possible_value()),
            name(updates.to_possible_value()),
            precision.training_precision
        );
        text.split_whitespace().map(str::to_owned).collect()
    }
}

/// Options of `zerofleet bench muzero-loop`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The game.
    #[arg(long, default_value = "cartpole-v1")]
    pub game: GameKind,
    /// The work.
    #[command(flatten)]
    pub workload: Workload,
    /// The optimisations.
    #[command(flatten)]
    pub variant: Variant,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures one loop, then prints and writes the report.
///
/// # Errors
/// Invalid options, a device that cannot be used, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    network_torch::keep_memory();
    args.destination.run("muzero-loop", out, |_| measure(args))
}

/// Measures one loop and returns its report.
///
/// # Errors
/// The errors of [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    args.workload.check()?;
    ensure!(args.variant.environments > 0, "--environments must be at least 1");
    with_game!(args.game, |game| Loop::new(&game, args)?.measure())
}

pub(super) const LOOP: &str = "loop";
pub(super) const ITERATIONS: &str = "iterations/s";
pub(super) const STEPS: &str = "steps/s";
pub(super) const SIMULATIONS: &str = "simulations/s";
pub(super) const REPLAY_BYTES: &str = "replay per step";
pub(super) const PEAK_MEMORY: &str = "peak memory of the process";
pub(super) const LATENT_BYTES: &str = "latents copied per simulation";
pub(super) const MEASURED: &str = "iterations measured";

/// Iterations before the measurement, in which buffers grow and libtorch sets up its kernels.
const WARM_UP_ITERATIONS: u64 = 1;
/// The fewest iterations of a measurement.
const ITERATIONS_MIN: u64 = 2;
/// Environments and simulations by which the replay is filled.
const FILLING_ENVIRONMENTS: usize = 256;
const FILLING_SIMULATIONS: u32 = 2;
/// The actor of the episodes by which the replay is filled; the others are those of their threads.
const FILLING_ACTOR: u64 = u64::MAX;

/// A loop before its measurement.
struct Loop<'a, G: Game> {
    game: &'a G,
    args: &'a Args,
    engine: Engine,
    trainer: Trainer,
    updates_by: String,
    shared: Shared,
}

/// What searching threads and learner share.
struct Shared {
    replay: Mutex<Replay>,
    pace: Mutex<Pace>,
    changed: Condvar,
    newest: Mutex<Arc<Published>>,
    /// The version of `newest`.
    version: AtomicU64,
    traffic: Arc<Traffic>,
}

/// How far the loop is.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    steps: u64,
    simulations: u64,
    updates: u64,
    /// The loop ends: it was measured, or a thread failed.
    ends: bool,
}

impl Shared {
    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replay(&self) -> MutexGuard<'_, Replay> {
        self.replay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self) -> Arc<Published> {
        Arc::clone(&self.newest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the pace and wakes all threads.
    fn advance(&self, change: impl FnOnce(&mut Pace)) {
        change(&mut self.pace());
        self.changed.notify_all();
    }

    /// Waits until `may` holds, and returns the pace; `None` if the loop ends.
    fn wait(&self, may: impl Fn(&Pace) -> bool) -> Option<Pace> {
        let waits = |pace: &mut Pace| !pace.ends && !may(pace);
        let pace = self.changed.wait_while(self.pace(), waits).unwrap_or_else(PoisonError::into_inner);
        (!pace.ends).then_some(*pace)
    }
}

/// Ends the loop when a thread of it ends, also by a panic, so that no other thread waits for it.
struct EndsLoop<'a>(&'a Shared);

impl Drop for EndsLoop<'_> {
    fn drop(&mut self) {
        self.0.advance(|pace| pace.ends = true);
    }
}

impl<'a, G: Game> Loop<'a, G> {
    fn new(game: &'a G, args: &'a Args) -> anyhow::Result<Self> {
        let Args { workload, variant, .. } = args;
        let architecture = workload.architecture(game.spec());
        let device = choose_device(workload.training_device, Purpose::Training)?.device;
        let preference = variant.precision.training_precision;
        let precision = choose_training_precision(preference, device, &mut Instant::now)?.precision;
        let settings = TrainerSettings { precision, ..TrainerSettings::muzero() };
        let trainer = Trainer::new(Network::new(&architecture, device, workload.seed)?, settings)?;
        let newest = Arc::new(first_weights(architecture, workload.seed)?);
        let shared = Shared {
            replay: Mutex::new(Replay::new(variant.replay, workload.positions)?),
            pace: Mutex::default(),
            changed: Condvar::new(),
            version: AtomicU64::new(newest.manifest.version.0),
            newest: Mutex::new(newest),
            traffic: Arc::default(),
        };
        let engine = Engine::new(variant.engine)?;
        let updates_by = format!("libtorch {} {precision}", device_name(device));
        Ok(Self { game, args, engine, trainer, updates_by, shared })
    }

    fn measure(mut self) -> anyhow::Result<Report> {
        let Args { workload, variant, .. } = self.args;
        network_torch::set_threads(machine::threads(workload.libtorch_threads));
        self.fill()?;
        let engine = self.engine.name(&self.shared.newest())?;
        let (shared, game, args) = (&self.shared, self.game, self.args);
        let players: anyhow::Result<Vec<_>> = (0..)
            .zip(workload.shares(variant.environments))
            .map(|(thread, environments)| Player::new(game, args, &self.engine, shared, thread, environments))
            .collect();
        let players = players?;
        let trainer = &mut self.trainer;
        let measured = std::thread::scope(|scope| {
            let threads: Vec<_> = players
                .into_iter()
                .map(|player| {
                    std::thread::Builder::new().name("self-play".to_owned()).spawn_scoped(scope, || player.play())
                })
                .collect();
            let measured = learn(game, args, trainer, shared);
            for thread in threads {
                let thread = thread.context("start a searching thread")?;
                thread.join().map_err(|_| anyhow!("a searching thread panicked"))??;
            }
            measured
        })?;
        Ok(self.report(&engine, &measured))
    }

    /// Fills the replay by shallow searches.
    fn fill(&self) -> anyhow::Result<()> {
        let Args { workload, .. } = self.args;
        let mut settings = workload.settings(FILLING_ENVIRONMENTS.min(workload.positions));
        settings.full_simulations = FILLING_SIMULATIONS;
        let mut model =
            self.engine.build(&self.shared.newest(), Latents::Pool, Calls::Batched, &self.shared.traffic)?;
        let mut episodes = LatentEpisodes::new(self.game.clone(), settings, DISCOUNT, workload.seed);
        let mut replay = self.shared.replay();
        let (mut sequence, mut positions) = (0, 0);
        while positions < workload.positions {
            episodes.advance(model.as_mut())?;
            for episode in episodes.drain_finished() {
                let id = TrajectoryId { actor: FILLING_ACTOR, epoch: 0, sequence };
                replay.insert(self.game, workload.unroll(), id, &episode)?;
                (sequence, positions) = (sequence + 1, positions + episode.steps.len());
            }
        }
        Ok(())
    }

    fn report(&self, engine: &str, measured: &Measured) -> Report {
        let Args { game, workload, .. } = self.args;
        let replay = self.shared.replay().size();
        let per_second = |count: f64| count / measured.seconds;
        let mut report = Report::new("muzero-loop", "A training loop of MuZero");
        report.set("game", game);
        report.note(format!("{ENGINE}{engine}"));
        report.note(format!("{UPDATES}{}", self.updates_by));
        report
            .at(LOOP, &[])
            .value(ITERATIONS, Unit::PerSecond, per_second(measured.iterations(workload.steps)))
            .value(STEPS, Unit::PerSecond, per_second(measured.steps as f64))
            .value(SIMULATIONS, Unit::PerSecond, per_second(measured.simulations as f64))
            .value(MEASURED, Unit::Count, measured.iterations(workload.steps))
            .value(REPLAY_BYTES, Unit::Bytes, replay.bytes as f64 / replay.positions as f64)
            .value(LATENT_BYTES, Unit::Bytes, measured.latent_bytes as f64 / measured.simulations as f64)
            .value(PEAK_MEMORY, Unit::Bytes, machine::peak_memory_bytes().map(|bytes| bytes as f64));
        report
    }
}

/// The prefixes of the notes that name the engines.
pub(super) const ENGINE: &str = "evaluations: ";
pub(super) const UPDATES: &str = "updates: ";

/// The counts of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    seconds: f64,
    steps: u64,
    simulations: u64,
    updates: u64,
    latent_bytes: u64,
}

impl Measured {
    /// Complete iterations: the steps of one may have been played before its time, so the scarcer of steps and updates
    /// counts.
    fn iterations(&self, steps: usize) -> f64 {
        (self.steps as f64 / steps as f64).min(self.updates as f64)
    }
}

/// Takes an update for each iteration until the time is over, and returns the counts after the warm-up.
fn learn<G: Game>(game: &G, args: &Args, trainer: &mut Trainer, shared: &Shared) -> anyhow::Result<Measured> {
    let _ends_loop = EndsLoop(shared);
    let Workload { steps, batch, publish_iterations, seed, loop_seconds, .. } = args.workload;
    let (unroll, time) = (args.workload.unroll(), Duration::try_from_secs_f64(loop_seconds)?);
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 1);
    let mut begun = None;
    loop {
        let pace = shared
            .wait(|pace| pace.steps >= (pace.updates + 1) * steps as u64)
            .context("a searching thread ended before the measurement")?;
        let drawn = shared.replay().draw(game.spec(), unroll, batch, &mut rng)?;
        trainer.step(&drawn.examples(game, unroll, &mut rng)?).context("take an update")?;
        let updates = pace.updates + 1;
        if updates.is_multiple_of(publish_iterations) {
            publish(trainer, shared)?;
        }
        shared.advance(|pace| pace.updates = updates);
        if updates == WARM_UP_ITERATIONS {
            begun = Some((Instant::now(), *shared.pace(), shared.traffic.bytes()));
        }
        let Some((start, before, bytes)) = begun else { continue };
        let now = *shared.pace();
        let measured = Measured {
            seconds: start.elapsed().as_secs_f64(),
            steps: now.steps - before.steps,
            simulations: now.simulations - before.simulations,
            updates: now.updates - before.updates,
            latent_bytes: shared.traffic.bytes() - bytes,
        };
        if measured.iterations(steps) >= ITERATIONS_MIN as f64 && start.elapsed() >= time {
            return Ok(measured);
        }
    }
}

/// Gives the newest weights to the searching threads.
fn publish(trainer: &Trainer, shared: &Shared) -> anyhow::Result<()> {
    let bytes = trainer.published().context("read the weights")?;
    let version = WeightsVersion(shared.version.load(Ordering::Acquire) + 1);
    let newest = published(trainer.network().architecture().clone(), bytes, version);
    *shared.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(newest);
    shared.version.store(version.0, Ordering::Release);
    Ok(())
}

/// A thread that searches.
struct Player<'a, G: Game> {
    game: &'a G,
    args: &'a Args,
    engine: &'a Engine,
    shared: &'a Shared,
    episodes: LatentEpisodes,
    model: Box<dyn LatentModel>,
    /// The id of the next trajectory.
    id: TrajectoryId,
}

impl<'a, G: Game> Player<'a, G> {
    fn new(
        game: &'a G,
        args: &'a Args,
        engine: &'a Engine,
        shared: &'a Shared,
        thread: u64,
        environments: usize,
    ) -> anyhow::Result<Self> {
        let Args { workload, variant, .. } = args;
        let seed = workload.seed.wrapping_add(1 + thread);
        let episodes = LatentEpisodes::new(game.clone(), workload.settings(environments), DISCOUNT, seed);
        let model = engine.build(&shared.newest(), variant.latents, variant.calls, &shared.traffic)?;
        let id = TrajectoryId { actor: thread, epoch: 0, sequence: 0 };
        Ok(Self { game, args, engine, shared, episodes, model, id })
    }

    /// Plays until the loop ends.
    fn play(mut self) -> anyhow::Result<()> {
        let _ends_loop = EndsLoop(self.shared);
        let Args { workload, variant, .. } = self.args;
        let ahead = match variant.updates {
            Updates::Beside => 2,
            Updates::Between => 1,
        };
        let may = |pace: &Pace| pace.steps < (pace.updates + ahead) * workload.steps as u64;
        while self.shared.wait(may).is_some() {
            let round = if self.shared.version.load(Ordering::Acquire) > self.model.attributes().weights_version {
                let round = self.episodes.settle(self.model.as_mut())?;
                let newest = self.shared.newest();
                self.model = self.engine.build(&newest, variant.latents, variant.calls, &self.shared.traffic)?;
                round
            } else {
                self.episodes.advance(self.model.as_mut())?
            };
            for episode in self.episodes.drain_finished() {
                self.shared.replay().insert(self.game, workload.unroll(), self.id, &episode)?;
                self.id.sequence += 1;
            }
            if round.simulations > 0 || round.moves > 0 {
                let change = |pace: &mut Pace| {
                    pace.steps += round.moves as u64;
                    pace.simulations += round.simulations as u64;
                };
                match round.moves {
                    0 => change(&mut self.shared.pace()),
                    _ => self.shared.advance(change),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::muzero::ablation::variants;
    use crate::tests::{args, parsed};

    #[test]
    fn the_options_of_a_loop_are_options_of_its_command() {
        let line = "--game breakout --blocks 3 --simulations 7 --leaves 2 --loop-seconds 0.5 --threads 3 --seed 9";
        let Args { game, workload, variant, .. } = args::<Args>(line);
        for (name, variant) in variants(variant) {
            let words = [workload.words(&game), variant.words()].concat();
            let read: Args = parsed(words.iter().map(String::as_str)).unwrap();
            assert_eq!((&read.workload, read.variant, &read.game), (&workload, variant, &game), "{name}");
            let program = ["zerofleet-bench", "muzero-loop"].map(str::to_owned);
            crate::Bench::try_parse_from(program.into_iter().chain(words)).unwrap();
        }
    }

    #[test]
    fn each_loop_goes_without_one_optimisation_and_the_last_without_all() {
        let full = args::<Args>("").variant;
        let differences = |variant: Variant| {
            let [full, other] = [full.words(), variant.words()];
            let changed = full.chunks(2).zip(other.chunks(2)).filter(|(full, other)| full != other);
            changed.map(|(option, _)| option[0].clone()).collect::<Vec<_>>()
        };
        let all: Vec<_> = variants(full).into_iter().map(|(_, variant)| differences(variant)).collect();
        let [own, without @ .., naive] = &all[..] else { panic!("{all:?}") };
        assert!(own.is_empty());
        let mut removed = without.concat();
        removed.sort();
        let mut naive = naive.clone();
        naive.sort();
        assert_eq!(naive, removed, "no option is changed twice");
    }

    #[test]
    fn an_iteration_counts_once_its_steps_and_its_update_are_complete() {
        let measured = |steps, updates| Measured { seconds: 1.0, steps, simulations: 0, updates, latent_bytes: 0 };
        assert_eq!(measured(1024, 3).iterations(256), 3.0);
        assert_eq!(measured(512, 3).iterations(256), 2.0);
    }

    #[test]
    fn threads_have_equal_shares_of_the_environments() {
        let shares =
            |threads, environments| args::<Args>(&format!("--threads {threads}")).workload.shares(environments);
        assert_eq!(shares(3, 256), [85, 85, 86]);
        assert_eq!(shares(4, 1), [1]);
    }

    #[test]
    fn a_loop_that_fails_ends_all_its_threads() {
        // The kernel takes no networks of 12 channels, and is asked for no other engine.
        let line = "--channels 12 --game breakout --kernel portable-f32 --training-precision f32 --positions 10 --loop-seconds 0";
        let error = format!("{:#}", measure(&args(line)).unwrap_err());
        assert!(error.contains("12"), "{error}");
    }
}
