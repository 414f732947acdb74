//! The configuration of a table: [`TableSection`] as written, and [`NamedTable`] as checked settings.

use std::collections::BTreeMap;
use std::time::Duration;

use experience::{Invalid, invalid};
use replay::{RateLimiterSettings, Retention, Selector, TableSettings, Window};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::ConfigError;
use service::config::{Section as _, Sources, above_to};

/// Name of the table that is configured by the keys of `[replay]` itself.
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

/// The rule that selects the next item to sample; [`Selector`] documents each variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectorName {
    /// Samples all items with equal probability.
    #[default]
    Uniform,
    /// Samples items with a probability proportional to `priority^exponent`.
    Prioritised,
    /// Selects the item with the highest priority.
    MaxHeap,
}

service::section! {
    /// An entry of `[[replay.tables]]`: an additional table.
    #[serde(deny_unknown_fields)]
    pub struct TableSection {
        flatten keys: TableKeys;
        /// Name of the table in sample requests: 1 to 64 letters, digits, `_` and `-`, different from every other table
        /// name.
        name: String = String::new();
        /// True if inserts wait for the rate limiter of this table. False is for monitoring tables, which must not
        /// block self-play.
        blocks_inserts: bool = true;
    }
}

service::section! {
    /// Keys of every table. In `[replay]`, they configure the table `main`; in an entry of `[[replay.tables]]`, they
    /// configure an additional table.
    pub struct TableKeys {
        /// Rule that selects the next item to sample: `uniform`, `prioritised` or `max_heap` (the highest priority).
        selector: SelectorName = SelectorName::Uniform;
        /// With the selector `prioritised`: exponent of the priorities; 0 samples uniformly.
        // The best α for proportional prioritisation in Schaul et al. 2016, table 3.
        exponent: f64 = 0.6, in 0.0..=100.0;
        /// With the selector `uniform`: true to reduce the weight of repeated positions. The n items of the same
        /// position, up to symmetry, have the total weight log2(n) + 1, so that their targets are averaged. Items of
        /// trajectories without stored positions count as different.
        // The targets of equal positions are then averaged, as in AlphaZero.jl; the gain is not measured yet.
        merge_positions: bool = false, page "protocol.md#calls";
        /// With the selector `uniform`: share s of surprise in the weight of an item, (1 − s) + s · KL / mean, at most
        /// 8. KL is the divergence of the search policy from the prior, and the mean is over the trajectory. With
        /// `merge_positions`, the weights are multiplied. Items of trajectories without stored surprises have the
        /// weight 1.
        // KataGo uses 0.5.
        surprise_share: f64 = 0.0, in 0.0..=1.0, page "protocol.md#calls";
        /// Minimum number of items in the table before sampling starts.
        // A few hundred games of Connect Four, which are varied enough for the first batches.
        min_items: u64 = 5_000, in 1..;
        /// Average number of times that an item is sampled before it leaves the table.
        // AlphaZero-like runs sample each position 4 to 8 times, KataGo about 4 times.
        samples_per_insert: f64 = 4.0, in above_to(0.0, 1e6);
        /// Tolerated deviation from `samples_per_insert` in either direction, in samples, before actors or learners
        /// have to wait; at least `samples_per_insert`.
        // Twice a large batch: actors and learner run independently for some seconds, but not for minutes.
        error_items: f64 = 8_192.0, in 1.0..=1e15;
        /// c of the growing window, in items: up to this number of inserted items, the window contains all items.
        // α and β are from KataGo. KataGo's c = 250,000 is for runs of weeks, this c for minutes to hours.
        window_items_min: u64 = 50_000, in 1..;
        /// α of the growing window: exponent of the growth above `window_items_min`; 1 grows linearly.
        window_exponent: f64 = 0.75, in above_to(0.0, 1.0);
        /// β of the growing window: growth in items per inserted item at `window_items_min`.
        window_slope: f64 = 0.4, in above_to(0.0, 1.0);
        /// Maximum number of items in the table, above which the oldest trajectories are removed; at least
        /// `window_items_min` and `min_items`.
        // About 1 GB of memory with the policies of Connect Four.
        capacity_items: u64 = 4_000_000;
        /// Maximum age of a trajectory, in hours; older trajectories are removed. 0: unlimited.
        age_max_hours: f64 = 0.0, in 0.0..=1e6;
        /// Maximum total size of trajectories in the table, in bytes, above which the oldest are removed. 0: no limit
        /// except `capacity_items`.
        bytes_max: u64 = 0;
        /// Maximum policy lag of a trajectory, in weights versions before the latest. 0: unlimited.
        lag_versions_max: u64 = 0, page "protocol.md#policy-lag";
    }
}

/// The checked settings of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTable {
    /// Name of the table in sample requests.
    pub name: String,
    /// Settings of sampling and retention.
    pub table: TableSettings,
    /// Settings of the rate limiter.
    pub rate_limiter: RateLimiterSettings,
    /// True if inserts wait for the rate limiter of this table.
    pub blocks_inserts: bool,
    /// The table's section of the run file, as written.
    pub section: TableSection,
}

