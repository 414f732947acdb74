//! Loads the configuration of a process from the run file that the whole fleet shares: a TOML table with a section
//! per role.
//!
//! A process describes the sections that it reads as a struct of structs with defaults. [`Sources::read`] applies the
//! preset of the game, the run file, the environment and the command line to these defaults, in this order, and
//! rejects unknown names. Sections of other roles are skipped, so that one file serves every process. This module is
//! deliberately independent of the meaning of keys.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

mod section;
#[cfg(test)]
mod tests;

pub use section::{Key, Section, above_to, check_range, describe};

/// Every section that a run file may have.
pub const SECTIONS: &[&str] = &[
    "run",
    "environment",
    "network",
    "search",
    "selfplay",
    "replay",
    "learner",
    "actor",
    "reanalysis",
    "arena",
    "inference",
    "security",
    "telemetry",
];

/// Prefix of environment variables that override the run file: `ZEROFLEET__SECTION__KEY`.
pub const ENVIRONMENT_PREFIX: &str = "ZEROFLEET__";

/// Start of a line of a run file that explains a value, by the program that wrote the file. A printed configuration
/// repeats these lines.
pub const NOTE: &str = "#: ";

/// Minimum similarity (Jaro-Winkler) for suggesting a name in place of a misspelt one.
const SIMILARITY_MIN: f64 = 0.7;

crate::section! {
    /// The section `[run]`, with the same values in all processes of a run.
    #[serde(deny_unknown_fields)]
    pub struct RunSection {
        /// Name of the game or environment: `tic_tac_toe`, `hex-11`, or `gym:LunarLander-v3` with a description in
        /// `[environment]`. `zerofleet train --help` lists the names.
        game: String = "connect_four".to_owned(), page "games.md";
        /// Further boards of the game that the network learns in the same run of `zerofleet train`, such as `["go-7"]`.
        /// They require `network.heads = "pooled"`.
        boards: Vec<String> = Vec::new(), page "networks.md#several-boards";
        /// Directory of the run, with checkpoints, replay, metrics and logs; `zerofleet train` sets `runs/NAME`.
        directory: PathBuf = PathBuf::from("runs/default");
        /// Seed from which every random draw of the run derives.
        seed: u64 = 1, page "deterministic.md#seeds-of-a-usual-run";
        /// γ, the discount of a reward or value per step into the future; 1 in games scored by the outcome.
        discount: f32 = 1.0, in above_to(0.0, 1.0);
    }
}

/// Returns true if an environment variable of this name overrides the run file.
pub fn is_override(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(ENVIRONMENT_PREFIX.as_bytes())
}

/// Renamed keys, as pairs of old and new name. An old name is rejected with the new name as a hint.
pub const RENAMED_KEYS: [(&str, &str); 8] = [
    ("inference.asks_max", "inference.requests_max"),
    ("learner.learning_rate_floor", "learner.learning_rate_ratio_min"),
    ("search.root", "search.algorithm"),
    ("search.first_play_reduction", "search.fpu_reduction"),
    ("search.gumbel_considered", "search.gumbel_considered_actions_max"),
    ("selfplay.full_share", "selfplay.full_search_probability"),
    ("selfplay.opening_share", "selfplay.random_opening_probability"),
    ("selfplay.resign_below", "selfplay.resign_threshold"),
];

/// Keys with another name in other programs or papers, as pairs of that name and the key. Such a name is rejected
/// with the key as a hint.
pub const FOREIGN_KEYS: [(&str, &str); 4] = [
    ("search.c_puct", "search.c_init"),
    ("search.cpuct", "search.c_init"),
    ("search.pb_c_init", "search.c_init"),
    ("search.pb_c_base", "search.c_base"),
];

/// A function from the name of a game to the preset in TOML: `games::preset` in the fleet.
pub type Preset<E> = fn(&str) -> Result<&'static str, E>;

/// The sources of a configuration. Later sources take precedence: defaults, preset, file, environment, `--set`.
#[derive(Debug)]
pub struct Sources<E> {
    /// The run file, if one was given.
    pub file: Option<PathBuf>,
    /// The environment. Only variables that start with [`ENVIRONMENT_PREFIX`] are read; other variables need not be
    /// UTF-8.
    pub env: E,
    /// Assignments `section.key=value` from the command line.
    pub sets: Vec<String>,
}

