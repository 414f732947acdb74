//! A whole training loop in one process: environments, searches in a learned model, replay and updates.
//!
//! One iteration is a number of environment steps and one update. The update starts after the steps of the iteration,
//! while the search threads play the steps of the next iteration. Rules, searches, targets, replay and updates are the
//! same as in the processes of a run; nothing crosses a network. Start with [`measure`].

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use game::Game;
use games::{GameKind, with_game};
use network_torch::{Network, Purpose, Trainer, choose_device, choose_training_precision, device_name};
use proto::weights::Published;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use selfplay::Round;
use training::{Trainer as _, TrainerSettings};
use weights::WeightsVersion;

use super::engine::Engine;
use super::players::{Player, players};
use super::replay::Replay;
use super::workload::Workload;
use crate::machine;
use crate::network::{published, version_of};
use crate::own_process::{self, words};
use crate::report::{Report, Unit};

/// Options of `zerofleet-bench muzero-loop`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Game that the environments play.
    #[arg(long, default_value = "cartpole-v1")]
    pub game: GameKind,
    /// Options for the work of the training loop.
    #[command(flatten)]
    pub workload: Workload,
    /// Seed of weights, environments and all other random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Measures one loop and returns the report.
///
/// # Errors
/// An option is invalid, or a device cannot be used.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    network_torch::keep_memory();
    with_game!(args.game, |game| Loop::new(&game, args)?.measure())
}

/// Measures a loop with this program in a separate process, so that the peak of memory covers only the loop.
///
/// # Errors
/// The process cannot be started, or fails.
pub(crate) fn in_a_process(args: &Args) -> anyhow::Result<Report> {
    let (game, seed) = (format!("--game={}", args.game), format!("--seed={}", args.seed));
    let own = vec!["muzero-loop".to_owned(), "--json".to_owned(), game, seed];
    own_process::report(&[own, words(&args.workload)].concat())
}

pub(super) const SECTION: &str = "training loop";
pub(super) const ITERATIONS: &str = "iterations/s";
pub(super) const REPLAY_BYTES: &str = "replay per step";
pub(super) const MEASURED: &str = "iterations measured";

/// Minimum iterations of a measurement.
const ITERATIONS_MIN: usize = 2;
/// Environments and simulations for filling the replay.
const FILLING_ENVIRONMENTS: usize = 256;
const FILLING_SIMULATIONS: u32 = 2;

/// State of a training loop.
struct Loop<'a, G: Game> {
    game: &'a G,
    args: &'a Args,
    engine: Engine,
    replay: Replay,
    newest: Published,
    players: Vec<Player>,
    trainer: Trainer,
    /// Engine of updates.
    updates_by: String,
    rng: ChaCha8Rng,
}

impl<'a, G: Game> Loop<'a, G> {
    fn new(game: &'a G, args: &'a Args) -> anyhow::Result<Self> {
        let Args { workload, seed, .. } = args;
        // The other cores search.
        network_torch::set_threads(1);
        let architecture = workload.architecture(game.spec());
        let device = choose_device(workload.training_device, Purpose::Training)?.device;
        let precision = choose_training_precision(workload.training_precision, device, &mut Instant::now)?.precision;
        let settings = TrainerSettings { precision, ..TrainerSettings::muzero() };
        let trainer = Trainer::new(Network::new(&architecture, device, *seed)?, settings)?;
        let updates_by = format!("libtorch {} {precision}", device_name(device));
        let newest = published(architecture, *seed)?;
        let (engine, replay) = (Engine::new(workload)?, Replay::new(workload.positions)?);
        let players = players(game, workload, workload.environments, (&engine, &newest), *seed)?;
        let rng = ChaCha8Rng::seed_from_u64(seed ^ 1);
        Ok(Self { game, args, engine, replay, newest, players, trainer, updates_by, rng })
    }

    fn measure(mut self) -> anyhow::Result<Report> {
        let time = Duration::try_from_secs_f64(self.args.workload.loop_seconds).context("parse --loop-seconds")?;
        self.fill()?;
        // The first update does not count: buffers grow, and libtorch sets up kernels.
        self.iterate(0)?;
        self.iterate(1)?;
        let (start, before) = (Instant::now(), self.played());
        let mut iterations = 0;
        while iterations < ITERATIONS_MIN || start.elapsed() < time {
            iterations += 1;
            self.iterate(1 + iterations)?;
        }
        Ok(self.report(iterations, before, start.elapsed().as_secs_f64()))
    }

    /// Fills the replay with shallow searches.
    fn fill(&self) -> anyhow::Result<()> {
        let Self { game, args: Args { workload, seed, .. }, engine, replay, newest, .. } = self;
        let shallow = Workload { simulations: FILLING_SIMULATIONS, threads: 1, ..workload.clone() };
        let environments = FILLING_ENVIRONMENTS.min(workload.positions);
        let mut players = players(*game, &shallow, environments, (engine, newest), !seed)?;
        let mut positions = 0;
        while positions < workload.positions {
            positions += advance(*game, replay, &mut players[0])?;
        }
        Ok(())
    }

