//! Defines the section `[replay]` of the run file, as written and as checked settings.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use experience::{Invalid, Limits};
use proto::limits::{ACTIONS_MAX, STEPS_MAX};
use replay::SeenLimits;
use serde::{Deserialize, Serialize};
use service::config::{RunSection, Section as _};
use service::{ConfigError, SecuritySection};
use url::Url;

pub use crate::table::{LiveTable, MAIN, NamedTable, SelectorName, TableIndex, TableKeys, TableSection};

/// Maximum number of tables per server: each table needs memory for each item.
const TABLES_MAX: usize = 16;

/// The run file sections for a replay server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Game, seed and run directory.
    pub run: RunSection,
    /// The replay tables and the log.
    pub replay: ReplaySection,
    /// Certificates and tokens for the server's clients.
    pub security: SecuritySection,
}

service::section! {
    /// The section `[replay]`.
    #[serde(deny_unknown_fields)]
    pub struct ReplaySection {
        flatten main: TableKeys;
        /// Maximum number of steps in an accepted trajectory. Every game fits into the default; a smaller number is a
        /// bound against faulty actors.
        // The limits of the protocol, which suit every game; the size in bytes bounds the memory of a trajectory.
        steps_max: usize = STEPS_MAX, in 1..=STEPS_MAX;
        /// Exclusive upper bound on actions in an accepted trajectory. Learners check actions by the game rules.
        actions_max: usize = ACTIONS_MAX, in 1..=ACTIONS_MAX;
        /// Size at which a log file is closed and the next file is created, in bytes.
        // Recovery at a start reads whole segments into memory.
        segment_bytes: u64 = 64 << 20, in 4 << 10..=1 << 30;
        /// Point at which an insert is acknowledged: `memory` (queued for the log), `flushed` (written to the log file)
        /// or `fsync` (synced to disk).
        // An acknowledgement promises durability. Runs that tolerate the loss of some seconds of self-play may
        // choose a weaker setting.
        ack: Ack = Ack::Fsync;
        /// Maximum time to collect inserts for one fsync, in milliseconds.
        // A sync of a hard disk takes 10 ms. The delay does not slow actors with many trajectories in flight.
        fsync_ms: u64 = 50, in 0..=1000;
        /// Directory of the log; a relative path is below the run directory.
        directory: PathBuf = PathBuf::from("replay");
        /// URL of an archive for copies of the log, from which the log is restored to an empty disk:
        /// `file:///DIRECTORY` or, in a build with the feature `s3`, `s3://BUCKET/PREFIX`. Each server needs a separate
        /// URL. Credentials come from environment variables such as `AWS_ACCESS_KEY_ID`. Empty: no archive.
        archive: String = String::new(), page "recovery.md#lost-and-damaged-disks";
        /// Time between two copies to the archive, in seconds. If the disk is lost, at most the trajectories of this
        /// time are lost.
        archive_seconds: u64 = 60, in 1..=24 * 60 * 60;
        /// Memory limit for all tables and trajectories in flight, in bytes; 0: three quarters of the machine's memory
        /// or of the container limit, whichever is smaller. At the limit, inserts are rejected with a retryable error
        /// until every table has been full. Afterwards, the tables evict the oldest trajectories for new inserts, as
        /// long as trajectories in flight take less than a quarter of the limit.
        memory_bytes_max: u64 = 0;
        /// Reaction to an unreadable log head at the start: `refuse` to open the log, or `accept` the loss of the ids
        /// seen, quarantines of actors, and table settings changed at run time.
        damaged_head: DamagedHead = DamagedHead::Refuse, page "recovery.md#lost-and-damaged-disks";
        /// Maximum number of open client connections; the server closes further connections immediately.
        // Every stream may have a separate connection, and operators connect as well.
        connections_max: usize = 8_192, in 1..=1 << 20;
        /// Maximum number of open streams from actors and learners.
        // Enough for thousands of actors. Each stream may have some megabytes in flight.
        streams_max: usize = 4_096, in 1..=1 << 20;
        /// Maximum number of trajectories that one actor may insert per second; the server delays further inserts. 0:
        /// unlimited.
        // Unlimited, because a fast actor is not faulty.
        actor_inserts_per_second_max: u32 = 0;
        /// Heartbeat interval of actors, in seconds. An actor that misses three heartbeats counts as lost, and the
        /// server closes the stream.
        // A lost actor is detected within 6 s; a thousand actors send 500 heartbeats per second. With an interval below
        // the range, a live actor would count as lost on a busy machine.
        heartbeat_seconds: f64 = 2.0, in 0.05..=60.0, page "protocol.md#leases";
        /// Additional tables. Every table has the same trajectories as the table `main`, but separate rules for
        /// sampling.
        tables: Vec<TableSection> = Vec::new();
    }
}

