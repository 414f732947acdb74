use run_file::replay::SelectorName;

use super::*;

fn id(sequence: u64) -> v1::TrajectoryId {
    v1::TrajectoryId { actor: 1, epoch: 1, sequence }
}

fn quarantine(suspect: v1::quarantine_request::Suspect) -> v1::QuarantineRequest {
    v1::QuarantineRequest { suspect: Some(suspect), reason: "too good to be true".into() }
}

async fn items_and_quarantined(server: &Server) -> (u64, u64) {
    let stats = server.stats().await;
    (stats.items, stats.quarantined_total)
}

fn wide(replay: &mut ReplaySection) {
    replay.main.error_items = 1e9;
}

#[tokio::test]
async fn an_actor_in_quarantine_stays_there_over_restarts_until_it_is_released() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    server.insert_all([0, 1]).await;
    let request = quarantine(v1::quarantine_request::Suspect::Actor(1));
    let mut client = server.client.clone();
    assert_eq!(client.quarantine(request.clone()).await.unwrap().into_inner().items, 8);
    assert_eq!(client.quarantine(request).await.unwrap().into_inner().items, 0, "it is idempotent");
    // Later trajectories of the actor are quarantined too.
    assert_eq!(inserted(&server.insert_all([2]).await), [true]);
    assert_eq!(items_and_quarantined(&server).await, (0, 3));
    server.stop().await;

    let server = serve_with(directory.path(), wide).await;
    assert_eq!(items_and_quarantined(&server).await, (0, 3));
    let release = v1::ReleaseRequest { suspect: Some(v1::release_request::Suspect::Actor(1)) };
    assert_eq!(server.client.clone().release(release).await.unwrap().into_inner().items, 12);
    server.stop().await;

    let server = serve_with(directory.path(), wide).await;
    assert_eq!(items_and_quarantined(&server).await, (12, 0));
    server.stop().await;
}

#[tokio::test]
async fn a_quarantine_outlasts_the_segment_that_it_was_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let small = |replay: &mut ReplaySection| {
        (replay.main.capacity_items, replay.main.window_items_min, replay.segment_bytes) = (40, 10, 4096);
        replay.main.error_items = 1e9;
    };
    let server = serve_with(directory.path(), small).await;
    let request = quarantine(v1::quarantine_request::Suspect::Actor(1));
    server.client.clone().quarantine(request).await.unwrap();
    server.insert_all(0..120).await;
    server.stop().await;
    let server = serve_with(directory.path(), small).await;
    assert_eq!(items_and_quarantined(&server).await, (0, 10));
    server.stop().await;
}

#[tokio::test]
async fn a_released_trajectory_may_be_drawn_again_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    server.insert_all([0, 1]).await;
    let mut client = server.client.clone();
    let request = quarantine(v1::quarantine_request::Suspect::Trajectory(id(0)));
    assert_eq!(client.quarantine(request).await.unwrap().into_inner().items, 4);
    let release = v1::ReleaseRequest { suspect: Some(v1::release_request::Suspect::Trajectory(id(0))) };
    assert_eq!(client.release(release).await.unwrap().into_inner().items, 4);
    server.stop().await;
    let server = serve_with(directory.path(), wide).await;
    assert_eq!(items_and_quarantined(&server).await, (8, 0));
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_trajectory_is_not_found_and_an_empty_request_is_invalid() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let mut client = server.client.clone();
    let unknown = quarantine(v1::quarantine_request::Suspect::Trajectory(id(9)));
    assert_eq!(client.quarantine(unknown).await.unwrap_err().code(), Code::NotFound);
    let unknown = v1::ReleaseRequest { suspect: Some(v1::release_request::Suspect::Trajectory(id(9))) };
    assert_eq!(client.release(unknown).await.unwrap_err().code(), Code::NotFound);
    let unknown = v1::GetRequest { trajectory: Some(id(9)) };
    assert_eq!(client.get(unknown).await.unwrap_err().code(), Code::NotFound);
    let empty = v1::QuarantineRequest::default();
    assert_eq!(client.quarantine(empty).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(client.release(v1::ReleaseRequest::default()).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(client.get(v1::GetRequest::default()).await.unwrap_err().code(), Code::InvalidArgument);
    server.stop().await;
}

fn heap(replay: &mut ReplaySection) {
    (replay.main.selector, replay.main.error_items) = (SelectorName::MaxHeap, 1e9);
}

fn update(priorities: impl IntoIterator<Item = (u64, u32, f64)>) -> v1::UpdatePrioritiesRequest {
    let item = |(sequence, ply, priority)| v1::ItemPriority { trajectory: Some(id(sequence)), ply, priority };
    v1::UpdatePrioritiesRequest { table: String::new(), priorities: priorities.into_iter().map(item).collect() }
}

async fn drawn(server: &Server) -> (u64, u32) {
    let (sender, mut batches) = server.sample().await;
    for message in [open(1), credit(1)] {
        sender.send(message).await.unwrap();
    }
    match batches.message().await.unwrap().unwrap().message {
        Some(Out::Batch(batch)) => (batch.samples[0].trajectory.unwrap().sequence, ply_of(&batch.samples[0])),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn priorities_decide_what_is_drawn_and_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), heap).await;
    server.insert_all([0, 1]).await;
    let mut client = server.client.clone();
    let updated = client.update_priorities(update([(0, 1, 3.0), (1, 2, 5.0), (7, 0, 9.0)])).await.unwrap();
    let expected = v1::UpdatePrioritiesResponse { updated: 2, unknown: 1, unused: 0 };
    assert_eq!(updated.into_inner(), expected);
    assert_eq!(drawn(&server).await, (1, 2));
    server.stop().await;
    let server = serve_with(directory.path(), heap).await;
    assert_eq!(drawn(&server).await, (1, 2));
    server.stop().await;
}

