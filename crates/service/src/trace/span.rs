use std::time::Instant;

use super::{TraceContext, Tracer};

/// Longer texts are truncated: peers cannot make a span arbitrarily large.
const TEXT_BYTES_MAX: usize = 256;

/// A part of a trace: a name, a start, an end, and attributes. A span that is dropped without an end is never sent.
#[derive(Debug, Clone)]
pub struct Span {
    tracer: Tracer,
    record: Box<Record>,
}

/// The relation of a span to other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Local work.
    Internal,
    /// The span handles a request of another process.
    Server,
    /// The span waits for a response of another process.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A count.
    Whole(i64),
    /// A measure.
    Number(f64),
    /// A name from a small set.
    Text(String),
}

/// An ended span as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) name: &'static str,
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) kind: Kind,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) error: Option<String>,
}

impl Record {
    pub(super) fn new(name: &'static str, context: TraceContext, parent: Option<[u8; 8]>, begun: Instant) -> Self {
        let (kind, attributes, error) = (Kind::Internal, Vec::new(), None);
        Self { name, context, parent, kind, begun, ended: begun, attributes, error }
    }
}

impl Span {
    pub(super) fn new(tracer: Tracer, record: Record) -> Self {
        Self { tracer, record: Box::new(record) }
    }

    /// The context under which other processes create child spans.
    #[must_use]
    pub fn context(&self) -> TraceContext {
        self.record.context
    }

    /// The start time.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.record.begun
    }

    /// Starts a child span now.
    #[must_use]
    pub fn child(&self, name: &'static str) -> Self {
        self.tracer.begin(name, Some(self.record.context))
    }

    /// Sets an earlier start time.
    #[must_use]
    pub fn since(mut self, begun: Instant) -> Self {
        self.record.begun = begun;
        self
    }

    /// Sets the relation to other processes.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.record.kind = kind;
        self
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.record.attributes.push((key, value.into()));
    }

    /// Marks the work as failed.
    pub fn fail(&mut self, reason: &str) {
        self.record.error = Some(cut(reason));
    }

    /// Ends the span now.
    pub fn end(self) {
        self.end_at(Instant::now());
    }

    /// Ends the span at an earlier time.
    pub fn end_at(mut self, ended: Instant) {
        self.record.ended = ended.max(self.record.begun);
        let Self { tracer, record } = self;
        tracer.record(*record);
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Whole(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(cut(value))
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}
