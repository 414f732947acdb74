//! Training together with other learners: each step applies the mean contribution over the batches of all group
//! members.
//!
//! [`Group`] is the training thread's handle: it [forms](Group::form) groups and sums contributions over the members.
//! The state machine [`membership`] decides who is in a group; the [`driver`] task runs the state machine. An
//! [`engine`] transfers data between members. The members of a group never change. If a member is lost or a learner
//! asks for a place, the members form the next group, and members with fewer steps load the [`state`] of the member
//! with the most steps.

mod control;
mod driver;
pub(crate) mod engine;
mod library;
mod membership;
mod numbering;
pub(crate) mod state;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;
#[cfg(feature = "torch")]
use collective::nccl::{Clock, Nccl};
use collective::{Collective, Error, Memory, Numbers};
use crossbeam_channel::RecvTimeoutError;
use proto::learners::{Candidate, Exchange, Peer, Question, Roster};
use run_file::learner::trainer_settings;
use run_file::learner::{CollectiveKind, Settings};
use service::{ConfigError, Drain};
use tokio::sync::mpsc;
use training::TrainerSettings;
use training::layout::ALIGNMENT;
use version_store::VersionStore;
use weights::{Architecture, Digest, WeightsVersion};

pub(crate) use self::control::{Control, NUMBERS as CONTROL_NUMBERS};
use self::driver::{Driver, Form, Formed, Shared};
use self::engine::Engine;
use self::membership::Membership;
use self::numbering::Numbering;
use crate::backend::Chosen;
use crate::metrics;

/// Maximum duration of a roll call. It can be short because all members notice a lost member within milliseconds of
/// each other: the connections to the lost member, and the connections between the other members, close.
const ROLL: Duration = Duration::from_secs(1);
/// Interval between checks whether training should stop.
const POLL: Duration = Duration::from_millis(50);
/// Delay before another attempt to store a version number.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// The training thread's handle to the group of learners.
pub(crate) struct Group {
    settings: GroupSettings,
    commands: mpsc::Sender<Form>,
    shared: Arc<Shared>,
    engine: Arc<dyn Engine>,
    place: Option<Place>,
    generation: u64,
    numbering: Numbering,
    note_at: Option<Instant>,
}

/// This learner's membership of the current group: the roster, and the connections to the other members.
struct Place {
    collective: Box<dyn Collective>,
    roster: Roster,
}

/// The learners that may form a group, and the settings that must be equal in all learners.
pub(crate) struct GroupSettings {
    /// Index of this learner in the list of learners.
    pub(crate) own: usize,
    /// Endpoints of all learners, by index.
    pub(crate) endpoints: Vec<String>,
    /// Maximum time to wait for other members in a training step.
    pub(crate) timeout: Duration,
    /// Digest of network architecture and training settings; only learners with equal digests form a group.
    pub(crate) fingerprint: Digest,
    /// The library configured in `learner.collective`.
    pub(crate) kind: CollectiveKind,
    /// Weights versions on this learner's disk, with the stored version numbers.
    pub(crate) versions: VersionStore,
}

/// Returns true if the run has a group of learners. Also checks that this program can train in a group.
///
/// # Errors
/// [`ConfigError`] names `learner.group` if a group is configured and the program was built without libtorch.
pub(crate) fn is_configured(settings: &Settings) -> Result<bool, ConfigError> {
    if !settings.group.is_empty() && cfg!(not(feature = "torch")) {
        return Err(ConfigError::invalid(
            "learner.group",
            "learners sum gradients with Gloo, a part of libtorch, and this program was built without libtorch; build \
             with `cargo build --release --package learner --features torch`",
        ));
    }
    Ok(!settings.group.is_empty())
}

/// Returns the connections to the other learners, by index; `None` at index `own`.
fn peers(endpoints: &[String], own: usize) -> Result<Vec<Option<Peer>>, ConfigError> {
    let peer = |(index, endpoint): (usize, &String)| (index != own).then(|| Peer::new(endpoint)).transpose();
    let peers: Result<_, _> = endpoints.iter().enumerate().map(peer).collect();
    peers.map_err(|error| ConfigError::invalid("learner.group", error.to_string()))
}

