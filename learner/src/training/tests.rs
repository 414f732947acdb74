//! Tests of the training thread, with a network small enough to train in a test.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use run_file::learner::{BoardSection, Config, LearnerSection};
use service::config::RunSection;
use training::{Trainer as _, TrainerSettings, TrainingBatch, UnrolledBatch};
use weights::{HeadKind, Model};

use super::*;
use crate::trainer::conformance::architecture;
use crate::trainer::counting::{Counting, Log};

/// Returns a batch of one empty board with a uniform policy.
pub(super) fn prepared() -> Prepared {
    let batch = TrainingBatch {
        observations: [0.0; 2 * 9].into_iter().collect(),
        policies: vec![1.0 / 9.0; 9],
        legal: vec![1; 9],
        wdl: vec![0.0, 1.0, 0.0],
        policy_weights: vec![1.0],
        ..TrainingBatch::default()
    };
    of(Examples::Positions(batch))
}

/// Returns a prepared batch that makes up an eighth of the replay window.
fn of(examples: Examples) -> Prepared {
    Prepared { examples, items: Vec::new(), window_passes: 0.125, mean_version: 1.0, trace: None }
}

pub(super) fn checkpoints(folder: &Path) -> Checkpoints {
    Checkpoints::new(folder.join("checkpoints"), 2)
}

/// Returns a batch with a non-finite loss.
pub(super) fn not_finite() -> Prepared {
    let mut prepared = prepared();
    let Examples::Positions(batch) = &mut prepared.examples else { unreachable!("made of positions") };
    batch.wdl[0] = f32::NAN;
    prepared
}

/// Starts a run in `folder`, or resumes the run from the latest checkpoint there.
pub(super) fn start(folder: &Path) -> Start {
    let architecture = architecture(Model::Alphazero);
    let new = || training_cpu::Trainer::new(&architecture, TrainerSettings::default(), 1, 1).unwrap();
    let Some(found) = checkpoints(folder).newest().unwrap() else {
        return Start { trainer: Box::new(new()), architecture, progress: None };
    };
    let mut trainer = new();
    trainer.load(&found.checkpoint.files).unwrap();
    Start { trainer: Box::new(trainer), architecture, progress: Some(found.checkpoint.progress) }
}

/// Trains on these batches in `folder`, with intervals too long for a publication or checkpoint in between.
fn train(folder: &Path, batches: Vec<Prepared>, publish: impl FnMut(Manifest, Bytes) + Send) -> anyhow::Result<()> {
    train_with(folder, batches, 0, |_| {}, publish)
}

/// Trains like [`train`], but with a queue of `queue_depth` steps and with changed settings.
fn train_with(
    folder: &Path,
    batches: Vec<Prepared>,
    queue_depth: usize,
    set: impl FnOnce(&mut LearnerSection),
    publish: impl FnMut(Manifest, Bytes) + Send,
) -> anyhow::Result<()> {
    let run = RunSection { directory: folder.into(), ..RunSection::default() };
    let mut learner = LearnerSection {
        schedule_minutes: 60.0,
        publish_interval_seconds: 3600.0,
        checkpoint_interval_seconds: 3600.0,
        ..LearnerSection::default()
    };
    set(&mut learner);
    let settings = Config { run, learner, ..Config::default() }.settings().unwrap();
    train_from(start(folder), settings, batches, queue_depth, publish)
}

fn train_from(
    start: Start,
    settings: Settings,
    batches: Vec<Prepared>,
    queue_depth: usize,
    publish: impl FnMut(Manifest, Bytes) + Send,
) -> anyhow::Result<()> {
    let checkpoints = checkpoints(&settings.run.directory);
    let mut training = Training::new(settings, start, checkpoints, Priorities::new().0);
    training.queue_depth = queue_depth;
    training.run(&mut Batches::of(batches), &|| false, None, &Health::default(), publish)
}