impl ReplaySection {
    /// Returns the settings of all tables, the main table first.
    fn tables(&self) -> Result<Vec<NamedTable>, ConfigError> {
        let below = |section: &str| {
            let section = section.to_owned();
            move |Invalid { field, reason }| ConfigError::invalid(format!("{section}.{field}"), reason)
        };
        let main = TableSection { name: MAIN.to_owned(), keys: self.main.clone(), blocks_inserts: true };
        let mut tables = vec![main.settings().map_err(below("replay"))?];
        for section in &self.tables {
            let path = format!("replay.tables.{}", section.name);
            let table = section.settings().map_err(below(&path))?;
            if tables.iter().any(|other| other.name == table.name) {
                return Err(ConfigError::invalid(path, "duplicate table name".to_owned()));
            }
            tables.push(table);
        }
        if tables.len() > TABLES_MAX {
            let reason = format!("has {} tables, the limit is {TABLES_MAX}", tables.len());
            return Err(ConfigError::invalid("replay.tables".to_owned(), reason));
        }
        Ok(tables)
    }
}

/// The point at which an insert is acknowledged. It determines the possible loss in a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// Once queued for the log file: a crash of the process may lose the latest inserts.
    Memory,
    /// Once written to the log file: survives any exit of the process, but not a power loss before the next sync.
    Flushed,
    /// Once synced to disk: no crash loses the insert.
    #[default]
    Fsync,
}

/// Settings of the thread that commits log entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitSettings {
    /// The point at which an insert is acknowledged.
    pub ack: Ack,
    /// Maximum time to collect entries for a commit or, unless `ack` is `fsync`, maximum time between syncs.
    pub wait: Duration,
}

/// The reaction to an unreadable log head. The head holds the ids of inserted trajectories, the quarantined actors and
/// changed table settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DamagedHead {
    /// The log is not opened, so that the operator can restore the log from a copy.
    #[default]
    Refuse,
    /// The log is opened without the head: only the content of the records is restored.
    Accept,
}

/// Destination and interval for copies of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// URL of the object store, including the prefix.
    pub url: String,
    /// Time between two copies of the log.
    pub interval: Duration,
}

/// The checked settings of a replay server.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Name of the game.
    pub game: String,
    /// Directory of the log.
    pub directory: PathBuf,
    /// The tables; the first is the main table, which always exists.
    pub tables: Vec<NamedTable>,
    /// Limits on the length and the actions of trajectories.
    pub limits: Limits,
    /// Size at which a log file is closed, in bytes.
    pub segment_bytes: u64,
    /// The point at which an insert is acknowledged, and the time to collect inserts for one commit.
    pub commit: CommitSettings,
    /// Destination and interval for copies of the log; `None` without an archive.
    pub archive: Option<ArchiveSettings>,
    /// Memory limit for all tables and trajectories in flight, in bytes; `None` if the server derives the limit from
    /// the machine.
    pub memory_bytes_max: Option<u64>,
    /// Reaction to an unreadable log head.
    pub damaged_head: DamagedHead,
    /// Memory bounds for the ids of inserted trajectories.
    pub seen: SeenLimits,
    /// Maximum number of open client connections.
    pub connections_max: usize,
    /// Maximum number of open streams from actors and learners.
    pub streams_max: usize,
    /// Maximum number of trajectories that one actor may insert per second; `None` for no limit.
    pub actor_inserts_per_second_max: Option<NonZeroU32>,
    /// Heartbeat interval of actors.
    pub heartbeat: Duration,
    /// Seed for random sampling.
    pub seed: u64,
}

/// Parses and checks the URL of an archive.
///
/// # Errors
/// A human-readable reason why the URL is invalid or unsupported.
pub fn archive_url(url: &str) -> Result<Url, String> {
    let parsed = url.parse::<Url>().map_err(|error| error.to_string())?;
    // The URL is logged, so it must not contain credentials.
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("put credentials in environment variables, not in the address".to_owned());
    }
    match parsed.scheme() {
        "file" if parsed.host_str().is_none_or(str::is_empty) => Ok(parsed),
        "file" => Err("a directory has no host; expected file:///DIRECTORY".to_owned()),
        "s3" => Ok(parsed),
        other => Err(format!("unknown scheme {other}; expected file or s3")),
    }
}

