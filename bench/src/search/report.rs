use std::fmt;
use std::str::FromStr;

use crate::Turn;
use ::search::SearchAlgorithm;
use serde::{Deserialize, Serialize};

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The model of the CPU, as the system calls it.
    pub cpu: String,
    /// Instruction set and operating system.
    pub target: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// How long each measurement took.
    pub seconds: f64,
    /// How often everything was measured.
    pub repeats: usize,
    /// Which of the turns counts.
    #[serde(default)]
    pub turn: Turn,
    /// The seed.
    pub seed: u64,
    /// What the ratios are to.
    pub compared: Option<Compared>,
    /// By game, rule, simulations and threads.
    pub searched: Vec<Searched>,
    /// By threads and leaves.
    #[serde(default)]
    pub together: Vec<SearchedTogether>,
}

/// An earlier report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Its file, as it was named.
    pub file: String,
    /// The model of its CPU.
    pub cpu: String,
}

/// How fast one kind of search is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// The game.
    pub game: String,
    /// The algorithm.
    pub rule: Rule,
    /// Simulations per move.
    pub simulations: u32,
    /// Threads, each with games of its own.
    pub threads: usize,
    /// Simulations completed, over all threads.
    pub simulations_per_second: f64,
    /// Bytes of nodes, edges and positions at the end of a search, over its nodes.
    pub bytes_per_node: f64,
    /// Simulations/s over those of the earlier report, if it has the same.
    pub ratio: Option<f64>,
}

/// How fast many threads search one tree with a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchedTogether {
    /// The game.
    pub game: String,
    /// Blocks and channels of the network.
    pub network: String,
    /// What evaluates it.
    pub evaluator: String,
    /// Simulations of the search, by pUCT.
    pub simulations: u32,
    /// Threads, each with an evaluator of its own.
    pub threads: usize,
    /// Leaves that each is asked for at a time.
    pub leaves: usize,
    /// Simulations completed.
    pub simulations_per_second: f64,
    /// Simulations/s over those of the earlier report, if it has the same.
    pub ratio: Option<f64>,
}

/// Which algorithm spends the simulations of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// pUCT with noise at the root.
    Puct,
    /// Gumbel with sequential halving.
    Gumbel,
}

impl Rule {
    /// The algorithm with its published constants.
    #[must_use]
    pub fn algorithm(self) -> SearchAlgorithm {
        match self {
            Self::Puct => SearchAlgorithm::Puct,
            Self::Gumbel => SearchAlgorithm::GUMBEL,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Puct => "puct",
            Self::Gumbel => "gumbel",
        })
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "puct" => Ok(Self::Puct),
            "gumbel" => Ok(Self::Gumbel),
            _ => Err(format!("`{text}` is not a rule: expected puct or gumbel")),
        }
    }
}
