//! The admin port: `/metrics` for Prometheus, `/healthz` and `/readyz` for orchestrators, `/live` for spectators.
//!
//! It shares the runtime of the process, so that a stuck runtime fails the probes. Connections are bounded.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::bounded_listener::BoundedListener;
use crate::{Drain, Health, Live, live};

/// Interval of histogram aggregation; in between, samples are kept in memory.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Time limit of a connection, which serves one request. Spectators then open another.
const CONNECTION_TIME_LIMIT: Duration = Duration::from_secs(20);

/// The readiness of the process, with a reason if it is not ready; cheap to clone.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// The reason why the process is not ready; `None` if it is ready.
    reason: Arc<Mutex<Option<String>>>,
}

impl Readiness {
    /// Creates a readiness that is not ready, with the reason `starting`.
    pub fn starting() -> Self {
        Self { reason: Arc::new(Mutex::new(Some("starting".to_owned()))) }
    }

    /// Makes `/readyz` respond with 200.
    pub fn ready(&self) {
        self.set(None);
    }

    /// Makes `/readyz` respond with 503 and this reason.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(Some(reason.into()));
    }

    /// Returns the reason why the process is not ready; `None` if it is ready.
    pub fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

/// The admin server of a process; runs until [`stop`](Admin::stop).
#[derive(Debug)]
pub struct Admin {
    /// Address on which the server listens.
    pub address: SocketAddr,
    stop: Drain,
    server: JoinHandle<()>,
}

impl Admin {
    /// Serves on `listener` until [`stop`](Self::stop). The server outlives the drain of the process, so that draining
    /// can be observed.
    pub fn start(
        listener: TcpListener,
        metrics: PrometheusHandle,
        health: Health,
        readiness: Readiness,
        live: Live,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let stop = Drain::new();
        let recorded = metrics.clone();
        stop.repeat(UPKEEP_INTERVAL, move || {
            recorded.run_upkeep();
            true
        });
        let router = Router::new()
            .route("/metrics", get(render_metrics))
            .route("/healthz", get(report_health))
            .route("/readyz", get(report_readiness))
            .route("/live", get(live::stream).with_state(live))
            .layer(map_response(last_of_connection))
            .with_state((metrics, health, readiness));
        let listener = BoundedListener::new(listener, CONNECTION_TIME_LIMIT);
        let stopped = stop.clone();
        let server = tokio::spawn(async move {
            let served =
                axum::serve(listener, router).with_graceful_shutdown(async move { stopped.wait().await }).await;
            if let Err(error) = served {
                tracing::error!(%error, "the admin server stopped");
            }
        });
        Ok(Self { address, stop, server })
    }

    /// Stops the server and closes connections that a scraper keeps open.
    pub async fn stop(self) {
        self.stop.start();
        self.server.abort();
        // The only error is the cancellation above.
        let _ = self.server.await;
    }
}

/// The state that handlers share.
type Shared = (PrometheusHandle, Health, Readiness);

/// Makes the server close the connection after this response. A connection kept open between two scrapes would reach
/// the time limit during one of them.
async fn last_of_connection(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn render_metrics(State((metrics, health, _)): State<Shared>) -> impl IntoResponse {
    health.publish(Instant::now());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], exposition(&metrics.render()))
}

/// Corrects the metric types in the rendered text. The recorder counts in integers only, so that a counter of seconds
/// is recorded as an increasing gauge; a name that ends in `_total` is a counter.
fn exposition(rendered: &str) -> String {
    rendered.replace("_total gauge\n", "_total counter\n")
}

async fn report_health(State((_, health, _)): State<Shared>) -> impl IntoResponse {
    match health.problem(Instant::now()) {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn report_readiness(State((_, _, readiness)): State<Shared>) -> impl IntoResponse {
    match readiness.reason() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net;

    async fn get(address: SocketAddr, path: &str) -> (u16, String) {
        let url = format!("http://{address}{path}");
        let ask = move || {
            let agent =
                ureq::Agent::new_with_config(ureq::config::Config::builder().http_status_as_error(false).build());
            let mut answer = agent.get(url).call().unwrap();
            (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
        };
        tokio::task::spawn_blocking(ask).await.unwrap()
    }

    #[tokio::test]
    async fn metrics_health_and_readiness_are_served() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("games_total").increment(3);
            metrics::gauge!("wait_seconds_total").increment(0.5);
            metrics::gauge!("items").set(2.0);
        });
        let readiness = Readiness::starting();
        let listener = net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let health = Health::default();
        let admin =
            Admin::start(listener, recorder.handle(), health.clone(), readiness.clone(), Live::default()).unwrap();
        let address = admin.address;

        assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
        let stalled = health.heartbeat("log", Duration::ZERO);
        let (status, reason) = get(address, "/healthz").await;
        assert_eq!((status, reason.starts_with("the thread log has stalled for ")), (503, true), "{reason}");
        drop(stalled);
        assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(get(address, "/readyz").await, (503, "starting\n".to_owned()));
        readiness.ready();
        assert_eq!(get(address, "/readyz").await, (200, "ready\n".to_owned()));
        readiness.not_ready("waiting for weights");
        assert_eq!(get(address, "/readyz").await, (503, "waiting for weights\n".to_owned()));
        let (status, text) = get(address, "/metrics").await;
        assert_eq!((status, text.contains("games_total 3")), (200, true), "{text}");
        for line in ["# TYPE wait_seconds_total counter\nwait_seconds_total 0.5\n", "# TYPE items gauge\nitems 2\n"] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(get(address, "/nothing").await.0, 404);

        admin.stop().await;
        assert!(net::bind(address).await.is_ok(), "the port is free again");
    }
}
