//! Many episodes at once: gather leaves from every game, evaluate one batch, apply the answers, record the moves.
//!
//! [`Episodes`] makes experience; [`analysis`] searches given positions for evaluation and the arena,
//! [`analyse_together`] one position with many threads for play, [`Analyst`] one for as long as somebody looks on; [`playouts`] is the opponent that needs no network. All of them drive [`search::Tree`] with the rules as transition
//! and share one gatherer (`frontier`), but `team`, which has several batches on
//! their way. Knows no tokio, no clock and no network.

pub mod analysis;
mod analyst;
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
mod team;

pub use analysis::{Analysis, AnalysisSettings, analyse, analyse_with};
pub use analyst::Analyst;
pub use episode::{Ending, FinishedEpisode, Standing};
pub use episodes::{Calibration, Episodes, Round};
pub use leaves::{LeafEvaluator, NetworkLeaves};
pub use search::{
    Dirichlet, EarlyStop, Exploration, Proven, SearchAlgorithm, Settings as SearchSettings, Solver, ValueRange,
};
pub use settings::{
    Openings, Resignation, Resigned, Settings, SubtreeReuse, SymmetryReuse, Temperature, TemperatureDecay,
};
pub use step::Step;
pub use team::analyse_together;
