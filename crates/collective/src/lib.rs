//! Sums and copies of numbers over the ranks of a group of processes.
//!
//! [`Collective`] is one process's place in a group: in one of NCCL, which sums in the memory of GPUs ([`nccl`]), with
//! the feature `gloo` in one of Gloo, which libtorch contains and which sums in the memory of hosts, or, for tests, in
//! one of threads ([`in_process`]). A group never changes: after an error its members form another one. The crate
//! decides neither who is in a group nor what is summed, and depends on no tensors, no training and no clock.

#[cfg(feature = "gloo")]
pub mod gloo;
mod in_process;
pub mod nccl;
mod numbers;

use std::time::Duration;

pub use in_process::{InProcess, in_process};
pub use numbers::{CudaNumbers, Memory, Numbers};

/// One process's place in a group of `size` processes, each with a rank. Every member calls the same methods in the
/// same order, with arguments of the same lengths.
pub trait Collective: Send {
    /// The number of this process in the group, from 0.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// The memory in which numbers are summed without a copy. Those of the host are summed by every group.
    fn memory(&self) -> Memory {
        Memory::Host
    }

    /// Replaces each number by its sum over the ranks, the same bits on every rank.
    ///
    /// # Errors
    /// [`Error`]: a member ended, or some have not called it in time. The numbers are then undefined and the group is
    /// of no further use; other members may have succeeded. The numbers are in memory that the group does not sum in.
    fn all_reduce(&mut self, numbers: Numbers<'_>, timeout: Duration) -> Result<(), Error>;

    /// Replaces the bytes by those of the rank `root`.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    fn broadcast(&mut self, root: usize, bytes: &mut [u8], timeout: Duration) -> Result<(), Error>;
}

/// The reason why an operation of a group failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed: {reason}")]
pub struct Error {
    /// What failed: `all-reduce`, `broadcast`, `join`, `load NCCL`.
    pub operation: &'static str,
    /// What the library says.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any member takes.
    pub(crate) const LONG: Duration = Duration::from_secs(60);

    /// Runs each member on a thread of its own, and returns the results by rank.
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

    /// Numbers whose sum depends on the order of its terms.
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
                // It is dropped at the end of its thread.
                return true;
            }
            member.all_reduce(Numbers::Host(&mut [1.0; 64]), LONG).is_err()
        });
        assert!(failed.into_iter().all(|failed| failed));
    }
}
