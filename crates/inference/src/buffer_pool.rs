use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The maximum useful number of batches in flight on one device: further ones only wait for those before them.
pub const DEPTH_MAX: usize = 4;

/// A pool of the buffers of the batches in flight on one device; each holds all device memory of a batch.
///
/// [`take`](Self::take) blocks on a condition variable until a slot is free. The number of slots, the in-flight depth,
/// may change while slots are in use.
#[derive(Debug)]
pub struct BufferPool<T> {
    state: Mutex<State<T>>,
    /// Notified when a slot is returned or the depth changes.
    freed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    depth: usize,
    under_way: usize,
    /// The contents of the idle slots.
    idle: Vec<T>,
}

impl<T> BufferPool<T> {
    /// Returns a pool for at most `depth` batches in flight, at least one.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        let state = State { depth: depth.max(1), under_way: 0, idle: Vec::new() };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// Limits the batches in flight to `depth` from now on, at least one. Excess batches already in flight still
    /// finish.
    pub fn set_depth(&self, depth: usize) {
        let mut state = self.state();
        state.depth = depth.max(1);
        let kept = state.depth.saturating_sub(state.under_way);
        state.idle.truncate(kept);
        drop(state);
        self.freed.notify_all();
    }

    /// Returns the maximum number of batches in flight.
    pub fn depth(&self) -> usize {
        self.state().depth
    }

    /// Waits until fewer batches are in flight than the limit, and takes a slot. Dropping it frees the slot.
    pub fn take(&self) -> PooledBuffer<'_, T> {
        let mut state = self.state();
        while state.under_way >= state.depth {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.under_way += 1;
        PooledBuffer { slots: self, content: state.idle.pop() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of one batch in flight.
#[derive(Debug)]
pub struct PooledBuffer<'a, T> {
    slots: &'a BufferPool<T>,
    /// The content of the slot from its last use, for reuse by the next batch; `None` if the slot was never used, or if
    /// a user took the content and did not return it.
    pub content: Option<T>,
}

impl<T> Drop for PooledBuffer<'_, T> {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.under_way -= 1;
        // Contents beyond the depth are dropped, because they are never needed again.
        if state.idle.len() + state.under_way < state.depth {
            state.idle.extend(self.content.take());
        }
        drop(state);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_returned_buffer_is_reused_by_the_next_batch() {
        let slots = BufferPool::new(1);
        let mut slot = slots.take();
        assert_eq!(slot.content.take(), None);
        slot.content = Some("buffers");
        drop(slot);
        assert_eq!(slots.take().content.take(), Some("buffers"));
        // A slot whose content was taken and not returned, as after a failure, is empty.
        assert_eq!(slots.take().content.take(), None);
    }

    #[test]
    fn at_most_depth_buffers_are_taken_at_a_time() {
        let slots = &BufferPool::<u32>::new(3);
        let (under_way, most) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut slot = slots.take();
                        let number = slot.content.take().unwrap_or_default();
                        most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        under_way.fetch_sub(1, Ordering::SeqCst);
                        slot.content = Some(number + 1);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}");
        // No kept content is lost or duplicated.
        let mut held: Vec<_> = (0..3).map(|_| slots.take()).collect();
        assert_eq!(held.iter_mut().filter_map(|slot| slot.content.take()).sum::<u32>(), 8 * 200);
    }

    #[test]
    fn a_waiting_take_proceeds_once_the_depth_is_raised() {
        let slots = &BufferPool::<()>::new(1);
        let _first = slots.take();
        thread::scope(|scope| {
            let second = scope.spawn(|| drop(slots.take()));
            slots.set_depth(2);
            second.join().unwrap();
        });
        assert_eq!(slots.depth(), 2);
    }

    #[test]
    fn a_lowered_depth_drops_surplus_buffers_once_their_batches_end() {
        let slots = BufferPool::new(2);
        let mut both = [slots.take(), slots.take()];
        both.iter_mut().for_each(|slot| slot.content = Some(()));
        slots.set_depth(1);
        drop(both);
        assert_eq!(slots.take().content.take(), Some(()));
        slots.set_depth(2);
        let mut both = [slots.take(), slots.take()];
        assert_eq!(both.iter_mut().filter_map(|slot| slot.content.take()).count(), 0);
    }

    #[test]
    fn the_depth_is_at_least_one() {
        assert_eq!(BufferPool::<()>::new(0).depth(), 1);
    }
}
