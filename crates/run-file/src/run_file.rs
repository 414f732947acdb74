//! The run file of a whole fleet, with the sections of all processes. It is checked before any process starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bridge::EnvironmentSection;
use serde::{Deserialize, Serialize};
use service::config::{Key, RunSection, Section};
use service::security::is_set;
use service::{ConfigError, SecuritySection, TelemetrySection};
use transport::security::{Credentials, Security};

use crate::actor::{self, ActorSection, ReanalysisSection};
use crate::arena::{self, ArenaSection};
use crate::inference::{self, InferenceSection};
use crate::learner::{self, BoardSection, LearnerSection, NetworkSection};
use crate::replay::{self, ReplaySection};
use crate::search::SearchSection;
use crate::selfplay::SelfplaySection;
use crate::table::TableSection;

/// Placeholder address on loopback for the security check: the servers of a fleet listen on loopback.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// All sections of a run file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunFile {
    /// Game, seed and directory of the run.
    pub run: RunSection,
    /// Environment in Python, if `run.game` is a Python environment.
    pub environment: EnvironmentSection,
    /// Network: model, design and size.
    pub network: NetworkSection,
    /// Search algorithm and parameters.
    pub search: SearchSection,
    /// Self-play: simulations, temperature, openings and resignation.
    pub selfplay: SelfplaySection,
    /// Replay server: tables, limits, log and archive.
    pub replay: ReplaySection,
    /// Training: batches, optimiser, schedule, losses and checkpoints.
    pub learner: LearnerSection,
    /// Actors: threads, servers, devices and caches.
    pub actor: ActorSection,
    /// Reanalysis, the repeated search of stored trajectories: share and simulations.
    pub reanalysis: ReanalysisSection,
    /// Strength measurement: games, opponents, kept versions and the gate.
    pub arena: ArenaSection,
    /// Inference server: weights, devices, batches and limits.
    pub inference: InferenceSection,
    /// Certificates and tokens of servers and clients.
    pub security: SecuritySection,
    /// Export of traces.
    pub telemetry: TelemetrySection,
}

impl RunFile {
    /// Returns the keys of all sections, by the name of the section. `replay.tables` and `learner.boards` are the keys
    /// of the entries of these lists.
    #[must_use]
    pub fn keys() -> [(&'static str, Vec<Key>); 15] {
        [
            ("run", RunSection::keys()),
            ("environment", EnvironmentSection::keys()),
            ("network", NetworkSection::keys()),
            ("search", SearchSection::keys()),
            ("selfplay", SelfplaySection::keys()),
            ("replay", ReplaySection::keys()),
            ("replay.tables", TableSection::keys()),
            ("learner", LearnerSection::keys()),
            ("learner.boards", BoardSection::keys()),
            ("actor", ActorSection::keys()),
            ("reanalysis", ReanalysisSection::keys()),
            ("arena", ArenaSection::keys()),
            ("inference", InferenceSection::keys()),
            ("security", SecuritySection::keys()),
            ("telemetry", TelemetrySection::keys()),
        ]
    }

    /// Checks the settings of all processes, whether they are consistent with each other, and the files of
    /// `[security]`. An error then appears on the screen before any process starts, not in the log of a process.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_settings()?;
        Security::open(&self.security, LOOPBACK)?;
        Credentials::open(&self.security)?;
        Ok(())
    }

    /// Checks everything except the files of `[security]`, which may be on another machine.
    ///
    /// # Errors
    /// A key is invalid; the error names the key.
    pub fn check_settings(&self) -> anyhow::Result<()> {
        self.telemetry.check()?;
        check_model(&self.run, &self.environment, &self.network)?;
        check_security(&self.security)?;
        self.actor_settings()?;
        self.learner_settings()?;
        self.replay_settings()?;
        self.check_boards()?;
        if !self.actor.inference.is_empty() {
            self.check_served("actor.inference")?;
        }
        let Self { run, environment, search, inference, security, .. } = self.clone();
        inference::Config { run, environment, search, inference, security }.settings()?;
        let Self { run, environment, search, arena, security, .. } = self.clone();
        arena::Config { run, environment, search, arena, security }.settings()?;
        Ok(())
    }

    /// Checks the actor and replay settings for each board in `run.boards`. The learner settings must be checked
    /// before.
    fn check_boards(&self) -> Result<(), ConfigError> {
        for board in &self.run.boards {
            let mut on_board = self.clone();
            on_board.run.game.clone_from(board);
            on_board.actor_settings()?;
            on_board.replay_settings()?;
        }
        Ok(())
    }

    /// Checks that inference servers, as requested by `key`, support the network and the boards.
    ///
    /// # Errors
    /// [`ConfigError`] names `key`, or another key that is invalid.
    pub fn check_served(&self, key: &str) -> Result<(), ConfigError> {
        if !self.run.boards.is_empty() {
            let reason = "an inference server supports only one board, but run.boards names more";
            return Err(ConfigError::invalid(key, reason));
        }
        let model = self.learner_settings()?.architecture().model;
        if model.support().is_some() {
            let networks = if model.has_dynamics() { "MuZero networks" } else { "networks of returns" };
            let reason = format!("an inference server does not support {networks}; leave it out");
            return Err(ConfigError::invalid(key, reason));
        }
        Ok(())
    }

    /// Returns the settings of the actors.
    ///
    /// # Errors
    /// A key is invalid; the error names the key.
    pub fn actor_settings(&self) -> Result<actor::Settings, ConfigError> {
        let Self { run, environment, search, selfplay, actor, reanalysis, security, .. } = self.clone();
        actor::Config { run, environment, search, selfplay, actor, reanalysis, security }.settings()
    }

    /// Returns the settings of the replay servers.
    ///
    /// # Errors
    /// A key is invalid; the error names the key.
    pub fn replay_settings(&self) -> Result<replay::Settings, ConfigError> {
        let Self { run, replay, security, .. } = self.clone();
        replay::Config { run, replay, security }.settings()
    }

    /// Returns the settings of the learner.
    ///
    /// # Errors
    /// A key is invalid; the error names the key.
    pub fn learner_settings(&self) -> Result<learner::Settings, ConfigError> {
        let Self { run, environment, network, mut learner, security, .. } = self.clone();
        if learner.boards.is_empty() {
            // The addresses of the replay servers are known only once the servers are started.
            let entry = |game: &String| BoardSection { game: game.clone(), replay: learner.replay.clone() };
            learner.boards = run.boards.iter().map(entry).collect();
        }
        learner::Config { run, environment, network, learner, security }.settings()
    }
}

/// Checks that the model in `network.model` can be searched in this game.
fn check_model(
    run: &RunSection,
    environment: &EnvironmentSection,
    network: &NetworkSection,
) -> Result<(), ConfigError> {
    let game = bridge::config::game(run, environment)?.rules();
    let model = network.model_of(&game);
    if !model.has_dynamics() {
        selfplay::check_searchable(&game).map_err(|error| ConfigError::invalid("network.model", error))?;
    }
    Ok(())
}

/// Checks that the processes of a run have the certificates and tokens to connect to each other.
fn check_security(security: &SecuritySection) -> Result<(), ConfigError> {
    security.check()?;
    let missing = |key: &str, because: &str| {
        let reason = format!("is missing, but needed with {because}: the processes of a run connect to each other");
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
    Ok(())
}
