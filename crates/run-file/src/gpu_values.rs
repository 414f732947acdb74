//! Values of the run file for NVIDIA GPUs, above the preset of the game and below every key that is set.
//!
//! [`VALUES`] lists the keys with the evidence for each value. [`apply`] sets the values for processes on GPUs, and
//! returns notes on the changed keys. `zerofleet train` applies the values to new runs; docs/devices.md has the table.

use std::collections::BTreeSet;
use std::fmt;

use game::Game as _;
use network::Layers;
use serde_json::Value;
use service::ConfigError;

use crate::RunFile;

/// Minimum number of positions per training step.
const BATCH_SIZE: usize = 1024;
/// Maximum factor of the learning rate for a larger batch.
const LEARNING_RATE_FACTOR_MAX: f64 = 2.0;
/// Minimum decay of the average of weights.
const EMA_DECAY: f64 = 0.9995;
/// Capacity of the prediction cache, in positions, if the memory suffices.
const CACHE_POSITIONS: usize = 2_000_000;
/// Divisor of the memory of an actor, which gives the part that the cache may use.
const CACHE_MEMORY_DIVISOR: u64 = 16;
/// Memory of a cached prediction without the priors, in bytes.
const PREDICTION_BYTES: u64 = 64;
/// Memory of one cached prior, in bytes.
const PRIOR_BYTES: u64 = 4;
/// Multiply-adds per position from which the values apply: about half of the smallest measured network. A step with a
/// smaller network may take as long to submit to a GPU as to compute on a CPU.
const MULTIPLY_ADDS_MIN: usize = 8_000_000;

/// The processes with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// The learners.
    Learner,
    /// The actors.
    Actor,
}

/// The evidence for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Speed was measured with this value.
    Measured,
    /// Another project or a paper has published the value or the rule.
    Published,
    /// No measurement and no publication is known.
    NotMeasured,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Published => "published",
            Self::NotMeasured => "not measured",
        })
    }
}

/// All keys with values for a GPU, each with the evidence for the value. The number of simulations is that of the
/// preset, and `zerofleet train` computes the number of games from threads and memory.
pub const VALUES: [(&str, Evidence); 6] = [
    ("learner.batch_size", Evidence::Measured),
    ("learner.learning_rate", Evidence::Published),
    ("learner.ema_decay", Evidence::NotMeasured),
    ("selfplay.full_simulations", Evidence::NotMeasured),
    ("actor.accelerator_games", Evidence::NotMeasured),
    ("actor.cache_positions", Evidence::Published),
];

/// Returns the learning rate after a change of the batch size from the first to the second of two sizes: scaled by the
/// square root of the ratio, at most 2, and rounded to three digits.
#[must_use]
pub fn scaled_learning_rate(rate: f64, [before, after]: [usize; 2]) -> f64 {
    let factor = (after as f64 / before.max(1) as f64).sqrt().min(LEARNING_RATE_FACTOR_MAX);
    if before == after { rate } else { format!("{:.2e}", rate * factor).parse().unwrap_or(rate) }
}

