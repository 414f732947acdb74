//! The section `[search]` of the run file.

use selfplay::{Dirichlet, EarlyStop, SearchAlgorithm, SearchSettings, Solver, ValueRange, ValueSpan};
use serde::{Deserialize, Serialize};
use service::ConfigError;
use service::config::{Section as _, above_to};

service::section! {
    /// The section `[search]`: settings of every tree search.
    #[serde(deny_unknown_fields)]
    pub struct SearchSection {
        /// Search algorithm: `puct`, pUCT at every node, or `gumbel`, sequential halving with Gumbel noise at the root.
        algorithm: AlgorithmName = AlgorithmName::Puct;
        /// With `puct`: visit count at which the exploration term starts to grow.
        c_base: f32 = SearchSettings::default().c_base, in above_to(0.0, 1e9);
        /// With `puct`: strength of exploration at low visit counts. The published 1.25 is for values in `[0, 1]`. For
        /// values in `[-1, 1]` as here, the same number explores half as much.
        c_init: f32 = SearchSettings::default().c_init, in 0.0..=1e6, page "benchmarks/search.md";
        /// With `puct`: first-play reduction. An unvisited action has the value of the parent minus this factor times
        /// the square root of the visited prior mass.
        fpu_reduction: f32 = SearchSettings::default().fpu_reduction, in 0.0..=2.0;
        /// With `puct`: total Dirichlet concentration of the root noise, divided equally among the legal actions.
        dirichlet_total: f32 = SearchSettings::default().dirichlet.total_concentration, in above_to(0.0, 1e6);
        /// With `puct`: weight of the Dirichlet noise in the root priors of full searches.
        dirichlet_fraction: f32 = SearchSettings::default().dirichlet.fraction, in 0.0..=1.0;
        /// True to back up proven wins, draws and losses, in games scored by outcome that are searched with their
        /// rules.
        solver: bool = true;
        /// True to stop a `puct` search when no action can overtake the most visited action. This applies only to
        /// searches that play the best action: in play, evaluation and the arena, and fast searches of self-play at
        /// temperature 0.
        early_stop: bool = true;
        /// With `gumbel`: maximum number of root actions considered.
        gumbel_considered_actions_max: usize = 16, in 1..;
        /// With `gumbel`: `c_visit` of the value transformation σ.
        gumbel_c_visit: f32 = 50.0, in 0.0..=1e6;
        /// With `gumbel`: `c_scale` of the value transformation σ. The papers use 1 for values in `[-1, 1]`, 0.1
        /// for values rescaled to `[0, 1]`.
        gumbel_c_scale: f32 = 1.0, in above_to(0.0, 1e6);
        /// With `gumbel` and values rescaled to `[0, 1]`: the span of values that is rescaled, of the whole `tree` or
        /// of each `node`.
        gumbel_value_span: ValueSpan = ValueSpan::Tree, page "muzero.md#what-is-computed";
    }
}

/// The search algorithm: the text format of [`SearchAlgorithm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlgorithmName {
    /// `puct`: pUCT at every node.
    Puct,
    /// `gumbel`: sequential halving at the root, the improved policy below the root.
    Gumbel,
}

impl SearchSection {
    /// Checks the ranges of all keys and returns the settings.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key that is out of range.
    pub fn settings(&self) -> Result<SearchSettings, ConfigError> {
        self.check_ranges("search")?;
        let algorithm = match self.algorithm {
            AlgorithmName::Puct => SearchAlgorithm::Puct,
            AlgorithmName::Gumbel => SearchAlgorithm::Gumbel {
                considered_actions_max: self.gumbel_considered_actions_max,
                c_visit: self.gumbel_c_visit,
                c_scale: self.gumbel_c_scale,
                span: self.gumbel_value_span,
            },
        };
        Ok(SearchSettings {
            algorithm,
            c_base: self.c_base,
            c_init: self.c_init,
            fpu_reduction: self.fpu_reduction,
            dirichlet: Dirichlet { total_concentration: self.dirichlet_total, fraction: self.dirichlet_fraction },
            solver: if self.solver { Solver::On } else { Solver::Off },
            early_stop: if self.early_stop { EarlyStop::Decided } else { EarlyStop::Never },
            values: ValueRange::Board,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_settings_and_stop_early() {
        let search = SearchSection::default().settings().unwrap();
        assert_eq!(search, SearchSettings { early_stop: EarlyStop::Decided, ..SearchSettings::default() });
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_key() {
        let section = SearchSection { dirichlet_fraction: 1.5, ..SearchSection::default() };
        let error = section.settings().unwrap_err().to_string();
        assert_eq!(error, "search.dirichlet_fraction: is 1.5, must be from 0 to 1");
    }

    #[test]
    fn the_algorithm_is_selected_by_name() {
        let section: SearchSection = serde_json::from_str(r#"{"algorithm": "gumbel"}"#).unwrap();
        assert_eq!(section.settings().unwrap().algorithm, SearchAlgorithm::GUMBEL);
    }
}