impl<E: Iterator<Item = (OsString, OsString)>> Sources<E> {
    /// Reads all sources once, with the preset of the configured game below them. Every process uses this function,
    /// so that the precedence is the same everywhere.
    ///
    /// # Errors
    /// [`ConfigError`] if a source cannot be read, or if `run.game` is not the name of a game.
    pub fn read<P: fmt::Display>(self, preset: Preset<P>) -> Result<Layers, ConfigError> {
        let layers = self.layers()?;
        let run = layers.load_over(&BTreeMap::from([("run".to_owned(), RunSection::default())]))?;
        let game = &run["run"].game;
        let text = preset(game).map_err(|error| ConfigError::invalid("run.game", error))?;
        let origin = format!("in the preset of {game}");
        let table = text.parse().map_err(|error| syntax(&origin, text, &error))?;
        Ok(Layers { preset: Some((table, origin)), ..layers })
    }

    /// Reads all sources once, without a preset.
    ///
    /// # Errors
    /// [`ConfigError`] if a source cannot be read.
    pub fn layers(self) -> Result<Layers, ConfigError> {
        let text = self.file.as_deref().map(text_of_file).transpose()?;
        let notes = text.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix(NOTE));
        let notes = notes.map(str::to_owned).collect();
        let table = |(path, text): (PathBuf, String)| {
            let table = text.parse::<Table>().map_err(|error| syntax(&path.display().to_string(), &text, &error));
            table.map(|table| (table, format!("in {}", path.display())))
        };
        let file = self.file.zip(text).map(table).transpose()?;
        // The environment is unordered; sorting makes the first reported error deterministic.
        let mut env: Vec<_> = self.env.filter(|(name, _)| is_override(name)).collect();
        env.sort();
        Ok(Layers { preset: None, file, notes, env, sets: self.sets })
    }
}

/// The sources of a configuration, read but not yet checked. Each load checks the sections of the loaded type.
#[derive(Debug)]
pub struct Layers {
    /// The preset, if any, with a description of the origin, as for `file`.
    preset: Option<(Table, String)>,
    file: Option<(Table, String)>,
    /// Notes of the file, without [`NOTE`].
    pub notes: Vec<String>,
    env: Vec<(OsString, OsString)>,
    sets: Vec<String>,
}

impl Layers {
    /// Applies the layers to the defaults of `T`. Keys in the sections of `T` are checked against the defaults: first
    /// the name, then the type, then by deserialising.
    ///
    /// # Errors
    /// A key is rejected; [`ConfigError`] names the first, with the source.
    pub fn load<T: Serialize + DeserializeOwned + Default>(&self) -> Result<T, ConfigError> {
        self.load_over(&T::default())
    }

    /// Applies the layers to `defaults`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_over<T: Serialize + DeserializeOwned>(&self, defaults: &T) -> Result<T, ConfigError> {
        let defaults = Table::try_from(defaults)?;
        self.reader(&defaults, self.preset.as_ref())?.apply()
    }

    /// Returns the keys of `defaults` that file, environment or `--set` set, as `section.key`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn given<T: Serialize>(&self, defaults: &T) -> Result<BTreeSet<String>, ConfigError> {
        let defaults = Table::try_from(defaults)?;
        let given = self.reader(&defaults, None)?.overrides;
        Ok(given.into_iter().map(|each| each.path.join(".")).collect())
    }

    /// Reads the values of all layers, with `preset` as the lowest.
    fn reader<'a>(&self, defaults: &'a Table, preset: Option<&(Table, String)>) -> Result<Reader<'a>, ConfigError> {
        let mut reader = Reader { defaults, overrides: Vec::new() };
        for (table, origin) in preset.into_iter().chain(&self.file) {
            reader.read_table(table, origin)?;
        }
        for (name, value) in &self.env {
            let (name, value) = (text_of(name, name)?, text_of(name, value)?);
            let path = name[ENVIRONMENT_PREFIX.len()..].to_lowercase();
            let path = path.split("__").map(str::to_owned).collect();
            reader.read_text(path, &value, &format!("in the environment variable {name}"))?;
        }
        for text in &self.sets {
            let assignment = text.split_once('=');
            let (key, value) = assignment.ok_or_else(|| ConfigError::NotAssignment { text: text.clone() })?;
            let path = key.trim().split('.').map(str::to_owned).collect();
            reader.read_text(path, value.trim(), &format!("in --set {text}"))?;
        }
        Ok(reader)
    }
}

fn text_of_file(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// Reads a TOML file other than a run file as a `T`, which determines the keys. `file` is the file name in errors.
///
/// # Errors
/// [`ConfigError::Syntax`] with the place in the file: `text` is not TOML, or not a `T`.
pub fn parse_file<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| syntax(file, text, &error))
}

