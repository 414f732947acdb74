//! Tests of drivers on one thread in virtual time, over a network that delays and loses messages and can be
//! partitioned.

mod world;

use self::world::{Defect, LEARNERS_MAX, TIMEOUT, World};
use super::*;

/// Maximum time from the last fault until all learners are in one group: patience and step time of the waiting
/// learners, four status queries with the longest timeout, and two roll calls with the steps in between.
const HEALED_MAX: Duration = Duration::from_secs(60);

/// Runs a test on one thread, in virtual time that advances only while all tasks wait.
fn in_virtual_time<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(test)
}

/// Starts a learner with a response time of 1.5 s, then a second learner. Returns the sizes of the second learner's
/// groups.
async fn beside_a_slow_one(defect: Defect) -> Vec<usize> {
    let world = World::new(1, 2, defect);
    world.start(1);
    tokio::time::sleep(TIMEOUT).await;
    world.answers_after(1, Duration::from_millis(1500));
    world.start(0);
    tokio::time::sleep(4 * TIMEOUT).await;
    world.sizes_of_groups(0)
}

#[test]
fn a_learner_joins_another_one_that_answers_late_and_never_trains_alone() {
    let sizes = in_virtual_time(beside_a_slow_one(Defect::None));
    assert!(!sizes.is_empty() && sizes.iter().all(|&size| size == 2), "{sizes:?}");
    let sizes = in_virtual_time(beside_a_slow_one(Defect::LateMeansAway));
    assert_eq!(sizes.first(), Some(&1), "a late learner that counts as away is not joined");
}

#[test]
fn learners_with_one_index_end_with_the_names_of_both_endpoints() {
    for (own, other) in [(0, 1), (1, 0)] {
        let reason = in_virtual_time(async {
            let world = World::new(1, 2, Defect::None);
            world.answers_as(other, own);
            world.start(other);
            world.start(own);
            tokio::time::sleep(TIMEOUT).await;
            world.ended(own)
        });
        let reason = reason.expect("the learner trains");
        assert!(["http://learner-0", "http://learner-1", "learner.index"].iter().all(|name| reason.contains(name)));
    }
}

#[test]
fn a_learner_that_was_in_a_group_goes_on_beside_another_one_with_its_index() {
    in_virtual_time(async {
        let world = World::new(1, 2, Defect::None);
        world.start(0);
        world.start(1);
        tokio::time::sleep(2 * TIMEOUT).await;
        world.answers_as(1, 0);
        world.kill(1);
        world.start(1);
        let before = world.newest_numbers();
        tokio::time::sleep(4 * TIMEOUT).await;
        assert_eq!(world.ended(0), None);
        assert!(world.newest_numbers()[0] > before[0]);
    });
}

#[test]
fn both_sides_of_a_cut_publish_and_no_version_has_two_digests() {
    for learners in 2..=LEARNERS_MAX {
        in_virtual_time(async {
            let world = World::new(learners as u64, learners, Defect::None);
            (0..learners).for_each(|learner| world.start(learner));
            tokio::time::sleep(2 * TIMEOUT).await;
            let before = world.newest_numbers();
            world.cut(|learner| learner == 0);
            tokio::time::sleep(6 * TIMEOUT).await;
            let after = world.newest_numbers();
            assert!((0..learners).all(|learner| after[learner] > before[learner]), "{before:?} and {after:?}");
            world.heal();
            world.is_one_group_within(HEALED_MAX).await.unwrap();
            world.check().unwrap();
        });
    }
}

/// Runs learners with random faults from a seed, then without faults. Returns the first violated property.
fn run(seed: u64, defect: Defect) -> Result<(), String> {
    let learners = 2 + (seed % (LEARNERS_MAX as u64 - 1)) as usize;
    in_virtual_time(async {
        let world = World::new(seed, learners, defect);
        (0..learners).for_each(|learner| world.start(learner));
        world.trouble(Duration::from_secs(120)).await;
        world.heal();
        world.is_one_group_within(HEALED_MAX).await?;
        world.check()
    })
}

#[test]
fn under_faults_no_version_has_two_digests_and_learners_become_one_group_when_they_end() {
    for seed in 0..40 {
        if let Err(wrong) = run(seed, Defect::None) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn planted_defects_are_found() {
    for defect in [Defect::EveryNumber, Defect::NotNoted] {
        let is_found = |seed| run(seed, defect).is_err_and(|wrong| wrong.contains("publishes version"));
        assert!((0..400).any(is_found), "{defect:?}");
    }
}
