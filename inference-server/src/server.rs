//! Runs the process and instances of the server: starts all parts, serves and drains.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evaluators::Chosen;
use game::{Game as _, Spec};
use proto::inference::v1::inference_server::InferenceServer;
use proto::open_inference::v2::grpc_inference_service_server::GrpcInferenceServiceServer;
use proto::weights::{Published, SubscriberSettings};
use run_file::WeightsSource;
use run_file::inference::{Config, Settings};
use service::{Drain, Health, Readiness};
use tokio::net::TcpListener;
use tokio::task::JoinHandle as Task;
use tonic::server::NamedService as _;
use tonic::service::Routes;
use transport::security::{Security, use_credentials};
use version_store::{Model, ModelFolder};

use crate::engine::{Engine, Handle};
use crate::grpc::InferenceService;
use crate::load::Loader;
use crate::open_inference::OpenInference;
use crate::queue::QueueSettings;
use crate::versions::Versions;
use crate::{backend, metrics};

/// HTTP/2 window for a stream of evaluations, in bytes, large enough to transfer a batch of large boards in a few round
/// trips.
const EVALUATIONS_WINDOW_BYTES: u32 = 512 << 10;
/// Time for which a draining server answers the calls that it has accepted. Afterwards searches return the best move
/// found, and requests in the queue are refused.
const ANSWERS_TIMEOUT: Duration = Duration::from_millis(4_500);
/// Time limit for the responses after that time.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs the process body, for [`service::run`].
///
/// # Errors
/// The failure that prevented the start or stopped the process early, as one chain.
pub fn run(config: Config, context: service::Context) -> service::Body {
    Box::pin(async move {
        let settings = config.settings()?;
        metrics::begin();
        let security = Security::open(&config.security, context.listen)?;
        use_credentials(&config.security)?;
        let listener = service::net::bind(context.listen).await?;
        context.readiness.not_ready("waiting for the first weights");
        let evaluators = backend::choose(&settings.inference)?;
        let service::Context { readiness, health, drain, .. } = context;
        let running = start_on(settings, evaluators, security, listener, readiness, health, drain).await?;
        tracing::info!(address = %running.address, "serving evaluations");
        running.finished().await
    })
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    /// Address on which the server listens.
    pub address: SocketAddr,
    /// Handle for requests from within the process.
    pub handle: Handle,
    serving: Task<anyhow::Result<()>>,
}

impl Running {
    /// Waits until the server has drained and the threads are joined.
    ///
    /// # Errors
    /// The failure that stopped the server early.
    pub async fn finished(self) -> anyhow::Result<()> {
        self.serving.await.context("join the server")?
    }
}

/// Serves over loopback without authentication, for a caller that is the only client.
///
/// # Errors
/// The build does not support the configuration, or the weights cannot be used.
pub async fn start(
    settings: Settings,
    listener: TcpListener,
    readiness: Readiness,
    drain: Drain,
) -> anyhow::Result<Running> {
    let evaluators = backend::choose(&settings.inference)?;
    start_on(settings, evaluators, Security::default(), listener, readiness, Health::default(), drain).await
}

/// Serves on `listener`, to clients that `security` accepts, until `drain` fires. Weights from a file are served when
/// this returns, weights from a learner once they arrive.
pub(crate) async fn start_on(
    settings: Settings,
    Chosen { backend, threads }: Chosen,
    security: Security,
    listener: TcpListener,
    readiness: Readiness,
    health: Health,
    drain: Drain,
) -> anyhow::Result<Running> {
    let address = listener.local_addr().context("read the address of the listener")?;
    let versions = Arc::new(Versions::new(settings.inference.versions_kept));
    let timeout = Duration::from_millis(settings.inference.timeout_ms);
    let queue = QueueSettings::of(&settings.inference, threads);
    let (engine, handle) = Engine::start(Arc::clone(&versions), queue, timeout, &drain, &health)?;
    let spec: Spec = settings.game.rules().spec().clone();
    let batch_max = settings.inference.batch_max;
    let counted = Arc::clone(&backend);
    let loader = Loader { backend, spec, threads, batch_max, versions, handle: handle.clone(), readiness };
    let bytes_max = settings.inference.weights_bytes_max;
    let following = match &settings.source {
        WeightsSource::Server(learner) => {
            let name = "inference-server".to_owned();
            let subscription = SubscriberSettings { endpoint: learner.clone(), name, size_limit_bytes: bytes_max };
            Some(tokio::spawn(Arc::new(loader).follow(subscription, drain.clone())))
        }
        WeightsSource::File(path) => {
            let path = path.clone();
            let load = move || {
                let Model { manifest, bytes, .. } = ModelFolder::read_at_most(&path, bytes_max)?;
                loader.load(&Published { manifest, bytes: bytes.into() })
            };
            tokio::task::spawn_blocking(load).await.context("join the loading thread")??;
            None
        }
    };
    let served = handle.clone();
    let serving = tokio::spawn(async move {
        let export = move || {
            service::devices::graphs("evaluation", counted.graphs());
            counted.engine_counts().inspect(metrics::engine).is_some()
        };
        let sampling = drain.repeat(Duration::from_secs(1), export);
        let served = serve(Arc::new(settings), security, listener, served, drain.clone()).await;
        // The drain fires even if serving failed.
        drain.start();
        if let Some(following) = following {
            following.await.context("join the weights subscription task")?;
        }
        sampling.await.context("join the engine sampling task")?;
        let joined = tokio::task::spawn_blocking(move || engine.join()).await.context("join the evaluator threads")?;
        served.and(joined)
    });
    Ok(Running { address, handle, serving })
}

/// Serves until drained; the evaluating threads are stopped when this returns.
async fn serve(
    settings: Arc<Settings>,
    security: Security,
    listener: TcpListener,
    handle: Handle,
    drain: Drain,
) -> anyhow::Result<()> {
    let names = [InferenceServer::<InferenceService>::NAME, GrpcInferenceServiceServer::<OpenInference>::NAME];
    let (reporter, health, reflection) = proto::health_and_reflection(&names);
    let older_reflection = proto::open_inference::older_reflection(&names);
    let open_inference = OpenInference::new(handle.clone(), drain.token());
    let connections_max = settings.inference.connections_max;
    let service = InferenceService::new(Arc::clone(&settings), handle.clone(), drain.token());
    let services = Routes::new(health)
        .add_service(reflection)
        .add_service(older_reflection)
        .add_service(proto::inference::service(service))
        .add_service(proto::open_inference::service(open_inference));
    let server = transport::server(&security).initial_stream_window_size(EVALUATIONS_WINDOW_BYTES);
    let stopped = Box::pin(drain.token().cancelled_owned());
    let serving = transport::serve(server, services, listener, connections_max, security, stopped);
    let draining = async {
        drain.wait().await;
        names.iter().for_each(|name| reporter.set_not_serving(name));
        tokio::time::sleep(ANSWERS_TIMEOUT).await;
        handle.drain();
        tokio::time::sleep(CLOSE_TIMEOUT).await;
    };
    let served = tokio::select! {
        served = serving => served.context("serve evaluations"),
        () = draining => Ok(()),
    };
    handle.drain();
    served
}
