//! Describes a Python environment, once per run and before any process starts.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bridge::Trial;
use run_file::RunFile;
use run_file::learner::NetworkSection;
use service::config::Sources;

/// Channels and blocks of the residual network for observations that are planes, not vectors.
const PLANES_NETWORK: (usize, usize) = (64, 2);

/// Describes the Python environment of a configuration in the section `[environment]`, by a trial episode, and chooses
/// the network shape for the observations unless a shape is configured. Returns the trial episode; `None` if the game
/// needs no description or already has one.
///
/// # Errors
/// The environment cannot be run or fails in the first episode, or a key is out of range.
pub fn describe(config: &mut RunFile) -> anyhow::Result<Option<Trial>> {
    if !games::is_outside(&config.run.game) || config.environment.is_described() {
        return Ok(None);
    }
    let environment = &mut config.environment;
    // Later sessions and other commands may run in other directories.
    environment.modules = environment.modules.iter().map(|folder| absolute(folder)).collect::<Result<_, _>>()?;
    if environment.python.components().count() > 1 {
        environment.python = absolute(&environment.python)?;
    }
    // The run directory does not exist before the configuration is accepted.
    let folder = std::env::temp_dir().join(format!("zerofleet-{}", std::process::id()));
    let described = bridge::config::describe(&config.run, environment, &folder);
    // If this fails, a few kilobytes are left in a temporary directory.
    let _ = std::fs::remove_dir_all(&folder);
    let (described, trial) = described.with_context(|| format!("describe {}", config.run.game))?;
    config.environment = described;
    // For a vector `[C, 1, 1]`, the network is dense.
    let is_vector = (config.environment.height, config.environment.width) == (1, 1);
    if !is_vector && is_of_preset(config)? {
        (config.network.channels, config.network.blocks) = PLANES_NETWORK;
    }
    Ok(Some(trial))
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("resolve {}", path.display()))
}

/// Returns true if the network has the channels and blocks of the game's preset.
fn is_of_preset(config: &RunFile) -> anyhow::Result<bool> {
    let sets = vec![format!("run.game={}", config.run.game)];
    let preset: RunFile = Sources { file: None, env: std::iter::empty(), sets }.read(games::preset)?.load()?;
    let shape = |network: &NetworkSection| (network.channels, network.blocks);
    Ok(shape(&config.network) == shape(&preset.network))
}
