use serde::Deserialize;
use std::os::unix::ffi::OsStringExt as _;

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize, Default)]
struct Fleet {
    run: RunSection,
    learner: Learner,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Learner {
    batch: u32,
    learning_rate: f32,
    augment: bool,
    optimiser: Optimiser,
    milestones: Vec<u64>,
    ema: Ema,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Ema {
    decay: f64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Optimiser {
    AdamW,
    Sgd,
}

impl Default for Learner {
    fn default() -> Self {
        Self {
            batch: 256,
            learning_rate: 0.1,
            augment: true,
            optimiser: Optimiser::Sgd,
            milestones: vec![],
            ema: Ema::default(),
        }
    }
}

impl Default for Ema {
    fn default() -> Self {
        Self { decay: 0.99 }
    }
}

fn load(file: &str, env: &[(&str, &str)], sets: &[&str]) -> Result<Fleet, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.toml");
    std::fs::write(&path, file).unwrap();
    let env = env.iter().map(|(name, value)| (name.into(), value.into()));
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let loaded = Sources { file: Some(path.clone()), env, sets }.layers().and_then(|layers| layers.load());
    loaded.map_err(|error| error.to_string().replace(&path.display().to_string(), "run.toml"))
}

/// Formats one rejection per line, so that the wording can be reviewed together.
#[allow(clippy::type_complexity, reason = "a table of cases: file, environment, assignments")]
fn refusals(cases: &[(&str, &[(&str, &str)], &[&str])]) -> String {
    let lines = cases.iter().map(|(file, env, sets)| load(file, env, sets).unwrap_err());
    lines.map(|line| line + "\n").collect()
}

#[test]
fn later_sources_win() {
    assert_eq!(load("", &[], &[]).unwrap(), Fleet::default());
    let file =
        "[learner]\nbatch = 1\nlearning_rate = 2\naugment = false\noptimiser = 'adam_w'\n[learner.ema]\ndecay = 1";
    let env = [("ZEROFLEET__LEARNER__BATCH", "7"), ("ZEROFLEET__LEARNER__EMA__DECAY", "0.5"), ("HOME", "/")];
    let fleet = load(file, &env, &["learner.batch=9", "learner.milestones=[1, 2]", "run.game=hex=5"]).unwrap();
    let learner = Learner {
        batch: 9,
        learning_rate: 2.0,
        augment: false,
        optimiser: Optimiser::AdamW,
        milestones: vec![1, 2],
        ema: Ema { decay: 0.5 },
    };
    assert_eq!(fleet, Fleet { run: RunSection { game: "hex=5".to_owned(), ..RunSection::default() }, learner });
}

#[test]
fn keys_are_given_by_file_environment_and_assignments_in_any_form_and_not_by_the_preset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.toml");
    std::fs::write(&path, "#: learner.ema.decay = 1 for a test\n[learner.ema]\ndecay = 1\n# a comment").unwrap();
    let variable: (OsString, OsString) = ("ZEROFLEET__LEARNER__AUGMENT".into(), "true".into());
    let env = std::iter::once(variable);
    let sets = ["run.game=hex-5", "learner = { batch = 7 }"].map(str::to_owned).to_vec();
    let layers = Sources { file: Some(path), env, sets }.read(preset).unwrap();
    let given: Vec<String> = layers.given(&Fleet::default()).unwrap().into_iter().collect();
    assert_eq!(given, ["learner.augment", "learner.batch", "learner.ema.decay", "run.game"]);
    assert_eq!(layers.notes, ["learner.ema.decay = 1 for a test"]);
    let none = Sources { file: None, env: std::iter::empty(), sets: vec!["run.game=hex-5".to_owned()] };
    let layers = none.read(preset).unwrap();
    assert!(!layers.given(&Fleet::default()).unwrap().contains("learner.batch") && layers.notes.is_empty());
}

#[test]
fn sections_of_other_roles_are_ignored() {
    let file = "[actor]\nanything = 1\n[arena.deep]\nx = [1]";
    let env = [("ZEROFLEET__ACTOR__THREADS", "many")];
    assert_eq!(load(file, &env, &["search.simulations=no number"]).unwrap(), Fleet::default());
}

#[test]
fn a_printed_configuration_loads_as_the_same_configuration() {
    let mut fleet = Fleet::default();
    fleet.learner.learning_rate = 0.3;
    fleet.run.seed = 17;
    assert!(print(&fleet).unwrap().contains("learning_rate = 0.3\n"));
    assert_eq!(load(&print(&fleet).unwrap(), &[], &[]).unwrap(), fleet);
}

#[test]
fn strings_may_be_quoted_or_bare() {
    for text in ["run.game=hex11", "run.game=\"hex11\"", "run.game = 'hex11'"] {
        assert_eq!(load("", &[], &[text]).unwrap().run.game, "hex11");
    }
}

#[test]
fn wrong_names_are_refused_with_the_nearest_right_one_and_where_they_were_written() {
    let got = refusals(&[
        ("[learner]\nbacth = 3", &[], &[]),
        ("[lerner]\nbatch = 3", &[], &[]),
        ("[zzz]\nbatch = 3", &[], &[]),
        ("batch = 3", &[], &[]),
        ("[learner.ema]\ndeacy = 3", &[], &[]),
        ("", &[("ZEROFLEET__LEARNER__BATCHES", "3")], &[]),
        ("", &[("ZEROFLEET__LEARN__BATCH", "3")], &[]),
        ("", &[("ZEROFLEET__BATCH", "3")], &[]),
        ("", &[], &["learner.q=3"]),
        ("", &[], &["learner.batch.size=3"]),
        ("", &[], &["batch=3"]),
        ("", &[], &["learner.batch"]),
    ]);
    assert_eq!(
        got,
        "\
unknown key learner.bacth in run.toml; did you mean batch?
unknown section [lerner] in run.toml; did you mean learner?
unknown section [zzz] in run.toml; sections are run, environment, network, search, selfplay, replay, learner, actor, reanalysis, arena, inference, security, telemetry
batch in run.toml is outside any section; write section.key, sections are run, environment, network, search, selfplay, replay, learner, actor, reanalysis, arena, inference, security, telemetry
unknown key learner.ema.deacy in run.toml; did you mean decay?
unknown key learner.batches in the environment variable ZEROFLEET__LEARNER__BATCHES; did you mean batch?
unknown section [learn] in the environment variable ZEROFLEET__LEARN__BATCH; did you mean learner?
batch in the environment variable ZEROFLEET__BATCH is outside any section; write section.key, sections are run, environment, network, search, selfplay, replay, learner, actor, reanalysis, arena, inference, security, telemetry
unknown key learner.q in --set learner.q=3; [learner] has augment, batch, ema, learning_rate, milestones, optimiser
unknown key learner.batch.size in --set learner.batch.size=3; no key exists at this place
batch in --set batch=3 is outside any section; write section.key, sections are run, environment, network, search, selfplay, replay, learner, actor, reanalysis, arena, inference, security, telemetry
--set learner.batch: expected section.key=value
"
    );
}

#[test]
fn wrong_values_are_refused_with_what_was_expected_and_what_was_got() {
    let got = refusals(&[
        ("[learner]\nbatch = 'many'", &[], &[]),
        ("[learner]\nbatch = 2.5", &[], &[]),
        ("[learner]\nema = 3", &[], &[]),
        ("learner = 3", &[], &[]),
        ("[run]\ngame = 4", &[], &[]),
        ("", &[("ZEROFLEET__LEARNER__AUGMENT", "yes")], &[]),
        ("", &[("ZEROFLEET__LEARNER", "3")], &[]),
        ("", &[], &["learner.learning_rate=fast"]),
        ("", &[], &["learner.batch=1\nseed = 2"]),
        ("", &[], &["learner.batch="]),
        // The type is right, but the value is not valid for the key; the reason is the deserialiser's message.
        ("[learner]\naugment = false\nbatch = -1", &[], &[]),
        ("", &[], &["learner.augment=false", "learner.optimiser=adam"]),
    ]);
    assert_eq!(
        got,
        "\
learner.batch in run.toml: expected a whole number, got a string \"many\"
learner.batch in run.toml: expected a whole number, got a number 2.5
learner.ema in run.toml: expected a table, got a whole number 3
learner in run.toml: expected a table, got a whole number 3
run.game in run.toml: expected a string, got a whole number 4
learner.augment in the environment variable ZEROFLEET__LEARNER__AUGMENT: expected true or false, got `yes`
learner in the environment variable ZEROFLEET__LEARNER: expected a table, got a whole number 3
learner.learning_rate in --set learner.learning_rate=fast: expected a number, got `fast`
learner.batch in --set learner.batch=1
seed = 2: expected a whole number, got `1
seed = 2`
learner.batch in --set learner.batch=: expected a whole number, got ``
learner.batch in run.toml: is -1, must be at least 0
learner.optimiser in --set learner.optimiser=adam: unknown variant `adam`, expected `adam_w` or `sgd`
"
    );
}

#[test]
fn only_keys_with_other_values_differ() {
    let before = Learner::default();
    let after = Learner { batch: before.batch + 1, augment: !before.augment, ..Learner::default() };
    assert_eq!(differences(&before, &before).unwrap(), []);
    let differs = differences(&before, &after).unwrap();
    let found: Vec<_> = differs.iter().map(|d| (d.key.as_str(), d.after.clone())).collect();
    assert_eq!(found, [("augment", after.augment.to_string()), ("batch", after.batch.to_string())]);
    assert_eq!(differs[1].before, before.batch.to_string());
}

#[test]
fn every_key_is_compared_and_only_another_value_stands_next_to_it() {
    let (config, mut preset) = (Fleet::default(), Fleet::default());
    preset.learner.batch += 1;
    let keys = compared(&config, &preset).unwrap();
    let find = |section: &str, key: &str| keys.iter().find(|each| each.section == section && each.key == key).unwrap();
    assert_eq!(find("learner", "batch").other, Some(preset.learner.batch.to_string()));
    assert_eq!((find("learner", "augment").value.as_str(), &find("run", "seed").other), ("true", &None));
    assert_eq!(keys.iter().filter(|each| each.other.is_some()).count(), 1);
}

/// Returns the preset of `hex-5`, and none for other games.
fn preset(game: &str) -> Result<&'static str, String> {
    match game {
        "hex-5" => Ok("[learner]\nbatch = 5\naugment = false\n[search]\nanything = 1"),
        "hex-6" => Ok("[learner]\nbacth = 5"),
        "hex-7" => Ok("[learner"),
        _ => Err(format!("`{game}` is not a game")),
    }
}