/// Ends this process, in which NCCL does not return from an abort.
#[cfg(feature = "torch")]
fn lose_gpu() {
    service::device_loss::end(&"NCCL does not return from an abort");
}

/// Creates the engine for data transfer between this learner, which trains on `device`, and other group members.
/// `exchange` holds the addresses of members in groups that this learner coordinates. Must be called within the tokio
/// runtime that serves the exchange.
///
/// # Errors
/// [`ConfigError`] names `learner.collective` if the configured library cannot be used.
#[cfg(feature = "torch")]
pub(crate) fn engine(
    settings: &Settings,
    device: crate::device::Device,
    exchange: Exchange,
) -> Result<Arc<dyn Engine>, ConfigError> {
    let (own, timeout) = (settings.learner.index, settings.group_timeout);
    if settings.group.iter().any(|endpoint| endpoint.starts_with("https:")) {
        tracing::warn!("gradients are sent unencrypted between the learners of the group, on separate ports");
    }
    let gloo = Arc::new(engine::Gloo {
        host: host_of(&settings.group[own]).to_owned(),
        peers: peers(&settings.group, own)?,
        exchange,
        runtime: tokio::runtime::Handle::current(),
        timeout,
    });
    let kind = settings.learner.collective;
    let clock = Clock { now: std::time::Instant::now, pause: std::thread::sleep, give_up: lose_gpu };
    let reason = match (kind, device) {
        (CollectiveKind::Gloo, _) => return Ok(gloo),
        (_, crate::device::Device::Cuda(index)) => match Nccl::load(index, clock) {
            Ok(nccl) => return Ok(Arc::new(engine::WithNccl::new(nccl, gloo, kind, timeout))),
            Err(error) => error.to_string(),
        },
        (_, device) => {
            format!("NCCL needs a CUDA device, and this learner trains on {}", crate::device::device_name(device))
        }
    };
    if kind == CollectiveKind::Nccl {
        return Err(ConfigError::invalid("learner.collective", format!("`nccl` cannot be used: {reason}")));
    }
    tracing::info!("summing gradients with Gloo, since NCCL cannot be used: {reason}");
    Ok(gloo)
}

/// Always fails: a program without libtorch cannot train in a group, as checked by [`is_configured`].
#[cfg(not(feature = "torch"))]
pub(crate) fn engine(
    settings: &Settings,
    _: crate::device::Device,
    _: Exchange,
) -> Result<Arc<dyn Engine>, ConfigError> {
    is_configured(settings)?;
    Err(ConfigError::invalid("learner.group", "there is no group"))
}

/// Creates the training thread's handle to the group, and the driver task.
///
/// # Errors
/// The endpoint of a learner is invalid.
pub(crate) fn of_run(
    settings: &Settings,
    architecture: &Architecture,
    device: &Chosen,
    engine: Arc<dyn Engine>,
    questions: mpsc::Receiver<Question>,
    drain: Drain,
) -> anyhow::Result<(Group, impl Future<Output = ()> + Send + use<>)> {
    // All members compute a step from equal values with equal arithmetic, so that their states stay equal to the bit.
    let &Chosen { device, precision, .. } = device;
    let device = crate::device::device_name(device);
    // The kind of device: `cpu`, `cuda` or `mps`.
    let kind = device.split(':').next().unwrap_or_default();
    let training = TrainerSettings { precision, ..trainer_settings(&settings.learner) };
    let path = training_cpu::Path::widest();
    let library = settings.learner.collective;
    let (batch_size, learners) = (settings.learner.batch_size, settings.group.len());
    let published = settings.learner.publish_interval_steps;
    // Contributions have the length of the layout, which depends on the alignment.
    let common = format!(
        "{architecture:?} {training:?} {batch_size} {published} {kind} {path} {library:?} {learners} {ALIGNMENT}"
    );
    let settings = GroupSettings {
        own: settings.learner.index,
        endpoints: settings.group.clone(),
        timeout: settings.group_timeout,
        fingerprint: Digest::of(common.as_bytes()),
        kind: library,
        versions: VersionStore::of_learner(&settings.run.directory),
    };
    Group::new(settings, engine, questions, drain)
}

