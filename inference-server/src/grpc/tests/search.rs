use std::time::Duration;

use futures::StreamExt as _;
use game::Action;
use proto::inference::{AnalysisClient, AnalysisError, Moves, SearchQuery};
use tonic::Code;

use super::{Server, within};

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
    let reports = within(advisor(&server).analyse(query, Some(Duration::from_millis(1)))).await.unwrap();
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
    let mut reports = within(advisor(&server).analyse(endless.clone(), Some(Duration::from_millis(1)))).await.unwrap();
    within(reports.next()).await.unwrap().unwrap();
    // The only slot is occupied until the client disconnects.
    let busy = refused(within(advisor(&server).select_move(query(&[]))).await.unwrap_err());
    assert_eq!(busy.code(), Code::ResourceExhausted);
    drop(reports);
    loop {
        match within(advisor(&server).select_move(query(&[]))).await {
            Ok(_) => break,
            Err(error) => assert_eq!(refused(error).code(), Code::ResourceExhausted),
        }
    }
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
