use std::collections::VecDeque;

use crate::log::SegmentNumber;

/// The segments of the log that still hold trajectories of a table.
///
/// Every trajectory goes into every table and leaves from the old end only, so what a table holds is the newest stretch
/// of the log, and what all tables hold together is the longest of these.
#[derive(Debug, Default)]
pub struct Segments {
    /// Oldest first: how many of the trajectories held each of them has.
    counts: VecDeque<(SegmentNumber, u64)>,
    trajectories: u64,
}

impl Segments {
    /// Records one more trajectory in `segment`; segments only grow at the end.
    pub fn push(&mut self, segment: SegmentNumber) {
        self.trajectories += 1;
        match self.counts.back_mut() {
            Some((last, count)) if *last == segment => *count += 1,
            _ => self.counts.push_back((segment, 1)),
        }
    }

    /// Only the newest `trajectories` are still held.
    pub fn keep(&mut self, trajectories: usize) {
        let mut gone = self.trajectories.saturating_sub(trajectories as u64);
        self.trajectories -= gone;
        for (_, count) in &mut self.counts {
            let from_here = gone.min(*count);
            *count -= from_here;
            gone -= from_here;
            if gone == 0 {
                break;
            }
        }
        // The newest segment may still grow, whatever it holds.
        while self.counts.len() > 1 && self.counts[0].1 == 0 {
            self.counts.pop_front();
        }
    }

    /// The oldest that holds something, or may.
    #[must_use]
    pub fn oldest(&self) -> Option<SegmentNumber> {
        self.counts.front().map(|&(segment, _)| segment)
    }

    /// The trajectories in them.
    #[must_use]
    pub fn trajectories(&self) -> u64 {
        self.trajectories
    }
}
