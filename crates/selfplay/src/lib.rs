//! Self-play of many concurrent episodes, and analysis of given positions, with batched evaluation.
//!
//! [`Episodes`] advance many games together under [`Settings`]: each [`Round`] gathers leaves from every game,
//! evaluates one batch, applies the predictions and records the moves. The results are [`FinishedEpisode`]s.
//! [`analyse`] searches given positions under [`AnalysisSettings`] and returns an [`Analysis`] of each position.
//! [`analyse_together`] searches one position with many threads. [`GameSearch`] searches the positions of one game, in
//! steps, and keeps the tree. [`playouts`] is a baseline opponent without a network. [`LatentEpisodes`] and
//! [`latent::analyse`] search in a learned model; [`LatentEpisodes`] also supports environments outside this process.
//! [`Reanalysis`] searches the positions of stored trajectories again. Spectators see each [`WatchedSearch`] of a few
//! episodes.
//!
//! `driver` is the common interface of two drivers for [`search::Tree`]: `leaf_batcher` by the rules of a game, and
//! `latent` by a learned model. The crate uses no tokio, clock or network connection.

pub mod analysis;
mod driver;
mod episode;
mod episodes;
mod forks;
mod game_search;
mod images;
pub mod latent;
mod leaf_batcher;
mod parallel;
pub mod playouts;
mod reanalysis;
mod record;
mod resignation;
mod round;
mod searchable;
mod seeds;
mod settings;
mod tree_search;
mod watch;

pub use analysis::{Analysis, AnalysisSettings, analyse};
pub use episode::{Ending, EpisodeProgress, FinishedEpisode};
pub use episodes::Episodes;
pub use game_search::{Findings, GameSearch, Limits};
pub use latent::{Error, LatentEpisodes};
pub use parallel::{AnalysisProgress, TreeSize, analyse_together};
pub use reanalysis::{Reanalysed, Reanalysis, Unusable};
pub use round::{Calibration, Round};
// Every choice of a search; settings of self-play hide the search settings, which have another name here.
pub use search::settings::*;
pub use search::{Proven, Settings as SearchSettings, VariationStep};
pub use searchable::{NotSearchable, check_searchable};
pub use seeds::evaluation_seed;
pub use settings::{
    GumbelMoves, Openings, Resignation, Resigned, Settings, SubtreeReuse, SymmetryReuse, Temperature, TemperatureDecay,
};
pub use tree_search::{Next, Step};
pub use watch::{ACTIONS_MAX, WatchedSearch};
