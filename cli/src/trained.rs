//! Loads a weights version of a run, by default the latest, or a model, with game and search settings, for evaluation
//! on this machine or by an inference server.
//!
//! All commands that evaluate a network use this module. Start with [`Trained::open`].

use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use bridge::EnvironmentSection;
use bytes::Bytes;
use evaluators::{Backend, BatchMax, Calibration, Host, Invalid, Network, Store, Threads};
use fleet::run_directory::{RunDirectory, load_run_with};
use game::Game;
use games::GameKind;
use inference::{Attributes, DevicePreference, Evaluator, LatentModel, PrecisionPreference};
use network_cpu::KernelPreference;
use run_file::RunFile;
use selfplay::SearchSettings;
use service::config::{RunSection, Sources};
use transport::security::use_credentials;
use version_store::{Model, ModelFolder};
use weights::{Manifest, WeightsVersion};

use crate::portable::portable;
use crate::{kept_versions, models, own_server, remote};

/// Maximum batch size in positions for evaluation in this process, where batches are small.
const BATCH_MAX: usize = 64;

/// Arguments that select weights and an engine.
#[derive(Debug, Clone, clap::Args)]
// The derived group would have the same name, `Args`, as the group of `play` or `eval`.
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    pub source: Source,

    /// Weights version, see zerofleet weights ls [default: the latest].
    #[arg(long, value_name = "N", value_parser = version, conflicts_with_all = ["weights", "inference"])]
    pub version: Option<WeightsVersion>,

    #[command(flatten)]
    pub options: Options,
}

/// A run or a model; a command line has exactly one of these arguments.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "network", required = true, multiple = false)]
pub(crate) struct Source {
    /// Name of the run.
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,

    /// Weights without a run: a bundled model, a model folder or a file.
    ///
    /// A name of zerofleet weights models, a directory with config.json and model.safetensors, or a manifest written by
    /// zerofleet weights export. The search settings are from run.toml in the directory, or from the game's preset.
    #[arg(long, value_name = "MODEL", conflicts_with = "inference")]
    pub weights: Option<PathBuf>,
}

impl Args {
    /// Returns arguments for the latest weights of a run, on the CPU.
    pub(crate) fn newest(runs: PathBuf, run: &str) -> Self {
        let (device, precision, kernel) = (DevicePreference::Cpu, PrecisionPreference::Auto, KernelPreference::Auto);
        let options = Options { runs, device, precision, kernel, inference: None, game: None, sets: Vec::new() };
        Self { source: Source { run: Some(run.to_owned()), weights: None }, version: None, options }
    }
}

/// Parses a weights version, written `12` or `v12`.
///
/// # Errors
/// The text is not a weights version; the error names it.
pub(crate) fn version(text: &str) -> Result<WeightsVersion, String> {
    let number = text.strip_prefix('v').unwrap_or(text).parse().ok().filter(|&number| number > 0);
    number.map(WeightsVersion).ok_or_else(|| format!("`{text}` is not a weights version such as 12 or v12"))
}

/// Arguments that apply to all runs of a command.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub runs: PathBuf,

    /// Device to evaluate on: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
    ///
    /// `auto` is the faster of CPU and accelerator. For an accelerator, a program built without libtorch starts an
    /// inference server.
    #[arg(long, default_value = "cpu")]
    pub device: DevicePreference,

    /// Precision of the evaluation: `auto`, `f32`, `bf16` or `f16`.
    #[arg(long, default_value = "auto")]
    pub precision: PrecisionPreference,

    /// CPU engine to evaluate with: `auto`, `libtorch`, or a kernel such as `avx512-bf16`.
    #[arg(long, default_value = "auto")]
    pub kernel: KernelPreference,

    /// Evaluate on this inference server (http or https endpoint).
    ///
    /// The server uses its latest weights at the time the command starts. The run supplies only the game, the search
    /// settings and the credentials.
    #[arg(long, value_name = "ENDPOINT", conflicts_with_all = ["device", "precision", "kernel"])]
    pub inference: Option<String>,

    /// Use another board of the game, such as go-13 [default: the run's board].
    ///
    /// The network must fit boards of any size (`network.heads = "pooled"`). In a match without runs, this option
    /// selects the game.
    #[arg(long, value_name = "GAME")]
    pub game: Option<GameKind>,

    /// Override one key of the run's configuration; may be repeated.
    ///
    /// For example `search.c_init=2.5`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