fn load_with_preset(sets: &[&str]) -> Result<Fleet, String> {
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let sources = Sources { file: None, env: std::iter::empty(), sets };
    sources.read(preset).and_then(|layers| layers.load()).map_err(|error| error.to_string())
}

#[test]
fn the_preset_of_the_game_lies_between_the_defaults_and_every_other_source() {
    let fleet = load_with_preset(&["run.game=hex-5", "learner.batch=9"]).unwrap();
    let learner = Learner { batch: 9, augment: false, ..Learner::default() };
    assert_eq!(fleet, Fleet { run: RunSection { game: "hex-5".to_owned(), ..RunSection::default() }, learner });
}

#[test]
fn a_game_without_a_preset_and_a_broken_preset_are_refused_by_name() {
    assert_eq!(load_with_preset(&["run.game=chess"]).unwrap_err(), "run.game: `chess` is not a game");
    assert_eq!(
        load_with_preset(&["run.game=hex-6"]).unwrap_err(),
        "unknown key learner.bacth in the preset of hex-6; did you mean batch?"
    );
    let error = load_with_preset(&["run.game=hex-7"]).unwrap_err();
    assert!(error.starts_with("in the preset of hex-7:1:"), "{error}");
}

/// Bytes that are not valid UTF-8.
const NOT_TEXT: &[u8] = b"\xff";

