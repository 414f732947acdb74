//! A table as written, and as used.

use std::num::NonZeroU32;
use std::time::Duration;

use proto::replay::{LagBound, TableChange};
use replay::{
    InvalidRateLimiter, InvalidSelector, InvalidTable, InvalidWindow, RateLimiter, RateLimiterSettings, Retention,
    Selector, TableSettings, Window,
};
use serde::{Deserialize, Serialize};
use service::ConfigError;

/// The table that the keys of `[replay]` itself are about.
pub const MAIN: &str = "main";

/// The longest name of a table, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Which table of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIndex(pub usize);

impl TableIndex {
    /// That of [`MAIN`].
    pub const MAIN: Self = Self(0);
}

/// Which item is drawn next; [`Selector`] says what each means.
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

/// An entry of `[[replay.tables]]`; the same keys in `[replay]` are about the table `main`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TableSection {
    /// What samplers call it.
    pub name: String,
    /// Which item is drawn next.
    pub selector: SelectorName,
    /// Of `prioritised`: how much priorities matter.
    pub exponent: f64,
    /// Of `staleness_aware`: by how many weights versions an item must be older to be drawn half as often.
    pub half_life_versions: f64,
    /// How often an item may be drawn; 0: any number of times.
    #[serde(with = "super::bound")]
    pub max_times_sampled: Option<NonZeroU32>,
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
    /// How long a trajectory is kept; 0: as long as there is room.
    #[serde(with = "super::bound")]
    pub age_max_hours: Option<f64>,
    /// Bytes of the trajectories kept; 0: as many as the capacity allows.
    #[serde(with = "super::bound")]
    pub bytes_max: Option<u64>,
    /// How many weights versions a trajectory may be behind the newest; 0: any number.
    #[serde(with = "super::bound")]
    pub lag_versions_max: Option<u64>,
    /// Whether inserts wait for this table's limiter. A table that only watches must not hold up self-play.
    pub blocks_inserts: bool,
}

impl Default for TableSection {
    fn default() -> Self {
        Self {
            name: String::new(),
            selector: SelectorName::Uniform,
            // The best α of proportional prioritisation in Schaul et al. 2016, table 3.
            exponent: 0.6,
            // A window of some tens of versions is usual: its end is then drawn a tenth as often as its beginning.
            half_life_versions: 10.0,
            max_times_sampled: None,
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
            age_max_hours: None,
            bytes_max: None,
            lag_versions_max: None,
            blocks_inserts: true,
        }
    }
}

/// A table as it is used: ranges checked.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTable {
    /// What samplers call it.
    pub name: String,
    /// What it draws and keeps.
    pub table: TableSettings,
    /// How fast, against inserts.
    pub rate_limiter: RateLimiterSettings,
    /// Whether inserts wait for its limiter.
    pub blocks_inserts: bool,
    /// As it was written.
    pub section: TableSection,
}

/// The key at fault, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct InvalidKey {
    /// Which key.
    pub key: &'static str,
    /// What is wrong with its value.
    pub reason: String,
}

impl InvalidKey {
    fn new(key: &'static str, reason: impl ToString) -> Self {
        Self { key, reason: reason.to_string() }
    }

    /// The same, as a fault of the run file.
    pub(super) fn below(self, section: &str) -> ConfigError {
        ConfigError::invalid(format!("{section}.{}", self.key), self.reason)
    }
}

impl TableSection {
    /// Checks every range.
    ///
    /// # Errors
    /// The first key out of range.
    pub fn settings(&self) -> Result<NamedTable, InvalidKey> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || !self.name.chars().all(is_plain) {
            let reason = format!("{:?} is not 1 to {NAME_BYTES_MAX} letters, digits, '_' and '-'", self.name);
            return Err(InvalidKey::new("name", reason));
        }
        let table = TableSettings {
            selector: self.selector(),
            window: Window {
                items_min: self.window_items_min,
                exponent: self.window_exponent,
                slope: self.window_slope,
                capacity_items: self.capacity_items,
            },
            retention: self.retention()?,
            max_times_sampled: self.max_times_sampled,
        };
        let table = table.check().map_err(|error| InvalidKey::new(table_key(&error), error))?;
        let rate_limiter = RateLimiterSettings {
            samples_per_insert: self.samples_per_insert,
            min_items: self.min_items,
            error: self.error_items,
        };
        RateLimiter::new(rate_limiter).map_err(|error| InvalidKey::new(limiter_key(&error), error))?;
        if self.min_items > self.capacity_items {
            let reason = format!("{} items never fit the capacity of {}", self.min_items, self.capacity_items);
            return Err(InvalidKey::new("min_items", reason));
        }
        let (name, blocks_inserts) = (self.name.clone(), self.blocks_inserts);
        Ok(NamedTable { name, table, rate_limiter, blocks_inserts, section: self.clone() })
    }

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

    fn retention(&self) -> Result<Retention, InvalidKey> {
        let age_max = self.age_max_hours.map(|hours| {
            let age = Duration::try_from_secs_f64(hours * 3600.0).ok().filter(|age| !age.is_zero());
            age.ok_or_else(|| InvalidKey::new("age_max_hours", format!("{hours} hours is not a time above 0")))
        });
        let (trajectory_bytes_max, lag_versions_max) = (self.bytes_max, self.lag_versions_max);
        Ok(Retention { age_max: age_max.transpose()?, trajectory_bytes_max, lag_versions_max })
    }
}

