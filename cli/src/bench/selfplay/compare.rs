use std::path::Path;

use super::report::{Compared, EvaluatorSpeed, Report};

/// Adds the ratios to an earlier report of the same game, network and simulations.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Report) {
    let what = |report: &Report| (report.game.clone(), report.network.clone(), report.simulations);
    let is_same = what(report) == what(earlier);
    let ratio = |now: Option<f64>, before: Option<f64>| {
        let (now, before) = (now?, before?);
        (is_same && before > 0.0).then(|| now / before)
    };
    let best = |report: &Report| -> Option<f64> {
        let speeds = report.evaluator.iter();
        speeds.map(|&EvaluatorSpeed { evaluations_per_second, .. }| evaluations_per_second).max_by(f64::total_cmp)
    };
    let plain = |report: &Report| report.plain.map(|speed| speed.evaluations_per_second);
    let whole = |report: &Report| Some(report.whole.positions_per_second);
    report.compared = Some(Compared {
        file: path.display().to_string(),
        cpu: earlier.cpu.clone(),
        evaluator: ratio(best(report), best(earlier)),
        plain: ratio(plain(report), plain(earlier)),
        whole: ratio(whole(report), whole(earlier)),
    });
}

#[cfg(test)]
mod tests;
