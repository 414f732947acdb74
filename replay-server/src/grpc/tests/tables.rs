use run_file::replay::{SelectorName, TableKeys, TableSection};

use super::*;

/// Adds a table that draws the item with the highest priority, and of equals the oldest.
fn with_greatest(replay: &mut ReplaySection) {
    let keys = TableKeys { selector: SelectorName::MaxHeap, ..keys() };
    replay.tables = vec![TableSection { keys, ..table("greatest") }];
}

/// Returns a table with [`keys`] that never blocks inserts.
fn table(name: &str) -> TableSection {
    TableSection { name: name.to_owned(), keys: keys(), blocks_inserts: false }
}

fn keys() -> TableKeys {
    TableKeys { min_items: 1, samples_per_insert: 1.0, error_items: 1e9, ..TableKeys::default() }
}

fn open_of(table: &str, batch_size: u32) -> v1::SampleRequest {
    sample_request(SampleMessage::Open(v1::Open {
        game: GAME.into(),
        batch_size,
        table: table.into(),
        ..v1::Open::default()
    }))
}

impl Server {
    async fn stats_of(&self, table: &str) -> Result<v1::StatsResponse, Status> {
        let request = v1::StatsRequest { table: table.into() };
        self.client.clone().stats(request).await.map(tonic::Response::into_inner)
    }

    /// Returns trajectory and ply of each item in one batch.
    async fn drawn(&self, table: &str, batch_size: u32) -> Vec<(u64, u32)> {
        let (sender, mut batches) = self.sample().await;
        for message in [open_of(table, batch_size), credit(1)] {
            sender.send(message).await.unwrap();
        }
        loop {
            match batches.message().await.unwrap().unwrap().message {
                Some(Out::Waiting(_)) => {}
                Some(Out::Batch(batch)) => {
                    let items = batch.samples.into_iter();
                    break items.map(|sample| (sample.trajectory.unwrap().sequence, ply_of(&sample))).collect();
                }
                None => panic!("an empty message"),
            }
        }
    }
}

#[tokio::test]
async fn every_trajectory_goes_into_every_table_and_each_is_drawn_from_on_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), with_greatest).await;
    server.insert_all([0, 1]).await;
    assert_eq!(server.drawn("greatest", 5).await, [(0, 0); 5]);
    assert_eq!(server.drawn("", 3).await.len(), 3);
    let (main, greatest) = (server.stats_of("").await.unwrap(), server.stats_of("greatest").await.unwrap());
    assert_eq!(
        (main.tables, greatest.memory_bytes),
        (vec!["main".to_owned(), "greatest".to_owned()], main.memory_bytes)
    );
    let (main, greatest) = (main.table.unwrap(), greatest.table.unwrap());
    assert_eq!((main.name.as_str(), main.items, main.samples_total), ("main", 8, 3));
    assert_eq!((greatest.name.as_str(), greatest.items, greatest.samples_total), ("greatest", 8, 5));
    server.stop().await;
}

#[tokio::test]
async fn the_sample_count_of_every_table_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), with_greatest).await;
    server.insert_all([0, 1]).await;
    server.drawn("greatest", 5).await;
    server.stop().await;
    let server = serve_with(directory.path(), with_greatest).await;
    let greatest = server.stats_of("greatest").await.unwrap().table.unwrap();
    assert_eq!((greatest.samples_total, greatest.items_inserted_total, greatest.trajectories), (5, 8, 2));
    server.stop().await;
}

#[tokio::test]
async fn a_table_that_joins_a_run_begins_in_the_middle_of_its_band() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), |replay| replay.main.error_items = 1e9).await;
    server.insert_all(0..20).await;
    server.stop().await;
    let join = |replay: &mut ReplaySection| {
        replay.main.error_items = 1e9;
        let keys = TableKeys { error_items: 8.0, ..keys() };
        replay.tables = vec![TableSection { blocks_inserts: true, keys, ..table("late") }];
    };
    let server = serve_with(directory.path(), join).await;
    // If the 80 earlier items counted as not drawn, the table would block every insert.
    assert_eq!(inserted(&server.insert_all([20]).await), [true]);
    assert_eq!(server.stats_of("late").await.unwrap().table.unwrap().items, 84);
    server.stop().await;
}

