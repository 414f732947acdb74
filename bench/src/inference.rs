//! `zerofleet bench inference`: the throughput of an inference server over loopback, as a share of the same evaluator
//! used directly with the same batch size; the latency of single positions; and the behaviour under overload.
//!
//! Server and clients are separate processes that share the cores. Messages go over sockets, through the client that
//! actors use. Every caller requests different positions. Start with [`measure`].

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use game::{Game as _, ObservationShape};
use games::{GameKind, with_game};
use inference::Batch;
use proto::inference::{AnalysisClient, EvalError, Evaluations, EvaluationsSettings, Hello};
use proto::open_inference::v2;
use proto::open_inference::v2::grpc_inference_service_client::GrpcInferenceServiceClient;
use weights::Architecture;

use crate::network::{automatic_evaluators, evaluations_per_second, random_positions, random_weights};
use crate::output::temporary_folder;
use crate::report::{Report, Unit};
use crate::server_process::ServerProcess;
use crate::{Turns, machine};

/// Requests in flight with full batches.
const IN_FLIGHT: usize = 6;

/// Options of `zerofleet bench inference`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Game for which the network evaluates positions.
    #[arg(long, default_value = "connect_four")]
    pub game: GameKind,
    /// Number of residual blocks in the network, which has random weights.
    #[arg(long, default_value_t = 6)]
    pub blocks: usize,
    /// Number of channels in the network.
    #[arg(long, default_value_t = 64)]
    pub channels: usize,
    /// Evaluation threads, with and without the server; 0 for one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Positions per request, and per batch when the evaluator is measured without a server.
    #[arg(long, default_value_t = 64)]
    pub batch: usize,
    /// Numbers of callers to measure, each with one position per request.
    ///
    /// A caller waits for the response before sending the next request.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    pub callers: Vec<usize>,
    /// Duration, repeats and seed of every measurement.
    #[command(flatten)]
    pub turns: Turns,
}

