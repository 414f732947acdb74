//! The learner process: from the configuration to the final checkpoint.

use std::fs::File;
use std::iter;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use crossbeam_channel::Sender;
use game::Game;
use games::{AnyGame, GameKind};
use proto::learners::{Exchange, LearnersService};
use proto::replay::NewestWeights;
use proto::weights::{Publisher, WeightsService};
use run_file::learner::trainer_settings;
use run_file::learner::{Config, LearnerSection, Settings};
use service::ConfigError;
use service::directory::DirectoryError;
use training::NetworkSize;
use training::checkpoint::{Files, State};
use training::initial_weights::begin_with;
use training::{MomentFormat, Trainer, TrainerSettings, growth};
use transport::security::{Security, use_credentials};
use transport::servers::{Endpoints, Servers};
use version_store::checkpoint::{Checkpoint, Checkpoints};
use version_store::{Model, ModelFolder};
use weights::{Architecture, Manifest};

use crate::backend::{Backend, Chosen};
use crate::device::Device;
use crate::held_out::{Drawn, HeldOut, Split};
use crate::pipeline::{BatchSettings, Reports, Source};
use crate::priorities::Priorities;
use crate::records::Records;
use crate::training::{STALLED_AFTER, Start, Training};
use crate::turns::Turns;
use crate::validation::{self, Validation, ValidationSettings, Versions};
use crate::{device, group, memory, metrics, pipeline, seed};

/// Subdirectory of the run directory for checkpoints. The learner also locks this directory.
const CHECKPOINTS: &str = "checkpoints";

/// Maximum time for weights requests in progress to complete after training has stopped.
const SERVE_LAST: Duration = Duration::from_secs(2);

/// Runs the learner until the process drains, then writes a final checkpoint.
///
/// # Errors
/// The configuration is out of range, the run directory is not writable or is in use by another learner, the
/// checkpoints are damaged, or a port is in use.
pub(crate) fn run(config: Config, context: service::Context) -> service::Body {
    Box::pin(async move {
        let settings = config.settings()?;
        metrics::begin();
        let security = Security::open(&config.security, context.listen)?;
        use_credentials(&config.security)?;
        let _lock = take(&settings.run.directory)?;
        train(settings, security, context).await
    })
}

/// Locks the checkpoint directory of a run, so that only one learner uses it. Two learners would delete each other's
/// checkpoints, and publish different weights under the same version number.
fn take(run: &Path) -> Result<File, DirectoryError> {
    // The run directory itself is locked by `zerofleet train`.
    let directory = run.join(CHECKPOINTS);
    service::directory::writable(&directory)?;
    service::directory::lock(&directory)
}

