//! `zerofleet train --weights`: begins a new run with given weights.
//!
//! The option sets the key `learner.initial_weights`. Start with [`select`]; the learner takes the weights.

use std::path::Path;

use anyhow::{Context as _, bail};
use fleet::plan::{self, Plan};
use fleet::run_directory::RunDirectory;
use run_file::learner::{Settings, trainer_settings};
use service::ConfigError;
use training::Numbers;
use training::initial_weights::{Adopted, adopt};
use version_store::{Model, ModelFolder};

use crate::models;

/// Sets the weights at `model`, a path or a bundled model, as initial weights of a new run, which by default plays the
/// game of the weights. An existing run ignores the option.
///
/// # Errors
/// There is no such model, or the name of the run is invalid.
pub(crate) fn select(model: &Path, args: &mut plan::Args) -> anyhow::Result<()> {
    let run = args.run.as_deref().map(|name| RunDirectory::new(&args.runs, name)).transpose()?;
    if run.is_some_and(|run| run.config().exists()) {
        return Ok(());
    }
    // Every session of the run, from any directory, finds the same files.
    let path = std::path::absolute(models::find(model)?).with_context(|| format!("resolve {}", model.display()))?;
    let game = ModelFolder::manifest(&path).context("--weights")?.architecture.game;
    let Some(path) = path.to_str() else { bail!("--weights: {} is not UTF-8", path.display()) };
    if args.config.is_none() {
        // Later assignments have precedence.
        args.sets.insert(0, format!("run.game={game}"));
    }
    args.sets.push(format!("learner.initial_weights={path}"));
    Ok(())
}

/// Checks the initial weights of a new run before the run has a directory, and describes the tensors that the network
/// takes; `None` without initial weights.
///
/// # Errors
/// The weights cannot be read, or do not suit the network; the error names the key.
pub(crate) fn check(plan: &Plan) -> anyhow::Result<Option<String>> {
    let settings = plan.config.learner_settings()?;
    let path = Path::new(&settings.learner.initial_weights);
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let adopted = adopted(path, &settings)
        .map_err(|error| ConfigError::invalid("learner.initial_weights", service::chain(&error)))?;
    Ok(Some(format!("begins with the weights in {}; {adopted}", path.display())))
}

/// Returns the tensors that a new network takes, without a trainer.
fn adopted(path: &Path, settings: &Settings) -> anyhow::Result<Adopted> {
    let Model { manifest, bytes, .. } = ModelFolder::read(path)?;
    let architecture = settings.architecture();
    let layout = trainer_settings(&settings.learner).layers(&architecture)?.layout();
    let mut numbers = Numbers::initial(&layout, settings.run.seed);
    Ok(adopt([&manifest.architecture, &architecture], &bytes, &layout, &mut numbers)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::trained::tests::model;

    #[derive(clap::Parser)]
    struct Train {
        #[command(flatten)]
        args: plan::Args,
    }

    fn parsed(runs: &Path, words: &[&str]) -> plan::Args {
        let words = [&["train", "--runs", runs.to_str().unwrap()], words].concat();
        Train::try_parse_from(words).unwrap().args
    }

    #[test]
    fn a_new_run_gets_the_weights_and_without_a_run_file_their_game_and_an_existing_run_neither() {
        let runs = tempfile::tempdir().unwrap();
        let model = model(runs.path(), "hex-4", 2);
        let selected = |words: &[&str]| {
            let mut args = parsed(runs.path(), words);
            select(&model, &mut args).unwrap();
            args.sets
        };
        let weights = format!("learner.initial_weights={}", model.display());
        assert_eq!(selected(&[]), ["run.game=hex-4", &weights]);
        assert_eq!(selected(&["--set", "run.game=hex-5"]), ["run.game=hex-4", "run.game=hex-5", &weights]);
        assert_eq!(selected(&["--config", "any.toml"]), [weights.as_str()]);
        assert_eq!(selected(&["--run", "noughts"]), [""; 0]);
        let error = select(Path::new("./none"), &mut parsed(runs.path(), &[])).unwrap_err();
        assert!(service::chain(&error).contains("none is no model"), "{error:#}");
    }

    #[test]
    fn the_network_of_a_new_run_is_checked_before_the_run_has_a_directory() {
        let runs = tempfile::tempdir().unwrap();
        let model = model(&runs.path().join("given"), "hex-4", 2);
        let checked = |words: &[&str]| {
            let network = ["--set", "network.blocks=3", "--set", "network.channels=16", "--actors", "1"];
            let heads = ["--set", "network.heads=pooled", "--set", "network.squeeze_excitation=8"];
            let mut args = parsed(runs.path(), &[&network[..], &heads, words].concat());
            select(&model, &mut args).unwrap();
            let plan = Plan::on_cpu(&args, std::iter::empty()).unwrap();
            check(&plan).map_err(|error| service::chain(&error))
        };
        let pooling = ["--set", "network.global_pooling=4"];
        let line = checked(&pooling).unwrap().unwrap();
        assert!(line.starts_with("begins with the weights in ") && line.contains("; taken: "), "{line}");
        assert!(!line.contains("new:"), "{line}");
        let deeper = checked(&["--set", "network.blocks=4"]).unwrap().unwrap();
        assert!(deeper.contains("; new: block.3.first.convolution.weight [16, 16, 3, 3], "), "{deeper}");
        let refused = checked(&["--set", "network.channels=32"]).unwrap_err();
        assert!(refused.starts_with("learner.initial_weights: ") && refused.contains("32 channels"), "{refused}");
        let left: Vec<_> = std::fs::read_dir(runs.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["given"]);
        let plain = Plan::on_cpu(&parsed(runs.path(), &["--actors", "1"]), std::iter::empty()).unwrap();
        assert_eq!(check(&plain).unwrap(), None);
    }
}
