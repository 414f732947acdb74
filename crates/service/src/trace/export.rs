//! Exports spans: gathers a batch, sends it, and backs off exponentially while the collector is unreachable.
//!
//! A request is OTLP over HTTP/1.1 on a new connection, since there is at most about one batch per second.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::identity::Identity;

/// Maximum spans per request.
const BATCH_SPANS_MAX: usize = 512;
/// Time for which a finished span waits for more spans to share the request.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Minimum and maximum pause after a failed request.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Interval between warnings that the collector is unreachable.
const WARN_INTERVAL: Duration = Duration::from_secs(300);
/// Time limit of the final flush when the process exits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Default port of OTLP over HTTP.
const PORT: u16 = 4318;
/// Default path of traces.
const PATH: &str = "/v1/traces";

/// A running exporter.
#[derive(Debug)]
pub(crate) struct Exporter {
    closing: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Sends the spans from `records` to the collector. Must be called on a runtime.
    pub(crate) fn start(collector: Collector, identity: Identity, records: mpsc::Receiver<Span>) -> Self {
        let closing = CancellationToken::new();
        let sending = Sending { collector, identity, records, closing: closing.clone(), warned: None };
        Self { closing, task: tokio::spawn(sending.run()) }
    }

    /// Flushes queued spans, within a time limit.
    pub(crate) async fn finish(mut self) {
        self.closing.cancel();
        if timeout(FLUSH_TIMEOUT, &mut self.task).await.is_err() {
            tracing::warn!("the trace collector is too slow; dropping the last spans");
            self.task.abort();
        }
    }
}

/// Counts spans that were sent or lost, by the result.
pub(super) fn count(result: &'static str, spans: usize) {
    metrics::counter!("zerofleet_telemetry_spans_total", "result" => result).increment(spans as u64);
}

struct Sending {
    collector: Collector,
    identity: Identity,
    records: mpsc::Receiver<Span>,
    closing: CancellationToken,
    warned: Option<Instant>,
}

impl Sending {
    async fn run(mut self) {
        let (mut batch, mut pause) = (Vec::new(), PAUSE[0]);
        loop {
            self.gather(&mut batch).await;
            if batch.is_empty() {
                return;
            }
            match self.send(&batch).await {
                Ok(()) => {
                    count("sent", batch.len());
                    batch.clear();
                    if self.warned.take().is_some() {
                        tracing::info!(collector = self.collector.address, "exporting traces again");
                    }
                    pause = PAUSE[0];
                }
                Err(ExportError::Away(reason)) if !self.closing.is_cancelled() => {
                    self.warn(&reason);
                    // While waiting, the queue fills, and spans beyond the capacity are dropped.
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = self.closing.cancelled() => {}
                    }
                    pause = (pause * 2).min(PAUSE[1]);
                }
                Err(error) => {
                    self.warn(&error.to_string());
                    count(if matches!(error, ExportError::Away(_)) { "unsent" } else { "refused" }, batch.len());
                    batch.clear();
                }
            }
        }
    }

    /// Gathers a batch. An empty batch means that the channel is closed.
    async fn gather(&mut self, batch: &mut Vec<Span>) {
        let mut deadline = (!batch.is_empty()).then(|| Instant::now() + GATHER_TIME);
        while batch.len() < BATCH_SPANS_MAX {
            let closing = self.closing.is_cancelled();
            if closing {
                // No new spans arrive from here on, and queued spans are received at once.
                self.records.close();
            }
            let room = BATCH_SPANS_MAX - batch.len();
            let received = tokio::select! {
                received = self.records.recv_many(batch, room) => received,
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => 0,
                () = self.closing.cancelled(), if !closing => continue,
            };
            if received == 0 {
                return;
            }
            deadline.get_or_insert_with(|| Instant::now() + GATHER_TIME);
        }
    }

    async fn send(&self, batch: &[Span]) -> Result<(), ExportError> {
        let body = request(&self.identity, batch.to_vec()).encode_to_vec();
        match timeout(REQUEST_TIMEOUT, self.collector.post(body.into())).await {
            Ok(answered) => answered,
            Err(_) => Err(ExportError::Away(format!("no response from {}", self.collector.address))),
        }
    }

    fn warn(&mut self, reason: &str) {
        if self.warned.is_none_or(|last| last.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            tracing::warn!(reason, "cannot export traces; the queue drops and counts further spans when full");
        }
    }
}

/// The collector that receives spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collector {
    /// Address as `host:port`.
    pub(crate) address: String,
    pub(crate) path: String,
}

/// The reason why the collector did not accept a batch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    /// A retry may succeed.
    #[error("{0}")]
    Away(String),
    /// A retry cannot succeed.
    #[error("the collector returned {0}")]
    Refused(StatusCode),
}

impl Collector {
    /// Parses an endpoint as OpenTelemetry's exporters do: without a path, traces go to `/v1/traces`.
    ///
    /// # Errors
    /// The endpoint is invalid; the error describes the invalid part.
    pub(crate) fn parse(endpoint: &str) -> Result<Self, String> {
        let uri: Uri = endpoint.parse().map_err(|_| "is not a URL such as http://127.0.0.1:4318".to_owned())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                let reason = "is https; use a collector on this machine or in this network, which forwards over TLS";
                return Err(reason.to_owned());
            }
            _ => return Err("must start with http://".to_owned()),
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or("has no host")?;
        // User information would be printed wherever the endpoint is printed.
        if authority.as_str().contains('@') {
            return Err("must not contain a user or password".to_owned());
        }
        let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(PORT));
        let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
            "/" => PATH.to_owned(),
            path => path.to_owned(),
        };
        Ok(Self { address, path })
    }

    /// Sends an encoded request.
    pub(crate) async fn post(&self, body: Bytes) -> Result<(), ExportError> {
        let away = |error: &dyn std::error::Error| ExportError::Away(format!("{}: {error}", self.address));
        let socket = TcpStream::connect(&self.address).await.map_err(|error| away(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(|error| away(&error))?;
        let request = Request::post(&self.path)
            .header(HOST, &self.address)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(CONNECTION, "close")
            .body(Full::new(body))
            .map_err(|error| away(&error))?;
        // The `JoinSet` aborts the connection on every return path.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let status = sender.send_request(request).await.map_err(|error| away(&error))?.status();
        match status {
            status if status.is_success() => Ok(()),
            // The statuses for which OTLP allows a retry.
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(ExportError::Away(format!("{} returned {status}", self.address))),
            status => Err(ExportError::Refused(status)),
        }
    }
}

/// Builds one request from a batch.
fn request(identity: &Identity, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let resource = Resource { attributes: attributes_of(identity), ..Resource::default() };
    let scope = InstrumentationScope {
        name: "zerofleet".to_owned(),
        version: identity.version.clone(),
        ..InstrumentationScope::default()
    };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }
}

fn attributes_of(identity: &Identity) -> Vec<KeyValue> {
    let Identity { role, run, game, version, instance } = identity;
    let service = format!("zerofleet-{role}");
    let pairs = [
        ("service.name", service.as_str()),
        ("service.namespace", "zerofleet"),
        ("service.version", version),
        ("service.instance.id", instance),
        ("zerofleet.run", run),
        ("zerofleet.game", game),
    ];
    pairs.map(|(key, value)| pair(key, Any::StringValue(value.to_owned()))).into()
}

/// Creates an attribute.
pub(super) fn pair(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
