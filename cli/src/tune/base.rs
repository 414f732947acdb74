//! The common part of study files for `tune` and `ablate`: the section `[base]`, with options of `zerofleet train`
//! for all runs of a study.

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
use service::ConfigError;

use super::budget::Budget;
use super::range::{Values, text};
use crate::screen::number;

/// A study file as written.
pub(crate) struct StudyText<F> {
    pub file: F,
    /// Stem of the file name, the default name of the study.
    pub stem: String,
    /// Directory of the file; paths in the file are relative to it.
    pub folder: PathBuf,
}

/// Reads the study file at `path`.
///
/// # Errors
/// The file cannot be read, or a key is missing or unknown; the error gives the place.
pub(crate) fn read<F: DeserializeOwned>(path: &Path) -> anyhow::Result<StudyText<F>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read the study file {}", path.display()))?;
    let file = service::config::parse_file(&path.display().to_string(), &text)?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(StudyText { file, stem, folder: path.parent().unwrap_or(Path::new("")).to_owned() })
}

/// The section `[base]`: options of `zerofleet train` for all trials.
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

/// Run options that all trials share.
#[derive(Debug, Clone)]
pub(crate) struct Base(Args);

impl Base {
    /// Checks the section. The name of a run file is relative to the directory of the study file.
    ///
    /// # Errors
    /// A key is invalid; the error names it.
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
            replay_servers,
            inference,
            run: None,
            runs: PathBuf::new(),
            config,
            sets: set,
        }))
    }

    /// Returns the options of `zerofleet train` for a run with these values.
    pub(crate) fn arguments(&self, values: &Values) -> Args {
        let sets = values.iter().map(|(key, value)| format!("{key}={}", text(value)));
        let sets = self.0.sets.iter().cloned().chain(sets).collect();
        Args { sets, ..self.0.clone() }
    }

    /// Returns the configuration of a run with these values. The run must start to train before trials are compared,
    /// at `compared` of the budget.
    ///
    /// # Errors
    /// The run refuses the values, or would train too late.
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
