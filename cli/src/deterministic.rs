//! `zerofleet train --deterministic`: plays, stores and trains in one process. The order of events does not depend on
//! the clock or the number of threads: the same run file and seed give bit-identical weights.
//!
//! For each version, every game plays the same number of complete episodes with the current weights. The trajectories
//! enter the replay table, the trainer computes the training steps that the ratio of samples to inserts allows, and the
//! next version is published. A version depends only on the previous checkpoint: an interrupted run resumes there, and
//! gives the same weights as an uninterrupted run.

mod self_play;
mod window;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use evaluators::{BatchMax, Calibration, Host, Store, Threads};
use experience::Trajectory;
use fleet::SessionStart;
use fleet::feasibility::{self, Programs};
use fleet::plan::Plan;
use fleet::run_directory::RunDirectory;
use game::{Game as _, mix};
use games::GameKind;
use inference::{DevicePreference, PrecisionPreference, TrainingPrecision};
use network_cpu::{KernelPreference, KernelVariant};
use proto::weights::Published;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use replay::Table;
use run_file::RunFile;
use run_file::arena::GateKind;
use run_file::learner::{ScheduleKind, Settings};
use run_file::replay::NamedTable;
use self_play::{SLOTS, SelfPlay};
use serde::{Deserialize, Serialize};
use service::ConfigError;
use training::initial_weights::begin_with;
use training::{Losses, Trainer as _};
use version_store::checkpoint::{Checkpoint, Checkpoints, Progress};
use version_store::{Model, ModelFolder, Retention, VersionStore};
use weights::{Architecture, Digest, Manifest, WeightsVersion};
use window::Totals;

use crate::printed_command;
use crate::screen::print_line;

/// Name of the checkpoint file with the [`State`] of a deterministic run.
const STATE: &str = "deterministic.json";
/// Name of the checkpoint file with the trajectories of the replay window.
const TRAJECTORIES: &str = "trajectories.bin";
/// Name of the CSV file in the run directory with one line per weights version.
const VERSIONS: &str = "versions.csv";
/// Constant mixed into the run seed, so that sampling and symmetries use other random numbers than self-play.
const SAMPLES_SEED: u64 = 0x0073_616D_706C_6573;

/// State of a deterministic run, except trainer state and trajectories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: WeightsVersion,
    totals: Totals,
    /// Number of attempted training steps, including skipped steps; also the random stream of the next batch.
    draws: u64,
    episodes_per_version: u64,
    /// CPU kernel (instruction set) for evaluation. A run keeps the kernels of evaluation and training, since other
    /// instructions round differently.
    evaluator: String,
    trainer: String,
}

/// Results of one weights version: a line of `versions.csv`.
#[derive(Debug, Clone, PartialEq)]
struct Summary {
    version: WeightsVersion,
    training_step: u64,
    episodes: usize,
    items: u64,
    losses: Option<Losses>,
    digest: Digest,
}

/// A deterministic run that has published a version and can train the next version.
struct Run {
    settings: Settings,
    table: NamedTable,
    architecture: Architecture,
    self_play: SelfPlay,
    trainer: training_cpu::Trainer,
    checkpoints: Checkpoints,
    versions: VersionStore,
    trajectories: Vec<Trajectory>,
    state: State,
    positions: u64,
    /// Weights of the current version.
    published: Published,
}

/// Trains until the run has published `versions` versions, including the untrained version 1, or a signal requests a
/// stop.
pub(crate) fn train(plan: &Plan, versions: u64, episodes_per_version: Option<u64>) -> anyhow::Result<()> {
    let before = plan.run.path().join(VERSIONS);
    ensure!(
        before.exists() || plan.progress.elapsed_seconds == 0.0,
        "run {} was started without --deterministic; choose another --run",
        plan.run.name()
    );
    // This check comes first, so that a refused run leaves no directory.
    check(&plan.config)?;
    // A deterministic run only uses the CPU in this process, so that no configured device is an obstacle.
    feasibility::check(&plan.config, plan.progress.inference, &Programs::of_every_kind())?;
    let mut start = SessionStart::new(plan)?;
    let (_runtime, drain) = crate::drain_on_signals()?;
    let mut run = Run::open(&plan.config, &plan.run, episodes_per_version)?;
    start.succeeded();
    print_line(&format!(
        "run {} in {}: {}, seed {}, deterministic from version {}; evaluates with {}, trains with {}",
        plan.run.name(),
        plan.run.path().display(),
        plan.config.run.game,
        plan.config.run.seed,
        run.state.version,
        run.state.evaluator,
        run.state.trainer,
    ));
    let stop = || drain.started();
    while run.state.version.0 < versions {
        let Some(summary) = run.next_version(&stop)? else {
            let command = printed_command::train(&plan.run);
            print_line(&format!("stopped; continue with: {command} --deterministic {versions}"));
            return Ok(());
        };
        print_line(&line(&summary));
        append(&before, &summary)?;
    }
    let (version, digest) = (run.state.version, run.published.manifest.digest);
    print_line(&format!("version {version} of run {}: {digest}", plan.run.name()));
    Ok(())
}

