//! Roles and command lines of the processes of a run, and the settings that connect the processes.

use std::ffi::OsString;
use std::path::Path;

use inference::DevicePreference;
use run_file::RunFile;
use serde::{Deserialize, Serialize};

/// The role of a process in a fleet, in the order of the data flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Stores trajectories and samples from them.
    Replay,
    /// Trains the network.
    Learner,
    /// Evaluates positions for the actors.
    Inference,
    /// Measures the strength of weights versions.
    Arena,
    /// Plays episodes.
    Actor,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Replay, Self::Learner, Self::Inference, Self::Arena, Self::Actor];

    /// Returns the name of the role, which is also part of metric names: `zerofleet_ROLE_…`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Learner => "learner",
            Self::Inference => "inference",
            Self::Arena => "arena",
            Self::Actor => "actor",
        }
    }

    /// Returns the name of the program, which is also the name of the package.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Replay => "replay-server",
            Self::Inference => "inference-server",
            other => other.name(),
        }
    }
}

/// Endpoints of the servers of a run: `http://127.0.0.1:7001`.
#[derive(Debug, Clone, Default)]
pub struct Wiring {
    /// Endpoints of all replay servers.
    pub replay: Vec<String>,
    /// Endpoint of the learner, which serves weights.
    pub learner: String,
    /// Endpoint of the inference server, if actors use one.
    pub inference: Option<String>,
    /// Further boards, in addition to `run.game`.
    pub boards: Vec<WiredBoard>,
}

/// The replay servers of a further board.
#[derive(Debug, Clone)]
pub struct WiredBoard {
    /// Name of the game on this board: `go-7`.
    pub game: String,
    /// Endpoints of the board's replay servers.
    pub replay: Vec<String>,
}

impl Wiring {
    /// Returns the settings that connect a process of this role to other processes: `learner.replay=…`.
    #[must_use]
    pub fn sets(&self, role: Role) -> Vec<String> {
        let Self { replay, learner, inference, boards } = self;
        let replay = replay.join(",");
        match role {
            Role::Replay => Vec::new(),
            Role::Learner => {
                let boards = (!boards.is_empty()).then(|| format!("learner.boards={}", sections(boards)));
                [format!("learner.replay={replay}")].into_iter().chain(boards).collect()
            }
            Role::Arena => vec![format!("arena.weights={learner}")],
            Role::Inference => vec![format!("inference.learner={learner}")],
            Role::Actor => {
                let inference = inference.iter().map(|inference| format!("actor.inference={inference}"));
                let servers = [format!("actor.replay={replay}"), format!("actor.learner={learner}")];
                servers.into_iter().chain(inference).collect()
            }
        }
    }
}

/// Returns boards as a TOML list for the key `learner.boards`.
fn sections(boards: &[WiredBoard]) -> String {
    // Names of games and endpoints need no escapes.
    let section = |WiredBoard { game, replay }: &WiredBoard| {
        format!("{{ game = \"{game}\", replay = \"{}\" }}", replay.join(","))
    };
    format!("[{}]", boards.iter().map(section).collect::<Vec<_>>().join(", "))
}

/// Returns the command line of a process: run file, listen address, and settings that override the run file.
#[must_use]
pub fn arguments(config: &Path, listen: Option<&str>, sets: impl IntoIterator<Item = String>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--config".into(), config.into()];
    arguments.extend(listen.into_iter().flat_map(|listen| ["--listen".into(), listen.into()]));
    arguments.extend(sets.into_iter().flat_map(|set| ["--set".into(), set.into()]));
    arguments
}

/// Returns the arguments with which a process of this role goes on after the loss of the accelerator: on the CPU, where
/// the device is chosen automatically. A configured device is never replaced.
#[must_use]
pub fn without_device(config: &RunFile, role: Role) -> Vec<OsString> {
    let device = match role {
        Role::Replay => return Vec::new(),
        Role::Learner => config.learner.device,
        Role::Inference => config.inference.device,
        Role::Arena => config.arena.device,
        Role::Actor => config.actor.device,
    };
    if device != DevicePreference::Auto {
        return Vec::new();
    }
    let mut arguments = vec!["--set".into(), format!("{}.device=cpu", role.name()).into()];
    if role == Role::Learner && config.learner.threads == 0 {
        // Next to an accelerator the learner has a single thread.
        let threads = (service::machine::cores() / 2).max(1);
        arguments.extend(["--set".into(), format!("learner.threads={threads}").into()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_chosen_automatically_is_replaced_by_the_cpu_and_a_configured_one_never() {
        let mut config = RunFile::default();
        config.learner.device = DevicePreference::Auto;
        config.learner.threads = 2;
        assert_eq!(without_device(&config, Role::Learner), ["--set", "learner.device=cpu"]);
        assert_eq!(without_device(&config, Role::Replay), [""; 0]);
        config.learner.device = DevicePreference::Cuda(1);
        assert_eq!(without_device(&config, Role::Learner), [""; 0]);
        // By default the arena is on the CPU.
        assert_eq!(without_device(&config, Role::Arena), [""; 0]);
        config.actor.device = DevicePreference::Auto;
        assert_eq!(without_device(&config, Role::Actor), ["--set", "actor.device=cpu"]);
    }

    #[test]
    fn every_process_receives_the_addresses_of_the_servers_it_needs() {
        let replay = vec!["http://a:1".to_owned(), "http://b:1".to_owned()];
        let local = Wiring { replay, learner: "http://l:2".to_owned(), ..Wiring::default() };
        assert_eq!(local.sets(Role::Replay), [""; 0]);
        assert_eq!(local.sets(Role::Learner), ["learner.replay=http://a:1,http://b:1"]);
        assert_eq!(local.sets(Role::Arena), ["arena.weights=http://l:2"]);
        assert_eq!(local.sets(Role::Actor), ["actor.replay=http://a:1,http://b:1", "actor.learner=http://l:2"]);
        let board =
            WiredBoard { game: "go-7".to_owned(), replay: vec!["http://c:1".to_owned(), "http://d:1".to_owned()] };
        let of_boards = Wiring { boards: vec![board], ..local.clone() }.sets(Role::Learner);
        assert_eq!(of_boards[1], "learner.boards=[{ game = \"go-7\", replay = \"http://c:1,http://d:1\" }]");
        let sources = service::config::Sources { file: None, env: std::iter::empty(), sets: of_boards };
        let read: run_file::learner::Config = sources.layers().unwrap().load().unwrap();
        assert_eq!((read.learner.boards[0].game.as_str(), read.learner.boards.len()), ("go-7", 1));
        let remote = Wiring { inference: Some("http://i:3".to_owned()), ..local };
        assert_eq!(remote.sets(Role::Inference), ["inference.learner=http://l:2"]);
        assert_eq!(remote.sets(Role::Actor)[2], "actor.inference=http://i:3");
    }

    #[test]
    fn a_command_line_names_run_file_address_and_settings() {
        let line = arguments(Path::new("config.toml"), Some("127.0.0.1:7001"), ["run.seed=2".to_owned()]);
        assert_eq!(line, ["--config", "config.toml", "--listen", "127.0.0.1:7001", "--set", "run.seed=2"]);
    }
}