/// Returns a part of the environment variable `name` as UTF-8 text.
fn text_of(name: &OsStr, part: &OsStr) -> Result<String, ConfigError> {
    let not_text = || ConfigError::NotText { name: name.to_string_lossy().into_owned() };
    part.to_str().map(str::to_owned).ok_or_else(not_text)
}

/// Returns the configuration as TOML, including defaults, as `--print-config` prints it. The text is also a valid run
/// file.
pub fn print<T: Serialize>(config: &T) -> Result<String, ConfigError> {
    Ok(toml::to_string(config)?)
}

/// A key with different values in two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Key, below the compared section.
    pub key: String,
    /// Value in the first configuration, as TOML.
    pub before: String,
    /// Value in the second configuration, as TOML.
    pub after: String,
}

/// Returns the keys of a section with different values, in alphabetical order.
///
/// # Errors
/// [`ConfigError::Defaults`] if a configuration cannot be written as TOML, which is a bug.
pub fn differences<T: Serialize>(before: &T, after: &T) -> Result<Vec<Difference>, ConfigError> {
    let (before, after) = (Table::try_from(before)?, Table::try_from(after)?);
    let differs = |(key, before): (&String, &Value)| {
        let after = after.get(key).filter(|&after| after != before)?;
        Some(Difference { key: key.clone(), before: before.to_string(), after: after.to_string() })
    };
    Ok(before.iter().filter_map(differs).collect())
}

/// A key of a configuration, next to the value in another configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// Section of the key.
    pub section: String,
    /// Key below the section.
    pub key: String,
    /// Value as TOML.
    pub value: String,
    /// Value in the other configuration, if it differs.
    pub other: Option<String>,
}

/// Returns all keys of a configuration, by section, next to the values in `other`.
///
/// # Errors
/// [`ConfigError::Defaults`] if a configuration cannot be written as TOML, which is a bug.
pub fn compared<T: Serialize>(config: &T, other: &T) -> Result<Vec<Compared>, ConfigError> {
    let (config, other) = (Table::try_from(config)?, Table::try_from(other)?);
    let sections = config.iter().filter_map(|(section, keys)| Some((section, keys.as_table()?)));
    let keys = sections.flat_map(|(section, keys)| keys.iter().map(move |(key, value)| (section, key, value)));
    let compare = |(section, key, value): (&String, &String, &Value)| {
        let other = other.get(section).and_then(|keys| keys.get(key)).filter(|&other| other != value);
        let (section, key, value) = (section.clone(), key.clone(), value.to_string());
        Compared { section, key, value, other: other.map(Value::to_string) }
    };
    Ok(keys.map(compare).collect())
}

/// A rejected configuration. Every variant names the key and the source.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The run file cannot be read.
    #[error("cannot read the run file {}{}", path.display(), crate::file_faults::remedy(path, source, ""))]
    Read {
        /// Path of the run file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The run file is not TOML.
    #[error("{file}:{line}:{column}: {message}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// Line number, from one.
        line: usize,
        /// Column number, from one.
        column: usize,
        /// Error of the parser.
        message: String,
    },
    /// An unknown section.
    #[error("unknown section [{section}] {origin}; {hint}")]
    UnknownSection {
        /// Section as written.
        section: String,
        /// Most similar valid name, or all valid names.
        hint: String,
        /// Description of the source.
        origin: String,
    },
    /// A key that the section does not have.
    #[error("unknown key {key} {origin}; {hint}")]
    UnknownKey {
        /// Key with the section.
        key: String,
        /// Most similar valid name, or all valid names.
        hint: String,
        /// Description of the source.
        origin: String,
    },
    /// A value where a section or a key was expected.
    #[error("{key} {origin} is outside any section; write section.key, sections are {sections}")]
    OutsideSection {
        /// Key as written.
        key: String,
        /// Names of all sections.
        sections: String,
        /// Description of the source.
        origin: String,
    },
    /// A value of the wrong type, or a value that the key does not accept.
    #[error("{key} {origin}: {reason}")]
    Refused {
        /// Key with the section.
        key: String,
        /// Reason for the rejection.
        reason: String,
        /// Description of the source.
        origin: String,
    },
    /// A negative number where none is possible.
    #[error("{key} {origin}: is {value}, must be at least 0")]
    Negative {
        /// Key with the section.
        key: String,
        /// The negative number.
        value: i64,
        /// Description of the source.
        origin: String,
    },
    /// A value out of range, found when the configuration became settings; see [`ConfigError::invalid`].
    #[error("{key}: {reason}")]
    Invalid {
        /// Key with the section.
        key: String,
        /// Reason for the rejection.
        reason: String,
    },
    /// An overriding environment variable with bytes that are not UTF-8.
    #[error("the environment variable {name} is not UTF-8")]
    NotText {
        /// Name of the variable, with invalid bytes replaced.
        name: String,
    },
    /// An argument of `--set` that is not `section.key=value`.
    #[error("--set {text}: expected section.key=value")]
    NotAssignment {
        /// Argument as given.
        text: String,
    },
    /// The defaults of this process cannot be written as TOML, which is a bug.
    #[error("cannot write the configuration as TOML")]
    Defaults {
        /// Error of the serialiser.
        #[from]
        source: toml::ser::Error,
    },
}

