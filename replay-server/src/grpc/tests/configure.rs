use std::collections::BTreeMap;

use super::*;

async fn configure(server: &Server, settings: &[(&str, &str)]) -> Result<BTreeMap<String, String>, Status> {
    let settings = settings.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    let request = v1::ConfigureRequest { settings, ..v1::ConfigureRequest::default() };
    Ok(server.client.clone().configure(request).await?.into_inner().settings)
}

const NARROW: [(&str, &str); 3] = [("selector", "max_heap"), ("capacity_items", "8"), ("window_items_min", "8")];

fn wide(replay: &mut ReplaySection) {
    replay.main.error_items = 1e9;
}

#[tokio::test]
async fn a_change_holds_at_once_and_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    server.insert_all(0..5).await;
    let in_force = configure(&server, &NARROW).await.unwrap();
    assert_eq!((&*in_force["selector"], &*in_force["capacity_items"]), ("max_heap", "8"));
    assert_eq!(in_force["samples_per_insert"], "2.0", "every other setting stays");
    server.insert_all([5]).await;
    assert_eq!(server.stats().await.trajectories, 2);
    server.stop().await;

    let server = serve_with(directory.path(), wide).await;
    assert_eq!(configure(&server, &[]).await.unwrap(), in_force);
    assert_eq!(server.stats().await.trajectories, 2);
    server.stop().await;
}

#[tokio::test]
async fn a_live_increase_of_the_capacity_and_its_items_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let small = |replay: &mut ReplaySection| {
        (replay.main.capacity_items, replay.main.window_items_min, replay.main.error_items) = (8, 8, 1e9);
    };
    let server = serve_with(directory.path(), small).await;
    configure(&server, &[("capacity_items", "40")]).await.unwrap();
    server.insert_all(0..9).await;
    server.stop().await;
    let server = serve_with(directory.path(), small).await;
    assert_eq!(server.stats().await.trajectories, 9);
    server.stop().await;
}

#[tokio::test]
async fn a_changed_run_file_discards_live_changes() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    configure(&server, &NARROW).await.unwrap();
    server.stop().await;
    let rewritten = |replay: &mut ReplaySection| {
        wide(replay);
        replay.main.samples_per_insert = 3.0;
    };
    let server = serve_with(directory.path(), rewritten).await;
    let in_force = configure(&server, &[]).await.unwrap();
    assert_eq!((&*in_force["selector"], &*in_force["samples_per_insert"]), ("uniform", "3.0"));
    server.stop().await;
}

#[tokio::test]
async fn a_change_out_of_range_is_refused_by_its_key_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let before = configure(&server, &[]).await.unwrap();
    for (key, value) in [
        ("selector", "best"),
        ("exponent", "nan"),
        ("window_slope", "2.0"),
        ("error_items", "nan"),
        ("age_max_hours", "-1.0"),
        ("min_items", "0"),
        ("min_items", "-1"),
        ("min_items", "many"),
        ("min_items", "5\nselector=1"),
        ("min_itmes", "5"),
        ("name", "other"),
        ("blocks_inserts", "false"),
    ] {
        let request = [(key, value)];
        let status = configure(&server, &request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{key}");
        assert!(status.message().starts_with(key), "{key}: {status}");
    }
    assert_eq!(configure(&server, &[]).await.unwrap(), before);
    server.stop().await;
}

#[tokio::test]
async fn a_batch_that_has_become_too_large_ends_its_stream_and_does_not_wait_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let (sender, mut batches) = server.sample().await;
    for message in [open(10), credit(1)] {
        sender.send(message).await.unwrap();
    }
    assert!(matches!(batches.message().await.unwrap().unwrap().message, Some(Out::Waiting(_))));
    configure(&server, &[("error_items", "2")]).await.unwrap();
    assert_eq!(end(&mut batches).await.code(), Code::InvalidArgument);
    server.stop().await;
}
