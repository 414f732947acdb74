//! `zerofleet bench placement`: the device of all data of a run, the bytes copied between devices, and the gain from an
//! accelerator.
//!
//! It measures a real run as [`phases`](crate::phases) does, and where there is an accelerator a second one on the CPU
//! alone. The devices of tensors are those on which libtorch reports them, which the processes export as metrics; other
//! data is in the memory of the host. `placed` lists both. Start with [`run`].

use std::io::Write;

use fleet::{Rating, Role};
use game::Game;
use games::{GameKind, with_game};

use crate::output::Destination;
use crate::phases::{RATES, describe, rates};
use crate::report::{Report, Unit, Value, bytes, number, value_of};
use crate::training_run::{self, Measured, Window};

/// The device of all data that is on no accelerator.
const CPU: &str = "cpu";
/// The settings that put everything on the CPU.
const ON_THE_CPU: [&str; 3] = ["learner.device=cpu", "actor.device=cpu", "arena.device=cpu"];
/// Bytes of a number that is copied to or from a device.
const BYTES: f64 = 4.0;
/// Win, draw and loss.
const OUTCOMES: f64 = 3.0;

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

/// Trains, then prints and writes the report.
///
/// # Errors
/// Invalid options, a process that dies, an invalid earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("placement", out, |_| {
        let (mut report, placement) = report(args, &training_run::measure(&args.run, Rating::On)?);
        if placement == Placement::Accelerated {
            let mut on_the_cpu = args.run.clone();
            on_the_cpu.sets.extend(ON_THE_CPU.map(str::to_owned));
            let measured = training_run::measure(&on_the_cpu, Rating::On)?;
            report.at(RATES, &[("run", &"all on the CPU")]).values(&rates(&measured.window));
        }
        Ok(report)
    })
}

/// The placement of a run as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// Everything is on the CPU.
    Cpu,
    /// Some data is on an accelerator.
    Accelerated,
}

/// Computes the report of a run.
fn report(args: &Args, measured: &Measured) -> (Report, Placement) {
    let Measured { window, .. } = measured;
    let (rates, devices) = (rates(window), Devices::new(window));
    let tensors = placed(&devices);
    let is_elsewhere = |placed: &Placed| placed.device.as_deref().is_some_and(|device| device != CPU);
    let placement = if tensors.iter().any(is_elsewhere) { Placement::Accelerated } else { Placement::Cpu };
    let mut report = describe("placement", "The devices of a run", &args.run, measured);
    if placement == Placement::Cpu {
        report.note("**everything is on the CPU**");
    }
    report.note(copies(args.run.game.clone(), &devices, &rates));
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
    report.at(RATES, &[("run", &run)]).values(&rates);
    (report, placement)
}

/// Describes the copies between devices: computed from the work done, not measured.
fn copies(game: GameKind, devices: &Devices, rates: &[Value]) -> String {
    let (planes, actions) = with_game!(game, |game| sizes(&game));
    let of = |metric| value_of(rates, metric);
    // The numbers of each position in a batch of the learner: planes, policy, legal actions, outcome, weight of the
    // policy.
    let trained = BYTES * (planes + 2.0 * actions + OUTCOMES + 1.0);
    let evaluated = BYTES * (planes + actions + OUTCOMES);
    let batches = of("evaluations/s").zip(of("mean batch")).map(|(evaluations, mean)| evaluations / mean);
    let to_learner = (of("training steps/s"), of("positions trained on/s").map(|rate| rate * trained));
    format!(
        "copied to the learner's device: {}; to that of self-play and back: {}",
        copied(devices.batch.as_deref(), to_learner),
        copied(devices.self_play.as_deref(), (batches, of("evaluations/s").map(|rate| rate * evaluated))),
    )
}

/// Describes batches and bytes per second that go to a device; none on a CPU.
fn copied(device: Option<&str>, per_second: (Option<f64>, Option<f64>)) -> String {
    match (device, per_second) {
        (Some(CPU), _) | (Some(_), (Some(0.0), _)) => "none".to_owned(),
        (Some(_), (Some(batches), Some(rate))) => format!("{} batches/s, {}/s", number(batches), bytes(rate)),
        _ => "unknown".to_owned(),
    }
}

/// Returns the size of an observation and the number of actions.
fn sizes(game: &impl Game) -> (f64, f64) {
    (game.spec().observation.len() as f64, game.spec().actions as f64)
}

