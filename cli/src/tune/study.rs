//! The study file of `zerofleet tune`: tuned settings, objective and budget. [`Study::read`] checks the whole file, and
//! checks that the bounds of every range are valid in a run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use service::ConfigError;

use super::base::{self, Base, BaseSection, StudyText, settings_by_key};
use super::budget::{Budget, BudgetSection};
use super::halving::Halving;
use super::objective::Objective;
use super::range::{Range, Setting, Values, text};
use super::sampler::Sampler;
use crate::screen::number;

/// Keys of the run file that a study cannot tune, each with the reason.
const FIXED_KEYS: [(&str, &str); 3] = [
    ("run.game", "results of different games cannot be compared"),
    ("run.directory", "each trial has a separate directory"),
    ("learner.schedule_minutes", "it is set by [budget]"),
];

/// The content of a study file, before checking.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyFile {
    #[serde(default)]
    study: StudySection,
    #[serde(default)]
    base: BaseSection,
    objective: Objective,
    budget: BudgetSection,
    #[serde(default)]
    halving: HalvingSection,
    settings: Map<String, Value>,
}

/// The section `[study]` of a study file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StudySection {
    name: Option<String>,
    trials: usize,
    parallel: usize,
    seed: u64,
    sampler: Sampler,
    startup_trials: usize,
    failures_max: usize,
}

impl Default for StudySection {
    fn default() -> Self {
        Self {
            name: None,
            trials: 32,
            // Parallel trials slow each other down, which affects results unless the budget is in positions.
            parallel: 1,
            seed: 1,
            sampler: Sampler::Tpe,
            // As in Optuna: from fewer observations, the estimated density is mostly the prior.
            startup_trials: 10,
            failures_max: 3,
        }
    }
}

/// The section `[halving]` of a study file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HalvingSection {
    rungs: u32,
    reduction_factor: f64,
}

impl Default for HalvingSection {
    fn default() -> Self {
        // The ASHA paper uses a reduction factor of 4. With 3, more trials continue, which suits small studies.
        Self { rungs: 2, reduction_factor: 3.0 }
    }
}

/// A study to run, from a checked study file.
#[derive(Debug, Clone)]
pub(super) struct Study {
    /// Name of the study, which is also the directory name below `--runs`.
    pub name: String,
    /// Number of trials to run, including trials that are stopped early.
    pub trials: usize,
    /// Maximum number of parallel trials.
    pub parallel: usize,
    pub seed: u64,
    pub sampler: Sampler,
    /// Number of results that the sampler needs before it stops drawing at random.
    pub startup_trials: usize,
    /// Number of failed trials after which a study without results stops.
    pub failures_max: usize,
    pub objective: Objective,
    pub budget: Budget,
    pub halving: Halving,
    /// Tuned settings, sorted by key.
    pub settings: Vec<Setting>,
    pub base: Base,
    /// The part of the study file that must be unchanged when a study resumes.
    pub definition: Value,
}