impl ConfigError {
    /// Rejects a value that is out of range: `invalid("learner.batch", "must be at least 1")`.
    pub fn invalid(key: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self::Invalid { key: key.into(), reason: reason.to_string() }
    }

    /// Returns `value` if it lies in `range`; NaN lies in no range.
    ///
    /// # Errors
    /// [`Invalid`](Self::Invalid) with the value and the range.
    pub fn within<T: PartialOrd + fmt::Display>(
        key: impl Into<String>,
        value: T,
        range: impl RangeBounds<T>,
    ) -> Result<T, Self> {
        if range.contains(&value) {
            return Ok(value);
        }
        Err(Self::invalid(key, format!("is {value}, must be {}", describe(&range))))
    }
}

/// One value that overrides a default.
struct Override {
    path: Vec<String>,
    value: Value,
    origin: String,
}

/// Collects the values that override the defaults, which define the valid keys and types.
struct Reader<'a> {
    defaults: &'a Table,
    overrides: Vec<Override>,
}

impl<'a> Reader<'a> {
    fn read_table(&mut self, table: &Table, origin: &str) -> Result<(), ConfigError> {
        for (section, value) in table {
            if !value.is_table() && !SECTIONS.contains(&section.as_str()) {
                return Err(outside_section(section, origin));
            }
            self.read_value(vec![section.clone()], value.clone(), origin)?;
        }
        Ok(())
    }

    /// Splits tables down to the keys of the defaults, so that each key is checked and reported separately.
    fn read_value(&mut self, path: Vec<String>, value: Value, origin: &str) -> Result<(), ConfigError> {
        let Some(default) = self.default_of(&path, origin)? else { return Ok(()) };
        match (default, value) {
            (Value::Table(_), Value::Table(table)) => {
                for (key, value) in table {
                    let path = path.iter().cloned().chain([key]).collect();
                    self.read_value(path, value, origin)?;
                }
            }
            (default, value) => {
                let value = conform(default, value).map_err(|got| wrong_type(&path, default, &got, origin))?;
                self.overrides.push(Override { path, value, origin: origin.to_owned() });
            }
        }
        Ok(())
    }

    fn read_text(&mut self, path: Vec<String>, text: &str, origin: &str) -> Result<(), ConfigError> {
        if path.len() < 2 && !SECTIONS.contains(&path[0].as_str()) {
            return Err(outside_section(&path.join("."), origin));
        }
        let Some(default) = self.default_of(&path, origin)? else { return Ok(()) };
        let value = parse(default, text).ok_or_else(|| wrong_type(&path, default, &format!("`{text}`"), origin))?;
        self.read_value(path, value, origin)
    }

    /// Returns the default at `path`; `None` inside a section of another role; an error if the name is unknown.
    fn default_of(&self, path: &[String], origin: &str) -> Result<Option<&'a Value>, ConfigError> {
        let (section, keys) = path.split_first().expect("a path names at least a section");
        let Some(mut default) = self.defaults.get(section) else {
            if SECTIONS.contains(&section.as_str()) {
                return Ok(None);
            }
            let hint = hint(section, SECTIONS.iter().copied(), "sections are");
            return Err(ConfigError::UnknownSection { section: section.clone(), hint, origin: origin.to_owned() });
        };
        for key in keys {
            let names = default.as_table();
            match names.and_then(|names| names.get(key)) {
                Some(found) => default = found,
                None => {
                    let names = names.into_iter().flat_map(|names| names.keys().map(String::as_str));
                    let path = path.join(".");
                    let in_table = |table: &[(&str, &'static str)]| {
                        table.iter().find(|(other, _)| *other == path).map(|(_, key)| *key)
                    };
                    let hint = match (in_table(&RENAMED_KEYS), in_table(&FOREIGN_KEYS)) {
                        (Some(new), _) => format!("it was renamed to {new}"),
                        (None, Some(key)) => format!("did you mean {key}?"),
                        (None, None) => hint(key, names, &format!("[{section}] has")),
                    };
                    return Err(ConfigError::UnknownKey { key: path, hint, origin: origin.to_owned() });
                }
            }
        }
        Ok(Some(default))
    }

