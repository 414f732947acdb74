use std::num::NonZeroU64;

use experience::TrajectoryId;

use super::{Inspector, RequestError, check_next, report, stats};
use crate::replay::{ListQuery, Quarantine, Suspect, TableStats};
use crate::scripted::{ReplayScript, trajectory, within};

fn id(sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: 7, epoch: 3, sequence }
}

#[tokio::test]
async fn stats_are_those_of_the_table() {
    let table = TableStats { items: 12, samples_per_insert: 0.5, ..TableStats::default() };
    let server = ReplayScript::holding(table.clone(), Vec::new()).await;
    assert_eq!(within(stats(&server.endpoint())).await.unwrap(), table);
}

#[tokio::test]
async fn ids_are_listed_above_one_and_up_to_a_limit() {
    let server = ReplayScript::holding(TableStats::default(), (0..5).map(id).collect()).await;
    let inspector = Inspector::new(&server.endpoint()).unwrap();
    let list = async |after: Option<u64>, limit| {
        let query = ListQuery { after: after.map(id), limit: NonZeroU64::new(limit), ..ListQuery::default() };
        within(inspector.list(query)).await.unwrap()
    };
    assert_eq!(list(None, 0).await, (0..5).map(id).collect::<Vec<_>>());
    assert_eq!(list(Some(1), 2).await, [id(2), id(3)]);
    assert_eq!(list(Some(4), 0).await, []);
}

#[tokio::test]
async fn ids_that_do_not_ascend_are_an_invalid_answer() {
    for ids in [[id(0), id(2), id(1)], [id(0), id(1), id(1)]] {
        let server = ReplayScript::holding(TableStats::default(), ids.into()).await;
        let error = within(Inspector::new(&server.endpoint()).unwrap().list(ListQuery::default())).await.unwrap_err();
        assert!(matches!(&error, RequestError::Answer(invalid) if invalid.field == "id"), "{error}");
    }
}

#[test]
fn ids_over_the_limit_that_was_asked_for_are_an_invalid_answer() {
    let query = ListQuery { limit: NonZeroU64::new(2), ..ListQuery::default() };
    assert_eq!(check_next(&[id(0)], id(1), &query), Ok(()));
    let fault = check_next(&[id(0), id(1)], id(2), &query).unwrap_err();
    assert_eq!(fault.to_string(), "id: 7-3-2 is over the limit of 2 ids");
}

#[tokio::test]
async fn a_report_says_whether_the_table_held_the_trajectory() {
    let server = ReplayScript::holding(TableStats::default(), vec![id(1)]).await;
    assert!(within(report(&server.endpoint(), id(1), 3, "the column is full")).await.unwrap());
    assert!(!within(report(&server.endpoint(), id(2), 3, "the column is full")).await.unwrap());
}

#[tokio::test]
async fn a_trajectory_that_no_table_holds_is_told_from_a_server_that_refuses() {
    let server = ReplayScript::holding(TableStats::default(), vec![id(1)]).await;
    let inspector = Inspector::new(&server.endpoint()).unwrap();
    assert_eq!(within(inspector.get(id(1))).await.unwrap().unwrap().trajectory, trajectory(1));
    assert_eq!(within(inspector.get(id(2))).await.unwrap(), None);
    let quarantine = |suspect| inspector.quarantine(Quarantine { suspect, reason: "too good".into() });
    assert_eq!(within(quarantine(Suspect::Trajectory(id(1)))).await.unwrap(), 1);
    assert!(within(quarantine(Suspect::Trajectory(id(2)))).await.is_err());
}

#[tokio::test]
async fn a_server_that_is_away_and_a_wrong_endpoint_are_told_apart() {
    let away = within(stats("http://127.0.0.1:0")).await.unwrap_err();
    assert!(matches!(away, RequestError::Status(_)), "{away}");
    let wrong = within(stats("127.0.0.1:0")).await.unwrap_err();
    assert!(matches!(wrong, RequestError::Endpoint(_)), "{wrong}");
}
