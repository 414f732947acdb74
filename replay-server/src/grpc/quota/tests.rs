use super::*;

#[test]
fn an_actor_may_send_a_second_s_worth_at_once_and_then_waits_for_its_turn() {
    let quota = Quota::new(NonZeroU32::new(10));
    let now = Instant::now();
    let waits: Vec<_> = (0..12).map(|_| quota.count(1, now).map(|ready| ready - now)).collect();
    assert_eq!(waits[..10], [None; 10]);
    assert_eq!(waits[10..], [Some(Duration::from_millis(100)), Some(Duration::from_millis(200))]);
    assert_eq!(quota.count(2, now), None, "actors do not wait for each other");
    assert_eq!(quota.count(1, now + Duration::from_millis(500)), None);
}

#[test]
fn actors_within_their_quota_are_forgotten() {
    let quota = Quota::new(NonZeroU32::new(1));
    let now = Instant::now();
    (0..ACTORS_REMEMBERED as u64).for_each(|actor| assert_eq!(quota.count(actor, now), None));
    quota.count(0, now + Duration::from_secs(2));
    assert_eq!(quota.used_until.lock().len(), 1);
}

#[test]
fn without_a_quota_nobody_waits_or_is_remembered() {
    let quota = Quota::new(None);
    assert_eq!(quota.count(1, Instant::now()), None);
    assert_eq!(quota.used_until.lock().len(), 0);
}