    fn apply<T: DeserializeOwned>(self) -> Result<T, ConfigError> {
        let mut table = self.defaults.clone();
        for each in &self.overrides {
            lay(&mut table, &each.path, each.value.clone());
        }
        table.try_into().map_err(|error: toml::de::Error| self.blame::<T>(&error))
    }

    /// Finds the override that the deserialiser rejects by trying each separately, because the deserialiser's error
    /// names no source.
    fn blame<T: DeserializeOwned>(self, error: &toml::de::Error) -> ConfigError {
        for Override { path, value, origin } in self.overrides {
            let mut table = self.defaults.clone();
            lay(&mut table, &path, value.clone());
            if let Err(error) = table.try_into::<T>() {
                if let Value::Integer(value @ ..0) = value {
                    return ConfigError::Negative { key: path.join("."), value, origin };
                }
                let reason = error.message().trim_end().to_owned();
                return ConfigError::Refused { key: path.join("."), reason, origin };
            }
        }
        ConfigError::Invalid { key: "configuration".to_owned(), reason: error.message().trim_end().to_owned() }
    }
}

/// Sets `value` at `path`; every table on the path exists, because the path was checked against the defaults.
fn lay(table: &mut Table, path: &[String], value: Value) {
    let (last, parents) = path.split_last().expect("a path names at least a section");
    let mut table = table;
    for key in parents {
        table = table.get_mut(key).and_then(Value::as_table_mut).expect("the path was checked against the defaults");
    }
    table.insert(last.clone(), value);
}

/// Converts a value to the type of the default, or describes a value of another type. Integers are accepted as floats.
fn conform(default: &Value, value: Value) -> Result<Value, String> {
    match (default, value) {
        // Integers that a float cannot represent exactly are beyond 2^53; no key needs them.
        (Value::Float(_), Value::Integer(whole)) => Ok(Value::Float(whole as f64)),
        (default, value) if default.same_type(&value) => Ok(value),
        (_, value) => Err(format!("{} {value}", type_name(&value))),
    }
}

/// Parses text from the environment or the command line as the type of the default.
fn parse(default: &Value, text: &str) -> Option<Value> {
    match default {
        Value::String(_) => {
            let quoted = text.len() >= 2 && text.starts_with(['"', '\'']);
            if quoted { parse_toml(text).filter(Value::is_str) } else { Some(Value::String(text.to_owned())) }
        }
        _ => parse_toml(text),
    }
}

fn parse_toml(text: &str) -> Option<Value> {
    // A newline could add a second key; only a single value is valid.
    if text.contains('\n') {
        return None;
    }
    format!("value = {text}").parse::<Table>().ok()?.remove("value")
}

fn wrong_type(path: &[String], default: &Value, got: &str, origin: &str) -> ConfigError {
    let reason = format!("expected {}, got {got}", type_name(default));
    ConfigError::Refused { key: path.join("."), reason, origin: origin.to_owned() }
}

fn outside_section(key: &str, origin: &str) -> ConfigError {
    ConfigError::OutsideSection { key: key.to_owned(), sections: SECTIONS.join(", "), origin: origin.to_owned() }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// Returns "did you mean x?", or the list of valid names if none is similar.
fn hint<'a>(wrong: &str, names: impl Iterator<Item = &'a str>, all: &str) -> String {
    let names: Vec<&str> = names.collect();
    let similarity = |name: &str| strsim::jaro_winkler(&wrong.to_lowercase(), name);
    match names.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b))) {
        None => "no key exists at this place".to_owned(),
        Some(name) if similarity(name) >= SIMILARITY_MIN => format!("did you mean {name}?"),
        Some(_) => format!("{all} {}", names.join(", ")),
    }
}

fn syntax(file: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    let message = error.message().replace('\n', "; ");
    ConfigError::Syntax { file: file.to_owned(), line, column, message }
}
