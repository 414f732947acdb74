//! `[replay]` as written, and as used.

use std::path::PathBuf;
use std::time::Duration;

use experience::Limits;
use proto::limits::{ACTIONS_MAX, STEPS_MAX};
use replay::{RateLimiter, RateLimiterSettings, Window};
use serde::{Deserialize, Serialize};
use service::ConfigError;
use service::config::RunSection;

use crate::log::committer::{Ack, CommitSettings};

/// What this process reads of the run file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The run.
    pub run: RunSection,
    /// The replay table.
    pub replay: ReplaySection,
}

/// The section `[replay]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplaySection {
    /// Items that must be held before the first is drawn.
    pub min_items: u64,
    /// How often an item is drawn on average over its lifetime.
    pub samples_per_insert: f64,
    /// How many samples the ratio may be off, either way, before actors or learner wait.
    pub error_items: f64,
    /// c of the growing window: up to so many items it is everything.
    pub window_items_min: u64,
    /// α of the growing window.
    pub window_exponent: f64,
    /// β of the growing window.
    pub window_slope: f64,
    /// Items beyond which the oldest trajectories are forgotten.
    pub capacity_items: u64,
    /// The longest trajectory that is taken, in steps.
    pub steps_max: u64,
    /// Actions of taken trajectories are below this.
    pub actions_max: u64,
    /// The size at which a file of the log is closed and the next begun.
    pub segment_bytes: u64,
    /// When an insert is acknowledged: `memory`, `flushed` (written to the file) or `fsync` (on the disk).
    pub ack: Ack,
    /// How long inserts gather for one fsync, in milliseconds; at most 1000.
    pub fsync_ms: u64,
    /// Where the log lies, below the run's directory if relative.
    pub directory: PathBuf,
}

impl Default for ReplaySection {
    fn default() -> Self {
        Self {
            // A few hundred games of Connect Four: enough variety for the first batches.
            min_items: 5_000,
            // AlphaZero-like runs draw each position 4 to 8 times; KataGo draws about 4.
            samples_per_insert: 4.0,
            // Twice a large batch: both sides run free of each other for some seconds, never for minutes.
            error_items: 8_192.0,
            // α and β are KataGo's; its c of 250 000 is for runs of weeks, this one for runs of minutes to hours.
            window_items_min: 50_000,
            window_exponent: 0.75,
            window_slope: 0.4,
            // About 1 GB of memory with Connect Four's policies.
            capacity_items: 4_000_000,
            steps_max: 4_096,
            actions_max: 4_096,
            segment_bytes: 64 << 20,
            // What is acknowledged is promised; whoever can do without some seconds of self-play may say so.
            ack: Ack::Fsync,
            // A disk that spins syncs in 10 ms. Actors that keep many trajectories on their way do not wait for this.
            fsync_ms: 50,
            directory: PathBuf::from("replay"),
        }
    }
}

/// What the process is built with: ranges checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The name of the game.
    pub game: String,
    /// Where the log lies.
    pub directory: PathBuf,
    /// How far back may be sampled.
    pub window: Window,
    /// How fast, against inserts.
    pub rate_limiter: RateLimiterSettings,
    /// What trajectories must keep.
    pub limits: Limits,
    /// When a segment is closed.
    pub segment_bytes: u64,
    /// When inserts are acknowledged, and how long a commit gathers.
    pub commit: CommitSettings,
    /// Draws descend from this.
    pub seed: u64,
}

impl Config {
    /// Checks every range.
    ///
    /// # Errors
    /// The first key out of range.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let replay = &self.replay;
        let invalid = |key: &str, reason: String| ConfigError::invalid(format!("replay.{key}"), reason);
        let range = |key: &str, value: u64, low: u64, high: u64| {
            let out = || invalid(key, format!("{value} is not between {low} and {high}"));
            if (low..=high).contains(&value) { Ok(value) } else { Err(out()) }
        };
        let window = Window {
            items_min: replay.window_items_min,
            exponent: replay.window_exponent,
            slope: replay.window_slope,
            capacity_items: replay.capacity_items,
        };
        let window = window.check().map_err(|error| invalid(window_key(&error), error.to_string()))?;
        let rate_limiter = RateLimiterSettings {
            samples_per_insert: replay.samples_per_insert,
            min_items: replay.min_items,
            error: replay.error_items,
        };
        RateLimiter::new(rate_limiter).map_err(|error| invalid(limiter_key(&error), error.to_string()))?;
        if replay.min_items > replay.capacity_items {
            let reason = format!("{} items never fit the capacity of {}", replay.min_items, replay.capacity_items);
            return Err(invalid("min_items", reason));
        }
        let count = |key, value, high: usize| range(key, value, 1, high as u64).map(|value| value as usize);
        Ok(Settings {
            game: self.run.game.clone(),
            directory: self.run.directory.join(&replay.directory),
            window,
            rate_limiter,
            limits: Limits {
                steps_max: count("steps_max", replay.steps_max, STEPS_MAX)?,
                actions: count("actions_max", replay.actions_max, ACTIONS_MAX)?,
            },
            // Segments are read whole at a start.
            segment_bytes: range("segment_bytes", replay.segment_bytes, 4 << 10, 1 << 30)?,
            commit: CommitSettings {
                ack: replay.ack,
                wait: Duration::from_millis(range("fsync_ms", replay.fsync_ms, 0, 1000)?),
            },
            seed: self.run.seed,
        })
    }
}

fn window_key(error: &replay::InvalidWindow) -> &'static str {
    match error {
        replay::InvalidWindow::Empty => "window_items_min",
        replay::InvalidWindow::Exponent(_) => "window_exponent",
        replay::InvalidWindow::Slope(_) => "window_slope",
        replay::InvalidWindow::Capacity { .. } => "capacity_items",
    }
}

fn limiter_key(error: &replay::InvalidRateLimiter) -> &'static str {
    match error {
        replay::InvalidRateLimiter::SamplesPerInsert(_) => "samples_per_insert",
        replay::InvalidRateLimiter::MinItems => "min_items",
        replay::InvalidRateLimiter::Error { .. } => "error_items",
    }
}

#[cfg(test)]
mod tests;
