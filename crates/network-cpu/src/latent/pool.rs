use inference::Slot;
use network::{MEMORY_UNITS, PREFIX_HORIZON};

use crate::planes::Line;

/// Latent states by slot, in the format of a path: one growing piece of memory that never moves a state to another
/// slot.
#[derive(Debug)]
pub(crate) struct Pool {
    lines: Vec<Line>,
    /// Lines of a state.
    state_lines: usize,
    /// Memories of the states in a network with value prefixes; otherwise `None`.
    memories: Option<Vec<Memory>>,
}

/// Memory that a network with value prefixes keeps next to a latent state: the LSTM state, and the latest predicted
/// sum of rewards. All zeros in the state of an observation, and after every horizon, where a new sum starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Memory {
    /// LSTM output h.
    pub(crate) output: [f32; MEMORY_UNITS],
    /// LSTM cell c.
    pub(crate) cell: [f32; MEMORY_UNITS],
    /// Sum of rewards over the last `steps` steps.
    pub(crate) prefix: f32,
    /// Number of steps in the sum.
    pub(crate) steps: usize,
}

impl Memory {
    /// Memory of a state where a new sum starts.
    pub(crate) const EMPTY: Self =
        Self { output: [0.0; MEMORY_UNITS], cell: [0.0; MEMORY_UNITS], prefix: 0.0, steps: 0 };

    /// Returns the memory of the next state, after a step with a predicted prefix; h and c already belong to that
    /// step.
    pub(crate) fn after(self, prefix: f32) -> Self {
        let steps = self.steps + 1;
        if steps == PREFIX_HORIZON { Self::EMPTY } else { Self { prefix, steps, ..self } }
    }
}

impl Pool {
    /// Creates an empty pool for states of `state_lines` lines.
    pub(crate) fn new(state_lines: usize) -> Self {
        Self { lines: Vec::new(), state_lines, memories: None }
    }

    /// Returns the same pool with a memory for each state.
    pub(crate) fn with_memories(self) -> Self {
        Self { memories: Some(Vec::new()), ..self }
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
        if let Some(memories) = self.memories.as_mut().filter(|memories| memories.len() < slots) {
            let error = |_| format!("no memory for {slots} memories of {} bytes", size_of::<Memory>());
            memories.try_reserve_exact(slots - memories.len()).map_err(error)?;
            memories.resize(slots, Memory::EMPTY);
        }
        Ok(())
    }

    /// Returns the memory of the state in a slot; empty in a pool without memories.
    ///
    /// # Panics
    /// If the slot was not reserved.
    pub(crate) fn memory(&self, slot: Slot) -> Memory {
        self.memories.as_ref().map_or(Memory::EMPTY, |memories| memories[slot.0 as usize])
    }

    /// Replaces the memory of the state in a slot, if the pool has memories.
    ///
    /// # Panics
    /// If the slot was not reserved.
    pub(crate) fn remember(&mut self, slot: Slot, memory: Memory) {
        if let Some(memories) = &mut self.memories {
            memories[slot.0 as usize] = memory;
        }
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
