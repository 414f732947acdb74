use std::net::Ipv4Addr;

use super::*;

fn token(name: &str) -> Client {
    Client::Token(name.into())
}

fn address(number: u32) -> Client {
    Client::Address(Some(Ipv4Addr::from_bits(number).into()))
}

#[test]
fn a_client_may_ask_a_seconds_worth_at_once_and_then_one_for_each_interval() {
    let (quota, start) = (Quota::new(4).unwrap(), Instant::now());
    for _ in 0..4 {
        quota.count(token("actor"), start).unwrap();
    }
    let wait = quota.count(token("actor"), start).unwrap_err();
    assert_eq!(wait, Duration::from_millis(250));
    // However often it is refused, it waits no longer.
    assert_eq!(quota.count(token("actor"), start).unwrap_err(), wait);
    quota.count(token("actor"), start + wait).unwrap();
    quota.count(token("actor"), start + wait).unwrap_err();
}

#[test]
fn one_client_over_its_quota_takes_nothing_from_another() {
    let (quota, now) = (Quota::new(1).unwrap(), Instant::now());
    quota.count(token("actor"), now).unwrap();
    quota.count(token("actor"), now).unwrap_err();
    quota.count(token("learner"), now).unwrap();
    quota.count(address(1), now).unwrap();
}

#[test]
fn clients_without_number_share_one_quota_beyond_those_that_are_remembered() {
    let (quota, now) = (Quota::new(1).unwrap(), Instant::now());
    let remembered = CLIENTS_REMEMBERED as u32;
    for number in 0..remembered {
        quota.count(address(number), now).unwrap();
    }
    quota.count(address(remembered), now).unwrap();
    quota.count(address(remembered + 1), now).unwrap_err();
    quota.count(address(0), now).unwrap_err();
    assert!(quota.used_until.lock().unwrap().len() <= CLIENTS_REMEMBERED + 1);
    // Once they have waited they are forgotten, and there is room.
    quota.count(address(remembered + 1), now + 2 * BURST).unwrap();
    assert_eq!(quota.used_until.lock().unwrap().len(), 1);
}

#[test]
fn no_number_is_no_quota() {
    assert!(Quota::new(0).is_none());
}
