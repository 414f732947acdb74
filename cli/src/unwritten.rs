//! What a run cannot write now, most often because its disk is full: said when it begins and when it is over, and not in
//! between.

use std::collections::BTreeSet;
use std::path::Path;

use crate::exposition::Exposition;

/// What the learner may have to tell that it could not write, by its label, and what that is to people.
const OF_LEARNER: [(&str, &str); 2] = [("checkpoint", "a checkpoint"), ("weights", "new weights")];

/// What cannot be written now.
#[derive(Debug, Default)]
pub struct Unwritten {
    what: BTreeSet<&'static str>,
}

impl Unwritten {
    /// The supervisor tried to write its numbers and progress. What to say, if it is news.
    pub fn kept(&mut self, kept: &anyhow::Result<()>) -> Option<String> {
        self.news("the numbers of the run", kept.as_ref().err().map(|error| format!("{error:#}")))
    }

    /// The learner tells how its last tries went. What to say, if it is news.
    pub fn learner(&mut self, told: &Exposition, log: &Path) -> Vec<String> {
        let news = OF_LEARNER.iter().filter_map(|&(label, what)| {
            let failed = told.get("zerofleet_learner_unwritten", &[("what", label)])? > 0.0;
            self.news(what, failed.then(|| format!("see {}", log.display())))
        });
        news.collect()
    }

    fn news(&mut self, what: &'static str, failed: Option<String>) -> Option<String> {
        match failed {
            Some(why) => self.what.insert(what).then(|| {
                format!("cannot write {what} ({why}): make room; training goes on, and what failed is tried again")
            }),
            None => self.what.remove(what).then(|| format!("{what} could be written again")),
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn learner(unwritten: &mut Unwritten, checkpoint: u8) -> Vec<String> {
        let text = format!("zerofleet_learner_unwritten{{what=\"checkpoint\"}} {checkpoint}\n");
        unwritten.learner(&Exposition::parse(&text), Path::new("logs/learner.log"))
    }

    #[test]
    fn what_cannot_be_written_is_said_once_with_its_reason_and_once_more_when_it_is_over() {
        let mut unwritten = Unwritten::default();
        assert_eq!(unwritten.kept(&Ok(())), None);
        let full = Err(anyhow!("No space left on device").context("append to metrics.jsonl"));
        let said = unwritten.kept(&full).unwrap();
        assert!(
            said.starts_with("cannot write the numbers of the run (append to metrics.jsonl: No space left"),
            "{said}"
        );
        assert_eq!(unwritten.kept(&full), None);
        assert_eq!(unwritten.kept(&Ok(())).unwrap(), "the numbers of the run could be written again");
        assert_eq!(unwritten.kept(&Ok(())), None);
    }

    #[test]
    fn a_learner_that_cannot_write_is_told_of_and_one_that_does_not_answer_is_not() {
        let mut unwritten = Unwritten::default();
        assert_eq!(learner(&mut unwritten, 0), [""; 0]);
        let said = learner(&mut unwritten, 1);
        assert!(said[0].starts_with("cannot write a checkpoint (see logs/learner.log): make room"), "{said:?}");
        assert_eq!(unwritten.learner(&Exposition::default(), Path::new("")), [""; 0]);
        assert_eq!(learner(&mut unwritten, 1), [""; 0]);
        assert_eq!(learner(&mut unwritten, 0), ["a checkpoint could be written again"]);
    }
}