async fn train(settings: Settings, security: Security, context: service::Context) -> anyhow::Result<()> {
    let games: Vec<AnyGame> = settings.games().map(GameKind::rules).collect();
    let listener = service::net::bind(context.listen).await?;
    let (service, publisher) = WeightsService::new(settings.learner.versions_kept);
    let exchange = Exchange::default();
    let service_of_group = || LearnersService::new(exchange.clone());
    let (learners, questions) = group::is_configured(&settings)?.then(service_of_group).unzip();
    let serving = proto::weights::serve(service, learners, security, listener, context.drain.token());
    let server = tokio::spawn(serving);

    let (priorities, updates) = Priorities::new();
    let updates = tokio::spawn(updates);
    let beats = context.health.heartbeat("train", STALLED_AFTER);
    // The device selection must be the first use of libtorch.
    let architecture = settings.architecture();
    let choose = {
        let (settings, architecture) = (settings.clone(), architecture.clone());
        move || device::choose(&settings, &architecture)
    };
    let device = tokio::task::spawn_blocking(choose).await.context("join the device selection")??;
    let threads = prepare_threads(settings.learner.prepare_threads, device.device, service::machine::cores());
    tracing::info!("preparing batches (threads: {threads})");
    let model = architecture.model;
    let targets = settings.targets_of(model);
    metrics::support(model.support());
    metrics::unroll_steps(targets.unroll_steps());
    let importance_exponent = settings.learner.importance_exponent;
    let of_batches =
        BatchSettings { targets, policy_temperature: settings.policy_temperature(), importance_exponent, model };
    let checkpoints = Checkpoints::new(settings.run.directory.join(CHECKPOINTS), settings.learner.checkpoints_kept)
        .with_spread(settings.learner.checkpoints_spread);
    let seed = seed::at_step(settings.run.seed, checkpoints.newest_step()?);
    let of_learner = seed.wrapping_add(settings.learner.index as u64);
    let preparers = pipeline::prepare(&games, of_batches, &priorities, of_learner, threads)?;
    let reports = tokio::spawn(pipeline::report(preparers.rejected));
    let (drain, newest) = (context.drain.clone(), NewestWeights::default());
    let stop = drain.token();
    let validations = {
        let of_rows = ValidationSettings {
            targets,
            policy_temperature: settings.policy_temperature(),
            positions_max: settings.learner.validation_positions,
            seed,
            device: device.device,
            boards: games.len(),
        };
        let stop = stop.clone();
        validate(&settings, &games, of_rows, &preparers.reports, &priorities, move || stop.is_cancelled())?
    };
    let held_out = validations.iter().map(|validation| validation.samples.clone()).collect();
    let ends = validations.into_iter().map(|Validation { versions, thread, .. }| (versions, thread));
    let (versions, validate_threads): (Vec<Versions>, Vec<_>) = ends.unzip();
    let (drawn, mut batches, prepare_threads) = (preparers.drawn, preparers.batches, preparers.threads);
    let draw = {
        let steps = targets.segment_steps(games[0].spec());
        let sources = sources(&settings, held_out, seed, steps);
        let turns = Turns::new(settings.board_weights.clone());
        tokio::spawn(pipeline::draw(sources, turns, newest.clone(), drawn, drain.clone()))
    };

    let of_group = |questions| {
        // NCCL is loaded together with the selected device.
        let engine = group::engine(&settings, device.device, exchange.clone())?;
        group::of_run(&settings, &architecture, &device, engine, questions, drain.clone())
    };
    let (group, membership) = questions.map(of_group).transpose()?.unzip();
    let membership = membership.map(tokio::spawn);

    let readiness = context.readiness.clone();
    let publish = move |manifest, bytes| publish(&publisher, &newest, &versions, manifest, bytes);
    // Training runs on a single thread throughout, because tensors stay on one thread.
    beats.beat();
    let health = context.health.clone();
    let work = move || {
        let _beats = beats.of_thread();
        let start = begin(&settings, &device, architecture, &checkpoints)?;
        readiness.ready();
        let training = Training::new(settings, start, checkpoints, priorities);
        training.run(&mut batches, &|| stop.is_cancelled(), group, &health, publish)
    };
    let training = std::thread::Builder::new().name("train".into()).spawn(work).context("start the training thread")?;
    // The training thread stops on drain or on an error. In both cases, the other tasks must stop as well.
    let result = tokio::task::spawn_blocking(move || training.join()).await.context("join the training thread")?;
    drain.start();
    draw.await.context("join the sampling task")?;
    let join = move || prepare_threads.into_iter().chain(validate_threads).for_each(|thread| drop(thread.join()));
    tokio::task::spawn_blocking(join).await.context("join the preparing threads")?;
    if let Some(membership) = membership {
        membership.await.context("join the group membership task")?;
    }
    reports.abort();
    updates.abort();
    // A client that watches the health of this process must not delay the exit.
    if let Ok(server) = tokio::time::timeout(SERVE_LAST, server).await {
        server.context("join the server")?.context("serve weights")?;
    }
    result.unwrap_or_else(|_| anyhow::bail!("the training thread panicked"))
}

