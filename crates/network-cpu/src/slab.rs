use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::line::Line;

/// Lines of weights, that lie by themselves or in one piece with those of other products.
#[derive(Debug)]
pub(crate) struct Slab {
    piece: Arc<Vec<Line>>,
    range: Range<usize>,
}

impl Slab {
    /// Puts all into one piece of memory in their order, in huge pages where the system has them: a network reads all
    /// its weights for every pass, and looking up where thousands of small pages lie takes a core longer than reading
    /// some of them.
    pub(crate) fn gather(slabs: &mut [&mut Self]) {
        let len = slabs.iter().map(|slab| slab.len()).sum::<usize>();
        let page = cpu::HUGE_PAGE_BYTES / size_of::<Line>();
        // From the beginning of a page on, if there is a page of them.
        let before = if len < page { 0 } else { page };
        let mut piece = Vec::<Line>::with_capacity(before + len);
        cpu::ask_for_huge_pages(piece.spare_capacity_mut());
        let first = piece.as_ptr().align_offset(cpu::HUGE_PAGE_BYTES).min(before);
        piece.resize(first, Line::default());
        let mut ranges = Vec::with_capacity(slabs.len());
        for slab in slabs.iter() {
            ranges.push(piece.len()..piece.len() + slab.len());
            piece.extend_from_slice(slab);
        }
        let piece = Arc::new(piece);
        for (slab, range) in slabs.iter_mut().zip(ranges) {
            **slab = Self { piece: Arc::clone(&piece), range };
        }
    }
}

impl From<Vec<Line>> for Slab {
    fn from(lines: Vec<Line>) -> Self {
        Self { range: 0..lines.len(), piece: Arc::new(lines) }
    }
}

impl Deref for Slab {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        &self.piece[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(first: u32, len: usize) -> Vec<Line> {
        (first..).take(len).map(|word| Line([word; 16])).collect()
    }

    #[test]
    fn gathered_weights_are_the_same_and_lie_in_one_piece() {
        let all = [lines(1, 7), lines(100, 0), lines(200, 100_000)];
        let mut slabs: Vec<Slab> = all.iter().cloned().map(Slab::from).collect();
        Slab::gather(&mut slabs.iter_mut().collect::<Vec<_>>());
        for (slab, lines) in slabs.iter().zip(&all) {
            assert!(**slab == **lines);
        }
        assert_eq!(slabs[0].as_ptr_range().end, slabs[1].as_ptr());
        assert_eq!(slabs[1].as_ptr(), slabs[2].as_ptr());
        assert_eq!(slabs[0].as_ptr().align_offset(cpu::HUGE_PAGE_BYTES), 0);
    }
}
