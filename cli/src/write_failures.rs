//! Reports failed writes of a run, most often on a full disk: once when writes start to fail, and once when writes
//! succeed again.

use std::collections::BTreeSet;
use std::path::Path;

use fleet::exposition::Exposition;

/// Labels of the metric `zerofleet_learner_write_failed`, and the text to show for each.
const LEARNER_WRITES: [(&str, &str); 2] = [("checkpoint", "a checkpoint"), ("weights", "new weights")];

/// The set of writes that currently fail.
#[derive(Debug, Default)]
pub(crate) struct WriteFailures {
    failing: BTreeSet<&'static str>,
}

impl WriteFailures {
    /// Records the result of writing metrics and progress; returns a message if writing starts to fail or succeeds
    /// again.
    pub(crate) fn kept(&mut self, kept: &anyhow::Result<()>) -> Option<String> {
        self.change("the metrics of the run", kept.as_ref().err().map(|error| format!("{error:#}")))
    }

    /// Records the write status in the metrics of a learner; returns a message for each change.
    pub(crate) fn learner(&mut self, exposition: &Exposition, log: &Path) -> Vec<String> {
        let changes = LEARNER_WRITES.iter().filter_map(|&(label, what)| {
            let failed = exposition.get("zerofleet_learner_write_failed", &[("what", label)])? > 0.0;
            self.change(what, failed.then(|| format!("see {}", log.display())))
        });
        changes.collect()
    }

    fn change(&mut self, what: &'static str, failed: Option<String>) -> Option<String> {
        match failed {
            Some(why) => self.failing.insert(what).then(|| {
                format!("cannot write {what} ({why}): free disk space; training continues, and the write is retried")
            }),
            None => self.failing.remove(what).then(|| format!("{what} could be written again")),
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn learner(failures: &mut WriteFailures, checkpoint: u8) -> Vec<String> {
        let text = format!("zerofleet_learner_write_failed{{what=\"checkpoint\"}} {checkpoint}\n");
        failures.learner(&Exposition::parse(&text), Path::new("logs/learner.log"))
    }

    #[test]
    fn a_failed_write_is_reported_once_with_its_reason_and_once_when_it_is_over() {
        let mut failures = WriteFailures::default();
        assert_eq!(failures.kept(&Ok(())), None);
        let full = Err(anyhow!("No space left on device").context("append to metrics.jsonl"));
        let report = failures.kept(&full).unwrap();
        assert!(
            report.starts_with("cannot write the metrics of the run (append to metrics.jsonl: No space left"),
            "{report}"
        );
        assert_eq!(failures.kept(&full), None);
        assert_eq!(failures.kept(&Ok(())).unwrap(), "the metrics of the run could be written again");
        assert_eq!(failures.kept(&Ok(())), None);
    }

    #[test]
    fn a_learner_that_cannot_write_is_reported_and_one_that_does_not_answer_is_not() {
        let mut failures = WriteFailures::default();
        assert_eq!(learner(&mut failures, 0), [""; 0]);
        let report = learner(&mut failures, 1);
        assert!(
            report[0].starts_with("cannot write a checkpoint (see logs/learner.log): free disk space"),
            "{report:?}"
        );
        assert_eq!(failures.learner(&Exposition::default(), Path::new("")), [""; 0]);
        assert_eq!(learner(&mut failures, 1), [""; 0]);
        assert_eq!(learner(&mut failures, 0), ["a checkpoint could be written again"]);
    }
}
