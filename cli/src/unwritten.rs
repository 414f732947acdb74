//! What a run cannot write now, most often because its disk is full: said when it begins and when it is over, and not in
//! between.

use std::collections::BTreeSet;
use std::path::Path;

use crate::exposition::Exposition;

#[cfg(test)]
mod tests;

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
