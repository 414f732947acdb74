use proptest::prelude::*;

use super::*;

/// Runs a script of the operations `insert`, `sample`, `delete` and `restore` on a new limiter, each with one item
/// (`insert 3` for three). Operations marked `ok` must be allowed and are counted. Operations marked `wait` must be
/// blocked.
fn check(settings: RateLimiterSettings, script: &str) {
    let mut limiter = RateLimiter::new(settings);
    for (at, line) in script.split('|').map(str::trim).enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (verb, items, expected) = match words[..] {
            [verb, expected] => (verb, 1, expected),
            [verb, items, expected] => (verb, items.parse().unwrap(), expected),
            _ => panic!("{line}"),
        };
        let answer = match verb {
            "insert" => limiter.can_insert(items),
            "sample" => limiter.can_sample(items),
            "delete" | "restore" => Ok(()),
            _ => panic!("{line}"),
        };
        let verdict = if answer.is_ok() { "ok" } else { "wait" };
        assert_eq!(verdict, expected, "step {at} `{line}` of `{script}`: {answer:?} with {limiter:?}");
        match (answer, verb) {
            (Ok(()), "insert") => limiter.insert(items),
            (Ok(()), "sample") => limiter.sample(items),
            (Ok(()), "delete") => limiter.delete(items),
            (Ok(()), _) => limiter.restore(items),
            (Err(_), _) => {}
        }
    }
}

fn ratio(samples_per_insert: f64, min_items: u64, error: f64) -> RateLimiterSettings {
    RateLimiterSettings { samples_per_insert, min_items, error_items: error }
}

#[test]
fn samples_wait_until_the_table_holds_its_minimum() {
    check(ratio(1.0, 2, 1.0), "insert ok | sample wait | insert ok | sample ok");
}

#[test]
fn inserts_wait_for_the_learner_once_the_error_is_used_up() {
    check(ratio(1.0, 1, 2.0), "insert ok | insert ok | insert ok | insert wait | sample ok | insert ok | insert wait");
}

#[test]
fn samples_wait_for_the_actors_once_the_error_is_used_up() {
    check(ratio(2.0, 1, 2.0), "insert ok | sample ok | sample ok | sample wait | insert ok | sample ok | sample ok");
}

#[test]
fn inserts_below_the_minimum_never_wait() {
    check(ratio(100.0, 5, 100.0), "insert 5 ok | insert ok | insert wait | sample 100 ok | insert ok");
}

#[test]
fn a_batch_waits_for_all_of_its_items() {
    check(ratio(1.0, 4, 2.0), "insert 4 ok | sample 3 wait | sample 2 ok | sample wait | insert ok | sample ok");
}

/// As in Reverb, removals can reduce a table below the minimum again.
#[test]
fn deleting_below_the_minimum_makes_samples_wait_again() {
    check(ratio(1.0, 2, 9.0), "insert 2 ok | sample ok | delete ok | sample wait | insert ok | sample ok");
}

#[test]
fn restored_items_count_towards_the_minimum_and_not_towards_the_ratio() {
    check(
        ratio(1.0, 2, 1.0),
        "insert 3 ok | delete 2 ok | sample wait | restore ok | sample ok | sample ok | sample wait",
    );
}

#[test]
fn changed_settings_decide_as_if_they_had_held_from_the_beginning() {
    let mut changed = RateLimiter::new(ratio(4.0, 2, 4.0));
    let mut other = RateLimiter::new(ratio(1.0, 3, 2.0));
    for limiter in [&mut changed, &mut other] {
        limiter.insert(9);
        limiter.delete(2);
        limiter.sample(7);
    }
    changed.change(ratio(1.0, 3, 2.0));
    assert_eq!(changed, other);
    assert_eq!(changed.can_sample(2).unwrap_err(), other.can_sample(2).unwrap_err());
}

#[test]
fn a_refused_insert_or_sample_states_its_reason() {
    let mut limiter = RateLimiter::new(ratio(2.0, 3, 2.0));
    limiter.insert(1);
    assert_eq!(limiter.can_sample(1).unwrap_err().to_string(), "the table holds 1 of 3 items required for sampling");
    limiter.insert(3);
    assert_eq!(
        limiter.can_insert(1).unwrap_err().to_string(),
        "waiting for the learner: 4 inserted items exceed 2 samples per insert by more than 2 after 0 samples"
    );
    limiter.sample(4);
    assert_eq!(
        limiter.can_sample(1).unwrap_err().to_string(),
        "waiting for the actors: 4 samples of 4 inserted items exceed 2 samples per insert by more than 2"
    );
}

