//! The speeds of fleets, before they become rows of a report.

use crate::latency::Latency;

/// One fleet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScaleSpeeds {
    /// Actor processes.
    pub(super) actors: usize,
    /// Trajectories acknowledged, over all actors.
    pub(super) inserts_per_second: f64,
    /// Inserts/s over those of the smallest fleet times as many actors.
    pub(super) share_of_linear: f64,
    /// Samples that the learner drew.
    pub(super) samples_per_second: f64,
    /// CPU seconds of all processes per second: cores that they kept busy.
    pub(super) cpu: Option<f64>,
    /// The same of the actors.
    pub(super) actors_cpu: Option<f64>,
    /// The same of the replay server.
    pub(super) replay_cpu: Option<f64>,
    /// The same of the learner.
    pub(super) learner_cpu: Option<f64>,
    /// Of the time of self-play threads, what went into waiting for the replay server to take more.
    pub(super) held_up_share: Option<f64>,
    /// Of the time, how long the rate limiter held inserts up.
    pub(super) insert_wait_share: Option<f64>,
    /// Of the training thread's time, what went into training and publishing: the rest is waiting for samples.
    pub(super) learner_busy_share: Option<f64>,
}

/// One process that connects in the name of many actors.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoadSpeeds {
    /// Actors, each with an insert stream and a subscription, over a connection each.
    pub(super) actors: usize,
    /// Subscribers that the publisher sends to at once; null: as many as a learner does.
    pub(super) fetches: Option<usize>,
    /// Steps of a trajectory.
    pub(super) steps: usize,
    /// Bytes of a trajectory on the wire, the mean.
    pub(super) trajectory_bytes: f64,
    /// The time that each rate was measured.
    pub(super) seconds: f64,
    /// From the first connection until all insert streams were open.
    pub(super) connected_seconds: f64,
    /// Resident memory of the replay server with no connection.
    pub(super) replay_memory_bytes: Option<u64>,
    /// With all of them, nothing sent.
    pub(super) replay_memory_bytes_connected: Option<u64>,
    /// From the first connection until all subscriptions were open.
    pub(super) subscribed_seconds: f64,
    /// Resident memory of the publisher with no connection, all networks loaded.
    pub(super) publisher_memory_bytes: Option<u64>,
    /// With all subscriptions, nothing published.
    pub(super) publisher_memory_bytes_subscribed: Option<u64>,
    /// By rate.
    pub(super) inserts: Vec<InsertsSpeeds>,
    /// By network.
    pub(super) fan_outs: Vec<FanOutSpeeds>,
}

/// Inserts of all actors at one rate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InsertsSpeeds {
    /// Trajectories that each actor is to upload per second.
    pub(super) asked_per_actor: f64,
    /// Trajectories acknowledged per second, over all actors.
    pub(super) inserts_per_second: f64,
    /// From handing one in until it was acknowledged.
    pub(super) latency: Latency,
    /// CPU seconds of the replay server per second.
    pub(super) replay_cpu: Option<f64>,
    /// The same of this process, which is all the actors.
    pub(super) clients_cpu: Option<f64>,
    /// Resident memory of the replay server at the end.
    pub(super) replay_memory_bytes: Option<u64>,
}

/// One version of weights, to every subscriber.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FanOutSpeeds {
    /// Residual blocks and channels.
    pub(super) network: String,
    /// Bytes of the version.
    pub(super) size_bytes: u64,
    /// Bytes that subscribers received.
    pub(super) bytes_sent: u64,
    /// From the order to publish until so many subscribers held it: how many, and seconds. The first and all of them
    /// among others.
    pub(super) held: Vec<(usize, f64)>,
    /// CPU seconds of the publisher.
    pub(super) publisher_cpu_seconds: Option<f64>,
    /// CPU seconds of this process, which is all subscribers.
    pub(super) clients_cpu_seconds: Option<f64>,
    /// Resident memory of the publisher before.
    pub(super) publisher_memory_bytes: Option<u64>,
    /// The most that was seen meanwhile.
    pub(super) publisher_memory_bytes_max: Option<u64>,
}

impl FanOutSpeeds {
    /// Until the first held it, in seconds.
    pub(super) fn first_seconds(&self) -> f64 {
        self.held.first().map_or(f64::NAN, |(_, seconds)| *seconds)
    }

    /// Until half of them did.
    pub(super) fn median_seconds(&self) -> f64 {
        let all = self.held.last().map_or(0, |(count, _)| *count);
        self.held.iter().find(|(count, _)| 2 * count >= all).map_or(f64::NAN, |(_, seconds)| *seconds)
    }

    /// Until all did.
    pub(super) fn last_seconds(&self) -> f64 {
        self.held.last().map_or(f64::NAN, |(_, seconds)| *seconds)
    }

    /// Bytes for each CPU second of the publisher.
    pub(super) fn bytes_per_cpu_second(&self) -> Option<f64> {
        self.publisher_cpu_seconds.filter(|&seconds| seconds > 0.0).map(|seconds| self.bytes_sent as f64 / seconds)
    }
}
