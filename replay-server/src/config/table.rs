//! A table as written, and as used.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use experience::Invalid;
use replay::{RateLimiterSettings, Retention, Selector, TableSettings, Window};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::ConfigError;
use service::config::Sources;

/// The table that the keys of `[replay]` itself are about.
pub const MAIN: &str = "main";

/// The longest name of a table, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The index of a table on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIndex(pub usize);

impl TableIndex {
    /// That of [`MAIN`].
    pub const MAIN: Self = Self(0);
}

/// The rule that chooses the next item; [`Selector`] documents each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectorName {
    /// Each with the same probability.
    #[default]
    Uniform,
    /// By `priority^exponent`.
    Prioritised,
    /// The oldest.
    Fifo,
    /// The newest.
    Lifo,
    /// The one of the least priority.
    MinHeap,
    /// The one of the greatest priority.
    MaxHeap,
    /// Half as often for every `half_life_versions` weights versions of age.
    StalenessAware,
}

/// An entry of `[[replay.tables]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TableSection {
    /// The name that samplers use.
    pub name: String,
    /// What the main table has too.
    #[serde(flatten)]
    pub keys: TableKeys,
    /// True if inserts wait for this table's limiter. A table that is only watched must not block self-play.
    pub blocks_inserts: bool,
}

impl Default for TableSection {
    fn default() -> Self {
        Self { name: String::new(), keys: TableKeys::default(), blocks_inserts: true }
    }
}

/// The keys of every table: in `[replay]` they are about the table `main`, in an entry of `[[replay.tables]]` about
/// that one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableKeys {
    /// The rule that chooses the next item.
    pub selector: SelectorName,
    /// Of `prioritised`: how much priorities matter.
    pub exponent: f64,
    /// Of `staleness_aware`: by how many weights versions an item must be older to be drawn half as often.
    pub half_life_versions: f64,
    /// The maximum number of times that an item is drawn; 0: unlimited.
    pub max_times_sampled: u32,
    /// Items that must be held before the first is drawn.
    pub min_items: u64,
    /// The average number of times that an item is drawn over its lifetime.
    pub samples_per_insert: f64,
    /// The tolerated deviation from the ratio, in samples either way, before actors or learner wait.
    pub error_items: f64,
    /// c of the growing window: up to so many items it is everything.
    pub window_items_min: u64,
    /// α of the growing window.
    pub window_exponent: f64,
    /// β of the growing window.
    pub window_slope: f64,
    /// Items beyond which the oldest trajectories are forgotten.
    pub capacity_items: u64,
    /// The maximum age of a trajectory; 0: as long as there is room.
    pub age_max_hours: f64,
    /// Bytes of the trajectories kept; 0: as many as the capacity allows.
    pub bytes_max: u64,
    /// The maximum number of weights versions that a trajectory may be behind the newest; 0: unlimited.
    pub lag_versions_max: u64,
}

impl Default for TableKeys {
    fn default() -> Self {
        Self {
            selector: SelectorName::Uniform,
            // The best α of proportional prioritisation in Schaul et al. 2016, table 3.
            exponent: 0.6,
            // A window of some tens of versions is usual: its end is then drawn a tenth as often as its beginning.
            half_life_versions: 10.0,
            max_times_sampled: 0,
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
            age_max_hours: 0.0,
            bytes_max: 0,
            lag_versions_max: 0,
        }
    }
}

/// The checked settings of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTable {
    /// The name that samplers use.
    pub name: String,
    /// The settings of the table.
    pub table: TableSettings,
    /// The settings of its rate limiter.
    pub rate_limiter: RateLimiterSettings,
    /// True if inserts wait for its limiter.
    pub blocks_inserts: bool,
    /// As it was written.
    pub section: TableSection,
}

fn invalid(key: &str, reason: impl ToString) -> Invalid {
    Invalid { field: key.to_owned(), reason: reason.to_string() }
}

/// The key of a table that the loader refuses.
fn refused(error: ConfigError) -> Invalid {
    let reason = match &error {
        ConfigError::UnknownKey { hint, .. } => format!("is no key of a table; {hint}"),
        ConfigError::Refused { reason, .. } => reason.clone(),
        error => error.to_string(),
    };
    let key = match &error {
        ConfigError::UnknownKey { key, .. } | ConfigError::Refused { key, .. } => {
            key.strip_prefix("table.").unwrap_or(key)
        }
        _ => "settings",
    };
    invalid(key, reason)
}

