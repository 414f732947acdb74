//! The run file of a whole fleet, with every section of every process; it is checked before any process starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use actor::ActorSection;
use arena::config::ArenaSection;
use games::{GameKind, with_game};
use inference_server::config::InferenceSection;
use learner::config::{LearnerSection, ModelKind, NetworkSection};
use proto::security::{Credentials, Security};
use replay_server::config::ReplaySection;
use selfplay::config::{SearchSection, SelfplaySection};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use service::config::{RunSection, Sources};
use service::security::is_set;
use service::{ConfigError, SecuritySection, TelemetrySection};

use crate::run_directory::RunDirectory;

/// The address on which the servers of a fleet listen.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Every section of a run file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fleet {
    /// Game, seed and folder of the run.
    pub run: RunSection,
    /// The shape of the network.
    pub network: NetworkSection,
    /// The search algorithm and its parameters.
    pub search: SearchSection,
    /// The settings of self-play.
    pub selfplay: SelfplaySection,
    /// The settings of the replay server and its tables.
    pub replay: ReplaySection,
    /// The settings of training.
    pub learner: LearnerSection,
    /// The settings of the actors.
    pub actor: ActorSection,
    /// The settings of strength measurement.
    pub arena: ArenaSection,
    /// The settings of the inference server.
    pub inference: InferenceSection,
    /// Certificates and tokens of servers and clients.
    pub security: SecuritySection,
    /// The settings of traces.
    pub telemetry: TelemetrySection,
}

impl Fleet {
    /// Runs the checks of every process, so that an error appears on the screen and not only in a log, and the checks
    /// that concern two processes.
    pub fn check(&self) -> anyhow::Result<()> {
        let Self { run, network, search, selfplay, replay, learner, actor, arena, inference, security, telemetry } =
            self.clone();
        telemetry.check()?;
        check_model(&run, &network, &actor)?;
        check_security(&security)?;
        let here = || security.clone();
        actor::Config { run: run.clone(), search: search.clone(), selfplay, actor, security: here() }.settings()?;
        let learner = learner::config::Config { run: run.clone(), network, learner, security: here() }.settings()?;
        let replay = replay_server::Config { run: run.clone(), replay, security: here() }.settings()?;
        check_batch(&learner, &replay)?;
        inference_server::Config { run: run.clone(), search: search.clone(), inference, security: here() }
            .settings()?;
        arena::config::Config { run, search, arena, security: here() }.settings()?;
        Ok(())
    }
}

/// Checks that the kind of network suits the game, and that the actors can evaluate it.
fn check_model(run: &RunSection, network: &NetworkSection, actor: &ActorSection) -> Result<(), ConfigError> {
    let game: GameKind = run.game.parse().map_err(|error| ConfigError::invalid("run.game", error))?;
    match network.model {
        ModelKind::Alphazero => with_game!(game, |game| selfplay::check_searchable(&game))
            .map_err(|error| ConfigError::invalid("network.model", error)),
        ModelKind::Muzero if !actor.inference.is_empty() && !actor.inference_fallback => {
            let reason = "names a server, which computes no MuZero networks, and actor.inference_fallback is off";
            Err(ConfigError::invalid("actor.inference", reason))
        }
        ModelKind::Muzero => Ok(()),
    }
}

/// Checks that the processes of a run can connect to each other, and that the files they need can be read.
fn check_security(security: &SecuritySection) -> Result<(), ConfigError> {
    security.check()?;
    let missing = |key: &str, because: &str| {
        let reason = format!("is missing, and {because} is set: the processes of a run are each other's clients");
        Err(ConfigError::invalid(format!("security.{key}"), reason))
    };
    if security.serves_tls() && !is_set(&security.ca) {
        return missing("ca", "security.certificate");
    }
    if is_set(&security.client_ca) && !is_set(&security.client_certificate) {
        return missing("client_certificate", "security.client_ca");
    }
    if is_set(&security.tokens) && !is_set(&security.token_file) {
        return missing("token_file", "security.tokens");
    }
    Security::open(security, LOOPBACK)?;
    Credentials::open(security)?;
    Ok(())
}

/// Rejects a batch larger than the rate limiter ever allows: a request for it would wait forever.
fn check_batch(learner: &learner::config::Settings, replay: &replay_server::Settings) -> Result<(), ConfigError> {
    let (batch_size, allowed_max) =
        (learner.learner.batch_size as u64, replay.tables[0].rate_limiter.batch_items_max());
    if batch_size <= allowed_max {
        return Ok(());
    }
    let reason = format!("is {batch_size}, more than the {allowed_max} samples that replay.error_items allows at once");
    Err(ConfigError::invalid("learner.batch_size", reason))
}