#[test]
fn settings_that_could_block_both_sides_are_refused() {
    let reason = ratio(8.0, 1, 7.0).check().unwrap_err().reason;
    assert_eq!(reason, "must be at least 8, got 7, which could block both sides forever");
}

#[test]
fn a_limiter_resumed_from_counts_equals_the_original() {
    let mut first = RateLimiter::new(ratio(2.0, 2, 3.0));
    first.insert(3);
    first.sample(2);
    let mut second = RateLimiter::new(ratio(2.0, 2, 3.0));
    second.resume(first.counts());
    assert_eq!(first, second);
}

/// Checks the condition in the Reverb documentation, one item at a time.
fn naive(settings: RateLimiterSettings, inserted: u64, deleted: u64, sampled: u64) -> (bool, bool) {
    let RateLimiterSettings { samples_per_insert, min_items, error_items: error } = settings;
    let off = |inserted: f64, sampled: f64| (inserted - min_items as f64) * samples_per_insert - sampled;
    let (inserts, samples, held) = (inserted as f64, sampled as f64, inserted - deleted);
    let insert = held < min_items || off(inserts + 1.0, samples) <= error;
    let sample = held >= min_items && off(inserts, samples + 1.0) >= -error;
    (insert, sample)
}

proptest! {
    #[test]
    fn the_cursor_agrees_with_the_error_of_the_ratio(
        quarters in 1_u32..64, min_items in 1_u64..20, slack in 0_u32..20, script in prop::collection::vec(0_u8..3, 1..200),
    ) {
        // Quarters keep every sum exact, so that the two forms of the inequality cannot differ by rounding.
        let samples_per_insert = f64::from(quarters) / 4.0;
        let settings = ratio(samples_per_insert, min_items, samples_per_insert.max(1.0) + f64::from(slack));
        let mut limiter = RateLimiter::new(settings);
        for step in script {
            let RateLimiterCounts { inserted, deleted, sampled } = limiter.counts();
            let answers = (limiter.can_insert(1).is_ok(), limiter.can_sample(1).is_ok());
            prop_assert_eq!(answers, naive(settings, inserted, deleted, sampled));
            match step {
                0 if answers.0 => limiter.insert(1),
                1 if answers.1 => limiter.sample(1),
                2 if inserted > deleted => limiter.delete(1),
                _ => {}
            }
        }
    }

    /// As in the server, a whole trajectory is inserted once the first item may be inserted.
    #[test]
    fn the_cursor_leaves_the_band_by_the_other_items_of_one_trajectory_at_most(
        quarters in 1_u32..64, min_items in 1_u64..20, slack in 0_u32..20,
        script in prop::collection::vec((any::<bool>(), 1_u64..50), 1..200),
    ) {
        let samples_per_insert = f64::from(quarters) / 4.0;
        let settings = ratio(samples_per_insert, min_items, samples_per_insert.max(1.0) + f64::from(slack));
        let offset = min_items as f64 * samples_per_insert;
        let (least, greatest) = (offset - settings.error_items, offset + settings.error_items);
        let mut limiter = RateLimiter::new(settings);
        let mut most_items = 1;
        for (insert, items) in script {
            if insert && limiter.can_insert(1).is_ok() {
                limiter.insert(items);
                most_items = most_items.max(items);
            }
            if !insert && limiter.can_sample(items).is_ok() {
                limiter.sample(items);
                prop_assert!(limiter.cursor() >= least, "{:?}", limiter);
            }
            let beyond = (most_items - 1) as f64 * samples_per_insert;
            prop_assert!(limiter.cursor() <= greatest + beyond, "{:?}", limiter);
        }
    }

    #[test]
    fn without_deletions_an_insert_or_a_batch_of_samples_is_always_allowed(
        quarters in 1_u32..64, min_items in 1_u64..20, slack in 0_u32..20,
        script in prop::collection::vec((any::<bool>(), 1_u64..50), 1..200),
    ) {
        let samples_per_insert = f64::from(quarters) / 4.0;
        let settings = ratio(samples_per_insert, min_items, samples_per_insert.max(1.0) + f64::from(slack));
        let mut limiter = RateLimiter::new(settings);
        let batch = settings.batch_items_max();
        for (insert, items) in script {
            prop_assert!(limiter.can_insert(1).is_ok() || limiter.can_sample(batch).is_ok(), "{:?}", limiter);
            // As in the server, a whole trajectory is inserted once the first item may be inserted.
            if insert && limiter.can_insert(1).is_ok() {
                limiter.insert(items);
            }
            if !insert && limiter.can_sample(batch).is_ok() {
                limiter.sample(batch);
            }
        }
    }
}
