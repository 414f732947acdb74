use super::*;

#[tokio::test]
async fn a_server_whose_disk_is_lost_goes_on_from_its_archive() {
    let (run, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}/a", place.path().display());
    let archived = |replay: &mut ReplaySection| {
        replay.archive = url.clone();
        // The limiter blocks neither side.
        replay.main.error_items = 1e6;
        // Small segments, so that a short run has many segments.
        replay.segment_bytes = 4 << 10;
    };
    let server = serve_with(run.path(), archived).await;
    assert!(inserted(&server.insert_all(0..60).await).into_iter().all(|new| new));
    let (requests, mut batches) = server.sample().await;
    requests.send(open(4)).await.unwrap();
    requests.send(credit(3)).await.unwrap();
    for _ in 0..3 {
        batches.message().await.unwrap().unwrap();
    }
    let before = server.stats().await;
    drop((requests, batches));
    server.stop().await;

    std::fs::remove_dir_all(run.path().join("replay")).unwrap();
    let server = serve_with(run.path(), archived).await;
    let after = server.stats().await;
    assert_eq!(
        (after.trajectories, after.items_inserted_total, after.samples_total),
        (before.trajectories, before.items_inserted_total, before.samples_total)
    );
    assert!(after.trajectories == 60 && after.samples_total >= 12);
    assert_eq!(inserted(&server.insert_all([59, 60]).await), [false, true], "what came before is known");
    server.stop().await;
}

#[tokio::test]
async fn a_server_with_its_log_serves_though_the_archive_is_away_and_an_empty_one_does_not_begin_anew() {
    let (run, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = serve(run.path()).await;
    server.insert_all([0]).await;
    server.stop().await;
    // A file in place of a directory makes the archive unreachable.
    std::fs::write(place.path().join("file"), "").unwrap();
    let away = format!("file://{}/file/archive", place.path().display());
    let server = serve_with(run.path(), |replay| replay.archive = away.clone()).await;
    assert_eq!(server.stats().await.trajectories, 1);
    server.stop().await;

    let mut config = Config::default();
    config.run.directory = place.path().join("fresh");
    config.replay.archive = away;
    let listener = service::net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let error = format!("{:#}", start(config.settings().unwrap(), listener, Drain::new()).await.unwrap_err());
    assert!(error.contains("cannot list segments in the archive"), "{error}");
}