#[tokio::test]
async fn priorities_are_taken_all_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), heap).await;
    server.insert_all([0]).await;
    let mut client = server.client.clone();
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        let status = client.update_priorities(update([(0, 3, 7.0), (0, 2, bad)])).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("priorities[1].priority"), "{status}");
    }
    assert_eq!(drawn(&server).await, (0, 0), "of equals the oldest");
    server.stop().await;
}

#[tokio::test]
async fn a_table_without_priorities_reports_an_update_as_unused() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    server.insert_all([0]).await;
    let updated = server.client.clone().update_priorities(update([(0, 3, 7.0)])).await.unwrap().into_inner();
    assert_eq!(updated, v1::UpdatePrioritiesResponse { updated: 0, unknown: 0, unused: 1 });
    server.stop().await;
}

#[tokio::test]
async fn a_stored_trajectory_is_returned_unchanged_with_its_tables_and_quarantine() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    server.insert_all([0]).await;
    let mut client = server.client.clone();
    client.quarantine(quarantine(v1::quarantine_request::Suspect::Trajectory(id(0)))).await.unwrap();
    let found = client.get(v1::GetRequest { trajectory: Some(id(0)) }).await.unwrap().into_inner();
    assert_eq!(found.trajectory, Some(message(0)));
    assert_eq!((found.tables, found.quarantined), (vec!["main".to_owned()], true));
    assert!(found.inserted_unix_ms > 0);
    server.stop().await;
}

#[tokio::test]
async fn lists_show_the_newest_or_the_most_surprising_first() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    let (sender, mut answers) = server.insert().await;
    sender.send(hello()).await.unwrap();
    answers.message().await.unwrap();
    for (sequence, value) in [(2, 0.1), (0, 0.9), (1, 0.5)] {
        // All games were draws.
        sender.send(wrap(In::Trajectory(message_of(1, sequence, value, 7)))).await.unwrap();
        answers.message().await.unwrap().unwrap();
    }
    let list = async |order: v1::ListOrder, limit| {
        let request = v1::ListRequest { limit, order: order.into(), ..v1::ListRequest::default() };
        let mut ids = server.client.clone().list(request).await.unwrap().into_inner();
        let mut sequences = Vec::new();
        while let Some(id) = ids.message().await.unwrap() {
            sequences.push(id.sequence);
        }
        sequences
    };
    assert_eq!(list(v1::ListOrder::Unspecified, 0).await, [0, 1, 2]);
    assert_eq!(list(v1::ListOrder::Newest, 2).await, [1, 0]);
    assert_eq!(list(v1::ListOrder::Surprising, 0).await, [0, 1, 2]);
    assert_eq!(list(v1::ListOrder::Surprising, 1).await, [0]);
    server.stop().await;
}

#[tokio::test]
async fn a_search_returns_the_games_that_it_asks_for_page_by_page() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    let (sender, mut answers) = server.insert().await;
    sender.send(hello()).await.unwrap();
    answers.message().await.unwrap();
    for (sequence, value, version) in [(2, 0.25, 7), (0, 1.0, 7), (1, 0.5, 8), (3, 0.75, 9)] {
        sender.send(wrap(In::Trajectory(message_of(1, sequence, value, version)))).await.unwrap();
        answers.message().await.unwrap().unwrap();
    }
    let mut client = server.client.clone();
    client.quarantine(quarantine(v1::quarantine_request::Suspect::Trajectory(id(1)))).await.unwrap();
    let surprising = v1::SearchRequest { order: v1::ListOrder::Surprising.into(), limit: 2, ..Default::default() };
    let first = client.search(surprising.clone()).await.unwrap().into_inner();
    let cursor = first.next.clone();
    let second = client.search(v1::SearchRequest { cursor: cursor.clone(), ..surprising.clone() }).await.unwrap();
    let second = second.into_inner();
    let sequences = |page: &v1::SearchResponse| {
        page.found.iter().map(|found| found.trajectory.unwrap().sequence).collect::<Vec<_>>()
    };
    assert_eq!([sequences(&first), sequences(&second)].concat(), [0, 3, 1, 2]);
    assert_eq!((second.next.as_str(), second.found[0].quarantined), ("", true));
    let found = &first.found[0];
    assert!(found.inserted_unix_ms > 0);
    let expected = v1::Found {
        trajectory: Some(id(0)),
        plies: 4,
        outcome: v1::Outcome::Draw.into(),
        weights_version: 7,
        surprise: Some(1.0),
        inserted_unix_ms: found.inserted_unix_ms,
        ..v1::Found::default()
    };
    assert_eq!(*found, expected);

    let newest = v1::SearchRequest { order: v1::ListOrder::Newest.into(), limit: 9, ..Default::default() };
    let sampled = v1::SearchRequest { quarantined: Some(false), weights_version_min: 8, ..newest.clone() };
    assert_eq!(sequences(&client.search(sampled).await.unwrap().into_inner()), [3]);
    for wrong in [
        v1::SearchRequest { limit: 0, ..newest.clone() },
        v1::SearchRequest { cursor, ..newest.clone() },
        v1::SearchRequest { cursor: "nonsense".into(), ..newest.clone() },
    ] {
        assert_eq!(client.search(wrong).await.unwrap_err().code(), Code::InvalidArgument);
    }
    let unknown = v1::SearchRequest { table: "none".into(), ..newest };
    assert_eq!(client.search(unknown).await.unwrap_err().code(), Code::NotFound);
    server.stop().await;
}