/// Loads a configuration from an environment with these variables, given as bytes.
fn environment(variables: &[(&str, &[u8])]) -> Result<Fleet, String> {
    let env = variables.iter().map(|(name, value)| (name.into(), OsString::from_vec(value.to_vec())));
    let layers = Sources { file: None, env, sets: vec![] }.layers();
    layers.and_then(|layers| layers.load()).map_err(|error| error.to_string())
}

#[test]
fn environment_variables_of_other_programs_need_not_be_utf8() {
    let fleet = environment(&[("X", NOT_TEXT), ("ZEROFLEET__RUN__GAME", b"hex-5")]).unwrap();
    assert_eq!(fleet.run.game, "hex-5");
}

#[test]
fn a_value_that_is_not_text_is_refused_by_the_name_of_its_variable() {
    let error = environment(&[("ZEROFLEET__RUN__GAME", NOT_TEXT)]).unwrap_err();
    assert_eq!(error, "the environment variable ZEROFLEET__RUN__GAME is not UTF-8");
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_line_and_column() {
    let error = load("[learner]\nbatch = = 3", &[], &[]).unwrap_err();
    assert!(error.starts_with("run.toml:2:9: "), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let sources = Sources { file: Some("nowhere/run.toml".into()), env: std::iter::empty(), sets: vec![] };
    let error = sources.layers().unwrap_err();
    assert_eq!(error.to_string(), "cannot read the run file nowhere/run.toml");
}

#[test]
fn a_file_that_is_no_run_file_is_read_by_its_type_and_errors_have_their_place() {
    let parse = |text: &str| parse_file::<Ema>("other.toml", text).map_err(|error| error.to_string());
    assert_eq!(parse("decay = 0.5").unwrap(), Ema { decay: 0.5 });
    let error = parse("\ndecoy = 0.5").unwrap_err();
    assert!(error.starts_with("other.toml:2:1: unknown field `decoy`, expected `decay`"), "{error}");
    let error = parse("decay = 'much'").unwrap_err();
    assert!(error.starts_with("other.toml:1:9: invalid type: string"), "{error}");
}

crate::section! {
    /// The section `[heat]`.
    #[expect(unreachable_pub, reason = "declared sections are public")]
    pub struct HeatSection {
        /// Temperature in degrees Celsius.
        celsius: u32 = 180, in 50..=250, page "ovens.md#heat";
    }
}

crate::section! {
    /// The section `[oven]`.
    #[serde(deny_unknown_fields)]
    #[expect(unreachable_pub, reason = "declared sections are public")]
    pub struct OvenSection {
        flatten heat: HeatSection;
        /// Share of the steam, more than
        /// none.
        steam: f64 = 0.5, in above_to(0.0, 1.0);
        /// Weight of each dish, in grams.
        dishes: Vec<u32> = vec![500], in 1..;
        /// Name of the cook.
        cook: String = String::new();
    }
}

#[test]
fn a_declaration_gives_a_section_its_defaults_its_keys_and_its_ranges() {
    let oven = OvenSection::default();
    assert_eq!((oven.heat.celsius, oven.steam, oven.dishes.as_slice()), (180, 0.5, &[500][..]));
    let key = |name: &str| OvenSection::keys().into_iter().find(|key| key.name == name).unwrap();
    assert_eq!(OvenSection::keys().len(), 4);
    assert_eq!((key("celsius").range.as_deref(), key("celsius").page), (Some("from 50 to 250"), Some("ovens.md#heat")));
    assert_eq!(key("steam").doc, "Share of the steam, more than none.");
    assert_eq!((key("dishes").range.as_deref(), key("cook").range), (Some("at least 1"), None));

    let refused = |set: fn(&mut OvenSection)| {
        let mut oven = OvenSection::default();
        set(&mut oven);
        oven.check_ranges("oven").unwrap_err().to_string()
    };
    assert_eq!(oven.check_ranges("oven").map_err(|error| error.to_string()), Ok(()));
    assert_eq!(refused(|oven| oven.heat.celsius = 300), "oven.celsius: is 300, must be from 50 to 250");
    assert_eq!(refused(|oven| oven.steam = f64::NAN), "oven.steam: is NaN, must be above 0 and at most 1");
    assert_eq!(refused(|oven| oven.dishes = vec![1, 0]), "oven.dishes: is 0, must be at least 1");
}
