use std::ops::{Deref, DerefMut};

/// Floats of a cache line.
const LINE: usize = 16;
/// Lines behind the values of a buffer, which the last registers of a row may read: two registers of the widest path.
const SLACK: usize = 2;

/// float32 that begin at a cache line and are followed by zeros that vectors may read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

impl Buffer {
    /// A buffer without values.
    pub(crate) const EMPTY: Self = Self { lines: Vec::new(), len: 0 };

    /// A buffer of zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        Self { lines: vec![Line([0.0; LINE]); len.div_ceil(LINE) + SLACK], len }
    }

    /// Makes it hold at least `len` values, whose contents are unspecified.
    pub(crate) fn grow(&mut self, len: usize) {
        if self.len < len {
            *self = Self::zeros(len);
        }
    }

    /// The number of values that it can hold without new memory.
    fn capacity(&self) -> usize {
        self.lines.len().saturating_sub(SLACK) * LINE
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

/// Buffers that were used and can be used again: a step needs the same ones as the step before, and new memory costs
/// more than a pass over it.
#[derive(Debug, Default)]
pub(crate) struct Store(Vec<Buffer>);

impl Store {
    /// A buffer of `len` values with unspecified contents: the smallest one that is large enough.
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        if len == 0 {
            return Buffer::default();
        }
        let fits = self.0.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= len);
        match fits.min_by_key(|(_, buffer)| buffer.capacity()).map(|(index, _)| index) {
            Some(index) => Buffer { len, ..self.0.swap_remove(index) },
            None => Buffer::zeros(len),
        }
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        if buffer.capacity() > 0 {
            self.0.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffer, Store};

    #[test]
    fn a_buffer_that_was_given_back_is_used_again_if_it_is_large_enough() {
        let mut store = Store::default();
        for len in [100, 1000] {
            store.give(Buffer::zeros(len));
        }
        let small = store.take(50);
        let place = small.as_ptr();
        assert_eq!(small.len(), 50);
        assert!(small.capacity() < 1000);
        store.give(small);
        assert_eq!(store.take(100).as_ptr(), place);
        assert_eq!(store.take(2000).len(), 2000);
    }

    #[test]
    fn a_buffer_begins_at_a_cache_line() {
        for len in [0, 1, 17] {
            assert_eq!((Buffer::zeros(len).as_ptr().addr() % 64, Buffer::zeros(len).len()), (0, len));
        }
    }
}
