//! Sums and broadcasts over the ranks of a process group.
//!
//! [`Collective`] is the membership of one process in a group. There are groups over NCCL, which sum in GPU memory
//! ([`nccl`]), and with the feature `gloo` groups over Gloo, a part of libtorch, which sum in host memory. A group
//! never changes: after an error, the members form a new group. The crate decides neither the members of a group nor
//! the numbers to sum, and depends on no tensors, no training and no clock. [`loader`] finds the functions of NVIDIA's
//! libraries at run time.

// The tests of the learner also compile `in_process`, which refers to this crate as `collective`.
#[cfg(test)]
extern crate self as collective;

#[cfg(feature = "gloo")]
pub mod gloo;
#[cfg(test)]
mod in_process;
pub mod loader;
pub mod nccl;
mod numbers;

use std::time::Duration;

pub use numbers::{CudaNumbers, Memory, Numbers};

/// The membership of one process in a group of `size` processes, each with a rank. Every member must call the same
/// methods in the same order, with arguments of the same lengths.
pub trait Collective: Send {
    /// Returns the rank of this process, from 0 to `size - 1`.
    fn rank(&self) -> usize;

    /// Returns the number of processes in the group.
    fn size(&self) -> usize;

    /// Returns the memory in which the group sums numbers without a copy. Every group also sums numbers in host memory.
    fn memory(&self) -> Memory {
        Memory::Host
    }

    /// Replaces each number by the sum over the ranks, with the same bits on every rank.
    ///
    /// # Errors
    /// - A member stopped, or did not call the method within `timeout`. The numbers are then undefined and the group is
    ///   unusable; the call may have succeeded on another member.
    /// - The group does not sum in the memory of the numbers.
    fn all_reduce(&mut self, numbers: Numbers<'_>, timeout: Duration) -> Result<(), Error>;

    /// Replaces the bytes by the bytes of rank `root`.
    ///
    /// # Errors
    /// A member stopped, or did not call the method within `timeout`, like [`all_reduce`](Self::all_reduce).
    fn broadcast(&mut self, root: usize, bytes: &mut [u8], timeout: Duration) -> Result<(), Error>;
}

/// A failed operation, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed: {reason}")]
pub struct Error {
    /// Failed operation: `all-reduce`, `broadcast`, `join`, `make a group`, `load NCCL`, or `allocate` for GPU memory.
    pub operation: &'static str,
    /// Reason, as reported by the library.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::in_process;

    /// Timeout that no test reaches.
    pub(crate) const LONG: Duration = Duration::from_secs(60);

    /// Runs each member on a separate thread, and returns the results by rank.
    pub(crate) fn on_threads<C: Send, T: Send>(members: Vec<C>, run: impl Fn(&mut C) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = members.into_iter().map(|mut member| scope.spawn(move || run(&mut member))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    pub(crate) fn keeps_the_contract(group: impl Fn(usize) -> Vec<Box<dyn Collective>>) {
        for size in [1, 2, 3] {
            let members = group(size);
            let places: Vec<_> = members.iter().map(|member| (member.rank(), member.size())).collect();
            assert_eq!(places, (0..size).map(|rank| (rank, size)).collect::<Vec<_>>());
            every_rank_has_the_same_sums_and_the_bytes_of_the_root(members);
            a_member_that_ends_fails_the_others(group(size));
        }
    }

    /// Returns numbers to sum over the ranks; the rounded sum depends on the order of the ranks.
    fn numbers(rank: usize, count: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * 7 + rank * 31) % 97) as f32 * 1.0e-3 + (rank as f32) * 1.0e4).collect()
    }

    fn every_rank_has_the_same_sums_and_the_bytes_of_the_root(members: Vec<Box<dyn Collective>>) {
        let size = members.len();
        for_each_length(members, |member, count| {
            let mut reduced = numbers(member.rank(), count);
            member.all_reduce(Numbers::Host(&mut reduced), LONG).unwrap();
            let root = count % size;
            let mut bytes = vec![u8::try_from(member.rank() + 1).unwrap(); count];
            member.broadcast(root, &mut bytes, LONG).unwrap();
            assert_eq!(bytes, vec![u8::try_from(root + 1).unwrap(); count]);
            reduced
        });
    }

    fn for_each_length(
        members: Vec<Box<dyn Collective>>,
        run: impl Fn(&mut Box<dyn Collective>, usize) -> Vec<f32> + Sync,
    ) {
        let size = members.len();
        let lengths = [1, 5, 1000, 100_003];
        let all = on_threads(members, |member| lengths.map(|count| run(member, count)));
        for (place, count) in lengths.into_iter().enumerate() {
            let terms: Vec<Vec<f32>> = (0..size).map(|rank| numbers(rank, count)).collect();
            let exact: Vec<f64> =
                (0..count).map(|index| terms.iter().map(|numbers| f64::from(numbers[index])).sum()).collect();
            for of_rank in &all {
                let apart = of_rank[place].iter().zip(&exact).map(|(got, x)| (f64::from(*got) - x).abs());
                assert!(apart.fold(0.0, f64::max) < 1.0e-2, "{count} numbers of {size} ranks");
                let bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&of_rank[place]), bits(&all[0][place]), "{count} numbers of {size} ranks");
            }
        }
    }

    fn a_member_that_ends_fails_the_others(members: Vec<Box<dyn Collective>>) {
        let size = members.len();
        let failed = on_threads(members, |member| {
            if member.rank() + 1 == size {
                // The thread drops the member when it stops.
                return true;
            }
            member.all_reduce(Numbers::Host(&mut [1.0; 64]), LONG).is_err()
        });
        assert!(failed.into_iter().all(|failed| failed));
    }

    #[test]
    fn a_group_of_threads_keeps_the_contract() {
        keeps_the_contract(|size| in_process(size).into_iter().map(|member| Box::new(member) as _).collect());
    }

    #[test]
    fn a_member_that_does_not_come_in_time_breaks_the_group_for_all() {
        let mut members = in_process(3);
        let absent = members.pop().unwrap();
        let errors = on_threads(members, |member| {
            member.all_reduce(Numbers::Host(&mut [1.0]), Duration::from_millis(1)).unwrap_err()
        });
        assert!(errors.iter().all(|error| error.operation == "all-reduce"), "{errors:?}");
        let mut absent = absent;
        assert!(absent.broadcast(0, &mut [1], LONG).unwrap_err().reason.contains("left"));
    }
}
