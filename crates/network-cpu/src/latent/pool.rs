use inference::Slot;

use crate::planes::Line;

/// Latent states by slot, in the format of a path: one growing piece of memory that never moves a state to another
/// slot.
#[derive(Debug)]
pub(crate) struct Pool {
    lines: Vec<Line>,
    /// Lines of a state.
    state_lines: usize,
}

impl Pool {
    /// Creates an empty pool for states of `state_lines` lines.
    pub(crate) fn new(state_lines: usize) -> Self {
        Self { lines: Vec::new(), state_lines }
    }

    /// Makes room for slots below `slots`; existing states are kept.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub(crate) fn reserve(&mut self, slots: usize) -> Result<(), String> {
        let error = || format!("no memory for {slots} latent states of {} bytes", self.state_lines * size_of::<Line>());
        let len = slots.checked_mul(self.state_lines).ok_or_else(error)?;
        if len > self.lines.len() {
            self.lines.try_reserve_exact(len - self.lines.len()).map_err(|_| error())?;
            self.lines.resize(len, Line::default());
        }
        Ok(())
    }

    /// Returns the state in a slot.
    ///
    /// # Panics
    /// If the slot was not reserved.
    #[inline(always)]
    pub(crate) fn state(&self, slot: Slot) -> &[Line] {
        &self.lines[slot.0 as usize * self.state_lines..][..self.state_lines]
    }

    /// Returns the state in a slot, for writing.
    ///
    /// # Panics
    /// If the slot was not reserved.
    #[inline(always)]
    pub(crate) fn state_mut(&mut self, slot: Slot) -> &mut [Line] {
        &mut self.lines[slot.0 as usize * self.state_lines..][..self.state_lines]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_stay_in_their_slots_when_the_pool_grows() {
        let mut pool = Pool::new(2);
        pool.reserve(3).unwrap();
        pool.state_mut(Slot(1)).copy_from_slice(&[Line([1; 16]), Line([2; 16])]);
        pool.reserve(1).unwrap();
        pool.reserve(10_000).unwrap();
        assert_eq!(pool.state(Slot(1)), [Line([1; 16]), Line([2; 16])]);
        assert_eq!(pool.state(Slot(9_999)), [Line::default(); 2]);
    }

    #[test]
    fn a_pool_that_no_memory_holds_is_refused_with_its_size() {
        let mut pool = Pool::new(8);
        // More bytes than an address can count: the allocator, which a sanitiser replaces, is not asked.
        for slots in [usize::MAX, usize::MAX / 8, 1 << 55] {
            let error = pool.reserve(slots).unwrap_err();
            assert_eq!(error, format!("no memory for {slots} latent states of 512 bytes"));
        }
    }
}
