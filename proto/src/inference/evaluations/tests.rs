use ::inference::{Batch, Predictions, Wdl};
use game::{Action, ObservationShape};
use transport::servers::{Server, Servers, named, preferred};

use super::{EvalError, Evaluations, EvaluationsSettings, Link};
use crate::inference::v1::evaluate_response::Message;
use crate::inference::{Hello, RejectReason, Rejection, Welcome, predictions_to_wire, rejection_to_wire, v1};
use crate::scripted::{InferenceScript, until, within};

const WELCOME: Welcome = Welcome { version: 3, positions_max: 64, requests_max: 2 };
const SHAPE: ObservationShape = ObservationShape { planes: 1, height: 3, width: 3 };

fn client(endpoint: String) -> Evaluations {
    let hello = Hello { name: "test".into(), game: "tic_tac_toe".into(), shape: SHAPE, actions: 9 };
    Evaluations::start(EvaluationsSettings { endpoint, hello }).unwrap()
}

/// Returns one position with `more + 1` legal actions.
fn batch(more: u16) -> Batch {
    let mut batch = Batch::new(SHAPE);
    let legal: Vec<Action> = (0..=more).map(Action).collect();
    batch.push(&legal, |_| {});
    batch
}

/// Returns a response to [`batch`].
fn answer(request: &v1::EvalRequest, version: u64) -> Message {
    let legal = request.legal.iter().map(|byte| byte.count_ones()).sum::<u32>();
    let mut predictions = Predictions::new();
    predictions.push(&vec![1.0 / legal as f32; legal as usize], Wdl { win: 1.0, draw: 0.0, loss: 0.0 });
    Message::Predictions(predictions_to_wire(request.id, version, &predictions))
}

#[tokio::test]
async fn each_of_several_requests_gets_its_own_answer_in_whatever_order_they_come() {
    let mut script = InferenceScript::start().await;
    let client = client(script.endpoint());
    let mut stream = script.welcomed(WELCOME).await;
    assert_eq!(within(client.up()).await, WELCOME);
    let [one, two] = [1, 4].map(|more| {
        let client = client.clone();
        tokio::spawn(async move { client.evaluate(&batch(more), Some(3), None).await })
    });
    let (first, second) = (stream.request().await, stream.request().await);
    stream.reply(answer(&second, 3)).await;
    stream.reply(answer(&first, 3)).await;
    let lengths = [one, two].map(|task| async { within(task).await.unwrap().unwrap().predictions.priors(0).len() });
    let [one, two] = lengths;
    assert_eq!((one.await, two.await), (2, 5));
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_the_server_allows() {
    let mut script = InferenceScript::start().await;
    let client = client(script.endpoint());
    let mut stream = script.welcomed(WELCOME).await;
    within(client.up()).await;
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.evaluate(&batch(0), None, None).await.unwrap().version })
        })
        .collect();
    let (first, second) = (stream.request().await, stream.request().await);
    // A third request would exceed the credit; it is sent after the first response.
    stream.reply(answer(&first, 3)).await;
    let third = stream.request().await;
    for request in [second, third] {
        stream.reply(answer(&request, 3)).await;
    }
    for task in tasks {
        assert_eq!(within(task).await.unwrap(), 3);
    }
}

#[tokio::test]
async fn a_rejection_reaches_its_caller_and_the_stream_goes_on() {
    let mut script = InferenceScript::start().await;
    let client = client(script.endpoint());
    let mut stream = script.welcomed(WELCOME).await;
    within(client.up()).await;
    let evaluation = {
        let client = client.clone();
        tokio::spawn(async move {
            (client.evaluate(&batch(0), None, None).await, client.evaluate(&batch(0), None, None).await)
        })
    };
    let refusal = Rejection { reason: RejectReason::Late, message: "too much to do".into(), retry_after: None };
    let request = stream.request().await;
    stream.reply(Message::Rejection(rejection_to_wire(request.id, refusal.clone()))).await;
    let request = stream.request().await;
    stream.reply(answer(&request, 4)).await;
    let (refused, answered) = within(evaluation).await.unwrap();
    assert!(matches!(refused, Err(EvalError::Rejected(got)) if got == refusal));
    assert_eq!(answered.unwrap().version, 4);
}

