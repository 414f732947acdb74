use std::collections::VecDeque;
use std::ops::Range;

use super::schedule::Waiting;

/// Requests that can share a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lane {
    /// The evaluating weights version.
    pub(super) version: u64,
    /// Kind of the requests.
    pub(super) kind: usize,
}

/// A range of positions of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) request: u64,
    pub(super) lane: Lane,
    pub(super) positions: Range<usize>,
    /// Number of batches with later positions that were submitted before this part.
    pub(super) overtaken: usize,
}

/// Positions waiting for a batch, in order of arrival. A batch has one lane.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Part>);

impl Queue {
    pub(super) fn push(&mut self, request: u64, lane: Lane, positions: usize) {
        self.0.push_back(Part { request, lane, positions: 0..positions, overtaken: 0 });
    }

    /// Returns taken parts to the front, in order.
    pub(super) fn put_back(&mut self, parts: Vec<Part>) {
        parts.into_iter().rev().for_each(|part| self.0.push_front(part));
    }

    /// Returns the lane of the next batch and the waiting positions: the lane of the oldest request, unless another
    /// lane fills a batch of `target` first. At most `overtaken_max` batches overtake a request.
    pub(super) fn next(&self, target: usize, overtaken_max: usize) -> (Lane, Waiting) {
        let Some(oldest) = self.0.front() else { return Default::default() };
        let mut lanes: Vec<(Lane, usize)> = vec![(oldest.lane, 0)];
        for part in &self.0 {
            match lanes.iter_mut().find(|(lane, _)| *lane == part.lane) {
                Some((_, waiting)) => *waiting += part.positions.len(),
                None => lanes.push((part.lane, part.positions.len())),
            }
        }
        let is_overdue = oldest.overtaken >= overtaken_max;
        let full = lanes.iter().find(|(_, waiting)| *waiting >= target).filter(|_| !is_overdue);
        let &(lane, together) = full.unwrap_or(&lanes[0]);
        let all = lanes.iter().map(|(_, waiting)| waiting).sum();
        (lane, Waiting { together, all, is_overdue })
    }

    /// Takes the first `positions` positions of a lane.
    pub(super) fn take(&mut self, lane: Lane, positions: usize) -> Vec<Part> {
        let (mut taken, mut kept, mut left) = (Vec::new(), VecDeque::new(), positions);
        while let Some(mut part) = self.0.pop_front() {
            if left == 0 || part.lane != lane {
                part.overtaken += usize::from(left > 0);
                kept.push_back(part);
                continue;
            }
            let cut = part.positions.end.min(part.positions.start + left);
            left -= cut - part.positions.start;
            taken.push(Part { positions: part.positions.start..cut, ..part.clone() });
            if cut < part.positions.end {
                kept.push_back(Part { positions: cut..part.positions.end, ..part });
            }
        }
        self.0 = kept;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Lane = Lane { version: 1, kind: 0 };
    const NEW: Lane = Lane { version: 2, kind: 0 };

    /// Returns a queue of requests with these lanes and position counts, numbered from 0.
    fn queue(requests: &[(Lane, usize)]) -> Queue {
        let mut queue = Queue::default();
        for (request, &(lane, positions)) in (0..).zip(requests) {
            queue.push(request, lane, positions);
        }
        queue
    }

    fn parts(taken: &[Part]) -> Vec<(u64, Range<usize>)> {
        taken.iter().map(|part| (part.request, part.positions.clone())).collect()
    }

    #[test]
    fn a_request_is_split_where_a_batch_is_full_and_nothing_is_lost() {
        let mut queue = queue(&[(OLD, 5), (OLD, 5), (OLD, 5)]);
        assert_eq!(parts(&queue.take(OLD, 7)), [(0, 0..5), (1, 0..2)]);
        assert_eq!(queue.next(7, 2), (OLD, Waiting { together: 8, all: 8, is_overdue: false }));
        assert_eq!(parts(&queue.take(OLD, 7)), [(1, 2..5), (2, 0..4)]);
        assert_eq!(parts(&queue.take(OLD, 7)), [(2, 4..5)]);
        assert_eq!(queue.next(7, 2), (Lane::default(), Waiting::default()));
    }

    #[test]
    fn a_batch_has_one_version_in_the_order_of_arrival() {
        let mut queue = queue(&[(OLD, 3), (NEW, 4), (OLD, 5)]);
        assert_eq!(queue.next(100, 2), (OLD, Waiting { together: 8, all: 12, is_overdue: false }));
        assert_eq!(parts(&queue.take(OLD, 100)), [(0, 0..3), (2, 0..5)]);
        assert_eq!(queue.next(100, 2).0, NEW);
    }

    #[test]
    fn a_batch_has_one_kind_of_request() {
        let steps = Lane { kind: 1, ..OLD };
        let mut queue = queue(&[(OLD, 3), (steps, 4), (OLD, 5), (steps, 6)]);
        assert_eq!(parts(&queue.take(steps, 100)), [(1, 0..4), (3, 0..6)]);
        assert_eq!(parts(&queue.take(OLD, 100)), [(0, 0..3), (2, 0..5)]);
        assert_eq!(queue.next(7, 2), (Lane::default(), Waiting::default()));
    }

    #[test]
    fn a_version_that_fills_a_batch_comes_first_but_overtakes_a_request_at_most_twice() {
        let mut queue = queue(&[(OLD, 3), (NEW, 40)]);
        for overtaken in 0..2 {
            assert_eq!(
                queue.next(8, 2),
                (NEW, Waiting { together: 40 - 8 * overtaken, all: 43 - 8 * overtaken, is_overdue: false })
            );
            queue.take(NEW, 8);
        }
        assert_eq!(queue.next(8, 2), (OLD, Waiting { together: 3, all: 27, is_overdue: true }));
    }

    #[test]
    fn parts_put_back_are_the_next_to_be_taken() {
        let mut queue = queue(&[(OLD, 3), (OLD, 4)]);
        let taken = queue.take(OLD, 5);
        queue.put_back(taken);
        assert_eq!(parts(&queue.take(OLD, 2)), [(0, 0..2)]);
        assert_eq!(parts(&queue.take(OLD, 100)), [(0, 2..3), (1, 0..2), (1, 2..4)]);
    }
}
