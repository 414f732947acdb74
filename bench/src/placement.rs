//! `zerofleet bench placement`: on which device everything lies that a run computes with, what it holds there, what is
//! copied between devices, and what an accelerator gains.
//!
//! It measures a real run as [`phases`](super::phases) does, and where there is an accelerator a second one on the CPU alone.
//! Devices are those that processes say they chose; what lies on which follows from how they are made, and `tensors` holds
//! that knowledge. Start with [`run`].

mod markdown;
mod report;
mod tensors;
mod transfers;

use std::io::Write;

pub use markdown::markdown;
pub use report::{Placed, ProcessMemory, Report, Transfers};

use super::machine;
use super::output::Destination;
use super::phases::{Compared, learner_device, rates};
use super::training_run::{self, Measured, Window};
use fleet::Role;

/// What puts everything on the CPU.
const ON_THE_CPU: [&str; 3] = ["learner.device=cpu", "actor.device=cpu", "arena.device=cpu"];

/// Options of `zerofleet bench placement`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Which run, and for how long.
    #[command(flatten)]
    pub run: training_run::RunArgs,
    /// Where the report goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// Trains, prints and writes.
///
/// # Errors
/// Options that make no sense, a process that dies, a file that is no earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    // Before minutes are spent on training.
    let earlier: Option<(_, Report)> = args.destination.earlier("placement")?;
    let times = args.run.times()?;
    let measured = training_run::measure(&args.run, times)?;
    let mut report = report(args, &measured);
    if report.is_accelerated() {
        let mut on_the_cpu = args.run.clone();
        on_the_cpu.sets.extend(ON_THE_CPU.map(str::to_owned));
        report.rates_on_the_cpu = Some(rates(&training_run::measure(&on_the_cpu, times)?.window));
    }
    if let Some((path, earlier)) = &earlier {
        report.compared = Some(Compared::new(path, &earlier.cpu, &report.rates, &earlier.rates));
    }
    args.destination.write_without_picture("placement", || markdown(&report), &report)?;
    args.destination.print(&report, || markdown(&report), out)
}

/// What is made of a run.
fn report(args: &Args, measured: &Measured) -> Report {
    let Measured { config, actors, window, accelerators } = measured;
    let rates = rates(window);
    let devices = tensors::Devices::new(window);
    Report {
        cpu: machine::cpu_model(),
        target: machine::target(),
        cores: machine::cores(),
        game: args.run.game.to_string(),
        network: format!("{}x{}", config.network.blocks, config.network.channels),
        sets: args.run.sets.clone(),
        actors: *actors,
        actor_threads: config.actor.threads,
        learner_threads: config.learner.threads,
        seconds: window.seconds,
        compared: None,
        accelerators: accelerators.clone(),
        transfers: transfers::transfers(args.run.game, &devices, &rates),
        tensors: tensors::placed(&devices, &config.arena.device.to_string()),
        processes: memory(window),
        rates,
        rates_on_the_cpu: None,
    }
}

/// What processes held at the end of the window.
fn memory(window: &Window) -> Vec<ProcessMemory> {
    let of = |reading: &training_run::Reading| ProcessMemory {
        name: reading.name.clone(),
        threads: reading.usage.as_ref().map(|usage| usage.threads.len()),
        memory_bytes: reading.usage.as_ref().and_then(|usage| usage.memory_bytes),
    };
    window.end.iter().map(of).collect()
}

impl tensors::Devices {
    fn new(window: &Window) -> Self {
        let label = |role, name, label| window.label(role, name, label).map(str::to_owned);
        Self {
            learner: learner_device(window).map(str::to_owned),
            precision: label(Role::Learner, "zerofleet_learner_device", "precision"),
            evaluator: label(Role::Actor, "zerofleet_actor_evaluator", "evaluator"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};
    use crate::training_run::tests::{actor, learner, usage};
    use fleet::config::Fleet as Config;

    /// What is made of a run in which the learner trained on `device`.
    pub(super) fn report(device: &str) -> Report {
        let played = "zerofleet_actor_moves_total 5000\n\
                  zerofleet_actor_evaluations_total 60000\n\
                  zerofleet_actor_batches_total 1000\n\
                  zerofleet_actor_evaluator{evaluator=\"CPU kernel, avx2\"} 4";
        let trained = format!(
            "zerofleet_learner_steps_total 20\n\
         zerofleet_learner_positions_total 5120\n\
         zerofleet_learner_device{{device=\"{device}\",precision=\"f32\"}} 1"
        );
        let threads: Vec<(u64, &str, f64)> = (0..9).map(|id| (id, "train", 1.0)).collect();
        let trained = training_run::Reading { usage: Some(usage(&threads)), ..learner(&trained) };
        let window = Window { seconds: 10.0, begin: vec![actor(""), learner("")], end: vec![actor(played), trained] };
        let measured = Measured { config: Config::default(), actors: 1, window, accelerators: Vec::new() };
        super::report(&args("--game tic_tac_toe"), &measured)
    }

    #[test]
    fn a_run_on_the_cpu_alone_needs_no_second_one() {
        assert!(!report("cpu").is_accelerated());
        assert!(report("cuda").is_accelerated());
    }

    #[test]
    fn a_report_is_read_back() {
        let report = report("cuda:1");
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn what_puts_everything_on_the_cpu_are_keys_of_the_run_file() {
        for set in ON_THE_CPU {
            let (_, key) = set.split_once('.').unwrap();
            let (key, _) = key.split_once('=').unwrap();
            let section = toml::to_string(&Config::default()).unwrap();
            assert!(section.contains(&format!("\n{key} = ")), "{set}");
        }
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
        assert!(error("--seconds 0").contains("--seconds"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        assert!(parsed::<Args>(["--game", "chess"]).is_err());
    }
}