impl TableSection {
    /// Checks every range.
    ///
    /// # Errors
    /// The first key out of range.
    pub fn settings(&self) -> Result<NamedTable, Invalid> {
        let Self { name, keys, blocks_inserts } = self.clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
            let reason = format!("{name:?} is not 1 to {NAME_BYTES_MAX} letters, digits, '_' and '-'");
            return Err(invalid("name", reason));
        }
        let table = TableSettings {
            selector: keys.selector(),
            window: Window {
                items_min: keys.window_items_min,
                exponent: keys.window_exponent,
                slope: keys.window_slope,
                capacity_items: keys.capacity_items,
            },
            retention: keys.retention()?,
            max_times_sampled: NonZeroU32::new(keys.max_times_sampled),
        };
        let rate_limiter = RateLimiterSettings {
            samples_per_insert: keys.samples_per_insert,
            min_items: keys.min_items,
            error_items: keys.error_items,
        };
        let (table, rate_limiter) = (table.check()?, rate_limiter.check()?);
        if keys.min_items > keys.capacity_items {
            let reason = format!("{} items never fit the capacity of {}", keys.min_items, keys.capacity_items);
            return Err(invalid("min_items", reason));
        }
        Ok(NamedTable { name, table, rate_limiter, blocks_inserts, section: self.clone() })
    }
}

impl TableKeys {
    fn selector(&self) -> Selector {
        match self.selector {
            SelectorName::Uniform => Selector::Uniform,
            SelectorName::Prioritised => Selector::Prioritised { exponent: self.exponent },
            SelectorName::Fifo => Selector::Fifo,
            SelectorName::Lifo => Selector::Lifo,
            SelectorName::MinHeap => Selector::MinHeap,
            SelectorName::MaxHeap => Selector::MaxHeap,
            SelectorName::StalenessAware => Selector::StalenessAware { half_life_versions: self.half_life_versions },
        }
    }

    fn retention(&self) -> Result<Retention, Invalid> {
        let hours = self.age_max_hours;
        let age_max = Duration::try_from_secs_f64(hours * 3600.0).ok().filter(|age| hours == 0.0 || !age.is_zero());
        let age_max =
            age_max.ok_or_else(|| invalid("age_max_hours", format!("{hours} hours is not a time above 0")))?;
        Ok(Retention {
            age_max: Some(age_max).filter(|age| !age.is_zero()),
            trajectory_bytes_max: above_zero(self.bytes_max),
            lag_versions_max: above_zero(self.lag_versions_max),
        })
    }
}

/// A bound as written, where 0 is none.
pub(super) fn above_zero(written: u64) -> Option<u64> {
    (written > 0).then_some(written)
}

/// The keys that stay as they are while a table serves.
const FIXED_KEYS: [&str; 2] = ["name", "blocks_inserts"];

/// A table as the only section of a configuration: its keys are read and checked by the loader of run files.
#[derive(Serialize, Deserialize)]
struct OneTable {
    table: TableSection,
}

impl TableSection {
    /// The same with other values of some keys, written as after `--set`; ranges are checked by
    /// [`TableSection::settings`].
    ///
    /// # Errors
    /// A key that a table does not have or that may not change, or a value of another type.
    pub fn changed(&self, settings: &BTreeMap<String, String>) -> Result<Self, Invalid> {
        if let Some(key) = FIXED_KEYS.into_iter().find(|key| settings.contains_key(*key)) {
            return Err(invalid(key, "cannot change while the table serves"));
        }
        let sets = settings.iter().map(|(key, value)| format!("table.{key}={value}")).collect();
        let sources = Sources { file: None, env: std::iter::empty(), sets };
        let written = sources.layers().and_then(|layers| layers.load_over(&OneTable { table: self.clone() }));
        let OneTable { table } = written.map_err(refused)?;
        // The log keeps no others.
        match table.values().into_iter().find(|(_, value)| value.is_null()) {
            Some((key, _)) => Err(invalid(&key, "is not finite")),
            None => Ok(table),
        }
    }

    /// Every key that may change while the table serves, and its value as after `--set`.
    pub fn live_settings(&self) -> BTreeMap<String, String> {
        let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let live = self.values().into_iter().filter(|(key, _)| !FIXED_KEYS.contains(&key.as_str()));
        live.map(|(key, value)| (key, text(value))).collect()
    }

    fn values(&self) -> serde_json::Map<String, Value> {
        let value = serde_json::to_value(self).expect("a section has numbers and text only");
        value.as_object().cloned().expect("a section has named keys")
    }
}

/// A table that was changed while it served, as the log keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveTable {
    /// The section of the run file at the time of the change, as text: once the run file differs, it takes precedence.
    written: String,
    /// The settings in force since.
    live: TableSection,
}

fn text(section: &TableSection) -> String {
    serde_json::to_string(section).expect("a section has numbers and text only")
}

impl LiveTable {
    /// As text, for the log.
    pub fn encode(written: &TableSection, live: TableSection) -> String {
        let table = Self { written: text(written), live };
        serde_json::to_string(&table).expect("a section has numbers and text only")
    }

    /// Returns the settings of a table that the run file writes so, if the saved text applies to it.
    pub fn restored(saved: &str, written: &TableSection) -> Option<NamedTable> {
        let table: Self = serde_json::from_str(saved).ok()?;
        // Ranges may have become narrower since.
        (table.written == text(written)).then(|| table.live.settings().ok()).flatten()
    }
}
