use futures::poll;
use std::pin::pin;

use super::*;
use crate::scripted::within;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(1 << 30);

#[tokio::test]
async fn as_many_as_allowed_have_a_turn_and_the_others_follow_in_order() {
    let turns = Turns::new(2);
    let first = within(turns.clone().next(NEVER)).await;
    let _second = within(turns.clone().next(NEVER)).await;
    let (mut third, mut fourth) = (pin!(turns.clone().next(NEVER)), pin!(turns.clone().next(NEVER)));
    assert!(poll!(third.as_mut()).is_pending() && poll!(fourth.as_mut()).is_pending());
    drop(first);
    let _third = within(third).await;
    assert!(poll!(fourth.as_mut()).is_pending());
}

#[tokio::test(start_paused = true)]
async fn one_that_never_ends_is_joined_by_the_next_when_its_time_is_over() {
    let turns = Turns::new(1);
    let started = tokio::time::Instant::now();
    let _stalled = turns.clone().next(Duration::from_secs(5)).await;
    let _next = turns.clone().next(NEVER).await;
    assert_eq!(started.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn one_who_leaves_while_waiting_takes_no_turn() {
    let turns = Turns::new(1);
    let first = within(turns.clone().next(NEVER)).await;
    {
        let mut gone = pin!(turns.clone().next(NEVER));
        assert!(poll!(gone.as_mut()).is_pending());
    }
    let mut last = pin!(turns.clone().next(NEVER));
    assert!(poll!(last.as_mut()).is_pending());
    drop(first);
    within(last).await;
}
