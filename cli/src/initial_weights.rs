//! `zerofleet train --weights`: begins a new run with given weights.
//!
//! The option sets the key `learner.initial_weights`. Start with [`select`]; the learner takes the weights.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, bail};
use fleet::plan::{self, Plan};
use fleet::run_directory::RunDirectory;
use run_file::RunFile;
use run_file::learner::{Settings, trainer_settings};
use service::ConfigError;
use service::config::Sources;
use training::Numbers;
use training::initial_weights::{Adopted, adopt};
use version_store::{Model, ModelFolder};

use crate::models;
use crate::resume::FROM_NOTHING;

/// Sets the weights at `model`, a path or a bundled model, as initial weights of a new run, or of a run that restarts
/// by `--from 0`. A new run plays the game of the weights, unless options, run file or environment name a game. For a
/// run that resumes, returns the message that the weights are ignored.
///
/// # Errors
/// There is no such model, the name of the run or the configuration is invalid, or only the model names an environment
/// in Python.
pub(crate) fn select(
    model: &Path,
    from: Option<u64>,
    env: impl Iterator<Item = (OsString, OsString)>,
    args: &mut plan::Args,
) -> anyhow::Result<Option<String>> {
    let run = args.run.as_deref().map(|name| RunDirectory::new(&args.runs, name)).transpose()?;
    let existing = run.filter(|run| run.config().exists());
    if let Some(run) = existing.as_ref().filter(|_| from != Some(FROM_NOTHING)) {
        let name = run.name();
        return Ok(Some(format!(
            "--weights is ignored: run {name} exists; start another run with --run, or restart with --from 0"
        )));
    }
    // Every session of the run, from any directory, finds the same files.
    let path = std::path::absolute(models::find(model)?).with_context(|| format!("resolve {}", model.display()))?;
    let game = ModelFolder::manifest(&path).context("--weights")?.architecture.game;
    let Some(path) = path.to_str() else { bail!("--weights: {} is not UTF-8", path.display()) };
    if existing.is_none() && args.game.is_none() {
        let sources = Sources { file: args.config.clone(), env, sets: args.sets.clone() };
        if !sources.layers()?.given(&RunFile::default())?.contains("run.game") {
            models::check_built_in(&game).context("--weights")?;
            args.sets.push(format!("run.game={game}"));
        }
    }
    args.sets.push(format!("learner.initial_weights={path}"));
    Ok(None)
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
    use std::iter;

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
    fn a_new_run_gets_the_weights_and_the_game_of_the_weights_if_nothing_else_names_a_game() {
        let runs = tempfile::tempdir().unwrap();
        let model = model(runs.path(), "hex-4", 2);
        let [with, without] = ["with.toml", "without.toml"].map(|file| runs.path().join(file).display().to_string());
        std::fs::write(&with, "[run]\ngame = \"hex-5\"\n").unwrap();
        std::fs::write(&without, "[search]\nc_init = 2.5\n").unwrap();
        let selected = |words: &[&str], env: Option<(&str, &str)>| {
            let mut args = parsed(runs.path(), words);
            let env = env.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
            assert_eq!(select(&model, None, env, &mut args).unwrap(), None);
            args.sets
        };
        let weights = format!("learner.initial_weights={}", model.display());
        assert_eq!(selected(&[], None), ["run.game=hex-4", &weights]);
        assert_eq!(selected(&["--config", &without], None), ["run.game=hex-4", &weights]);
        assert_eq!(selected(&["--config", &with], None), [weights.as_str()]);
        assert_eq!(selected(&["--game", "hex-5"], None), [weights.as_str()]);
        assert_eq!(selected(&["--set", "run.game=hex-5"], None), ["run.game=hex-5", &weights]);
        assert_eq!(selected(&[], Some(("ZEROFLEET__RUN__GAME", "hex-5"))), [weights.as_str()]);
        let refused = |model: &Path| {
            let selected = select(model, None, iter::empty(), &mut parsed(runs.path(), &[]));
            service::chain(&selected.unwrap_err())
        };
        assert!(refused(Path::new("./none")).contains("none is no model"));
        let config = model.join(ModelFolder::CONFIG);
        let text = std::fs::read_to_string(&config).unwrap().replace("hex-4", "gym:call:os:system");
        std::fs::write(&config, text).unwrap();
        assert!(refused(&model).starts_with("--weights: the model plays \"gym:call:os:system\""));
    }

    #[test]
    fn an_existing_run_ignores_the_weights_with_a_message_unless_it_restarts() {
        let runs = tempfile::tempdir().unwrap();
        let model = model(runs.path(), "hex-4", 2);
        let selected = |from| {
            let mut args = parsed(runs.path(), &["--run", "noughts"]);
            (select(&model, from, iter::empty(), &mut args).unwrap(), args.sets)
        };
        let ignored =
            "--weights is ignored: run noughts exists; start another run with --run, or restart with --from 0";
        for from in [None, Some(3)] {
            assert_eq!(selected(from), (Some(ignored.to_owned()), Vec::new()));
        }
        assert_eq!(selected(Some(0)), (None, vec![format!("learner.initial_weights={}", model.display())]));
    }

    #[test]
    fn the_network_of_a_new_run_is_checked_before_the_run_has_a_directory() {
        let runs = tempfile::tempdir().unwrap();
        let model = model(&runs.path().join("given"), "hex-4", 2);
        let checked = |words: &[&str]| {
            let network = ["--set", "network.blocks=3", "--set", "network.channels=16", "--actors", "1"];
            let heads = ["--set", "network.heads=pooled", "--set", "network.squeeze_excitation=8"];
            let mut args = parsed(runs.path(), &[&network[..], &heads, words].concat());
            select(&model, None, iter::empty(), &mut args).unwrap();
            let plan = Plan::on_cpu(&args, iter::empty()).unwrap();
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
        let plain = Plan::on_cpu(&parsed(runs.path(), &["--actors", "1"]), iter::empty()).unwrap();
        assert_eq!(check(&plain).unwrap(), None);
    }
}
