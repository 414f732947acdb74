//! The run file of a whole fleet: every section of every process, checked here before any process starts.

use actor::ActorSection;
use arena::config::ArenaSection;
use learner::config::{LearnerSection, NetworkSection};
use replay_server::config::ReplaySection;
use selfplay::config::{SearchSection, SelfplaySection};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use service::ConfigError;
use service::config::{RunSection, SECTIONS, Sources};

use crate::run_directory::RunDirectory;

#[cfg(test)]
mod tests;

/// Every section of a run file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fleet {
    /// What the run is about.
    pub run: RunSection,
    /// The shape of the network.
    pub network: NetworkSection,
    /// How trees search.
    pub search: SearchSection,
    /// How episodes are played.
    pub selfplay: SelfplaySection,
    /// The replay table.
    pub replay: ReplaySection,
    /// How the network is trained.
    pub learner: LearnerSection,
    /// The self-play processes.
    pub actor: ActorSection,
    /// How strength is measured.
    pub arena: ArenaSection,
}

impl Fleet {
    /// Asks every process's own check, so that a value out of range is told on the screen and not in a log, and checks what
    /// no process can, for it lies between two.
    pub fn check(&self) -> anyhow::Result<()> {
        let Self { run, network, search, selfplay, replay, learner, actor, arena } = self.clone();
        actor::Config { run: run.clone(), search: search.clone(), selfplay, actor }.settings()?;
        let learner = learner::config::Config { run: run.clone(), network, learner }.settings()?;
        let replay = replay_server::Config { run: run.clone(), replay }.settings()?;
        check_batch(&learner, &replay)?;
        arena::config::Config { run, search, arena }.settings()?;
        Ok(())
    }
}

/// A larger batch than the rate limiter hands out would be asked for in vain, for ever.
fn check_batch(learner: &learner::config::Settings, replay: &replay_server::Settings) -> Result<(), ConfigError> {
    let (asked, most) = (learner.batch_size as u64, replay.limiter().batch_items_max());
    if asked <= most {
        return Ok(());
    }
    let reason = format!("is {asked}, more than the {most} samples that replay.error_items allows at once: raise it");
    Err(ConfigError::invalid("learner.batch_size", reason))
}

/// The configuration of an existing run, as it was used: all of it, or what one of its processes reads.
pub fn load_run<C>(run: &RunDirectory) -> Result<C, ConfigError>
where
    C: Serialize + DeserializeOwned + Default,
{
    Sources { file: Some(run.config()), env: std::iter::empty(), sets: Vec::new() }.load(SECTIONS)
}
