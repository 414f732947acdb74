//! CPU affinity: the CPUs on which this process may run.

use std::io;

/// A logical CPU, by number in the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cpu(usize);

/// Restricts the calling thread, and threads and processes that it starts later, to these CPUs.
///
/// # Errors
/// The list is empty, or the system does not support pinning or denies it.
pub fn pin_to(cpus: &[Cpu]) -> io::Result<()> {
    system::pin(cpus.iter().map(|cpu| cpu.0))
}

/// Returns the CPUs in the calling thread's affinity mask, which containers and `taskset` restrict: first one CPU per
/// core, then the remaining CPUs of each core.
///
/// # Errors
/// The system does not provide the mask.
pub fn allowed() -> io::Result<Vec<Cpu>> {
    let allowed = system::allowed()?;
    Ok(cores_first(&allowed, system::core).into_iter().map(Cpu).collect())
}

/// Returns the first CPU of each core, then the second of each, and so on; `core` maps a CPU to a core.
fn cores_first<C: PartialEq>(cpus: &[usize], core: impl Fn(usize) -> C) -> Vec<usize> {
    let cores: Vec<C> = cpus.iter().map(|&cpu| core(cpu)).collect();
    // The rank of a CPU is the number of earlier CPUs on the same core.
    let rank = |index: usize| cores[..index].iter().filter(|&other| *other == cores[index]).count();
    let mut ranked: Vec<(usize, usize)> = cpus.iter().enumerate().map(|(index, &cpu)| (rank(index), cpu)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}

/// Affinity masks from system calls, and cores from the topology in sysfs.
#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::io;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub(super) fn allowed() -> io::Result<Vec<usize>> {
        let mask = sched_getaffinity(None)?;
        Ok((0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect())
    }

    pub(super) fn pin(cpus: impl Iterator<Item = usize>) -> io::Result<()> {
        let mut mask = CpuSet::new();
        cpus.for_each(|cpu| mask.set(cpu));
        Ok(sched_setaffinity(None, &mask)?)
    }

    /// Returns the list of CPUs that share a core; without sysfs, each CPU counts as a core.
    pub(super) fn core(cpu: usize) -> String {
        let list = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        list.unwrap_or_else(|_| cpu.to_string())
    }
}

/// Fallback for systems without thread affinity.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    pub(super) fn allowed() -> io::Result<Vec<usize>> {
        Err(unsupported())
    }

    pub(super) fn pin(_cpus: impl Iterator<Item = usize>) -> io::Result<()> {
        Err(unsupported())
    }

    pub(super) fn core(cpu: usize) -> usize {
        cpu
    }

    fn unsupported() -> io::Error {
        io::Error::new(io::ErrorKind::Unsupported, "this system does not support pinned threads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_come_before_their_second_cpus() {
        // Two cores of two CPUs each: first with adjacent CPUs, then with interleaved CPUs.
        assert_eq!(cores_first(&[0, 1, 2, 3], |cpu| cpu / 2), [0, 2, 1, 3]);
        assert_eq!(cores_first(&[0, 1, 2, 3], |cpu| cpu % 2), [0, 1, 2, 3]);
        // The mask contains only half of one core.
        assert_eq!(cores_first(&[1, 4, 5], |cpu| cpu / 2), [1, 4, 5]);
        assert_eq!(cores_first(&[], |cpu| cpu), [0_usize; 0]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_inherits_the_cpus_of_the_thread_that_starts_it() {
        let cpus = allowed().unwrap();
        let chosen = vec![*cpus.last().unwrap()];
        let inherited = std::thread::scope(|scope| {
            let start = || {
                pin_to(&chosen).unwrap();
                let listed =
                    std::process::Command::new("grep").args(["Cpus_allowed_list", "/proc/self/status"]).output();
                String::from_utf8(listed.unwrap().stdout).unwrap()
            };
            scope.spawn(start).join().unwrap()
        });
        assert_eq!(inherited.split_whitespace().last().unwrap(), chosen[0].0.to_string(), "{inherited}");
        assert!(pin_to(&[]).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn each_pinned_thread_may_run_on_one_allowed_cpu_that_no_other_has() {
        let cpus = allowed().unwrap();
        assert!(!cpus.is_empty());
        let pinned = std::thread::scope(|scope| {
            let threads: Vec<_> = cpus
                .iter()
                .map(|&cpu| {
                    scope.spawn(move || {
                        pin_to(&[cpu]).unwrap();
                        allowed().unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(pinned, cpus.iter().map(|&cpu| vec![cpu]).collect::<Vec<_>>());
        let distinct: std::collections::BTreeSet<Cpu> = cpus.iter().copied().collect();
        assert_eq!(distinct.len(), cpus.len());
        assert_eq!(allowed().unwrap(), cpus, "other threads stay where they were");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        assert!(pin_to(&[Cpu(1023)]).is_err());
    }
}
