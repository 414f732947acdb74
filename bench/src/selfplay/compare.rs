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
mod tests {
    use super::*;
    use crate::selfplay::tests::report;

    #[test]
    fn ratios_are_to_the_same_speeds_of_the_earlier_report() {
        let earlier = report();
        let mut now = earlier.clone();
        now.evaluator[0].evaluations_per_second *= 10.0;
        now.plain.as_mut().unwrap().evaluations_per_second *= 2.0;
        now.whole.positions_per_second *= 3.0;
        compare(&mut now, Path::new("before.json"), &earlier);
        let compared = now.compared.unwrap();
        let best = now.evaluator.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max);
        let before = earlier.evaluator.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max);
        assert_eq!(compared.evaluator, Some(best / before));
        assert_eq!((compared.plain, compared.whole), (Some(2.0), Some(3.0)));
        assert_eq!(compared.file, "before.json");
    }

    #[test]
    fn another_network_has_no_ratio() {
        let earlier = report();
        let mut now = Report { network: "20x256".to_owned(), ..earlier.clone() };
        compare(&mut now, Path::new("before.json"), &earlier);
        let compared = now.compared.unwrap();
        assert_eq!((compared.evaluator, compared.plain, compared.whole), (None, None, None));
    }
}