/// A kind of data of a run, and its device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed {
    /// The data.
    what: &'static str,
    /// The process that holds it.
    process: &'static str,
    /// The device as written in the configuration; `None` if the process did not report it.
    device: Option<String>,
    /// The code that computes with it.
    computed_by: Option<String>,
}

/// What the processes report: the devices of their tensors, and the code that computes with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Devices {
    /// The batches that the learner trains on.
    batch: Option<String>,
    /// The parameters of training, with their gradients.
    parameters: Option<String>,
    /// The moments of the optimiser.
    moments: Option<String>,
    /// The averaged weights.
    average: Option<String>,
    /// The precision of training, and the code that computes its steps.
    trainer: Option<String>,
    /// The weights of self-play.
    self_play: Option<String>,
    /// The evaluator of self-play.
    evaluator: Option<String>,
    /// The weights of rated games.
    rated: Option<String>,
    /// The evaluator of rated games.
    rated_evaluator: Option<String>,
}

impl Devices {
    fn new(window: &Window) -> Self {
        let label = |role, name, label| window.label(role, name, label).map(str::to_owned);
        let learner = |what| window.device_of(Role::Learner, what);
        Self {
            batch: learner("batch"),
            parameters: learner("parameters"),
            moments: learner("moments"),
            average: learner("average"),
            trainer: label(Role::Learner, "zerofleet_learner_device", "backend")
                .zip(label(Role::Learner, "zerofleet_learner_device", "precision"))
                .map(|(backend, precision)| format!("{backend}, {precision}")),
            self_play: window.device_of(Role::Actor, "weights"),
            evaluator: label(Role::Actor, "zerofleet_actor_evaluator", "evaluator"),
            rated: window.device_of(Role::Arena, "weights"),
            rated_evaluator: label(Role::Arena, "zerofleet_arena_evaluator", "evaluator"),
        }
    }
}

