//! The messages of OTLP that are sent, written down once more: of `opentelemetry/proto/collector/trace/v1` and what it
//! takes, the fields that this process fills. Field numbers are those of the published protocol, version 1; a test holds
//! them against its own generated code.

use prost::{Enumeration, Message, Oneof};

use super::Epoch;
use super::span::{Kind, Record, Value};
use crate::identity::Identity;

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(enumeration = "SpanKind", tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
enum SpanKind {
    Unspecified = 0,
    Internal = 1,
    Server = 2,
    Client = 3,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 3, 4")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Any {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Whole(i64),
    #[prost(double, tag = "4")]
    Number(f64),
}

/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: i32 = 2;
/// The flag of a trace that is recorded.
const FLAG_SAMPLED: u32 = 1;

/// One request for all of them.
pub(super) fn request(identity: &Identity, epoch: Epoch, records: &[Record]) -> Request {
    let resource = Resource { attributes: attributes_of(identity) };
    let scope = Scope { name: "zerofleet".to_owned(), version: identity.version.clone() };
    let spans = records.iter().map(|record| span(epoch, record)).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    Request { resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans }] }
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
    pairs.map(|(key, value)| pair(key, Any::Text(value.to_owned()))).into()
}

fn span(epoch: Epoch, record: &Record) -> Span {
    let kind = match record.kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Server => SpanKind::Server,
        Kind::Client => SpanKind::Client,
    };
    Span {
        trace_id: record.context.trace.to_vec(),
        span_id: record.context.span.to_vec(),
        parent_span_id: record.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        name: record.name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: epoch.unix_ns(record.begun),
        end_time_unix_nano: epoch.unix_ns(record.ended),
        attributes: record.attributes.iter().map(|(key, value)| pair(key, any(value))).collect(),
        status: record.error.clone().map(|message| Status { message, code: STATUS_ERROR }),
        flags: FLAG_SAMPLED,
    }
}

fn any(value: &Value) -> Any {
    match value {
        Value::Whole(whole) => Any::Whole(*whole),
        Value::Number(number) => Any::Number(*number),
        Value::Text(text) => Any::Text(text.clone()),
    }
}

fn pair(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
