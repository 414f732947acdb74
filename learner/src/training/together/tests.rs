//! Tests of learner groups in one process, with threads in place of Gloo and with real network connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use collective::nccl::{Clock, Nccl};
use proto::learners::{Exchange, LearnersService};
use proto::weights::WeightsService;
use run_file::learner::{CollectiveKind, Config, LearnerSection};
use service::config::RunSection;
use service::{Drain, Health};
use transport::security::Security;
use version_store::VersionStore;
use weights::{Digest, Manifest};

use super::*;
use crate::group::engine::threads::Threads;
use crate::group::engine::{Engine, WithNccl};
use crate::group::{Group, GroupSettings};
use crate::priorities::Priorities;
use crate::training::tests::{checkpoints, not_finite, prepared, start};

const DEADLINE: Duration = Duration::from_secs(60);

/// Settings of learners that know the addresses of all other learners.
struct Learners {
    runtime: tokio::runtime::Runtime,
    engine: Arc<Threads>,
    /// Training steps between publications; 0 publishes by time.
    publish_interval_steps: u64,
    /// CUDA device of each learner, in a fake of NCCL.
    devices: Vec<Option<usize>>,
    endpoints: Vec<String>,
    listeners: Vec<Option<std::net::TcpListener>>,
}

/// A running learner on a separate thread.
struct Running {
    drain: Drain,
    stop: Arc<AtomicBool>,
    /// Training step and digest of each published version.
    versions: Arc<Mutex<BTreeMap<u64, (u64, Digest)>>>,
    folder: tempfile::TempDir,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Learners {
    fn new(count: usize) -> Self {
        let listeners: Vec<_> = (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let endpoints = listeners.iter().map(|listener| format!("http://{}", listener.local_addr().unwrap())).collect();
        let listeners = listeners.into_iter().map(Some).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (engine, devices) = (Arc::default(), vec![None; count]);
        Self { runtime, engine, publish_interval_steps: 0, devices, endpoints, listeners }
    }

    /// Returns the communication libraries of a learner.
    fn engine_of(&self, own: usize) -> Arc<dyn Engine> {
        let threads = Arc::new(Arc::clone(&self.engine));
        let clock = Clock { now: Instant::now, pause: std::thread::sleep, give_up: || panic!("NCCL hangs") };
        match self.devices[own] {
            None => threads,
            Some(device) => {
                let nccl = Nccl::found_by(fake_nccl::lookup, device, clock).unwrap();
                Arc::new(WithNccl::new(nccl, threads, CollectiveKind::Auto, DEADLINE))
            }
        }
    }

    /// Starts a learner with a non-finite loss in every `nth` batch; 0 for none.
    fn start(&mut self, own: usize, fingerprint: &str, nth: usize) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let (drain, stop, versions) =
            (Drain::new(), Arc::<AtomicBool>::default(), Arc::<Mutex<BTreeMap<_, _>>>::default());
        let _runtime = self.runtime.enter();
        let listener = self.listeners[own].take().unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let ((weights, publisher), (learners, questions)) =
            (WeightsService::new(1), LearnersService::new(Exchange::default()));
        let serving = proto::weights::serve(weights, Some(learners), Security::default(), listener, drain.token());
        self.runtime.spawn(serving);
        let settings = GroupSettings {
            own,
            endpoints: self.endpoints.clone(),
            timeout: DEADLINE,
            fingerprint: Digest::of(fingerprint.as_bytes()),
            kind: CollectiveKind::Auto,
            versions: VersionStore::of_learner(folder.path()),
        };
        let (group, driver) = Group::new(settings, self.engine_of(own), questions, drain.clone()).unwrap();
        self.runtime.spawn(driver);

        let publish_interval_steps = self.publish_interval_steps;
        let learner =
            LearnerSection { publish_interval_seconds: 0.05, publish_interval_steps, ..LearnerSection::default() };
        let run = RunSection { directory: folder.path().into(), ..RunSection::default() };
        let settings = Config { run, learner, ..Config::default() }.settings().unwrap();
        let (stopped, published) = (Arc::clone(&stop), Arc::clone(&versions));
        let directory = folder.path().to_owned();
        let is_on_device = self.devices[own].is_some();
        let thread = std::thread::spawn(move || {
            let (sender, batches) = crossbeam_channel::bounded(1);
            std::thread::spawn(move || {
                let batch = |number| if nth > 0 && number % nth == 0 { not_finite() } else { prepared() };
                for number in 1.. {
                    if sender.send(Some(batch(number))).is_err() {
                        return;
                    }
                }
            });
            let _publisher = publisher;
            let publish = move |manifest: Manifest, _| {
                let Manifest { version, training_step, digest, .. } = manifest;
                published.lock().unwrap().insert(version.0, (training_step, digest));
            };
            let start = if is_on_device { on_device(&directory) } else { start(&directory) };
            let training = Training::new(settings, start, checkpoints(&directory), Priorities::new().0);
            training.run(
                &mut Batches::receiving(batches),
                &|| stopped.load(Ordering::Relaxed),
                Some(group),
                &Health::default(),
                publish,
            )
        });
        Running { drain, stop, versions, folder, thread }
    }
}

impl Running {
    fn newest(&self) -> u64 {
        self.versions.lock().unwrap().last_key_value().map_or(0, |(&version, _)| version)
    }