/// Starts a validation thread for each board of the run; none if no trajectories are held out. The threads stop
/// evaluating once `stop` returns true.
fn validate(
    settings: &Settings,
    games: &[AnyGame],
    of_rows: ValidationSettings,
    reports: &Reports,
    priorities: &Priorities,
    stop: impl Fn() -> bool + Clone + Send + 'static,
) -> anyhow::Result<Vec<Validation>> {
    if settings.learner.validation_share == 0.0 {
        return Ok(Vec::new());
    }
    let start = |(kind, game): (&GameKind, &AnyGame)| {
        let architecture = settings.network.architecture_of(game);
        let records = Records::of_validation(settings, kind);
        validation::start(game, &architecture, of_rows, records, reports.clone(), priorities.clone(), stop.clone())
    };
    settings.games().zip(games).map(start).collect()
}

/// Returns the batch source for each board, sorted by board index. Samples have segments of `1 + steps` steps.
/// `held_out` has one sender for validation samples per board, or is empty without validation.
fn sources(settings: &Settings, held_out: Vec<Sender<Vec<Drawn>>>, seed: u64, steps: usize) -> Vec<Source> {
    let replay = iter::once(&settings.replay).chain(settings.boards.iter().map(|board| &board.replay));
    let held_out = held_out.into_iter().map(Some).chain(iter::repeat_with(|| None));
    let LearnerSection { validation_share, batch_size, .. } = settings.learner;
    let source = |(board, ((game, replay), held_out)): (usize, ((&GameKind, &Endpoints), _))| {
        // Different boards select servers with different random numbers. The first board keeps the seed, so that it
        // equals the seed of a run with a single board.
        let seed = seed.wrapping_add((board as u64) << 32);
        Source {
            servers: Servers::resolved(replay),
            settings: pipeline::draws(settings, seed, game.to_string(), steps),
            split: Split::new(HeldOut::share(validation_share), batch_size, held_out),
        }
    };
    settings.games().zip(replay).zip(held_out).enumerate().map(source).collect()
}

/// Serves a version to subscribers, sends the version number to the replay servers, and queues the version for
/// validation. If serving fails, the number is not sent: actors could not load the version, and replay servers would
/// still count trajectories as stale by that number.
fn publish(publisher: &Publisher, newest: &NewestWeights, validation: &[Versions], manifest: Manifest, bytes: Bytes) {
    let version = manifest.version;
    for validation in validation {
        validation.offer(manifest.clone(), bytes.clone());
    }
    match publisher.publish(manifest, bytes) {
        Ok(()) => newest.set(version),
        Err(error) => tracing::error!("cannot serve weights {version}: {error}"),
    }
}

/// Maximum default number of batch preparation threads. One thread prepares about a million Connect Four positions per
/// second (`zerofleet bench phases --full-replay`). Games with more planes and longer trajectories are slower.
const PREPARE_THREADS: usize = 4;

/// Returns the number of batch preparation threads: `configured`, or for 0 a number derived from device and cores.
fn prepare_threads(configured: usize, device: Device, cores: usize) -> usize {
    if configured > 0 {
        return configured;
    }
    if device == Device::Cpu {
        return 1;
    }
    (cores / 4).clamp(1, PREPARE_THREADS)
}

