use tokio::sync::watch;

use super::*;

const CLIENT: u64 = 7;

fn set(numbers: &[u16]) -> Arc<[Server]> {
    numbers.iter().map(|number| Server::at(&format!("http://10.0.0.{number}:7003"))).collect()
}

/// Replicas of so many servers, what tells them of others, and the servers as they are ranked.
fn replicas(count: u16) -> (Replicas, watch::Sender<Arc<[Server]>>, Vec<Server>) {
    let numbers: Vec<u16> = (0..count).collect();
    let (tell, told) = watch::channel(set(&numbers));
    let ranked = preferred(&told.borrow(), CLIENT);
    (Replicas::new(Servers::told(told), CLIENT), tell, ranked)
}

#[tokio::test]
async fn the_next_server_is_asked_while_better_ones_fail_and_all_in_turn_when_all_do() {
    let (mut replicas, _tell, ranked) = replicas(3);
    let now = Instant::now();
    for (second, expected) in [0, 1, 2, 0, 1, 2].into_iter().enumerate() {
        assert_eq!(replicas.choose().await, ranked[expected].endpoint, "{second}");
        replicas.failed(now + Duration::from_secs(second as u64));
    }
}

#[tokio::test]
async fn a_better_server_that_failed_is_looked_at_ever_more_rarely_and_asked_again_once_it_serves() {
    let (mut replicas, _tell, ranked) = replicas(2);
    let start = Instant::now();
    replicas.choose().await;
    replicas.failed(start);
    assert_eq!(replicas.choose().await, ranked[1].endpoint);
    replicas.answered();
    let mut now = start;
    for wait in [2, 4, 8, 16, 30, 30] {
        let (suspect, due) = replicas.suspect().unwrap();
        assert_eq!((&suspect, due), (&ranked[0], now + Duration::from_secs(wait)));
        now = due;
        replicas.looked_at(&suspect, false, now);
        assert!(!replicas.is_outranked());
    }
    replicas.looked_at(&ranked[0], true, now);
    assert!(replicas.is_outranked());
    assert_eq!(replicas.choose().await, ranked[0].endpoint);
    replicas.answered();
    assert!(replicas.suspect().is_none() && !replicas.is_outranked());
}

#[tokio::test]
async fn a_server_that_comes_is_asked_by_those_who_prefer_it_and_one_that_goes_is_left() {
    let (mut replicas, tell, _) = replicas(2);
    let first = replicas.choose().await;
    let newcomer = (2..200).find(|&number| preferred(&set(&[0, 1, number]), CLIENT)[0] == set(&[number])[0]).unwrap();
    tell.send_replace(set(&[0, 1, newcomer]));
    assert!(replicas.is_outranked());
    assert_eq!(replicas.choose().await, set(&[newcomer])[0].endpoint);
    assert!(!replicas.is_outranked());
    tell.send_replace(set(&[0, 1]));
    assert!(replicas.is_outranked());
    assert_eq!(replicas.choose().await, first);
}

#[tokio::test]
async fn without_any_server_one_is_waited_for_and_the_last_one_is_kept() {
    let (mut replicas, tell, ranked) = replicas(1);
    replicas.choose().await;
    tell.send_replace(set(&[]));
    assert!(!replicas.is_outranked(), "nobody is better than nobody");
    replicas.failed(Instant::now());
    let choosing = tokio::spawn(async move { replicas.choose().await });
    tokio::task::yield_now().await;
    assert!(!choosing.is_finished());
    tell.send_replace(set(&[0]));
    assert_eq!(choosing.await.unwrap(), ranked[0].endpoint);
}
