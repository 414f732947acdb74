use std::collections::BTreeMap;
use std::time::Duration;

use super::{Ask, Next, Queue, QueueSettings, Reason, Refused};

const BATCH_MAX: usize = 64;

fn settings() -> QueueSettings {
    QueueSettings { batch_max: BATCH_MAX, delay: Duration::ZERO, waiting_max: 1024, evaluators: 1 }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn ask(client: u64, positions: usize) -> Ask<usize> {
    Ask { client, version: 1, positions, deadline: None, payload: 0 }
}

fn push(queue: &mut Queue<usize>, ask: Ask<usize>) {
    queue.push(ask, Duration::ZERO).expect("there is room");
}

fn batch(queue: &mut Queue<usize>, now: Duration) -> (Vec<Ask<usize>>, Reason) {
    match queue.next(now) {
        Next::Batch { asks, reason } => (asks, reason),
        Next::Wait(until) => panic!("a batch is due, not a wait until {until:?}"),
    }
}

fn by_client(asks: &[Ask<usize>]) -> BTreeMap<u64, usize> {
    let mut positions = BTreeMap::new();
    asks.iter().for_each(|ask| *positions.entry(ask.client).or_default() += ask.positions);
    positions
}

#[test]
fn an_evaluator_that_is_free_takes_what_there_is() {
    let mut queue = Queue::new(settings());
    assert!(matches!(queue.next(Duration::ZERO), Next::Wait(None)));
    push(&mut queue, ask(1, 3));
    push(&mut queue, ask(2, 5));
    let (asks, reason) = batch(&mut queue, Duration::ZERO);
    assert_eq!((by_client(&asks), reason), (BTreeMap::from([(1, 3), (2, 5)]), Reason::Idle));
    assert!(matches!(queue.next(Duration::ZERO), Next::Wait(None)));
}

#[test]
fn a_batch_waits_for_its_delay_and_no_longer_and_not_at_all_once_it_is_full() {
    let mut queue = Queue::new(QueueSettings { delay: ms(5), ..settings() });
    queue.push(ask(1, 3), ms(10)).expect("there is room");
    assert!(matches!(queue.next(ms(11)), Next::Wait(Some(until)) if until == ms(15)));
    assert_eq!(batch(&mut queue, ms(15)).1, Reason::Delay);

    queue.push(ask(1, BATCH_MAX - 1), ms(20)).expect("there is room");
    queue.push(ask(2, 1), ms(20)).expect("there is room");
    assert_eq!(batch(&mut queue, ms(20)).1, Reason::Full);
}

#[test]
fn a_batch_holds_no_more_than_it_may_except_one_ask_that_is_larger() {
    let mut queue = Queue::new(settings());
    for _ in 0..3 {
        push(&mut queue, ask(1, 30));
    }
    let (asks, reason) = batch(&mut queue, Duration::ZERO);
    assert_eq!((asks.len(), reason), (2, Reason::Full));
    push(&mut queue, ask(2, 500));
    let sizes = |asks: Vec<Ask<usize>>| asks.iter().map(|ask| ask.positions).collect::<Vec<_>>();
    let (first, second) = (batch(&mut queue, Duration::ZERO).0, batch(&mut queue, Duration::ZERO).0);
    let mut sizes = [sizes(first), sizes(second)];
    sizes.sort();
    assert_eq!(sizes, [vec![30], vec![500]]);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn a_client_that_floods_the_queue_leaves_the_others_their_share_of_every_batch() {
    let mut queue = Queue::new(QueueSettings { waiting_max: 100_000, ..settings() });
    for _ in 0..1000 {
        push(&mut queue, ask(1, 16));
    }
    for client in 2..=4 {
        for _ in 0..200 {
            push(&mut queue, ask(client, 1));
        }
    }
    let mut served: BTreeMap<u64, usize> = BTreeMap::new();
    for _ in 0..12 {
        for (client, positions) in by_client(&batch(&mut queue, Duration::ZERO).0) {
            *served.entry(client).or_default() += positions;
        }
    }
    for client in 1..=4 {
        let positions = served[&client];
        assert!((180..=204).contains(&positions), "client {client} has {positions} of 768, its share is 192");
    }
}

#[test]
fn the_asks_of_one_client_are_served_in_order() {
    let mut queue = Queue::new(settings());
    for (number, positions) in [40, 3, 60, 1, 7].into_iter().enumerate() {
        push(&mut queue, Ask { payload: number, ..ask(1, positions) });
    }
    let mut order = Vec::new();
    while queue.waiting() > 0 {
        order.extend(batch(&mut queue, Duration::ZERO).0.into_iter().map(|ask| ask.payload));
    }
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn a_batch_is_of_one_weights_version_and_nobody_starves_for_theirs() {
    let mut queue = Queue::new(settings());
    for number in 0..40 {
        push(&mut queue, Ask { version: number % 2, ..ask(number % 3, 4) });
    }
    let mut batches = 0;
    while queue.waiting() > 0 {
        let (asks, _) = batch(&mut queue, Duration::ZERO);
        assert!(asks.iter().all(|ask| ask.version == asks[0].version));
        batches += 1;
        assert!(batches <= 40, "no batch is empty");
    }
}

#[test]
fn what_would_be_answered_after_its_deadline_is_refused_at_once_with_what_to_expect() {
    let mut queue = Queue::new(settings());
    push(&mut queue, ask(1, 10));
    let _ = batch(&mut queue, Duration::ZERO);
    // A hundred positions a second.
    queue.done(10, Some(ms(100)));
    push(&mut queue, ask(1, 50));
    assert_eq!(queue.expected(10), ms(600));
    let late = Ask { deadline: Some(ms(1500)), ..ask(2, 10) };
    let (refused, _) = queue.push(late, ms(1000)).expect_err("it would be answered at 1600 ms");
    assert_eq!(refused, Refused::Late { expected: ms(600), retry_after: ms(300) });
    let (_, tight) =
        queue.push(Ask { deadline: Some(ms(1899)), ..ask(2, 10) }, ms(1000)).expect_err("no margin is left");
    queue
        .push(Ask { deadline: Some(ms(1900)), ..tight }, ms(1000))
        .expect("in time, also if it takes half as long again");
}

#[test]
fn as_many_positions_wait_as_may_and_an_ask_that_finds_nobody_waiting_is_always_taken() {
    let mut queue = Queue::new(QueueSettings { waiting_max: 100, ..settings() });
    push(&mut queue, ask(1, 400));
    let (refused, ask) = queue.push(ask(2, 1), Duration::ZERO).expect_err("the queue is full");
    assert!(matches!(refused, Refused::Full { .. }));
    let _ = batch(&mut queue, Duration::ZERO);
    push(&mut queue, ask);
}

#[test]
fn asks_that_nobody_waits_for_leave_the_queue() {
    let mut queue = Queue::new(settings());
    push(&mut queue, Ask { payload: 1, ..ask(1, 5) });
    push(&mut queue, Ask { deadline: Some(ms(10)), ..ask(1, 6) });
    push(&mut queue, ask(2, 7));
    let removed = queue.remove(ms(10), |&payload| payload == 0);
    assert_eq!(removed.iter().map(|ask| ask.positions).collect::<Vec<_>>(), [5, 6]);
    assert_eq!((queue.waiting(), queue.clients()), (7, 1));
}

#[test]
fn whatever_comes_in_whatever_order_everything_leaves_once() {
    // A linear congruential generator is enough of a random source here; the seed is fixed.
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut queue = Queue::new(QueueSettings { waiting_max: 500, evaluators: 2, ..settings() });
    let (mut pushed, mut left, mut now) = (0_usize, Vec::new(), Duration::ZERO);
    for _ in 0..20_000 {
        now += Duration::from_micros(random(50));
        match random(3) {
            0 | 1 => {
                let ask = Ask {
                    client: random(5),
                    version: random(2),
                    positions: usize::try_from(1 + random(100)).unwrap(),
                    deadline: (random(4) == 0).then(|| now + Duration::from_micros(random(2000))),
                    payload: pushed,
                };
                // The number of one that is refused is the next one's.
                pushed += usize::from(queue.push(ask, now).is_ok());
            }
            _ => {
                left.extend(queue.remove(now, |_| true).into_iter().map(|ask| ask.payload));
                if let Next::Batch { asks, .. } = queue.next(now) {
                    let positions: usize = asks.iter().map(|ask| ask.positions).sum();
                    assert!(positions <= BATCH_MAX || asks.len() == 1, "{positions} positions in {} asks", asks.len());
                    queue.done(positions, Some(Duration::from_micros(10 * positions as u64)));
                    left.extend(asks.into_iter().map(|ask| ask.payload));
                }
            }
        }
        assert_eq!(queue.waiting() == 0, queue.clients() == 0);
    }
    left.extend(queue.clear().into_iter().map(|ask| ask.payload));
    left.sort_unstable();
    assert_eq!(left, (0..pushed).collect::<Vec<_>>());
}
