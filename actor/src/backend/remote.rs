//! Evaluates the positions of self-play on one of several inference servers, and optionally on this machine while the
//! server is unreachable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evaluators::Backend;
use game::ObservationShape;
use inference::{Attributes, Batch, EngineCounts, Error, Evaluator, LatentModel, Predictions};
use proto::inference::{EvalError, Evaluations, Link, RejectReason, Rejection};
use proto::limits::request_positions_max;
use service::Drain;
use tokio::runtime::Handle;
use weights::{Manifest, Model};

use crate::metrics::{self, AnsweredBy};

/// Time limit for a response or a rejection, including the time that a weights version needs to reach the server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time without a message from the server, after which the server counts as unreachable.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Pause after a rejection before the next request to a server. Meanwhile, this machine evaluates.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);
/// Pause after a timeout, because a broken connection closes only after several seconds.
const SILENCE_PAUSE: Duration = Duration::from_secs(2);
/// Shortest and longest pause of an actor without another evaluator.
const PAUSE: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

/// An evaluator that sends batches to an inference server, with the actor's weights version.
pub(super) struct Remote {
    shared: Arc<Shared>,
    local: Option<Arc<dyn Backend>>,
}

struct Shared {
    evaluations: Evaluations,
    endpoint: String,
    runtime: Handle,
    drain: Drain,
    /// True while this machine evaluates in place of the server. Each change is logged once, by the first thread that
    /// notices.
    is_local: AtomicBool,
}

impl Remote {
    /// Creates a backend that sends requests through `evaluations`. While no server responds, `local` evaluates;
    /// without `local`, self-play waits. Must be called on a tokio runtime.
    pub(super) fn new(
        evaluations: Evaluations,
        endpoint: String,
        local: Option<Arc<dyn Backend>>,
        drain: Drain,
    ) -> Self {
        let (runtime, is_local) = (Handle::current(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { evaluations, endpoint, runtime, drain, is_local }), local }
    }

    /// Returns the backend of this machine. `networks` names the networks in the error, which no inference server
    /// supports.
    fn local(&self, networks: &str) -> Result<&dyn Backend, evaluators::Error> {
        self.local.as_deref().ok_or_else(|| {
            let instead = "leave actor.inference empty, or set actor.inference_fallback";
            evaluators::Error::Other(format!("the inference server does not support {networks}; {instead}"))
        })
    }
}

