//! The report: a row for each backend of each case.

use super::backend::Backend;
use super::case::Case;
use super::{Args, Part};
use crate::report::{Report, Unit};

/// Section of training steps from memory.
pub(super) const SECTION: &str = "training steps";
/// Metric of training steps from memory.
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

/// Adds the measurements of a case.
pub(super) fn add(report: &mut Report, case: &Case, outcomes: &[Outcome]) {
    let of_pytorch = outcomes.iter().filter(|outcome| outcome.backend.is_pytorch());
    let pytorch = of_pytorch.filter_map(|outcome| outcome.speed).max_by(f64::total_cmp);
    let ratio = |speed: Option<f64>, to: Option<f64>| speed.zip(to).map(|(speed, to)| speed / to);
    let Case { network, batch, precision, threads } = case;
    for Outcome { backend, speed, .. } in outcomes {
        let conditions: [(&str, &dyn ToString); 5] = [
            ("network", network),
            ("batch", batch),
            ("precision", precision),
            ("threads", threads),
            ("backend", backend),
        ];
        report
            .at(SECTION, &conditions)
            .value(SPEED, Unit::PerSecond, *speed)
            .value("time of a step", Unit::Microseconds, speed.map(|speed| 1e6 * case.batch as f64 / speed))
            .value("over PyTorch", Unit::Ratio, ratio(*speed, pytorch));
    }
    let kernels = outcomes.iter().find(|outcome| outcome.backend == Backend::Kernels).and_then(|kernels| kernels.speed);
    let of_backend = |Outcome { backend, speed, note }: &Outcome| {
        let not_measured = if speed.is_none() { "not measured: " } else { "" };
        (!note.is_empty()).then(|| format!("{backend}: {not_measured}{note}"))
    };
    let headline =
        ratio(kernels, pytorch).map_or(String::new(), |ratio| format!(": kernels over PyTorch: ×{ratio:.2}"));
    let lines: String = outcomes.iter().filter_map(of_backend).map(|line| format!("\n- {line}")).collect();
    report.finding(format!("{case}{headline}{lines}"));
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
        add(&mut report, &case, &outcomes.map(outcome));
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
}
