use inference::Slot;
use network::{MEMORY_UNITS, PREFIX_HORIZON};

use crate::planes::Line;

/// Latent states by slot, in the format of a path: one piece of memory that grows and never moves a state to another
/// slot.
#[derive(Debug)]
pub(crate) struct Pool {
    lines: Vec<Line>,
    /// Lines of a state.
    state_lines: usize,
    /// The memories behind the states, of a network that predicts value prefixes; else empty.
    memories: Option<Vec<Memory>>,
}

/// What a network that predicts value prefixes keeps beside a latent state: the state of its LSTM, and the sum of
/// rewards that it predicted last. All zeros in the state of an observation, and after every horizon, where a new sum
/// begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Memory {
    /// h.
    pub(crate) output: [f32; MEMORY_UNITS],
    /// c.
    pub(crate) cell: [f32; MEMORY_UNITS],
    /// The sum of rewards of the last steps.
    pub(crate) prefix: f32,
    /// Their number.
    pub(crate) steps: usize,
}

impl Memory {
    /// The memory of a state in which a new sum begins.
    pub(crate) const EMPTY: Self =
        Self { output: [0.0; MEMORY_UNITS], cell: [0.0; MEMORY_UNITS], prefix: 0.0, steps: 0 };

    /// The memory behind the next state, after a step whose prefix was predicted; h and c are those of the step
    /// already.
    pub(crate) fn after(self, prefix: f32) -> Self {
        let steps = self.steps + 1;
        if steps == PREFIX_HORIZON { Self::EMPTY } else { Self { prefix, steps, ..self } }
    }
}

impl Pool {
    /// An empty pool of states of `state_lines` lines.
    pub(crate) fn new(state_lines: usize) -> Self {
        Self { lines: Vec::new(), state_lines, memories: None }
    }

    /// The same pool with a memory behind each state.
    pub(crate) fn with_memories(self) -> Self {
        Self { memories: Some(Vec::new()), ..self }
    }

    /// Makes room for slots below `slots`; earlier states are kept.
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

    /// The memory behind the state in a slot; empty in a pool without memories.
    ///
    /// # Panics
    /// If the slot was not reserved.
    pub(crate) fn memory(&self, slot: Slot) -> Memory {
        self.memories.as_ref().map_or(Memory::EMPTY, |memories| memories[slot.0 as usize])
    }

    /// Replaces the memory behind the state in a slot, where the pool has memories.
    ///
    /// # Panics
    /// If the slot was not reserved.
    pub(crate) fn remember(&mut self, slot: Slot, memory: Memory) {
        if let Some(memories) = &mut self.memories {
            memories[slot.0 as usize] = memory;
        }
    }

    /// The state in a slot.
    ///
    /// # Panics
    /// If the slot was not reserved.
    #[inline(always)]
    pub(crate) fn state(&self, slot: Slot) -> &[Line] {
        &self.lines[slot.0 as usize * self.state_lines..][..self.state_lines]
    }

    /// The state in a slot, to be replaced.
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