/// Sets the values for the processes `on_gpu`, except for keys in `given`, and returns a note on each changed key. An
/// actor may use `memory_bytes`. Small networks, MuZero networks and networks of returns keep all values.
///
/// # Errors
/// A key is invalid; the error names the key.
pub fn apply(
    config: &mut RunFile,
    given: &BTreeSet<String>,
    on_gpu: &[Process],
    memory_bytes: u64,
) -> Result<Vec<String>, ConfigError> {
    let settings = config.learner_settings()?;
    if !Layers::new(&settings.architecture()).is_ok_and(|layers| layers.multiply_adds() >= MULTIPLY_ADDS_MIN) {
        return Ok(Vec::new());
    }
    let limiter = config.replay_settings()?.tables[0].rate_limiter;
    let before = config.clone();
    let applies = |process: Process, key: &str| on_gpu.contains(&process) && !given.contains(key);
    let RunFile { learner, actor, .. } = &mut *config;
    // With fewer items, the first step would draw positions twice.
    if applies(Process::Learner, "learner.batch_size")
        && BATCH_SIZE as u64 <= limiter.batch_items_max().min(limiter.min_items)
    {
        learner.batch_size = learner.batch_size.max(BATCH_SIZE);
    }
    if applies(Process::Learner, "learner.learning_rate") {
        let sizes = [before.learner.batch_size, learner.batch_size];
        learner.learning_rate = scaled_learning_rate(learner.learning_rate, sizes);
    }
    if applies(Process::Learner, "learner.ema_decay") {
        learner.ema_decay = learner.ema_decay.max(EMA_DECAY);
    }
    if applies(Process::Actor, "actor.cache_positions") {
        let bytes = PREDICTION_BYTES + PRIOR_BYTES * settings.game.rules().spec().actions as u64;
        let fitting = usize::try_from(memory_bytes / CACHE_MEMORY_DIVISOR / bytes).unwrap_or(usize::MAX);
        actor.cache_positions = actor.cache_positions.max(fitting.min(CACHE_POSITIONS));
    }
    let changes = VALUES.iter().zip(texts(&before)).zip(texts(config)).filter(|((_, before), after)| before != after);
    Ok(changes
        .map(|(((key, evidence), before), after)| format!("{key} = {after} (preset: {before}; {evidence})"))
        .collect())
}

/// Returns the notes of [`apply`] on keys that have the same value in `config`.
#[must_use]
pub fn still_valid(notes: &[String], config: &RunFile) -> Vec<String> {
    let starts = VALUES.iter().zip(texts(config)).map(|((key, _), text)| format!("{key} = {text} "));
    let starts: Vec<String> = starts.collect();
    notes.iter().filter(|note| starts.iter().any(|start| note.starts_with(start))).cloned().collect()
}