fn last_checkpoint(folder: &Path) -> Option<u64> {
    checkpoints(folder).newest().unwrap().map(|found| found.checkpoint.progress.training_step)
}

#[test]
fn a_run_ends_with_a_published_version_and_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let mut steps = Vec::new();
    train(folder.path(), vec![prepared()], |manifest, _| steps.push(manifest.training_step)).unwrap();
    assert_eq!(steps, [0, 1]);
    assert_eq!(last_checkpoint(folder.path()), Some(1));
}

#[test]
fn the_last_checkpoint_is_written_also_when_the_last_version_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("weights");
    // After the first version is published, a file replaces the directory, so that later writes fail.
    let spoil = |_: Manifest, _: Bytes| {
        fs::remove_dir_all(&weights).unwrap();
        fs::write(&weights, "no folder").unwrap();
    };
    let error = train(folder.path(), vec![prepared()], spoil).unwrap_err();
    assert!(format!("{error:#}").contains("weights"), "{error:#}");
    assert_eq!(last_checkpoint(folder.path()), Some(1));
}

#[test]
fn a_panic_of_the_writing_thread_ends_no_training_and_the_last_checkpoint_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut publications = 0;
    let publish = |_, _| {
        publications += 1;
        assert!(publications == 1, "the second publication fails");
    };
    let error = train(folder.path(), vec![prepared(), prepared()], publish).unwrap_err();
    assert!(error.to_string().contains("writing weights panicked"), "{error}");
    assert_eq!(last_checkpoint(folder.path()), Some(2));
}

#[test]
fn batches_that_are_not_finite_bring_the_last_checkpoint_back_when_they_keep_coming() {
    let trained_on = |not_finite_in_a_row: usize, queue_depth| {
        let folder = tempfile::tempdir().unwrap();
        train(folder.path(), vec![prepared()], |_, _| {}).unwrap();
        let then = (0..not_finite_in_a_row).map(|_| not_finite());
        let batches = [prepared()].into_iter().chain(then).chain([prepared()]).collect();
        train_with(folder.path(), batches, queue_depth, |_| {}, |_, _| {}).unwrap();
        last_checkpoint(folder.path())
    };
    assert_eq!((trained_on(2, 0), trained_on(3, 0)), (Some(3), Some(2)));
    // The step that was queued when the third rejection was detected is also undone.
    assert_eq!((trained_on(2, 1), trained_on(3, 1)), (Some(3), Some(1)));
}

#[test]
fn batches_that_are_not_finite_end_a_run_that_has_no_checkpoint_to_go_back_to() {
    let folder = tempfile::tempdir().unwrap();
    for queue_depth in [0, 1] {
        let batches = (0..3).map(|_| not_finite()).collect();
        let error = train_with(folder.path(), batches, queue_depth, |_| {}, |_, _| {}).unwrap_err();
        assert!(error.to_string().contains("there is no checkpoint to restore"), "{error:#}");
    }
}

#[test]
fn versions_are_published_in_the_order_of_their_steps_and_every_write_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut versions = Vec::new();
    let always = |learner: &mut LearnerSection| {
        // Both writes are due after every step, and are skipped while another write is in progress.
        learner.publish_interval_seconds = 0.01;
        learner.checkpoint_interval_seconds = 0.01;
    };
    let batches = (0..20).map(|_| prepared()).collect();
    train_with(folder.path(), batches, 1, always, |manifest, bytes| {
        versions.push((manifest.version.0, manifest.training_step, bytes.len() as u64 == manifest.size_bytes));
    })
    .unwrap();
    assert!(versions.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0 && pair[0].1 < pair[1].1), "{versions:?}");
    assert_eq!((versions[0].1, versions.last().unwrap().1), (0, 20), "{versions:?}");
    assert!(versions.iter().all(|version| version.2));
    assert_eq!(last_checkpoint(folder.path()), Some(20));
}