#[tokio::test]
async fn a_table_removed_from_the_run_file_and_added_again_starts_anew() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), with_greatest).await;
    server.insert_all([0, 1]).await;
    server.drawn("greatest", 5).await;
    server.stop().await;
    serve_with(directory.path(), |_| {}).await.stop().await;
    let server = serve_with(directory.path(), with_greatest).await;
    // The limiter starts in the middle of the band: of 8 items, one is the minimum, and each other counts as one draw.
    assert_eq!(server.stats_of("greatest").await.unwrap().table.unwrap().samples_total, 7);
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_table_is_not_found_and_the_existing_ones_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), with_greatest).await;
    let of_stats = server.stats_of("stack").await.unwrap_err();
    let request = v1::ListRequest { table: "stack".into(), ..v1::ListRequest::default() };
    let of_list = server.client.clone().list(request).await.unwrap_err();
    let (sender, mut batches) = server.sample().await;
    sender.send(open_of("stack", 1)).await.unwrap();
    let of_sample = end(&mut batches).await;
    let request = v1::UpdatePrioritiesRequest { table: "stack".into(), priorities: Vec::new() };
    let of_update = server.client.clone().update_priorities(request).await.unwrap_err();
    for status in [of_stats, of_list, of_sample, of_update] {
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(status.message(), "unknown table \"stack\"; tables are main, greatest");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_insert_waits_for_every_table_that_blocks_inserts() {
    let directory = tempfile::tempdir().unwrap();
    let strict = |replay: &mut ReplaySection| {
        replay.main.error_items = 1e9;
        let keys = TableKeys { min_items: 4, samples_per_insert: 2.0, error_items: 8.0, ..keys() };
        let narrow = TableSection { keys, ..table("") };
        replay.tables = vec![
            TableSection { name: "watching".into(), ..narrow.clone() },
            TableSection { name: "strict".into(), blocks_inserts: true, ..narrow },
        ];
    };
    let server = serve_with(directory.path(), strict).await;
    server.insert_all([0, 1]).await;
    let (sender, mut answers) = server.insert().await;
    for message in [hello(), trajectory(2)] {
        sender.send(message).await.unwrap();
    }
    assert!(matches!(answers.message().await.unwrap().unwrap().message, Some(Answer::Ready(_))));
    assert_eq!(server.drawn("watching", 10).await.len(), 10);
    assert_eq!(server.drawn("strict", 10).await.len(), 10);
    assert!(matches!(answers.message().await.unwrap().unwrap().message, Some(Answer::Ack(_))));
    server.stop().await;
}

#[tokio::test]
async fn a_segment_stays_while_any_table_holds_something_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let two = |replay: &mut ReplaySection| {
        (replay.main.capacity_items, replay.main.window_items_min, replay.segment_bytes) = (40, 10, 4096);
        replay.main.error_items = 1e9;
        let keys = TableKeys { capacity_items: 400, window_items_min: 10, ..keys() };
        replay.tables = vec![TableSection { keys, ..table("long") }];
    };
    let server = serve_with(directory.path(), two).await;
    server.insert_all(0..120).await;
    server.stop().await;
    let server = serve_with(directory.path(), two).await;
    let held = async |table| server.stats_of(table).await.unwrap().table.unwrap().trajectories;
    assert_eq!((held("main").await, held("long").await), (10, 100));
    server.stop().await;
}

#[tokio::test]
async fn a_batch_that_is_late_ends_its_stream_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let (sender, mut batches) = server.sample().await;
    let open = v1::Open { game: GAME.into(), batch_size: 2, timeout_ms: 50, ..v1::Open::default() };
    for message in [sample_request(SampleMessage::Open(open)), credit(1)] {
        sender.send(message).await.unwrap();
    }
    let status = end(&mut batches).await;
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let reason = "no batch from table main within 50 ms: the table holds 0 of 4 items required for sampling";
    assert_eq!(status.message(), reason);
    server.stop().await;
}

#[tokio::test]
async fn a_batch_waits_with_the_reason_while_no_item_can_be_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let by_priority = |replay: &mut ReplaySection| {
        let keys = TableKeys { selector: SelectorName::Prioritised, ..keys() };
        replay.tables = vec![TableSection { keys, ..table("weighted") }];
    };
    let server = serve_with(directory.path(), by_priority).await;
    server.insert_all([0]).await;
    let id = v1::TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
    let item = |ply| v1::ItemPriority { trajectory: Some(id), ply, priority: 0.0 };
    let update = v1::UpdatePrioritiesRequest { table: "weighted".into(), priorities: (0..4).map(item).collect() };
    server.client.clone().update_priorities(update).await.unwrap();
    let (sender, mut batches) = server.sample().await;
    for message in [open_of("weighted", 6), credit(1)] {
        sender.send(message).await.unwrap();
    }
    let reason = match batches.message().await.unwrap().unwrap().message {
        Some(Out::Waiting(v1::Waiting { reason })) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason.starts_with("no item in the window can be drawn"), "{reason}");
    assert_eq!(server.stats_of("weighted").await.unwrap().table.unwrap().samples_total, 0);
    server.insert_all([1]).await;
    let sequences: Vec<u64> = loop {
        match batches.message().await.unwrap().unwrap().message {
            Some(Out::Batch(batch)) => {
                break batch.samples.into_iter().map(|s| s.trajectory.unwrap().sequence).collect();
            }
            _ => continue,
        }
    };
    assert_eq!(sequences, [1; 6]);
    server.stop().await;
}
