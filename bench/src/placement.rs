//! `zerofleet bench placement`: the device of all data of a run, the bytes copied between devices, and what an
//! accelerator gains.
//!
//! It measures a real run as [`phases`] does, and where there is an accelerator a second one on the CPU alone.
//! Devices are those that processes report; what lies on which follows from their code, and `tensors` holds
//! that knowledge. Start with [`run`].

mod tensors;
mod transfers;

use std::io::Write;

use fleet::Role;

use super::digits::{bytes, number};
use super::output::Destination;
use super::phases::{self, learner_device, rates};
use super::report::{Report, Unit};
use super::training_run::{self, Measured, Window};
use tensors::{CPU, Devices, Placed};
use transfers::Transfers;

/// The settings that put everything on the CPU.
const ON_THE_CPU: [&str; 3] = ["learner.device=cpu", "actor.device=cpu", "arena.device=cpu"];

/// Options of `zerofleet bench placement`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The run, and how long it is measured.
    #[command(flatten)]
    pub run: training_run::RunArgs,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Trains, prints and writes.
///
/// # Errors
/// Options that make no sense, a process that dies, a file that is no earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("placement", out, |_| {
        let times = args.run.times()?;
        let (mut report, placement) = report(args, &training_run::measure(&args.run, times)?);
        if placement == Placement::Accelerated {
            let mut on_the_cpu = args.run.clone();
            on_the_cpu.sets.extend(ON_THE_CPU.map(str::to_owned));
            let measured = training_run::measure(&on_the_cpu, times)?;
            phases::add_rates(&mut report, "all on the CPU", &rates(&measured.window));
        }
        Ok(report)
    })
}

/// The devices of a run in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// Everything is on the CPU.
    Cpu,
    /// Something is not.
    Accelerated,
}

/// Computes the report of a run.
fn report(args: &Args, measured: &Measured) -> (Report, Placement) {
    let Measured { config, window, .. } = measured;
    let (rates, devices) = (rates(window), Devices::new(window));
    let tensors = tensors::placed(&devices, &config.arena.device.to_string());
    let is_elsewhere = |placed: &Placed| placed.device.as_deref().is_some_and(|device| device != CPU);
    let placement = if tensors.iter().any(is_elsewhere) { Placement::Accelerated } else { Placement::Cpu };
    let mut report = phases::describe("placement", "The devices of a run", &args.run, measured);
    if placement == Placement::Cpu {
        report.note("**everything is on the CPU**");
    }
    let transfers: Transfers = transfers::transfers(args.run.game, &devices, &rates);
    report.note(format!(
        "copied to the learner's device: {}; to that of self-play and back: {}",
        copied(transfers.training_batches_per_second, transfers.training_bytes_per_second),
        copied(transfers.evaluated_batches_per_second, transfers.evaluated_bytes_per_second),
    ));
    for Placed { what, process, device, computed_by } in &tensors {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        report.note(format!("{what} ({process}): on {}, computed by {}", known(device), known(computed_by)));
    }
    for reading in &window.end {
        let usage = reading.usage.as_ref();
        report
            .at("processes", &[("process", &reading.name)])
            .value("threads", Unit::Count, usage.map(|usage| usage.threads.len() as f64))
            .value("memory", Unit::Bytes, usage.and_then(|usage| usage.memory_bytes).map(|bytes| bytes as f64));
    }
    let run = if placement == Placement::Cpu { "on the CPU" } else { "as placed" };
    phases::add_rates(&mut report, run, &rates);
    (report, placement)
}

fn copied(batches: Option<f64>, bytes_per_second: Option<f64>) -> String {
    match (batches, bytes_per_second) {
        (Some(0.0), _) => "none".to_owned(),
        (Some(batches), Some(rate)) => format!("{} batches/s, {}/s", number(batches), bytes(rate)),
        _ => "unknown".to_owned(),
    }
}

impl Devices {
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

    /// The report of a run in which the learner trained on `device`.
    fn report(device: &str) -> (Report, Placement) {
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
    fn on_a_machine_without_accelerator_that_is_said_plainly() {
        let (report, placement) = report("cpu");
        assert_eq!(placement, Placement::Cpu, "and needs no second run");
        let text = report.markdown();
        for said in [
            "\n- accelerator: none here\n",
            "\n- **everything is on the CPU**\n",
            "\n- copied to the learner's device: none; to that of self-play and back: none\n",
            "\n- weights and activations of self-play (actor): on cpu, computed by CPU kernel, avx2\n",
            "\n| learner | 9.00 | 67.1 MB |\n",
            "\n| on the CPU | ",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert_eq!(report.value("rates", &[("run", "on the CPU")], "moves/s"), Some(500.0));
    }

    #[test]
    fn with_an_accelerator_transfers_are_counted() {
        let (report, placement) = report("cuda");
        assert_eq!(placement, Placement::Accelerated);
        let text = report.markdown();
        assert!(text.contains("- copied to the learner's device: 2.00 batches/s, "), "{text}");
        assert!(text.contains("\n| as placed | ") && !text.contains("everything is on the CPU"), "{text}");
    }

    #[test]
    fn rates_of_two_runs_are_compared() {
        let (mut now, _) = report("cpu");
        now.compare("before.json".as_ref(), &report("cpu").0);
        assert!(now.markdown().contains("(×1.00)"), "{}", now.markdown());
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
