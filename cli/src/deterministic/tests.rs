use std::sync::atomic::{AtomicUsize, Ordering};

use service::config::Sources;
use tempfile::TempDir;

use super::*;

/// A run of a small network on tic-tac-toe, whose versions take a few training steps each.
fn config(more: &[&str]) -> Config {
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

fn open(config: &Config, folder: &TempDir) -> Run {
    let (run, checkpoints) = (folder.path().to_owned(), folder.path().join("checkpoints"));
    Run::open(config, run, checkpoints, Some(SLOTS)).unwrap()
}

/// Makes versions until the run has `versions`; returns the summary of each.
fn train(run: &mut Run, versions: u64) -> Vec<Summary> {
    let mut summaries = Vec::new();
    while run.state.version.0 < versions {
        summaries.push(run.next_version(&|| false).unwrap().unwrap());
    }
    summaries
}

fn trained(config: &Config, versions: u64) -> (Vec<Summary>, Checkpoint) {
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
fn an_interrupted_run_equals_one_that_was_not_interrupted() {
    let config = config(&["replay.capacity_items=900", "replay.window_items_min=600"]);
    let whole = trained(&config, 5);
    // Stops while playing, while training, and between versions; the process ends each time.
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
fn what_depends_on_time_or_other_processes_is_refused_by_its_key() {
    for (set, key) in [
        ("learner.schedule=minutes", "learner.schedule"),
        ("replay.selector=prioritised", "replay.selector"),
        ("replay.max_times_sampled=2", "replay.selector"),
        ("reanalysis.share=0.5", "reanalysis.share"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (run, checkpoints) = (folder.path().to_owned(), folder.path().join("checkpoints"));
        let error = Run::open(&config(&[set]), run, checkpoints, None).err().unwrap();
        assert!(format!("{error:#}").contains(key), "{set}: {error:#}");
    }
}

#[test]
fn other_settings_than_those_of_the_checkpoint_are_refused() {
    let (config, folder) = (config(&[]), tempfile::tempdir().unwrap());
    let opened = |episodes| {
        Run::open(&config, folder.path().to_owned(), folder.path().join("checkpoints"), episodes)
            .map_err(|error| format!("{error:#}"))
    };
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
