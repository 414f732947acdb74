//! Tests of run files: presets and deployments of every game, and the page that lists all keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Parser as _;
use run_file::learner::BoardSection;
use run_file::replay::TableSection;
use run_file::{RunFile, actor, arena, inference, learner, replay};
use serde::Serialize;
use serde::de::DeserializeOwned;
use service::SecuritySection;
use service::config::{SECTIONS, Sources};
use toml::{Table, Value};

use super::{Args, Plan};

#[derive(clap::Parser)]
struct Train {
    #[command(flatten)]
    args: Args,
}

/// Sections and keys that depend on the deployment and length of a run. All other keys form the recipe.
const DEPLOYMENT: [&str; 18] = [
    "run.directory",
    "security",
    "telemetry",
    "actor.drain_seconds",
    "actor.identity",
    "actor.inference",
    "actor.inference_fallback",
    "actor.learner",
    "actor.replay",
    "actor.threads",
    "arena.cpu_share",
    "arena.weights",
    "inference.learner",
    "inference.threads",
    "learner.boards",
    "learner.replay",
    "learner.schedule_minutes",
    "replay.archive",
];
/// Further keys that deployment overlays set in the environment: device of a container, addresses of a learner group,
/// gate of an arena, and the game of compose.
const DEPLOYMENT_ENVIRONMENT: [&str; 9] = [
    "run.game",
    "arena.gate",
    "learner.device",
    "learner.group",
    "learner.group_trusted",
    "learner.index",
    "inference.device",
    "actor.device",
    "arena.device",
];

fn depends_on_deployment(key: &str) -> bool {
    DEPLOYMENT.iter().any(|other| key == *other || key.strip_prefix(other).is_some_and(|rest| rest.starts_with('.')))
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// The page that lists every key.
const PAGE: &str = include_str!("../../../../docs/configuration.md");

/// Returns the value of every key in the TOML sections, by name `section.key`.
fn keys_of(text: &str) -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    for (section, value) in text.parse::<Table>().unwrap() {
        match value {
            Value::Table(values) => {
                keys.extend(values.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)));
            }
            value => drop(keys.insert(section, value)),
        }
    }
    keys
}

/// Returns the recipe keys for `game` in a process with the configuration `C` and this run file.
fn recipe_of<C: Serialize + DeserializeOwned + Default>(file: &Path, game: &str) -> BTreeMap<String, String> {
    let sets = vec![format!("run.game={game}")];
    let sources = Sources { file: Some(file.to_owned()), env: std::iter::empty(), sets };
    let config: C = sources.read(games::preset).unwrap().load().unwrap();
    let keys = keys_of(&service::config::print(&config).unwrap()).into_iter();
    keys.map(|(key, value)| (key, value.to_string())).filter(|(key, _)| !depends_on_deployment(key)).collect()
}

/// Returns the recipe of every process.
fn recipes_of(file: &Path, game: &str) -> [BTreeMap<String, String>; 5] {
    [
        recipe_of::<actor::Config>(file, game),
        recipe_of::<learner::Config>(file, game),
        recipe_of::<replay::Config>(file, game),
        recipe_of::<arena::Config>(file, game),
        recipe_of::<inference::Config>(file, game),
    ]
}

/// Returns the run file that `zerofleet train` writes for `game`.
fn written_by_train(game: &str, runs: &Path) -> PathBuf {
    let Train { args } = Train::parse_from(["train", "--game", game, "--runs", runs.to_str().unwrap()]);
    let plan = Plan::new(&args, std::iter::empty()).unwrap();
    plan.run.create().unwrap();
    plan.write_config().unwrap();
    plan.run.config()
}

#[test]
fn train_compose_and_kubernetes_use_one_recipe_per_game_in_every_process() {
    let deployed = ["config/connect_four.toml", "config/tic_tac_toe.toml", "kubernetes/base/zerofleet.toml"];
    for game in games::GAMES.iter().flat_map(|entry| entry.examples()) {
        let runs = tempfile::tempdir().unwrap();
        let expected = recipes_of(&written_by_train(&game, runs.path()), &game);
        assert!(expected[0].contains_key("search.algorithm"), "{game}: {:?}", expected[0]);
        for file in deployed {
            assert_eq!(recipes_of(&deploy().join(file), &game), expected, "{game} with {file}");
        }
    }
}

