use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use game::Action;
use proto::inference::v1::inference_client::InferenceClient;
use proto::inference::{AnalysisClient, AnalysisError, Moves, SearchQuery, v1};
use tonic::{Code, Streaming};

use super::{Device, DeviceState, Server, batch, until, within};
use crate::engine::EvalRequest;

fn query(notation: &[&str]) -> SearchQuery {
    let moves = Moves::Notation(notation.iter().map(|&text| text.to_owned()).collect());
    SearchQuery { game: None, moves, simulations: Some(300), time: None }
}

/// Moves to a position in which the player to move has two in the first row.
const WINS: &[u16] = &[0, 3, 1, 4];

fn about_to_win() -> SearchQuery {
    let moves = Moves::Actions(WINS.iter().copied().map(Action).collect());
    SearchQuery { game: Some("tic_tac_toe".into()), ..SearchQuery { moves, ..query(&[]) } }
}

fn advisor(server: &Server) -> AnalysisClient {
    AnalysisClient::new(&server.endpoint()).unwrap()
}

/// Requests the reports of a search, about one every `interval_milliseconds`.
async fn analyse(
    client: &InferenceClient<transport::Channel>,
    query: SearchQuery,
    interval_milliseconds: u32,
) -> Streaming<v1::Analysis> {
    let v1::SelectMoveRequest { position, simulations, milliseconds } = query.into();
    let request = v1::AnalyseRequest { position, simulations, milliseconds, interval_milliseconds };
    within(client.clone().analyse(request)).await.unwrap().into_inner()
}

fn refused(error: AnalysisError) -> tonic::Status {
    match error {
        AnalysisError::Status(status) => status,
        AnalysisError::Answer(invalid) => panic!("the answer is invalid: {invalid}"),
    }
}

