use std::collections::VecDeque;

use experience::Trajectory;
use service::trace::Span;

/// A trajectory in flight.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) trajectory: Trajectory,
    /// From here to the acknowledgement, where that is traced.
    pub(super) trace: Option<Span>,
    /// True if it may have been sent before: on another stream, or by an earlier process.
    pub(super) resent: bool,
}

/// The trajectories accepted and not acknowledged, in order: first those sent on this stream, then the unsent.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    items: VecDeque<Item>,
    sent: usize,
}

impl Outstanding {
    pub(super) fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.items.len()
    }

    /// The next trajectory of this stream, and which trace it is part of; it counts as sent.
    pub(super) fn send_next(&mut self) -> Option<(Trajectory, String)> {
        let Item { trajectory, trace, .. } = self.items.get(self.sent)?;
        self.sent += 1;
        Some((trajectory.clone(), trace.as_ref().map(|span| span.context().to_string()).unwrap_or_default()))
    }

    /// Removes the trajectory that is answered and returns it, if it was waiting, and whether it may have gone out
    /// before.
    pub(super) fn answered(&mut self, sequence: u64) -> Option<(Trajectory, bool)> {
        let index = self.items.iter().take(self.sent).position(|item| item.trajectory.id().sequence == sequence)?;
        self.sent -= 1;
        let Item { trajectory, trace, resent } = self.items.remove(index)?;
        if let Some(span) = trace {
            span.end();
        }
        Some((trajectory, resent))
    }

    /// The stream broke: everything must go out again.
    pub(super) fn stream_broke(&mut self) {
        self.items.iter_mut().take(self.sent).for_each(|item| item.resent = true);
        self.sent = 0;
    }

    pub(super) fn into_trajectories(self) -> Vec<Trajectory> {
        self.items.into_iter().map(|item| item.trajectory).collect()
    }
}
