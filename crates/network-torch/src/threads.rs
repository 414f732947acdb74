use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

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
