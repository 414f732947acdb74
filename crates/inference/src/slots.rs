use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// More batches in flight on one device gain nothing: each waits for those before it.
pub const DEPTH_MAX: usize = 4;

/// Places for the batches that are under way on one device at once, each with whatever a batch needs there.
///
/// Who finds none free waits without spinning. How many there may be, the in-flight depth, changes while they are in use.
#[derive(Debug)]
pub struct Slots<T> {
    state: Mutex<State<T>>,
    /// A slot came back, or there may be more.
    freed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    depth: usize,
    under_way: usize,
    /// What those hold that are not in use.
    idle: Vec<T>,
}

impl<T> Slots<T> {
    /// At most `depth` batches under way, at least one.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        let state = State { depth: depth.max(1), under_way: 0, idle: Vec::new() };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// At most `depth` batches under way from now on, at least one. What is under way beyond it is finished.
    pub fn set_depth(&self, depth: usize) {
        let mut state = self.state();
        state.depth = depth.max(1);
        let kept = state.depth.saturating_sub(state.under_way);
        state.idle.truncate(kept);
        drop(state);
        self.freed.notify_all();
    }

    /// How many batches may be under way at once.
    pub fn depth(&self) -> usize {
        self.state().depth
    }

    /// Waits until fewer batches are under way than may be. The slot is free again when it is dropped.
    pub fn take(&self) -> Slot<'_, T> {
        let mut state = self.state();
        while state.under_way >= state.depth {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.under_way += 1;
        Slot { slots: self, held: state.idle.pop() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place for one batch under way.
#[derive(Debug)]
pub struct Slot<'a, T> {
    slots: &'a Slots<T>,
    held: Option<T>,
}

impl<T> Slot<'_, T> {
    /// What the slot held when it was last in use; `None` where it never was, or where that use failed. Whoever wants it to be
    /// there for the next batch [keeps](Self::keep) it.
    pub fn reclaim(&mut self) -> Option<T> {
        self.held.take()
    }

    /// The next batch in a slot finds this.
    pub fn keep(&mut self, held: T) {
        self.held = Some(held);
    }
}

impl<T> Drop for Slot<'_, T> {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.under_way -= 1;
        // More than the depth are never needed again.
        if state.idle.len() + state.under_way < state.depth {
            state.idle.extend(self.held.take());
        }
        drop(state);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests;
