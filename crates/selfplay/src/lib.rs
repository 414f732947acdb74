//! Many episodes at once: gather leaves from every game, evaluate one batch, apply the answers, record the moves.
//!
//! [`Episodes`] makes experience; [`analysis`] searches given positions for play, evaluation and the arena;
//! [`playouts`] is the opponent that needs no network. All of them drive [`search::Tree`] with the rules as transition
//! and share one gatherer (`frontier`). Knows no tokio, no clock and no network; one value runs on one thread.

pub mod analysis;
pub mod config;
mod episode;
mod episodes;
mod frontier;
mod images;
mod leaves;
mod opening;
pub mod playouts;
mod resignation;
mod settings;
mod step;

pub use analysis::{Analysis, AnalysisSettings, analyse, analyse_with};
pub use episode::{Ending, FinishedEpisode};
pub use episodes::{Calibration, Episodes, Round};
pub use leaves::{LeafEvaluator, NetworkLeaves};
pub use search::{Dirichlet, Exploration, Proven, RootPolicy, Settings as SearchSettings, Solver, ValueRange};
pub use settings::{
    Openings, Resignation, Resigned, Settings, SubtreeReuse, SymmetryReuse, Temperature, TemperatureDecay,
};
pub use step::Step;
