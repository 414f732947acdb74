use std::path::Path;

use super::report::{Compared, LoadReport, Report, ScalingReport};

/// Ratios to an earlier report, of whatever both have.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Report) {
    report.compared = Some(Compared { file: path.display().to_string(), cpu: earlier.cpu.clone() });
    if let (Some(scaling), Some(earlier)) = (&mut report.scaling, &earlier.scaling) {
        compare_fleets(scaling, earlier);
    }
    if let (Some(load), Some(earlier)) = (&mut report.load, &earlier.load) {
        compare_fan_outs(load, earlier);
    }
}

fn compare_fleets(report: &mut ScalingReport, earlier: &ScalingReport) {
    let work = |of: &ScalingReport| (of.game.clone(), of.delay_us, of.games, of.simulations);
    if work(report) != work(earlier) {
        return;
    }
    for fleet in &mut report.fleets {
        let before = earlier.fleets.iter().find(|before| before.actors == fleet.actors);
        fleet.inserts_ratio = before.map(|before| fleet.inserts_per_second / before.inserts_per_second);
    }
}

fn compare_fan_outs(report: &mut LoadReport, earlier: &LoadReport) {
    if report.actors != earlier.actors {
        return;
    }
    for fan_out in &mut report.fan_outs {
        let before = earlier.fan_outs.iter().find(|before| before.network == fan_out.network);
        fan_out.seconds_ratio = before.map(|before| fan_out.last_seconds() / before.last_seconds());
    }
}
