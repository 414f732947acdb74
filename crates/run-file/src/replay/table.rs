//! The configuration of a table: the written form, [`TableSection`], and the validated form, [`NamedTable`].

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use experience::Invalid;
use replay::{RateLimiterSettings, Retention, Selector, TableSettings, Window};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::ConfigError;
use service::config::Sources;

/// Name of the table that the keys of `[replay]` itself configure.
pub const MAIN: &str = "main";

/// Maximum length of a table name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Index of a table on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIndex(pub usize);

impl TableIndex {
    /// Index of the table [`MAIN`].
    pub const MAIN: Self = Self(0);
}

/// The rule that chooses the next item; [`Selector`] documents each variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectorName {
    /// Draws every item with the same probability.
    #[default]
    Uniform,
    /// Draws items with a probability proportional to `priority^exponent`.
    Prioritised,
    /// Chooses the oldest item.
    Fifo,
    /// Chooses the newest item.
    Lifo,
    /// Chooses the item with the lowest priority.
    MinHeap,
    /// Chooses the item with the highest priority.
    MaxHeap,
    /// Halves the probability of an item for every `half_life_versions` weights versions of age.
    StalenessAware,
}

/// An entry of `[[replay.tables]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TableSection {
    /// Name for samplers.
    pub name: String,
    /// The keys in common with the main table.
    #[serde(flatten)]
    pub keys: TableKeys,
    /// True if inserts wait for this table's limiter. A table for monitoring only must not block self-play.
    pub blocks_inserts: bool,
}

impl Default for TableSection {
    fn default() -> Self {
        Self { name: String::new(), keys: TableKeys::default(), blocks_inserts: true }
    }
}

/// Keys of every table: in `[replay]` they configure the table `main`, in an entry of `[[replay.tables]]` the table
/// of that entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableKeys {
    /// The rule that chooses the next item.
    pub selector: SelectorName,
    /// Exponent of the priorities with the selector `prioritised`; 0 draws uniformly.
    pub exponent: f64,
    /// Age difference that halves the probability of an item with the selector `staleness_aware`, in weights versions.
    pub half_life_versions: f64,
    /// Maximum number of draws per item; 0: unlimited.
    pub max_times_sampled: u32,
    /// True if equal positions count once: n items of one position have weight log2(n) + 1 together. With the
    /// selector `uniform`.
    pub merge_positions: bool,
    /// s, from 0 to 1: share of an item's weight in proportion to the surprise of the search. With the selector
    /// `uniform`.
    pub surprise_share: f64,
    /// Minimum number of items in the table before the first draw.
    pub min_items: u64,
    /// Average number of draws per item over the item's lifetime.
    pub samples_per_insert: f64,
    /// Tolerated deviation from `samples_per_insert` in either direction before actors or learner wait, in samples.
    pub error_items: f64,
    /// c of the growing window: up to this number of items, the window holds all items.
    pub window_items_min: u64,
    /// α of the growing window.
    pub window_exponent: f64,
    /// β of the growing window.
    pub window_slope: f64,
    /// Number of items above which the oldest trajectories are removed.
    pub capacity_items: u64,
    /// Maximum age of a trajectory, in hours; 0: unlimited.
    pub age_max_hours: f64,
    /// Maximum total size of the held trajectories, in bytes; 0: limited by the capacity only.
    pub bytes_max: u64,
    /// Maximum policy lag of a trajectory, in weights versions; 0: unlimited.
    pub lag_versions_max: u64,
}

