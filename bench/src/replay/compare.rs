use std::path::Path;

use super::report::{Compared, Report};

/// Adds the ratio to every speed that the earlier report has too, for the same trajectories and batches.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Report) {
    report.compared = Some(Compared { file: path.display().to_string(), cpu: earlier.cpu.clone() });
    let what = |report: &Report| (report.steps, report.batch, report.unroll, report.in_flight);
    if what(report) != what(earlier) {
        return;
    }
    for now in &mut report.writers {
        if let Some(before) = earlier.writers.iter().find(|before| before.writers == now.writers) {
            now.inserts_ratio = Some(now.inserts_per_second / before.inserts_per_second);
            now.samples_ratio = Some(now.samples_per_second / before.samples_per_second);
        }
    }
    for now in &mut report.sizes {
        let before = earlier.sizes.iter().find(|before| before.positions == now.positions);
        now.samples_ratio = before.map(|before| now.samples_per_second / before.samples_per_second);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn speeds_are_compared_with_the_same_writers_and_sizes() {
        let (mut now, mut earlier) = (report(), report());
        earlier.cpu = "Another CPU".to_owned();
        earlier.writers[0].inserts_per_second /= 2.0;
        earlier.writers[0].samples_per_second /= 4.0;
        earlier.sizes[0].positions += 30;
        compare(&mut now, Path::new("before.json"), &earlier);
        assert_eq!((now.writers[0].inserts_ratio, now.writers[0].samples_ratio), (Some(2.0), Some(4.0)));
        assert_eq!(now.sizes[0].samples_ratio, None);
        assert_eq!(now.compared.unwrap().cpu, "Another CPU");
    }

    #[test]
    fn other_trajectories_are_not_compared() {
        let (mut now, mut earlier) = (report(), report());
        earlier.steps += 1;
        compare(&mut now, Path::new("before.json"), &earlier);
        assert!(now.writers.iter().all(|writers| writers.inserts_ratio.is_none()));
    }
}
