use super::*;

fn retry_after(status: &Status) -> &str {
    status.metadata().get(transport::RETRY_AFTER).unwrap().to_str().unwrap()
}

async fn refused(server: &Server) -> Status {
    let (sender, mut answers) = server.insert().await;
    for message in [hello(), trajectory(1)] {
        sender.send(message).await.unwrap();
    }
    end(&mut answers).await
}

#[tokio::test]
async fn a_sampler_that_never_reads_uses_no_more_than_its_credit_and_does_not_block_others() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), |replay| replay.main.error_items = 1e6).await;
    server.insert_all([0]).await;
    let before = server.client.clone().stats(v1::StatsRequest::default()).await.unwrap().into_inner().memory_bytes;
    let (idle, _never_read) = server.sample().await;
    for message in [open(4096), credit(64)] {
        idle.send(message).await.unwrap();
    }
    let (sender, mut batches) = server.sample().await;
    sender.send(open(8)).await.unwrap();
    for _ in 0..50 {
        sender.send(credit(1)).await.unwrap();
        assert!(matches!(batches.message().await.unwrap().unwrap().message, Some(Out::Batch(_))));
    }
    let stats = server.client.clone().stats(v1::StatsRequest::default()).await.unwrap().into_inner();
    assert!(stats.table.unwrap().samples_total <= 64 * 4096 + 50 * 8);
    assert_eq!(stats.memory_bytes, before, "what is drawn is shared, not copied");
    server.stop().await;
}

#[tokio::test]
async fn an_insert_over_the_memory_limit_is_refused_with_its_key_and_a_retry_delay() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), |replay| replay.memory_bytes_max = 1).await;
    let status = refused(&server).await;
    assert_eq!((status.code(), retry_after(&status)), (Code::ResourceExhausted, "1000"));
    assert!(status.message().contains("replay.memory_bytes_max"), "{status}");
    server.stop().await;
}

#[tokio::test]
async fn a_full_table_takes_inserts_at_any_memory_for_each_pushes_another_out() {
    let directory = tempfile::tempdir().unwrap();
    let small = |replay: &mut ReplaySection| (replay.main.capacity_items, replay.main.window_items_min) = (4, 4);
    let server = serve_with(directory.path(), small).await;
    server.insert_all([0]).await;
    server.stop().await;
    let narrow = |replay: &mut ReplaySection| {
        small(replay);
        replay.memory_bytes_max = 1;
    };
    let server = serve_with(directory.path(), narrow).await;
    assert_eq!(inserted(&server.insert_all([1]).await), [true]);
    assert_eq!(server.stats().await.trajectories, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_stream_over_the_limit_is_refused_until_another_ends() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), |replay| replay.streams_max = 1).await;
    let (sender, mut answers) = server.insert().await;
    sender.send(hello()).await.unwrap();
    answers.message().await.unwrap().unwrap();
    let open = async || {
        let (_, receiver) = mpsc::channel::<v1::SampleRequest>(1);
        server.client.clone().sample(ReceiverStream::new(receiver)).await
    };
    let status = open().await.unwrap_err();
    assert_eq!((status.code(), retry_after(&status)), (Code::ResourceExhausted, "1000"));
    drop(sender);
    assert!(answers.message().await.unwrap().is_none());
    // The client may see the stream end before the server has released the permit.
    while open().await.is_err() {
        tokio::task::yield_now().await;
    }
    server.stop().await;
}

#[tokio::test]
async fn an_actor_within_its_quota_is_not_held_up() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), |replay| replay.actor_inserts_per_second_max = 1_000_000).await;
    assert_eq!(inserted(&server.insert_all([0, 1]).await), [true, true]);
    server.stop().await;
}