impl Config {
    /// Validates the configuration: checks the range of every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key that is out of range.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let replay = &self.replay;
        self.run.check_ranges("run")?;
        replay.check_ranges("replay")?;
        if !replay.archive.is_empty() {
            archive_url(&replay.archive).map_err(|reason| ConfigError::invalid("replay.archive", reason))?;
        }
        Ok(Settings {
            game: self.run.game.clone(),
            directory: self.run.directory.join(&replay.directory),
            tables: replay.tables()?,
            limits: Limits { steps_max: replay.steps_max, actions: replay.actions_max },
            segment_bytes: replay.segment_bytes,
            commit: CommitSettings { ack: replay.ack, wait: Duration::from_millis(replay.fsync_ms) },
            archive: (!replay.archive.is_empty()).then(|| ArchiveSettings {
                url: replay.archive.clone(),
                interval: Duration::from_secs(replay.archive_seconds),
            }),
            memory_bytes_max: crate::table::above_zero(replay.memory_bytes_max),
            damaged_head: replay.damaged_head,
            seen: SeenLimits::default(),
            connections_max: replay.connections_max,
            streams_max: replay.streams_max,
            actor_inserts_per_second_max: NonZeroU32::new(replay.actor_inserts_per_second_max),
            heartbeat: Duration::from_secs_f64(replay.heartbeat_seconds),
            seed: self.run.seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use game::{Game, Spec};
    use games::GameKind;
    use service::config::Sources;

    use super::*;

    fn refused(change: impl FnOnce(&mut ReplaySection)) -> String {
        let mut config = Config::default();
        change(&mut config.replay);
        config.settings().unwrap_err().to_string()
    }

    fn recent(change: impl FnOnce(&mut TableSection)) -> TableSection {
        let mut table = TableSection { name: "recent".to_owned(), ..TableSection::default() };
        change(&mut table);
        table
    }

    fn numbered(number: usize) -> TableSection {
        recent(|table| table.name = format!("recent-{number}"))
    }

    #[test]
    fn the_section_itself_configures_the_main_table_and_others_follow() {
        let mut config = Config::default();
        config.replay.main.samples_per_insert = 2.0;
        config.replay.tables = vec![recent(|table| table.blocks_inserts = false)];
        let tables = config.settings().unwrap().tables;
        let [main, recent] = &tables[..] else { panic!("{tables:?}") };
        assert_eq!((main.name.as_str(), main.rate_limiter.samples_per_insert, main.blocks_inserts), (MAIN, 2.0, true));
        assert_eq!((recent.name.as_str(), recent.blocks_inserts), ("recent", false));
        assert_eq!(recent.rate_limiter.samples_per_insert, TableKeys::default().samples_per_insert);
    }

    #[test]
    fn the_defaults_make_sense() {
        let settings = Config::default().settings().unwrap();
        assert_eq!(settings.directory, PathBuf::from("runs/default/replay"));
    }

    #[test]
    fn every_game_s_longest_episode_and_highest_action_are_accepted_under_its_preset() {
        for name in games::GAMES.iter().flat_map(|entry| entry.examples()) {
            let sets = vec![format!("run.game={name}")];
            let sources = Sources { file: None, env: std::iter::empty(), sets };
            let config: Config = sources.read(games::preset).unwrap().load().unwrap();
            let (limits, game) = (config.settings().unwrap().limits, name.parse::<GameKind>().unwrap().rules());
            let &Spec { max_plies, actions, .. } = game.spec();
            assert!(limits.steps_max >= max_plies && limits.actions >= actions, "{name}: {limits:?}");
        }
    }

    #[test]
    fn a_key_out_of_range_is_named() {
        for (key, message) in [
            ("replay.window_exponent", refused(|replay| replay.main.window_exponent = 1.5)),
            ("replay.window_slope", refused(|replay| replay.main.window_slope = 0.0)),
            ("replay.window_items_min", refused(|replay| replay.main.window_items_min = 0)),
            ("replay.capacity_items", refused(|replay| replay.main.capacity_items = 10)),
            ("replay.samples_per_insert", refused(|replay| replay.main.samples_per_insert = -1.0)),
            ("replay.min_items", refused(|replay| replay.main.min_items = 0)),
            ("replay.min_items", refused(|replay| replay.main.min_items = 1 << 40)),
            ("replay.error_items", refused(|replay| replay.main.error_items = 1.0)),
            ("replay.segment_bytes", refused(|replay| replay.segment_bytes = 1)),
            ("replay.fsync_ms", refused(|replay| replay.fsync_ms = 60_000)),
            ("replay.steps_max", refused(|replay| replay.steps_max = 0)),
            (
                "replay.exponent",
                refused(|replay| (replay.main.selector, replay.main.exponent) = (SelectorName::Prioritised, -1.0)),
            ),
            (
                "replay.merge_positions",
                refused(|replay| {
                    (replay.main.selector, replay.main.merge_positions) = (SelectorName::MaxHeap, true);
                }),
            ),
            ("replay.surprise_share", refused(|replay| replay.main.surprise_share = 1.5)),
            (
                "replay.surprise_share",
                refused(|replay| {
                    (replay.main.selector, replay.main.surprise_share) = (SelectorName::Prioritised, 0.5);
                }),
            ),
            ("replay.age_max_hours", refused(|replay| replay.main.age_max_hours = -1.0)),
            ("replay.age_max_hours", refused(|replay| replay.main.age_max_hours = 1e-14)),
            ("replay.streams_max", refused(|replay| replay.streams_max = 0)),
            (
                "replay.tables.recent.min_items",
                refused(|replay| replay.tables = vec![recent(|table| table.keys.min_items = 0)]),
            ),
            (
                "replay.tables.main",
                refused(|replay| replay.tables = vec![recent(|table| table.name = MAIN.to_owned())]),
            ),
            (
                "replay.tables.a b.name",
                refused(|replay| replay.tables = vec![recent(|table| table.name = "a b".into())]),
            ),
            ("replay.tables", refused(|replay| replay.tables = (0..TABLES_MAX).map(numbered).collect())),
            ("replay.actions_max", refused(|replay| replay.actions_max = 1 << 40)),
        ] {
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn an_invalid_archive_address_is_refused_with_its_key_and_the_reason() {
        for (url, expected) in [
            ("backup", "relative URL"),
            ("ftp://host/folder", "unknown scheme ftp; expected file or s3"),
            ("file://host/folder", "file:///DIRECTORY"),
            ("s3://user:secret@bucket/prefix", "put credentials in environment variables"),
        ] {
            let reason = refused(|replay| replay.archive = url.to_owned());
            assert!(reason.starts_with("replay.archive") && reason.contains(expected), "{url}: {reason}");
            assert!(!reason.contains("secret"), "{reason}");
        }
        assert!(archive_url("file:///tmp/archive").is_ok() && archive_url("s3://bucket/prefix").is_ok());
    }

    #[test]
    fn a_key_that_no_table_has_is_refused_in_every_table() {
        for set in ["replay.tables=[{name=\"a\", minitems=1}]", "replay.minitems=1", "replay.name=b"] {
            let sources = Sources { file: None, env: std::iter::empty(), sets: vec![set.to_owned()] };
            let error = sources.layers().unwrap().load::<Config>().unwrap_err().to_string();
            assert!(error.contains("unknown"), "{set}: {error}");
        }
    }

    #[test]
    fn optional_bounds_may_be_set_and_zero_means_none() {
        let load = |sets: &[&str]| {
            let sets = sets.iter().map(ToString::to_string).collect();
            let sources = Sources { file: None, env: std::iter::empty(), sets };
            sources.layers().unwrap().load::<Config>().unwrap().replay
        };
        let set = load(&[
            "replay.age_max_hours=1.5",
            "replay.bytes_max=1000",
            "replay.lag_versions_max=3",
            "replay.memory_bytes_max=2000",
        ]);
        let expected = ReplaySection {
            main: TableKeys { age_max_hours: 1.5, bytes_max: 1000, lag_versions_max: 3, ..TableKeys::default() },
            memory_bytes_max: 2000,
            ..ReplaySection::default()
        };
        assert_eq!(set, expected);
        let none = ["age_max_hours", "bytes_max", "lag_versions_max", "memory_bytes_max"];
        let none = none.map(|key| format!("replay.{key}=0"));
        assert_eq!(load(&none.each_ref().map(String::as_str)), ReplaySection::default());
    }
}