/// Runs the measurements and returns the report.
///
/// # Errors
/// An option is invalid, or a server cannot start.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(args.batch > 0, "--batch must be at least 1");
    ensure!(!args.callers.contains(&0), "every number in --callers must be at least 1");
    let time = args.turns.time()?;
    let thread_count = machine::threads(args.threads);
    let spec = with_game!(args.game, |game| game.spec().clone());
    let weights = random_weights(&spec, args.blocks, args.channels, args.turns.seed)?;
    let folder = temporary_folder(None)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let sets = [format!("inference.threads={thread_count}"), "inference.requests_max=4096".to_owned()];
    let server = runtime.block_on(ServerProcess::inference(folder.path(), &weights, &sets))?;
    // The same evaluators as in the server, in this process.
    let mut local = automatic_evaluators(&weights, thread_count, args.batch)?;
    let architecture = &weights.manifest.architecture;
    let batch = |thread| random_positions(architecture, args.turns.seed + thread as u64, args.batch);

    let full = Load { callers: IN_FLIGHT, positions: args.batch, timeout: None };
    let speed = |loaded: &Loaded| loaded.positions_per_second;
    let load_fast = |load| runtime.block_on(fast(&server.endpoint, architecture, load, time));
    let paths = args.turns.each(
        [IN_PROCESS, FAST_PATH, MODEL_INFER],
        |path, _| match *path {
            IN_PROCESS => {
                let positions_per_second = evaluations_per_second(&mut local, batch, time)?;
                Ok(Loaded { positions_per_second, ..Loaded::default() })
            }
            FAST_PATH => Ok(load_fast(full)),
            _ => runtime.block_on(model_infer(&server.endpoint, architecture, full, time)),
        },
        speed,
    )?;
    let in_process = speed(&paths[0].1);
    let by_callers = args.turns.each(
        args.callers.iter().copied(),
        |callers, _| Ok(load_fast(Load { callers: *callers, positions: 1, ..full })),
        speed,
    )?;
    let mut report = Report::new("inference", "The inference server beside its evaluator in a process");
    report.set("game", &args.game);
    report.set("network", format!("{}x{}", args.blocks, args.channels));
    report.set("threads", thread_count);
    report.set("positions per request", args.batch);
    report.set("requests in flight", IN_FLIGHT);
    for (path, mut loaded) in paths {
        let cell = report.at(FULL, &[("path", &path)]).value(EVALUATIONS, Unit::PerSecond, speed(&loaded));
        if path != IN_PROCESS {
            cell.value(SHARE, Unit::Share, speed(&loaded) / in_process).latency("request", &mut loaded.answered);
        }
    }
    for (callers, mut loaded) in by_callers {
        report
            .at(CALLERS, &[("callers", &callers)])
            .value(EVALUATIONS, Unit::PerSecond, speed(&loaded))
            .latency("request", &mut loaded.answered);
    }
    // A fixed deadline would reject everything where a batch takes longer, and nothing where it takes no time.
    let deadline = Duration::from_secs_f64((IN_TIME * args.batch) as f64 / in_process).max(DEADLINE_MIN);
    let overload = Load { callers: 4 * IN_TIME, timeout: Some(deadline), ..full };
    let mut overloaded = load_fast(overload);
    let (rejected, expired) = (overloaded.share(overloaded.rejected), overloaded.share(overloaded.expired));
    let stats = runtime.block_on(async { anyhow::Ok(AnalysisClient::new(&server.endpoint)?.stats().await?) });
    let evaluator = stats.context("read the statistics of the server")?.evaluator;
    runtime.block_on(server.stop())?;
    report
        .at(OVERLOAD, &[("callers", &overload.callers)])
        .value("deadline", Unit::Microseconds, 1e6 * deadline.as_secs_f64())
        .value(EVALUATIONS, Unit::PerSecond, speed(&overloaded))
        .latency("answered request", &mut overloaded.answered)
        .value("rejected at once", Unit::Share, rejected)
        .value("expired in the queue", Unit::Share, expired);
    let own = local[0].attributes().name;
    report
        .note(format!("evaluators: {evaluator} in the server, {own} in a process; random weights, no position cache"));
    report.note("server and clients share the cores of this machine, over loopback");
    report.note_turns(args.turns);
    report.plot(CALLERS, EVALUATIONS, Some("callers"), None);
    Ok(report)
}

/// One client that keeps the maximum number of requests in flight.
const FULL: &str = "full batches";
const IN_PROCESS: &str = "in process";
const FAST_PATH: &str = "fast path";
const MODEL_INFER: &str = "ModelInfer";
/// Callers that each wait for the response to one position before the next request.
const CALLERS: &str = "one position per request";
/// Four times the requests that the evaluator serves by the deadline.
const OVERLOAD: &str = "overload";
/// Requests that the evaluator serves by the deadline under overload: 20 ms with the default network on a CPU with AMX.
const IN_TIME: usize = 22;
/// Minimum deadline under overload: a shorter one expires on the way.
const DEADLINE_MIN: Duration = Duration::from_millis(1);
const EVALUATIONS: &str = "evaluations/s";
const SHARE: &str = "share of in process";

/// Returns the hello message of a client that requests evaluations with a network of this architecture.
fn hello(architecture: &Architecture) -> Hello {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let shape = ObservationShape { planes, height, width };
    Hello { name: "bench".into(), game: architecture.game.clone(), shape, actions }
}

/// Load from callers.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Number of concurrent callers; each sends the next request after the response to the last.
    callers: usize,
    /// Positions per request.
    positions: usize,
    /// Timeout of a request.
    timeout: Option<Duration>,
}

/// Result of a load.
#[derive(Debug, Default)]
struct Loaded {
    /// Evaluated positions per second.
    positions_per_second: f64,
    /// Latency of each served request.
    answered: Vec<Duration>,
    /// Requests rejected at once, with a delay before the retry.
    rejected: u64,
    /// Requests that timed out in the queue.
    expired: u64,
}

