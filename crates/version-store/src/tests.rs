use super::*;

fn checkpoint(training_step: u64) -> Checkpoint {
    let architecture = crate::architecture();
    Checkpoint {
        progress: Progress {
            training_step,
            positions: training_step * 64,
            window_passes: 0.25,
            elapsed_seconds: 1.5,
            architecture,
        },
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
fn the_checkpoint_of_every_earlier_revision_is_read_with_the_files_that_it_lists() {
    for directory in earlier_revisions::of_each("checkpoints").unwrap() {
        let Found { checkpoint, damaged } = Checkpoints::new(directory.clone(), 1).newest().unwrap().unwrap();
        let Checkpoint { progress, files } = checkpoint;
        assert_eq!(damaged, Vec::<String>::new());
        let step = directory.join(format!("{PREFIX}{:09}", progress.training_step));
        assert!(step.exists() && progress.training_step > 0 && progress.positions > 0 && !files.is_empty());
        for (name, bytes) in files {
            assert_eq!(bytes, fs::read(step.join(name)).unwrap());
        }
    }
}

#[test]
fn the_progress_of_the_newest_whole_checkpoint_is_read_without_a_change() {
    assert_eq!(run_with(&[]).checkpoints.newest_progress().unwrap(), None);
    let run = run_with(&[9, 10]);
    flip_a_byte(&run, 10);
    for _ in 0..2 {
        assert_eq!(run.checkpoints.newest_progress().unwrap(), Some(checkpoint(9).progress));
    }
    assert_eq!(run.checkpoints.newest_step().unwrap(), 10, "the damaged one has its name");
}

#[test]
fn the_newest_step_is_that_of_the_newest_name() {
    assert_eq!(run_with(&[]).checkpoints.newest_step().unwrap(), 0);
    let run = run_with(&[9, 10]);
    fs::create_dir(run.directory.path().join("checkpoints/.step-000000011.partial")).unwrap();
    fs::create_dir(run.directory.path().join("checkpoints/step-of-another-kind")).unwrap();
    assert_eq!(run.checkpoints.newest_step().unwrap(), 10);
}

#[test]
fn only_the_newest_are_kept() {
    let run = run_with(&[1, 2, 3]);
    assert_eq!(run.checkpoints.list().unwrap().len(), 2);
}

#[test]
fn older_ones_are_kept_spread_over_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(directory.path().to_owned(), 2).with_spread(3);
    for step in 1..=40 {
        checkpoints.write(&checkpoint(10 * step)).unwrap();
    }
    let steps: Vec<u64> = checkpoints.list().unwrap().iter().filter_map(|path| step_of(path)).collect();
    assert_eq!((steps.len(), &steps[3..]), (5, &[390, 400][..]), "{steps:?}");
    assert!(steps[..3].windows(2).all(|pair| pair[1] >= 2 * pair[0]), "{steps:?}");
}

#[test]
fn a_run_continues_from_a_whole_checkpoint_only() {
    let run = run_with(&[1, 2]);
    flip_a_byte(&run, 1);
    let error = run.checkpoints.undo_after(1).unwrap_err().to_string();
    assert!(error.contains("step-000000001 is damaged (weights.safetensors"), "{error}");
    assert_eq!(run.checkpoints.newest_step().unwrap(), 2);
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
fn a_damaged_checkpoint_is_renamed_and_survives_later_checkpoints() {
    let run = run_with(&[1, 2]);
    flip_a_byte(&run, 2);
    let found = run.checkpoints.newest().unwrap().unwrap();
    assert!(found.damaged[0].ends_with("kept as damaged-0001-step-000000002"), "{:?}", found.damaged);
    for step in 2..6 {
        run.checkpoints.write(&checkpoint(step)).unwrap();
    }
    let aside = run.directory.path().join("checkpoints/damaged-0001-step-000000002/weights.safetensors");
    assert_eq!(fs::read(aside).unwrap().len(), 100);
    assert_eq!(run.checkpoints.newest().unwrap().unwrap(), Found { checkpoint: checkpoint(5), damaged: vec![] });
}

#[test]
fn of_damaged_checkpoints_the_newest_few_are_kept() {
    let run = run_with(&[1]);
    for _ in 0..DAMAGED_MAX + 2 {
        run.checkpoints.write(&checkpoint(2)).unwrap();
        flip_a_byte(&run, 2);
        run.checkpoints.newest().unwrap();
    }
    run.checkpoints.write(&checkpoint(2)).unwrap();
    let names = run.checkpoints.named(|name| name.starts_with(DAMAGED)).unwrap();
    assert_eq!(names.len(), DAMAGED_MAX);
    assert!(names[0].ends_with("damaged-0003-step-000000002"), "{names:?}");
}

/// Reading `/proc/self/mem` fails with EIO, even for root; a symbolic link to itself fails with ELOOP.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_read_fails_the_start_and_leaves_the_checkpoint_as_it_was() {
    for unreadable in ["/proc/self/mem", "weights.safetensors"] {
        let run = run_with(&[1, 2]);
        let path = run.directory.path().join("checkpoints/step-000000002/weights.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(unreadable, &path).unwrap();
        let error = run.checkpoints.newest().unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
        assert!(error.to_string().contains("step-000000002/weights.safetensors"), "{error}");
        // The file becomes readable again.
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let found = run.checkpoints.newest().unwrap().unwrap();
        assert_eq!(found, Found { checkpoint: checkpoint(2), damaged: vec![] });
    }
}

#[cfg(target_os = "linux")]
#[test]
fn errors_of_the_storage_are_no_damage() {
    let [enoent, eio, eacces, emfile, estale] = [2, 5, 13, 24, 116].map(io::Error::from_raw_os_error);
    assert!(is_damage(enoent.kind()));
    assert!([eio, eacces, emfile, estale].iter().all(|error| !is_damage(error.kind())));
}

#[test]
fn a_missing_file_is_damage() {
    let run = run_with(&[1, 2]);
    fs::remove_file(run.directory.path().join("checkpoints/step-000000002/moments")).unwrap();
    let found = run.checkpoints.newest().unwrap().unwrap();
    assert_eq!(found.checkpoint, checkpoint(1));
    assert!(found.damaged[0].contains("step-000000002: moments"), "{:?}", found.damaged);
}

/// Replaces the first file name in the file list of step 2.
fn rename_listed(run: &Run, name: &str) {
    let path = run.directory.path().join("checkpoints/step-000000002/checkpoint.json");
    let text = fs::read_to_string(&path).unwrap();
    let changed = text.replace("\"weights.safetensors\"", &serde_json::to_string(name).unwrap());
    assert_ne!(changed, text);
    fs::write(&path, changed).unwrap();
}

#[test]
fn a_listed_name_that_leads_out_of_the_checkpoint_is_damage() {
    let absolute = std::env::current_exe().unwrap().display().to_string();
    for name in [absolute.as_str(), "../step-000000002/weights.safetensors", "", ".", "..", "nul\0", &"x".repeat(300)] {
        let run = run_with(&[1, 2]);
        rename_listed(&run, name);
        let found = run.checkpoints.newest().unwrap().unwrap();
        assert_eq!((&found.checkpoint, found.damaged.len()), (&checkpoint(1), 1), "{name:?}");
    }
}

#[test]
fn of_a_file_larger_than_its_listed_size_no_more_is_read() {
    for name in ["weights.safetensors", "checkpoint.json"] {
        let run = run_with(&[1, 2]);
        let path = run.directory.path().join("checkpoints/step-000000002").join(name);
        // A sparse file, larger than the memory of any machine.
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 43).unwrap();
        let found = run.checkpoints.newest().unwrap().unwrap();
        assert_eq!((&found.checkpoint, found.damaged.len()), (&checkpoint(1), 1), "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_listed_device_is_damage_and_is_not_read() {
    let run = run_with(&[1, 2]);
    let path = run.directory.path().join("checkpoints/step-000000002/weights.safetensors");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    let found = run.checkpoints.newest().unwrap().unwrap();
    assert_eq!(found.checkpoint, checkpoint(1));
    assert!(found.damaged[0].contains("weights.safetensors is not a file"), "{:?}", found.damaged);
}

#[test]
fn a_directory_that_cannot_be_listed_is_not_taken_for_a_new_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("checkpoints"), "a file in the way").unwrap();
    let error = Checkpoints::new(folder.path().join("checkpoints"), 2).newest().unwrap_err();
    assert!(matches!(error, Error::File(FileError { action: "list", .. })), "{error}");
}

#[test]
fn a_run_whose_checkpoints_are_all_damaged_does_not_start_from_nothing() {
    let run = run_with(&[1]);
    flip_a_byte(&run, 1);
    for _ in 0..2 {
        let error = run.checkpoints.newest().unwrap_err().to_string();
        assert!(error.contains("every checkpoint") && error.contains("move the directory away"), "{error}");
    }
}

/// Creates a partial checkpoint of `step`, as a crash would leave it.
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
fn a_half_written_checkpoint_is_removed_with_the_next_one_of_any_step() {
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
    one_kept.newest().unwrap();
    one_kept.write(&checkpoint(2)).unwrap();
    assert_eq!(one_kept.newest().unwrap(), Some(Found { checkpoint: checkpoint(2), damaged: vec![] }));
}

#[test]
fn a_run_continues_from_an_earlier_checkpoint_once_the_later_ones_are_set_aside() {
    let run = run_with(&[10, 20]);
    assert_eq!(run.checkpoints.undo_after(10).unwrap(), ["undone-0001-step-000000020"]);
    assert_eq!(run.checkpoints.newest().unwrap().unwrap().checkpoint, checkpoint(10));
    run.checkpoints.write(&checkpoint(20)).unwrap();
    assert_eq!(run.checkpoints.undo_after(10).unwrap(), ["undone-0002-step-000000020"]);
    assert!(run.checkpoints.undo_after(10).unwrap().is_empty());
    let error = run.checkpoints.undo_after(15).unwrap_err().to_string();
    assert!(error.starts_with("no checkpoint of training step 15") && error.ends_with("existing steps: 10"), "{error}");
}

#[test]
fn a_checkpoint_of_the_same_step_is_replaced_and_a_crash_in_between_loses_neither() {
    let run = run_with(&[5, 10]);
    let (folder, mut other) = (run.directory.path().join("checkpoints"), checkpoint(10));
    other.files[0].1[3] = 99;
    run.checkpoints.write(&other).unwrap();
    assert_eq!(run.checkpoints.newest().unwrap().unwrap().checkpoint, other);
    let entries = || fs::read_dir(&folder).unwrap().count();
    assert_eq!(entries(), 2, "nothing is left of the replaced one");
    // Simulates a stop of the process between the two renames.
    fs::rename(folder.join("step-000000010"), folder.join(".step-000000010.replaced")).unwrap();
    fs::create_dir(folder.join(".step-000000010.partial")).unwrap();
    assert_eq!(run.checkpoints.newest().unwrap().unwrap().checkpoint, other);
    fs::rename(folder.join("step-000000010"), folder.join(".step-000000010.replaced")).unwrap();
    run.checkpoints.undo_after(10).unwrap();
    fs::rename(folder.join("step-000000010"), folder.join(".step-000000010.replaced")).unwrap();
    run.checkpoints.write(&checkpoint(10)).unwrap();
    assert_eq!((run.checkpoints.newest().unwrap().unwrap().checkpoint, entries()), (checkpoint(10), 2));
}
