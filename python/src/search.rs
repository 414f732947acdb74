//! The classes `Search` and `Analysis`: searches of positions with a network of this process.

use std::num::NonZeroUsize;
use std::ops::ControlFlow::{self, Break, Continue};
use std::ops::RangeInclusive;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use game::{Action, Game as _};
use games::{AnyGame, AnyPosition};
use inference::{Attributes, Batch, LatentModel, LatentPredictions, Slot, Unroll};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use selfplay::{
    AnalysisSettings, EarlyStop, Proven, SearchAlgorithm, SearchSettings, Solver, TreeSize, ValueSpan,
    analyse_together, latent,
};
use weights::Architecture;

use crate::errors::{failed, rejected};
use crate::network::{Loaded, Network};
use crate::position::Position;

/// Time between two checks for Ctrl-C.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Memory of a search tree at which a search stops; the pool of latent states, which is made before the search, counts.
const TREE_BYTES_MAX: usize = 8 << 30;
/// Maximum number of simulations. Visit counts are exact in f32 up to 2²⁴.
const SIMULATIONS_MAX: u32 = 10_000_000;
/// Bytes of a tree node without state and edges, and of an edge.
const NODE_BYTES: usize = 64;
const EDGE_BYTES: usize = 24;
/// Minimum number of simulations per leaf in flight, and maximum batch size in leaves, as in `zerofleet play`.
const SIMULATIONS_PER_LEAF: usize = 32;
const LEAVES_MAX: usize = 8;

/// A search with a network. Keyword arguments are keys of the section `[search]` of a run file, and `discount`.
#[pyclass(frozen, module = "zerofleet._zerofleet")]
pub(crate) struct Search {
    network: Arc<Loaded>,
    settings: SearchSettings,
    discount: f32,
}

#[pymethods]
impl Search {
    #[new]
    #[pyo3(signature = (network, **settings))]
    fn new(network: &Network, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (settings, discount) = settings_of(settings)?;
        Ok(Self { network: Arc::clone(&network.loaded), settings, discount })
    }

    /// Searches a position in which the game is not over.
    ///
    /// With 0 simulations, the network alone evaluates the position. There are at most 10,000,000 simulations, and at
    /// most as many as take about 8 GiB. `on_progress` gets the analysis so far about every 20 ms, except in a learned
    /// model. An exception of `on_progress` ends the search, and so does Ctrl-C.
    #[pyo3(signature = (position, simulations, seed = 0, on_progress = None))]
    fn analyse(
        &self,
        py: Python<'_>,
        position: &Position,
        simulations: u32,
        seed: u64,
        on_progress: Option<Py<PyAny>>,
    ) -> PyResult<Analysis> {
        let (game, position) = (Arc::clone(&position.game.rules), position.at.clone());
        let watch = Watch { on_progress, due: Instant::now() + CHECK_INTERVAL, stopped: None };
        py.detach(|| self.search(&game, &position, simulations, seed, watch))
    }

    fn __repr__(&self) -> String {
        format!("Search(game='{}', {:?})", self.network.manifest.architecture.game, self.settings)
    }
}