/// Restores the training state of the latest checkpoint, or starts a new run.
fn begin(
    settings: &Settings,
    device: &Chosen,
    architecture: Architecture,
    checkpoints: &Checkpoints,
) -> anyhow::Result<Start> {
    if let Some(step) = settings.simulated_step {
        tracing::warn!(
            step_us = step.as_micros(),
            "SIMULATED TRAINING: steps compute nothing and the weights never change (learner.simulated_step_us)"
        );
    }
    let &Chosen { device, precision, is_adaptive, ref description } = device;
    tracing::info!("{}", NetworkSize::of(&architecture)?);
    tracing::info!("training on {description}; seed {}", settings.run.seed);
    let device_name = device::device_name(device);
    // Each learner in a group would measure a different batch and select different layers, so states would diverge.
    let is_adaptive = is_adaptive && settings.group.is_empty();
    let trainer_settings = TrainerSettings { precision, is_adaptive, ..trainer_settings(&settings.learner) };
    let found = checkpoints.newest()?;
    let unroll_steps = settings.targets_of(architecture.model).unroll_steps();
    let Backend { mut trainer, description } =
        Backend::new(&architecture, trainer_settings.clone(), device, settings.learner.threads, settings.run.seed)?;
    tracing::info!("computing training steps with {description}");
    metrics::device(device_name, precision.to_string(), description);
    for (number, board) in (1..).zip(&settings.boards) {
        let index = trainer
            .add_board(&board.architecture)
            .with_context(|| format!("add training data for the board {}", board.game))?;
        anyhow::ensure!(index == number, "the trainer assigned index {index} to {}, expected {number}", board.game);
        tracing::info!("also training on {}", board.game);
    }
    let memory = trainer.memory(settings.learner.batch_size, unroll_steps);
    tracing::info!("training memory: {memory}");
    metrics::memory(&memory);
    // The check is for host memory only. An accelerator has separate memory, and libtorch divides batches that do not
    // fit.
    if device == Device::Cpu && settings.simulated_step.is_none() {
        memory::check(&memory, service::machine::memory_bytes(), &settings.learner)?;
    }
    let Some(found) = found else {
        let initial_weights = &settings.learner.initial_weights;
        if !initial_weights.is_empty() {
            take_weights(Path::new(initial_weights), &trainer_settings, &architecture, &mut *trainer)
                .map_err(|error| ConfigError::invalid("learner.initial_weights", service::chain(&error)))?;
        }
        return Ok(Start { trainer, architecture, progress: None });
    };
    for damaged in &found.damaged {
        tracing::error!("skipping a damaged checkpoint: {damaged}");
    }
    let Checkpoint { progress, mut files } = found.checkpoint;
    if progress.architecture != architecture {
        anyhow::ensure!(
            settings.learner.grow,
            "the checkpoint holds {:?}, the run file has {architecture:?}; restore [network] and run.game, choose \
             another run, or set learner.grow to continue with more blocks or channels",
            progress.architecture
        );
        files = grown(&trainer_settings, &progress.architecture, &architecture, &files, settings.run.seed)
            .context("grow the network of the checkpoint to the run file (learner.grow)")?;
        tracing::info!(
            "continuing in a larger network than the network of the checkpoint: {}",
            NetworkSize::of(&progress.architecture)?
        );
    }
    trainer.load(&files).context("restore the checkpoint")?;
    let (step, learning_rate) = (trainer.step_count(), trainer.learning_rate());
    tracing::info!("continuing at training step {step}, learning rate {learning_rate}");
    Ok(Start { trainer, architecture, progress: Some(progress) })
}

/// Replaces tensors of a new trainer by the weights at `path` (`learner.initial_weights`).
///
/// # Errors
/// The weights cannot be read, or do not suit the network.
fn take_weights(
    path: &Path,
    settings: &TrainerSettings,
    architecture: &Architecture,
    trainer: &mut dyn Trainer,
) -> anyhow::Result<()> {
    let Model { manifest, bytes, .. } = ModelFolder::read(path)?;
    let adopted = begin_with(trainer, settings, [&manifest.architecture, architecture], &bytes)?;
    let (version, game) = (manifest.version, &manifest.architecture.game);
    tracing::info!("beginning with weights {version} of {game} in {}; {adopted}", path.display());
    Ok(())
}

/// Returns the files of a checkpoint after growing the network to a larger one. Every backend can read the files.
fn grown(
    settings: &TrainerSettings,
    from: &Architecture,
    to: &Architecture,
    files: &Files,
    seed: u64,
) -> Result<Files, training::Error> {
    let [old, new] = [from, to].map(|architecture| settings.layers(architecture).map(|layers| layers.layout()));
    // Checkpoint files always store moments in float32.
    let state = State::read(&old?, settings.optimiser, MomentFormat::F32, files)?;
    growth::grow(from, to, &state, seed)?.files(&new?, settings.optimiser)
}