#[tokio::test]
async fn the_winning_move_is_selected_with_random_predictions() {
    let server = Server::start(|_| {}).await;
    server.publish(1);
    within(server.running.handle.served()).await;
    let (best, report) = within(advisor(&server).select_move(about_to_win())).await.unwrap();
    assert_eq!((best.action, report.version, report.finished), (2, 1, true));
    assert_eq!(report.moves.len(), 5, "every legal move is reported");
    assert_eq!(report.principal_variation.first(), Some(&best.r#move));
    server.stop().await;
}

#[tokio::test]
async fn an_analysis_grows_until_it_is_finished() {
    let server = Server::start(|_| {}).await;
    server.publish(1);
    within(server.running.handle.served()).await;
    let query = SearchQuery { simulations: Some(20_000), ..query(&[]) };
    let reports = analyse(&server.client().await, query, 1).await;
    let reports: Vec<_> = within(reports.map(Result::unwrap).collect()).await;
    assert!(reports.len() > 1, "{} reports", reports.len());
    assert!(reports.is_sorted_by_key(|report| report.simulations));
    let (last, before) = reports.split_last().unwrap();
    assert!(last.finished && before.iter().all(|report| !report.finished));
    let visits: u32 = last.moves.iter().map(|report| report.visit_count).sum();
    assert_eq!(visits, last.simulations);
    server.stop().await;
}

#[tokio::test]
async fn a_search_ends_with_its_time_and_with_its_client() {
    let server = Server::start(|section| section.searches_max = 1).await;
    server.publish(1);
    within(server.running.handle.served()).await;
    let timed = SearchQuery { simulations: None, time: Some(Duration::from_millis(30)), ..query(&[]) };
    let (_, report) = within(advisor(&server).select_move(timed)).await.unwrap();
    assert!(report.simulations > 0);

    let endless = SearchQuery { simulations: Some(1_000_000), ..query(&[]) };
    let mut client = server.client().await;
    let mut reports = analyse(&client, endless, 1).await;
    within(reports.next()).await.unwrap().unwrap();
    // The client has the only place until it drops the reports.
    let busy = within(client.select_move(v1::SelectMoveRequest::from(query(&[])))).await.unwrap_err();
    assert_eq!(busy.code(), Code::ResourceExhausted);
    drop(reports);
    while let Err(status) = within(client.select_move(v1::SelectMoveRequest::from(query(&[])))).await {
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_search_that_waits_for_the_device_at_its_time_returns_the_best_move_found() {
    let device = Device::default();
    let server = Server::start_on(device.clone(), |section| section.search_ms_max = 300).await;
    server.publish(1);
    within(server.running.handle.served()).await;
    let million = SearchQuery { simulations: Some(1_000_000), ..query(&[]) };
    let timed = SearchQuery { simulations: None, time: Some(Duration::from_millis(300)), ..query(&[]) };
    for query in [million, timed.clone()] {
        // Up to two of them are for evaluations that an earlier search has given up.
        device.limit(6);
        let (best, report) = within(advisor(&server).select_move(query)).await.unwrap();
        assert!(report.finished && report.simulations > 0, "{report:?}");
        assert_eq!(best.action, report.moves[0].action);
    }
    // Without a single evaluation, there is no move.
    device.limit(0);
    let late = refused(within(advisor(&server).select_move(timed)).await.unwrap_err());
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    device.set(DeviceState::default());
    server.stop().await;
}

#[tokio::test]
async fn the_attempts_of_a_search_while_the_queue_is_full_are_no_refused_requests() {
    let device = Device::default();
    let server = Server::start_on(device.clone(), |section| {
        (section.batch_max, section.waiting_positions_max) = (64, 1);
    })
    .await;
    server.publish(1);
    let handle = server.running.handle.clone();
    within(handle.served()).await;
    device.limit(0);
    // The empty queue accepts a request of many batches, of which each thread takes one.
    let request = EvalRequest { client: 1, version: None, batch: Arc::new(batch(1, 1000)), deadline: None };
    let fills = tokio::spawn({
        let handle = handle.clone();
        async move { handle.evaluate(request).await }
    });
    until(|| handle.counts().waiting_positions > 0).await;
    let timed = SearchQuery { time: Some(Duration::from_millis(30)), ..query(&[]) };
    let late = refused(within(advisor(&server).select_move(timed)).await.unwrap_err());
    assert_eq!((late.code(), handle.counts().rejected), (Code::DeadlineExceeded, 0));
    device.set(DeviceState::default());
    within(fills).await.unwrap().unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_search_keeps_its_version_while_ten_others_replace_it() {
    let device = Device::default();
    let server = Server::start_on(device.clone(), |section| section.versions_kept = 2).await;
    server.publish(1);
    within(server.running.handle.served()).await;
    device.limit(2);
    let query = SearchQuery { simulations: Some(2000), ..query(&[]) };
    let mut reports = analyse(&server.client().await, query, 0).await;
    for version in 2..=11 {
        server.publish(version);
        until(|| server.running.handle.model().is_some_and(|model| model.newest == version)).await;
    }
    assert_eq!(server.stats().await.versions, [10, 11]);
    device.set(DeviceState::default());
    let mut last = None;
    while let Some(report) = within(reports.next()).await {
        last = Some(report.unwrap());
    }
    let last = last.unwrap();
    assert_eq!((last.version, last.finished), (1, true));
    server.stop().await;
}

/// Maximum time of an answer next to clients that take all they can get.
const ANSWER_MAX: Duration = Duration::from_secs(2);

#[tokio::test]
async fn next_to_a_flood_and_a_client_with_every_search_a_third_client_is_answered_within_two_seconds() {
    let device = Device::default();
    let server = Server::start_on(device.clone(), |section| section.batch_max = 64).await;
    server.publish(1);
    let handle = server.running.handle.clone();
    within(handle.served()).await;
    // 16,000 positions take four seconds on two threads.
    device.set(DeviceState { batches: None, time_per_position: Duration::from_micros(500) });
    let evaluation = |client: u64, positions: usize| EvalRequest {
        client,
        version: None,
        batch: Arc::new(batch(1, positions)),
        deadline: Some(Instant::now() + Duration::from_secs(3600)),
    };
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (handle, request) = (handle.clone(), evaluation(1, 2000));
        // Each request is repeated once it is answered.
        flood.spawn(async move { while handle.evaluate(request.clone()).await.is_ok() {} });
    }
    until(|| handle.counts().waiting_positions > 15_000).await;
    let greedy = server.client().await;
    let endless = SearchQuery { simulations: None, time: Some(Duration::from_secs(60)), ..query(&[]) };
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(analyse(&greedy, endless.clone(), 1).await);
    }
    within(held[0].next()).await.unwrap().unwrap();

    let third = advisor(&server);
    for _ in 0..5 {
        let ten = SearchQuery { simulations: Some(10), ..query(&[]) };
        let answered = tokio::time::timeout(ANSWER_MAX, third.select_move(ten)).await;
        let (_, report) = answered.expect("a search is answered in time").unwrap();
        assert_eq!(report.simulations, 10);
        let evaluated = tokio::time::timeout(ANSWER_MAX, handle.evaluate(evaluation(2, 1))).await;
        assert_eq!(evaluated.expect("a position is answered in time").unwrap().predictions.len(), 1);
    }
    // The longest search has returned the best move found, for the place of the third client.
    let mut last = None;
    while let Some(report) = within(held[0].next()).await {
        last = Some(report.unwrap());
    }
    assert!(last.is_some_and(|report| report.finished));
    drop(held);
    flood.shutdown().await;
    device.set(DeviceState::default());
    server.stop().await;
}

#[tokio::test]
async fn invalid_search_queries_are_refused_by_their_field() {
    let server = Server::start(|section| {
        section.simulations_max = 1000;
        section.search_ms_max = 500;
    })
    .await;
    server.publish(1);
    within(server.running.handle.served()).await;
    let over = Moves::Actions([0, 3, 1, 4, 2].map(Action).to_vec());
    let cases = [
        (SearchQuery { moves: Moves::Actions(vec![Action(4), Action(4)]), ..query(&[]) }, "position.actions[1]"),
        (SearchQuery { moves: Moves::Actions(vec![Action(90)]), ..query(&[]) }, "position.actions[0]"),
        (query(&["no move"]), "position.notation[0]"),
        (SearchQuery { moves: over, ..query(&[]) }, "position: is final"),
        (SearchQuery { game: Some("hex-11".into()), ..query(&[]) }, "position.game"),
        (SearchQuery { simulations: Some(1001), ..query(&[]) }, "simulations"),
        (SearchQuery { time: Some(Duration::from_secs(1)), ..query(&[]) }, "milliseconds"),
    ];
    for (query, field) in cases {
        let status = refused(within(advisor(&server).select_move(query)).await.unwrap_err());
        assert_eq!(status.code(), Code::InvalidArgument, "{field}");
        assert!(status.message().contains(field), "{} does not name {field}", status.message());
    }
    server.stop().await;
}

#[tokio::test]
async fn move_selection_is_unavailable_before_the_first_weights() {
    let server = Server::start(|_| {}).await;
    let status = refused(within(advisor(&server).select_move(query(&[]))).await.unwrap_err());
    assert_eq!(status.code(), Code::Unavailable);
    server.stop().await;
}
