//! A network namespace without a name: it is gone when no process is in it and none holds it, however the test ends.

use std::fs::File;
use std::process::Command;

use anyhow::{Context, ensure};

use super::system;

/// A network of its own, with a loopback device.
#[derive(Debug)]
pub struct Namespace {
    handle: File,
}

impl Namespace {
    /// A new one. The calling thread stays where it is.
    ///
    /// # Errors
    /// The system has none, or does not let this user make one.
    pub fn new() -> anyhow::Result<Self> {
        let made = std::thread::spawn(|| {
            system::unshare_network()?;
            // Of the thread: the process as a whole stays where it was.
            File::open("/proc/thread-self/ns/net")
        });
        let handle = made.join().expect("the thread does not panic").context("make a network namespace")?;
        let namespace = Self { handle };
        namespace.within(|| ip(&["link", "set", "lo", "up"]))??;
        Ok(namespace)
    }

    /// Does something on a thread inside; processes that it starts are inside too.
    ///
    /// # Errors
    /// It cannot be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| self.enter().map(|()| work()));
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread inside, for good, and with it whatever it starts from now on.
    ///
    /// # Errors
    /// It cannot be entered.
    pub fn enter(&self) -> anyhow::Result<()> {
        system::enter_network(&self.handle).context("enter a network namespace")
    }
}

/// Runs `ip` in the calling thread's network.
pub(super) fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("start `ip` (of iproute2)")?;
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
