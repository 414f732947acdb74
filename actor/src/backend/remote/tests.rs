use std::sync::Arc;
use std::thread::JoinHandle;

use game::{Action, Game as _, ObservationShape};
use games::tic_tac_toe::TicTacToe;
use inference::testing::Uniform;
use inference::{Batch, Error, Evaluator, Predictions, Wdl};
use proto::convert::{predictions_to_wire, refusal_to_wire};
use proto::inference::v1::evaluate_response::Message;
use proto::inference::{Evaluations, EvaluationsSettings, Hello, Refusal, Welcome, Why, v1};
use proto::scripted::{InferenceScript, version, within};
use proto::weights::Published;
use service::Drain;

use super::super::Backend;
use super::Remote;

const WELCOME: Welcome = Welcome { version: 7, positions_max: 64, asks_max: 4 };

/// Uniform priors, as a network that knows nothing.
struct Here;

impl Backend for Here {
    fn describe(&self) -> String {
        "this machine".into()
    }

    fn build(&self, _: &Published) -> anyhow::Result<Box<dyn Evaluator>> {
        Ok(Box::new(Uniform::new(shape())))
    }
}

fn shape() -> ObservationShape {
    TicTacToe::new().spec().observation
}

fn remote(endpoint: &str, local: Option<Arc<dyn Backend>>, drain: &Drain) -> Remote {
    let hello = Hello { name: "actor-0".into(), game: "tic_tac_toe".into(), shape: shape(), actions: 9 };
    let evaluations = Evaluations::start(EvaluationsSettings { endpoint: endpoint.into(), hello });
    Remote::new(evaluations, endpoint.into(), local, drain.clone())
}

fn batch() -> Batch {
    let mut batch = Batch::new(shape());
    batch.push(&[Action(1), Action(4)], |_| {});
    batch
}

/// One call of the evaluator, on a thread as in self-play.
fn evaluate(mut evaluator: Box<dyn Evaluator>) -> JoinHandle<(Box<dyn Evaluator>, Result<Predictions, Error>)> {
    std::thread::spawn(move || {
        let mut predictions = Predictions::new();
        let result = evaluator.evaluate(&batch(), &mut predictions);
        (evaluator, result.map(|()| predictions))
    })
}

async fn joined<T: Send + 'static>(thread: JoinHandle<T>) -> T {
    within(tokio::task::spawn_blocking(|| thread.join().unwrap())).await.unwrap()
}

/// The server is sure of the first action.
async fn answer(stream: &mut proto::scripted::AskStream) {
    let ask = stream.ask().await;
    assert_eq!(ask.version, 7, "an ask names the version that the actor holds");
    let mut predictions = Predictions::new();
    predictions.push(&[0.75, 0.25], Wdl { win: 1.0, draw: 0.0, loss: 0.0 });
    stream.reply(Message::Predictions(predictions_to_wire(ask.id, 7, &predictions))).await;
}

async fn refuse(stream: &mut proto::scripted::AskStream, why: Why) {
    let v1::Ask { id, .. } = stream.ask().await;
    stream.reply(Message::Refusal(refusal_to_wire(id, Refusal { why, reason: "no".into(), retry_after: None }))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_evaluates_and_while_it_is_away_or_refuses_this_machine_does() {
    let drain = Drain::new();
    let mut script = InferenceScript::start().await;
    let remote = remote(&script.endpoint(), Some(Arc::new(Here)), &drain);
    let evaluator = remote.build(&version(7, "weights")).unwrap();
    assert_eq!(evaluator.attributes().weights_version, 7);

    // Not connected yet.
    let (evaluator, answered) = joined(evaluate(evaluator)).await;
    assert_eq!(answered.unwrap().priors(0), [0.5, 0.5]);

    let mut stream = script.welcomed(WELCOME).await;
    within(remote.shared.evaluations.up()).await;
    let thread = evaluate(evaluator);
    answer(&mut stream).await;
    let (evaluator, answered) = joined(thread).await;
    assert_eq!(answered.unwrap().priors(0), [0.75, 0.25]);

    let thread = evaluate(evaluator);
    refuse(&mut stream, Why::Version).await;
    let (evaluator, answered) = joined(thread).await;
    assert_eq!(answered.unwrap().priors(0), [0.5, 0.5]);

    let address = script.address();
    drop((stream, script));
    let (evaluator, answered) = joined(evaluate(evaluator)).await;
    assert_eq!(answered.unwrap().priors(0), [0.5, 0.5]);

    let mut script = InferenceScript::start_at(address).await;
    let mut stream = script.welcomed(WELCOME).await;
    within(remote.shared.evaluations.up()).await;
    // Another evaluator has not been refused anything.
    drop(evaluator);
    let thread = evaluate(remote.build(&version(7, "weights")).unwrap());
    answer(&mut stream).await;
    assert_eq!(joined(thread).await.1.unwrap().priors(0), [0.75, 0.25]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_actor_that_cannot_evaluate_waits_for_the_server_and_loses_nothing_by_it() {
    let drain = Drain::new();
    let mut script = InferenceScript::start().await;
    let remote = remote(&script.endpoint(), None, &drain);
    let thread = evaluate(remote.build(&version(7, "weights")).unwrap());
    let mut stream = script.welcomed(WELCOME).await;
    refuse(&mut stream, Why::Full).await;
    answer(&mut stream).await;
    let (evaluator, answered) = joined(thread).await;
    assert_eq!(answered.unwrap().priors(0), [0.75, 0.25]);

    drop((stream, script));
    let thread = evaluate(evaluator);
    drain.start();
    assert!(matches!(joined(thread).await.1, Err(Error::Backend(_))), "a process that ends waits no longer");
}