#[cfg(test)]
mod tests {
    use run_file::learner::{ModelKind, NetworkSection};
    use service::Health;
    use version_store::checkpoint::Progress;
    use weights::WeightsVersion;

    use super::*;
    use crate::pipeline::Batches;

    #[test]
    fn a_second_learner_of_a_run_directory_is_refused_with_its_name_until_the_first_ends() {
        let run = tempfile::tempdir().unwrap();
        let first = take(run.path()).unwrap();
        let error = take(run.path()).unwrap_err().to_string();
        let directory = run.path().join(CHECKPOINTS);
        assert!(
            error.starts_with("another process uses") && error.contains(&directory.display().to_string()),
            "{error}"
        );
        drop(first);
        take(run.path()).unwrap();
    }

    /// Starts a run of `game` in `folder` with changed settings, or resumes the run from the latest checkpoint.
    fn run_of(game: &str, folder: &Path, set: impl FnOnce(&mut Config)) -> anyhow::Result<(Settings, Start)> {
        let mut config = Config { network: network(1, 8), ..Config::default() };
        (config.run.game, config.run.directory) = (game.to_owned(), folder.to_owned());
        set(&mut config);
        let settings = config.settings().unwrap();
        let (device, precision, description) = (Device::Cpu, training::Precision::F32, "a test".to_owned());
        let device = Chosen { device, precision, is_adaptive: false, description };
        let start = begin(&settings, &device, settings.architecture(), &checkpoints_of(folder))?;
        Ok((settings, start))
    }

    fn network(blocks: usize, channels: usize) -> NetworkSection {
        NetworkSection { blocks, channels, ..NetworkSection::default() }
    }

    fn checkpoints_of(run: &Path) -> Checkpoints {
        Checkpoints::new(run.join(CHECKPOINTS), 3)
    }

    #[test]
    fn a_checkpoint_goes_on_in_a_larger_network_only_if_the_run_may_grow() {
        let folder = tempfile::tempdir().unwrap();
        let begun = |network: NetworkSection, grow| {
            let set = |config: &mut Config| (config.network, config.learner.grow) = (network, grow);
            run_of("tic_tac_toe", folder.path(), set).map(|(_, start)| start)
        };
        let checkpoints = checkpoints_of(folder.path());
        let Start { trainer, architecture, .. } = begun(network(1, 8), false).unwrap();
        let files = trainer.files().unwrap();
        let (training_step, positions, window_passes) = (5, 9, 0.25);
        let progress = Progress { training_step, positions, window_passes, elapsed_seconds: 1.0, architecture };
        checkpoints.write(&Checkpoint { progress, files: files.clone() }).unwrap();

        let refused = |network, grow| format!("{:#}", begun(network, grow).map(drop).unwrap_err());
        assert!(refused(network(2, 8), false).contains("learner.grow"));
        assert!(refused(network(1, 7), true).contains("channels 8 cannot become 7"));
        let grown = begun(network(3, 12), true).unwrap();
        assert_eq!((grown.architecture.blocks, grown.architecture.channels), (3, 12));
        assert_eq!(grown.progress.unwrap().training_step, 5);
        let same = begun(network(1, 8), true).unwrap();
        assert_eq!(same.trainer.files().unwrap(), files);
    }

    /// Writes the weights of a new network for `game` into a model folder, and returns the weights.
    fn given(game: &str, folder: &Path) -> Vec<u8> {
        let (_, Start { trainer, architecture, .. }) = run_of(game, folder, |config| config.run.seed = 7).unwrap();
        let bytes = trainer.published().unwrap();
        let manifest = Manifest::of(&bytes, WeightsVersion(9), 90, architecture);
        ModelFolder::write(&folder.join("model"), &manifest, &bytes).unwrap();
        bytes
    }

    /// Sets the weights that [`given`] wrote into `folder` as the initial weights.
    fn begin_in(folder: &Path, config: &mut Config) {
        config.learner.initial_weights = folder.join("model").display().to_string();
    }