/// Lists the kinds of data of a run, in the order in which a position passes through them.
fn placed(devices: &Devices) -> Vec<Placed> {
    let placed = |what, process, device: Option<&str>, computed_by| Placed {
        what,
        process,
        device: device.map(str::to_owned),
        computed_by,
    };
    let Devices { batch, parameters, moments, average, self_play, evaluator, rated, rated_evaluator, trainer } =
        devices;
    let ours = |what: &str| Some(what.to_owned());
    let host = Some(CPU);
    vec![
        placed("positions, trees, position cache", "actor", host, ours("search and rules")),
        placed("observations of a batch, priors and values", "actor", host, ours("rules; the evaluator's ends")),
        placed("weights and activations of self-play", "actor", self_play.as_deref(), evaluator.clone()),
        placed("trajectories, items", "replay-server", host, ours("replay table and log")),
        placed("samples, batches as they are made", "learner", host, ours("rules, one thread")),
        placed("batches as they are trained on", "learner", batch.as_deref(), trainer.clone()),
        placed("parameters, activations, gradients", "learner", parameters.as_deref(), trainer.clone()),
        placed("moments of the optimiser", "learner", moments.as_deref(), trainer.clone()),
        placed("averaged weights", "learner", average.as_deref(), trainer.clone()),
        placed("published weights", "learner, actor, arena", host, ours("nothing: bytes that are sent")),
        placed("weights and activations of rated games", "arena", rated.as_deref(), rated_evaluator.clone()),
    ]
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
                  zerofleet_device_tensors{what=\"weights\",device=\"cpu\"} 1\n\
                  zerofleet_actor_evaluator{evaluator=\"CPU kernel, avx2\"} 4";
        let trained = format!(
            "zerofleet_learner_steps_total 20\n\
         zerofleet_learner_positions_total 5120\n\
         zerofleet_device_tensors{{what=\"batch\",device=\"{device}\"}} 1\n\
         zerofleet_device_tensors{{what=\"parameters\",device=\"{device}\"}} 1\n\
         zerofleet_learner_device{{device=\"{device}\",precision=\"f32\",backend=\"a kernel\"}} 1"
        );
        let threads: Vec<(u64, &str, f64)> = (0..9).map(|id| (id, "train", 1.0)).collect();
        let trained = training_run::Reading { usage: Some(usage(&threads)), ..learner(&trained) };
        let window = Window { seconds: 10.0, begin: vec![actor(""), learner("")], end: vec![actor(played), trained] };
        let measured = Measured { config: Config::default(), actors: 1, window, accelerators: Vec::new() };
        super::report(&args("--game tic_tac_toe"), &measured)
    }

    #[test]
    fn without_an_accelerator_the_report_states_that_everything_is_on_the_cpu() {
        let (report, placement) = report("cpu");
        assert_eq!(placement, Placement::Cpu, "and needs no second run");
        let text = report.markdown();
        for words in [
            "\n- accelerator: none here\n",
            "\n- **everything is on the CPU**\n",
            "\n- copied to the learner's device: none; to that of self-play and back: none\n",
            "\n- weights and activations of self-play (actor): on cpu, computed by CPU kernel, avx2\n",
            "\n- parameters, activations, gradients (learner): on cpu, computed by a kernel, f32\n",
            "\n| learner | 9.00 | 67.1 MB |\n",
            "\n| on the CPU | ",
        ] {
            assert!(text.contains(words), "{words}: {text}");
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
    fn the_settings_that_place_everything_on_the_cpu_are_keys_of_the_run_file() {
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
        assert!(parsed::<Args>(["--game", "checkers"]).is_err());
    }

    fn devices(learner: &str, self_play: &str) -> Devices {
        let learner = Some(learner.to_owned());
        Devices {
            batch: learner.clone(),
            parameters: learner.clone(),
            moments: learner.clone(),
            average: learner,
            trainer: Some("bf16".to_owned()),
            self_play: Some(self_play.to_owned()),
            evaluator: Some("an evaluator".to_owned()),
            rated: Some(CPU.to_owned()),
            rated_evaluator: None,
        }
    }

    fn device(placed: &[Placed], what: &str) -> Option<String> {
        placed.iter().find(|placed| placed.what.starts_with(what)).unwrap().device.clone()
    }

    #[test]
    fn on_a_machine_without_accelerator_everything_is_on_the_cpu() {
        let placed = placed(&devices("cpu", "cpu"));
        assert!(placed.iter().all(|placed| placed.device.as_deref() == Some("cpu")), "{placed:?}");
        let evaluator = placed.iter().find(|placed| placed.what.starts_with("weights and activations of self-play"));
        assert_eq!(evaluator.unwrap().computed_by.as_deref(), Some("an evaluator"));
    }

    #[test]
    fn tensors_are_where_the_processes_report_them_and_the_search_trees_on_the_cpu() {
        let reported = Devices { moments: Some("cpu".to_owned()), ..devices("cuda", "cuda:1") };
        let placed = placed(&reported);
        for (what, expected) in [
            ("parameters", "cuda"),
            ("batches as they are trained on", "cuda"),
            ("moments", "cpu"),
            ("weights and activations of self-play", "cuda:1"),
            ("positions, trees", "cpu"),
        ] {
            assert_eq!(device(&placed, what).as_deref(), Some(expected), "{what}");
        }
    }

    #[test]
    fn the_placement_of_unreported_devices_is_unknown() {
        let placed = placed(&Devices::default());
        assert_eq!(device(&placed, "parameters"), None);
        assert_eq!(device(&placed, "weights and activations of rated games"), None);
        assert_eq!(device(&placed, "weights and activations of self-play"), None);
    }

    const WORK: [Value; 4] = [
        ("evaluations/s", Unit::PerSecond, Some(600.0)),
        ("mean batch", Unit::Count, Some(60.0)),
        ("training steps/s", Unit::PerSecond, Some(2.0)),
        ("positions trained on/s", Unit::PerSecond, Some(100.0)),
    ];

    #[test]
    fn on_the_cpu_nothing_is_copied() {
        let found = copies(GameKind::TicTacToe, &devices("cpu", "cpu"), &WORK);
        assert_eq!(found, "copied to the learner's device: none; to that of self-play and back: none");
    }

    #[test]
    fn an_accelerator_is_sent_every_batch() {
        let found = copies(GameKind::TicTacToe, &devices("cuda", "cuda:1"), &WORK);
        let (planes, actions) = sizes(&games::TicTacToe::new());
        let trained = bytes(100.0 * 4.0 * (planes + 2.0 * actions + 4.0));
        let evaluated = bytes(600.0 * 4.0 * (planes + actions + 3.0));
        let expected = format!(
            "copied to the learner's device: 2.00 batches/s, {trained}/s; to that of self-play and back: 10.0 batches/s, \
             {evaluated}/s"
        );
        assert_eq!(found, expected);
    }

    #[test]
    fn copies_between_unreported_devices_are_unknown() {
        let found = copies(GameKind::TicTacToe, &Devices::default(), &WORK);
        assert_eq!(found, "copied to the learner's device: unknown; to that of self-play and back: unknown");
    }
}
