//! The seeds that every run of the tests executes.

use crate::plan::{STEPS, plan};
use crate::run::{Story, run};

/// The seeds in CI: a minute on one core.
const SEEDS_IN_CI: u64 = 60;

#[test]
fn no_seed_breaks_a_promise_and_each_repeats_bit_for_bit() {
    for seed in 0..SEEDS_IN_CI {
        let steps = plan(seed);
        let [first, second] = [Story::Untold, Story::Told].map(|story| run(seed, &steps, story));
        assert_eq!(first.violation, None, "seed {seed}: see it with `cargo xtask simulate --first {seed} --seeds 1`");
        assert_eq!(first.digest, second.digest, "seed {seed} has two digests");
        assert!(first.events >= 500, "seed {seed} has {} events", first.events);
    }
}

#[test]
fn a_plan_without_steps_ends_with_progress_of_every_actor() {
    let outcome = run(1, &[], Story::Told);
    assert_eq!(outcome.violation, None, "{:?}", outcome.story);
    assert!(outcome.fired.contains_key("progress"));
}

#[test]
fn steps_may_be_removed_from_a_plan_in_any_place() {
    let steps = plan(3);
    for removed in 1..6 {
        let kept: Vec<_> =
            steps.iter().enumerate().filter(|(at, _)| at % 6 >= removed).map(|(_, step)| *step).collect();
        assert_eq!(run(3, &kept, Story::Untold).violation, None, "{} of {STEPS} steps", kept.len());
    }
}
