//! The cpus that this process may run on, and threads that stay on one of them.

use std::fmt;
use std::io;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
use elsewhere as system;

#[cfg(test)]
mod tests;

/// A logical cpu, by the number that the system gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cpu(usize);

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu {}", self.0)
    }
}

impl Cpu {
    /// Keeps the calling thread, and threads that it starts from now on, on this cpu.
    ///
    /// # Errors
    /// The system does not do that, or not here.
    pub fn pin(self) -> io::Result<()> {
        system::pin(self.0)
    }
}

/// The cpus that the calling thread may run on by its mask, which containers and `taskset` narrow: first one of each core, then
/// what else its core has.
///
/// # Errors
/// The system does not tell.
pub fn allowed() -> io::Result<Vec<Cpu>> {
    let allowed = system::allowed()?;
    Ok(cores_first(&allowed, system::core).into_iter().map(Cpu).collect())
}

/// The first cpu of each core, then the second of each, and so on; `core` says which core a cpu is of.
fn cores_first<C: PartialEq>(cpus: &[usize], core: impl Fn(usize) -> C) -> Vec<usize> {
    let cores: Vec<C> = cpus.iter().map(|&cpu| core(cpu)).collect();
    // How many cpus of the same core come before it.
    let rank = |index: usize| cores[..index].iter().filter(|&other| *other == cores[index]).count();
    let mut ranked: Vec<(usize, usize)> = cpus.iter().enumerate().map(|(index, &cpu)| (rank(index), cpu)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}
