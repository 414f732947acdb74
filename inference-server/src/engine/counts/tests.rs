use std::time::Duration;

use inference::queue::Reason;

use super::Counts;

fn counts(batches: &[(usize, Reason)]) -> Counts {
    let mut counts = Counts::default();
    for &(positions, reason) in batches {
        counts.add_batch(positions, reason, Duration::from_micros(10), [Duration::ZERO].into_iter());
    }
    counts
}

#[test]
fn batches_are_counted_by_size_and_reason() {
    let counts = counts(&[(1, Reason::Idle), (3, Reason::Idle), (4, Reason::Delay), (64, Reason::Full)]);
    let by_size: Vec<_> = counts.by_batch_size.iter().map(|b| (b.size, b.full, b.delay, b.idle)).collect();
    assert_eq!(by_size, [(1, 0, 0, 1), (4, 0, 1, 1), (64, 1, 0, 0)]);
    assert_eq!((counts.batches, counts.positions, counts.compute_time), (4, 72, Duration::from_micros(40)));
}

#[test]
fn why_batches_are_small_is_said_in_words() {
    assert_eq!(Counts::default().explain(64), "nothing was asked yet");
    let said = |batches: &[(usize, Reason)]| counts(batches).explain(64);
    assert!(said(&[(64, Reason::Full); 3]).contains("hold 64.0 of 64 positions on average; 100 % left full"));
    assert!(said(&[(2, Reason::Idle); 3]).contains("an evaluator was free, with asks of 2.0 positions"));
    assert!(said(&[(2, Reason::Delay); 3]).contains("inference.queue_delay_us"));
}
