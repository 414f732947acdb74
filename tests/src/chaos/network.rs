//! Hosts that reach each other through this process: each is a network namespace whose one device is a tunnel to here,
//! so that a thread of the test decides about every packet. No root namespace, bridge, firewall rule or kernel module
//! takes part.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::namespace::{Namespace, ip};
use super::switch::{Host, Link, Switch};
use super::system;

/// The name of the tunnel in every namespace.
const DEVICE: &str = "chaos0";
/// The MTU of the devices: as on an Ethernet, so that a share of lost packets means the same.
const MTU: usize = 1500;
/// Packets taken from one host before the others have their turn.
const TURN_PACKETS: usize = 64;
/// The thread looks whether it is to end this often.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Some hosts and the way between them.
#[derive(Debug)]
pub struct Network {
    namespaces: Vec<Arc<Namespace>>,
    switch: Arc<Mutex<Switch>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// So many hosts, all well. `seed` decides which packets slow links lose.
    ///
    /// # Errors
    /// The system has no network namespaces or tunnels, or this user may not make them.
    pub fn new(hosts: u8, seed: u64) -> anyhow::Result<Self> {
        let mut namespaces = Vec::new();
        let mut devices = Vec::new();
        for host in (0..hosts).map(Host) {
            let namespace = Namespace::new()?;
            devices.push(namespace.within(|| attach(host))??);
            namespaces.push(Arc::new(namespace));
        }
        let switch = Arc::new(Mutex::new(Switch::new(hosts, seed)));
        let stop = Arc::new(AtomicBool::new(false));
        let forwarding = Forwarding { devices, switch: Arc::clone(&switch), stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name("switch".into()).spawn(|| forwarding.run());
        Ok(Self { namespaces, switch, stop, thread: Some(thread.context("start the switch")?) })
    }

    /// Returns the namespace of a host's processes.
    #[must_use]
    pub fn namespace(&self, host: Host) -> Arc<Namespace> {
        Arc::clone(&self.namespaces[usize::from(host.0)])
    }

    /// From now on the way to a host is like this.
    pub fn set(&self, host: Host, link: Link) {
        locked(&self.switch).set(host, link);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

/// A device of the calling thread's network, up and with the host's address.
fn attach(host: Host) -> anyhow::Result<File> {
    let file = system::open_tunnel(DEVICE).context("open a tunnel")?;
    ip(&["address", "add", &format!("{}/24", host.address()), "dev", DEVICE])?;
    ip(&["link", "set", DEVICE, "mtu", &MTU.to_string(), "up"])?;
    Ok(file)
}

fn locked(switch: &Mutex<Switch>) -> MutexGuard<'_, Switch> {
    switch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread between the devices and the switch.
struct Forwarding {
    devices: Vec<File>,
    switch: Arc<Mutex<Switch>>,
    stop: Arc<AtomicBool>,
}

impl Forwarding {
    fn run(self) {
        while !self.stop.load(Ordering::Relaxed) {
            let wait = self.give();
            for host in self.readable(wait) {
                self.take(host);
            }
        }
    }

    /// Delivers the packets that are due; returns the time until the next one.
    fn give(&self) -> Duration {
        let mut switch = locked(&self.switch);
        let now = Instant::now();
        while let Some((to, packet)) = switch.give(now) {
            if let Some(mut device) = self.devices.get(usize::from(to.0)) {
                // A host that cannot take it loses it, as any network's would.
                let _ = device.write(&packet);
            }
        }
        switch.next().map_or(STOP_INTERVAL, |due| due.saturating_duration_since(now).min(STOP_INTERVAL))
    }

    /// The hosts that have sent something, once one has or the time is over.
    fn readable(&self, wait: Duration) -> Vec<Host> {
        let polled = |device: &File| libc::pollfd { fd: device.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polls: Vec<libc::pollfd> = self.devices.iter().map(polled).collect();
        // Rounded up: it would turn around its own axis for the last millisecond.
        let timeout_ms = libc::c_int::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(libc::c_int::MAX);
        let count = libc::nfds_t::try_from(polls.len()).expect("hosts are counted in a byte");
        // SAFETY: the array has the given length and outlives the call; the descriptors are open.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), count, timeout_ms) };
        if ready <= 0 {
            return Vec::new();
        }
        (0..).map(Host).zip(&polls).filter(|(_, poll)| poll.revents != 0).map(|(host, _)| host).collect()
    }

    fn take(&self, host: Host) {
        let mut device = &self.devices[usize::from(host.0)];
        let mut packet = [0; MTU];
        for _ in 0..TURN_PACKETS {
            match device.read(&mut packet) {
                Ok(bytes) => locked(&self.switch).take(Instant::now(), host, &packet[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nothing more now.
                Err(_) => return,
            }
        }
    }
}