impl Search {
    fn search(
        &self,
        game: &AnyGame,
        position: &AnyPosition,
        simulations: u32,
        seed: u64,
        mut watch: Watch,
    ) -> PyResult<Analysis> {
        let (architecture, name) = (&self.network.manifest.architecture, &game.spec().name);
        let on_board = evaluators::suited(&self.network.manifest, game.spec()).map_err(|error| failed(&error))?;
        if on_board.architecture != *architecture {
            return Err(rejected(format!("load the network with board='{name}' for positions of {name}")));
        }
        if game.outcome(position).is_some() {
            return Err(rejected("the game is over: there is no move to choose"));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let analysed = match self.network.take()? {
            evaluators::Network::Evaluator(evaluator) => {
                selfplay::check_searchable(game).map_err(|error| failed(&error))?;
                let settings = self.analysis_settings(simulations.min(SIMULATIONS_MAX));
                let (mut alone, heap_bytes) = ([evaluator], position.boxed_bytes());
                let mut progress = |analysis: &dyn Fn() -> selfplay::Analysis, tree: TreeSize| {
                    let is_full = tree.bytes + tree.nodes * heap_bytes >= TREE_BYTES_MAX;
                    if is_full { Break(()) } else { watch.look(Some(analysis)) }
                };
                let analysed = analyse_together(game, position, &settings, &mut alone, &mut rng, &mut progress);
                let [evaluator] = alone;
                self.network.put_back(evaluators::Network::Evaluator(evaluator));
                analysed
            }
            // The instance is dropped with the pool of latent states.
            evaluators::Network::Latent(model) => {
                let settings = self.analysis_settings(simulations.min(simulations_within_memory(architecture)));
                let mut model = Watched { model, watch: &mut watch };
                let analyses = latent::analyse(game, slice::from_ref(position), &settings, &mut model, &mut rng);
                analyses.map(|mut analyses| analyses.remove(0))
            }
        };
        match watch.stopped {
            Some(error) => Err(error),
            None => analysed.map(Analysis::from).map_err(|error| failed(&error)),
        }
    }

    /// Returns the settings for one position.
    fn analysis_settings(&self, simulations: u32) -> AnalysisSettings {
        let leaves = (simulations as usize / SIMULATIONS_PER_LEAF).clamp(1, LEAVES_MAX);
        let (search, discount) = (self.settings.clone(), self.discount);
        AnalysisSettings { simulations, search, leaves_per_tree: leaves, batch: leaves, discount }
    }
}

/// Returns the number of simulations in a learned model with at most [`TREE_BYTES_MAX`] of nodes and latent states. A
/// simulation adds one node at most, with an edge for each action or chance code.
fn simulations_within_memory(architecture: &Architecture) -> u32 {
    let &Architecture { channels, height, width, actions, model, .. } = architecture;
    let (state_bytes, edges) = (size_of::<f32>() * channels * height * width, actions.max(model.codes()));
    let bytes = NODE_BYTES + state_bytes + EDGE_BYTES * edges.next_multiple_of(8);
    u32::try_from(TREE_BYTES_MAX / bytes).unwrap_or(u32::MAX).min(SIMULATIONS_MAX)
}

/// Checks for Ctrl-C and reports to Python, during a search without the interpreter lock.
struct Watch {
    on_progress: Option<Py<PyAny>>,
    /// Time of the next check.
    due: Instant,
    /// Exception that ended the search.
    stopped: Option<PyErr>,
}

impl Watch {
    /// Returns `Break` once there is an exception.
    fn look(&mut self, analysis: Option<&dyn Fn() -> selfplay::Analysis>) -> ControlFlow<()> {
        if self.stopped.is_none() && Instant::now() >= self.due {
            self.stopped = Python::attach(|py| self.called(py, analysis)).err();
            self.due = Instant::now() + CHECK_INTERVAL;
        }
        if self.stopped.is_some() { Break(()) } else { Continue(()) }
    }

    fn called(&self, py: Python<'_>, analysis: Option<&dyn Fn() -> selfplay::Analysis>) -> PyResult<()> {
        py.check_signals()?;
        if let (Some(on_progress), Some(analysis)) = (&self.on_progress, analysis) {
            on_progress.call1(py, (Analysis::from(analysis()),))?;
        }
        Ok(())
    }
}

/// A learned model that fails once [`Watch`] has an exception, since searches in learned models have no callback.
struct Watched<'a> {
    model: Box<dyn LatentModel>,
    watch: &'a mut Watch,
}

impl Watched<'_> {
    fn check(&mut self) -> Result<(), inference::Error> {
        let stopped = || inference::Error::Backend("the search was stopped".to_owned());
        if self.watch.look(None).is_break() { Err(stopped()) } else { Ok(()) }
    }
}

impl LatentModel for Watched<'_> {
    fn attributes(&self) -> Attributes {
        self.model.attributes()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), inference::Error> {
        self.model.reserve(slots)
    }

    fn start(&mut self, batch: &Batch, to: &[Slot], acts: &[Unroll], steps: &[Unroll]) {
        self.model.start(batch, to, acts, steps);
    }

    fn initial(
        &mut self,
        batch: &Batch,
        to: &[Slot],
        predictions: &mut LatentPredictions,
    ) -> Result<(), inference::Error> {
        self.model.initial(batch, to, predictions)
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), inference::Error> {
        self.check()?;
        self.model.recurrent(steps, predictions)
    }

    fn codes(&self) -> usize {
        self.model.codes()
    }

    fn act(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), inference::Error> {
        self.model.act(steps, predictions)
    }
}

/// The keys of [`settings_of`], for errors.
const KEYS: &str = "algorithm, c_base, c_init, fpu_reduction, dirichlet_total, dirichlet_fraction, solver, early_stop, \
                    gumbel_considered_actions_max, gumbel_c_visit, gumbel_c_scale, gumbel_value_span, discount";

