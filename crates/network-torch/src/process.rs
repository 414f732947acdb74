//! Process-wide settings: threads per operation, use of a device by several threads, and retention of freed memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Latest setting; 0 means none, and libtorch uses every core.
static INTRA_OP: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static APPLIED: Cell<usize> = const { Cell::new(0) };
}

/// Sets the number of threads per operation in the whole process, from the next training step or evaluation on.
///
/// OpenMP keeps the number per calling thread, so trainers and evaluators apply it where they run. One thread per
/// evaluator and one evaluator per core beats two threads in one evaluator. Inter-op threads are not set: no code
/// here runs operations in parallel.
///
/// More than one thread is meant for otherwise idle cores: the threads of an operation wait for each other at the
/// end, and on cores shared with busy processes two threads have been measured up to ten times slower than one.
pub fn set_threads(intra_op: usize) {
    INTRA_OP.store(intra_op.clamp(1, 1024), Ordering::Relaxed);
    apply();
}

/// Shared by threads that use a device, exclusive while a graph of the device is recorded.
static DEVICE: RwLock<()> = RwLock::new(());

/// Waits until no graph is recorded, and prevents recording while the returned guard lives.
///
/// CUDA lets work of other threads fail during a recording, and then the recording too. A thread next to a
/// [`Trainer`](crate::Trainer) on the same device holds the guard for each piece of work, and only one at a time.
pub fn share_device() -> RwLockReadGuard<'static, ()> {
    DEVICE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for all guards of [`share_device`], and prevents new guards while the returned guard lives.
pub(crate) fn exclude_from_device() -> RwLockWriteGuard<'static, ()> {
    DEVICE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Applies the setting of [`set_threads`] to the calling thread.
pub(crate) fn apply() {
    let wanted = INTRA_OP.load(Ordering::Relaxed);
    if wanted != APPLIED.get() {
        tch::set_num_threads(i32::try_from(wanted).expect("clamped to 1024"));
        APPLIED.set(wanted);
    }
}

/// Lets this process keep the memory that a training step frees, for the next step. A process that trains on a CPU
/// calls this before it starts threads.
///
/// A step allocates and frees some hundred activations of a few megabytes. The allocator of the GNU C library returns
/// this memory to the system each time, and the pages are cleared on next use, which takes an eighth of the step time
/// with 256 positions in a 4x64 tower (measured by the example `throughput` with and without this). On other systems
/// this function does nothing.
pub fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Maximum value that the allocator accepts: `HEAP_MAX_SIZE / 2`.
        const LARGEST_BLOCK: libc::c_int = 32 << 20;
        let settings = [
            (libc::M_ARENA_MAX, 1),
            (libc::M_TRIM_THRESHOLD, libc::c_int::MAX),
            (libc::M_MMAP_THRESHOLD, LARGEST_BLOCK),
        ];
        for (setting, value) in settings {
            // SAFETY: the call takes two numbers and changes how memory is retained, not the contents. A rejected
            // setting leaves the allocator unchanged.
            unsafe { libc::mallopt(setting, value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_recorded_while_a_thread_uses_the_device() {
        let guard = share_device();
        assert!(DEVICE.try_write().is_err());
        drop(guard);
        // A thread of another test may hold a guard for a while.
        drop(exclude_from_device());
    }
}
