//! The study file of an ablation: switches, design and common settings of all runs. [`Study::read`] checks the whole
//! file, including every side of every switch and every run.

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};

use fleet::plan;
use games::GameKind;
use run_file::RunFile;
use run_file::learner::ScheduleKind;
use serde::Deserialize;
use serde_json::{Map, Value};
use service::ConfigError;

use super::design::{self, Arms, Kind, Pair, Run};
use super::rows::{COLUMNS_AFTER, COLUMNS_BEFORE};
use crate::tune::{self, Base, BaseSection, Budget, BudgetSection, StudyText, Values, sentence, settings_by_key};

/// Maximum number of seeds in a study.
const SEEDS_MAX: usize = 10_000;

/// The content of a study file, before checking.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyFile {
    #[serde(default)]
    study: StudySection,
    #[serde(default)]
    base: BaseSection,
    budget: BudgetSection,
    design: DesignSection,
    switches: BTreeMap<String, SwitchSection>,
    #[serde(default)]
    eval: EvalSection,
}

/// The section `[study]` of a study file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StudySection {
    name: Option<String>,
    seeds: Seeds,
    csv: Option<PathBuf>,
}

/// The setting `study.seeds` of a study file: a number of seeds, or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Seeds {
    /// Number of seeds, which are counted from 1.
    Count(u64),
    These(Vec<u64>),
}

impl Default for Seeds {
    fn default() -> Self {
        Self::Count(1)
    }
}

/// The section `[design]` of a study file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DesignSection {
    kind: Kind,
    arms: Option<Arms>,
}

/// A switch in a study file: the settings of the run for off and on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SwitchSection {
    off: Map<String, Value>,
    on: Map<String, Value>,
}

/// The section `[eval]` of a study file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EvalSection {
    positions: Option<PathBuf>,
    simulations: Option<u32>,
}

/// An ablation to run, from a checked study file.
#[derive(Debug)]
pub(super) struct Study {
    /// Name of the study, which is also the directory name below `--runs`.
    pub name: String,
    pub kind: Kind,
    pub base: Base,
    pub budget: Budget,
    pub switches: Vec<Switch>,
    pub pairs: Vec<Pair>,
    /// Path of the results file; `None` for `rows.csv` in the study directory.
    pub csv: Option<PathBuf>,
    /// Settings for measuring the final weights of each run; `None` if the game has no solved positions.
    pub eval: Option<Eval>,
}

/// A switch: a name, and the settings of the run for off and on.
#[derive(Debug)]
pub(super) struct Switch {
    pub name: String,
    /// Settings for off and on, by key of the run file.
    pub sides: [Values; 2],
}

/// Settings for measuring the accuracy of the final weights of a run.
#[derive(Debug, Clone)]
pub(super) struct Eval {
    /// File with solved positions; `None` for the built-in positions of the game.
    pub positions: Option<PathBuf>,
    /// Number of simulations per position.
    pub simulations: u32,
}