    /// Waits until both learners have published `more` additional versions with equal numbers.
    fn publishes_with(&self, other: &Self, more: u64) {
        let (begun, from) = (Instant::now(), self.newest().max(other.newest()));
        let common = || {
            let [a, b] = [self, other].map(|learner| learner.versions.lock().unwrap().clone());
            a.iter().filter(|(version, _)| **version > from && b.contains_key(version)).count() as u64
        };
        while common() < more {
            assert!(begun.elapsed() < DEADLINE, "{:?} and {:?}", self.versions, other.versions);
            std::thread::yield_now();
        }
    }

    /// Stops the learner, and returns the published versions.
    fn end(self) -> BTreeMap<u64, (u64, Digest)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().unwrap();
        self.drain.start();
        if let Some(found) = checkpoints(self.folder.path()).newest().unwrap() {
            let progress = found.checkpoint.progress;
            let passes = progress.positions as f64 / 8.0;
            assert_eq!(progress.window_passes, passes, "every position is an eighth of the window");
        }
        drop(self.folder);
        Arc::into_inner(self.versions).map_or_else(BTreeMap::new, |versions| versions.into_inner().unwrap())
    }
}

/// Starts a learner with libtorch, which leaves contributions on the training device, here the CPU.
#[cfg(feature = "torch")]
fn on_device(folder: &std::path::Path) -> crate::training::Start {
    let crate::training::Start { architecture, progress, .. } = start(folder);
    let settings =
        training::TrainerSettings { tower: training::TrainingKernel::Libtorch, ..training::TrainerSettings::default() };
    let network = network_torch::Network::to_train(&architecture, &settings, network_torch::Device::Cpu, 1).unwrap();
    let trainer = Box::new(network_torch::Trainer::new(network, settings).unwrap());
    crate::training::Start { trainer, architecture, progress }
}

#[cfg(not(feature = "torch"))]
fn on_device(_: &std::path::Path) -> crate::training::Start {
    unreachable!("no learner without libtorch has a device")
}

/// Checks that all learners published the same weights for each version, and that training steps increase with the
/// version.
fn assert_agree(all: &[BTreeMap<u64, (u64, Digest)>]) {
    for (version, published) in all.iter().flatten() {
        assert!(
            all.iter().all(|other| other.get(version).is_none_or(|other| other == published)),
            "{version}: {all:?}"
        );
    }
    for versions in all {
        assert!(versions.values().map(|(step, _)| step).is_sorted(), "{versions:?}");
    }
}

#[test]
fn members_publish_the_same_versions_go_on_without_one_that_ends_and_take_in_another() {
    let mut learners = Learners::new(3);
    let first = learners.start(0, "network", 0);
    let second = learners.start(1, "network", 3);
    first.publishes_with(&second, 3);
    let of_first = first.end();
    let third = learners.start(2, "network", 0);
    third.publishes_with(&second, 3);
    let all = [of_first, second.end(), third.end()];
    assert_agree(&all);
    let steps = |versions: &BTreeMap<u64, (u64, Digest)>| versions.last_key_value().map(|(_, &(step, _))| step);
    assert!(steps(&all[2]) > steps(&all[0]), "{all:?}");
}

#[test]
fn members_publish_by_steps_at_multiples_only_also_after_refused_steps() {
    let mut learners = Learners::new(2);
    learners.publish_interval_steps = 5;
    let first = learners.start(0, "network", 0);
    let second = learners.start(1, "network", 3);
    first.publishes_with(&second, 3);
    let all = [first.end(), second.end()];
    assert_agree(&all);
    for versions in all {
        let steps: Vec<u64> = versions.values().map(|&(step, _)| step).collect();
        assert!(steps.iter().all(|step| step % 5 == 0), "{steps:?}");
    }
}

#[test]
fn a_learner_of_another_network_is_refused_with_the_reason() {
    let mut learners = Learners::new(2);
    let first = learners.start(0, "network", 0);
    first.publishes_with(&first, 1);
    let Running { thread, drain, .. } = learners.start(1, "another network", 0);
    let error = thread.join().unwrap().unwrap_err().to_string();
    drain.start();
    assert!(error.contains("learner.group: learner 0 rejects this learner") && error.contains("run file"), "{error}");
    first.publishes_with(&first, 1);
    first.end();
}

/// The learners use a fake of NCCL on these devices, which no other test uses.
#[cfg(feature = "torch")]
#[test]
fn learners_on_gpus_of_their_own_train_over_nccl_and_go_on_when_one_leaves_unnoticed_or_shares_a_gpu() {
    let mut learners = Learners::new(3);
    learners.devices = vec![Some(10), Some(11), Some(10)];
    // Members of an NCCL group detect the loss of this member only by a status query.
    fake_nccl::set_fault(11, Some(fake_nccl::Fault::LeavesSilently));
    let first = learners.start(0, "network", 0);
    let second = learners.start(1, "network", 0);
    first.publishes_with(&second, 3);
    let [communicators, aborted] = {
        let alive = [10, 11].map(fake_nccl::alive);
        [alive.iter().map(|of| of.communicators).sum::<usize>(), alive[1].aborted]
    };
    assert!(communicators >= 1 || aborted > 0, "no group of NCCL was formed");
    let of_second = second.end();
    assert_eq!(fake_nccl::alive(11).communicators, 0);
    let newest = first.newest();
    first.publishes_with(&first, newest.min(2) + 1);
    // The third learner shares a GPU with the first, so the group uses another library than NCCL.
    let third = learners.start(2, "network", 0);
    third.publishes_with(&first, 3);
    assert_eq!(fake_nccl::alive(10).communicators, 0, "learners on one GPU use NCCL");
    assert_agree(&[first.end(), of_second, third.end()]);
}
