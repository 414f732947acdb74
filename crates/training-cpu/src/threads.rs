use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The calling thread and helper threads, which live as long as this value.
///
/// Items are assigned to threads by chance: results must depend on the items alone, so that they are the same for any
/// number of threads.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    begun: Condvar,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    work: Option<Work>,
    /// Number of works so far; a helper takes part once in each.
    count: u64,
    /// Helpers that have not finished the work.
    busy: usize,
    /// Whether a helper panicked.
    is_broken: bool,
    is_closed: bool,
}

/// A function that the caller keeps alive until no helper is busy.
#[derive(Debug, Clone, Copy)]
struct Work(*const (dyn Fn() + Sync));

// SAFETY: the function can be called from several threads, and `Threads::run` keeps it alive.
unsafe impl Send for Work {}

impl Threads {
    /// Starts `count - 1` helpers.
    ///
    /// # Errors
    /// Fails if the system has no more threads.
    pub(crate) fn new(count: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut threads = Self { shared: Arc::clone(&shared), helpers: Vec::new() };
        for index in 1..count {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("training-{index}"));
            threads.helpers.push(builder.spawn(move || help(&shared))?);
        }
        Ok(threads)
    }

    /// Calls `work` with each item, distributed over the threads, and returns when all are done.
    ///
    /// # Panics
    /// If `work` panics.
    pub(crate) fn each<T: Send>(&mut self, items: Vec<T>, work: impl Fn(T) + Sync) {
        if self.helpers.is_empty() || items.len() < 2 {
            items.into_iter().for_each(work);
            return;
        }
        let items: Vec<Mutex<Option<T>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
        let next = AtomicUsize::new(0);
        self.run(&|| {
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                let item = item.lock().unwrap_or_else(PoisonError::into_inner).take();
                work(item.expect("each index is drawn once"));
            }
        });
    }

    /// Calls `work` once on every thread.
    fn run(&mut self, work: &(dyn Fn() + Sync)) {
        // SAFETY: only the lifetime changes; this function returns after every helper has finished.
        let work: &'static (dyn Fn() + Sync) = unsafe { std::mem::transmute(work) };
        let mut state = self.shared.lock();
        state.work = Some(Work(work));
        state.count += 1;
        state.busy = self.helpers.len();
        drop(state);
        self.shared.begun.notify_all();
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let mut state = self.shared.lock();
        while state.busy > 0 {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.work = None;
        let is_broken = std::mem::take(&mut state.is_broken);
        drop(state);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        assert!(!is_broken, "a helper of the training step panicked");
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.begun.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of the work.
            let _ = helper.join();
        }
    }
}

impl Shared {
    /// Locks the state, also after a panic: each change of the state is complete.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes part in every work until the threads are closed.
fn help(shared: &Shared) {
    let mut seen = 0;
    let mut state = shared.lock();
    loop {
        while state.count == seen && !state.is_closed {
            state = shared.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return;
        }
        seen = state.count;
        let Work(work) = state.work.expect("work lasts until every helper has finished it");
        drop(state);
        // SAFETY: the caller keeps the function alive while this helper counts as busy.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (*work)() }));
        state = shared.lock();
        state.is_broken |= outcome.is_err();
        state.busy -= 1;
        if state.busy == 0 {
            shared.ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Threads;

    #[test]
    fn every_item_is_taken_once_by_any_number_of_threads() {
        for count in [1, 2, 5] {
            let mut threads = Threads::new(count).unwrap();
            for len in [0, 1, 2, 100] {
                let mut numbers = vec![0; len];
                threads.each(numbers.iter_mut().enumerate().collect(), |(index, number)| *number += index + 1);
                assert_eq!(numbers, (1..=len).collect::<Vec<_>>(), "{count} threads");
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_threads_work_on() {
        let mut threads = Threads::new(3).unwrap();
        let work = |item: usize| assert_ne!(item, 7, "an item that panics");
        assert!(catch_unwind(AssertUnwindSafe(|| threads.each((0..50).collect(), work))).is_err());
        let sum = AtomicUsize::new(0);
        threads.each((0..50).collect(), |item| {
            sum.fetch_add(item, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 49 * 50 / 2);
    }
}
