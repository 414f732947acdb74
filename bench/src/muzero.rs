//! `zerofleet bench muzero`: inference, searches and whole training loops of MuZero, beside the same without their
//! optimisations.
//!
//! It has four parts. `inference` times initial and recurrent inference on every engine; `pool` searches with latent
//! states in the engine's pool and on the host; `training` runs a loop of self-play and updates in full, without one
//! optimisation at a time, and naively, each in a process of its own; `trading` searches in one market at a time and in
//! many. Naive variants make the same searches: `single_calls` and `host_latents` wrap the engines of the others. Start
//! with [`run`].

mod ablation;
mod engine;
mod forms;
mod host_latents;
mod inference;
mod replay;
mod searches;
mod single_calls;
mod traffic;
pub mod training;
mod workload;

use std::io::Write;

use anyhow::ensure;
use game::{Game, Spec};
use games::{GameKind, with_game};
use proto::weights::Published;

use crate::Turns;
use crate::output::Destination;
use crate::report::Report;
use crate::turns::Turn;
use engine::{Calls, Engine, Latents, first_weights};
use inference::InferenceArgs;
use training::Variant;
use workload::Workload;

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Times of initial and recurrent inference and of updates.
    Inference,
    /// Searches with latent states in the pool and on the host.
    Pool,
    /// Training loops from full to naive.
    Training,
    /// Market making with search, one environment at a time and many.
    Trading,
}

/// Options of `zerofleet bench muzero`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The measured parts.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "inference,pool,training,trading")]
    pub parts: Vec<Part>,
    /// The games of `pool` and `training`.
    #[arg(long = "game", value_delimiter = ',', default_value = "cartpole-v1,breakout")]
    pub games: Vec<GameKind>,
    /// The networks of `inference`.
    #[command(flatten)]
    pub inference: InferenceArgs,
    /// The work of the other parts.
    #[command(flatten)]
    pub workload: Workload,
    /// The full training loop, and the fastest engine of searches.
    #[command(flatten)]
    pub full: Variant,
    /// The duration of each measurement of searches.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Number of turns of each measurement other than training loops.
    #[arg(long, default_value_t = 3)]
    pub repeats: usize,
    /// The reported turn.
    #[arg(long, value_enum, default_value_t)]
    pub turn: Turn,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, then prints and writes the report.
///
/// # Errors
/// Invalid options, an engine that fails, an invalid earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("muzero", out, |so_far| measure(args, &ablation::in_a_process, so_far))
}

/// Runs the measurements, training loops by `measure_loop`, and returns the report; calls `so_far` with the unfinished
/// report after each part.
///
/// # Errors
/// The errors of [`run`].
pub fn measure(
    args: &Args,
    measure_loop: &dyn Fn(&training::Args) -> anyhow::Result<Report>,
    so_far: &mut dyn FnMut(&Report) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    args.workload.check()?;
    ensure!(args.full.environments > 0, "--environments must be at least 1");
    let mut report = args.empty_report();
    // Devices are looked for before anything else of libtorch is used.
    if args.parts.contains(&Part::Inference) {
        inference::add(&mut report, &args.inference, args.turns())?;
        so_far(&report)?;
    }
    let bench = Bench::new(args)?;
    if args.parts.contains(&Part::Pool) {
        for game in &args.games {
            searches::add_pool(&mut report, &bench, *game)?;
        }
        so_far(&report)?;
    }
    if args.parts.contains(&Part::Training) {
        for game in &args.games {
            ablation::measure(&mut report, *game, &args.workload, args.full, measure_loop)?;
            with_game!(*game, |game| bench.add_forms(&mut report, &game))?;
            so_far(&report)?;
        }
        report.plot(ablation::SECTION, training::ITERATIONS, None, Some("game"));
    }
    if args.parts.contains(&Part::Trading) {
        searches::add_trading(&mut report, &bench)?;
    }
    Ok(report)
}

impl Args {
    fn turns(&self) -> Turns {
        let Self { seconds, repeats, turn, .. } = *self;
        Turns { seconds, repeats, turn, seed: self.workload.seed }
    }

    fn empty_report(&self) -> Report {
        let Workload { simulations, leaves, steps, batch, unroll_steps, positions, publish_iterations, .. } =
            self.workload;
        let mut report = Report::new("muzero", "MuZero: inference, searches, training loops");
        report.set("environments", self.full.environments);
        report.set("simulations", simulations);
        report.set("leaves", leaves);
        report.set("iteration", format!("{steps} steps and an update of {batch} positions x {unroll_steps} steps"));
        report.set("replay", format!("{positions} positions"));
        report.note(format!("weights are published every {publish_iterations} iterations"));
        report.note_turns(self.turns());
        let seconds = self.workload.loop_seconds;
        report.note(format!(
            "a training loop: once, in a process of its own, for {seconds} s and at least two iterations after the first"
        ));
        report
    }
}

/// What the parts other than inference have in common.
struct Bench {
    turns: Turns,
    workload: Workload,
    environments: usize,
    /// The engine of the options, and libtorch in float32 on the CPU.
    engines: [Engine; 2],
}

impl Bench {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let engines = [Engine::new(args.full.engine)?, Engine::new(ablation::LIBTORCH)?];
        Ok(Self { turns: args.turns(), workload: args.workload.clone(), environments: args.full.environments, engines })
    }

    /// The weights for a game, and the engines with their names.
    fn engines(&self, spec: &Spec) -> anyhow::Result<(Published, [(String, &Engine); 2])> {
        let weights = first_weights(self.workload.architecture(spec), self.workload.seed)?;
        let [first, second] = &self.engines;
        let engines = [(first.name(&weights)?, first), (second.name(&weights)?, second)];
        Ok((weights, engines))
    }

    fn add_forms<G: Game>(&self, report: &mut Report, game: &G) -> anyhow::Result<()> {
        let (weights, [(_, engine), _]) = self.engines(game.spec())?;
        let mut model = engine.build(&weights, Latents::Pool, Calls::Batched, &Default::default())?;
        forms::add(report, game, &self.workload, model.as_mut())
    }
}

#[cfg(test)]
mod tests;
