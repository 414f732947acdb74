use std::path::Path;

use super::report::{Compared, Phase, Rates, Report, ThreadsName};

/// Adds to every share its change since the earlier report, and to speeds their ratios.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Report) {
    report.compared = Some(Compared::new(path, &earlier.cpu, &report.rates, &earlier.rates));
    for threads in &mut report.threads {
        for time in &mut threads.phases {
            let before = wall_share(earlier, threads.name, time.phase);
            time.wall_share_change = before.map(|before| time.wall_share - before);
        }
    }
}

impl Compared {
    /// Rates against those of an earlier report from this file.
    pub(crate) fn new(path: &Path, cpu: &str, now: &Rates, before: &Rates) -> Self {
        let ratio = |now: Option<f64>, before: Option<f64>| {
            now.zip(before).filter(|(_, before)| *before > 0.0).map(|(now, before)| now / before)
        };
        Self {
            file: path.display().to_string(),
            cpu: cpu.to_owned(),
            positions_ratio: ratio(now.positions_per_second, before.positions_per_second),
            training_positions_ratio: ratio(now.training_positions_per_second, before.training_positions_per_second),
        }
    }

    /// A line of a report.
    pub(crate) fn in_words(&self) -> String {
        let times = |ratio: Option<f64>| ratio.map_or_else(|| "not measured".to_owned(), |ratio| format!("{ratio:.2}"));
        let Self { file, cpu, positions_ratio, training_positions_ratio } = self;
        format!(
            "- change: to {file}, measured on {cpu}; moves/s {} times, positions trained on/s {} times as many\n",
            times(*positions_ratio),
            times(*training_positions_ratio),
        )
    }
}

fn wall_share(report: &Report, name: ThreadsName, phase: Phase) -> Option<f64> {
    let threads = report.threads.iter().find(|threads| threads.name == name)?;
    threads.phases.iter().find(|time| time.phase == phase).map(|time| time.wall_share)
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn shares_are_compared_with_the_same_phase_of_the_same_threads() {
        let (mut now, mut earlier) = (report(), report());
        earlier.cpu = "Another CPU".to_owned();
        earlier.threads.reverse();
        for threads in &mut earlier.threads {
            threads.phases.retain(|time| time.phase != Phase::Forward);
            threads.phases.iter_mut().for_each(|time| time.wall_share += 0.25);
        }
        earlier.rates.positions_per_second = now.rates.positions_per_second.map(|rate| rate / 2.0);
        earlier.rates.training_positions_per_second = Some(0.0);
        compare(&mut now, Path::new("before.json"), &earlier);
        for time in now.threads.iter().flat_map(|threads| &threads.phases) {
            let change = time.wall_share_change.map(|change| (change * 1e6).round() / 1e6);
            assert_eq!(change, (time.phase != Phase::Forward).then_some(-0.25), "{time:?}");
        }
        let compared = now.compared.unwrap();
        assert_eq!((compared.file.as_str(), compared.cpu.as_str()), ("before.json", "Another CPU"));
        assert_eq!((compared.positions_ratio, compared.training_positions_ratio), (Some(2.0), None));
    }
}
