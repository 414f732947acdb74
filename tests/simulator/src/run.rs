//! Executes a plan.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use replay_server::defect::Defect;

use crate::oracle::{Checked, Promise, Violation};
use crate::plan::Step;
use crate::trace::Trace;
use crate::world::World;

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The first broken promise, if there is one.
    pub violation: Option<Violation>,
    /// Digest of everything that happened.
    pub digest: blake3::Hash,
    /// Number of events.
    pub events: u64,
    /// Counts of taken branches.
    pub fired: BTreeMap<&'static str, u64>,
    /// The events as sentences, if requested.
    pub story: Vec<String>,
}

/// Storage of a run's events as sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Story {
    /// Keeps the sentences.
    Kept,
    /// Drops the sentences.
    Dropped,
}

/// Executes the steps of a plan in the world of a seed, then the final part without faults.
#[must_use]
pub fn run(seed: u64, steps: &[Step], story: Story) -> Outcome {
    run_with(seed, steps, story, None)
}

/// As [`run`], with a planted defect of the server.
#[must_use]
pub fn run_with(seed: u64, steps: &[Step], story: Story, defect: Option<Defect>) -> Outcome {
    let trace = if story == Story::Kept { Trace::with_story() } else { Trace::default() };
    let mut world = World::new(seed, trace, defect);
    let checked = catch_unwind(AssertUnwindSafe(|| execute(&mut world, seed, steps)));
    let checked = checked.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text");
        Err(Violation { promise: Promise::Panic, what: text.to_owned() })
    });
    if let Err(violation) = &checked {
        world.note("violation", format!("broken: {violation}"));
    }
    let (digest, events) = (world.trace.digest(), world.trace.events());
    let (story, fired) = world.trace.into_parts();
    Outcome { violation: checked.err(), digest, events, fired, story }
}

fn execute(world: &mut World, seed: u64, steps: &[Step]) -> Checked {
    world.start()?;
    for &step in steps {
        world.step(step)?;
    }
    world.settle(seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{STEPS, plan};

    /// Number of seeds in every test run: a minute on one core.
    const SEEDS_IN_CI: u64 = 60;

    #[test]
    fn no_seed_breaks_a_promise_and_each_repeats_bit_for_bit() {
        for seed in 0..SEEDS_IN_CI {
            let steps = plan(seed);
            let [first, second] = [Story::Dropped, Story::Kept].map(|story| run(seed, &steps, story));
            assert_eq!(
                first.violation, None,
                "seed {seed}: see it with `cargo xtask simulate --first {seed} --seeds 1`"
            );
            assert_eq!(first.digest, second.digest, "seed {seed} has two digests");
            assert!(first.events >= 500, "seed {seed} has {} events", first.events);
        }
    }

    #[test]
    fn a_plan_without_steps_ends_with_progress_of_every_actor() {
        let outcome = run(1, &[], Story::Kept);
        assert_eq!(outcome.violation, None, "{:?}", outcome.story);
        assert!(outcome.fired.contains_key("progress"));
    }

    #[test]
    fn steps_may_be_removed_from_a_plan_in_any_place() {
        let steps = plan(3);
        for removed in 1..6 {
            let kept: Vec<_> =
                steps.iter().enumerate().filter(|(at, _)| at % 6 >= removed).map(|(_, step)| *step).collect();
            assert_eq!(run(3, &kept, Story::Dropped).violation, None, "{} of {STEPS} steps", kept.len());
        }
    }
}
