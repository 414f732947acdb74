//! Devices of all data in a run, and the bytes copied between devices.
//!
//! The devices of tensors are reported by libtorch and exported as metrics by the processes. Other data is in host
//! memory. Start with [`add`].

use fleet::Role;
use game::Game;
use games::{GameKind, with_game};
use run_metrics::Processes;

use crate::report::{Report, Value, bytes, number, value_of};

/// Device of all data outside accelerators.
const CPU: &str = "cpu";
/// Settings that put everything on the CPU.
pub(super) const ON_THE_CPU: [&str; 3] = ["learner.device=cpu", "actor.device=cpu", "arena.device=cpu"];
/// Bytes of a number copied to or from a device.
const BYTES: f64 = 4.0;
/// Win, draw and loss.
const OUTCOMES: f64 = 3.0;

/// Placement of a run as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// Everything is on the CPU.
    Cpu,
    /// Some data is on an accelerator.
    Accelerated,
}

/// Adds notes on the devices of a run with these rates, and on the copies between devices.
pub(super) fn add(report: &mut Report, game: GameKind, metrics: &Processes<'_>, rates: &[Value]) -> Placement {
    let tensors = placed(metrics);
    let is_elsewhere = |placed: &Placed| placed.2.as_deref().is_some_and(|device| device != CPU);
    let placement = if tensors.iter().any(is_elsewhere) { Placement::Accelerated } else { Placement::Cpu };
    if placement == Placement::Cpu {
        report.note("**everything is on the CPU**");
    }
    let batch = metrics.device_of(Role::Learner, "batch");
    report.note(copies(game, batch.as_deref(), metrics.device_of(Role::Actor, "weights").as_deref(), rates));
    for (what, process, device, computed_by) in tensors {
        let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
        report.note(format!("{what} ({process}): on {}, computed by {}", known(device), known(computed_by)));
    }
    placement
}

/// Describes the copies between devices, which are computed from the work done rather than measured.
fn copies(game: GameKind, batch: Option<&str>, self_play: Option<&str>, rates: &[Value]) -> String {
    let (planes, actions) = with_game!(game, |game| sizes(&game));
    let of = |metric| value_of(rates, metric);
    // Numbers per position in a batch of the learner: planes, policy, legal actions, outcome, policy weight.
    let trained = BYTES * (planes + 2.0 * actions + OUTCOMES + 1.0);
    let evaluated = BYTES * (planes + actions + OUTCOMES);
    let batches = of("evaluations/s").zip(of("mean batch")).map(|(evaluations, mean)| evaluations / mean);
    let to_learner = (of("training steps/s"), of("positions trained on/s").map(|rate| rate * trained));
    format!(
        "copied to the learner's device: {}; to that of self-play and back: {}",
        copied(batch, to_learner),
        copied(self_play, (batches, of("evaluations/s").map(|rate| rate * evaluated))),
    )
}

/// Describes the batches and bytes per second that go to a device; none on a CPU.
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

/// A kind of data in a run: name, process that holds it, device as written in the configuration if the process reports
/// it, and code that computes with it.
type Placed = (&'static str, &'static str, Option<String>, Option<String>);

/// Lists the kinds of data of a run, in the order in which a position passes through them.
fn placed(metrics: &Processes<'_>) -> [Placed; 11] {
    let label = |role, name, label| metrics.label(role, name, label).map(str::to_owned);
    let learner = |what| metrics.device_of(Role::Learner, what);
    let trainer = label(Role::Learner, "device", "backend")
        .zip(label(Role::Learner, "device", "precision"))
        .map(|(backend, precision)| format!("{backend}, {precision}"));
    let trained = |what, device| (what, "learner", learner(device), trainer.clone());
    let evaluated = |what, process, role| {
        (what, process, metrics.device_of(role, "weights"), label(role, "evaluator", "evaluator"))
    };
    let on_host = |what, process, code: &str| (what, process, Some(CPU.to_owned()), Some(code.to_owned()));
    let (self_play, rated) = ("weights and activations of self-play", "weights and activations of rated games");
    [
        on_host("positions, trees, position cache", "actor", "search and rules"),
        on_host("observations of a batch, priors and values", "actor", "rules; the evaluator's ends"),
        evaluated(self_play, "actor", Role::Actor),
        on_host("trajectories, items", "replay-server", "replay table and log"),
        on_host("samples, batches as they are made", "learner", "rules, one thread"),
        trained("batches as they are trained on", "batch"),
        trained("parameters, activations, gradients", "parameters"),
        trained("moments of the optimiser", "moments"),
        trained("averaged weights", "average"),
        on_host("published weights", "learner, actor, arena", "nothing: bytes that are sent"),
        evaluated(rated, "arena", Role::Arena),
    ]
}

