use std::sync::Arc;

use super::*;

const VALUE: Wdl = Wdl { win: 0.6, draw: 0.3, loss: 0.1 };

fn key(position: u64, weights_version: u64) -> CacheKey {
    CacheKey { position, weights_version }
}

fn holds(cache: &Cache, key: CacheKey) -> bool {
    cache.get(key, 2, &mut Predictions::new())
}

#[test]
fn a_hit_is_the_answer_to_the_last_bit() {
    let cache = Cache::new(10);
    let priors = [1.0 / 3.0, 2.0 / 3.0];
    cache.insert(key(7, 1), &priors, VALUE);
    let mut predictions = Predictions::new();
    assert!(cache.get(key(7, 1), 2, &mut predictions));
    assert_eq!(predictions.priors(0), priors);
    assert_eq!(predictions.value(0), VALUE);
}

#[test]
fn another_version_is_another_answer() {
    let cache = Cache::new(10);
    cache.insert(key(7, 1), &[0.5, 0.5], VALUE);
    assert!(!holds(&cache, key(7, 2)));
}

#[test]
fn an_answer_with_another_number_of_actions_is_a_miss() {
    let cache = Cache::new(10);
    cache.insert(key(7, 1), &[0.5, 0.3, 0.2], VALUE);
    let mut predictions = Predictions::new();
    assert!(!cache.get(key(7, 1), 2, &mut predictions));
    assert!(predictions.is_empty());
    assert!(cache.get(key(7, 1), 3, &mut predictions));
}

#[test]
fn it_never_holds_more_than_its_capacity() {
    for capacity in [0, 1, 2, 7, 100] {
        let cache = Cache::new(capacity);
        for position in 0..1000 {
            cache.insert(key(position, 1), &[0.5, 0.5], VALUE);
            assert!(cache.positions() <= capacity);
        }
    }
}

#[test]
fn what_is_asked_for_stays_and_the_rest_goes() {
    let cache = Cache::new(20);
    cache.insert(key(0, 1), &[0.5, 0.5], VALUE);
    for position in 1..500 {
        cache.insert(key(position, 1), &[0.5, 0.5], VALUE);
        assert!(holds(&cache, key(0, 1)), "after {position} others");
    }
    assert!(!holds(&cache, key(1, 1)));
    assert!(holds(&cache, key(499, 1)));
}

#[test]
fn forgotten_versions_go_and_do_not_come_back() {
    let cache = Cache::new(100);
    (0..10).for_each(|position| cache.insert(key(position, 1), &[0.5, 0.5], VALUE));
    cache.insert(key(0, 2), &[0.5, 0.5], VALUE);
    cache.forget_before(2);
    assert_eq!(cache.positions(), 1);
    cache.insert(key(3, 1), &[0.5, 0.5], VALUE);
    assert!(!holds(&cache, key(3, 1)));
    assert!(holds(&cache, key(0, 2)));
}

#[test]
fn threads_that_fill_it_together_keep_its_bound_and_read_right_answers() {
    let cache = Arc::new(Cache::new(64));
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let cache = Arc::clone(&cache);
            std::thread::spawn(move || {
                let mut predictions = Predictions::new();
                for i in 0..5000 {
                    let position = (i * 7 + thread) % 200;
                    let share = position as f32 / 200.0;
                    predictions.clear();
                    if cache.get(key(position, 1), 2, &mut predictions) {
                        assert_eq!(predictions.priors(0), [share, 1.0 - share]);
                    } else {
                        cache.insert(key(position, 1), &[share, 1.0 - share], VALUE);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(cache.positions() <= 64, "{}", cache.positions());
    let counted: usize = cache.generations.iter().map(|g| g.positions.load(Ordering::Relaxed)).sum();
    assert_eq!(counted, cache.positions(), "the counts agree with the maps");
}
