//! A virtual network of hosts that communicate through this process. Each host is a network namespace with a tunnel to
//! this process as the only device, so that a thread of the test controls every packet. The root namespace, bridges,
//! firewall rules and kernel modules are not used.

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

/// Name of the tunnel in every namespace.
const DEVICE: &str = "chaos0";
/// MTU of the devices, as for Ethernet, so that a share of lost packets has the same effect.
const MTU: usize = 1500;
/// Maximum number of packets read from one host before the next one.
const TURN_PACKETS: usize = 64;
/// Interval at which the thread checks if it must stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Hosts, and links between them.
#[derive(Debug)]
pub struct Network {
    namespaces: Vec<Arc<Namespace>>,
    switch: Arc<Mutex<Switch>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Creates a network of `hosts` hosts without faults. `seed` determines the packets that slow links lose.
    ///
    /// # Errors
    /// The system has no network namespaces or tunnels, or this user may not create them.
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

    /// Returns the namespace for a host's processes.
    #[must_use]
    pub fn namespace(&self, host: Host) -> Arc<Namespace> {
        Arc::clone(&self.namespaces[usize::from(host.0)])
    }

    /// Sets the state of the link of a host.
    pub fn set(&self, host: Host, link: Link) {
        locked(&self.switch).set(host, link);
    }

    /// Drops every packet from one host to the other from now on; packets in the other direction pass.
    pub fn cut(&self, from: Host, to: Host) {
        locked(&self.switch).cut(from, to);
    }

    /// Ends a [`cut`](Self::cut).
    pub fn join(&self, from: Host, to: Host) {
        locked(&self.switch).join(from, to);
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

/// Creates a device with the host's address in the network namespace of the calling thread, and brings it up.
fn attach(host: Host) -> anyhow::Result<File> {
    let file = system::open_tunnel(DEVICE).context("open a tunnel")?;
    ip(&["address", "add", &format!("{}/24", host.address()), "dev", DEVICE])?;
    ip(&["link", "set", DEVICE, "mtu", &MTU.to_string(), "up"])?;
    Ok(file)
}

fn locked(switch: &Mutex<Switch>) -> MutexGuard<'_, Switch> {
    switch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of the thread that moves packets between the devices and the switch.
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

    /// Delivers the packets that are due; returns the time until the next packet.
    fn give(&self) -> Duration {
        let mut switch = locked(&self.switch);
        let now = Instant::now();
        while let Some((to, packet)) = switch.give(now) {
            if let Some(mut device) = self.devices.get(usize::from(to.0)) {
                // If the host cannot receive the packet, it is lost, as on a real network.
                let _ = device.write(&packet);
            }
        }
        switch.next().map_or(STOP_INTERVAL, |due| due.saturating_duration_since(now).min(STOP_INTERVAL))
    }

    /// Waits until a host has sent a packet or `wait` is over; returns the hosts that have sent packets.
    fn readable(&self, wait: Duration) -> Vec<Host> {
        let polled = |device: &File| libc::pollfd { fd: device.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polls: Vec<libc::pollfd> = self.devices.iter().map(polled).collect();
        // The timeout is rounded up: rounded down, it would be 0 within the last millisecond, and the loop would spin.
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
                // No further packet is available.
                Err(_) => return,
            }
        }
    }
}
