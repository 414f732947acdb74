//! Evaluates positions for `play` and `eval` on an inference server. Start with [`evaluators`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use game::Game;
use inference::{Attributes, Batch, Error, Evaluator, Predictions};
use proto::inference::{EvalError, Evaluated, Evaluations, EvaluationsSettings, Hello, RejectReason};
use tokio::runtime::{Builder, Runtime};

/// Timeout for connecting. A server without weights does not accept connections.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a batch request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the inference server at `endpoint`. Returns one evaluator per thread. All evaluators use the weights
/// version that is latest at the time of the call. Once the server has dropped that version, all evaluators switch to
/// the latest version. The last evaluator drops `server`.
///
/// # Errors
/// The endpoint is invalid, or no server at the endpoint responds with weights for the game.
pub(crate) fn evaluators<G: Game>(
    endpoint: &str,
    game: &G,
    threads: usize,
    server: Option<Arc<dyn Send + Sync>>,
) -> anyhow::Result<Vec<Box<dyn Evaluator>>> {
    let spec = game.spec();
    let (name, actions) = ("zerofleet".to_owned(), spec.actions);
    let hello = Hello { name, game: spec.name.clone(), shape: spec.observation, actions };
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (evaluations, welcome) = runtime.block_on(async {
        let settings = EvaluationsSettings { endpoint: endpoint.to_owned(), hello };
        let evaluations = Evaluations::start(settings).context("--inference")?;
        let welcome = tokio::time::timeout(CONNECT_TIMEOUT, evaluations.up()).await;
        anyhow::Ok((evaluations, welcome))
    })?;
    let seconds = CONNECT_TIMEOUT.as_secs();
    let welcome = welcome.with_context(|| {
        format!("no response from an inference server for {} at {endpoint} in {seconds} s", spec.name)
    })?;
    let attributes = Attributes {
        name: format!("inference server at {endpoint}").into(),
        weights_version: welcome.version,
        preferred_batch: welcome.positions_max,
        max_batch: welcome.positions_max,
    };
    let version = Arc::new(AtomicU64::new(welcome.version));
    let remote = RemoteEvaluator { evaluations, runtime: Arc::new(runtime), attributes, version, _server: server };
    Ok((0..threads.max(1)).map(|_| Box::new(remote.clone()) as Box<dyn Evaluator>).collect())
}

/// An evaluator that sends batches to an inference server.
#[derive(Clone)]
struct RemoteEvaluator {
    evaluations: Evaluations,
    runtime: Arc<Runtime>,
    /// All attributes except the weights version, which changes.
    attributes: Attributes,
    /// Shared by the evaluators of all threads.
    version: Arc<AtomicU64>,
    /// The server process, if this process started it. It runs until the last evaluator is dropped.
    _server: Option<Arc<dyn Send + Sync>>,
}

impl RemoteEvaluator {
    /// Evaluates the batch with the weights version in use, or with the latest version if the server has dropped that
    /// version. A server keeps only a few versions, and a training run publishes a version every few seconds.
    async fn request(&self, batch: &Batch) -> Result<Evaluated, EvalError> {
        let version = self.version.load(Ordering::Relaxed);
        let evaluated = self.evaluations.evaluate(batch, Some(version), Some(ANSWER_TIMEOUT)).await;
        match evaluated {
            Err(EvalError::Rejected(rejection)) if rejection.reason == RejectReason::Version => {
                let evaluated = self.evaluations.evaluate(batch, None, Some(ANSWER_TIMEOUT)).await?;
                self.version.store(evaluated.version, Ordering::Relaxed);
                Ok(evaluated)
            }
            evaluated => evaluated,
        }
    }
}

impl Evaluator for RemoteEvaluator {
    fn attributes(&self) -> Attributes {
        Attributes { weights_version: self.version.load(Ordering::Relaxed), ..self.attributes.clone() }
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        let evaluated =
            self.runtime.block_on(self.request(batch)).map_err(|error| Error::Backend(error.to_string()))?;
        *predictions = evaluated.predictions;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use game::Action;
    use games::TicTacToe;
    use inference::Wdl;
    use proto::inference::v1::evaluate_response::Message;
    use proto::inference::{Rejection, Welcome, predictions_to_wire, rejection_to_wire};
    use scripted::InferenceScript;

    use super::*;

    #[test]
    fn the_weights_of_the_start_evaluate_until_the_server_has_dropped_them() {
        let server = Runtime::new().unwrap();
        let mut script = server.block_on(InferenceScript::start());
        let endpoint = script.endpoint();
        let answered = server.spawn(async move {
            let mut stream = script.welcomed(Welcome { version: 7, positions_max: 64, requests_max: 4 }).await;
            let mut versions = Vec::new();
            for answered_by in [Some(7), None, Some(9)] {
                let request = stream.request().await;
                versions.push(request.version);
                let Some(version) = answered_by else {
                    let message = "version 7 is gone".to_owned();
                    let rejection = Rejection { reason: RejectReason::Version, message, retry_after: None };
                    stream.reply(Message::Rejection(rejection_to_wire(request.id, rejection))).await;
                    continue;
                };
                let mut predictions = Predictions::new();
                predictions.push(&[0.75, 0.25], Wdl { win: 1.0, draw: 0.0, loss: 0.0 });
                stream.reply(Message::Predictions(predictions_to_wire(request.id, version, &predictions))).await;
            }
            versions
        });
        let game = TicTacToe::new();
        let mut evaluator = evaluators(&endpoint, &game, 1, None).unwrap().remove(0);
        let mut batch = Batch::new(game.spec().observation);
        batch.push(&[Action(1), Action(4)], |_| {});
        for version in [7, 9] {
            let mut predictions = Predictions::new();
            evaluator.evaluate(&batch, &mut predictions).unwrap();
            assert_eq!(predictions.priors(0), [0.75, 0.25]);
            assert_eq!((evaluator.attributes().weights_version, evaluator.attributes().max_batch), (version, 64));
        }
        assert_eq!(server.block_on(answered).unwrap(), [7, 7, 0], "0 requests the newest");
    }

    #[test]
    fn an_address_that_is_no_endpoint_is_rejected() {
        let error = evaluators("nowhere", &TicTacToe::new(), 1, None).err().unwrap();
        assert_eq!(error.to_string(), "--inference");
    }
}
