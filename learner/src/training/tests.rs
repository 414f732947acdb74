//! Claims about the training thread, with a network small enough to train in a test.

use std::fs;
use std::path::Path;

use network::{Device, Network, TrainerSettings};

use super::*;

fn architecture() -> Architecture {
    Architecture {
        game: "any".into(),
        planes: 2,
        height: 3,
        width: 3,
        actions: 9,
        channels: 8,
        blocks: 1,
        squeeze_excitation: 0,
        global_pooling: 0,
    }
}

/// An empty board with any move as good as any other.
fn prepared() -> Prepared {
    let batch = TrainingBatch {
        observations: vec![0.0; 2 * 9],
        policies: vec![1.0 / 9.0; 9],
        legal: vec![1.0; 9],
        wdl: vec![0.0, 1.0, 0.0],
        policy_weights: vec![1.0],
        importance: Vec::new(),
    };
    Prepared { batch, items: Vec::new(), mean_version: 1.0, trace: None }
}

fn checkpoints(folder: &Path) -> Checkpoints {
    Checkpoints::new(folder.join("checkpoints"), 2)
}

/// A batch whose loss is no number.
fn not_finite() -> Prepared {
    let mut prepared = prepared();
    prepared.batch.observations[0] = f32::NAN;
    prepared
}

/// A run that begins in `folder`, or goes on from the last checkpoint there.
fn start(folder: &Path) -> Start {
    let (architecture, settings) = (architecture(), TrainerSettings::default());
    let Some(found) = checkpoints(folder).newest().unwrap() else {
        let network = Network::new(&architecture, Device::Cpu, 1).unwrap();
        return Start { trainer: Trainer::new(network, settings).unwrap(), architecture, progress: None };
    };
    let trainer = Trainer::restore(&architecture, settings, Device::Cpu, &found.checkpoint.files).unwrap();
    Start { trainer, architecture, progress: Some(found.checkpoint.progress) }
}

/// Trains on these batches in `folder` and ends; no interval passes in between.
fn train(folder: &Path, batches: Vec<Prepared>, publish: impl FnMut(Manifest, Bytes)) -> anyhow::Result<()> {
    let hour = Duration::from_secs(3600);
    let schedule = Schedule { length: hour, publish_interval: hour, checkpoint_interval: hour };
    let published = Published::new(folder.join("weights"), 2);
    let (sender, receiver) = crossbeam_channel::unbounded();
    batches.into_iter().for_each(|batch| sender.send(batch).unwrap());
    drop(sender);
    Training::new(start(folder), checkpoints(folder), published, publish, schedule, Priorities::new().0)
        .run(&receiver, &|| false)
}

fn last_checkpoint(folder: &Path) -> Option<u64> {
    checkpoints(folder).newest().unwrap().map(|found| found.checkpoint.progress.training_step)
}

#[test]
fn the_last_acts_are_a_version_and_a_checkpoint() {
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
    // Once the first version is out, a file takes the place of the folder.
    let spoil = |_: Manifest, _: Bytes| {
        fs::remove_dir_all(&weights).unwrap();
        fs::write(&weights, "no folder").unwrap();
    };
    let error = train(folder.path(), vec![prepared()], spoil).unwrap_err();
    assert!(format!("{error:#}").contains("weights"), "{error:#}");
    assert_eq!(last_checkpoint(folder.path()), Some(1));
}

#[test]
fn batches_that_are_not_finite_bring_the_last_checkpoint_back_when_they_keep_coming() {
    let trained_on = |not_finite_in_a_row: usize| {
        let folder = tempfile::tempdir().unwrap();
        train(folder.path(), vec![prepared()], |_, _| {}).unwrap();
        let then = (0..not_finite_in_a_row).map(|_| not_finite());
        train(folder.path(), [prepared()].into_iter().chain(then).collect(), |_, _| {}).unwrap();
        last_checkpoint(folder.path())
    };
    assert_eq!((trained_on(2), trained_on(3)), (Some(2), Some(1)));
}

#[test]
fn batches_that_are_not_finite_end_a_run_that_has_no_checkpoint_to_go_back_to() {
    let folder = tempfile::tempdir().unwrap();
    let error = train(folder.path(), (0..3).map(|_| not_finite()).collect(), |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("there is no checkpoint to restore"), "{error:#}");
}
