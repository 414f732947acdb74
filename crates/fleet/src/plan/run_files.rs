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
use service::config::{Key, SECTIONS, Sources};
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

/// Returns the keys that the preset of some game sets.
fn keys_of_presets() -> BTreeSet<String> {
    let boards = games::GAMES.iter().flat_map(|entry| entry.examples());
    let names = boards.chain([format!("{}CartPole-v1", games::recorded::PREFIX)]);
    names.flat_map(|name| keys_of(games::preset(&name).unwrap()).into_keys()).collect()
}

/// Returns the default of every key, by name `section.key`.
fn defaults() -> BTreeMap<String, Value> {
    let file = service::config::print(&RunFile::default()).unwrap();
    let table = service::config::print(&TableSection::default()).unwrap();
    let board = service::config::print(&BoardSection::default()).unwrap();
    let lists = [format!("[\"replay.tables\"]\n{table}"), format!("[\"learner.boards\"]\n{board}")];
    lists.into_iter().chain([file]).flat_map(|text| keys_of(&text)).collect()
}

/// Returns the rows of the table of keys that the page shows below a section's heading.
fn rows(section: &str) -> Vec<String> {
    let (defaults, of_presets, sections) = (defaults(), keys_of_presets(), RunFile::keys());
    let keys = |section: &str| &sections.iter().find(|(name, _)| *name == section).unwrap().1;
    // An entry of `[[replay.tables]]` has the keys of the table `main` as well, which the page lists once.
    let is_listed = |key: &&Key| section != "replay.tables" || !keys("replay").contains(key);
    let row = |Key { name, doc, range, page }: &Key| {
        let full = format!("{section}.{name}");
        let by_game = if of_presets.contains(&full) { ", by the game" } else { "" };
        let range = range.as_deref().unwrap_or_default();
        let range = range.strip_prefix("from ").unwrap_or(range);
        let page = page.map(|page| format!(" ([more]({page}))")).unwrap_or_default();
        format!("| `{name}` | `{}`{by_game} | {range} | {doc}{page} |", defaults[&full])
    };
    let header = ["| key | default | range | meaning |".to_owned(), "|---|---|---|---|".to_owned()];
    header.into_iter().chain(keys(section).iter().filter(is_listed).map(row)).collect()
}

/// Returns the page with the tables of all keys as declared.
fn generated(page: &str) -> String {
    let (mut lines, mut section) = (Vec::new(), "");
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.trim_matches(['`', '[', ']']);
        }
        match line {
            _ if line.starts_with("| key |") => lines.extend(rows(section)),
            _ if line.starts_with('|') => {}
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn every_key_of_a_run_file_is_declared() {
    let declared = RunFile::keys();
    let names = |(section, keys): &(&str, Vec<Key>)| {
        let section = (*section).to_owned();
        keys.iter().map(|key| format!("{section}.{}", key.name)).collect::<Vec<_>>()
    };
    let declared: BTreeSet<String> = declared.iter().flat_map(names).collect();
    assert_eq!(declared, defaults().into_keys().collect());
    let sections: BTreeSet<&str> = declared.iter().filter_map(|name| name.split('.').next()).collect();
    assert_eq!(sections, SECTIONS.iter().copied().collect());
}

#[test]
fn the_page_of_the_configuration_has_every_key_as_declared() {
    let expected = generated(PAGE);
    if std::env::var_os("ZEROFLEET_WRITE_DOCS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md"), &expected).unwrap();
        return;
    }
    let different = PAGE.lines().zip(expected.lines()).find(|(page, expected)| page != expected);
    assert_eq!(different, None, "the test writes the page if ZEROFLEET_WRITE_DOCS is set");
    assert_eq!(PAGE.lines().count(), expected.lines().count());
    let missing = RunFile::keys().map(|(section, _)| section).into_iter().find(|section| {
        ![format!("## `[{section}]`"), format!("## `[[{section}]]`")].iter().any(|heading| PAGE.contains(heading))
    });
    assert_eq!(missing, None, "a section without a heading on the page");
}
