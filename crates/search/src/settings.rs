//! Search settings, with defaults from the papers.

use serde::{Deserialize, Serialize};

/// Settings of a tree search. The ranges are not checked here: the code that parses a configuration checks them.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The search algorithm.
    pub algorithm: SearchAlgorithm,
    /// `c_base` of pUCT: the visit count at which the exploration term starts to grow. The paper uses 19652.
    pub c_base: f32,
    /// `c_init` of pUCT: the strength of exploration at low visit counts. The paper uses 1.25 for values in `[0, 1]`.
    /// For values in `[-1, 1]`, as here, 2.5 would explore equally, but 1.25 plays best (docs/benchmarks/search.md).
    pub c_init: f32,
    /// First-play reduction `r`: under pUCT an unvisited child has the mean value of the parent minus
    /// `r · √(prior mass of the visited children)` (KataGo; Wu 2020). The reduction does not apply at the root of an
    /// [exploring](Exploration::Explore) search, so that every action is tried.
    pub fpu_reduction: f32,
    /// Noise on the root priors of [exploring](Exploration::Explore) pUCT searches.
    pub dirichlet: Dirichlet,
    /// The propagation of proven results to ancestors: on or off.
    pub solver: Solver,
    /// The condition under which a search stops before the simulation budget is spent.
    pub early_stop: EarlyStop,
    /// The range of action values, which determines whether values are rescaled.
    pub values: ValueRange,
}

impl Settings {
    /// Settings for a board game: pUCT with the constants of AlphaZero, and the first-play reduction and shaped noise
    /// of KataGo.
    ///
    /// Opponents that fix the scale of Elo search with these settings, so no value ever changes, and a new setting has
    /// the value that leaves a search as it was. A default that changes belongs in [`default`](Self::default).
    pub const FIXED: Self = Self {
        algorithm: SearchAlgorithm::Puct,
        c_base: 19_652.0,
        c_init: 1.25,
        fpu_reduction: 0.2,
        dirichlet: Dirichlet { total_concentration: 10.83, fraction: 0.25 },
        solver: Solver::On,
        early_stop: EarlyStop::Never,
        values: ValueRange::Board,
    };
}

impl Default for Settings {
    /// Returns [`FIXED`](Self::FIXED).
    fn default() -> Self {
        Self::FIXED
    }
}

/// The search algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchAlgorithm {
    /// pUCT at every node; the search policy is proportional to the visits.
    Puct,
    /// Sequential halving at the root and the improved policy below the root. The search policy is
    /// `softmax(logits + σ(completed Q))` (Danihelka et al. 2022).
    Gumbel {
        /// `m`, the maximum number of root actions considered. The paper uses 16.
        considered_actions_max: usize,
        /// `c_visit` of σ. The paper uses 50.
        c_visit: f32,
        /// `c_scale` of σ. The paper uses 1 for values in `[-1, 1]` and 0.1 for values rescaled to `[0, 1]`.
        c_scale: f32,
        /// The span of values rescaled to `[0, 1]`, if values are [normalised](ValueRange::Normalised).
        span: ValueSpan,
    },
}

/// The span of values that Gumbel rescales to `[0, 1]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueSpan {
    /// The completed values of each node, as in mctx. The best and the worst action of a node always differ by 1, so
    /// the search policy amplifies value errors where actions hardly differ.
    Node,
    /// The action values of the whole tree since the last reset, as under pUCT.
    Tree,
}

impl SearchAlgorithm {
    /// Gumbel with the constants of the paper for board games, where values are not rescaled.
    pub const GUMBEL: Self =
        Self::Gumbel { considered_actions_max: 16, c_visit: 50.0, c_scale: 1.0, span: ValueSpan::Tree };

    /// Gumbel with the constants of the paper for values rescaled to `[0, 1]`, and with a separate rescaling for each
    /// node, as in mctx.
    pub const GUMBEL_NORMALISED: Self =
        Self::Gumbel { considered_actions_max: 16, c_visit: 50.0, c_scale: 0.1, span: ValueSpan::Node };
}

/// Dirichlet noise on the root priors: `(1 − fraction) · P + fraction · Dir(total / legal)`, where `legal` is the
/// number of legal actions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dirichlet {
    /// Total concentration; each legal action gets `total / legal`. On 19×19 Go, 10.83 gives 0.03 for each action.
    pub total_concentration: f32,
    /// Weight of the noise in the mixture, between 0 and 1. With 0, no noise is drawn.
    pub fraction: f32,
}

/// The propagation of proven results to ancestors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Terminal results prove ancestors where players alternate (discount −1) and no reward is paid. Proven wins and
    /// losses are not visited again. Proven draws stay open to visits, with the exact value.
    On,
    /// Nothing is proven, and terminal nodes are visited repeatedly.
    Off,
}

/// The condition under which a search stops before the simulation budget is spent. Only [greedy](Exploration::Greedy)
/// pUCT searches stop early. Other pUCT searches need every visit, as a training target or for sampling the move, and
/// Gumbel allocates the whole budget in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStop {
    /// The search runs every simulation of the budget.
    Never,
    /// The search stops when no action can overtake the most visited action within the remaining simulations. The
    /// search therefore misses proofs that the skipped simulations would have found.
    Decided,
}

/// The range of action values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueRange {
    /// Values in `[-1, 1]`, used without rescaling.
    Board,
    /// Unbounded values, rescaled to `[0, 1]`. pUCT uses the least and greatest action value since the last reset of
    /// the tree, as in MuZero. Gumbel uses the least and greatest value of the [`ValueSpan`].
    Normalised,
}

/// The randomness in the search and choice of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exploration {
    /// Dirichlet noise on the priors (pUCT) or Gumbel noise on the logits (Gumbel).
    Explore,
    /// No noise. The move is sampled from the search policy, so the search runs every simulation.
    Sample,
    /// No noise. The move is the best action without sampling, and the search may stop early.
    Greedy,
}