impl Loaded {
    /// Returns `count` as a share of all requests.
    fn share(&self, count: u64) -> f64 {
        count as f64 / (self.answered.len() as f64 + self.rejected as f64 + self.expired as f64).max(1.0)
    }
}

/// Loads the fast path from one client with one stream.
async fn fast(endpoint: &str, architecture: &Architecture, load: Load, time: Duration) -> Loaded {
    let settings = EvaluationsSettings { endpoint: endpoint.to_owned(), hello: hello(architecture) };
    let client = Evaluations::start(settings).expect("the server has a valid endpoint");
    client.up().await;
    let request = |caller| {
        let (client, batch) = (client.clone(), random_positions(architecture, caller, load.positions));
        async move || client.evaluate(&batch, None, load.timeout).await.map(drop)
    };
    keep_requesting(load, time, request).await
}

/// Loads `ModelInfer` of the Open Inference Protocol, with raw contents, over one connection.
///
/// # Errors
/// The endpoint is invalid.
async fn model_infer(
    endpoint: &str,
    architecture: &Architecture,
    load: Load,
    time: Duration,
) -> anyhow::Result<Loaded> {
    let client = GrpcInferenceServiceClient::new(transport::channel(endpoint)?);
    let request = |caller| {
        let mut client = client.clone();
        let request = request(architecture, &random_positions(architecture, caller, load.positions));
        async move || client.model_infer(request.clone()).await.map(drop)
    };
    Ok(keep_requesting(load, time, request).await)
}

fn request(architecture: &Architecture, batch: &Batch) -> v2::ModelInferRequest {
    let &Architecture { planes, height, width, .. } = architecture;
    let shape = [batch.len(), planes, height, width].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
    let observations = v2::model_infer_request::InferInputTensor {
        name: "observations".into(),
        datatype: "FP32".into(),
        shape: shape.to_vec(),
        ..v2::model_infer_request::InferInputTensor::default()
    };
    let bytes: Vec<u8> = batch.observations().iter().flat_map(|number| number.to_le_bytes()).collect();
    v2::ModelInferRequest {
        model_name: architecture.game.clone(),
        inputs: vec![observations],
        raw_input_contents: vec![bytes.into()],
        ..v2::ModelInferRequest::default()
    }
}

/// Runs callers as fast as the server responds, all in one task. `request` creates the function that sends the requests
/// of a caller.
async fn keep_requesting<A, E>(load: Load, time: Duration, request: impl Fn(u64) -> A) -> Loaded
where
    A: AsyncFnMut() -> Result<(), E>,
    E: std::error::Error + 'static,
{
    let (begun, all) = (Instant::now(), RefCell::new(Loaded::default()));
    let callers = (0..load.callers as u64).map(|caller| {
        let (mut request, all) = (request(caller), &all);
        async move {
            while begun.elapsed() < time {
                let start = Instant::now();
                let Err(error) = request().await else {
                    all.borrow_mut().answered.push(start.elapsed());
                    continue;
                };
                let Some(EvalError::Rejected(rejection)) = (&error as &dyn std::error::Error).downcast_ref() else {
                    tracing::error!(%error, "a request failed");
                    return;
                };
                all.borrow_mut().rejected += u64::from(rejection.retry_after.is_some());
                all.borrow_mut().expired += u64::from(rejection.retry_after.is_none());
                let pause = rejection.retry_after.unwrap_or_default().max(Duration::from_millis(1));
                tokio::time::sleep(pause).await;
            }
        }
    });
    futures::future::join_all(callers).await;
    let mut all = all.into_inner();
    all.positions_per_second = (all.answered.len() * load.positions) as f64 / begun.elapsed().as_secs_f64();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::parsed;

    #[test]
    fn options_that_make_no_sense_are_rejected_by_name() {
        for options in [["--batch", "0"], ["--callers", "0"]] {
            let error = measure(&parsed(options).unwrap()).unwrap_err().to_string();
            assert!(error.contains(options[0]), "{error}");
        }
    }
}