impl Study {
    /// Reads and checks the study file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or a key is missing, unknown or out of range; the error names the key.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let StudyText { file, stem, folder } = tune::read::<StudyFile>(path)?;
        let StudyFile { study, base, budget, design: DesignSection { kind, arms }, switches, eval } = file;
        let budget = Budget::new(&budget)?;
        if kind == Kind::Screen && arms.is_some() {
            return Err(ConfigError::invalid("design.arms", "applies only to pairs").into());
        }
        let seeds = match study.seeds {
            Seeds::Count(count) => (1..=count.min(SEEDS_MAX as u64 + 1)).collect(),
            Seeds::These(seeds) => seeds,
        };
        ConfigError::within("study.seeds", seeds.len(), 1..=SEEDS_MAX)?;
        let switches = checked_switches(switches, kind)?;
        let study = Self {
            name: study.name.unwrap_or(stem),
            kind,
            base: Base::new(base, budget, &folder)?,
            budget,
            pairs: design::pairs(kind, arms.unwrap_or(Arms::Each), switches.len(), &seeds),
            switches,
            csv: study.csv.map(|file| folder.join(file)),
            eval: None,
        };
        let config = study.check_runs()?;
        let is_measured = config.run.game.parse::<GameKind>().is_ok_and(|game| strength::solved::is_measured(&game));
        let simulations = eval.simulations.unwrap_or(config.arena.simulations);
        let positions = eval.positions.map(|file| folder.join(file));
        let eval = (is_measured || positions.is_some()).then_some(Eval { positions, simulations });
        Ok(Self { eval, ..study })
    }

    /// Checks that a run accepts the base settings, both sides of every switch and every combination in the design.
    /// Returns the configuration of the base.
    fn check_runs(&self) -> anyhow::Result<RunFile> {
        let refused = |key: String, error: &anyhow::Error| {
            ConfigError::invalid(key, format!("is refused: {}", service::chain(error)))
        };
        let checked = |values: &Values| -> anyhow::Result<RunFile> {
            let config = self.base.checked(values, self.budget, self.budget.full())?;
            if self.kind == Kind::Screen { check_clock(self.budget, &config).map(|()| config) } else { Ok(config) }
        };
        let config = checked(&Values::new())?;
        for Switch { name, sides } in &self.switches {
            // A side without settings equals the base, which is already checked.
            for (side, values) in ["off", "on"].iter().zip(sides).filter(|(_, values)| !values.is_empty()) {
                checked(values).map_err(|error| refused(format!("switches.{name}.{side}"), &error))?;
            }
        }
        // Combinations need no check against machine and clock. No key belongs to two switches, so that the checks
        // of the sides suffice.
        for Pair { number, seed, runs } in &self.pairs {
            for run in runs {
                let arguments = self.base.arguments(&self.values(run, *seed));
                plan::check_settings(&arguments, iter::empty())
                    .map_err(|error| refused(format!("row {number} {}", run.side), &error))?;
            }
        }
        Ok(config)
    }

    /// Returns the settings of a run in addition to the base, including the seed.
    pub(super) fn values(&self, run: &Run, seed: u64) -> Values {
        let sides = self.switches.iter().zip(&run.levels).map(|(switch, &is_on)| &switch.sides[usize::from(is_on)]);
        let set = sides.flatten().map(|(key, value)| (key.clone(), value.clone()));
        set.chain([("run.seed".to_owned(), Value::from(seed))]).collect()
    }

    /// Formats the names of the switches that are on in a run.
    pub(super) fn sentence(&self, run: &Run) -> String {
        let on =
            self.switches.iter().zip(&run.levels).filter(|(_, is_on)| **is_on).map(|(switch, _)| switch.name.as_str());
        let on: Vec<&str> = on.collect();
        if on.is_empty() { "all off".to_owned() } else { format!("{} on", on.join(", ")) }
    }

    /// Describes the study in readable lines, as printed by `--check`.
    pub(super) fn describe(&self) -> String {
        let Self { name, kind, budget, pairs, .. } = self;
        let together = if *kind == Kind::Screen { "both runs of a pair in parallel" } else { "one at a time" };
        let mut text =
            format!("study {name}: {}, {} pairs of runs of {budget}, {together}\n", kind.name(), pairs.len());
        for Switch { name, sides } in &self.switches {
            let [off, on] = sides
                .each_ref()
                .map(|values| if values.is_empty() { "as the base".to_owned() } else { sentence(values) });
            text += &format!("{name}: off: {off}; on: {on}\n");
        }
        for Pair { number, seed, runs: [first, second] } in pairs {
            let [of_first, of_second] = [first, second].map(|run| format!("{} ({})", run.side, self.sentence(run)));
            text += &format!("row {number}, seed {seed}: {of_first}, then {of_second}\n");
        }
        text += &match &self.eval {
            Some(Eval { positions, simulations }) => {
                let source = positions.as_ref().map_or("the game".to_owned(), |file| file.display().to_string());
                format!("accuracy: last weights, all solved positions of {source}, {simulations} simulations\n")
            }
            None => "accuracy: not measured (the game has no solved positions)\n".to_owned(),
        };
        text
    }
}

/// Checks that no setting makes the runs of a screen depend on the clock, and so on the load from the parallel run.
fn check_clock(budget: Budget, config: &RunFile) -> anyhow::Result<()> {
    let must = |is_met: bool, key: &str, reason: &str| match is_met {
        true => Ok(()),
        false => Err(ConfigError::invalid(key, format!("{reason} in a screen, which must not depend on the clock"))),
    };
    let RunFile { learner, selfplay, .. } = config;
    must(matches!(budget, Budget::Positions { .. }), "budget.positions", "must be set, with budget.minutes_max,")?;
    must(learner.schedule == ScheduleKind::Positions, "learner.schedule", "must be set to positions")?;
    must(selfplay.full_simulations_max == 0, "selfplay.full_simulations_max", "must be set to 0")?;
    must(learner.publish_interval_steps > 0, "learner.publish_interval_steps", "must be set above 0")?;
    Ok(())
}