/// Loads the configuration of an existing run: all of it, or the part that one process reads.
pub fn load_run<C>(run: &RunDirectory) -> Result<C, ConfigError>
where
    C: Serialize + DeserializeOwned + Default,
{
    Sources { file: Some(run.config()), env: std::iter::empty(), sets: Vec::new() }.read(games::preset)?.load()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    use clap::Parser as _;
    use toml::{Table, Value};

    use super::*;
    use crate::plan::{Args, Plan};

    #[derive(clap::Parser)]
    struct Train {
        #[command(flatten)]
        args: Args,
    }

    /// Sections and keys that depend on the place and length of a run. All other keys are the recipe.
    const DEPLOYMENT: [&str; 17] = [
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
        "learner.replay",
        "learner.schedule_minutes",
        "replay.archive",
    ];
    /// Further keys that deployment overlays set in the environment: the device of a container, and the game of
    /// compose.
    const DEPLOYMENT_ENVIRONMENT: [&str; 5] =
        ["run.game", "learner.device", "inference.device", "actor.device", "arena.device"];

    fn depends_on_deployment(key: &str) -> bool {
        DEPLOYMENT
            .iter()
            .any(|other| key == *other || key.strip_prefix(other).is_some_and(|rest| rest.starts_with('.')))
    }

    fn deploy() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
    }

    /// Returns the recipe keys that a process with the configuration `C` uses for `game` with this run file.
    fn recipe_of<C: Serialize + DeserializeOwned + Default>(file: &Path, game: &str) -> BTreeMap<String, String> {
        let sets = vec![format!("run.game={game}")];
        let sources = Sources { file: Some(file.to_owned()), env: std::iter::empty(), sets };
        let config: C = sources.read(games::preset).unwrap().load().unwrap();
        let printed: Table = service::config::print(&config).unwrap().parse().unwrap();
        let keys = printed.into_iter().flat_map(|(section, keys)| match keys {
            Value::Table(keys) => keys.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)).collect(),
            value => vec![(section, value)],
        });
        keys.map(|(key, value)| (key, value.to_string())).filter(|(key, _)| !depends_on_deployment(key)).collect()
    }

    /// Returns the recipe of every process.
    fn recipes_of(file: &Path, game: &str) -> [BTreeMap<String, String>; 5] {
        [
            recipe_of::<actor::Config>(file, game),
            recipe_of::<learner::config::Config>(file, game),
            recipe_of::<replay_server::Config>(file, game),
            recipe_of::<arena::config::Config>(file, game),
            recipe_of::<inference_server::Config>(file, game),
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
            assert_eq!(expected[0]["search.algorithm"], "\"gumbel\"", "{game}: every preset searches with Gumbel");
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
            let fleet: Fleet = sources.read(games::preset).unwrap().load().unwrap();
            fleet.check().unwrap();
        }
    }

    #[test]
    fn a_batch_larger_than_the_rate_limiter_ever_allows_is_rejected() {
        let mut fleet = Fleet::default();
        (fleet.replay.main.error_items, fleet.replay.main.samples_per_insert) = (100.0, 8.0);
        fleet.learner.batch_size = 192;
        fleet.check().unwrap();
        fleet.learner.batch_size = 193;
        let error = fleet.check().unwrap_err().to_string();
        assert!(error.starts_with("learner.batch_size: is 193, more than the 192 samples"), "{error}");
    }

    #[test]
    fn actors_that_evaluate_only_on_an_inference_server_have_no_muzero_network() {
        let mut fleet = Fleet::default();
        fleet.network.model = ModelKind::Muzero;
        fleet.actor.inference = "http://127.0.0.1:7003".to_owned();
        fleet.check().unwrap();
        fleet.actor.inference_fallback = false;
        let error = fleet.check().unwrap_err().to_string();
        assert!(error.starts_with("actor.inference: names a server, which computes no MuZero networks"), "{error}");
    }

    #[test]
    fn a_renamed_key_is_rejected_with_its_new_name_which_exists() {
        let load = |key: &str| {
            let sets = vec![format!("{key}=[]")];
            Sources { file: None, env: std::iter::empty(), sets }
                .layers()
                .unwrap()
                .load::<Fleet>()
                .unwrap_err()
                .to_string()
        };
        for (old, new) in service::config::RENAMED_KEYS {
            assert!(load(old).ends_with(&format!("it was renamed to {new}")), "{}", load(old));
            assert!(!load(new).starts_with("unknown"), "{}", load(new));
        }
    }

    #[test]
    fn a_fleet_whose_processes_cannot_connect_to_each_other_is_rejected_by_the_missing_key() {
        let refused = |set: fn(&mut SecuritySection)| {
            let mut fleet = Fleet::default();
            set(&mut fleet.security);
            fleet.check().unwrap_err().to_string()
        };
        let tls = refused(|security| (security.certificate, security.key) = ("server.pem".into(), "server.key".into()));
        assert!(tls.starts_with("security.ca: is missing, and security.certificate is set"), "{tls}");
        let tokens = refused(|security| security.tokens = "tokens".into());
        assert!(tokens.starts_with("security.token_file: is missing, and security.tokens is set"), "{tokens}");
    }
}