#[test]
fn manifests_set_nothing_of_the_recipe_in_the_environment() {
    let mut folders = vec![deploy()];
    let mut set = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = std::fs::read_to_string(&path).unwrap();
                let names = text.split("ZEROFLEET__").skip(1).map(|rest| {
                    let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(rest.len());
                    rest[..end].to_lowercase().replace("__", ".")
                });
                set.extend(names);
            }
        }
    }
    assert!(set.contains("run.game") && set.contains("actor.inference"), "{set:?}");
    set.retain(|key| !depends_on_deployment(key) && !DEPLOYMENT_ENVIRONMENT.contains(&key.as_str()));
    assert_eq!(set, BTreeSet::new());
}

#[test]
fn the_preset_of_every_game_is_accepted_by_all_processes() {
    for game in games::GAMES.iter().flat_map(|entry| entry.examples()) {
        let sets = vec![format!("run.game={game}"), "actor.threads=1".to_owned()];
        let sources = Sources { file: None, env: std::iter::empty(), sets };
        let fleet: RunFile = sources.read(games::preset).unwrap().load().unwrap();
        fleet.check().unwrap();
    }
}

#[test]
fn alphazero_is_accepted_in_every_environment_with_rules_and_refused_in_one_without() {
    let alphazero = |game: &str| {
        let sets = vec![format!("run.game={game}"), "network.model=alphazero".to_owned()];
        let mut fleet: RunFile =
            Sources { file: None, env: std::iter::empty(), sets }.read(games::preset).unwrap().load().unwrap();
        (fleet.environment.actions, fleet.environment.planes, fleet.environment.steps_max) = (2, 4, 500);
        fleet.check().map_err(|error| error.to_string())
    };
    for game in [
        "catch",
        "cartpole-v0",
        "cartpole-v1",
        "keys_and_doors-6",
        "pendulum-5",
        "2048",
        "market_making",
        "breakout",
        "breakout-deterministic",
    ] {
        assert_eq!(alphazero(game), Ok(()), "{game}");
    }
    let refused = alphazero("gym:CartPole-v1").unwrap_err();
    assert!(refused.starts_with("network.model: gym:CartPole-v1 runs outside this program"), "{refused}");
}

#[test]
fn a_renamed_key_is_rejected_with_its_new_name_which_exists() {
    let load = |key: &str| {
        let sets = vec![format!("{key}=[]")];
        Sources { file: None, env: std::iter::empty(), sets }
            .layers()
            .unwrap()
            .load::<RunFile>()
            .unwrap_err()
            .to_string()
    };
    for (old, new) in service::config::RENAMED_KEYS {
        assert!(load(old).ends_with(&format!("it was renamed to {new}")), "{}", load(old));
        assert!(!load(new).starts_with("unknown"), "{}", load(new));
    }
    for (foreign, key) in service::config::FOREIGN_KEYS {
        assert!(load(foreign).ends_with(&format!("did you mean {key}?")), "{}", load(foreign));
        assert!(!load(key).starts_with("unknown"), "{}", load(key));
    }
}

#[test]
fn a_fleet_whose_processes_cannot_connect_to_each_other_is_rejected_by_the_missing_key() {
    let refused = |set: fn(&mut SecuritySection)| {
        let mut fleet = RunFile::default();
        set(&mut fleet.security);
        fleet.check().unwrap_err().to_string()
    };
    let tls = refused(|security| (security.certificate, security.key) = ("server.pem".into(), "server.key".into()));
    assert!(tls.starts_with("security.ca: is missing, but needed with security.certificate"), "{tls}");
    let tokens = refused(|security| security.tokens = "tokens".into());
    assert!(tokens.starts_with("security.token_file: is missing, but needed with security.tokens"), "{tokens}");
}

/// A key as listed on the page.
#[derive(Debug, PartialEq)]
struct ListedKey {
    /// The default; `None` for a key without a default.
    default: Option<Value>,
    /// The text after the default, which marks keys that the preset of some game sets.
    remark: &'static str,
}

const BY_GAME: &str = ", by the game";
const NO_DEFAULT: &str = "–";

/// Returns the default of every key of `sections`; `None` for an optional key without a value, which JSON has but
/// TOML omits.
fn defaults_of<C: Serialize>(sections: &C) -> BTreeMap<String, Option<Value>> {
    let printed = keys_of(&service::config::print(sections).unwrap());
    let named: BTreeMap<String, BTreeMap<String, serde_json::Value>> =
        serde_json::from_str(&serde_json::to_string(sections).unwrap()).unwrap();
    let names = named.iter().flat_map(|(section, keys)| keys.keys().map(move |key| format!("{section}.{key}")));
    names.map(|name| (name.clone(), printed.get(&name).cloned())).collect()
}

/// Returns the keys that the preset of some game sets.
fn keys_of_presets() -> BTreeSet<String> {
    let boards = games::GAMES.iter().flat_map(|entry| entry.examples());
    let names = boards.chain([format!("{}CartPole-v1", games::recorded::PREFIX)]);
    names.flat_map(|name| keys_of(games::preset(&name).unwrap()).into_keys()).collect()
}

