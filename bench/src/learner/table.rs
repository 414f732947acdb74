//! The report: a row for each backend of each case, and for each learner with a replay server.

use super::backend::Backend;
use super::case::Case;
use super::{Args, Part, live};
use crate::replay::games::STEPS;
use crate::report::{Report, Unit};
use crate::training_run::Measured;

/// Section of training steps from memory.
pub(super) const SECTION: &str = "training steps";
/// Metric of training steps from memory, and of learners with a replay server.
pub(super) const SPEED: &str = "positions/s";

/// Returns a report without rows, with notes on the parts.
pub(super) fn empty_report(args: &Args) -> Report {
    let mut report = Report::new("learner", "Training steps on the CPU");
    if args.parts.contains(&Part::Steps) {
        report.note(
            "forward, losses, gradient, clipping, AdamW and the running average, from the same weights on the same batch in \
             memory; the first steps of all backends had the same results",
        );
        report.note("PyTorch: the faster of both memory formats; ratios are to the faster of eager and compiled");
        report.plot(SECTION, SPEED, None, Some("network"));
    }
    if args.parts.contains(&Part::Live) {
        let live::LiveArgs { live_seconds, warm_up_seconds } = args.live;
        let positions = live::POSITIONS;
        let sets: String = args.run.sets.iter().map(|set| format!(", {set}")).collect();
        report.note(format!(
            "live: a learner process draws from a replay server that holds {positions} positions of Connect Four in \
             trajectories of {STEPS} steps, publishes weights and writes checkpoints, on the same cores; {live_seconds} s, \
             {warm_up_seconds} s after the first step; PyTorch has no client of the replay server{sets}"
        ));
    }
    report.note_turns(args.turns);
    report
}

/// Result of one backend.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) backend: Backend,
    /// Positions/s; `None` if the backend cannot take these steps.
    pub(super) speed: Option<f64>,
    /// Instructions or memory format of the backend, or the reason why it cannot take these steps.
    pub(super) note: String,
}

/// Adds the measurements of a case: steps from memory, and a learner with a replay server if requested.
pub(super) fn add(report: &mut Report, case: &Case, outcomes: &[Outcome], live: Option<anyhow::Result<Measured>>) {
    let of_pytorch = outcomes.iter().filter(|outcome| outcome.backend.is_pytorch());
    let pytorch = of_pytorch.filter_map(|outcome| outcome.speed).max_by(f64::total_cmp);
    let ratio = |speed: Option<f64>, to: Option<f64>| speed.zip(to).map(|(speed, to)| speed / to);
    for Outcome { backend, speed, .. } in outcomes {
        report
            .at(SECTION, &dimensions(case, backend))
            .value(SPEED, Unit::PerSecond, *speed)
            .value("time of a step", Unit::Microseconds, speed.map(|speed| 1e6 * case.batch as f64 / speed))
            .value("over PyTorch", Unit::Ratio, ratio(*speed, pytorch));
    }
    let kernels = outcomes.iter().find(|outcome| outcome.backend == Backend::Kernels).and_then(|kernels| kernels.speed);
    let of_backend = |Outcome { backend, speed, note }: &Outcome| {
        let not_measured = if speed.is_none() { "not measured: " } else { "" };
        (!note.is_empty()).then(|| format!("{backend}: {not_measured}{note}"))
    };
    let mut lines: Vec<String> = outcomes.iter().filter_map(of_backend).collect();
    match live {
        Some(Ok(measured)) => live::add(report, case, &measured, kernels),
        Some(Err(error)) => lines.push(format!("live: not measured: {}", service::chain(&error))),
        None => {}
    }
    let headline =
        ratio(kernels, pytorch).map_or(String::new(), |ratio| format!(": kernels over PyTorch: ×{ratio:.2}"));
    let lines: String = lines.iter().map(|line| format!("\n- {line}")).collect();
    report.finding(format!("{case}{headline}{lines}"));
}

/// Returns the dimensions of a row of a case.
pub(super) fn dimensions<'a>(case: &'a Case, backend: &'a dyn ToString) -> [(&'static str, &'a dyn ToString); 5] {
    let Case { network, batch, precision, threads } = case;
    [("network", network), ("batch", batch), ("precision", precision), ("threads", threads), ("backend", backend)]
}

#[cfg(test)]
mod tests {
    use network_torch::Precision;

    use super::*;
    use crate::network::NetworkSize;

    /// Returns a report of made-up speeds.
    fn report() -> Report {
        let network = NetworkSize { blocks: 4, channels: 64, height: 6, width: 7 };
        let case = Case { network, batch: 256, precision: Precision::F32, threads: 1 };
        let outcome = |(backend, speed, note): (_, _, &str)| Outcome { backend, speed, note: note.to_owned() };
        let outcomes = [
            (Backend::Kernels, Some(1200.0), "avx2-f32"),
            (Backend::Libtorch, None, "out of memory"),
            (Backend::Pytorch, Some(400.0), "PyTorch 2, channels last"),
            (Backend::PytorchCompile, Some(300.0), "PyTorch 2, channels first"),
        ];
        let mut report = Report::new("learner", "Steps");
        add(&mut report, &case, &outcomes.map(outcome), Some(Ok(live::tests::measured(|_| ()))));
        report
    }

    #[test]
    fn ratios_are_to_the_faster_mode_of_pytorch_and_what_was_not_measured_has_a_row_and_a_reason() {
        let report = report();
        let of = |backend, metric| report.value(SECTION, &[("backend", backend), ("precision", "f32")], metric);
        assert_eq!((of("kernels", SPEED), of("kernels", "over PyTorch")), (Some(1200.0), Some(3.0)));
        assert_eq!((of("pytorch", "over PyTorch"), of("pytorch-compile", "over PyTorch")), (Some(1.0), Some(0.75)));
        assert_eq!(of("pytorch", "time of a step"), Some(640_000.0));
        let unknown = report.rows.iter().filter(|row| row.section == SECTION && row.value.is_none());
        assert_eq!(unknown.count(), 3, "{report:?}");
        let finding = &report.findings[0];
        for expected in [
            "4x64@6x7, batch 256, f32, 1 thread: kernels over PyTorch: ×3.00\n",
            "\n- kernels: avx2-f32",
            "\n- libtorch: not measured: out of memory",
        ] {
            assert!(finding.contains(expected), "{finding}");
        }
    }

    #[test]
    fn a_live_learner_is_reported_beside_the_speed_from_memory() {
        let report = report();
        let of = |metric| report.value(live::LIVE, &[("network", "4x64@6x7"), ("steps", "CPU kernels")], metric);
        assert_eq!((of(SPEED), of("of the speed from memory")), (Some(10_240.0), Some(10_240.0 / 1200.0)));
        assert_eq!((of("waiting for data"), of("of the fastest possible")), (Some(0.1), None));
        assert_eq!(report.value(SECTION, &[("backend", "kernels")], "over PyTorch"), Some(3.0));
    }
}
