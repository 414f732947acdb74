use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The model of the CPU, as the system calls it.
    pub cpu: String,
    /// Instruction set and operating system.
    pub target: String,
    /// Cores that all processes share.
    pub cores: usize,
    /// The seed.
    pub seed: u64,
    /// File descriptors that each process may have open.
    pub descriptors_max: Option<u64>,
    /// What the ratios are to.
    #[serde(default)]
    pub compared: Option<Compared>,
    /// Fleets of real actors, if any were measured.
    pub scaling: Option<ScalingReport>,
    /// One process in the name of many actors, if that was measured.
    pub load: Option<LoadReport>,
}

/// An earlier report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Its file, as it was named.
    pub file: String,
    /// The model of its CPU.
    pub cpu: String,
}

/// Fleets of real processes whose evaluator takes a fixed time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalingReport {
    /// The game.
    pub game: String,
    /// How long a batch takes that no network evaluates, in microseconds.
    pub delay_us: u64,
    /// Games of each actor, in one thread.
    pub games: usize,
    /// Simulations of every search.
    pub simulations: u32,
    /// What the learner trains.
    pub network: String,
    /// What was set beside that.
    pub sets: Vec<String>,
    /// How long each fleet was measured.
    pub seconds: f64,
    /// How long was waited before.
    pub warm_up_seconds: f64,
    /// How often everything was measured; of several the middle one counts.
    pub repeats: usize,
    /// By number of actors, ascending.
    pub fleets: Vec<ScaleReport>,
}

/// One fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScaleReport {
    /// Actor processes.
    pub actors: usize,
    /// Trajectories acknowledged, over all actors.
    pub inserts_per_second: f64,
    /// Inserts/s over those of the smallest fleet times as many actors.
    pub share_of_linear: f64,
    /// Samples that the learner drew.
    pub samples_per_second: f64,
    /// CPU seconds of all processes per second: cores that they kept busy.
    pub cpu: Option<f64>,
    /// The same of the actors.
    pub actors_cpu: Option<f64>,
    /// The same of the replay server.
    pub replay_cpu: Option<f64>,
    /// The same of the learner.
    pub learner_cpu: Option<f64>,
    /// Of the time of self-play threads, what went into waiting for the replay server to take more.
    pub held_up_share: Option<f64>,
    /// Of the time, how long the rate limiter held inserts up.
    pub insert_wait_share: Option<f64>,
    /// Of the training thread's time, what went into training and publishing: the rest is waiting for samples.
    pub learner_busy_share: Option<f64>,
    /// Inserts/s over those of the earlier report, if it has the same.
    #[serde(default)]
    pub inserts_ratio: Option<f64>,
}

/// One process that connects in the name of many actors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Actors, each with an insert stream and a subscription, over a connection each.
    pub actors: usize,
    /// Subscribers that the publisher sends to at once; null: as many as a learner does.
    pub fetches: Option<usize>,
    /// Steps of a trajectory.
    pub steps: usize,
    /// Bytes of a trajectory on the wire, the mean.
    pub trajectory_bytes: f64,
    /// How long each rate was measured.
    pub seconds: f64,
    /// From the first connection until all insert streams were open.
    pub connected_seconds: f64,
    /// Resident memory of the replay server with no connection.
    pub replay_memory_bytes: Option<u64>,
    /// With all of them, nothing sent.
    pub replay_memory_bytes_connected: Option<u64>,
    /// From the first connection until all subscriptions were open.
    pub subscribed_seconds: f64,
    /// Resident memory of the publisher with no connection, all networks loaded.
    pub publisher_memory_bytes: Option<u64>,
    /// With all subscriptions, nothing published.
    pub publisher_memory_bytes_subscribed: Option<u64>,
    /// By rate.
    pub inserts: Vec<InsertsReport>,
    /// By network.
    pub fan_outs: Vec<FanOutReport>,
}

/// Inserts of all actors at one rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InsertsReport {
    /// What each actor would hand in per second.
    pub asked_per_actor: f64,
    /// Trajectories acknowledged per second, over all actors.
    pub inserts_per_second: f64,
    /// From handing one in until it was acknowledged.
    pub latency: Latency,
    /// CPU seconds of the replay server per second.
    pub replay_cpu: Option<f64>,
    /// The same of this process, which is all the actors.
    pub clients_cpu: Option<f64>,
    /// Resident memory of the replay server at the end.
    pub replay_memory_bytes: Option<u64>,
}

/// One version of weights, to every subscriber.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FanOutReport {
    /// Residual blocks and channels.
    pub network: String,
    /// Bytes of the version.
    pub size_bytes: u64,
    /// Bytes that subscribers received.
    pub bytes_sent: u64,
    /// From the order to publish until so many subscribers held it: how many, and seconds. The first and all of them among
    /// others.
    pub held: Vec<(usize, f64)>,
    /// CPU seconds of the publisher.
    pub publisher_cpu_seconds: Option<f64>,
    /// CPU seconds of this process, which is all subscribers.
    pub clients_cpu_seconds: Option<f64>,
    /// Resident memory of the publisher before.
    pub publisher_memory_bytes: Option<u64>,
    /// The most that was seen meanwhile.
    pub publisher_memory_bytes_max: Option<u64>,
    /// The time until all held it over that of the earlier report, if it has the same.
    #[serde(default)]
    pub seconds_ratio: Option<f64>,
}

impl FanOutReport {
    /// Until the first held it, in seconds.
    #[must_use]
    pub fn first_seconds(&self) -> f64 {
        self.held.first().map_or(f64::NAN, |(_, seconds)| *seconds)
    }

    /// Until half of them did.
    #[must_use]
    pub fn median_seconds(&self) -> f64 {
        let all = self.held.last().map_or(0, |(count, _)| *count);
        self.held.iter().find(|(count, _)| 2 * count >= all).map_or(f64::NAN, |(_, seconds)| *seconds)
    }

    /// Until all did.
    #[must_use]
    pub fn last_seconds(&self) -> f64 {
        self.held.last().map_or(f64::NAN, |(_, seconds)| *seconds)
    }

    /// Bytes for each CPU second of the publisher.
    #[must_use]
    pub fn bytes_per_cpu_second(&self) -> Option<f64> {
        self.publisher_cpu_seconds.filter(|&seconds| seconds > 0.0).map(|seconds| self.bytes_sent as f64 / seconds)
    }
}