/// Returns every key of a run file, as the page should list the key.
fn keys_of_run_files() -> BTreeMap<String, ListedKey> {
    let mut defaults = defaults_of(&RunFile::default());
    let of_main = |name: &str| name.replacen("replay.tables.", "replay.", 1);
    let mut of_table = defaults_of(&BTreeMap::from([("replay.tables", TableSection::default())]));
    // The page lists a key once if the table `main` also has it.
    of_table.retain(|name, default| defaults.get(&of_main(name)) != Some(&*default));
    defaults.extend(of_table);
    // Both keys of an entry are required.
    let board = BoardSection { game: String::new(), replay: String::new() };
    let of_board = defaults_of(&BTreeMap::from([("learner.boards", board)]));
    defaults.extend(of_board.into_keys().map(|name| (name, None)));
    let of_presets = keys_of_presets();
    let listed = |(name, default): (String, Option<Value>)| {
        let remark = match default {
            None => NO_DEFAULT,
            Some(_) if of_presets.contains(&name) => BY_GAME,
            Some(_) => "",
        };
        (name, ListedKey { default, remark })
    };
    defaults.into_iter().map(listed).collect()
}

/// Parses the tables of the page: rows of a key and a default in code, below the section heading.
fn listed_in(page: &'static str) -> BTreeMap<String, ListedKey> {
    let (mut keys, mut section) = (BTreeMap::new(), "");
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.trim_matches(['`', '[', ']']);
        }
        let Some((key, rest)) = line.strip_prefix("| `").and_then(|row| row.split_once("` | ")) else { continue };
        let Some((cell, _meaning)) = rest.split_once(" | ") else { panic!("a row without three cells: {line}") };
        let (default, remark) = match cell.strip_prefix('`').and_then(|cell| cell.split_once('`')) {
            Some((default, remark)) => (Some(format!("value = {default}").parse::<Table>().unwrap()), remark),
            None => (None, cell),
        };
        let listed = ListedKey { default: default.map(|mut table| table.remove("value").unwrap()), remark };
        assert_eq!(keys.insert(format!("{section}.{key}"), listed), None, "a second row: {line}");
    }
    keys
}

/// Describes every key that the page lacks, that does not exist, or that has another default in the code.
fn differences(page: &'static str) -> Vec<String> {
    let (in_code, in_page) = (keys_of_run_files(), listed_in(page));
    let names: BTreeSet<&String> = in_code.keys().chain(in_page.keys()).collect();
    let pairs = names.into_iter().map(|name| (name, in_code.get(name), in_page.get(name)));
    let different = pairs.filter(|(_, code, page)| code != page);
    different.map(|(name, code, page)| format!("{name}: the code has {code:?}, the page {page:?}")).collect()
}

#[test]
fn the_page_of_the_configuration_lists_every_key_with_its_default_and_no_other() {
    // An unknown key is missing in the printed defaults: no other list of keys exists.
    let keys = defaults_of(&RunFile::default());
    assert_eq!(keys.iter().find(|(_, default)| default.is_none()), None, "a key that no run file could set");
    let sections: BTreeSet<&str> = keys.keys().filter_map(|name| name.split('.').next()).collect();
    assert_eq!(sections, SECTIONS.iter().copied().collect::<BTreeSet<_>>());
    assert_eq!(differences(PAGE), [""; 0]);
}

#[test]
fn a_missing_row_a_row_without_a_key_and_another_default_are_found() {
    let changed = |from: &str, to: &str| {
        assert_eq!(PAGE.matches(from).count(), 1, "{from}");
        differences(PAGE.replace(from, to).leak())
    };
    for (from, to, name) in [
        ("| `seed` | `1` |", "| seed | `1` |", "run.seed"),
        ("| `seed` | `1` |", "| `seed` | `1.0` |", "run.seed"),
        ("| `trace_share` | `0.01` |", "| `trace_share` | `0.1` |", "telemetry.trace_share"),
        ("| `channels` | `64`, by the game |", "| `channels` | `64` |", "network.channels"),
        ("| `blocks_inserts` | `true` |", "| `blocks_inserts` | `false` |", "replay.tables.blocks_inserts"),
        ("| `otlp` |", "| `sampler` | `1` | |\n| `otlp` |", "telemetry.sampler"),
    ] {
        let found = changed(from, to);
        assert!(matches!(&found[..], [only] if only.starts_with(&format!("{name}: "))), "{from}: {found:?}");
    }
}
