//! A collector that keeps the received traces, decoded with the published code of the protocol.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message as _;

/// A received span.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Name of the service, such as `zerofleet-actor`.
    pub(crate) service: String,
    /// Other attributes of the resource.
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) trace: Vec<u8>,
    pub(crate) id: Vec<u8>,
    /// Id of the parent; empty for the root of a trace.
    pub(crate) parent: Vec<u8>,
    pub(crate) name: String,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) attributes: BTreeMap<String, String>,
}

/// A collector that listens on a free port.
pub(crate) struct Collector {
    pub(crate) endpoint: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Collector {
    /// Starts a collector. Must be called on a tokio runtime, which serves the collector until the runtime stops.
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&seen));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { endpoint, seen }
    }

    /// Returns the spans received so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn take(State(seen): State<Arc<Mutex<Vec<Seen>>>>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(&body[..]) else { return StatusCode::BAD_REQUEST };
    let mut seen = seen.lock().unwrap();
    for of_process in request.resource_spans {
        let resource = texts(of_process.resource.map(|resource| resource.attributes).unwrap_or_default());
        for span in of_process.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            seen.push(Seen {
                service: resource.get("service.name").cloned().unwrap_or_default(),
                resource: resource.clone(),
                trace: span.trace_id,
                id: span.span_id,
                parent: span.parent_span_id,
                name: span.name,
                start_ns: span.start_time_unix_nano,
                end_ns: span.end_time_unix_nano,
                attributes: texts(span.attributes),
            });
        }
    }
    StatusCode::OK
}

fn texts(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(whole)) => whole.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => panic!("an attribute holds {other:?}"),
    }
}
