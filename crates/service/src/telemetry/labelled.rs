use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::identity::Identity;

/// Formats log lines as JSON objects with the identity of the process, so that lines of a whole fleet can be
/// distinguished.
pub(super) struct Labelled<F> {
    inner: F,
    /// The start of each object, with the fields of the identity.
    head: String,
}

impl<F> Labelled<F> {
    pub(super) fn new(inner: F, identity: &Identity) -> Self {
        let Identity { role, run, version, instance, .. } = identity;
        let pairs = [("run", run.as_str()), ("role", role), ("version", version), ("instance", instance)];
        let mut head = String::from("{");
        for (key, value) in pairs {
            head.push_str(&format!("\"{key}\":{},", serde_json::Value::from(value)));
        }
        Self { inner, head }
    }
}

impl<S, N, F> FormatEvent<S, N> for Labelled<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        match line.strip_prefix('{') {
            Some(rest) => write!(writer, "{}{rest}", self.head),
            None => writer.write_str(&line),
        }
    }
}
