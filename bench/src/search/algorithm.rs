use std::fmt;
use std::str::FromStr;

use ::search::SearchAlgorithm;

/// The algorithm that spends the simulations of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// pUCT with noise at the root.
    Puct,
    /// Gumbel with sequential halving.
    Gumbel,
}

impl Algorithm {
    /// The algorithm with its published constants.
    #[must_use]
    pub fn algorithm(self) -> SearchAlgorithm {
        match self {
            Self::Puct => SearchAlgorithm::Puct,
            Self::Gumbel => SearchAlgorithm::GUMBEL,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Puct => "puct",
            Self::Gumbel => "gumbel",
        })
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "puct" => Ok(Self::Puct),
            "gumbel" => Ok(Self::Gumbel),
            _ => Err(format!("invalid algorithm `{text}`: expected puct or gumbel")),
        }
    }
}
