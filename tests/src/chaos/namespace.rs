//! Creates network namespaces without a name: the system removes one when no process is in it or holds it open, even if
//! the test crashes.

use std::fs::File;
use std::process::Command;

use anyhow::{Context, ensure};

use super::system;

/// A network namespace with a loopback device.
#[derive(Debug)]
pub struct Namespace {
    handle: File,
}

impl Namespace {
    /// Creates a namespace. The calling thread does not enter it.
    ///
    /// # Errors
    /// The system has no network namespaces, or this user may not create one.
    pub fn new() -> anyhow::Result<Self> {
        let made = std::thread::spawn(|| {
            system::unshare_network()?;
            // The path names the namespace of the thread; the process as a whole stays in the same namespace.
            File::open("/proc/thread-self/ns/net")
        });
        let handle = made.join().expect("the thread does not panic").context("make a network namespace")?;
        let namespace = Self { handle };
        namespace.within(|| ip(&["link", "set", "lo", "up"]))??;
        Ok(namespace)
    }

    /// Runs `work` on a thread in the namespace; processes that it starts are in the namespace too.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| self.enter().map(|()| work()));
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace permanently, with the threads and processes that it starts
    /// afterwards.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn enter(&self) -> anyhow::Result<()> {
        system::enter_network(&self.handle).context("enter a network namespace")
    }
}

/// Runs `ip` in the network namespace of the calling thread.
pub(super) fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("start `ip` (of iproute2)")?;
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