impl Backend for Remote {
    fn build_latent(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn LatentModel>, evaluators::Error> {
        self.local("MuZero networks")?.build_latent(manifest, bytes)
    }

    fn describe(&self) -> String {
        let endpoint = &self.shared.endpoint;
        match &self.local {
            Some(local) => format!("inference server at {endpoint}, with fallback {}", local.describe()),
            None => format!("inference server at {endpoint}"),
        }
    }

    fn engine_counts(&self) -> Option<EngineCounts> {
        self.local.as_ref()?.engine_counts()
    }

    fn graphs(&self) -> Option<String> {
        self.local.as_ref()?.graphs()
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, evaluators::Error> {
        let architecture = &manifest.architecture;
        if architecture.model != Model::Alphazero {
            return self.local("networks of returns")?.build(manifest, bytes);
        }
        let (planes, height, width) = (architecture.planes, architecture.height, architecture.width);
        let positions_max = request_positions_max(ObservationShape { planes, height, width }, architecture.actions);
        let local = self.local.clone().map(|backend| Local {
            backend,
            manifest: manifest.clone(),
            bytes: bytes.clone(),
            evaluator: None,
        });
        Ok(Box::new(RemoteEvaluator {
            shared: Arc::clone(&self.shared),
            attributes: Attributes {
                name: format!("inference server at {}", self.shared.endpoint).into(),
                weights_version: manifest.version.0,
                preferred_batch: positions_max,
                max_batch: positions_max,
            },
            local,
            ask_again: Instant::now(),
        }))
    }
}

/// The local evaluator, built on first use.
struct Local {
    backend: Arc<dyn Backend>,
    manifest: Manifest,
    bytes: Bytes,
    evaluator: Option<Box<dyn Evaluator>>,
}

impl Local {
    fn evaluator(&mut self) -> Result<&mut Box<dyn Evaluator>, Error> {
        let evaluator = match self.evaluator.take() {
            Some(evaluator) => evaluator,
            None => {
                let built = self.backend.build(&self.manifest, &self.bytes);
                built.map_err(|error| Error::Backend(error.to_string()))?
            }
        };
        Ok(self.evaluator.insert(evaluator))
    }
}

struct RemoteEvaluator {
    shared: Arc<Shared>,
    attributes: Attributes,
    local: Option<Local>,
    /// Time of the earliest next request to the server, after a rejection or timeout.
    ask_again: Instant,
}

impl Evaluator for RemoteEvaluator {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        loop {
            let pause = match self.request(batch) {
                Ok(answer) => {
                    self.shared.answered_by(AnsweredBy::Server, batch.len(), "");
                    *predictions = answer;
                    return Ok(());
                }
                Err(Unanswered::Broken(error)) => return Err(error),
                Err(Unanswered::For { pause, reason }) => {
                    if let Some(local) = &mut self.local {
                        self.shared.answered_by(AnsweredBy::Actor, batch.len(), &reason);
                        return local.evaluator()?.evaluate(batch, predictions);
                    }
                    pause
                }
            };
            self.wait(pause)?;
        }
    }
}

/// The reason why a batch has no result.
enum Unanswered {
    /// The server will not respond for the next `pause`.
    For { pause: Duration, reason: String },
    /// The response is invalid.
    Broken(Error),
}

impl RemoteEvaluator {
    fn request(&mut self, batch: &Batch) -> Result<Predictions, Unanswered> {
        let now = Instant::now();
        if let Some(pause) = self.ask_again.checked_duration_since(now).filter(|pause| !pause.is_zero()) {
            return Err(Unanswered::For { pause, reason: "the last request was rejected or unanswered".to_owned() });
        }
        let (version, evaluations) = (self.attributes.weights_version, &self.shared.evaluations);
        let request = evaluations.evaluate(batch, Some(version), Some(ANSWER_TIMEOUT));
        let outcome = self.shared.runtime.block_on(async { tokio::time::timeout(SILENCE_MAX, request).await });
        let error = match outcome {
            Ok(Ok(answered)) if answered.version == version => return Ok(answered.predictions),
            Ok(Ok(answered)) => {
                let reason = format!("response from weights version {}, requested {version}", answered.version);
                return Err(Unanswered::Broken(Error::Backend(reason)));
            }
            Ok(Err(error)) => error,
            Err(_) => {
                // The next batches do not wait for an unresponsive server.
                self.ask_again = Instant::now() + SILENCE_PAUSE;
                EvalError::Away
            }
        };
        let reason = error.to_string();
        match error {
            EvalError::Away => Err(Unanswered::For { pause: PAUSE[1], reason }),
            EvalError::Rejected(rejection) => {
                let pause = pause_after(&rejection);
                self.ask_again = Instant::now() + pause;
                Err(Unanswered::For { pause, reason })
            }
            EvalError::Answer(_) => Err(Unanswered::Broken(Error::Backend(reason))),
        }
    }

