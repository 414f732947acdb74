//! Checkpoints of a learner, damaged in any way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use version_store::checkpoint::{Checkpoint, Checkpoints, Error, Progress};
use weights::Architecture;

/// Number of checkpoints to keep.
const KEPT: usize = 2;
/// Maximum number of operations of one input.
const OPERATIONS_MAX: usize = 24;
/// Files of a checkpoint, including the list of files.
const NAMES: [&str; 3] = ["weights.safetensors", "moments", CONTENTS];
const CONTENTS: &str = "checkpoint.json";

/// Checks that the latest whole checkpoint is found whatever happens to the files, that no damaged checkpoint passes as
/// whole, and that no whole checkpoint is renamed.
///
/// The input is a sequence of operations: writes, damages of the files, and reads.
pub(crate) fn check(bytes: &[u8]) {
    let mut input = bytes;
    let run = Run::new();
    let mut state = BTreeMap::new();
    for _ in 0..OPERATIONS_MAX {
        let Some((&operation, rest)) = input.split_first() else { break };
        input = rest;
        run.operate(operation, &mut input, &mut state);
    }
    run.read(&mut state);
    let last = state.keys().next_back().map_or(1, |step| step + 1);
    run.write(last, &mut state);
    assert_eq!(run.read(&mut state), Some(checkpoint(last)), "a checkpoint that was just written");
}

/// Returns operations of every kind, and file lists that only damage produces.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let listed = |name: &str, size_bytes: &str| {
        let digest = weights::Digest::of(&[1; 100]);
        let progress = serde_json::to_string(&checkpoint(2).progress).expect("it is text");
        let name = serde_json::to_string(name).expect("it is text");
        let file = format!(r#"{{"name":{name},"size_bytes":{size_bytes},"digest":"{digest}"}}"#);
        let text = format!(r#"{{"progress":{progress},"files":[{file}]}}"#);
        [&[0, 0, 5, 0, 0], &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), &[7]].concat()
    };
    vec![
        vec![0, 0, 0, 7, 2, 0, 0, 50, 7, 0, 7],
        vec![0, 0, 2, 0, 2, 9, 7, 1, 3, 0, 1, 4, 7],
        vec![0, 6, 0, 4, 0, 0, 7, 0, 4, 0, 2, 7],
        vec![1, 1, 3, 0, 2, 200, 3, 1, 0, 1, 7, 7],
        listed("weights.safetensors", "100"),
        listed("../step-000000001/weights.safetensors", "100"),
        listed("/dev/zero", "18446744073709551615"),
        listed("/proc/self/exe", "100"),
        listed("", "0"),
        listed("nul\u{0}", "1"),
        listed(&"x".repeat(300), "1"),
        [&[0, 5, 0, 0, 4, 0][..], b"[[[[", &[7]].concat(),
    ]
}

/// Knowledge about a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// The file list was changed: the checkpoint is whole only if the files are.
    Unknown,
    Damaged,
}

struct Run {
    folder: tempfile::TempDir,
    checkpoints: Checkpoints,
}

impl Run {
    fn new() -> Self {
        // A file system in memory makes each sync fast.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("the system has a folder for temporary files");
        let checkpoints = Checkpoints::new(folder.path().join("checkpoints"), KEPT);
        Self { folder, checkpoints }
    }

    fn path(&self, step: u64) -> PathBuf {
        self.folder.path().join("checkpoints").join(format!("step-{step:09}"))
    }

