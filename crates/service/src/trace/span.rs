use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Instant;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span as Message, Status};

use super::{Tracer, pair};

/// Relation of a span to other processes: internal, or the server or client side of a request.
pub type Kind = SpanKind;

/// Maximum length of a text attribute, so that peers cannot make a span arbitrarily large.
const TEXT_BYTES_MAX: usize = 256;

/// A part of a trace: a name, start and end times, and attributes. A span that is dropped without an end is never sent.
#[derive(Debug, Clone)]
pub struct Span {
    tracer: Arc<Tracer>,
    context: TraceContext,
    begun: Instant,
    /// The message without the times, which are set at the end.
    message: Box<Message>,
}

/// The value of an attribute: a count, a measure, or a name from a small set.
#[derive(Debug, Clone, PartialEq)]
pub struct Value(Any);

impl Span {
    pub(super) fn new(tracer: Arc<Tracer>, name: &str, context: TraceContext, parent: Option<TraceContext>) -> Self {
        let message = Message {
            trace_id: context.trace.to_vec(),
            span_id: context.span.to_vec(),
            parent_span_id: parent.map(|parent| parent.span.to_vec()).unwrap_or_default(),
            name: name.to_owned(),
            kind: Kind::Internal.into(),
            // Only sampled spans are recorded.
            flags: SAMPLED.into(),
            ..Message::default()
        };
        Self { tracer, context, begun: Instant::now(), message: Box::new(message) }
    }

    /// Returns the context under which other processes create child spans.
    #[must_use]
    pub fn context(&self) -> TraceContext {
        self.context
    }

    /// Returns the start time.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Starts a child span now.
    #[must_use]
    pub fn child(&self, name: &'static str) -> Self {
        self.tracer.begin(name, Some(self.context))
    }

    /// Sets an earlier start time.
    #[must_use]
    pub fn since(mut self, begun: Instant) -> Self {
        self.begun = begun;
        self
    }

    /// Sets the relation to other processes.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.message.kind = kind.into();
        self
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.message.attributes.push(pair(key, value.into().0));
    }

    /// Marks the work as failed.
    pub fn fail(&mut self, reason: &str) {
        self.message.status = Some(Status { message: cut(reason), code: StatusCode::Error.into() });
    }

    /// Ends the span now.
    pub fn end(self) {
        self.end_at(Instant::now());
    }

    /// Ends the span at an earlier time.
    pub fn end_at(mut self, ended: Instant) {
        let epoch = &self.tracer.epoch;
        self.message.start_time_unix_nano = epoch.unix_ns(self.begun);
        self.message.end_time_unix_nano = epoch.unix_ns(ended.max(self.begun));
        self.tracer.record(*self.message);
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self(Any::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self(Any::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self(Any::DoubleValue(value))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self(Any::StringValue(cut(value)))
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

/// The trace context of a message, which joins spans of several processes into one trace. Only recorded traces are
/// propagated.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
}

/// Length of a `traceparent` of version 00 in bytes.
const LENGTH: usize = 55;
/// Flag of a recorded trace.
const SAMPLED: u8 = 1;

impl TraceContext {
    /// Parses a `traceparent` (W3C Trace Context, level 1). `None` if it is missing, malformed or from a trace that
    /// is not recorded, which is no error.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let head = bytes.get(..LENGTH)?;
        let dashes = [2, 35, 52].iter().all(|&at| head[at] == b'-');
        let version = hex::<1>(&head[..2])?[0];
        // Later versions may append fields; version 00 has none, and 255 is reserved.
        let ends_well =
            if version == 0 { bytes.len() == LENGTH } else { matches!(bytes.get(LENGTH), None | Some(b'-')) };
        let (trace, span) = (hex::<16>(&head[3..35])?, hex::<8>(&head[36..52])?);
        let is_recorded = hex::<1>(&head[53..])?[0] & SAMPLED != 0;
        let is_valid = dashes && ends_well && version != u8::MAX && trace != [0; 16] && span != [0; 8];
        (is_valid && is_recorded).then_some(Self { trace, span })
    }
}

/// Formats a `traceparent` of version 00: 55 characters.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_char('-')?;
        self.span.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{SAMPLED:02x}")
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses lower-case hexadecimal digits only, as the recommendation requires.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}
