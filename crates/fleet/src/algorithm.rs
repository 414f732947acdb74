use std::fmt;

use clap::ValueEnum as _;

/// Setting for the heads of networks with a learned model. It overrides a preset with other heads.
const FLATTENED: &str = "network.heads=flattened";

/// A training algorithm: a search algorithm with the matching kind of network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Algorithm {
    /// pUCT with the rules of the game (Silver et al. 2018).
    Alphazero,
    /// Gumbel search with the rules of the game (Danihelka et al. 2022).
    GumbelAlphazero,
    /// pUCT in a learned model (Schrittwieser et al. 2020).
    Muzero,
    /// Gumbel search in a learned model (Danihelka et al. 2022).
    GumbelMuzero,
    /// pUCT in a learned model with chance (Antonoglou et al. 2022).
    StochasticMuzero,
}

impl Algorithm {
    /// Returns the settings (`KEY=VALUE`) of a run file that select the algorithm.
    pub(crate) fn sets(self) -> impl Iterator<Item = String> {
        let keys: &[&str] = match self {
            Self::Alphazero => &["search.algorithm=puct", "network.model=alphazero"],
            Self::GumbelAlphazero => &["search.algorithm=gumbel", "network.model=alphazero"],
            Self::Muzero => &["search.algorithm=puct", "network.model=muzero", FLATTENED],
            // The published constant for values rescaled to [0, 1], as in a learned model.
            Self::GumbelMuzero => {
                &["search.algorithm=gumbel", "network.model=muzero", "search.gumbel_c_scale=0.1", FLATTENED]
            }
            Self::StochasticMuzero => &["search.algorithm=puct", "network.model=stochastic_muzero", FLATTENED],
        };
        keys.iter().map(|&set| set.to_owned())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("every algorithm is an option").get_name())
    }
}
