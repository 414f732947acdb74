//! A process of the fleet, and the faults injected into it.

use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::cgroup::Group;
use super::clock::{self, WallClock};
use super::disk::Disk;
use super::fault::{Fault, Kind, Service};
use super::network::Network;
use super::secrets::Secrets;
use super::switch::{Host, Link};
use super::system::{self, Resource};
use super::watch::Watch;
use crate::process::{Process, wait_until};

/// Link state of [`Kind::Slow`], with delay and loss per direction.
const SLOW: Link = Link::Slow { delay: Duration::from_millis(100), loss: 0.02 };
/// Bytes of pages that a process may get under [`Kind::Memory`], including pages of files and sockets.
const NEW_MEMORY_BYTES: u64 = 1 << 20;
/// Time limit for the use of renewed files, which are checked once a second.
const RELOAD_DEADLINE: Duration = Duration::from_secs(10);
/// Log line of a process that uses renewed files.
const RELOADED: &str = "reloaded changed files of [security]";
const PAGE_BYTES: u64 = 4 << 10;

/// A process with a host and a thread that watches it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) service: Service,
    pub(super) process: Process,
    pub(super) watch: Watch,
    pub(super) disk: Option<Disk>,
    pub(super) clock: Option<WallClock>,
    /// Limit before a fault, to restore.
    pub(super) limited: Option<(Resource, u64)>,
    /// Group that limits memory; `None` if there are no such groups.
    pub(super) memory: Option<Group>,
    /// Number of reloaded certificates before the last renewal.
    pub(super) reloads: usize,
}

/// The surroundings of a process that faults affect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) network: &'a Network,
    pub(super) secrets: &'a Secrets,
    /// Training step of the latest checkpoint.
    pub(super) checkpointed: f64,
}

/// Returns the host of a process.
pub(super) fn host(service: Service) -> Host {
    Host(service.index() + 1)
}

impl Member {
    /// Injects a fault.
    ///
    /// # Errors
    /// The process has exited by itself, or the system refuses the fault.
    pub(super) fn strike(&mut self, fault: Fault, around: Around) -> anyhow::Result<()> {
        let Fault { service, kind, peer, .. } = fault;
        ensure!(self.process.is_running(), "{service} has ended by itself");
        let Around { network, secrets, .. } = around;
        let (own, peer) = (host(service), host(peer));
        match kind {
            Kind::Pause => self.process.pause(),
            Kind::Cut => network.set(own, Link::Cut),
            Kind::CutOneWay => network.cut(own, peer),
            Kind::CutPair => {
                network.cut(own, peer);
                network.cut(peer, own);
            }
            Kind::Slow => network.set(own, SLOW),
            Kind::Vanish => {
                network.set(own, Link::Cut);
                self.kill(around)?;
            }
            Kind::Kill | Kind::MonotonicClock => self.kill(around)?,
            Kind::DiskSlow => {
                let id = self.id()?;
                self.disk()?.slow_down(id)?;
            }
            Kind::DiskHung => self.disk()?.freeze()?,
            Kind::DiskFull => self.disk()?.fill()?,
            Kind::Descriptors => self.limit(Resource::Descriptors)?,
            Kind::Memory => self.limit(Resource::AddressSpace)?,
            Kind::WallClock => self.clock()?.set(fault.clock_seconds)?,
            Kind::Certificates => {
                self.reloads = self.count_reloads();
                secrets.renew(service)?;
            }
        }
        Ok(())
    }

    /// Repairs a fault.
    ///
    /// # Errors
    /// The process cannot be started again, or the system refuses the repair.
    pub(super) fn heal(&mut self, fault: Fault, around: Around) -> anyhow::Result<()> {
        let Fault { service, kind, peer, .. } = fault;
        let network = around.network;
        let (own, peer) = (host(service), host(peer));
        match kind {
            Kind::Pause => self.process.resume(),
            Kind::Cut | Kind::Slow | Kind::Vanish => network.set(own, Link::Good),
            Kind::CutOneWay => network.join(own, peer),
            Kind::CutPair => {
                network.join(own, peer);
                network.join(peer, own);
            }
            Kind::DiskSlow => self.disk()?.speed_up()?,
            Kind::DiskHung => self.disk()?.thaw()?,
            Kind::DiskFull => self.disk()?.make_room()?,
            Kind::Descriptors | Kind::Memory => self.lift(around)?,
            Kind::WallClock => self.clock()?.set(0)?,
            Kind::MonotonicClock => clock::set_monotonic(&mut self.process, fault.clock_seconds)?,
            Kind::Kill => {}
            Kind::Certificates => {
                // Files are checked when a connection arrives; these servers get connections at any time.
                if matches!(service, Service::Replay(_) | Service::Learner) {
                    let read = || Ok(self.count_reloads() > self.reloads);
                    wait_until(&format!("{service} has read its new certificate"), RELOAD_DEADLINE, read)?;
                }
            }
        }
        if kind.ends_process() { self.process.start() } else { Ok(()) }
    }

    fn count_reloads(&self) -> usize {
        self.process.log_text().lines().filter(|line| line.contains(RELOADED)).count()
    }

    fn kill(&mut self, around: Around) -> anyhow::Result<()> {
        self.watch.begin_run(around.checkpointed);
        self.process.kill()
    }

    /// Limits a resource to the current usage of the process.
    fn limit(&mut self, resource: Resource) -> anyhow::Result<()> {
        let id = self.id()?;
        let limit = match resource {
            Resource::Descriptors => unused_descriptor(id)?,
            Resource::AddressSpace => address_space(id)?,
        };
        if let (Resource::AddressSpace, Some(memory)) = (resource, &self.memory) {
            memory.take(id)?;
            let limit = memory.get("memory.usage_in_bytes")? + NEW_MEMORY_BYTES;
            memory.set("memory.limit_in_bytes", &limit.to_string())?;
        }
        self.limited = Some((resource, system::limit(id, resource, limit).context("limit a process")?));
        Ok(())
    }

    /// Lifts the limit, and starts the process again if it has exited.
    fn lift(&mut self, around: Around) -> anyhow::Result<()> {
        let limited = self.limited.take();
        if let Some(memory) = &self.memory {
            memory.set("memory.limit_in_bytes", "-1")?;
        }
        if self.process.is_running() {
            let (resource, before) = limited.context("the process was limited")?;
            // The process may exit at this moment.
            let _ = system::limit(self.id()?, resource, before);
        }
        if self.process.is_running() {
            return Ok(());
        }
        self.kill(around)?;
        self.process.start()
    }

    fn id(&self) -> anyhow::Result<u32> {
        self.process.id().context("the process was started")
    }

    fn disk(&mut self) -> anyhow::Result<&mut Disk> {
        self.disk.as_mut().context("the process has a disk of its own")
    }

    fn clock(&self) -> anyhow::Result<&WallClock> {
        self.clock.as_ref().context("the process has a clock of its own")
    }
}

/// Returns the lowest descriptor that a process does not use.
fn unused_descriptor(process: u32) -> anyhow::Result<u64> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).context("list descriptors")?.flatten();
    let used: Vec<u64> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    Ok((0..).find(|descriptor| !used.contains(descriptor)).expect("descriptors are fewer than numbers"))
}

/// Returns the size of a process's address space, in bytes.
fn address_space(process: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).context("read the size of a process")?;
    let pages: u64 = text.split(' ').next().unwrap_or_default().parse().context("parse the size of a process")?;
    Ok(pages * PAGE_BYTES)
}