/// Returns the values of the keys in [`VALUES`] as text.
fn texts(config: &RunFile) -> Vec<String> {
    let config = serde_json::to_value(config).unwrap_or_default();
    let of = |key: &str| config.pointer(&format!("/{}", key.replace('.', "/"))).map(Value::to_string);
    VALUES.iter().map(|(key, _)| of(key).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use service::config::Sources;

    use super::*;

    const BOTH: [Process; 2] = [Process::Learner, Process::Actor];
    const PAGE: &str = include_str!("../../../docs/devices.md");

    fn configured(game: &str, sets: &[&str]) -> RunFile {
        let sets = sets.iter().map(|&set| set.to_owned()).chain([format!("run.game={game}")]).collect();
        Sources { file: None, env: std::iter::empty(), sets }.read(games::preset).unwrap().load().unwrap()
    }

    /// Returns the keys that change on GPUs in a process with this much memory.
    fn changed(mut config: RunFile, on_gpu: &[Process], memory_bytes: u64) -> (RunFile, Vec<String>) {
        let notes = apply(&mut config, &BTreeSet::new(), on_gpu, memory_bytes).unwrap();
        let keys = notes.iter().map(|note| note.split(' ').next().unwrap().to_owned()).collect();
        (config, keys)
    }

    /// Formats a number with commas.
    fn grouped(number: usize) -> String {
        let digits = number.to_string();
        let commas = |(index, digit): (usize, char)| {
            let comma = index > 0 && (digits.len() - index).is_multiple_of(3);
            comma.then_some(',').into_iter().chain([digit])
        };
        digits.char_indices().flat_map(commas).collect()
    }

    #[test]
    fn the_page_of_devices_has_every_key_with_its_mark_and_its_number() {
        let (_, section) = PAGE.split_once("\n## Values for a GPU\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<Vec<&str>> = rows.map(|row| row.trim_matches(['|', ' ']).split(" | ").collect()).collect();
        let marked: Vec<String> = rows.iter().map(|row| format!("{} {}", row[0], row[2])).collect();
        assert_eq!(marked, VALUES.map(|(key, evidence)| format!("`{key}` {evidence}")));
        let (batch, cache) = (grouped(BATCH_SIZE), grouped(CACHE_POSITIONS));
        let factor = format!("at most {LEARNING_RATE_FACTOR_MAX}");
        for (row, number) in [(0, batch), (1, factor), (2, EMA_DECAY.to_string()), (5, cache)] {
            assert!(rows[row][1].contains(&number), "{:?} lacks {number}", rows[row]);
        }
        assert!(section.contains(&format!("{} million multiply-adds", MULTIPLY_ADDS_MIN / 1_000_000)));
    }

    #[test]
    fn every_value_is_of_a_key_that_exists() {
        let keys = RunFile::keys();
        let exists = |section: &str, name: &str| {
            keys.iter().any(|(of, keys)| *of == section && keys.iter().any(|key| key.name == name))
        };
        for (key, _) in VALUES {
            let (section, name) = key.split_once('.').unwrap();
            assert!(exists(section, name), "{key}");
        }
    }

    #[test]
    fn networks_of_board_games_get_the_values_and_small_and_learned_models_keep_the_preset() {
        let keys = |game: &str, sets: &[&str]| changed(configured(game, sets), &BOTH, 1 << 40).1;
        let all = ["learner.batch_size", "learner.learning_rate", "learner.ema_decay", "actor.cache_positions"];
        for game in ["connect_four", "go-9", "hex-7", "othello-8", "chess"] {
            assert_eq!(keys(game, &[]), all, "{game}");
        }
        for game in ["tic_tac_toe", "cartpole-v1", "catch", "2048", "breakout", "pendulum-5"] {
            assert_eq!(keys(game, &[]), [""; 0], "{game}");
        }
        assert_eq!(keys("connect_four", &["network.model=muzero"]), [""; 0]);
    }

    #[test]
    fn a_process_on_the_cpu_keeps_the_values_of_the_preset() {
        let keys = |on_gpu: &[Process]| changed(configured("connect_four", &[]), on_gpu, 1 << 40).1;
        assert_eq!(keys(&[]), [""; 0]);
        assert_eq!(keys(&[Process::Actor]), ["actor.cache_positions"]);
        assert_eq!(keys(&[Process::Learner]).len(), 3);
    }

    #[test]
    fn values_stay_within_what_the_replay_table_and_the_memory_allow_and_never_fall() {
        let (config, keys) = changed(configured("connect_four", &["replay.min_items=1000"]), &BOTH, 1 << 40);
        assert_eq!(keys, ["learner.ema_decay", "actor.cache_positions"]);
        assert_eq!((config.learner.batch_size, config.learner.learning_rate), (256, 0.002));
        let large = ["learner.batch_size=2048", "learner.ema_decay=0.9999", "actor.cache_positions=3000000"];
        assert_eq!(changed(configured("connect_four", &large), &BOTH, 1 << 40).1, [""; 0]);
        let cache = |memory| changed(configured("hex-19", &[]), &BOTH, memory).0.actor.cache_positions;
        assert_eq!([cache(0), cache(1 << 40)], [250_000, 2_000_000]);
        assert!((600_000..800_000).contains(&cache(1 << 34)), "{}", cache(1 << 34));
    }

    #[test]
    fn the_learning_rate_grows_with_the_square_root_of_the_batch_and_at_most_doubles() {
        let scaled = |sizes| scaled_learning_rate(0.002, sizes);
        assert_eq!([scaled([256, 1024]), scaled([64, 1024]), scaled([256, 64])], [0.004, 0.004, 0.001]);
        assert_eq!(scaled([512, 1024]), 0.00283);
        assert_eq!(scaled_learning_rate(0.001_234_5, [7, 7]), 0.001_234_5);
    }

    #[test]
    fn a_note_has_both_values_and_the_mark_and_is_dropped_once_the_key_has_changed() {
        let mut config = configured("connect_four", &[]);
        let notes = apply(&mut config, &BTreeSet::new(), &[Process::Learner], 0).unwrap();
        assert_eq!(notes[0], "learner.batch_size = 1024 (preset: 256; measured)");
        assert_eq!(notes[1], "learner.learning_rate = 0.004 (preset: 0.002; published)");
        assert_eq!(still_valid(&notes, &config), notes);
        config.learner.batch_size = 512;
        assert_eq!(still_valid(&notes, &config), notes[1..]);
    }
}
