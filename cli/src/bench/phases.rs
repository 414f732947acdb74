//! `zerofleet bench phases`: where the time of a real training run goes, what holds it up, and what a longer run takes.
//!
//! It starts the processes of `zerofleet train` in a temporary folder, waits until the learner trains, and reads what they
//! tell at the beginning and at the end of a window of time; the differences are shares. Nothing is traced: processes add up
//! their own phases, a few times for each batch. Start with [`run`]; `shares` is what is made of the run, `bottleneck` the
//! rules.

mod bottleneck;
mod compare;
mod cost;
mod markdown;
mod plot;
mod report;
mod shares;

use std::io::Write;

use anyhow::ensure;

pub use bottleneck::{Bottleneck, Part};
pub(crate) use bottleneck::{Load, bottleneck};
pub use cost::Cost;
pub use markdown::markdown;
pub use plot::draw;
pub use report::{Compared, Phase, PhaseTime, Process, Rates, Report, Threads, ThreadsName};

pub use super::accelerator::Accelerator;
pub(super) use shares::{learner_device, rates};

use super::machine;
use super::output::Destination;
use super::training_run::{self, Measured, Times};
use crate::readings::Role;
use cost::{Speed, cost, epoch_positions};

#[cfg(test)]
mod tests;

/// Options of `zerofleet bench phases`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Which run, and for how long.
    #[command(flatten)]
    pub run: training_run::RunArgs,
    /// For how many epochs of training time and price are foretold; an epoch is as many training positions as the window
    /// holds.
    #[arg(long, default_value_t = 10.0)]
    pub epochs: f64,
    /// What an hour of this machine costs, in any money.
    #[arg(long, value_name = "PRICE")]
    pub price_per_hour: Option<f64>,
    /// Where the report goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// Trains, prints and writes.
///
/// # Errors
/// Options that make no sense, a process that dies, a file that is no earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    let times = checked(args)?;
    // Before minutes are spent on measuring.
    let earlier = args.destination.earlier("phases")?;
    let mut report = report(args, &training_run::measure(&args.run, times)?);
    if let Some((path, earlier)) = &earlier {
        compare::compare(&mut report, path, earlier);
    }
    args.destination.write("phases", || markdown(&report), &report, |path| draw(path, &report))?;
    args.destination.print(&report, || markdown(&report), out)
}

/// What is not left to others to check.
fn checked(args: &Args) -> anyhow::Result<Times> {
    let finite = |name: &str, value: f64| {
        ensure!(value.is_finite() && value >= 0.0, "{name} must be a number, 0 or above");
        Ok(())
    };
    finite("--epochs", args.epochs)?;
    finite("--price-per-hour", args.price_per_hour.unwrap_or(0.0))?;
    args.run.times()
}

/// What is made of a run.
fn report(args: &Args, measured: &Measured) -> Report {
    let Measured { config, actors, window, accelerators } = measured;
    let cores = machine::cores();
    let threads = shares::threads(window, actors * config.actor.threads);
    let cores_used = window.cpu_seconds().map(|cpu| cpu / (window.seconds * cores as f64));
    let rates = shares::rates(window);
    let speed = Speed {
        training_positions_per_second: rates.training_positions_per_second,
        positions_per_second: rates.positions_per_second,
    };
    let epoch_positions = epoch_positions(rates.window_items, config.replay.window_items_min);
    let label = |role, name, label| window.label(role, name, label).map(str::to_owned);
    Report {
        cpu: machine::cpu_model(),
        target: machine::target(),
        cores,
        game: args.run.game.to_string(),
        network: format!("{}x{}", config.network.blocks, config.network.channels),
        sets: args.run.sets.clone(),
        actors: *actors,
        actor_threads: config.actor.threads,
        evaluator: label(Role::Actor, "zerofleet_actor_evaluator", "evaluator"),
        learner_device: shares::learner_device(window).map(str::to_owned),
        learner_precision: label(Role::Learner, "zerofleet_learner_device", "precision"),
        seconds: window.seconds,
        warm_up_seconds: args.run.warm_up_seconds,
        compared: None,
        bottleneck: bottleneck(&Load::new(&threads, cores_used)),
        transfers: shares::transfers(window),
        accelerators: accelerators.clone(),
        threads,
        processes: shares::processes(window),
        cost: cost(args.epochs, epoch_positions, args.price_per_hour, speed),
        rates,
    }
}