fn line(Summary { version, training_step, episodes, items, losses, digest }: &Summary) -> String {
    let loss = losses.map_or_else(String::new, |losses| {
        format!(", loss {:.4} (policy {:.4}, value {:.4})", losses.total, losses.policy, losses.value)
    });
    format!("version {version}: {episodes} episodes, {items} positions held, step {training_step}{loss}, {digest}")
}

/// Appends a line to the table of versions. A version that is repeated after an interruption gets a second, identical
/// line.
fn append(path: &Path, summary: &Summary) -> anyhow::Result<()> {
    let Summary { version, training_step, episodes, items, losses, digest } = summary;
    let heading = "version,training_step,episodes,positions_held,loss,policy_loss,value_loss,digest\n";
    let mut text = if path.exists() { String::new() } else { heading.to_owned() };
    let [total, policy, value] = losses.map_or([const { String::new() }; 3], |losses| {
        [losses.total, losses.policy, losses.value].map(|loss| loss.to_string())
    });
    text += &format!("{version},{training_step},{episodes},{items},{total},{policy},{value},{digest}\n");
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(text.as_bytes()).with_context(|| format!("write {}", path.display()))
}

/// Checks that a run was not started with --deterministic: separate processes would change the order of events.
pub(crate) fn check_absent(run: &RunDirectory) -> anyhow::Result<()> {
    let name = run.name();
    ensure!(
        !run.path().join(VERSIONS).exists(),
        "run {name} was started with --deterministic VERSIONS; pass the option again, or choose another --run"
    );
    Ok(())
}

/// Checks that nothing in the configuration depends on time, other processes or state outside the checkpoint.
fn check(config: &RunFile) -> Result<(), ConfigError> {
    let (settings, replay) = (config.learner_settings()?, config.replay_settings()?);
    let table = replay.tables[0].table;
    let refuse = |key: &str, reason: &str| Err(ConfigError::invalid(key, format!("{reason} (--deterministic)")));
    if matches!(settings.game, GameKind::Recorded(_)) {
        return refuse("run.game", "runs outside this program and may not be reproducible");
    }
    if !settings.boards.is_empty() {
        return refuse("run.boards", "needs separate processes for each board; leave it out");
    }
    if let Err(error) = network_cpu::supports(&settings.architecture()) {
        return refuse("network", &format!("is not supported by the CPU kernels: {error}"));
    }
    if settings.learner.schedule != ScheduleKind::Positions {
        return refuse(
            "learner.schedule",
            "depends on the clock; set it to positions, and set learner.schedule_positions",
        );
    }
    if table.selector.uses_priorities() {
        return refuse("replay.selector", "depends on earlier draws; use uniform");
    }
    if table.retention.age_max.is_some() {
        return refuse("replay.age_max_hours", "depends on the clock; set it to 0");
    }
    if !matches!(settings.learner.precision, TrainingPrecision::Auto | TrainingPrecision::F32) {
        return refuse("learner.precision", "must be auto or f32");
    }
    if !settings.learner.group.is_empty() {
        return refuse("learner.group", "needs other processes; leave it out");
    }
    if config.arena.gate != GateKind::None {
        return refuse("arena.gate", "needs an arena; set it to none");
    }
    if config.reanalysis.share > 0.0 {
        return refuse("reanalysis.share", "needs other processes; set it to 0");
    }
    Ok(())
}

