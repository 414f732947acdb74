//! Search settings, with the published defaults.

/// Settings of a tree search. These are plain values: the code that reads a configuration checks the ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The algorithm that spends the simulations of a move.
    pub algorithm: SearchAlgorithm,
    /// `c_base` of pUCT: the visit count around which exploration starts to grow. Published: 19652.
    pub c_base: f32,
    /// `c_init` of pUCT: exploration while visits are few. The published 1.25 is for values in `[0, 1]`; values here
    /// are in `[-1, 1]`, where 2.5 explores as much. 1.25 measured best: docs/benchmarks/search.md.
    pub c_init: f32,
    /// First-play reduction `r`: before the first visit a child is worth, in pUCT, the mean value of the parent less
    /// `r · √(prior mass of the children visited)` (KataGo; Wu 2020). It is not applied at the root in
    /// [exploring](Exploration::Explore) searches, so that every action is tried.
    pub fpu_reduction: f32,
    /// Noise on the root priors of [exploring](Exploration::Explore) pUCT searches.
    pub dirichlet: Dirichlet,
    /// Determines whether proven results are backed up.
    pub solver: Solver,
    /// Determines whether a search may stop before the budget is spent.
    pub early_stop: EarlyStop,
    /// The range of the values.
    pub values: ValueRange,
}

impl Default for Settings {
    /// pUCT on a board game with the constants of AlphaZero, first-play reduction and shaped noise of KataGo.
    fn default() -> Self {
        Self {
            algorithm: SearchAlgorithm::Puct,
            c_base: 19_652.0,
            c_init: 1.25,
            fpu_reduction: 0.2,
            dirichlet: Dirichlet { total_concentration: 10.83, fraction: 0.25 },
            solver: Solver::On,
            early_stop: EarlyStop::Never,
            values: ValueRange::Board,
        }
    }
}

/// The algorithm that spends the simulations of a move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchAlgorithm {
    /// pUCT at every node; the search policy is the share of visits.
    Puct,
    /// Sequential halving at the root, improved policy below it; the search policy is the completed-Q policy.
    /// Danihelka et al. 2022.
    Gumbel {
        /// `m`, the maximum number of root actions considered. Published: 16.
        considered_actions_max: usize,
        /// `c_visit` of σ. Published: 50.
        c_visit: f32,
        /// `c_scale` of σ. Published: 1 for values in `[-1, 1]`, 0.1 for values rescaled to `[0, 1]`.
        c_scale: f32,
        /// The span of values that maps to `[0, 1]`, if values are [normalised](ValueRange::Normalised).
        span: ValueSpan,
    },
}

/// The span of values that Gumbel maps to `[0, 1]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSpan {
    /// The completed values of each node, as in mctx. The best and the worst action of a node always differ by 1, so
    /// that where actions hardly matter the search policy follows the errors of the values.
    Node,
    /// The action values met in the tree since the last reset, as under pUCT: actions differ by a share of that range.
    Tree,
}

impl SearchAlgorithm {
    /// Gumbel with the constants published for board games, where values are not rescaled.
    pub const GUMBEL: Self =
        Self::Gumbel { considered_actions_max: 16, c_visit: 50.0, c_scale: 1.0, span: ValueSpan::Tree };

    /// Gumbel with the constants published for values rescaled to `[0, 1]`, and the rescaling of mctx.
    pub const GUMBEL_NORMALISED: Self =
        Self::Gumbel { considered_actions_max: 16, c_visit: 50.0, c_scale: 0.1, span: ValueSpan::Node };
}

/// Dirichlet noise on the priors of an explored root: `(1 − fraction) · P + fraction · Dir(total / legal)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dirichlet {
    /// Total concentration over all legal actions; each has `total / legal`. 10.83 is 0.03 on 19×19 Go.
    pub total_concentration: f32,
    /// Share of the prior that the noise replaces; with 0 no noise is drawn.
    pub fraction: f32,
}

/// Determines whether proven results are backed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Terminal results prove ancestors wherever players alternate (discount −1) and no reward is paid. A proven win or
    /// loss is not visited again; a proven draw is, with the exact value, while nothing better is proven.
    On,
    /// Terminal nodes are visited like any other.
    Off,
}

/// Determines whether a search may stop before the budget is spent. Only a [greedy](Exploration::Greedy) search under
/// pUCT does: elsewhere the visits are a training target or the distribution from which the move is drawn, and Gumbel
/// assigns the budget beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStop {
    /// Every simulation of the budget is made.
    Never,
    /// The search stops as soon as the most visited action could not be overtaken if every remaining simulation went to
    /// the second. A proof that only the skipped simulations would have found is missed.
    Decided,
}

/// The range of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueRange {
    /// Values in `[-1, 1]`, used as they are.
    Board,
    /// Unbounded values, rescaled to `[0, 1]`: under pUCT by the least and greatest action value met since the last
    /// reset of the tree, as in MuZero; under Gumbel by the least and greatest value of the [`ValueSpan`].
    Normalised,
}

/// The randomness of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exploration {
    /// Dirichlet noise on the priors (pUCT) or Gumbel noise on the logits (Gumbel).
    Explore,
    /// No noise; the move is drawn from the search policy, so every simulation is made.
    Sample,
    /// No noise, and the move is the best action: nothing is drawn, and the search may stop early.
    Greedy,
}
