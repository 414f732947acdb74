use std::time::{Duration, Instant};

use game::ObservationShape;
use inference::Batch;
use proto::inference::{AskError, Evaluations, EvaluationsSettings, Hello};
use proto::open_inference::v2;
use proto::open_inference::v2::grpc_inference_service_client::GrpcInferenceServiceClient;
use weights::{Architecture, Manifest};

use super::server::Server;
use crate::latency::Latency;
use crate::positions;

/// The load that callers make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Number of concurrent callers; each sends its next request as soon as it is answered.
    pub(super) callers: usize,
    /// Positions in an ask.
    pub(super) positions: usize,
    /// Within what time answers are wanted.
    pub(super) timeout: Option<Duration>,
}

/// The result of a load.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Loaded {
    pub(super) positions_per_second: f64,
    /// Of answered asks.
    pub(super) latency: Latency,
    /// Of all asks.
    pub(super) refused_share: f64,
    /// Of all asks, those whose time was up while they waited.
    pub(super) expired_share: f64,
}

/// The fast path, from one client with one stream.
pub(super) async fn fast(server: &Server, manifest: &Manifest, load: Load, time: Duration) -> Loaded {
    let architecture = &manifest.architecture;
    let (planes, height, width) = (architecture.planes, architecture.height, architecture.width);
    let shape = ObservationShape { planes, height, width };
    let hello = Hello { name: "bench".into(), game: architecture.game.clone(), shape, actions: architecture.actions };
    let client = Evaluations::start(EvaluationsSettings { endpoint: server.endpoint.clone(), hello });
    client.up().await;
    let ask = |caller| {
        let (client, batch) = (client.clone(), positions::random(architecture, caller, load.positions));
        async move |asked: &mut Asked| {
            let start = Instant::now();
            match client.ask(&batch, None, load.timeout).await {
                Ok(_) => asked.answered.push(start.elapsed()),
                Err(AskError::Refused(refusal)) => {
                    asked.refused += u64::from(refusal.retry_after.is_some());
                    asked.expired += u64::from(refusal.retry_after.is_none());
                    let pause = refusal.retry_after.unwrap_or_default().max(Duration::from_millis(1));
                    tokio::time::sleep(pause).await;
                }
                Err(error) => asked.fail(&error),
            }
        }
    };
    keep_asking(load, time, ask).await
}

/// `ModelInfer` of the Open Inference Protocol, raw contents, over one connection.
///
/// # Errors
/// An endpoint that is none.
pub(super) async fn model_infer(
    server: &Server,
    manifest: &Manifest,
    load: Load,
    time: Duration,
) -> anyhow::Result<Loaded> {
    let architecture = &manifest.architecture;
    let client = GrpcInferenceServiceClient::new(proto::channel(&server.endpoint)?);
    let ask = |caller| {
        let mut client = client.clone();
        let request = request(architecture, &positions::random(architecture, caller, load.positions));
        async move |asked: &mut Asked| {
            let start = Instant::now();
            match client.model_infer(request.clone()).await {
                Ok(_) => asked.answered.push(start.elapsed()),
                Err(error) => asked.fail(&error),
            }
        }
    };
    Ok(keep_asking(load, time, ask).await)
}

fn request(architecture: &Architecture, batch: &Batch) -> v2::ModelInferRequest {
    let size = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let Architecture { game, planes, height, width, .. } = architecture;
    let observations = v2::model_infer_request::InferInputTensor {
        name: "observations".into(),
        datatype: "FP32".into(),
        shape: vec![size(batch.len()), size(*planes), size(*height), size(*width)],
        ..v2::model_infer_request::InferInputTensor::default()
    };
    let bytes: Vec<u8> = batch.observations().iter().flat_map(|number| number.to_le_bytes()).collect();
    v2::ModelInferRequest {
        model_name: game.clone(),
        inputs: vec![observations],
        raw_input_contents: vec![bytes.into()],
        ..v2::ModelInferRequest::default()
    }
}

/// Callers that each ask again as soon as they are answered. `ask` makes the question of a caller.
async fn keep_asking<A>(load: Load, time: Duration, ask: impl Fn(u64) -> A) -> Loaded
where
    A: AsyncFnMut(&mut Asked),
{
    let begun = Instant::now();
    let callers = (0..load.callers as u64).map(|caller| {
        let mut ask = ask(caller);
        async move {
            let mut asked = Asked::default();
            while begun.elapsed() < time && !asked.has_failed {
                ask(&mut asked).await;
            }
            asked
        }
    });
    let mut all = Asked::default();
    for asked in futures::future::join_all(callers).await {
        all.answered.extend(asked.answered);
        all.refused += asked.refused;
        all.expired += asked.expired;
    }
    all.loaded(load, begun.elapsed())
}

#[derive(Debug, Default)]
struct Asked {
    answered: Vec<Duration>,
    /// At once, with when to come again.
    refused: u64,
    /// While they waited.
    expired: u64,
    has_failed: bool,
}

impl Asked {
    fn fail(&mut self, error: &dyn std::error::Error) {
        tracing::error!(%error, "an ask failed");
        self.has_failed = true;
    }

    fn loaded(mut self, load: Load, took: Duration) -> Loaded {
        let answered = self.answered.len() as f64;
        let all = (answered + self.refused as f64 + self.expired as f64).max(1.0);
        Loaded {
            positions_per_second: answered * load.positions as f64 / took.as_secs_f64(),
            latency: Latency::of(&mut self.answered),
            refused_share: self.refused as f64 / all,
            expired_share: self.expired as f64 / all,
        }
    }
}