/// Versions are published at the same steps, independent of clock, queue depth and rejected steps.
#[test]
fn publication_by_steps_is_at_exact_multiples_at_any_speed_and_no_version_is_left_out() {
    for (queue_depth, pause_ms) in [(0, 0), (1, 0), (3, 0), (1, 20)] {
        let folder = tempfile::tempdir().unwrap();
        let by_steps = |learner: &mut LearnerSection| {
            // By time alone, every step would publish.
            (learner.publish_interval_seconds, learner.publish_interval_steps) = (0.01, 4);
        };
        let batches = (0..20).map(|number| if number % 7 == 2 { not_finite() } else { prepared() }).collect();
        let mut steps = Vec::new();
        train_with(folder.path(), batches, queue_depth, by_steps, |manifest, _| {
            // Simulates a slow disk.
            std::thread::sleep(Duration::from_millis(pause_ms));
            steps.push(manifest.training_step);
        })
        .unwrap();
        // Three of the twenty steps are rejected; the end of a run also publishes.
        assert_eq!(steps, [0, 4, 8, 12, 16, 17], "queue of {queue_depth}");
    }
}

#[test]
fn a_simulated_run_counts_its_steps_and_writes_its_files_without_changing_weights() {
    let folder = tempfile::tempdir().unwrap();
    let mut published = Vec::new();
    let batches = (0..3).map(|_| prepared()).collect();
    let simulated = |learner: &mut LearnerSection| learner.simulated_step_us = 1;
    train_with(folder.path(), batches, 1, simulated, |manifest, _| {
        published.push((manifest.training_step, manifest.digest));
    })
    .unwrap();
    assert_eq!((published[0].0, published[1].0), (0, 3));
    assert_eq!(published[0].1, published[1].1);
    assert_eq!(last_checkpoint(folder.path()), Some(3));
}

/// Returns a batch of three positions with two unrolled steps each.
fn unrolled() -> Prepared {
    let batch = UnrolledBatch {
        unroll_steps: 2,
        observations: [0.0; 3 * 2 * 9].into_iter().collect(),
        actions: vec![0; 3 * 2],
        policies: vec![1.0 / 9.0; 3 * 3 * 9],
        policy_weights: vec![1.0; 3 * 3],
        values: vec![0.0; 3 * 3],
        value_weights: vec![1.0; 3 * 3],
        rewards: vec![0.0; 3 * 2],
        ..UnrolledBatch::default()
    };
    of(Examples::Unrolled(batch))
}

#[test]
fn a_position_counts_once_however_many_steps_are_unrolled_from_it_and_steps_follow_the_schedule() {
    let folder = tempfile::tempdir().unwrap();
    for queue_depth in [0, 1] {
        let run = RunSection { directory: folder.path().join(queue_depth.to_string()), ..RunSection::default() };
        let settings = Config { run, ..Config::default() }.settings().unwrap();
        let directory = settings.run.directory.clone();
        let (trainer, log) = Counting::new();
        let start = Start { trainer: Box::new(trainer), architecture: architecture(Model::Alphazero), progress: None };
        train_from(start, settings, vec![unrolled(), prepared(), unrolled()], queue_depth, |_, _| {}).unwrap();
        let progress = checkpoints(&directory).newest().unwrap().unwrap().checkpoint.progress;
        assert_eq!((progress.training_step, progress.positions), (3, 3 + 1 + 3));
        let Log { positions, progress, queued_max, .. } = &*log.lock().unwrap();
        assert_eq!((positions.as_slice(), *queued_max), (&[3, 1, 3][..], queue_depth + 1));
        assert!(progress.is_sorted() && progress.iter().all(|&at| (0.0..1.0).contains(&at)), "{progress:?}");
    }
}

/// Returns the bytes of the event files in a directory.
fn event_bytes(folder: &Path) -> Vec<u8> {
    let paths = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| fs::read(path).unwrap()).collect()
}

fn holds(bytes: &[u8], tag: &str) -> bool {
    bytes.windows(tag.len()).any(|window| window == tag.as_bytes())
}