fn checked_switches(written: BTreeMap<String, SwitchSection>, kind: Kind) -> Result<Vec<Switch>, ConfigError> {
    let most = if kind == Kind::Screen { design::COLUMNS } else { usize::MAX };
    ConfigError::within("switches", written.len(), 1..=most)?;
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    let mut switches = Vec::new();
    for (name, SwitchSection { off, on }) in written {
        let invalid = |reason: String| Err(ConfigError::invalid(format!("switches.{name}"), reason));
        if COLUMNS_BEFORE.iter().chain(&COLUMNS_AFTER).any(|column| *column == name) {
            return invalid("is the name of a column; choose another name".to_owned());
        }
        let sides = [off, on].map(|side| settings_by_key(&side, |_| true).into_iter().collect::<Values>());
        if sides[0] == sides[1] {
            return invalid("has the same settings off and on".to_owned());
        }
        for key in sides.iter().flat_map(Values::keys) {
            let owner = owners.entry(key.clone()).or_insert_with(|| name.clone());
            if *owner != name || key == "run.seed" {
                let other = if key == "run.seed" { "study.seeds" } else { owner.as_str() };
                return invalid(format!("sets {key}, which {other} also sets"));
            }
        }
        switches.push(Switch { name, sides });
    }
    Ok(switches)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: &str = r#"
study = { seeds = 2 }
budget = { positions = 20000, minutes_max = 5 }
design = { kind = "screen" }
[base]
game = "tic_tac_toe"
set = ["learner.schedule=positions", "learner.publish_interval_steps=50", "learner.batch_size=32"]
[switches]
batch = { off = {}, on = { "learner.batch_size" = 64 } }
greedy = { off = { selfplay.temperature_early = 0.5 }, on = { selfplay.temperature_early = 0.0 } }
"#;

    fn read(text: &str) -> anyhow::Result<Study> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("draws.toml");
        std::fs::write(&file, text).unwrap();
        Study::read(&file)
    }

    #[test]
    fn a_study_is_read_with_the_values_of_each_run_and_described() {
        let study = read(SCREEN).unwrap();
        assert_eq!((study.name.as_str(), study.pairs.len()), ("draws", 24));
        let Pair { seed, runs: [row, mirror], .. } = &study.pairs[23];
        assert_eq!((*seed, study.sentence(row)), (2, "all off".to_owned()));
        let config = study.base.checked(&study.values(mirror, *seed), study.budget, study.budget.full()).unwrap();
        assert_eq!((config.run.seed, config.learner.batch_size), (2, 64), "a switch replaces what the base sets");
        assert_eq!(config.selfplay.temperature_early, 0.0);
        let described = study.describe();
        assert!(
            described.contains("study draws: screen, 24 pairs of runs of 20000 positions, both runs"),
            "{described}"
        );
        assert!(described.contains("batch: off: as the base; on: learner.batch_size 64\n"), "{described}");
        assert!(described.contains("row 12, seed 1: + (all off), then - (batch, greedy on)\n"), "{described}");
        assert!(described.contains("accuracy: not measured"), "{described}");
    }

    #[test]
    fn a_wrong_field_is_refused_by_its_name_and_a_screen_by_what_follows_the_clock() {
        let cases = [
            ("seeds = 2", "seeds = 0", "study.seeds: is 0"),
            ("\"screen\"", "\"grid\"", "unknown variant `grid`"),
            ("kind = \"screen\"", "kind = \"screen\", arms = \"all\"", "design.arms: applies only to pairs"),
            ("positions = 20000, minutes_max = 5", "minutes = 5", "budget.positions: must be set"),
            ("\"learner.schedule=positions\", ", "", "learner.schedule: must be set to positions"),
            ("\"learner.publish_interval_steps=50\", ", "", "learner.publish_interval_steps: must be set above 0"),
            (
                "batch_size=32",
                "batch_size=32\", \"selfplay.full_simulations_max=99",
                "full_simulations_max: must be set to 0",
            ),
            ("batch_size\" = 64", "batch_size\" = 0", "switches.batch.on: is refused: learner.batch_size"),
            (
                "batch_size\" = 64",
                "schedule\" = \"minutes\"",
                "switches.batch.on: is refused: learner.schedule: must be",
            ),
            ("{ \"learner.batch_size\" = 64 }", "{}", "switches.batch: has the same settings off and on"),
            (
                "learner.batch_size\" = 64",
                "selfplay.temperature_early\" = 1",
                "sets selfplay.temperature_early, which batch also sets",
            ),
            (
                "learner.batch_size\" = 64",
                "run.seed\" = 1",
                "switches.batch: sets run.seed, which study.seeds also sets",
            ),
            ("batch = {", "seed = {", "switches.seed: is the name of a column"),
        ];
        for (part, replacement, expected) in cases {
            assert!(SCREEN.contains(part), "{part}");
            let error = service::chain(&read(&SCREEN.replace(part, replacement)).expect_err(replacement));
            assert!(error.contains(expected), "{error} is not {expected}");
        }
        let pairs = SCREEN.replace("screen", "pairs").replace("positions = 20000, minutes_max = 5", "minutes = 5");
        assert_eq!(read(&pairs.replace("\"learner.schedule=positions\", ", "")).unwrap().pairs.len(), 4);
    }

    #[test]
    fn the_study_of_the_guide_is_accepted() {
        let guide = include_str!("../../../docs/ablation.md");
        let (_, after) = guide.split_once("```toml\n").unwrap();
        let study = read(after.split_once("```").unwrap().0).unwrap();
        assert_eq!((study.pairs.len(), study.eval.unwrap().simulations), (12, 64));
    }
}