#[tokio::test]
async fn a_request_to_a_server_that_is_away_fails_at_once_and_a_later_one_is_answered() {
    let script = InferenceScript::start().await;
    let address = script.address();
    let client = client(script.endpoint());
    let mut script = script;
    let mut stream = script.welcomed(WELCOME).await;
    within(client.up()).await;
    let evaluation = {
        let client = client.clone();
        tokio::spawn(async move { client.evaluate(&batch(0), None, None).await })
    };
    let _ = stream.request().await;
    drop((stream, script));
    assert!(matches!(within(evaluation).await.unwrap(), Err(EvalError::Away)));
    until(|| matches!(client.link(), Link::Away)).await;
    assert!(matches!(client.evaluate(&batch(0), None, None).await, Err(EvalError::Away)));

    let mut script = InferenceScript::start_at(address).await;
    let mut stream = script.welcomed(WELCOME).await;
    within(client.up()).await;
    let evaluation = tokio::spawn(async move { client.evaluate(&batch(0), None, None).await });
    let request = stream.request().await;
    stream.reply(answer(&request, 5)).await;
    assert_eq!(within(evaluation).await.unwrap().unwrap().version, 5);
}

#[tokio::test]
async fn an_answer_with_an_unknown_request_id_ends_the_stream_and_not_the_client() {
    let mut script = InferenceScript::start().await;
    let client = client(script.endpoint());
    let stream = script.welcomed(WELCOME).await;
    within(client.up()).await;
    let request = v1::EvalRequest { id: 99, legal: vec![1].into(), ..v1::EvalRequest::default() };
    stream.reply(answer(&request, 3)).await;
    let _stream = script.welcomed(Welcome { version: 8, ..WELCOME }).await;
    until(|| matches!(client.link(), Link::Up(welcome) if welcome.version == 8)).await;
}

/// Starts two servers; the client prefers the first.
async fn two() -> [InferenceScript; 2] {
    let [one, other] = [InferenceScript::start().await, InferenceScript::start().await];
    let set = [Server::at(&one.endpoint()), Server::at(&other.endpoint())];
    if preferred(&set, named("test"))[0] == set[0] { [one, other] } else { [other, one] }
}

#[tokio::test]
async fn requests_go_to_the_preferred_server_to_the_next_while_it_is_away_and_back_when_it_serves() {
    let [mut first, mut second] = two().await;
    let address = first.address();
    let client = client(format!("{},{}", first.endpoint(), second.endpoint()));
    let stream = first.welcomed(WELCOME).await;
    within(client.up()).await;
    drop((stream, first));
    let mut stream = second.welcomed(WELCOME).await;
    within(client.up()).await;
    let evaluation = {
        let client = client.clone();
        tokio::spawn(async move { client.evaluate(&batch(0), None, None).await })
    };
    let request = stream.request().await;
    stream.reply(answer(&request, 5)).await;
    assert_eq!(within(evaluation).await.unwrap().unwrap().version, 5);

    let mut first = InferenceScript::start_at(address).await;
    let _stream = first.welcomed(Welcome { version: 8, ..WELCOME }).await;
    until(|| matches!(client.link(), Link::Up(welcome) if welcome.version == 8)).await;
}

#[tokio::test]
async fn the_client_moves_to_a_new_preferred_server_once_its_requests_are_answered() {
    let [mut preferred, mut first] = two().await;
    let set = |scripts: &[&InferenceScript]| scripts.iter().map(|script| Server::at(&script.endpoint())).collect();
    let (sender, receiver) = tokio::sync::watch::channel(set(&[&first]));
    let hello = Hello { name: "test".into(), game: "tic_tac_toe".into(), shape: SHAPE, actions: 9 };
    let settings = EvaluationsSettings { endpoint: first.endpoint(), hello };
    let client = Evaluations::over(Servers::watching(receiver), settings);
    let mut stream = first.welcomed(WELCOME).await;
    within(client.up()).await;
    let evaluation = {
        let client = client.clone();
        tokio::spawn(async move { client.evaluate(&batch(0), None, None).await })
    };
    let request = stream.request().await;
    sender.send_replace(set(&[&first, &preferred]));
    stream.reply(answer(&request, 5)).await;
    assert_eq!(within(evaluation).await.unwrap().unwrap().version, 5, "a request from before the move is answered");
    let _stream = preferred.welcomed(Welcome { version: 8, ..WELCOME }).await;
    until(|| matches!(client.link(), Link::Up(welcome) if welcome.version == 8)).await;
}