    /// Plays the steps of an iteration, and takes the update of the previous iteration, if there is one.
    fn iterate(&mut self, iteration: usize) -> anyhow::Result<()> {
        let Self { game, args, engine, replay, newest, players, trainer, rng, .. } = self;
        let (game, Args { workload, .. }) = (*game, args);
        let mut update = || -> anyhow::Result<()> {
            trainer.step(&replay.examples(game, workload.batch, rng)?).context("apply an update")?;
            Ok(())
        };
        let play = |player: &mut Player| -> anyhow::Result<()> {
            if player.model.attributes().weights_version < newest.manifest.version.0 {
                player.round += player.episodes.settle(player.model.as_mut())?;
                player.model = engine.build(newest)?;
            }
            let due = workload.steps * (iteration + 1) * player.episodes.slots() / workload.environments;
            while player.round.moves < due {
                advance(game, replay, player)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = players.iter_mut().map(|player| scope.spawn(|| play(player))).collect();
            if iteration > 0 {
                update()?;
            }
            let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
            joined.collect::<anyhow::Result<()>>()
        })?;
        if iteration > 0 && iteration.is_multiple_of(workload.publish_iterations) {
            let version = WeightsVersion(newest.manifest.version.0 + 1);
            let bytes = trainer.published().context("read the weights")?;
            *newest = version_of(newest.manifest.architecture.clone(), version, bytes);
        }
        Ok(())
    }

    /// Returns the counts summed over all threads.
    fn played(&self) -> Round {
        let mut sum = Round::default();
        self.players.iter().for_each(|player| sum += player.round);
        sum
    }

    fn report(&self, iterations: usize, before: Round, seconds: f64) -> Report {
        let (played, (bytes, positions)) = (self.played(), self.replay.size());
        let per_second = |count: usize| count as f64 / seconds;
        let mut report = Report::new("muzero-loop", "A training loop of MuZero");
        report.note(format!("evaluations by {}", self.players[0].model.attributes().name));
        report.note(format!("updates by {}", self.updates_by));
        report
            .at(SECTION, &[("game", &self.args.game)])
            .value(ITERATIONS, Unit::PerSecond, per_second(iterations))
            .value("steps/s", Unit::PerSecond, per_second(played.moves - before.moves))
            .value("simulations/s", Unit::PerSecond, per_second(played.simulations - before.simulations))
            .value(REPLAY_BYTES, Unit::Bytes, bytes as f64 / positions as f64)
            .value("peak memory of the process", Unit::Bytes, machine::peak_memory_bytes().map(|bytes| bytes as f64))
            .value(MEASURED, Unit::Count, iterations as f64);
        report
    }
}

/// Advances environments by a round, and returns the number of positions added to the replay.
fn advance<G: Game>(game: &G, replay: &Replay, player: &mut Player) -> anyhow::Result<usize> {
    player.round += player.episodes.advance(player.model.as_mut())?;
    let mut positions = 0;
    for episode in player.episodes.drain_finished() {
        replay.insert(game, &episode)?;
        positions += episode.steps.len();
    }
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::tests::{args, parsed};

    #[test]
    fn the_options_of_a_loop_are_options_of_its_command() {
        let line =
            "--game breakout --blocks 3 --simulations 7 --leaves 2 --loop-seconds 0.5 --threads 3 --kernel libtorch";
        let Args { workload, .. } = args::<Args>(line);
        let words = words(&workload);
        let read: Args = parsed(words.iter().map(String::as_str)).unwrap();
        assert_eq!(read.workload, workload);
        let program = ["zerofleet-bench", "muzero-loop"].map(str::to_owned);
        crate::Bench::try_parse_from(program.into_iter().chain(words)).unwrap();
    }

    #[test]
    fn iterations_have_their_steps_and_new_weights_take_effect() {
        let game = games::CartPole::new(games::cartpole::Version::new(1).unwrap());
        let line = "--channels 32 --environments 5 --simulations 2 --steps 12 --batch 4 --positions 40 --threads 2 \
                    --publish-iterations 2 --training-precision f32";
        let args = args(line);
        let mut all = Loop::new(&game, &args).unwrap();
        all.fill().unwrap();
        for iteration in 0..=3 {
            all.iterate(iteration).unwrap();
            // A thread may lag by part of a step, and lead by one step per environment.
            let (due, played) = (12 * (iteration + 1), all.played().moves);
            assert!((due - 1..=due + 5).contains(&played), "{played} steps in {iteration}");
        }
        assert_eq!(all.newest.manifest.version, WeightsVersion(2));
        let versions = all.players.iter().map(|player| player.model.attributes().weights_version);
        assert_eq!(versions.collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn a_network_that_the_engine_does_not_compute_is_an_error() {
        // The kernel does not support networks with 12 channels, and the engine is fixed.
        let line = "--channels 12 --game breakout --kernel portable-f32 --training-precision f32 --positions 10 --loop-seconds 0";
        let error = format!("{:#}", measure(&args(line)).unwrap_err());
        assert!(error.contains("12"), "{error}");
    }
}