/// Returns the float32 kernel with the widest vector instructions that this CPU supports.
fn evaluating_kernel() -> KernelVariant {
    use KernelVariant::{Avx2F32, Avx512F32, NeonF32, PortableF32};
    [Avx512F32, Avx2F32, NeonF32].into_iter().find(|variant| variant.is_available()).unwrap_or(PortableF32)
}

impl Run {
    /// Starts a run, or resumes from the latest checkpoint.
    fn open(config: &RunFile, run: &RunDirectory, episodes_per_version: Option<u64>) -> anyhow::Result<Self> {
        check(config)?;
        let settings = config.learner_settings()?;
        let actor = config.actor_settings()?;
        let replay = config.replay_settings()?;
        let table = replay.tables[0].clone();
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let variant = evaluating_kernel();
        let wanted = evaluators::Settings {
            device: DevicePreference::Cpu,
            precision: PrecisionPreference::F32,
            kernel: KernelPreference::Only(variant),
            calibration: Calibration::Off,
            threads: Threads::exactly(threads),
            batch_max: BatchMax::exactly(self_play::GAMES * actor.selfplay.leaves_per_tree),
            torch_build: "deterministic runs evaluate with the CPU kernels",
        };
        let speeds = Store::new(|| None, |_| {});
        let host = Host { clock: Instant::now, machine: String::new(), speeds };
        let backend = evaluators::choose(&wanted, host)?.backend;

        let game = settings.game.rules();
        let architecture = settings.network.architecture_of(&game);
        let trainer_settings = run_file::learner::trainer_settings(&settings.learner);
        let mut trainer =
            training_cpu::Trainer::new(&architecture, trainer_settings.clone(), settings.run.seed, threads)
                .context("create the trainer")?;
        let mut state = State {
            version: WeightsVersion(1),
            totals: Totals::default(),
            draws: 0,
            episodes_per_version: episodes_per_version.unwrap_or(4 * SLOTS),
            evaluator: variant.to_string(),
            trainer: trainer.path().to_string(),
        };
        let (mut trajectories, mut positions) = (Vec::new(), 0);
        let checkpoints = Checkpoints::new(run.checkpoints(), settings.learner.checkpoints_kept)
            .with_spread(settings.learner.checkpoints_spread);
        if let Some(found) = checkpoints.newest()? {
            let Checkpoint { progress, files } = found.checkpoint;
            let kept = serde_json::from_slice(file(&files, STATE)?);
            let kept: State = kept.with_context(|| format!("read {STATE} in the checkpoint"))?;
            let given = episodes_per_version.unwrap_or(kept.episodes_per_version);
            same("--episodes-per-version", &kept.episodes_per_version, &given)?;
            same("the evaluation kernel", &kept.evaluator, &state.evaluator)?;
            same("the training kernel", &kept.trainer, &state.trainer)?;
            ensure!(
                progress.architecture == architecture,
                "the checkpoint has a different network than the run file; choose another --run"
            );
            trainer.load(&files).context("restore the checkpoint")?;
            trajectories = window::read(file(&files, TRAJECTORIES)?, replay.limits)?;
            (state, positions) = (kept, progress.positions);
        } else if !settings.learner.initial_weights.is_empty() {
            let Model { manifest, bytes, .. } = ModelFolder::read(Path::new(&settings.learner.initial_weights))?;
            begin_with(&mut trainer, &trainer_settings, [&manifest.architecture, &architecture], &bytes)
                .context("learner.initial_weights")?;
        }
        let episodes = state.episodes_per_version;
        ensure!(
            episodes > 0 && episodes.is_multiple_of(SLOTS),
            "--episodes-per-version: {episodes} is not a positive multiple of {SLOTS}, the number of concurrent games"
        );
        let self_play = SelfPlay {
            game,
            settings: actor.selfplay,
            discount: actor.discount,
            seed: settings.run.seed,
            backend,
            threads,
        };
        let versions = VersionStore::of_learner(run.path());
        let published = published(&trainer, state.version, &architecture)?;
        let retention = Retention::Latest(settings.learner.versions_kept);
        versions.write(&published.manifest, &published.bytes, retention)?;
        Ok(Self {
            settings,
            table,
            architecture,
            self_play,
            trainer,
            checkpoints,
            versions,
            trajectories,
            state,
            positions,
            published,
        })
    }