    #[test]
    fn the_first_version_of_a_run_has_the_given_weights_and_a_checkpoint_comes_before_them() {
        let folder = tempfile::tempdir().unwrap();
        let weights = given("tic_tac_toe", folder.path());
        let (settings, start) = run_of("tic_tac_toe", folder.path(), |config| begin_in(folder.path(), config)).unwrap();
        assert_eq!(start.progress, None);
        let mut published = Vec::new();
        let publish = |manifest: Manifest, bytes| published.push((manifest.version.0, manifest.training_step, bytes));
        let (checkpoints, priorities) = (checkpoints_of(folder.path()), Priorities::new().0);
        let training = Training::new(settings, start, checkpoints.clone(), priorities);
        training.run(&mut Batches::of([]), &|| false, None, &Health::default(), publish).unwrap();
        assert_eq!(published, [(1, 0, Bytes::from(weights))]);

        // Another model would be refused, but the run has a checkpoint.
        let found = checkpoints.newest().unwrap().unwrap().checkpoint;
        let missing = |config: &mut Config| config.learner.initial_weights = "missing".to_owned();
        let (_, resumed) = run_of("tic_tac_toe", folder.path(), missing).unwrap();
        assert_eq!((resumed.progress, resumed.trainer.files().unwrap()), (Some(found.progress), found.files));
    }

    #[test]
    fn weights_of_another_board_are_taken_in_part_and_unsuitable_ones_are_refused_by_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let weights = given("hex-5", folder.path());
        let begun = |game: &str, set: &dyn Fn(&mut Config)| {
            let run = tempfile::tempdir().unwrap();
            run_of(game, run.path(), |config| {
                begin_in(folder.path(), config);
                set(config);
            })
            .map(|(_, start)| start.trainer.published().unwrap())
            .map_err(|error| service::chain(&error))
        };
        let larger = begun("hex-6", &|_| {}).unwrap();
        let new = run_of("hex-6", &folder.path().join("new"), |_| {}).unwrap().1.trainer.published().unwrap();
        let numbers = |game: &str, bytes: &[u8], name: &str| {
            let rules = game.parse::<GameKind>().unwrap().rules();
            let layout = training::ModelLayers::new(&network(1, 8).architecture_of(&rules)).unwrap().layout();
            training::checkpoint::read(&layout, bytes).unwrap().parameters[layout.parameter(name)].to_vec()
        };
        let tower = "block.0.first.convolution.weight";
        assert_eq!(numbers("hex-6", &larger, tower), numbers("hex-5", &weights, tower));
        let head = "policy.output.weight";
        assert_eq!(numbers("hex-6", &larger, head), numbers("hex-6", &new, head));

        let refused = |set: &dyn Fn(&mut Config)| begun("hex-5", set).unwrap_err();
        for (error, reason) in [
            (refused(&|config| config.network.channels = 16), "1 blocks of 8 channels and in 1 blocks of 16 channels"),
            (refused(&|config| config.network.model = ModelKind::Muzero), "network.model is muzero"),
            (refused(&|config| config.learner.initial_weights = "none".to_owned()), "none is no model"),
        ] {
            assert!(error.starts_with("learner.initial_weights: ") && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_supervisor_of_a_run_and_its_learner_lock_different_files() {
        let run = tempfile::tempdir().unwrap();
        let _supervisor = service::directory::lock(run.path()).unwrap();
        take(run.path()).unwrap();
    }

    #[cfg(feature = "torch")]
    #[test]
    fn a_learner_with_an_accelerator_prepares_batches_with_several_threads_where_there_are_cores() {
        assert_eq!([1, 16, 128].map(|cores| prepare_threads(0, Device::Cpu, cores)), [1, 1, 1]);
        assert_eq!([1, 2, 8, 16, 128].map(|cores| prepare_threads(0, Device::Cuda(0), cores)), [1, 1, 2, 4, 4]);
        assert_eq!(prepare_threads(3, Device::Cpu, 1), 3);
    }
}