impl Options {
    /// Returns true if the selected engine needs libtorch and this program was built without it, so that an inference
    /// server must evaluate.
    fn needs_server(&self) -> bool {
        !cfg!(feature = "torch") && (self.device.is_accelerator() || self.kernel == KernelPreference::Libtorch)
    }

    /// Returns the settings that override the run file: the values of `--set`, and the board.
    fn of_run_file(&self) -> impl Iterator<Item = String> {
        self.sets.iter().cloned().chain(self.game.iter().map(|game| format!("run.game={game}")))
    }

    /// Returns the settings that override the run file in the inference server that this command starts.
    fn of_server(&self, game: &GameKind) -> Vec<String> {
        let Self { device, precision, kernel, sets, .. } = self;
        let engine = [
            format!("run.game={game}"),
            format!("inference.device={device}"),
            format!("inference.precision={precision}"),
            format!("inference.kernel={kernel}"),
        ];
        sets.iter().cloned().chain(engine).collect()
    }

    /// Loads weights of `name`, a run or a model, in this process or in an inference server that this command starts.
    fn load(
        &self,
        name: &str,
        (manifest, bytes): (Manifest, Vec<u8>),
        config: &RunFile,
        game: &GameKind,
        threads: usize,
    ) -> anyhow::Result<(Networks, Option<LocalWeights>)> {
        let version = manifest.version;
        let manifest = evaluators::suited(&manifest, game.rules().spec())
            .with_context(|| format!("use weights {version} of {name}"))?;
        if self.needs_server() {
            use_credentials(&config.security)?;
            let (scheme, sets) = (config.security.scheme(), self.of_server(game));
            let served = own_server::Served {
                config: service::config::print(config)?,
                manifest: &manifest,
                bytes: &bytes,
                sets,
                scheme,
            };
            return Ok((Networks::Evaluators(own_server::start(served, &game.rules(), threads)?), None));
        }
        let weights = LocalWeights { manifest, bytes: bytes.into(), backend: self.backend(threads)?, threads };
        let networks = weights.networks(game).with_context(|| format!("load weights {version} of {name}"))?;
        Ok((networks, Some(weights)))
    }

    /// Chooses an engine by these options and returns the backend for `threads` threads.
    fn backend(&self, threads: usize) -> anyhow::Result<Arc<dyn Backend>> {
        let wanted = evaluators::Settings {
            device: self.device,
            precision: self.precision,
            kernel: self.kernel,
            // Without calibration, a position always gets the same evaluation.
            calibration: Calibration::Off,
            threads: Threads::exactly(threads),
            batch_max: BatchMax::exactly(BATCH_MAX),
            torch_build: "use zerofleet-torch (cargo build --release --package cli --features torch)",
        };
        // A command stores no measured speeds, so that every start measures again.
        let host = Host { clock: Instant::now, machine: service::machine::describe(), speeds: Store::none() };
        let chosen =
            evaluators::choose(&wanted, host).map_err(|Invalid { setting, reason }| anyhow!("--{setting}: {reason}"));
        chosen.map(|chosen| chosen.backend)
    }
}

/// Weights of a run or a model for evaluation, with game and search settings.
pub(crate) struct Trained {
    /// Name of the run, or of the model as given.
    pub name: String,
    /// The game, on the board given by `--game` or else on the board of the run.
    pub game: GameKind,
    /// Name of the game and directory of the run.
    pub run: RunSection,
    /// Environment section, for a game in Python.
    pub environment: EnvironmentSection,
    /// The search settings of the run.
    pub search: SearchSettings,
    /// Discount factor γ per step, for rewards and values in a learned model.
    pub discount: f32,
    /// The loaded network.
    pub networks: Networks,
    /// The weights in this process; `None` if an inference server evaluates.
    pub weights: Option<LocalWeights>,
}

/// A weights version in the memory of this process, for building networks on other boards of the game.
pub(crate) struct LocalWeights {
    manifest: Manifest,
    bytes: Bytes,
    backend: Arc<dyn Backend>,
    /// Number of evaluators.
    threads: usize,
}

