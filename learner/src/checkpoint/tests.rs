use super::*;

fn checkpoint(training_step: u64) -> Checkpoint {
    let architecture = Architecture {
        game: "any".into(),
        planes: 2,
        height: 3,
        width: 3,
        actions: 9,
        channels: 8,
        blocks: 1,
        squeeze_excitation: 0,
        global_pooling: 0,
    };
    Checkpoint {
        progress: Progress { training_step, positions: training_step * 64, elapsed_seconds: 1.5, architecture },
        files: vec![("weights.safetensors".into(), vec![training_step as u8; 100]), ("moments".into(), vec![7; 10])],
    }
}

struct Run {
    directory: tempfile::TempDir,
    checkpoints: Checkpoints,
}

fn run_with(steps: &[u64]) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(directory.path().join("checkpoints"), 2);
    for &step in steps {
        checkpoints.write(&checkpoint(step)).unwrap();
    }
    Run { directory, checkpoints }
}

fn flip_a_byte(run: &Run, step: u64) {
    let path = run.directory.path().join(format!("checkpoints/step-{step:09}/weights.safetensors"));
    let mut bytes = fs::read(&path).unwrap();
    bytes[50] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_new_run_has_no_checkpoint() {
    assert_eq!(run_with(&[]).checkpoints.newest().unwrap(), None);
}

#[test]
fn the_newest_checkpoint_comes_back_as_written() {
    let found = run_with(&[1, 2, 10]).checkpoints.newest().unwrap().unwrap();
    assert_eq!(found, Found { checkpoint: checkpoint(10), damaged: vec![] });
}

#[test]
fn only_the_newest_are_kept() {
    let run = run_with(&[1, 2, 3]);
    assert_eq!(run.checkpoints.list().unwrap().len(), 2);
}

#[test]
fn a_flipped_byte_is_named_and_the_one_before_is_used() {
    let run = run_with(&[1, 2]);
    flip_a_byte(&run, 2);
    let found = run.checkpoints.newest().unwrap().unwrap();
    assert_eq!(found.checkpoint, checkpoint(1));
    assert!(found.damaged[0].contains("step-000000002: weights.safetensors"), "{:?}", found.damaged);
}

#[test]
fn a_run_whose_checkpoints_are_all_damaged_does_not_start_from_nothing() {
    let run = run_with(&[1]);
    flip_a_byte(&run, 1);
    let error = run.checkpoints.newest().unwrap_err().to_string();
    assert!(error.contains("every checkpoint") && error.contains("move the folder away"), "{error}");
}

/// What a crash leaves of the checkpoint of `step` when it comes in the middle of writing.
fn interrupt_at(run: &Run, step: u64) -> PathBuf {
    let partial = run.directory.path().join(format!("checkpoints/.step-{step:09}.partial"));
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("weights.safetensors"), b"half").unwrap();
    partial
}

#[test]
fn a_crash_while_writing_leaves_the_older_ones_as_they_were() {
    let run = run_with(&[1]);
    interrupt_at(&run, 2);
    assert_eq!(run.checkpoints.newest().unwrap().unwrap().checkpoint, checkpoint(1));
    run.checkpoints.write(&checkpoint(2)).unwrap();
    assert_eq!(run.checkpoints.newest().unwrap().unwrap().checkpoint, checkpoint(2));
}

#[test]
fn what_a_crash_left_half_written_goes_with_the_next_checkpoint_of_whatever_step() {
    let run = run_with(&[1]);
    let partial = interrupt_at(&run, 2);
    run.checkpoints.write(&checkpoint(3)).unwrap();
    assert!(!partial.exists());
    assert_eq!(run.checkpoints.list().unwrap().len(), 2);
}

#[test]
fn a_checkpoint_written_after_a_fallback_is_kept_instead_of_the_damaged_one() {
    let run = run_with(&[1, 10]);
    flip_a_byte(&run, 10);
    let one_kept = Checkpoints { kept: 1, ..run.checkpoints };
    one_kept.write(&checkpoint(2)).unwrap();
    assert_eq!(one_kept.newest().unwrap(), Some(Found { checkpoint: checkpoint(2), damaged: vec![] }));
}