/// Converts an error of the run file loader to an error that names the key within the table.
fn refused(error: ConfigError) -> Invalid {
    let reason = match &error {
        ConfigError::UnknownKey { hint, .. } => format!("is not a table key; {hint}"),
        ConfigError::Refused { reason, .. } | ConfigError::Invalid { reason, .. } => reason.clone(),
        ConfigError::Negative { value, .. } => format!("is {value}, must be at least 0"),
        error => error.to_string(),
    };
    let key = match &error {
        ConfigError::UnknownKey { key, .. }
        | ConfigError::Refused { key, .. }
        | ConfigError::Negative { key, .. }
        | ConfigError::Invalid { key, .. } => key.strip_prefix("table.").unwrap_or(key),
        _ => "settings",
    };
    invalid(key, reason)
}

impl TableSection {
    /// Checks the range of every value, and converts the section to settings.
    ///
    /// # Errors
    /// [`Invalid`] names the first key that is out of range.
    pub fn settings(&self) -> Result<NamedTable, Invalid> {
        let Self { name, keys, blocks_inserts } = self.clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
            let reason = format!("{name:?} is not 1 to {NAME_BYTES_MAX} letters, digits, '_' and '-'");
            return Err(invalid("name", reason));
        }
        self.check_ranges("table").map_err(refused)?;
        let table = TableSettings {
            selector: keys.selector(),
            window: Window {
                items_min: keys.window_items_min,
                exponent: keys.window_exponent,
                slope: keys.window_slope,
                capacity_items: keys.capacity_items,
            },
            retention: keys.retention()?,
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
            SelectorName::MaxHeap => Selector::MaxHeap,
        }
    }

    fn retention(&self) -> Result<Retention, Invalid> {
        let age_max = Duration::from_secs_f64(self.age_max_hours * 3600.0);
        if age_max.is_zero() && self.age_max_hours > 0.0 {
            return Err(invalid("age_max_hours", format!("is {}, less than a nanosecond", self.age_max_hours)));
        }
        Ok(Retention {
            age_max: Some(age_max).filter(|age| !age.is_zero()),
            trajectory_bytes_max: above_zero(self.bytes_max),
            lag_versions_max: above_zero(self.lag_versions_max),
        })
    }
}

/// Converts a configured limit: `None` for 0, which means unlimited.
pub(crate) fn above_zero(written: u64) -> Option<u64> {
    (written > 0).then_some(written)
}

/// The keys that cannot change while a table is served.
const FIXED_KEYS: [&str; 2] = ["name", "blocks_inserts"];

/// A configuration with a table as the only section, so that the run file loader reads and checks the keys.
#[derive(Serialize, Deserialize)]
struct OneTable {
    table: TableSection,
}

impl TableSection {
    /// Returns the section with changed values for some keys, in the syntax of `--set`. [`TableSection::settings`]
    /// checks the ranges afterwards.
    ///
    /// # Errors
    /// [`Invalid`] names a key that is unknown or fixed, or whose value has the wrong type.
    pub fn changed(&self, settings: &BTreeMap<String, String>) -> Result<Self, Invalid> {
        if let Some(key) = FIXED_KEYS.into_iter().find(|key| settings.contains_key(*key)) {
            return Err(invalid(key, "cannot change while the table is served"));
        }
        // The key is the left side of an assignment in text form. With other characters (`name `, `name="x" #`), the
        // assignment would set a different key.
        let is_plain = |key: &str| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if let Some(key) = settings.keys().find(|key| !is_plain(key)) {
            return Err(invalid("settings", format!("{key:?} is not a table key")));
        }
        let sets = settings.iter().map(|(key, value)| format!("table.{key}={value}")).collect();
        let sources = Sources { file: None, env: std::iter::empty(), sets };
        let written = sources.layers().and_then(|layers| layers.load_over(&OneTable { table: self.clone() }));
        let OneTable { table } = written.map_err(refused)?;
        // The log stores JSON, which cannot represent infinity or NaN.
        match table.values().into_iter().find(|(_, value)| value.is_null()) {
            Some((key, _)) => Err(invalid(&key, "is not finite")),
            None => Ok(table),
        }
    }

    /// Returns all keys that may change while the table is served, with values in the syntax of `--set`.
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

/// Settings of a table that were changed while the table was served, as stored in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveTable {
    /// The table's section of the run file at the time of the change, as text. If the run file has changed since, the
    /// run file takes precedence.
    written: String,
    /// The settings in effect since the change.
    live: TableSection,
}

fn text(section: &TableSection) -> String {
    serde_json::to_string(section).expect("a section has numbers and text only")
}

impl LiveTable {
    /// Encodes the changed settings as text for the log.
    pub fn encode(written: &TableSection, live: TableSection) -> String {
        let table = Self { written: text(written), live };
        serde_json::to_string(&table).expect("a section has numbers and text only")
    }

    /// Returns the saved settings of a table; `None` if the run file's section differs from `written`, or if the saved
    /// settings are invalid.
    pub fn restored(saved: &str, written: &TableSection) -> Option<NamedTable> {
        let table: Self = serde_json::from_str(saved).ok()?;
        // Text saved by an earlier revision of the program lacks newer keys.
        let saved: TableSection = serde_json::from_str(&table.written).ok()?;
        // The valid ranges may have become narrower since the change.
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
