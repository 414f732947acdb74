//! Removes steps from a failing plan as long as it fails: delta debugging (Zeller & Hildebrandt 2002).

use crate::oracle::Promise;
use crate::plan::Step;
use replay_server::defect::Defect;

use crate::run::{Story, run_with};

/// Returns a shorter plan that breaks the same promise and from which no single step can be removed. Makes at most
/// `runs_max` runs.
#[must_use]
pub fn shrink(seed: u64, steps: &[Step], promise: Promise, defect: Option<Defect>, runs_max: usize) -> Vec<Step> {
    let mut runs = 0;
    let mut fails = |steps: &[Step]| {
        runs += 1;
        let violation = run_with(seed, steps, Story::Dropped, defect).violation;
        (violation.is_some_and(|violation| violation.promise == promise), runs < runs_max)
    };
    let mut steps = steps.to_vec();
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        let mut removed = false;
        while at < steps.len() {
            let rest: Vec<Step> = steps
                .iter()
                .enumerate()
                .filter(|(i, _)| !(at..at + chunk).contains(i))
                .map(|(_, step)| *step)
                .collect();
            let (still_fails, may_go_on) = fails(&rest);
            if still_fails {
                (steps, removed) = (rest, true);
            } else {
                at += chunk;
            }
            if !may_go_on {
                return steps;
            }
        }
        chunk = if chunk == 1 && removed { 1 } else { chunk / 2 };
    }
    steps
}