    /// Plays with the current version, trains, and publishes the next version. Returns `None`, with the latest
    /// checkpoint unchanged, if `stop` returns true first.
    ///
    /// # Errors
    /// The network cannot be evaluated, training fails other than by a non-finite step, or a directory cannot be
    /// written.
    fn next_version(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> anyhow::Result<Option<Summary>> {
        let version = self.state.version;
        let per_slot = self.state.episodes_per_version / SLOTS;
        let Some(episodes) = self.self_play.play(&self.published, per_slot, stop)? else { return Ok(None) };
        let game = self.architecture.game.clone();
        let played = episodes.len();
        let trajectories: Vec<Trajectory> = (0..)
            .zip(&episodes)
            .map(|(sequence, episode)| episode.trajectory(window::id(version, sequence), &game))
            .collect::<Result<_, _>>()?;
        let mut window = window::table(self.table.table, &self.trajectories, self.state.totals);
        window.hold_to_newest(version);
        window::insert(&mut window, trajectories);

        let mut losses = None;
        let steps = self.steps_due(window.totals().items);
        for _ in 0..steps {
            if stop() {
                return Ok(None);
            }
            losses = self.step(&mut window)?.or(losses);
        }
        self.state.version = WeightsVersion(version.0 + 1);
        self.state.totals = window.totals().into();
        self.trajectories = window::trajectories(&window);
        self.published = published(&self.trainer, self.state.version, &self.architecture)?;
        // The checkpoint is written before the weights: a run resumes from the checkpoint and writes missing weights
        // again.
        self.checkpoints.write(&self.checkpoint()?).context("write the checkpoint")?;
        let retention = Retention::Latest(self.settings.learner.versions_kept);
        self.versions.write(&self.published.manifest, &self.published.bytes, retention)?;
        Ok(Some(Summary {
            version: self.state.version,
            training_step: self.trainer.step_count(),
            episodes: played,
            items: window.items(),
            losses,
            digest: self.published.manifest.digest,
        }))
    }

    /// Returns the number of training steps that `samples_per_insert` still allows; 0 until `min_items` items are
    /// inserted.
    fn steps_due(&self, inserted_items: u64) -> u64 {
        let limiter = self.table.rate_limiter;
        if inserted_items < limiter.min_items {
            return 0;
        }
        let samples = inserted_items as f64 * limiter.samples_per_insert;
        ((samples / self.settings.learner.batch_size as f64) as u64).saturating_sub(self.state.draws)
    }

    /// Computes a training step on a batch from the window. Returns `None` for a non-finite step, which changes no
    /// weights.
    fn step(&mut self, window: &mut Table) -> anyhow::Result<Option<Losses>> {
        let mut rng = ChaCha8Rng::seed_from_u64(mix(self.settings.run.seed ^ SAMPLES_SEED));
        rng.set_stream(self.state.draws);
        self.state.draws += 1;
        let (settings, game) = (&self.settings, &self.self_play.game);
        let targets = settings.targets_of(self.architecture.model);
        let mut drawn = Vec::with_capacity(settings.learner.batch_size);
        window.draw(settings.learner.batch_size, &mut rng, &mut drawn);
        let unroll_steps = targets.segment_steps(game.spec());
        let samples: Vec<_> = drawn.iter().map(|drawn| drawn.sample(unroll_steps)).collect();
        let built = targets.examples(game, &samples, &[], &mut rng);
        if let Some(rejected) = built.rejected.first() {
            bail!("trajectory {} breaks the rules: {}", rejected.trajectory, rejected.reason);
        }
        let mut examples = built.examples;
        settings.policy_temperature().apply(&mut examples);
        self.trainer.set_progress(settings.schedule.progress(0.0, self.positions));
        match self.trainer.step(&examples) {
            Ok(losses) => {
                self.positions += examples.positions() as u64;
                Ok(Some(losses))
            }
            Err(training::Error::NotFinite { quantity, .. }) => {
                print_line(&format!("training step skipped: {quantity} is not finite"));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn checkpoint(&self) -> anyhow::Result<Checkpoint> {
        let mut files = self.trainer.files()?;
        files.push((STATE.to_owned(), serde_json::to_vec_pretty(&self.state)?));
        files.push((TRAJECTORIES.to_owned(), window::write(&self.trajectories)?));
        let progress = Progress {
            training_step: self.trainer.step_count(),
            positions: self.positions,
            // No process exports metrics of this run.
            window_passes: 0.0,
            elapsed_seconds: 0.0,
            architecture: self.architecture.clone(),
        };
        Ok(Checkpoint { progress, files })
    }
}

/// Returns the averaged weights of the trainer, with a manifest for `version`.
fn published(
    trainer: &training_cpu::Trainer,
    version: WeightsVersion,
    architecture: &Architecture,
) -> anyhow::Result<Published> {
    let bytes: Bytes = trainer.published()?.into();
    let manifest = Manifest::of(&bytes, version, trainer.step_count(), architecture.clone());
    Ok(Published { manifest, bytes })
}

fn file<'a>(files: &'a [(String, Vec<u8>)], name: &str) -> anyhow::Result<&'a [u8]> {
    let found = files.iter().find(|(found, _)| found == name);
    let missing =
        || format!("the checkpoint has no {name}: the run was started without --deterministic; choose another --run");
    Ok(&found.with_context(missing)?.1)
}

/// Checks that `what` has the same value in a resumed run as at the start of the run.
fn same<T: PartialEq + std::fmt::Display>(what: &str, before: &T, now: &T) -> anyhow::Result<()> {
    ensure!(before == now, "the run was started with {what} {before}, but it is now {now}; results would differ");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use service::config::Sources;
    use tempfile::TempDir;

    use super::*;

    /// Returns the configuration of a small network on tic-tac-toe, with a few training steps per version.
    fn config(more: &[&str]) -> RunFile {
        let sets = [
            "run.game=tic_tac_toe",
            "run.seed=5",
            "network.channels=16",
            "network.blocks=1",
            "learner.schedule=positions",
            "learner.schedule_positions=10000",
            "learner.batch_size=32",
            "replay.min_items=64",
            "replay.samples_per_insert=1",
            "selfplay.full_simulations=8",
            "selfplay.fast_simulations=4",
        ];
        let sets = sets.iter().chain(more).map(|&set| set.to_owned()).collect();
        Sources { file: None, env: std::iter::empty(), sets }.read(games::preset).unwrap().load().unwrap()
    }

    fn directory(folder: &TempDir) -> RunDirectory {
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        run
    }

    fn open(config: &RunFile, folder: &TempDir) -> Run {
        Run::open(config, &directory(folder), Some(SLOTS)).unwrap()
    }

    /// Trains until the run has `versions` versions, and returns the summary of each.
    fn train(run: &mut Run, versions: u64) -> Vec<Summary> {
        let mut summaries = Vec::new();
        while run.state.version.0 < versions {
            summaries.push(run.next_version(&|| false).unwrap().unwrap());
        }
        summaries
    }

    fn trained(config: &RunFile, versions: u64) -> (Vec<Summary>, Checkpoint) {
        let folder = tempfile::tempdir().unwrap();
        let mut run = open(config, &folder);
        let summaries = train(&mut run, versions);
        (summaries, run.checkpoints.newest().unwrap().unwrap().checkpoint)
    }

    #[test]
    fn the_same_run_file_and_seed_give_the_same_weights_whatever_the_threads_and_another_seed_others() {
        for model in ["alphazero", "muzero"] {
            let set = format!("network.model={model}");
            let config_of = |seed: &str| config(&[&set, seed]);
            let folder = tempfile::tempdir().unwrap();
            let mut one_thread = open(&config_of("run.seed=5"), &folder);
            one_thread.self_play.threads = 1;
            let summaries = train(&mut one_thread, 4);
            assert!(summaries.last().unwrap().training_step > 5, "{summaries:?}");
            assert!(summaries.iter().all(|summary| summary.losses.is_some_and(|losses| losses.total.is_finite())));
            let first = (summaries, one_thread.checkpoints.newest().unwrap().unwrap().checkpoint);
            assert_eq!(first, trained(&config_of("run.seed=5"), 4), "{model}");
            assert_ne!(first.0.last().unwrap().digest, trained(&config_of("run.seed=6"), 4).0.last().unwrap().digest);
        }
    }

    #[test]
    fn the_first_version_of_a_run_that_begins_with_given_weights_has_them() {
        let (folder, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut before = open(&config(&["run.seed=6"]), &folder);
        train(&mut before, 2);
        let Published { manifest, bytes } = &before.published;
        let model = given.path().join("model");
        ModelFolder::write(&model, manifest, bytes).unwrap();
        let begin = format!("learner.initial_weights={}", model.display());
        let begun = config(&[&begin]);
        let mut first = open(&begun, &given);
        assert_eq!((first.state.version, &first.published.bytes), (WeightsVersion(1), bytes));
        assert_eq!(train(&mut first, 2), trained(&begun, 2).0, "two runs from the same weights and seed are equal");
    }

    #[test]
    fn an_interrupted_run_equals_one_that_was_not_interrupted() {
        let config = config(&["replay.capacity_items=900", "replay.window_items_min=600"]);
        let whole = trained(&config, 5);
        // Stops during play, during training and between versions; the process exits each time.
        for stop_at in [3, 40, usize::MAX] {
            let folder = tempfile::tempdir().unwrap();
            let mut run = open(&config, &folder);
            train(&mut run, 3);
            let calls = AtomicUsize::new(0);
            let stop = || calls.fetch_add(1, Ordering::Relaxed) >= stop_at;
            let stopped = run.next_version(&stop).unwrap();
            assert_eq!(stopped.is_none(), stop_at != usize::MAX, "{stop_at}");
            drop(run);
            let mut resumed = open(&config, &folder);
            let summaries = train(&mut resumed, 5);
            assert_eq!(summaries.last(), whole.0.last(), "{stop_at}");
            assert_eq!(resumed.checkpoints.newest().unwrap().unwrap().checkpoint, whole.1, "{stop_at}");
        }
    }

    #[test]
    fn what_a_deterministic_run_does_not_follow_is_refused_by_its_key() {
        for (set, key) in [
            ("learner.schedule=minutes", "learner.schedule"),
            ("replay.selector=prioritised", "replay.selector"),
            ("learner.precision=bf16", "learner.precision"),
            ("reanalysis.share=0.5", "reanalysis.share"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let error = Run::open(&config(&[set]), &directory(&folder), None).err().unwrap();
            assert!(format!("{error:#}").contains(key), "{set}: {error:#}");
        }
        let boards = ["run.game=hex-5", "network.heads=pooled", "run.boards=[\"hex-4\"]"];
        let error = check(&config(&boards)).unwrap_err().to_string();
        assert!(error.starts_with("run.boards: needs separate processes for each board"), "{error}");
        let error = check(&config(&["network.channels=24"])).unwrap_err().to_string();
        assert!(error.starts_with("network: is not supported by the CPU kernels"), "{error}");
    }

    #[test]
    fn other_settings_than_those_of_the_checkpoint_are_refused() {
        let (config, folder) = (config(&[]), tempfile::tempdir().unwrap());
        let opened = |episodes| Run::open(&config, &directory(&folder), episodes).map_err(|error| format!("{error:#}"));
        assert!(opened(Some(SLOTS + 1)).err().unwrap().contains("--episodes-per-version"));
        train(&mut opened(Some(SLOTS)).unwrap(), 2);
        assert!(opened(Some(2 * SLOTS)).err().unwrap().contains("--episodes-per-version"));
        assert_eq!(opened(None).unwrap().state.version, WeightsVersion(2));
    }

    #[test]
    fn trajectories_are_read_as_they_were_written_and_damaged_files_are_refused() {
        let (_, checkpoint) = trained(&config(&[]), 2);
        let bytes = file(&checkpoint.files, TRAJECTORIES).unwrap();
        let limits = experience::Limits { steps_max: 9, actions: 9 };
        let trajectories = window::read(bytes, limits).unwrap();
        assert_eq!(trajectories.len() as u64, SLOTS);
        assert_eq!(window::write(&trajectories).unwrap(), bytes);
        for damaged in [&bytes[..0], &bytes[..bytes.len() - 1], &[bytes, b"x"].concat()] {
            assert!(window::read(damaged, limits).is_err());
        }
    }
}
