//! The needs of a fleet, computed from what was measured of one.

use super::speeds::{FanOutSpeeds, LoadSpeeds};

/// Networks between machines, in bits per second.
pub(super) const LINKS: [(&str, f64); 3] = [("1 Gbit/s", 1e9), ("10 Gbit/s", 10e9), ("25 Gbit/s", 25e9)];
/// Threads of the publisher that serve sockets.
const PUBLISHER_THREADS: f64 = 2.0;
/// The default of `learner.publish_interval_seconds`.
pub(super) const PUBLISH_INTERVAL_SECONDS: f64 = 10.0;

/// The limit of how fast a version reaches every subscriber.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Limit {
    /// The link of the publisher.
    Link,
    /// The threads that serve its sockets.
    Cpu,
}

impl Limit {
    /// For people.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Link => "the publisher's link",
            Self::Cpu => "the publisher's CPU (two threads for sockets)",
        }
    }
}

/// A version to every subscriber over a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Delivery {
    /// On the wire.
    pub(super) link_seconds: f64,
    /// Of the threads that serve sockets, together; unknown where the system has no figure.
    pub(super) cpu_seconds: Option<f64>,
    pub(super) limit: Limit,
}

impl Delivery {
    pub(super) fn new(fan_out: &FanOutSpeeds, bits_per_second: f64) -> Self {
        let link_seconds = 8.0 * fan_out.bytes_sent as f64 / bits_per_second;
        let cpu_seconds = fan_out.publisher_cpu_seconds.map(|seconds| seconds / PUBLISHER_THREADS);
        let limit = if cpu_seconds.is_some_and(|seconds| seconds > link_seconds) { Limit::Cpu } else { Limit::Link };
        Self { link_seconds, cpu_seconds, limit }
    }

    /// The longer of the two: no version can follow sooner.
    pub(super) fn seconds(&self) -> f64 {
        self.link_seconds.max(self.cpu_seconds.unwrap_or(0.0))
    }
}

/// Memory for each connection.
pub(super) fn per_connection(before: Option<u64>, after: Option<u64>, connections: usize) -> Option<f64> {
    let grown = after?.saturating_sub(before?);
    (connections > 0).then(|| grown as f64 / connections as f64)
}

/// Bytes of trajectories per second, on the way to the replay server.
pub(super) fn trajectory_bytes_per_second(load: &LoadSpeeds, inserts_per_second: f64) -> f64 {
    load.trajectory_bytes * inserts_per_second
}

/// Trajectories per second that the replay server takes per CPU second, at the highest rate that was measured.
pub(super) fn inserts_per_cpu_second(load: &LoadSpeeds) -> Option<f64> {
    let fastest = load.inserts.iter().max_by(|a, b| a.inserts_per_second.total_cmp(&b.inserts_per_second))?;
    fastest.replay_cpu.filter(|&cpu| cpu > 0.0).map(|cpu| fastest.inserts_per_second / cpu)
}
