use super::*;

const MOST: Duration = Duration::from_secs(60);

#[tokio::test]
async fn weights_are_outdated_once_the_learner_is_away_for_too_long_and_until_it_is_back() {
    let (tell, away) = watch::channel(None);
    let [mut bounded, unbounded] = [Some(MOST), None].map(|most| Freshness::new(away.clone(), most));
    assert_eq!(bounded.outdated_for(), None);
    tell.send_replace(Some(Instant::now()));
    assert_eq!(bounded.outdated_for(), None);
    // A clock that began just now has nothing to show.
    let Some(long_ago) = Instant::now().checked_sub(MOST + Duration::from_secs(1)) else { return };
    tell.send_replace(Some(long_ago));
    assert!(bounded.outdated_for().is_some_and(|away| away > MOST));
    assert_eq!(unbounded.outdated_for(), None);
    assert!(tokio::time::timeout(Duration::from_millis(1), bounded.restored()).await.is_err());
    tell.send_replace(None);
    bounded.restored().await;
    assert_eq!(bounded.outdated_for(), None);
}