#[test]
fn publications_are_recorded_with_settings_losses_and_histograms_of_weights_and_gradients() {
    let folder = tempfile::tempdir().unwrap();
    let set = |learner: &mut LearnerSection| {
        learner.publish_interval_seconds = 0.01;
        learner.histogram_publications = 1;
    };
    train_with(folder.path(), (0..20).map(|_| prepared()).collect(), 0, set, |_, _| {}).unwrap();
    let bytes = event_bytes(&folder.path().join("learner"));
    let name = &training_cpu_tensor();
    let (weights, gradients) = (format!("weights/{name}"), format!("gradients/{name}"));
    let scalars = ["loss/policy", "learner/learning_rate", "learner/window_passes"];
    for tag in scalars.into_iter().chain(["_hparams_/session_start_info", weights.as_str(), gradients.as_str()]) {
        assert!(holds(&bytes, tag), "{tag}");
    }
    assert!(!holds(&bytes, "loss/chance"));
}

/// Returns the name of a tensor in the network of these tests.
fn training_cpu_tensor() -> String {
    let layers = training::ModelLayers::new(&architecture(Model::Alphazero)).unwrap();
    layers.layout().parameters[0].tensor.name.clone()
}

#[test]
fn a_run_without_event_files_has_none_and_a_folder_that_cannot_be_written_stops_no_training() {
    let folder = tempfile::tempdir().unwrap();
    let off = |learner: &mut LearnerSection| learner.event_files = false;
    train_with(folder.path(), vec![prepared()], 0, off, |_, _| {}).unwrap();
    assert!(!folder.path().join("learner").exists());
    fs::write(folder.path().join("learner"), "a file in the way").unwrap();
    train(folder.path(), vec![prepared()], |_, _| {}).unwrap();
    assert_eq!(last_checkpoint(folder.path()), Some(2));
}

#[test]
fn skipped_steps_count_neither_as_steps_nor_as_steps_in_a_row_that_restore_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunSection { directory: folder.path().into(), ..RunSection::default() };
    let settings = Config { run, ..Config::default() }.settings().unwrap();
    let directory = settings.run.directory.clone();
    let (trainer, _) = Counting::skipping(2 * NOT_FINITE_MAX as usize);
    let start = Start { trainer: Box::new(trainer), architecture: architecture(Model::Alphazero), progress: None };
    let batches = (0..2 * NOT_FINITE_MAX as usize + 1).map(|_| prepared()).collect();
    // Without a checkpoint to restore, this many non-finite steps would end the run with an error.
    train_from(start, settings, batches, 0, |_, _| {}).unwrap();
    let progress = checkpoints(&directory).newest().unwrap().unwrap().checkpoint.progress;
    assert_eq!((progress.training_step, progress.positions), (1, 1));
}

/// The device fails in a process of its own, since the process ends without a return from the training.
#[test]
fn a_device_that_fails_asynchronously_ends_the_process_at_once_with_the_status_of_a_lost_device() {
    const NAME: &str =
        "training::tests::a_device_that_fails_asynchronously_ends_the_process_at_once_with_the_status_of_a_lost_device";
    const FOLDER: &str = "LEARNER_TEST_OF_A_LOST_DEVICE";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let run = RunSection { directory: folder.into(), ..RunSection::default() };
        let settings = Config { run, ..Config::default() }.settings().unwrap();
        let trainer = Box::new(Counting::losing(2));
        let start = Start { trainer, architecture: architecture(Model::Alphazero), progress: None };
        let batches = (0..9).map(|_| prepared()).collect();
        let ended = train_from(start, settings, batches, 1, |_, _| {});
        panic!("the training returned: {ended:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    let output = process.args(["--exact", NAME, "--nocapture"]).env(FOLDER, folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(service::device_loss::EXIT_STATUS), "{output:?}");
    assert!(folder.path().join("weights").exists(), "the version before the fault is kept");
    assert_eq!(last_checkpoint(folder.path()), None, "nothing is written after the fault");
}

#[test]
fn each_step_is_taken_on_the_board_of_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunSection { directory: folder.path().into(), ..RunSection::default() };
    let settings = Config { run, ..Config::default() }.settings().unwrap();
    let (trainer, log) = Counting::new();
    let start = Start { trainer: Box::new(trainer), architecture: architecture(Model::Alphazero), progress: None };
    let of_board = |board| {
        let mut prepared = prepared();
        let Examples::Positions(batch) = &mut prepared.examples else { unreachable!("made of positions") };
        batch.board = board;
        prepared
    };
    train_from(start, settings, [0, 1, 1, 0].map(of_board).into(), 1, |_, _| {}).unwrap();
    assert_eq!(log.lock().unwrap().boards, [0, 1, 1, 0]);
}

