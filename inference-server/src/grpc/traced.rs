use proto::inference::Asked;
use service::trace::{self, Kind, Span};

use super::evaluate::Answered;
use crate::engine::Answer;

/// The server's span of a traced evaluation; `None` for a request without a trace.
pub(super) struct Traced(Option<Span>);

impl Traced {
    pub(super) fn begin(asked: &Asked) -> Self {
        let span = trace::joined("evaluate", asked.trace).map(|span| span.of_kind(Kind::Server));
        Self(span.map(|mut span| {
            span.set("positions", asked.batch.len());
            span
        }))
    }

    /// So many positions were answered from memory.
    pub(super) fn cached(&mut self, positions: usize) {
        if let Some(span) = &mut self.0 {
            span.set("cached", positions);
        }
    }

    /// The others have been evaluated.
    pub(super) fn computed(&mut self, answer: &Answer) {
        if let Some(span) = &mut self.0 {
            span.set("queued_ms", answer.queued.as_secs_f64() * 1e3);
            span.set("computed_ms", answer.computed.as_secs_f64() * 1e3);
        }
    }

    pub(super) fn end(self, answered: &Answered) {
        let Some(mut span) = self.0 else { return };
        match answered {
            Ok((version, _)) => span.set("weights_version", *version),
            Err(refusal) => span.fail(&refusal.to_string()),
        }
        span.end();
    }
}
