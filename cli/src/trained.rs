//! What a run has learnt: its game, its search and its newest weights, ready to evaluate.
//!
//! The way from a run's name to an evaluator, for the commands that ask one. Start with [`Trained::open`].

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use game::Game;
use games::{GameKind, with_game};
use inference::Evaluator;
use learner::published::Published;
use network::{DevicePreference, PrecisionPreference};
use selfplay::SearchSettings;
use tower::Preference;
use weights::{Architecture, Manifest};

use crate::config::{Fleet, load_run};
use crate::evaluators::Evaluators;
use crate::run_directory::RunDirectory;

#[cfg(test)]
mod tests;

/// Which run, and what evaluates its weights.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The run's name.
    #[arg(long, value_name = "NAME")]
    pub run: String,

    /// Where runs lie.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    pub runs: PathBuf,

    /// `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
    #[arg(long, default_value = "cpu")]
    pub device: DevicePreference,

    /// `auto`, `f32` or `bf16`.
    #[arg(long, default_value = "auto")]
    pub precision: PrecisionPreference,

    /// What a CPU computes with: `auto`, `libtorch`, or a path of the CPU kernel such as `avx512-bf16`.
    #[arg(long, default_value = "auto")]
    pub kernel: Preference,
}

/// The newest weights of a run, and what they were trained for.
pub struct Trained {
    /// The game.
    pub game: GameKind,
    /// How the run's trees search.
    pub search: SearchSettings,
    /// The weights, once for each thread that is to evaluate; at least once.
    pub evaluators: Vec<Box<dyn Evaluator>>,
}

impl std::fmt::Debug for Trained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let evaluators: Vec<_> = self.evaluators.iter().map(|evaluator| evaluator.attributes()).collect();
        let mut all = f.debug_struct("Trained");
        all.field("game", &self.game).field("search", &self.search).field("evaluators", &evaluators).finish()
    }
}

impl Trained {
    /// Finds the run and loads its newest published weights, once for each of so many threads.
    ///
    /// # Errors
    /// A run that does not exist or has published nothing yet, weights that do not fit the run's game.
    pub fn open(args: &Args, threads: usize) -> anyhow::Result<Self> {
        let run = RunDirectory::existing(&args.runs, &args.run)?;
        let config: Fleet = load_run(&run)?;
        let game: GameKind = config.run.game.parse().context("run.game")?;
        let search = config.search.settings()?;
        let (manifest, bytes) = newest(&run)?;
        with_game!(game, |rules| check(&rules, &manifest, &run))?;
        let evaluators = Evaluators::new(args.device, args.precision, args.kernel);
        let evaluators = (0..threads.max(1)).map(|_| evaluators.evaluator(&manifest, &bytes)).collect::<Result<_, _>>();
        let evaluators =
            evaluators.with_context(|| format!("load weights {} of run {}", manifest.version, run.name()))?;
        Ok(Self { game, search, evaluators })
    }
}

fn newest(run: &RunDirectory) -> anyhow::Result<(Manifest, Vec<u8>)> {
    let folder = run.path().join("weights");
    // Nothing is written here, so how many versions would be kept does not matter.
    let published = Published::new(folder.clone(), usize::MAX);
    if let Some(newest) = published.newest()? {
        return Ok(newest);
    }
    if published.next_version()?.0 > 1 {
        bail!(
            "every weights version in {} is damaged; zerofleet train --run {} publishes a new one",
            folder.display(),
            run.name()
        );
    }
    bail!("run {} has published no weights yet; train it with zerofleet train --run {}", run.name(), run.name())
}

fn check<G: Game>(game: &G, manifest: &Manifest, run: &RunDirectory) -> anyhow::Result<()> {
    let spec = game.spec();
    let expected = Architecture {
        game: spec.name.clone(),
        planes: spec.observation.planes,
        height: spec.observation.height,
        width: spec.observation.width,
        actions: spec.actions,
        ..manifest.architecture.clone()
    };
    if manifest.architecture == expected {
        return Ok(());
    }
    if manifest.architecture.game != expected.game {
        bail!(
            "weights {} of run {} play {}, and the run is about {}; its folder was mixed with another run's",
            manifest.version,
            run.name(),
            manifest.architecture.game,
            expected.game
        );
    }
    bail!(
        "weights {} of run {} were made for other rules or observations of {} than this program's; train a new run",
        manifest.version,
        run.name(),
        expected.game
    )
}
