use super::*;

async fn configure(server: &Server, request: v1::ConfigureRequest) -> Result<v1::ConfigureRequest, Status> {
    let response = server.client.clone().configure(request).await?;
    Ok(response.into_inner().settings.unwrap())
}

fn narrow() -> v1::ConfigureRequest {
    let selector = Some("lifo".to_owned());
    v1::ConfigureRequest { selector, capacity_items: Some(8), window_items_min: Some(8), ..Default::default() }
}

fn wide(replay: &mut ReplaySection) {
    replay.error_items = 1e9;
}

#[tokio::test]
async fn a_change_holds_at_once_and_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    server.insert_all(0..5).await;
    let in_force = configure(&server, narrow()).await.unwrap();
    assert_eq!((in_force.selector.as_deref(), in_force.capacity_items), (Some("lifo"), Some(8)));
    assert_eq!(in_force.samples_per_insert, Some(2.0), "what was not asked for stays");
    server.insert_all([5]).await;
    assert_eq!(server.stats().await.trajectories, 2);
    server.stop().await;

    let server = serve_with(directory.path(), wide).await;
    assert_eq!(configure(&server, v1::ConfigureRequest::default()).await.unwrap(), in_force);
    assert_eq!(server.stats().await.trajectories, 2);
    server.stop().await;
}

#[tokio::test]
async fn a_change_to_more_room_keeps_over_a_restart_what_the_run_file_would_not() {
    let directory = tempfile::tempdir().unwrap();
    let small = |replay: &mut ReplaySection| {
        (replay.capacity_items, replay.window_items_min, replay.error_items) = (8, 8, 1e9);
    };
    let server = serve_with(directory.path(), small).await;
    configure(&server, v1::ConfigureRequest { capacity_items: Some(40), ..Default::default() }).await.unwrap();
    server.insert_all(0..9).await;
    server.stop().await;
    let server = serve_with(directory.path(), small).await;
    assert_eq!(server.stats().await.trajectories, 9);
    server.stop().await;
}

#[tokio::test]
async fn a_run_file_that_changes_itself_ends_what_was_changed_live() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    configure(&server, narrow()).await.unwrap();
    server.stop().await;
    let rewritten = |replay: &mut ReplaySection| {
        wide(replay);
        replay.samples_per_insert = 3.0;
    };
    let server = serve_with(directory.path(), rewritten).await;
    let in_force = configure(&server, v1::ConfigureRequest::default()).await.unwrap();
    assert_eq!((in_force.selector.as_deref(), in_force.samples_per_insert), (Some("uniform"), Some(3.0)));
    server.stop().await;
}

#[tokio::test]
async fn a_change_out_of_range_is_refused_by_its_key_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let before = configure(&server, v1::ConfigureRequest::default()).await.unwrap();
    let none = v1::ConfigureRequest::default;
    for (key, request) in [
        ("selector", v1::ConfigureRequest { selector: Some("best".into()), ..none() }),
        ("exponent", v1::ConfigureRequest { selector: Some("prioritised".into()), exponent: Some(f64::NAN), ..none() }),
        ("window_slope", v1::ConfigureRequest { window_slope: Some(2.0), ..none() }),
        ("error_items", v1::ConfigureRequest { error_items: Some(f64::NAN), ..none() }),
        ("age_max_hours", v1::ConfigureRequest { age_max_hours: Some(-1.0), ..none() }),
        ("min_items", v1::ConfigureRequest { min_items: Some(0), ..none() }),
    ] {
        let status = configure(&server, request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{key}");
        assert!(status.message().starts_with(key), "{key}: {status}");
    }
    assert_eq!(configure(&server, none()).await.unwrap(), before);
    server.stop().await;
}

#[tokio::test]
async fn a_batch_that_has_become_too_large_is_told_and_does_not_wait_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path()).await;
    let (sender, mut batches) = server.sample().await;
    for message in [open(10), credit(1)] {
        sender.send(message).await.unwrap();
    }
    assert!(matches!(batches.message().await.unwrap().unwrap().message, Some(Out::Waiting(_))));
    configure(&server, v1::ConfigureRequest { error_items: Some(2.0), ..Default::default() }).await.unwrap();
    assert_eq!(end(&mut batches).await.code(), Code::InvalidArgument);
    server.stop().await;
}
