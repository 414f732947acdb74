use std::path::Path;

use super::report::{Compared, Phase, Report, ThreadsName};

/// Adds to every share its change since the earlier report, and to speeds their ratios.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Report) {
    let ratio = |now: Option<f64>, before: Option<f64>| {
        now.zip(before).filter(|(_, before)| *before > 0.0).map(|(now, before)| now / before)
    };
    let (now, before) = (&report.rates, &earlier.rates);
    report.compared = Some(Compared {
        file: path.display().to_string(),
        cpu: earlier.cpu.clone(),
        positions_ratio: ratio(now.positions_per_second, before.positions_per_second),
        training_positions_ratio: ratio(now.training_positions_per_second, before.training_positions_per_second),
    });
    for threads in &mut report.threads {
        for time in &mut threads.phases {
            let before = wall_share(earlier, threads.name, time.phase);
            time.wall_share_change = before.map(|before| time.wall_share - before);
        }
    }
}

fn wall_share(report: &Report, name: ThreadsName, phase: Phase) -> Option<f64> {
    let threads = report.threads.iter().find(|threads| threads.name == name)?;
    threads.phases.iter().find(|time| time.phase == phase).map(|time| time.wall_share)
}

#[cfg(test)]
mod tests;