    /// Waits for the server, at most `pause`; returns an error once the process drains.
    fn wait(&self, pause: Duration) -> Result<(), Error> {
        let Shared { evaluations, runtime, drain, .. } = &*self.shared;
        let is_away = matches!(evaluations.link(), Link::Away);
        let event = async {
            tokio::select! {
                () = drain.wait() => Err(Error::Backend("draining; inference server unreachable".to_owned())),
                _ = evaluations.up(), if is_away => Ok(()),
                () = tokio::time::sleep(pause) => Ok(()),
            }
        };
        service::waiting(|| runtime.block_on(event))
    }
}

/// Returns the pause after a rejection, before the next request.
fn pause_after(rejection: &Rejection) -> Duration {
    match rejection.reason {
        RejectReason::Full | RejectReason::Late => rejection.retry_after.unwrap_or(PAUSE[0]).clamp(PAUSE[0], PAUSE[1]),
        RejectReason::Version | RejectReason::Failed | RejectReason::Unspecified => REFUSED_PAUSE,
    }
}

impl Shared {
    fn answered_by(&self, who: AnsweredBy, positions: usize, reason: &str) {
        metrics::remote(who, positions);
        let is_local = who == AnsweredBy::Actor;
        if self.is_local.swap(is_local, Ordering::Relaxed) == is_local {
            return;
        }
        if is_local {
            tracing::info!(endpoint = self.endpoint, reason, "evaluating locally until the inference server responds");
        } else {
            tracing::info!(endpoint = self.endpoint, "evaluating on the inference server again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::JoinHandle;

    use bytes::Bytes;
    use evaluator_doubles::Uniform;
    use evaluators::Backend;
    use game::{Action, Game as _, ObservationShape};
    use games::tic_tac_toe::TicTacToe;
    use inference::{Batch, Error, Evaluator, Predictions, Wdl};
    use proto::inference::v1::evaluate_response::Message;
    use proto::inference::{
        Evaluations, EvaluationsSettings, Hello, RejectReason, Rejection, Welcome, predictions_to_wire,
        rejection_to_wire, v1,
    };
    use scripted::{InferenceScript, version, within};
    use service::Drain;
    use weights::Manifest;

    use super::Remote;

    const WELCOME: Welcome = Welcome { version: 7, positions_max: 64, requests_max: 4 };

    /// Returns the evaluator of this machine: uniform priors, as from an untrained network.
    fn here() -> Arc<dyn Backend> {
        let build = |_: &Manifest, _: &Bytes| -> Result<Box<dyn Evaluator>, evaluators::Error> {
            Ok(Box::new(Uniform::new(shape())))
        };
        Arc::new(build)
    }

    fn shape() -> ObservationShape {
        TicTacToe::new().spec().observation
    }

    fn remote(endpoint: &str, local: Option<Arc<dyn Backend>>, drain: &Drain) -> Remote {
        let hello = Hello { name: "actor-0".into(), game: "tic_tac_toe".into(), shape: shape(), actions: 9 };
        let evaluations = Evaluations::start(EvaluationsSettings { endpoint: endpoint.into(), hello }).unwrap();
        Remote::new(evaluations, endpoint.into(), local, drain.clone())
    }

    fn build(remote: &Remote) -> Box<dyn Evaluator> {
        let published = version(7, "weights");
        remote.build(&published.manifest, &published.bytes).unwrap()
    }

    fn batch() -> Batch {
        let mut batch = Batch::new(shape());
        batch.push(&[Action(1), Action(4)], |_| {});
        batch
    }

    /// Calls the evaluator once, on a separate thread as in self-play.
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

    /// Responds like a server with a network that prefers the first action.
    async fn answer(stream: &mut scripted::EvalStream) {
        let request = stream.request().await;
        assert_eq!(request.version, 7, "a request names the version that the actor holds");
        let mut predictions = Predictions::new();
        predictions.push(&[0.75, 0.25], Wdl { win: 1.0, draw: 0.0, loss: 0.0 });
        stream.reply(Message::Predictions(predictions_to_wire(request.id, 7, &predictions))).await;
    }

    async fn reject(stream: &mut scripted::EvalStream, reason: RejectReason) {
        let v1::EvalRequest { id, .. } = stream.request().await;
        stream
            .reply(Message::Rejection(rejection_to_wire(
                id,
                Rejection { reason, message: "no".into(), retry_after: None },
            )))
            .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_local_evaluator_answers_while_the_server_is_away_or_refuses() {
        let drain = Drain::new();
        let mut script = InferenceScript::start().await;
        let remote = remote(&script.endpoint(), Some(here()), &drain);
        let evaluator = build(&remote);
        assert_eq!(evaluator.attributes().weights_version, 7);

        // The connection is not established yet.
        let (evaluator, answered) = joined(evaluate(evaluator)).await;
        assert_eq!(answered.unwrap().priors(0), [0.5, 0.5]);

        let mut stream = script.welcomed(WELCOME).await;
        within(remote.shared.evaluations.up()).await;
        let thread = evaluate(evaluator);
        answer(&mut stream).await;
        let (evaluator, answered) = joined(thread).await;
        assert_eq!(answered.unwrap().priors(0), [0.75, 0.25]);

        let thread = evaluate(evaluator);
        reject(&mut stream, RejectReason::Version).await;
        let (evaluator, answered) = joined(thread).await;
        assert_eq!(answered.unwrap().priors(0), [0.5, 0.5]);

        let address = script.address();
        drop((stream, script));
        let (evaluator, answered) = joined(evaluate(evaluator)).await;
        assert_eq!(answered.unwrap().priors(0), [0.5, 0.5]);

        let mut script = InferenceScript::start_at(address).await;
        let mut stream = script.welcomed(WELCOME).await;
        within(remote.shared.evaluations.up()).await;
        // A new evaluator, since it does not pause after the rejection.
        drop(evaluator);
        let thread = evaluate(build(&remote));
        answer(&mut stream).await;
        assert_eq!(joined(thread).await.1.unwrap().priors(0), [0.75, 0.25]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_actor_without_a_local_evaluator_retries_until_the_server_answers_or_it_drains() {
        let drain = Drain::new();
        let mut script = InferenceScript::start().await;
        let remote = remote(&script.endpoint(), None, &drain);
        let thread = evaluate(build(&remote));
        let mut stream = script.welcomed(WELCOME).await;
        reject(&mut stream, RejectReason::Full).await;
        answer(&mut stream).await;
        let (evaluator, answered) = joined(thread).await;
        assert_eq!(answered.unwrap().priors(0), [0.75, 0.25]);

        drop((stream, script));
        let thread = evaluate(evaluator);
        drain.start();
        assert!(matches!(joined(thread).await.1, Err(Error::Backend(_))), "a process that ends waits no longer");
    }
}