/// The network of a weights version, with one instance per thread if several threads can evaluate.
pub(crate) enum Networks {
    /// An AlphaZero network: one evaluator per evaluation thread; at least one.
    Evaluators(Vec<Box<dyn Evaluator>>),
    /// A MuZero network, with a single instance because latent states belong to one thread.
    Latent(Box<dyn LatentModel>),
}

impl LocalWeights {
    /// Builds the network for the board of `game`: one evaluator per thread, or one latent model.
    fn networks(&self, game: &GameKind) -> anyhow::Result<Networks> {
        if self.manifest.architecture.model.has_dynamics() {
            let manifest = evaluators::suited(&self.manifest, game.rules().spec())?;
            return Ok(Networks::Latent(self.backend.build_latent(&manifest, &self.bytes)?));
        }
        self.evaluators(game).map(Networks::Evaluators)
    }

    /// Builds the evaluators of an AlphaZero network for the board of `game`, one per thread.
    ///
    /// # Errors
    /// [`Unsuitable`](evaluators::Unsuitable) if the network does not fit the board, and errors of the engine.
    pub(crate) fn evaluators(&self, game: &GameKind) -> anyhow::Result<Vec<Box<dyn Evaluator>>> {
        let rules = game.rules();
        let manifest = evaluators::suited(&self.manifest, rules.spec())?;
        selfplay::check_searchable(&rules)?;
        let evaluators = (0..self.threads.max(1)).map(|_| self.backend.build(&manifest, &self.bytes));
        Ok(evaluators.collect::<Result<_, _>>()?)
    }
}

impl Networks {
    /// Returns the attributes of the network.
    pub(crate) fn attributes(&self) -> Attributes {
        match self {
            Self::Evaluators(evaluators) => evaluators[0].attributes(),
            Self::Latent(model) => model.attributes(),
        }
    }

    /// Returns the network of the first thread.
    pub(crate) fn into_first(self) -> Network {
        match self {
            Self::Evaluators(mut evaluators) => Network::Evaluator(evaluators.swap_remove(0)),
            Self::Latent(model) => Network::Latent(model),
        }
    }
}

impl Trained {
    /// Finds the run or the model, and loads `version` or else the latest weights for `threads` threads.
    ///
    /// # Errors
    /// The run or the model does not exist, the run has not published weights or does not keep the version, or the
    /// weights do not fit the game or the board.
    pub(crate) fn open(Args { source, version, options }: &Args, threads: usize) -> anyhow::Result<Self> {
        let Source { run, weights } = source;
        match (weights, run) {
            (Some(model), _) => Self::of_model(model, options, threads),
            (None, Some(run)) => Self::of_run(&RunDirectory::existing(&options.runs, run)?, *version, options, threads),
            (None, None) => bail!("--run or --weights is missing"),
        }
    }

    /// Loads the weights of a model, given by a path or by the name of a bundled model, for `threads` threads. The
    /// search settings are from the run file next to the weights, or else from the game's preset.
    ///
    /// # Errors
    /// There is no such model, a file is damaged, the weights do not fit the board, or only the model names an
    /// environment in Python.
    pub(crate) fn of_model(model: &Path, options: &Options, threads: usize) -> anyhow::Result<Self> {
        ensure!(
            options.inference.is_none(),
            "--inference: the server chooses the weights; --weights cannot select any"
        );
        let name = model.display().to_string();
        let Model { manifest, bytes, run_file } = ModelFolder::read(&models::find(model)?)?;
        let game = format!("run.game={}", manifest.architecture.game);
        let sources = |file, sets| Sources { file, env: iter::empty(), sets };
        let sets = iter::once(game).chain(options.of_run_file()).collect();
        let config: RunFile = sources(run_file, sets).read(games::preset)?.load()?;
        // The author of the model is not trusted: only the command line names programs, paths and addresses.
        let given = sources(None, options.of_run_file().collect()).layers()?;
        let config = given.load_over(&portable(config))?;
        if !given.given(&config)?.contains("run.game") {
            models::check_built_in(&config.run.game)?;
        }
        let game = bridge::config::game(&config.run, &config.environment)?;
        let loaded = options.load(&format!("model {name}"), (manifest, bytes), &config, &game, threads)?;
        Self::new(&name, config, game, loaded)
    }