impl Default for TableKeys {
    fn default() -> Self {
        Self {
            selector: SelectorName::Uniform,
            // The best α of proportional prioritisation in Schaul et al. 2016, table 3.
            exponent: 0.6,
            // A window of some tens of versions is usual: the oldest items are then drawn a tenth as often as the
            // latest.
            half_life_versions: 10.0,
            max_times_sampled: 0,
            // Equal positions then have averaged targets, as in AlphaZero.jl; the gain is not measured yet.
            merge_positions: false,
            // KataGo uses 0.5.
            surprise_share: 0.0,
            // A few hundred games of Connect Four: enough variety for the first batches.
            min_items: 5_000,
            // AlphaZero-like runs draw each position 4 to 8 times; KataGo draws about 4.
            samples_per_insert: 4.0,
            // Twice a large batch: both sides run independently for some seconds, never for minutes.
            error_items: 8_192.0,
            // α and β are from KataGo. KataGo's c = 250 000 is for runs of weeks, this c for runs of minutes to hours.
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
    /// Name for samplers.
    pub name: String,
    /// Settings of the table.
    pub table: TableSettings,
    /// Settings of the rate limiter.
    pub rate_limiter: RateLimiterSettings,
    /// True if inserts wait for the table's limiter.
    pub blocks_inserts: bool,
    /// The section as written.
    pub section: TableSection,
}

fn invalid(key: &str, reason: impl ToString) -> Invalid {
    Invalid { field: key.to_owned(), reason: reason.to_string() }
}

/// Converts a loader error to an error with the key of the table.
fn refused(error: ConfigError) -> Invalid {
    let reason = match &error {
        ConfigError::UnknownKey { hint, .. } => format!("is not a table key; {hint}"),
        ConfigError::Refused { reason, .. } => reason.clone(),
        ConfigError::Negative { value, .. } => format!("is {value}, must be at least 0"),
        error => error.to_string(),
    };
    let key = match &error {
        ConfigError::UnknownKey { key, .. } | ConfigError::Refused { key, .. } | ConfigError::Negative { key, .. } => {
            key.strip_prefix("table.").unwrap_or(key)
        }
        _ => "settings",
    };
    invalid(key, reason)
}

impl TableSection {
    /// Validates the section: checks the range of every value.
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
            merge_positions: keys.merge_positions,
            surprise_share: keys.surprise_share,
        };
        let rate_limiter = RateLimiterSettings {
            samples_per_insert: keys.samples_per_insert,
            min_items: keys.min_items,
            error_items: keys.error_items,
        };
        let (table, rate_limiter) = (table.check()?, rate_limiter.check()?);
        if keys.min_items > keys.capacity_items {
            let reason = format!("{} items exceed the capacity of {}", keys.min_items, keys.capacity_items);
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
        let age_max = age_max.ok_or_else(|| invalid("age_max_hours", format!("must be at least 0, got {hours}")))?;
        Ok(Retention {
            age_max: Some(age_max).filter(|age| !age.is_zero()),
            trajectory_bytes_max: above_zero(self.bytes_max),
            lag_versions_max: above_zero(self.lag_versions_max),
        })
    }
}

/// Converts a written bound, in which 0 means unlimited.
pub(super) fn above_zero(written: u64) -> Option<u64> {
    (written > 0).then_some(written)
}

/// The keys that cannot change while a table is served.
const FIXED_KEYS: [&str; 2] = ["name", "blocks_inserts"];

/// A table as the only section of a configuration, so that the loader of run files reads and checks the keys.
#[derive(Serialize, Deserialize)]
struct OneTable {
    table: TableSection,
}

impl TableSection {
    /// Returns the section with new values of some keys, in the syntax of `--set`; [`TableSection::settings`] checks
    /// the ranges.
    ///
    /// # Errors
    /// A key that a table does not have or that is fixed, or a value of another type.
    pub fn changed(&self, settings: &BTreeMap<String, String>) -> Result<Self, Invalid> {
        if let Some(key) = FIXED_KEYS.into_iter().find(|key| settings.contains_key(*key)) {
            return Err(invalid(key, "cannot change while the table is served"));
        }
        // A key stands before the value in the text of an assignment. With other characters (`name `, `name="x" #`)
        // it would stand for another key.
        let is_plain = |key: &str| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if let Some(key) = settings.keys().find(|key| !is_plain(key)) {
            return Err(invalid("settings", format!("{key:?} is not a table key")));
        }
        let sets = settings.iter().map(|(key, value)| format!("table.{key}={value}")).collect();
        let sources = Sources { file: None, env: std::iter::empty(), sets };
        let written = sources.layers().and_then(|layers| layers.load_over(&OneTable { table: self.clone() }));
        let OneTable { table } = written.map_err(refused)?;
        // The log stores JSON, which has no non-finite numbers.
        match table.values().into_iter().find(|(_, value)| value.is_null()) {
            Some((key, _)) => Err(invalid(&key, "is not finite")),
            None => Ok(table),
        }
    }

    /// Returns every key that may change while the table is served, with the value in the syntax of `--set`.
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

/// Settings of a table that was changed while served, as stored in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveTable {
    /// The section of the run file at the time of the change, as text. Once the run file differs, the run file takes
    /// precedence.
    written: String,
    /// Settings in force since the change.
    live: TableSection,
}

fn text(section: &TableSection) -> String {
    serde_json::to_string(section).expect("a section has numbers and text only")
}

impl LiveTable {
    /// Encodes the settings as text for the log.
    pub fn encode(written: &TableSection, live: TableSection) -> String {
        let table = Self { written: text(written), live };
        serde_json::to_string(&table).expect("a section has numbers and text only")
    }

    /// Returns the saved settings of a table, if the run file's section still equals `written` and the settings are
    /// still valid.
    pub fn restored(saved: &str, written: &TableSection) -> Option<NamedTable> {
        let table: Self = serde_json::from_str(saved).ok()?;
        // The text of an earlier revision lacks the keys added since.
        let saved: TableSection = serde_json::from_str(&table.written).ok()?;
        // The ranges may have become narrower since.
        (saved == *written).then(|| table.live.settings().ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(key: &str, value: &str) -> Result<TableSection, Invalid> {
        let served = TableSection { name: "late".to_owned(), ..TableSection::default() };
        served.changed(&[(key.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn a_key_is_changed_by_its_exact_name() {
        assert_eq!(changed("min_items", "7").unwrap().keys.min_items, 7);
        let keys = ["min_items ", " min_items", "min_items=7 #", "table.min_items", "MIN_ITEMS", ""];
        keys.iter().for_each(|key| drop(changed(key, "7").unwrap_err()));
    }

    #[test]
    fn settings_saved_before_a_key_was_added_are_restored() {
        let written = TableSection { name: "late".to_owned(), ..TableSection::default() };
        let saved = LiveTable::encode(&written, changed("min_items", "7").unwrap());
        let mut saved: Value = serde_json::from_str(&saved).unwrap();
        let without_new_keys = |section: &mut Value| {
            let section = section.as_object_mut().unwrap();
            ["merge_positions", "surprise_share"].iter().for_each(|key| assert!(section.remove(*key).is_some()));
        };
        let mut text: Value = serde_json::from_str(saved["written"].as_str().unwrap()).unwrap();
        without_new_keys(&mut text);
        saved["written"] = text.to_string().into();
        without_new_keys(&mut saved["live"]);
        let restored = LiveTable::restored(&saved.to_string(), &written).unwrap();
        assert_eq!(restored.section.keys.min_items, 7);
    }

    #[test]
    fn a_fixed_key_does_not_change_under_another_spelling() {
        for (key, value) in [
            ("name", "other"),
            ("name ", "other"),
            ("name=\"other\" #", ""),
            ("blocks_inserts", "false"),
            ("blocks_inserts\t", "false"),
            ("blocks_inserts=false #", ""),
        ] {
            assert!(changed(key, value).is_err(), "{key:?}");
        }
    }
}