/// Returns the passes over the replay window in the latest checkpoint.
fn window_passes(folder: &Path) -> f64 {
    checkpoints(folder).newest().unwrap().unwrap().checkpoint.progress.window_passes
}

#[test]
fn passes_over_the_window_add_up_over_accepted_steps_and_restarts() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), vec![prepared(), not_finite(), prepared()], |_, _| {}).unwrap();
    assert_eq!(window_passes(folder.path()), 0.25);
    train(folder.path(), vec![prepared()], |_, _| {}).unwrap();
    assert_eq!(window_passes(folder.path()), 0.375);
}

#[test]
fn a_run_on_several_boards_counts_the_mean_passes_over_the_windows() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    (config.run.game, config.run.directory) = ("hex-5".to_owned(), folder.path().into());
    config.network.heads = HeadKind::Pooled;
    config.learner.boards = vec![BoardSection { game: "hex-4".to_owned(), replay: "http://b:7001".to_owned() }];
    let trainer = Box::new(Counting::new().0);
    let start = Start { trainer, architecture: architecture(Model::Alphazero), progress: None };
    let batches = (0..4).map(|_| prepared()).collect();
    train_from(start, config.settings().unwrap(), batches, 0, |_, _| {}).unwrap();
    assert_eq!(window_passes(folder.path()), 4.0 * 0.125 / 2.0);
}

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it comes before the deadline");
        std::thread::yield_now();
    }
}

#[test]
fn a_step_or_a_write_that_does_not_return_is_a_stall_and_waiting_for_trajectories_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunSection { directory: folder.path().into(), ..RunSection::default() };
    let settings = Config { run, ..Config::default() }.settings().unwrap();
    let (trainer, log) = Counting::new();
    let (sender, batches) = crossbeam_channel::unbounded();
    let (health, disk, folder) = (&Health::default(), &Mutex::new(()), folder.path());
    let problem = || health.problem(Instant::now() + 2 * STALLED_AFTER).unwrap_or_default();
    let stalls =
        |thread| problem().starts_with(&format!("the thread {thread} has stalled")) && !problem().contains(';');
    std::thread::scope(|scope| {
        // If an assertion fails, the sender is dropped, which stops the training.
        let sender = sender;
        let hangs = disk.lock().unwrap();
        scope.spawn(move || {
            let _beats = health.heartbeat("train", STALLED_AFTER).of_thread();
            let (trainer, architecture) = (Box::new(trainer), architecture(Model::Alphazero));
            let start = Start { trainer, architecture, progress: None };
            let training = Training::new(settings, start, checkpoints(folder), Priorities::new().0);
            let publish = |_, _| drop(disk.lock().unwrap());
            training.run(&mut Batches::receiving(batches), &|| false, None, health, publish).unwrap();
        });
        until(|| stalls("write"));
        drop(hangs);
        until(|| problem().is_empty());
        // The trainer records each step in the log.
        let hangs = log.lock().unwrap();
        sender.send(Some(prepared())).unwrap();
        until(|| sender.is_empty() && stalls("train"));
        drop(hangs);
        until(|| problem().is_empty());
    });
    assert_eq!(problem(), "", "both threads have ended");
}
