//! Converts records to OTLP messages, version 1.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

use super::Epoch;
use super::span::{Kind, Record, Value};
use crate::identity::Identity;

/// The `sampled` flag of W3C's trace context.
const SAMPLED: u32 = 1;

/// Builds one request from a batch.
pub(super) fn request(identity: &Identity, epoch: Epoch, records: &[Record]) -> ExportTraceServiceRequest {
    let resource = Resource { attributes: attributes_of(identity), ..Resource::default() };
    let scope = InstrumentationScope {
        name: "zerofleet".to_owned(),
        version: identity.version.clone(),
        ..InstrumentationScope::default()
    };
    let spans = records.iter().map(|record| span(epoch, record)).collect();
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
        status: record.error.clone().map(|message| Status { message, code: StatusCode::Error.into() }),
        // Only sampled spans are recorded.
        flags: SAMPLED,
        ..Span::default()
    }
}

fn any(value: &Value) -> Any {
    match value {
        Value::Whole(whole) => Any::IntValue(*whole),
        Value::Number(number) => Any::DoubleValue(*number),
        Value::Text(text) => Any::StringValue(text.clone()),
    }
}

fn pair(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