/// Returns the search settings and the discount in keyword arguments. Keys, ranges and defaults are as in a run file.
fn settings_of(given: Option<&Bound<'_, PyDict>>) -> PyResult<(SearchSettings, f32)> {
    let mut settings = SearchSettings { early_stop: EarlyStop::Decided, ..SearchSettings::default() };
    let SearchAlgorithm::Gumbel { mut considered_actions_max, mut c_visit, mut c_scale, mut span } =
        SearchAlgorithm::GUMBEL
    else {
        unreachable!("the constants are of Gumbel")
    };
    let (mut is_gumbel, mut discount) = (false, 1.0);
    for (key, value) in given.into_iter().flatten() {
        let key: String = key.extract()?;
        let number = |range: RangeInclusive<f32>| {
            let number = value.extract::<f32>()?;
            let (least, most) = (range.start(), range.end());
            let wrong = || rejected(format!("{key} is {number}, must be from {least} to {most}"));
            if range.contains(&number) { Ok(number) } else { Err(wrong()) }
        };
        let is_second = |names: [&str; 2]| match value.extract::<&str>()? {
            name if name == names[0] => Ok(false),
            name if name == names[1] => Ok(true),
            name => Err(rejected(format!("{key} is {name}, must be {} or {}", names[0], names[1]))),
        };
        match key.as_str() {
            "algorithm" => is_gumbel = is_second(["puct", "gumbel"])?,
            "c_base" => settings.c_base = number(f32::MIN_POSITIVE..=1e9)?,
            "c_init" => settings.c_init = number(0.0..=1e6)?,
            "fpu_reduction" => settings.fpu_reduction = number(0.0..=2.0)?,
            "dirichlet_total" => settings.dirichlet.total_concentration = number(f32::MIN_POSITIVE..=1e6)?,
            "dirichlet_fraction" => settings.dirichlet.fraction = number(0.0..=1.0)?,
            "solver" => settings.solver = if value.extract::<bool>()? { Solver::On } else { Solver::Off },
            "early_stop" => {
                settings.early_stop = if value.extract::<bool>()? { EarlyStop::Decided } else { EarlyStop::Never };
            }
            "gumbel_considered_actions_max" => considered_actions_max = value.extract::<NonZeroUsize>()?.get(),
            "gumbel_c_visit" => c_visit = number(0.0..=1e6)?,
            "gumbel_c_scale" => c_scale = number(f32::MIN_POSITIVE..=1e6)?,
            "gumbel_value_span" => {
                span = if is_second(["tree", "node"])? { ValueSpan::Node } else { ValueSpan::Tree };
            }
            "discount" => discount = number(f32::MIN_POSITIVE..=1.0)?,
            _ => return Err(PyTypeError::new_err(format!("`{key}` is no setting of a search; settings are {KEYS}"))),
        }
    }
    if is_gumbel {
        settings.algorithm = SearchAlgorithm::Gumbel { considered_actions_max, c_visit, c_scale, span };
    }
    Ok((settings, discount))
}

/// The result of a search. Lists with one element for each action are in the order of `actions`; values are for the
/// player to move.
#[pyclass(frozen, eq, get_all, module = "zerofleet._zerofleet")]
#[derive(PartialEq)]
pub(crate) struct Analysis {
    /// Legal actions, in ascending order.
    actions: Vec<u16>,
    /// Completed visits of each action.
    visit_counts: Vec<u32>,
    /// Prior of each action from the network.
    priors: Vec<f32>,
    /// Search policy; the priors after 0 simulations.
    policy: Vec<f32>,
    /// Value of each action.
    action_values: Vec<f32>,
    /// Expected value of the search policy.
    value: f32,
    /// Value from the network.
    network_value: f32,
    /// Best actions of both players, from the position.
    principal_variation: Vec<u16>,
    /// Action to play.
    best: u16,
    /// Proven result for the player to move: win, draw or loss; None if nothing is proven.
    proven: Option<&'static str>,
    /// Number of completed simulations.
    simulations: u32,
}

impl From<selfplay::Analysis> for Analysis {
    fn from(analysis: selfplay::Analysis) -> Self {
        let numbers = |actions: Vec<Action>| actions.into_iter().map(|action| action.0).collect();
        let proven = match analysis.proven {
            Proven::Unknown => None,
            Proven::Win => Some("win"),
            Proven::Draw => Some("draw"),
            Proven::Loss => Some("loss"),
        };
        Self {
            simulations: analysis.visit_counts.iter().sum(),
            actions: numbers(analysis.actions),
            visit_counts: analysis.visit_counts,
            priors: analysis.priors,
            policy: analysis.policy,
            action_values: analysis.action_values,
            value: analysis.value,
            network_value: analysis.network_value,
            principal_variation: numbers(analysis.principal_variation),
            best: analysis.best.0,
            proven,
        }
    }
}

#[pymethods]
impl Analysis {
    fn __repr__(&self) -> String {
        let Self { best, value, simulations, .. } = self;
        let proven = self.proven.map(|proven| format!(", proven='{proven}'")).unwrap_or_default();
        format!("Analysis(best={best}, value={value:+.3}, simulations={simulations}{proven})")
    }
}