    fn operate(&self, operation: u8, input: &mut &[u8], state: &mut BTreeMap<u64, State>) {
        let mut argument = || {
            let (&byte, rest) = input.split_first().unwrap_or((&0, &[]));
            *input = rest;
            byte
        };
        let newest = state.keys().next_back().copied();
        match (operation & 7, newest) {
            (0, _) => self.write(newest.unwrap_or(0) + 1, state),
            // Writes the same step again.
            (1, _) => self.write(newest.unwrap_or(1), state),
            (2..=5, None) => {}
            (damage @ 2..=5, Some(newest)) => {
                // Chooses the latest checkpoint, or the one before.
                let step = newest - u64::from(argument() & 1);
                let Some(known) = state.get_mut(&step) else { return };
                let name = if damage == 5 { CONTENTS } else { NAMES[usize::from(argument()) % NAMES.len()] };
                let path = self.path(step).join(name);
                let Ok(mut bytes) = fs::read(&path) else { return };
                let at = (usize::from(argument()) * 7).min(bytes.len().saturating_sub(1));
                match damage {
                    // No file holds such a byte, so that no second damage undoes the first.
                    2 if !bytes.is_empty() => bytes[at] = 0x80 | argument(),
                    3 => bytes.truncate(at),
                    4 => {
                        fs::remove_file(&path).expect("the file is there");
                        *known = State::Damaged;
                        return;
                    }
                    5 => {
                        let length = usize::from(u16::from_le_bytes([argument(), argument()]));
                        let (text, rest) = input.split_at(length.min(input.len()));
                        (bytes, *input) = (text.to_vec(), rest);
                    }
                    _ => return,
                }
                fs::write(&path, bytes).expect("the file is written");
                // No digest covers the file list, which may stay valid.
                *known = if name == CONTENTS && *known != State::Damaged { State::Unknown } else { State::Damaged };
            }
            (6, _) => {
                let step = newest.unwrap_or(0) + 1;
                let partial = self.folder.path().join(format!("checkpoints/.step-{step:09}.partial"));
                fs::create_dir_all(&partial).expect("the folder is created");
                fs::write(partial.join("moments"), [argument(); 9]).expect("the file is written");
            }
            _ => drop(self.read(state)),
        }
    }

    fn write(&self, step: u64, state: &mut BTreeMap<u64, State>) {
        let path = self.checkpoints.write(&checkpoint(step)).expect("the disk works");
        assert_eq!(path, self.path(step));
        state.insert(step, State::Whole);
        while state.len() > KEPT {
            state.pop_first();
        }
    }

    /// Reads the latest checkpoint, and compares the result and the remaining checkpoints with the naive model.
    fn read(&self, state: &mut BTreeMap<u64, State>) -> Option<Checkpoint> {
        let whole = state.iter().rev().find(|(_, state)| **state == State::Whole).map(|(step, _)| *step);
        let may_be_whole = state.values().any(|state| *state != State::Damaged);
        let found = match self.checkpoints.newest() {
            Ok(Some(found)) => found,
            Ok(None) => {
                assert!(state.is_empty(), "checkpoints are there: {state:?}");
                return None;
            }
            Err(Error::AllDamaged { damaged, .. }) => {
                assert!(whole.is_none() && damaged.len() == state.len(), "{whole:?} is whole: {damaged:?}");
                return None;
            }
            Err(error) => panic!("the disk works: {error}"),
        };
        assert!(may_be_whole, "all were damaged: {state:?}");
        let before = state.len();
        // Damaged checkpoints after the whole one are renamed.
        state.retain(|step, known| {
            let is_there = self.path(*step).exists();
            assert!(is_there || *known != State::Whole, "the whole checkpoint of step {step} was renamed");
            is_there
        });
        assert_eq!(before - state.len(), found.damaged.len());
        let newest = state.iter().next_back().map(|(step, known)| (*step, *known)).expect("one was found");
        match newest {
            (step, State::Whole) => assert_eq!(found.checkpoint, checkpoint(step)),
            (step, State::Unknown) => {
                for (name, bytes) in &found.checkpoint.files {
                    let is_written = checkpoint(step).files.iter().any(|file| file.1 == *bytes);
                    assert!(is_written || name == CONTENTS, "{name:?} of {} bytes is none of its files", bytes.len());
                }
            }
            (step, State::Damaged) => panic!("the checkpoint of step {step} is damaged"),
        }
        Some(found.checkpoint)
    }
}

fn checkpoint(training_step: u64) -> Checkpoint {
    let architecture = Architecture::plain("any", [2, 3, 3], 9, [8, 1]);
    let (positions, window_passes) = (training_step * 64, 0.25);
    let progress = Progress { training_step, positions, window_passes, elapsed_seconds: 1.5, architecture };
    let files = vec![(NAMES[0].to_owned(), vec![training_step as u8; 100]), (NAMES[1].to_owned(), vec![7; 10])];
    Checkpoint { progress, files }
}
