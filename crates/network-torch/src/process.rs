//! Settings of the whole process: threads of an operation, memory that is kept.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The last setting; 0 means none, and libtorch takes every core.
static INTRA_OP: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static APPLIED: Cell<usize> = const { Cell::new(0) };
}

/// Sets how many threads share one operation, in the whole process, from the next training step or evaluation on.
///
/// OpenMP keeps the number per calling thread, so trainers and evaluators apply it where they run. One thread per
/// evaluator and one evaluator per core beats two threads in one evaluator. Threads between operations are not set:
/// nothing here runs operations side by side.
///
/// More than one thread is for otherwise idle cores: threads of one operation wait for each other at its end,
/// and on cores shared with busy processes two threads have been measured up to ten times slower than one.
pub fn set_threads(intra_op: usize) {
    INTRA_OP.store(intra_op.clamp(1, 1024), Ordering::Relaxed);
    apply();
}

/// Returns whether operations are computed by one thread alone.
pub(crate) fn are_single() -> bool {
    INTRA_OP.load(Ordering::Relaxed) == 1
}

/// Makes the calling thread follow [`set_threads`].
pub(crate) fn apply() {
    let wanted = INTRA_OP.load(Ordering::Relaxed);
    if wanted != APPLIED.get() {
        tch::set_num_threads(i32::try_from(wanted).expect("clamped to 1024"));
        APPLIED.set(wanted);
    }
}

/// Lets this process keep the memory that a training step frees, for the next step. For a process that trains on a CPU,
/// before it starts its threads.
///
/// A step allocates and frees some hundred activations of a few megabytes. The allocator of the GNU C library gives
/// them back to the system each time, and the pages are cleared when they are touched again: an eighth of the time of a
/// step with 256 positions of a 4x64 tower (the example `throughput` with and without this). Elsewhere this does
/// nothing.
pub fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The most that the allocator takes: `HEAP_MAX_SIZE / 2`.
        const LARGEST_BLOCK: libc::c_int = 32 << 20;
        let settings = [
            (libc::M_ARENA_MAX, 1),
            (libc::M_TRIM_THRESHOLD, libc::c_int::MAX),
            (libc::M_MMAP_THRESHOLD, LARGEST_BLOCK),
        ];
        for (setting, value) in settings {
            // SAFETY: the call takes two numbers and changes how memory is kept, not what it holds. A setting that is
            // refused leaves the allocator as it was.
            unsafe { libc::mallopt(setting, value) };
        }
    }
}
