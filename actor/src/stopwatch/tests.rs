use std::cell::Cell;

use game::Game as _;
use games::TicTacToe;
use inference::testing::Uniform;

use super::*;

thread_local! {
    static START: Instant = Instant::now();
    static ELAPSED: Cell<u64> = const { Cell::new(0) };
}

/// Every look at this clock takes a second.
fn clock() -> Instant {
    ELAPSED.set(ELAPSED.get() + 1);
    START.with(|start| *start) + Duration::from_secs(ELAPSED.get())
}

fn timed() -> Timed {
    Timed::new(Box::new(Uniform::new(TicTacToe::new().spec().observation)), clock)
}

fn parts(gathering: u64, evaluating: u64, answering: u64) -> Parts {
    let [gathering, evaluating, answering] = [gathering, evaluating, answering].map(Duration::from_secs);
    Parts { gathering, evaluating, answering }
}

#[test]
fn before_a_batch_is_gathering_and_after_it_answering() {
    let mut timed = timed();
    let batch = Batch::new(TicTacToe::new().spec().observation);
    timed.begin();
    timed.evaluate(&batch, &mut Predictions::new()).unwrap();
    assert_eq!(timed.end(), parts(1, 1, 1));
}

#[test]
fn a_call_without_a_batch_gathers_all_the_time() {
    let mut timed = timed();
    timed.begin();
    assert_eq!(timed.end(), parts(1, 0, 0));
}

#[test]
fn between_two_batches_the_next_is_gathered() {
    let mut timed = timed();
    let batch = Batch::new(TicTacToe::new().spec().observation);
    timed.begin();
    for _ in 0..3 {
        timed.evaluate(&batch, &mut Predictions::new()).unwrap();
    }
    assert_eq!(timed.end(), parts(3, 3, 1));
}

#[test]
fn a_call_does_not_count_what_came_before_it() {
    let mut timed = timed();
    let batch = Batch::new(TicTacToe::new().spec().observation);
    timed.begin();
    timed.evaluate(&batch, &mut Predictions::new()).unwrap();
    timed.end();
    timed.begin();
    assert_eq!(timed.end(), parts(1, 0, 0));
}
