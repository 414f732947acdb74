//! Devices of all data in a run, and the bytes copied between devices.
//!
//! The devices of tensors are reported by libtorch and exported as metrics by the processes. Other data is in host
//! memory. Start with [`add`].

use fleet::Role;
use run_metrics::{DeviceUse, Processes};
use service::devices::CPU;

use crate::report::{Report, bytes};
use crate::training_run::Measured;

/// Settings that put everything on the CPU.
pub(super) const ON_THE_CPU: [&str; 3] = ["learner.device=cpu", "actor.device=cpu", "arena.device=cpu"];

/// Adds notes on the devices of a run, and on the copies to accelerators. Returns true if data is on an accelerator.
pub(super) fn add(report: &mut Report, Measured { window, accelerators, .. }: &Measured) -> bool {
    if accelerators.is_empty() {
        report.note("**everything is on the CPU**");
    }
    let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let rate = |rate: Option<f64>| known(rate.map(|rate| format!("{}/s", bytes(rate))));
    for DeviceUse { device, uploaded_per_second, downloaded_per_second, .. } in accelerators {
        let (to, back) = (rate(*uploaded_per_second), rate(*downloaded_per_second));
        report.note(format!("copied to {device}: {to}; back: {back}, by all programs"));
    }
    for (what, process, device, computed_by) in placed(&window.metrics()) {
        report.note(format!("{what} ({process}): on {}, computed by {}", known(device), known(computed_by)));
    }
    !accelerators.is_empty()
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
    use run_metrics::RunMetrics;

    use super::*;
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

    /// Returns the notes on a run, and whether data is on an accelerator.
    fn notes(window: Window) -> (String, bool) {
        let mut report = Report::new("phases", "A run");
        let mut accelerators = RunMetrics::of(&window.metrics()).devices;
        accelerators.retain(|used| used.device != CPU);
        let measured = Measured { config: RunFile::default(), actors: 1, window, accelerators };
        let is_accelerated = add(&mut report, &measured);
        (report.notes.join("\n"), is_accelerated)
    }

    #[test]
    fn without_an_accelerator_the_report_states_that_everything_is_on_the_cpu() {
        let (text, is_accelerated) = notes(window("cpu", "cpu"));
        assert!(!is_accelerated, "no second run is needed");
        assert!(!text.contains("copied to"), "{text}");
        for words in [
            "**everything is on the CPU**\n",
            "weights and activations of self-play (actor): on cpu, computed by CPU kernel, avx2\n",
            "parameters, activations, gradients (learner): on cpu, computed by a kernel, f32\n",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn tensors_are_where_the_processes_report_them_and_the_search_trees_on_the_cpu() {
        let (text, is_accelerated) = notes(window("cuda", "cuda:1"));
        assert!(is_accelerated);
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

    #[test]
    fn copies_to_an_accelerator_are_those_that_the_driver_measured() {
        let measured = "zerofleet_device_tensors{what=\"batch\",device=\"cuda\"} 1\n\
                        zerofleet_device_transfer_bytes_per_second{device=\"cuda\",direction=\"upload\"} 3000000";
        let (text, _) = notes(tests::window(10.0, vec![learner(measured)], vec![learner(measured)]));
        assert!(text.contains("copied to cuda: 3.00 MB/s; back: unknown, "), "{text}");
    }
}
