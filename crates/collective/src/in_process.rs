use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use collective::{Collective, Error, Numbers};

/// A member of a thread group. Dropping a member breaks the group.
#[derive(Debug)]
pub(crate) struct InProcess {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    round: Mutex<Round>,
    changed: Condvar,
}

/// The state of one operation. Each member brings bytes, and leaves with the result once all members have come.
#[derive(Debug, Default)]
struct Round {
    brought: Vec<Option<Vec<u8>>>,
    left: usize,
    result: Option<Arc<Vec<Vec<u8>>>>,
    is_broken: bool,
}

/// Returns the members of a group of `size` threads, by rank.
#[must_use]
pub(crate) fn in_process(size: usize) -> Vec<InProcess> {
    let shared = Arc::<Shared>::default();
    shared.lock().brought.resize(size, None);
    (0..size).map(|rank| InProcess { rank, size, shared: Arc::clone(&shared) }).collect()
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `condition` holds. Returns an error, and breaks the group, if the group breaks or `timeout` elapses
    /// first.
    fn wait_while<'a>(
        &self,
        round: MutexGuard<'a, Round>,
        timeout: Duration,
        condition: impl Fn(&Round) -> bool,
    ) -> Result<MutexGuard<'a, Round>, &'static str> {
        let waits = |round: &mut Round| !round.is_broken && condition(round);
        let waited = self.changed.wait_timeout_while(round, timeout, waits).unwrap_or_else(PoisonError::into_inner);
        let (mut round, _) = waited;
        // A member may leave with the result before all members have taken the result, so that a broken group alone is
        // no error.
        if condition(&round) {
            let reason = if round.is_broken { "a member left the group" } else { "a member did not arrive in time" };
            round.is_broken = true;
            self.changed.notify_all();
            return Err(reason);
        }
        Ok(round)
    }
}

impl InProcess {
    /// Brings the bytes of this rank, and returns the bytes of all ranks.
    fn exchange(&self, bytes: Vec<u8>, timeout: Duration) -> Result<Arc<Vec<Vec<u8>>>, &'static str> {
        let round = self.shared.lock();
        // The previous operation must have finished on all members.
        let mut round = self.shared.wait_while(round, timeout, |round| round.result.is_some())?;
        if round.is_broken {
            return Err("a member left the group");
        }
        round.brought[self.rank] = Some(bytes);
        if round.brought.iter().all(Option::is_some) {
            let all = round.brought.iter_mut().filter_map(Option::take).collect();
            (round.result, round.left) = (Some(Arc::new(all)), 0);
            self.shared.changed.notify_all();
        }
        let mut round = self.shared.wait_while(round, timeout, |round| round.result.is_none())?;
        let result = round.result.clone().expect("it was waited for");
        round.left += 1;
        if round.left == self.size {
            round.result = None;
            self.shared.changed.notify_all();
        }
        Ok(result)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.shared.lock().is_broken = true;
        self.shared.changed.notify_all();
    }
}

impl Collective for InProcess {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_reduce(&mut self, numbers: Numbers<'_>, timeout: Duration) -> Result<(), Error> {
        let failed = |reason: &str| Error { operation: "all-reduce", reason: reason.to_owned() };
        let Numbers::Host(numbers) = numbers else { return Err(failed("the group sums in host memory only")) };
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let all = self.exchange(bytes, timeout).map_err(failed)?;
        if all.iter().any(|bytes| bytes.len() != size_of_val(numbers)) {
            return Err(failed("the members have different lengths"));
        }
        for (index, number) in numbers.iter_mut().enumerate() {
            let of = |bytes: &Vec<u8>| f32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[4 * index + byte]));
            *number = all.iter().map(of).sum();
        }
        Ok(())
    }

    fn broadcast(&mut self, root: usize, bytes: &mut [u8], timeout: Duration) -> Result<(), Error> {
        let failed = |reason: &str| Error { operation: "broadcast", reason: reason.to_owned() };
        let all = self.exchange(bytes.to_vec(), timeout).map_err(failed)?;
        if all[root].len() != bytes.len() {
            return Err(failed("the members have different lengths"));
        }
        bytes.copy_from_slice(&all[root]);
        Ok(())
    }
}