impl Study {
    /// Reads and checks the study file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or a key is missing, unknown or out of range; the error names the key.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let StudyText { file, stem, folder } = base::read(path)?;
        Self::new(file, &stem, &folder)
    }

    /// Checks the content of a study file in the directory `folder`, with the file name `stem`.
    fn new(file: StudyFile, stem: &str, folder: &Path) -> anyhow::Result<Self> {
        let StudyFile { study, base, objective, budget, halving, settings } = file;
        ConfigError::within("study.trials", study.trials, 1..=100_000)?;
        ConfigError::within("study.parallel", study.parallel, 1..=1_000)?;
        ConfigError::within("study.startup_trials", study.startup_trials, 1..=100_000)?;
        ConfigError::within("study.failures_max", study.failures_max, 1..=100_000)?;
        let mut definition = json!({
            "study": {"seed": study.seed, "sampler": study.sampler, "startup_trials": study.startup_trials},
            "halving": halving,
            "objective": objective,
            "budget": budget,
            "settings": settings,
        });
        let budget = Budget::new(&budget)?;
        ConfigError::within("halving.rungs", halving.rungs, 0..=20)?;
        ConfigError::within("halving.reduction_factor", halving.reduction_factor, 1.5..=100.0)?;
        let halving = Halving::new(budget.full(), halving.rungs, halving.reduction_factor);
        let settings = checked_settings(&settings, &base)?;
        let base = Base::new(base, budget, folder)?;
        let config = base.checked(&Values::new(), budget, compared(budget, &halving))?;
        objective.check(&config.run.game)?;
        definition["base"] = Value::from(service::config::print(&config)?);
        let options = base.arguments(&Values::new());
        definition["base_options"] = json!([options.actors, options.replay_servers, options.inference]);
        let study = Self {
            name: study.name.unwrap_or_else(|| stem.to_owned()),
            trials: study.trials,
            parallel: study.parallel,
            seed: study.seed,
            sampler: study.sampler,
            startup_trials: study.startup_trials,
            failures_max: study.failures_max,
            objective,
            budget,
            halving,
            settings,
            base,
            definition,
        };
        study.check_ends()?;
        Ok(study)
    }

    /// Checks that a run accepts both bounds of every range and every choice, each with otherwise unchanged settings.
    fn check_ends(&self) -> anyhow::Result<()> {
        for setting in &self.settings {
            for end in setting.range.ends() {
                let shown = text(&end);
                let values = Values::from([(setting.key.clone(), end)]);
                let refused = |error: anyhow::Error| {
                    let reason = format!("{shown} is refused: {}", service::chain(&error));
                    ConfigError::invalid(field(&setting.key), reason)
                };
                self.base.checked(&values, self.budget, compared(self.budget, &self.halving)).map_err(refused)?;
            }
        }
        Ok(())
    }

    /// Describes the study in readable lines, as printed by `--check`.
    pub(super) fn describe(&self) -> String {
        let Self { name, trials, parallel, budget, objective, halving, sampler, .. } = self;
        let sampler = if *sampler == Sampler::Tpe { "by TPE" } else { "at random" };
        let (metric, direction) = (&objective.metric, objective.direction.name());
        let mut text = format!("study {name}: {trials} trials of {budget}, {parallel} at a time, proposed {sampler}\n");
        text += &format!("objective: {metric}, {direction}\n");
        let budgets: Vec<String> = halving.budgets.iter().map(|&budget| number(Some(budget))).collect();
        if !budgets.is_empty() {
            let (unit, factor) = (budget.unit(), halving.reduction_factor);
            text += &format!("rungs at {} {unit}, where the best 1/{factor} continue\n", budgets.join(", "));
        }
        for Setting { key, range } in &self.settings {
            text += &format!("{key}: {range}\n");
        }
        text
    }

    /// Checks that a resumed study has the same definition as at the start.
    ///
    /// # Errors
    /// A key differs; the error names the key and both values.
    pub(super) fn check_definition(&self, begun: &Value) -> Result<(), ConfigError> {
        let [before, now] = [begun, &self.definition].map(|definition| {
            let mut fields = BTreeMap::new();
            flatten(definition, "", &mut fields);
            fields
        });
        let missing = || "nothing".to_owned();
        for key in before.keys().chain(now.keys()) {
            let [before, now] = [&before, &now].map(|fields| fields.get(key).cloned().unwrap_or_else(missing));
            if before != now {
                let name = &self.name;
                let reason = format!(
                    "study {name} was started with {before}, not {now}; restore the value, or choose another study.name"
                );
                return Err(ConfigError::invalid(key, reason));
            }
        }
        Ok(())
    }
}

/// Returns the budget at which trials are first compared: the first rung, or else the full budget.
fn compared(budget: Budget, halving: &Halving) -> f64 {
    halving.budgets.first().copied().unwrap_or(budget.full())
}

/// Returns the name of a tuned setting in error messages.
fn field(key: &str) -> String {
    format!("settings.{key}")
}

/// Collects the keys of a definition, with values as text. The base configuration, which is TOML, gets an entry for
/// each line.
fn flatten(value: &Value, path: &str, fields: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(keys) => keys.iter().for_each(|(key, value)| flatten(value, &below(key), fields)),
        Value::String(text) if path == "base" => {
            let mut section = "";
            for line in text.lines() {
                if let Some(name) = line.strip_prefix('[') {
                    section = name.trim_end_matches(']');
                } else if let Some((key, value)) = line.split_once(" = ") {
                    fields.insert(below(&format!("{section}.{key}")), value.to_owned());
                }
            }
        }
        Value::Null => {}
        other => drop(fields.insert(path.to_owned(), other.to_string())),
    }
}

fn checked_settings(written: &Map<String, Value>, base: &BaseSection) -> Result<Vec<Setting>, ConfigError> {
    let mut ranges = BTreeMap::new();
    for (key, range) in settings_by_key(written, |table| !table.is_empty() && table.values().all(Value::is_object)) {
        if !range.is_object() {
            return Err(ConfigError::invalid(field(&key), "must be a range: {min = …, max = …} or {choices = […]}"));
        }
        if ranges.insert(key.clone(), range).is_some() {
            return Err(ConfigError::invalid(field(&key), "is set twice"));
        }
    }
    if ranges.is_empty() {
        return Err(ConfigError::invalid("settings", "contains no setting"));
    }
    let set: Vec<&str> = base.set.iter().filter_map(|set| Some(set.split_once('=')?.0.trim())).collect();
    let settings = ranges.into_iter().map(|(key, written)| {
        let field = field(&key);
        if let Some((_, reason)) = FIXED_KEYS.iter().find(|(fixed, _)| *fixed == key) {
            return Err(ConfigError::invalid(field, format!("cannot be tuned: {reason}")));
        }
        if set.contains(&key.as_str()) {
            return Err(ConfigError::invalid(field, "is also in base.set"));
        }
        let range = Range::new(&field, &written)?;
        Ok(Setting { key, range })
    });
    settings.collect()
}

#[cfg(test)]
mod tests;
