//! Linux: affinity masks by system calls, cores from the topology in sysfs.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub(super) fn allowed() -> io::Result<Vec<usize>> {
    let mask = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect())
}

pub(super) fn pin(cpu: usize) -> io::Result<()> {
    let mut mask = CpuSet::new();
    mask.set(cpu);
    Ok(sched_setaffinity(None, &mask)?)
}

/// The list of cpus that share a core; without one in sysfs, each cpu counts as a core.
pub(super) fn core(cpu: usize) -> String {
    let list = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    list.unwrap_or_else(|_| cpu.to_string())
}
