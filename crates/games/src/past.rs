use std::cell::RefCell;
use std::sync::Arc;

/// Number of boards per segment: one allocation in so many plies, and the boards that a copied position copies.
const SEGMENT: usize = 16;

/// Maximum number of unused segments that a thread keeps.
const UNUSED_MAX: usize = 1024;

thread_local! {
    /// Segments of dropped positions, so that games after the first allocate nothing.
    static UNUSED: RefCell<Vec<Arc<Segment>>> = const { RefCell::new(Vec::new()) };
}

/// Hashes of the earlier boards of a game, in order.
///
/// A search copies positions at every node. The latest boards are inside the position; older boards are in segments,
/// which a position shares with copies and successors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    /// Last full segment.
    full: Option<Arc<Segment>>,
    /// Boards after the full segments, `len % SEGMENT` of them.
    newest: [u64; SEGMENT],
    len: u16,
}

#[derive(Debug, PartialEq, Eq)]
struct Segment {
    earlier: Option<Arc<Segment>>,
    boards: [u64; SEGMENT],
}

impl Past {
    pub(crate) const EMPTY: Self = Self { full: None, newest: [0; SEGMENT], len: 0 };

    /// Returns the number of boards.
    pub(crate) fn len(&self) -> u16 {
        self.len
    }

    pub(crate) fn push(&mut self, board: u64) {
        self.newest[self.newest_len()] = board;
        self.len += 1;
        if self.newest_len() == 0 {
            self.full = Some(Segment { earlier: self.full.take(), boards: self.newest }.shared());
        }
    }

    /// Returns true if `board` is among the boards from the index `since` on. May also compare earlier boards.
    pub(crate) fn contains_since(&self, since: u16, board: u64) -> bool {
        let newest = self.newest_len();
        if self.newest[..newest].contains(&board) {
            return true;
        }
        let mut first = usize::from(self.len) - newest;
        let mut next = &self.full;
        while let Some(segment) = next
            && first > usize::from(since)
        {
            if segment.contains(board) {
                return true;
            }
            first -= SEGMENT;
            next = &segment.earlier;
        }
        false
    }

    fn newest_len(&self) -> usize {
        usize::from(self.len) % SEGMENT
    }
}

/// Keeps segments without another owner for reuse.
impl Drop for Past {
    fn drop(&mut self) {
        let mut next = self.full.take();
        while let Some(mut segment) = next {
            let Some(alone) = Arc::get_mut(&mut segment) else { return };
            next = alone.earlier.take();
            segment.keep();
        }
    }
}

impl Segment {
    /// Returns the segment in the memory of an unused segment, or in new memory if the thread has none.
    fn shared(self) -> Arc<Self> {
        let Some(mut unused) = UNUSED.with_borrow_mut(Vec::pop) else { return Arc::new(self) };
        *Arc::get_mut(&mut unused).expect("an unused segment has one owner") = self;
        unused
    }

    fn keep(self: Arc<Self>) {
        // An exiting thread no longer has a list; the segment is then dropped.
        let _ = UNUSED.try_with(|unused| {
            let mut unused = unused.borrow_mut();
            if unused.len() < UNUSED_MAX {
                unused.push(self);
            }
        });
    }

    fn contains(&self, board: u64) -> bool {
        // Without an early exit the comparisons become vectors.
        self.boards.iter().fold(false, |found, &earlier| found | (earlier == board))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_from_the_given_one_on_is_found_in_all_copies_of_the_past() {
        let mut past = Past::EMPTY;
        let mut copies = Vec::new();
        for board in 0..100 {
            assert!(!past.contains_since(0, board));
            past.push(board);
            copies.push(past.clone());
        }
        for (len, copy) in (1..).zip(&copies) {
            assert_eq!(u64::from(copy.len()), len);
            for board in 0..100 {
                assert_eq!(copy.contains_since(0, board), board < len, "board {board} of {len}");
                assert!(board >= len || copy.contains_since(u16::try_from(board).unwrap(), board));
            }
            assert!(len < 33 || !copy.contains_since(copy.len(), 0), "segments before the given board are not read");
        }
    }

    #[test]
    fn segments_that_other_copies_hold_survive_a_drop() {
        let mut past = Past::EMPTY;
        (0..40).for_each(|board| past.push(board));
        let mut copy = past.clone();
        (40..60).for_each(|board| copy.push(board));
        drop(copy);
        assert!((0..40).all(|board| past.contains_since(0, board)) && !past.contains_since(0, 45));
        // Dropped segments are reused.
        (60..80).for_each(|board| past.push(board));
        assert!((0..40).chain(60..80).all(|board| past.contains_since(0, board)));
    }
}