/// Returns the host name or address in an endpoint: `10.0.0.1` for `http://10.0.0.1:7002` and for
/// `https://learner@10.0.0.1:7002`.
#[cfg(feature = "torch")]
fn host_of(endpoint: &str) -> &str {
    let authority = endpoint.split_once("://").map_or(endpoint, |(_, authority)| authority).trim_end_matches('/');
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let host = address.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

impl Group {
    /// Creates the training thread's handle, and the driver task.
    ///
    /// # Errors
    /// An endpoint is invalid, or the stored version numbers cannot be read.
    pub(crate) fn new(
        settings: GroupSettings,
        engine: Arc<dyn Engine>,
        questions: mpsc::Receiver<Question>,
        drain: Drain,
    ) -> anyhow::Result<(Self, impl Future<Output = ()> + Send + use<>)> {
        let GroupSettings { own, timeout, kind, .. } = settings;
        let endpoints = settings.endpoints.clone();
        let (commands, receiver) = mpsc::channel(1);
        let shared = Arc::<Shared>::default();
        let (learners, peers) = (endpoints.len(), peers(&endpoints, own)?);
        // A learner that responds late gets the same time as in a training step.
        let membership = Membership::new(own, learners, ROLL, timeout).with_kind(kind);
        let driver = Driver::new(membership, endpoints, peers, Arc::clone(&engine), Arc::clone(&shared));
        let numbering = Numbering::new(learners, settings.versions.newest_number()?);
        let group = Self { settings, commands, shared, engine, place: None, generation: 0, numbering, note_at: None };
        Ok((group, driver.run(questions, receiver, drain)))
    }

    /// Leaves the current group, if any, and waits for a place in the next group. `steps` is the number of training
    /// steps behind this learner's state; members with fewer steps later load the state of the member with the most.
    /// Returns the roster of the new group, or `None` once `stop` returns true.
    ///
    /// # Errors
    /// Another learner rejects this learner because the networks or settings differ, or the configured library cannot
    /// be used.
    pub(crate) fn form(&mut self, steps: u64, stop: &dyn Fn() -> bool) -> anyhow::Result<Option<&Roster>> {
        loop {
            // When this learner leaves, the other members also form the next group.
            self.place = None;
            metrics::group(0, 0);
            let candidate = Candidate {
                index: self.settings.own,
                steps,
                generation: self.generation,
                weights_version: self.numbering.noted,
                fingerprint: self.settings.fingerprint,
                gpu: self.engine.gpu(),
            };
            self.reached(steps);
            let Some(Formed { roster, interrupt }) = service::waiting(|| self.seek(candidate, stop))? else {
                return Ok(None);
            };
            self.generation = roster.generation;
            self.numbering.joined(&roster);
            let rank = roster.rank_of(self.settings.own).unwrap_or_default();
            match self.engine.join(&roster, rank, &interrupt) {
                Ok(collective) => {
                    let members = roster.members.len();
                    tracing::info!(generation = roster.generation, "training in a group of {members}, rank {rank}");
                    metrics::group(members, rank);
                    self.place = Some(Place { collective, roster });
                    return Ok(self.place.as_ref().map(|place| &place.roster));
                }
                Err(error) => {
                    tracing::warn!("cannot form group {}: {error}", roster.generation);
                    self.engine.check().context("learner.collective")?;
                }
            }
        }
    }

    /// Asks the driver for a place in a group and waits for the place; `None` if `stop` returned true or the driver has
    /// stopped.
    fn seek(&self, candidate: Candidate, stop: &dyn Fn() -> bool) -> anyhow::Result<Option<Formed>> {
        let (formed, answer) = crossbeam_channel::bounded(1);
        if self.commands.blocking_send(Form { candidate, formed }).is_err() {
            return Ok(None);
        }
        while !stop() {
            match answer.recv_timeout(POLL) {
                Ok(formed) => return formed.map(Some).map_err(|reason| anyhow::anyhow!("learner.group: {reason}")),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Replaces each value by the sum over all members.
    ///
    /// # Errors
    /// A member was lost; the next group must be formed.
    pub(crate) fn all_reduce(&mut self, numbers: Numbers<'_>) -> Result<(), Error> {
        let timeout = self.settings.timeout;
        self.collective("all-reduce")?.all_reduce(numbers, timeout)
    }

    /// Replaces the bytes by the bytes of the member with rank `root`.
    ///
    /// # Errors
    /// A member was lost; the next group must be formed.
    pub(crate) fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let timeout = self.settings.timeout;
        self.collective("broadcast")?.broadcast(root, bytes, timeout)
    }

    /// Returns the kind of memory in which the group can sum without a copy.
    pub(crate) fn memory(&self) -> Memory {
        self.place.as_ref().map_or(Memory::Host, |place| place.collective.memory())
    }

    fn collective(&mut self, operation: &'static str) -> Result<&mut dyn Collective, Error> {
        match &mut self.place {
            Some(place) => Ok(place.collective.as_mut()),
            None => Err(Error { operation, reason: "there is no group".to_owned() }),
        }
    }

    /// Returns the rank of this learner in the group; `None` without a group.
    pub(crate) fn rank(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.collective.rank())
    }

    /// Returns true if this learner is the coordinator, which decides for all members when to publish weights, and
    /// determines the schedule progress.
    pub(crate) fn is_coordinator(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.roster.coordinator() == self.settings.own)
    }

    /// Returns true if the members should dissolve this group and form the next.
    pub(crate) fn wants_reform(&self) -> bool {
        self.shared.wants_reform.load(Ordering::Relaxed)
    }

    /// Records the training steps of the current state, which other learners can query.
    pub(crate) fn reached(&self, steps: u64) {
        self.shared.steps.store(steps, Ordering::Relaxed);
    }

    /// Returns true if the next version number is stored on this learner's disk, after trying to store it. The group
    /// publishes under a number only if all members have stored it. No member then uses the number again, even after a
    /// crash.
    pub(crate) fn is_ready_to_publish(&mut self) -> bool {
        let Some(next) = self.numbering.next() else { return false };
        if next <= self.numbering.noted {
            return true;
        }
        if self.note_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        match self.settings.versions.note(WeightsVersion(next)) {
            Ok(()) => self.numbering.note(next),
            Err(error) => {
                tracing::error!(
                    "cannot store the next version number, so no learner of the group publishes weights: {error:#}"
                );
                self.note_at = Some(Instant::now() + NOTE_INTERVAL);
                return false;
            }
        }
        true
    }

    /// Assigns and returns the next version number, under which all members publish; `None` if no number is left.
    pub(crate) fn give_number(&mut self) -> Option<WeightsVersion> {
        self.numbering.give().map(WeightsVersion)
    }
}

#[cfg(test)]
#[cfg(feature = "torch")]
mod tests {
    use proto::learners::Exchange;
    use run_file::learner::{CollectiveKind, Config};

    use super::{engine, host_of};
    use crate::device::Device;

    #[tokio::test]
    async fn a_configured_nccl_that_cannot_be_used_is_an_error_with_the_key_and_auto_takes_gloo() {
        let of = |collective| {
            let mut config = Config::default();
            config.learner.group = "http://127.0.0.1:1,http://127.0.0.1:2".to_owned();
            config.learner.collective = collective;
            engine(&config.settings().unwrap(), Device::Cpu, Exchange::default()).map(|engine| engine.gpu())
        };
        for kind in [CollectiveKind::Auto, CollectiveKind::Gloo] {
            assert_eq!(of(kind).unwrap(), None);
        }
        let error = of(CollectiveKind::Nccl).unwrap_err().to_string();
        assert!(error.contains("learner.collective") && error.contains("this learner trains on cpu"), "{error}");
    }

    #[test]
    fn the_host_of_an_endpoint_is_where_the_others_reach_it() {
        for (endpoint, host) in [
            ("http://10.0.0.1:7002", "10.0.0.1"),
            ("https://learner-1.learners:7002/", "learner-1.learners"),
            ("https://learner@10.0.0.1:7002", "10.0.0.1"),
            ("http://[::1]:7002", "::1"),
            ("https://learner", "learner"),
        ] {
            assert_eq!(host_of(endpoint), host, "{endpoint}");
        }
    }
}