#[cfg(test)]
mod tests {
    use run_file::RunFile;

    use super::*;
    use crate::report::Unit;
    use crate::training_run::Window;
    use crate::training_run::tests::{self, actor, learner};

    /// Returns ten seconds of a run in which the learner reports tensors on one device, and self-play on another.
    fn window(trained: &str, played: &str) -> Window {
        let tensors = |device: &str, what: &[&str]| -> String {
            what.iter()
                .map(|what| format!("zerofleet_device_tensors{{what=\"{what}\",device=\"{device}\"}} 1\n"))
                .collect()
        };
        let actor =
            actor(&(tensors(played, &["weights"]) + "zerofleet_actor_evaluator{evaluator=\"CPU kernel, avx2\"} 4"));
        let learner = learner(&format!(
            "{}{}zerofleet_learner_device{{device=\"{trained}\",precision=\"f32\",backend=\"a kernel\"}} 1",
            tensors(trained, &["batch", "parameters", "average"]),
            tensors("cpu", &["moments"])
        ));
        let end = vec![actor, learner];
        tests::window(10.0, end.clone(), end)
    }

    /// Returns the notes on a run, and the placement.
    fn notes(window: &Window) -> (String, Placement) {
        let mut report = Report::new("phases", "A run");
        let placement = add(&mut report, GameKind::TicTacToe, &window.metrics(), &WORK);
        (report.notes.join("\n"), placement)
    }

    #[test]
    fn without_an_accelerator_the_report_states_that_everything_is_on_the_cpu() {
        let (text, placement) = notes(&window("cpu", "cpu"));
        assert_eq!(placement, Placement::Cpu, "and needs no second run");
        for words in [
            "**everything is on the CPU**\ncopied to the learner's device: none; to that of self-play and back: none\n",
            "weights and activations of self-play (actor): on cpu, computed by CPU kernel, avx2\n",
            "parameters, activations, gradients (learner): on cpu, computed by a kernel, f32\n",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn tensors_are_where_the_processes_report_them_and_the_search_trees_on_the_cpu() {
        let (text, placement) = notes(&window("cuda", "cuda:1"));
        assert_eq!(placement, Placement::Accelerated);
        assert!(!text.contains("everything is on the CPU"), "{text}");
        for (what, expected) in [
            ("parameters, activations, gradients (learner)", "cuda"),
            ("batches as they are trained on (learner)", "cuda"),
            ("moments of the optimiser (learner)", "cpu"),
            ("weights and activations of self-play (actor)", "cuda:1"),
            ("positions, trees, position cache (actor)", "cpu"),
            ("weights and activations of rated games (arena)", "unknown"),
        ] {
            assert!(text.contains(&format!("{what}: on {expected}, computed by ")), "{what}: {text}");
        }
    }

    #[test]
    fn the_settings_that_place_everything_on_the_cpu_are_keys_of_the_run_file() {
        for set in ON_THE_CPU {
            let (_, key) = set.split_once('.').unwrap();
            let (key, _) = key.split_once('=').unwrap();
            let section = toml::to_string(&RunFile::default()).unwrap();
            assert!(section.contains(&format!("\n{key} = ")), "{set}");
        }
    }

    const WORK: [Value; 4] = [
        ("evaluations/s", Unit::PerSecond, Some(600.0)),
        ("mean batch", Unit::Count, Some(60.0)),
        ("training steps/s", Unit::PerSecond, Some(2.0)),
        ("positions trained on/s", Unit::PerSecond, Some(100.0)),
    ];

    #[test]
    fn an_accelerator_is_sent_every_batch() {
        let found = copies(GameKind::TicTacToe, Some("cuda"), Some("cuda:1"), &WORK);
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
        let found = copies(GameKind::TicTacToe, None, None, &WORK);
        assert_eq!(found, "copied to the learner's device: unknown; to that of self-play and back: unknown");
    }
}
