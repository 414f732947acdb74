use std::collections::BTreeMap;
use std::time::Duration;

use super::{Next, Queue, QueueSettings, Reason, Rejection, Request};

const BATCH_MAX: usize = 64;

fn settings() -> QueueSettings {
    QueueSettings { batch_max: BATCH_MAX, delay: Duration::ZERO, waiting_max: 1024, evaluators: 1 }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn request(client: u64, positions: usize) -> Request<usize> {
    Request { client, weights: 1, positions, deadline: None, payload: 0 }
}

fn push(queue: &mut Queue<usize>, request: Request<usize>) {
    queue.push(vec![request], Duration::ZERO).expect("there is room");
}

fn batch(queue: &mut Queue<usize>, now: Duration) -> (Vec<Request<usize>>, Reason) {
    match queue.next(now) {
        Next::Batch { requests, reason } => (requests, reason),
        Next::Wait(until) => panic!("a batch is due, not a wait until {until:?}"),
    }
}

fn by_client(requests: &[Request<usize>]) -> BTreeMap<u64, usize> {
    let mut positions = BTreeMap::new();
    requests.iter().for_each(|request| *positions.entry(request.client).or_default() += request.positions);
    positions
}

#[test]
fn an_idle_evaluator_takes_all_waiting_requests() {
    let mut queue = Queue::new(settings());
    assert!(matches!(queue.next(Duration::ZERO), Next::Wait(None)));
    push(&mut queue, request(1, 3));
    push(&mut queue, request(2, 5));
    let (requests, reason) = batch(&mut queue, Duration::ZERO);
    assert_eq!((by_client(&requests), reason), (BTreeMap::from([(1, 3), (2, 5)]), Reason::Idle));
    assert!(matches!(queue.next(Duration::ZERO), Next::Wait(None)));
}

#[test]
fn a_batch_waits_for_its_delay_and_no_longer_and_not_at_all_once_it_is_full() {
    let mut queue = Queue::new(QueueSettings { delay: ms(5), ..settings() });
    queue.push(vec![request(1, 3)], ms(10)).expect("there is room");
    assert!(matches!(queue.next(ms(11)), Next::Wait(Some(until)) if until == ms(15)));
    assert_eq!(batch(&mut queue, ms(15)).1, Reason::Delay);

    queue.push(vec![request(1, BATCH_MAX - 1)], ms(20)).expect("there is room");
    queue.push(vec![request(2, 1)], ms(20)).expect("there is room");
    assert_eq!(batch(&mut queue, ms(20)).1, Reason::Full);
}

#[test]
fn a_batch_exceeds_its_maximum_only_for_a_single_larger_request() {
    let mut queue = Queue::new(settings());
    for _ in 0..3 {
        push(&mut queue, request(1, 30));
    }
    let (requests, reason) = batch(&mut queue, Duration::ZERO);
    assert_eq!((requests.len(), reason), (2, Reason::Full));
    push(&mut queue, request(2, 500));
    let sizes = |requests: Vec<Request<usize>>| requests.iter().map(|request| request.positions).collect::<Vec<_>>();
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
        push(&mut queue, request(1, 16));
    }
    for client in 2..=4 {
        for _ in 0..200 {
            push(&mut queue, request(client, 1));
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
fn the_requests_of_one_client_are_served_in_order() {
    let mut queue = Queue::new(settings());
    for (number, positions) in [40, 3, 60, 1, 7].into_iter().enumerate() {
        push(&mut queue, Request { payload: number, ..request(1, positions) });
    }
    let mut order = Vec::new();
    while queue.waiting() > 0 {
        order.extend(batch(&mut queue, Duration::ZERO).0.into_iter().map(|request| request.payload));
    }
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn a_batch_is_of_one_set_of_weights_and_every_set_is_served() {
    let mut queue = Queue::new(settings());
    for number in 0..40 {
        push(&mut queue, Request { weights: number % 2, ..request(number % 3, 4) });
    }
    let mut batches = 0;
    while queue.waiting() > 0 {
        let (requests, _) = batch(&mut queue, Duration::ZERO);
        assert!(requests.iter().all(|request| request.weights == requests[0].weights));
        batches += 1;
        assert!(batches <= 40, "no batch is empty");
    }
}

#[test]
fn a_request_that_would_miss_its_deadline_is_refused_at_once_with_the_expected_wait() {
    let mut queue = Queue::new(settings());
    push(&mut queue, request(1, 10));
    let _ = batch(&mut queue, Duration::ZERO);
    // The speed is a hundred positions per second.
    queue.done(10, Some(ms(100)));
    push(&mut queue, request(1, 50));
    assert_eq!(queue.expected(queue.waiting(), 10), ms(600));
    let late = Request { deadline: Some(ms(1500)), ..request(2, 10) };
    let refused = queue.push(vec![late], ms(1000)).expect_err("it would be answered at 1600 ms");
    assert_eq!(refused, Rejection::Late { expected: ms(600), retry_after: ms(300) });
    let by = |deadline| Request { deadline: Some(ms(deadline)), ..request(2, 10) };
    queue.push(vec![by(1899)], ms(1000)).expect_err("no margin is left");
    queue.push(vec![by(1900)], ms(1000)).expect("in time, also if it takes half as long again");
}

#[test]
fn a_full_queue_refuses_requests_and_an_empty_queue_accepts_any_request() {
    let mut queue = Queue::new(QueueSettings { waiting_max: 100, ..settings() });
    push(&mut queue, request(1, 400));
    let refused = queue.push(vec![request(2, 1)], Duration::ZERO).expect_err("the queue is full");
    assert!(matches!(refused, Rejection::Full { .. }));
    let _ = batch(&mut queue, Duration::ZERO);
    push(&mut queue, request(2, 1));
}

#[test]
fn a_client_within_its_share_is_accepted_by_a_queue_that_others_have_filled() {
    let mut queue = Queue::new(QueueSettings { waiting_max: 100, ..settings() });
    for _ in 0..10 {
        push(&mut queue, request(1, 10));
    }
    queue.push(vec![request(1, 1)], Duration::ZERO).expect_err("the client has filled the queue");
    // Half of the queue for the second client, a third for the third.
    queue.push(vec![request(2, 51)], Duration::ZERO).expect_err("more than the share");
    push(&mut queue, request(2, 50));
    queue.push(vec![request(3, 34)], Duration::ZERO).expect_err("more than the share");
    push(&mut queue, request(3, 33));
    queue.push(vec![request(4, 20)], Duration::ZERO).expect_err("twice the limit is the bound of memory");
}

#[test]
fn requests_for_versions_to_come_count_to_the_share_of_the_client_and_keep_no_other_client_out() {
    let mut queue = Queue::new(QueueSettings { waiting_max: 100, ..settings() });
    queue.reserve(1, 100).expect("the queue is empty");
    queue.reserve(1, 1).expect_err("the client has filled the queue");
    queue.push(vec![request(1, 1)], Duration::ZERO).expect_err("the client has filled the queue");
    // Half of the queue for the second client, by a reservation and a request together.
    queue.reserve(2, 20).expect("less than the share");
    queue.push(vec![request(2, 31)], Duration::ZERO).expect_err("more than the share");
    push(&mut queue, request(2, 30));
    queue.reserve(3, 34).expect_err("more than the share");
    queue.reserve(3, 33).expect("a third of the queue");
    queue.reserve(4, 20).expect_err("twice the limit is the bound of memory");
    // A client without requests has no turn.
    assert_eq!(queue.turns, [2]);
    for (client, positions) in [(1, 100), (2, 20), (3, 33)] {
        queue.release(client, positions);
    }
    assert_eq!((queue.waiting(), queue.clients.len()), (30, 1));
    push(&mut queue, request(1, 70));
}

#[test]
fn a_request_beside_a_flood_is_expected_by_its_turn_and_not_after_the_flood() {
    let mut queue = Queue::new(QueueSettings { waiting_max: 16_384, ..settings() });
    push(&mut queue, request(1, 10));
    let _ = batch(&mut queue, Duration::ZERO);
    // The speed is a thousand positions per second.
    queue.done(10, Some(ms(10)));
    for _ in 0..250 {
        push(&mut queue, request(1, 64));
    }
    let by = |client, deadline| vec![Request { deadline: Some(ms(deadline)), ..request(client, 1) }];
    queue.push(by(2, 200), Duration::ZERO).expect("a turn is one batch away");
    queue.push(by(1, 2000), Duration::ZERO).expect_err("the own flood comes first");
}

#[test]
fn the_parts_of_a_request_are_accepted_together_or_not_at_all() {
    let mut queue = Queue::new(QueueSettings { waiting_max: 100, ..settings() });
    let parts = |client, count: usize| (0..count).map(|_| request(client, 30)).collect::<Vec<_>>();
    queue.push(parts(1, 5), Duration::ZERO).expect("an empty queue accepts any request");
    queue.push(parts(2, 2), Duration::ZERO).expect_err("more than the share");
    assert_eq!(queue.waiting(), 150);
}

#[test]
fn cancelled_and_expired_requests_leave_the_queue() {
    let mut queue = Queue::new(settings());
    push(&mut queue, Request { payload: 1, ..request(1, 5) });
    push(&mut queue, Request { deadline: Some(ms(10)), ..request(1, 6) });
    push(&mut queue, request(2, 7));
    let removed = queue.remove(ms(10), |&payload| payload == 0);
    assert_eq!(removed.iter().map(|request| request.positions).collect::<Vec<_>>(), [5, 6]);
    assert_eq!((queue.waiting(), queue.turns.len()), (7, 1));
}

#[test]
fn every_accepted_request_leaves_the_queue_exactly_once() {
    // A linear congruential generator with a fixed seed suffices as a random source.
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
                let request = Request {
                    client: random(5),
                    weights: random(2),
                    positions: usize::try_from(1 + random(100)).unwrap(),
                    deadline: (random(4) == 0).then(|| now + Duration::from_micros(random(2000))),
                    payload: pushed,
                };
                // A rejected request does not use up a number.
                pushed += usize::from(queue.push(vec![request], now).is_ok());
            }
            _ => {
                left.extend(queue.remove(now, |_| true).into_iter().map(|request| request.payload));
                if let Next::Batch { requests, .. } = queue.next(now) {
                    let positions: usize = requests.iter().map(|request| request.positions).sum();
                    assert!(
                        positions <= BATCH_MAX || requests.len() == 1,
                        "{positions} positions in {} requests",
                        requests.len()
                    );
                    queue.done(positions, Some(Duration::from_micros(10 * positions as u64)));
                    left.extend(requests.into_iter().map(|request| request.payload));
                }
            }
        }
        assert_eq!(queue.waiting() == 0, queue.turns.is_empty());
        assert_eq!(queue.clients.values().map(|client| client.waiting).sum::<usize>(), queue.waiting());
    }
    left.extend(queue.clear().into_iter().map(|request| request.payload));
    left.sort_unstable();
    assert_eq!(left, (0..pushed).collect::<Vec<_>>());
}