impl TableSection {
    /// The same with what a change says; its ranges are checked by [`TableSection::settings`].
    ///
    /// # Errors
    /// A selector that there is not, or a number that is not finite.
    pub fn changed(mut self, change: &TableChange) -> Result<Self, InvalidKey> {
        fn set<T: Copy>(key: &mut T, value: Option<T>) {
            *key = value.unwrap_or(*key);
        }
        let numbers = [
            ("exponent", change.exponent),
            ("half_life_versions", change.half_life_versions),
            ("samples_per_insert", change.samples_per_insert),
            ("error_items", change.error_items),
            ("window_exponent", change.window_exponent),
            ("window_slope", change.window_slope),
            ("age_max_hours", change.age_max_hours),
        ];
        // The log keeps no others.
        if let Some((key, _)) = numbers.into_iter().find(|(_, number)| number.is_some_and(|number| !number.is_finite()))
        {
            return Err(InvalidKey::new(key, "is not finite"));
        }
        if let Some(name) = &change.selector {
            let selector = SelectorName::named(name);
            self.selector = selector.ok_or_else(|| InvalidKey::new("selector", format!("{name:?} is no selector")))?;
        }
        set(&mut self.exponent, change.exponent);
        set(&mut self.half_life_versions, change.half_life_versions);
        set(&mut self.min_items, change.min_items);
        set(&mut self.samples_per_insert, change.samples_per_insert);
        set(&mut self.error_items, change.error_items);
        set(&mut self.window_items_min, change.window_items_min);
        set(&mut self.window_exponent, change.window_exponent);
        set(&mut self.window_slope, change.window_slope);
        set(&mut self.capacity_items, change.capacity_items);
        set(&mut self.max_times_sampled, change.max_times_sampled.map(NonZeroU32::new));
        set(&mut self.age_max_hours, change.age_max_hours.map(|hours| Some(hours).filter(|&hours| hours != 0.0)));
        set(&mut self.bytes_max, change.bytes_max.map(|bytes| Some(bytes).filter(|&bytes| bytes > 0)));
        set(
            &mut self.lag_versions_max,
            change.lag.map(|lag| match lag {
                LagBound::Versions(versions) => Some(versions),
                LagBound::Unbounded => None,
            }),
        );
        Ok(self)
    }

    /// All of it, as a change says it.
    #[must_use]
    pub fn as_change(&self) -> TableChange {
        TableChange {
            table: self.name.clone(),
            selector: Some(self.selector.name().to_owned()),
            exponent: Some(self.exponent),
            half_life_versions: Some(self.half_life_versions),
            max_times_sampled: Some(self.max_times_sampled.map_or(0, NonZeroU32::get)),
            min_items: Some(self.min_items),
            samples_per_insert: Some(self.samples_per_insert),
            error_items: Some(self.error_items),
            window_items_min: Some(self.window_items_min),
            window_exponent: Some(self.window_exponent),
            window_slope: Some(self.window_slope),
            capacity_items: Some(self.capacity_items),
            age_max_hours: Some(self.age_max_hours.unwrap_or(0.0)),
            bytes_max: Some(self.bytes_max.unwrap_or(0)),
            lag: Some(self.lag_versions_max.map_or(LagBound::Unbounded, LagBound::Versions)),
        }
    }
}

impl SelectorName {
    const ALL: [Self; 7] =
        [Self::Uniform, Self::Prioritised, Self::Fifo, Self::Lifo, Self::MinHeap, Self::MaxHeap, Self::StalenessAware];

    fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Prioritised => "prioritised",
            Self::Fifo => "fifo",
            Self::Lifo => "lifo",
            Self::MinHeap => "min_heap",
            Self::MaxHeap => "max_heap",
            Self::StalenessAware => "staleness_aware",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|selector| selector.name() == name)
    }
}

/// A table that was changed while it served, as the log keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveTable {
    /// What the run file said then, as text: once it says something else, that holds.
    written: String,
    /// What the table holds to since.
    live: TableSection,
}

fn text(section: &TableSection) -> String {
    serde_json::to_string(section).expect("a section has numbers and text only")
}

impl LiveTable {
    /// As text, for the log.
    #[must_use]
    pub fn encode(written: &TableSection, live: TableSection) -> String {
        let table = Self { written: text(written), live };
        serde_json::to_string(&table).expect("a section has numbers and text only")
    }

    /// What is to hold for a table that the run file writes so, if what was saved says anything about it.
    #[must_use]
    pub fn restored(saved: &str, written: &TableSection) -> Option<NamedTable> {
        let table: Self = serde_json::from_str(saved).ok()?;
        // Ranges may have become narrower since.
        (table.written == text(written)).then(|| table.live.settings().ok()).flatten()
    }
}

fn table_key(error: &InvalidTable) -> &'static str {
    match error {
        InvalidTable::Selector(InvalidSelector::Exponent(_)) => "exponent",
        InvalidTable::Selector(InvalidSelector::HalfLife(_)) => "half_life_versions",
        InvalidTable::Window(InvalidWindow::Empty) => "window_items_min",
        InvalidTable::Window(InvalidWindow::Exponent(_)) => "window_exponent",
        InvalidTable::Window(InvalidWindow::Slope(_)) => "window_slope",
        InvalidTable::Window(InvalidWindow::Capacity { .. }) => "capacity_items",
    }
}

fn limiter_key(error: &InvalidRateLimiter) -> &'static str {
    match error {
        InvalidRateLimiter::SamplesPerInsert(_) => "samples_per_insert",
        InvalidRateLimiter::MinItems => "min_items",
        InvalidRateLimiter::Error { .. } => "error_items",
    }
}
