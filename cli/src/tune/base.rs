//! The section `[base]` of study files, common to `zerofleet tune` and `zerofleet ablate`: the options of `zerofleet
//! train` for all runs of a study.

use std::iter;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum as _;
use fleet::Algorithm;
use fleet::plan::{self, Args};
use fleet::run_directory::Inference;
use run_file::RunFile;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use service::ConfigError;

use super::budget::Budget;
use super::range::{Values, text};
use crate::screen::number;

/// A parsed but unchecked study file, with name and directory.
pub(crate) struct StudyText<F> {
    pub file: F,
    /// File name without extension; the default name of the study.
    pub stem: String,
    /// Directory of the study file; paths in the file are relative to this directory.
    pub folder: PathBuf,
}

/// Reads and parses the study file at `path`.
///
/// # Errors
/// The file cannot be read, or a key is missing or unknown; the error gives file, line and column.
pub(crate) fn read<F: DeserializeOwned>(path: &Path) -> anyhow::Result<StudyText<F>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read the study file {}", path.display()))?;
    let file = service::config::parse_file(&path.display().to_string(), &text)?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(StudyText { file, stem, folder: path.parent().unwrap_or(Path::new("")).to_owned() })
}

/// Returns the settings in a table of a study file by key. A key with dots may be quoted or written as nested tables;
/// `is_nested` distinguishes these tables from settings.
pub(crate) fn settings_by_key(
    table: &Map<String, Value>,
    is_nested: fn(&Map<String, Value>) -> bool,
) -> Vec<(String, Value)> {
    let below = |(key, value): (&String, &Value)| match value {
        Value::Object(table) if is_nested(table) => {
            let settings = settings_by_key(table, is_nested).into_iter();
            settings.map(|(name, value)| (format!("{key}.{name}"), value)).collect()
        }
        value => vec![(key.clone(), value.clone())],
    };
    table.iter().flat_map(below).collect()
}

/// The section `[base]` of a study file: options of `zerofleet train` for all trials.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BaseSection {
    pub game: Option<String>,
    pub algorithm: Option<String>,
    pub config: Option<PathBuf>,
    pub actors: Option<usize>,
    pub replay_servers: Option<usize>,
    pub inference: Option<Inference>,
    pub set: Vec<String>,
}

/// The checked options of `zerofleet train` that all trials of a study share.
#[derive(Debug, Clone)]
pub(crate) struct Base(Args);

impl Base {
    /// Checks the section `[base]`. The path of a run file is relative to `folder`, the directory of the study file.
    ///
    /// # Errors
    /// A value is invalid; the error names the key.
    pub(crate) fn new(base: BaseSection, budget: Budget, folder: &Path) -> anyhow::Result<Self> {
        let BaseSection { game, algorithm, config, actors, replay_servers, inference, set } = base;
        let algorithm = algorithm.map(|name| {
            let names = || Algorithm::value_variants().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let reason = || format!("`{name}` is not an algorithm; algorithms are {}", names());
            Algorithm::from_str(&name, false).map_err(|_| ConfigError::invalid("base.algorithm", reason()))
        });
        if let Some(game) = &game {
            games::check_name(game).map_err(|error| ConfigError::invalid("base.game", error))?;
        }
        for (name, count) in [("actors", actors), ("replay_servers", replay_servers)] {
            if count == Some(0) {
                return Err(ConfigError::invalid(format!("base.{name}"), "must be at least 1").into());
            }
        }
        let config =
            config.map(|file| std::path::absolute(folder.join(file))).transpose().context("find base.config")?;
        Ok(Self(Args {
            minutes: Some(budget.run_minutes()),
            game,
            boards: Vec::new(),
            algorithm: algorithm.transpose()?,
            actors,
            learners: 1,
            learner: None,
            replay_servers,
            inference,
            run: None,
            runs: PathBuf::new(),
            config,
            sets: set,
        }))
    }

    /// Returns the options of `zerofleet train` for a run with these values of the tuned settings.
    pub(crate) fn arguments(&self, values: &Values) -> Args {
        let sets = values.iter().map(|(key, value)| format!("{key}={}", text(value)));
        let sets = self.0.sets.iter().cloned().chain(sets).collect();
        Args { sets, ..self.0.clone() }
    }

    /// Returns the options of every session of a run, which a run file cannot contain, such as `--minutes`.
    pub(super) fn session_options(options: &Args) -> Vec<(&'static str, String)> {
        let Args { minutes, actors, replay_servers, inference, .. } = options;
        let inference = inference.as_ref().and_then(clap::ValueEnum::to_possible_value);
        let written = [
            ("--minutes", minutes.map(|minutes| minutes.to_string())),
            ("--actors", actors.map(|actors| actors.to_string())),
            ("--replay-servers", replay_servers.map(|servers| servers.to_string())),
            ("--inference", inference.map(|inference| inference.get_name().to_owned())),
        ];
        written.into_iter().filter_map(|(option, value)| Some((option, value?))).collect()
    }

    /// Checks and returns the configuration of a run with these values of the tuned settings. Training must start
    /// before trials are first compared, when `compared` of the budget is used.
    ///
    /// # Errors
    /// The values are invalid in a run, or training would start too late.
    pub(crate) fn checked(&self, values: &Values, budget: Budget, compared: f64) -> anyhow::Result<RunFile> {
        let config = plan::check_new(&self.arguments(values), iter::empty())?;
        let min_items = config.replay.main.min_items;
        if matches!(budget, Budget::Positions { .. }) && compared < min_items as f64 {
            let reason = format!(
                "trials are first compared at {} positions, but training starts at {min_items} (replay.min_items)",
                number(Some(compared))
            );
            return Err(ConfigError::invalid("budget.positions", reason).into());
        }
        Ok(config)
    }
}
