use std::ops::{Deref, DerefMut};

/// Floats per cache line.
const LINE: usize = 16;
/// Cache lines after a buffer's values, which the last registers of a row may read: two registers of the widest path.
const SLACK: usize = 2;

/// float32 values aligned to a cache line and followed by zeros that vectors may read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

impl Buffer {
    /// An empty buffer.
    pub(crate) const EMPTY: Self = Self { lines: Vec::new(), len: 0 };

    /// Creates a buffer of zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        Self { lines: vec![Line([0.0; LINE]); len.div_ceil(LINE) + SLACK], len }
    }

    /// Ensures room for at least `len` values; the contents are unspecified.
    pub(crate) fn grow(&mut self, len: usize) {
        if self.len < len {
            *self = Self::zeros(len);
        }
    }

    /// Returns the number of values that fit without new memory.
    fn capacity(&self) -> usize {
        self.lines.len().saturating_sub(SLACK) * LINE
    }

    /// Returns the allocated bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.lines[..])
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the lines are `len` floats and more, without padding.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// Used buffers for later steps: consecutive steps need the same buffers, and new memory costs more than a pass over
/// it.
///
/// A buffer always serves one capacity, so that steps of the same size take the same memory, whatever came before.
#[derive(Debug, Default)]
pub(crate) struct Store {
    free: Vec<Buffer>,
    /// Positions and board (height, width) that the capacities are for.
    positions: usize,
    board: [usize; 2],
}

impl Store {
    /// Frees all buffers if the capacities are for another number of positions or another board.
    pub(crate) fn hold(&mut self, positions: usize, board: [usize; 2]) {
        if (self.positions, self.board) != (positions, board) {
            *self = Self { free: Vec::new(), positions, board };
        }
    }

    /// Returns a buffer of `len` values with unspecified contents and room for `capacity`.
    pub(crate) fn take(&mut self, len: usize, capacity: usize) -> Buffer {
        if capacity == 0 {
            return Buffer::default();
        }
        let capacity = rounded(capacity);
        match self.free.iter().position(|buffer| buffer.capacity() == capacity) {
            Some(index) => Buffer { len, ..self.free.swap_remove(index) },
            None => Buffer { len, ..Buffer::zeros(capacity) },
        }
    }

    /// Returns a buffer to the store.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        if buffer.capacity() > 0 {
            self.free.push(buffer);
        }
    }

    /// Returns the allocated bytes of all buffers.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.free.iter().map(Buffer::bytes).sum()
    }
}

/// Rounds up to whole cache lines.
fn rounded(len: usize) -> usize {
    len.next_multiple_of(LINE)
}

/// A [`Store`] without memory, which counts the bytes that a store would allocate in the same use.
#[derive(Debug, Default)]
pub(crate) struct PlannedStore {
    free: Vec<PlannedBuffer>,
    bytes: usize,
}

/// A buffer of a [`PlannedStore`]: the capacity alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PlannedBuffer(usize);

impl PlannedStore {
    /// Takes a buffer like [`Store::take`].
    pub(crate) fn take(&mut self, capacity: usize) -> PlannedBuffer {
        let buffer = PlannedBuffer(rounded(capacity));
        match self.free.iter().position(|free| *free == buffer) {
            Some(index) => {
                self.free.swap_remove(index);
            }
            None if capacity > 0 => self.bytes += (buffer.0 / LINE + SLACK) * size_of::<Line>(),
            None => {}
        }
        buffer
    }

    /// Returns a buffer to the store.
    pub(crate) fn give(&mut self, buffer: PlannedBuffer) {
        if buffer.0 > 0 {
            self.free.push(buffer);
        }
    }

    /// Returns the bytes of all buffers ever taken.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffer, PlannedStore, Store};

    #[test]
    fn a_buffer_that_was_given_back_is_used_again_for_its_capacity_alone() {
        let mut store = Store::default();
        let first = store.take(90, 100);
        let place = first.as_ptr();
        assert_eq!((first.len(), first.capacity()), (90, 112));
        store.give(first);
        let larger = store.take(1000, 1000);
        assert_ne!(larger.as_ptr(), place);
        let again = store.take(100, 100);
        assert_eq!((again.as_ptr(), again.len()), (place, 100));
        store.give(again);
        for board in [[1, 1], [1, 2]] {
            store.hold(0, board);
            assert_eq!(store.bytes(), 0);
            let buffer = store.take(100, 100);
            store.give(buffer);
        }
        store.hold(3, [1, 2]);
        assert_eq!(store.bytes(), 0);
    }

    #[test]
    fn a_planned_store_counts_the_bytes_of_a_store() {
        let (mut store, mut planned) = (Store::default(), PlannedStore::default());
        let [first, second] = [17, 40].map(|len| (store.take(len, len), planned.take(len)));
        store.give(first.0);
        planned.give(first.1);
        let third = (store.take(20, 20), planned.take(20));
        for (buffer, counted) in [second, third] {
            store.give(buffer);
            planned.give(counted);
        }
        assert_eq!(store.bytes(), planned.bytes());
    }

    #[test]
    fn a_buffer_begins_at_a_cache_line() {
        for len in [0, 1, 17] {
            assert_eq!((Buffer::zeros(len).as_ptr().addr() % 64, Buffer::zeros(len).len()), (0, len));
        }
    }
}