    /// Loads `version` of the run, or else the latest published weights, for `threads` threads.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub(crate) fn of_run(
        run: &RunDirectory,
        version: Option<WeightsVersion>,
        options: &Options,
        threads: usize,
    ) -> anyhow::Result<Self> {
        let config: RunFile = load_run_with(run, options.of_run_file().collect())?;
        let game = bridge::config::game(&config.run, &config.environment)?;
        let name = run.name();
        let loaded = match &options.inference {
            Some(endpoint) => {
                ensure!(
                    version.is_none(),
                    "--inference: the server chooses the weights; a version of {name} cannot be selected"
                );
                config.security.check_endpoint("--inference", endpoint)?;
                use_credentials(&config.security)?;
                (Networks::Evaluators(remote::evaluators(endpoint, &game.rules(), threads, None)?), None)
            }
            None => {
                let weights = kept_versions::kept(run, version)?;
                options.load(&format!("run {name}"), weights, &config, &game, threads)?
            }
        };
        Self::new(name, config, game, loaded)
    }

    fn new(
        name: &str,
        config: RunFile,
        game: GameKind,
        (networks, weights): (Networks, Option<LocalWeights>),
    ) -> anyhow::Result<Self> {
        let (search, discount) = (config.search.settings()?, config.run.discount);
        let RunFile { run, environment, .. } = config;
        Ok(Self { name: name.to_owned(), game, run, environment, search, discount, networks, weights })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::Path;

    use network::{Entry, LatentLayers, Layer, Layers, Role, Tensor};
    use run_file::RunFile;
    use selfplay::SearchAlgorithm;
    use version_store::{Retention, VersionStore};
    use weights::{Architecture, Digest, HeadKind, Model};

    use super::*;
    use crate::eval;

    fn args(runs: &Path, run: &str) -> Args {
        let mut args = Args::newest(runs.to_owned(), run);
        args.options.precision = PrecisionPreference::F32;
        args
    }

    fn refusal(runs: &Path, run: &str) -> String {
        Trained::open(&args(runs, run), 1).err().unwrap().to_string()
    }

    /// Creates a run of tic-tac-toe without published weights.
    fn begin(runs: &Path) -> RunDirectory {
        begin_with(runs, "tic_tac_toe")
    }

    /// Creates a run of `game` without published weights.
    pub(crate) fn begin_with(runs: &Path, game: &str) -> RunDirectory {
        let run = RunDirectory::new(runs, "noughts").unwrap();
        run.create().unwrap();
        let mut config = RunFile::default();
        config.run.game = game.to_owned();
        fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
        run
    }

    /// Returns the architecture of a small network for `kind`.
    pub(crate) fn architecture(kind: &GameKind) -> Architecture {
        let game = kind.rules();
        let (spec, shape) = (game.spec(), game.spec().observation);
        Architecture {
            game: spec.name.clone(),
            planes: shape.planes,
            height: shape.height,
            width: shape.width,
            actions: spec.actions,
            channels: 16,
            blocks: 3,
            squeeze_excitation: 8,
            global_pooling: 4,
            design: weights::Design::default(),
            model: weights::Model::Alphazero,
        }
    }

    /// Publishes untrained weights.
    pub(crate) fn publish(run: &RunDirectory, architecture: Architecture, version: u64) {
        let tensors: Vec<Tensor> = match architecture.model {
            Model::Alphazero => Layers::new(&architecture).unwrap().tensors().collect(),
            Model::AlphazeroReturns { .. } | Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
                LatentLayers::new(&architecture).unwrap().iter().flat_map(Layer::tensors).collect()
            }
        };
        let entries = tensors.into_iter().map(|tensor| {
            let of_one = matches!(tensor.role, Role::NormScale | Role::NormVariance);
            Entry::tensor("", &tensor, &vec![if of_one { 1.0 } else { 0.01 }; tensor.numel()])
        });
        let bytes = network::write(entries).unwrap();
        let digest = Digest::of(&bytes);
        let (version, size_bytes) = (WeightsVersion(version), bytes.len() as u64);
        let manifest = Manifest { version, training_step: 1, digest, size_bytes, architecture };
        VersionStore::of_learner(run.path()).write(&manifest, &bytes, Retention::All).unwrap();
    }

    /// Publishes untrained weights of a new run of `game`, and returns a model folder with the same weights.
    pub(crate) fn model(runs: &Path, game: &str, version: u64) -> PathBuf {
        let (run, folder) = (begin_with(runs, game), runs.join("model"));
        let of_game = architecture(&game.parse().unwrap());
        let design = weights::Design { heads: HeadKind::Pooled, ..of_game.design };
        publish(&run, Architecture { design, ..of_game }, version);
        let (manifest, bytes) = VersionStore::of_learner(run.path()).read(WeightsVersion(version)).unwrap();
        ModelFolder::write(&folder, &manifest, &bytes).unwrap();
        folder
    }

    /// Opens a run of `game` with untrained weights and heads of this kind, and returns it with the directory.
    pub(crate) fn untrained(game: &str, heads: HeadKind) -> (tempfile::TempDir, Trained) {
        let runs = tempfile::tempdir().unwrap();
        let architecture = architecture(&game.parse().unwrap());
        let design = weights::Design { heads, ..architecture.design };
        publish(&begin_with(runs.path(), game), Architecture { design, ..architecture }, 1);
        let trained = Trained::open(&args(runs.path(), "noughts"), 1).unwrap();
        (runs, trained)
    }

    #[test]
    fn the_newest_weights_of_a_run_evaluate_its_game() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        publish(&run, architecture(&GameKind::TicTacToe), 1);
        publish(&run, architecture(&GameKind::TicTacToe), 2);
        let sets = vec!["search.algorithm=puct".to_owned(), "search.c_init=2.5".to_owned()];
        let mut args = args(runs.path(), "noughts");
        args.options.sets = sets;
        let trained = Trained::open(&args, 1).unwrap();
        assert_eq!((trained.search.algorithm, trained.search.c_init), (SearchAlgorithm::Puct, 2.5));
        assert_eq!(trained.game, GameKind::TicTacToe);
        assert_eq!(trained.networks.attributes().weights_version, 2);
    }

    #[test]
    fn a_model_plays_its_game_with_the_search_settings_of_its_run_file_or_else_of_the_preset() {
        let folder = tempfile::tempdir().unwrap();
        let model = model(folder.path(), "hex-5", 3);
        let options = args(folder.path(), "none").options;
        let open = |options: Options| {
            let source = Source { run: None, weights: Some(model.clone()) };
            Trained::open(&Args { source, version: None, options }, 1).map_err(|error| service::chain(&error))
        };
        let trained = open(options.clone()).unwrap();
        let version = trained.networks.attributes().weights_version;
        assert_eq!((trained.name, trained.game.to_string(), version), (model.display().to_string(), "hex-5".into(), 3));
        let sets = |text: &str| Options { sets: vec![text.to_owned()], ..options.clone() };
        let run_file = model.join(ModelFolder::RUN_FILE);
        fs::write(&run_file, "[run]\ngame = \"go-5\"\n[search]\nalgorithm = \"puct\"\nc_init = 2.5\n").unwrap();
        for (options, c_init) in [(options.clone(), 2.5), (sets("search.c_init=1.5"), 1.5)] {
            let Trained { game, search, .. } = open(options).unwrap();
            assert_eq!(
                (game.to_string(), search.algorithm, search.c_init),
                ("hex-5".into(), SearchAlgorithm::Puct, c_init)
            );
        }
        let on = |game: &str| open(Options { game: Some(game.parse().unwrap()), ..options.clone() });
        assert_eq!(on("hex-4").unwrap().game.to_string(), "hex-4");
        let error = on("tic_tac_toe").err().unwrap();
        assert!(error.contains("use weights v3 of model") && error.contains("not for tic_tac_toe"), "{error}");
        fs::write(&run_file, "[search]\nc_inti = 2.5\n").unwrap();
        let error = open(options.clone()).err().unwrap();
        assert!(error.contains("run.toml") && error.contains("c_init"), "{error}");
        fs::write(model.join(ModelFolder::WEIGHTS), "damaged").unwrap();
        let error = open(options).err().unwrap();
        assert!(error.contains("model.safetensors does not match the digest"), "{error}");
    }

    #[test]
    fn a_model_names_neither_programs_nor_paths_nor_an_environment_in_python() {
        let folder = tempfile::tempdir().unwrap();
        let model = model(folder.path(), "hex-5", 3);
        let run_file = "[environment]\npython = \"./any\"\nmodules = [\".\"]\npass_variables = [\"TOKEN\"]\n\
                        arguments = '{\"command\": \"any\"}'\nstack = 2\n";
        fs::write(model.join(ModelFolder::RUN_FILE), run_file).unwrap();
        let options = args(folder.path(), "none").options;
        let open = |model: &Path, sets: &[&str]| {
            let options = Options { sets: sets.iter().map(|&set| set.to_owned()).collect(), ..options.clone() };
            let opened = Trained::of_model(model, &options, 1).map(|trained| trained.environment);
            opened.map_err(|error| service::chain(&error))
        };
        let plain = EnvironmentSection { stack: 2, ..EnvironmentSection::default() };
        assert_eq!(open(&model, &[]), Ok(plain.clone()));
        let own = EnvironmentSection { python: "own".into(), ..plain };
        assert_eq!(open(&model, &["environment.python=own"]), Ok(own));
        let version_store::Model { mut manifest, bytes, .. } = ModelFolder::read(&model).unwrap();
        manifest.architecture.game = "gym:call:os:system".to_owned();
        let outside = folder.path().join("outside");
        ModelFolder::write(&outside, &manifest, &bytes).unwrap();
        let error = open(&outside, &[]).unwrap_err();
        assert!(error.starts_with("the model plays \"gym:call:os:system\", "), "{error}");
        let named = open(&outside, &["run.game=gym:call:os:system"]).unwrap_err();
        assert!(named.starts_with("environment.actions: is 0"), "{named}");
    }

    #[test]
    fn a_muzero_network_is_loaded_as_a_learned_model_and_plays_evaluation_episodes() {
        for game in ["cartpole-v1", "catch"] {
            let runs = tempfile::tempdir().unwrap();
            let run = begin_with(runs.path(), game);
            let kind: GameKind = game.parse().unwrap();
            publish(&run, Architecture { model: Model::Muzero { support: 5 }, ..architecture(&kind) }, 3);
            let trained = Trained::open(&args(runs.path(), "noughts"), 2).unwrap();
            assert!(matches!(trained.networks, Networks::Latent(_)), "{game}");
            let (game, player) = eval::Player::of(trained, 4);
            let report = eval::measure_returns(&game.rules(), None, 2, 7, player).unwrap();
            assert_eq!((report.weights_version, report.returns.episodes), (3, 2));
            assert!(report.returns.length >= 5.0 && report.returns.mean.is_finite(), "{report:?}");
        }
    }

    #[test]
    fn weights_that_predict_outcomes_are_refused_in_an_environment() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin_with(runs.path(), "catch");
        publish(&run, architecture(&"catch".parse().unwrap()), 1);
        let error = service::chain(&Trained::open(&args(runs.path(), "noughts"), 1).err().unwrap());
        assert!(error.contains("predict wins, draws and losses, but catch is scored by its rewards"), "{error}");
    }

    #[test]
    fn an_alphazero_network_of_returns_plays_evaluation_episodes_by_the_rules() {
        for game in ["cartpole-v1", "catch", "market_making"] {
            let runs = tempfile::tempdir().unwrap();
            let run = begin_with(runs.path(), game);
            let kind: GameKind = game.parse().unwrap();
            publish(&run, Architecture { model: Model::AlphazeroReturns { support: 5 }, ..architecture(&kind) }, 3);
            let trained = Trained::open(&args(runs.path(), "noughts"), 2).unwrap();
            assert!(matches!(trained.networks, Networks::Evaluators(_)), "{game}");
            let (game, player) = eval::Player::of(trained, 4);
            let report = eval::measure_returns(&game.rules(), None, 2, 7, player).unwrap();
            assert_eq!((report.weights_version, report.returns.episodes), (3, 2));
            assert!(report.returns.length >= 9.0 && report.returns.mean.is_finite(), "{report:?}");
        }
    }

    #[test]
    fn an_unknown_run_is_an_error_that_lists_the_runs() {
        let runs = tempfile::tempdir().unwrap();
        assert!(refusal(runs.path(), "crosses").ends_with("there are no runs yet; zerofleet train starts one"));
        begin(runs.path());
        let error = refusal(runs.path(), "crosses");
        assert!(error.starts_with("no run crosses in") && error.ends_with("existing runs: noughts"), "{error}");
    }

    #[test]
    fn a_run_without_whole_weights_is_an_error_with_a_remedy() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        let error = refusal(runs.path(), "noughts");
        assert!(error.starts_with("run noughts has published no weights yet"), "{error}");
        publish(&run, architecture(&GameKind::TicTacToe), 1);
        fs::write(run.path().join("weights/v000001.safetensors"), b"not what was written").unwrap();
        let error = refusal(runs.path(), "noughts");
        assert!(error.contains("are damaged"), "{error}");
    }

    #[test]
    fn weights_of_another_game_are_refused() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        publish(&run, architecture(&GameKind::ConnectFour), 1);
        let error = service::chain(&Trained::open(&args(runs.path(), "noughts"), 1).err().unwrap());
        assert!(error.contains("weights v1 of run noughts"), "{error}");
        assert!(error.contains("the weights are for connect_four, not for tic_tac_toe"), "{error}");
    }

    #[test]
    fn a_run_is_opened_on_the_board_that_an_option_names_if_its_weights_are_of_every_board() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin_with(runs.path(), "hex-5");
        let of_run = architecture(&"hex-5".parse().unwrap());
        let publish_with = |heads, version| {
            let design = weights::Design { heads, ..of_run.design };
            publish(&run, Architecture { design, ..of_run.clone() }, version);
        };
        publish_with(HeadKind::Pooled, 1);
        let on = |game: &str| {
            let mut args = args(runs.path(), "noughts");
            args.options.game = Some(game.parse().unwrap());
            let LocalWeights { manifest, .. } =
                Trained::open(&args, 1).map_err(|error| service::chain(&error))?.weights.unwrap();
            let weights::Board { game, observation, actions } = manifest.architecture.board();
            Ok::<_, String>((game.to_owned(), observation[1..].to_vec(), actions))
        };
        let expected = architecture(&"hex-4".parse().unwrap());
        assert_eq!(on("hex-4"), Ok(("hex-4".to_owned(), vec![4, 4], expected.actions)));
        let error = on("go-5").unwrap_err();
        assert!(error.contains("use weights v1 of run noughts") && error.contains("not for go-5"), "{error}");
        publish_with(HeadKind::Flattened, 2);
        assert_eq!(on("hex-5").unwrap().0, "hex-5");
        let mut args = args(runs.path(), "noughts");
        args.options.game = Some("hex-4".parse().unwrap());
        let error = service::chain(&Trained::open(&args, 1).err().unwrap());
        assert!(error.contains("are for hex-5, not for hex-4") && error.contains("network.heads"), "{error}");
        args.options.game = None;
        assert_eq!(Trained::open(&args, 1).unwrap().game.to_string(), "hex-5");
    }

    #[cfg(not(feature = "torch"))]
    #[test]
    fn a_network_that_needs_libtorch_is_rejected_with_its_program_and_an_engine_that_needs_it_with_the_server() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        publish(&run, Architecture { channels: 12, ..architecture(&GameKind::TicTacToe) }, 1);
        let Args { source, options, .. } = args(runs.path(), "noughts");
        let args = |options| Args { source: source.clone(), version: None, options };
        let refused = |options| service::chain(&Trained::open(&args(options), 1).err().unwrap());
        let error = refused(options.clone());
        assert!(error.contains("12 channels") && error.contains("use zerofleet-torch"), "{error}");
        let error = refused(Options { device: DevicePreference::Cuda(0), ..options.clone() });
        // No server is in the directory of these tests.
        let remedy = "--package inference-server --features torch";
        assert!(error.contains("inference-server is missing") && error.contains(remedy), "{error}");
        let error = refused(Options { kernel: KernelPreference::Libtorch, ..options });
        assert!(error.contains("inference-server is missing"), "{error}");
    }
}
