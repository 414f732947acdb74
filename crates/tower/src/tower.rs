use weights::Architecture;

use crate::board::Board;
use crate::folded::{Dense, Excitation, Folded, HEAD_CHANNELS, VALUE_HIDDEN};
use crate::line::{Format, Line};
use crate::planes::Planes;
use crate::pooling::{self, Summaries};
use crate::product::{Edges, Output, Product, Rows, Run};
use crate::{Error, Path};

/// Activations of all positions of a pass, so that they stay in the second-level cache beside the weights that pass.
const PASS_BYTES: usize = 384 << 10;
/// Positions of a pass: at least a few, so that weights which do not fit the cache are read once for all of them.
const PASS_POSITIONS: std::ops::RangeInclusive<usize> = 2..=32;

/// A weights version packed for a path; threads share it.
#[derive(Debug)]
pub struct Tower {
    architecture: Architecture,
    path: Path,
    board: Board,
    /// Positions of a pass at most.
    positions: usize,
    runs: Vec<Run>,
    wanted: Vec<bool>,
    stem: Product,
    blocks: Vec<Block>,
    heads: Product,
    policy: Product,
    hidden: Product,
    value: Dense,
    multiply_adds: usize,
}

/// A residual block, packed.
#[derive(Debug)]
struct Block {
    first: Product,
    second: Product,
    pooling: Option<Dense>,
    excitation: Option<Excitation>,
}

/// A part of the computation, for those who measure it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Observations into planes.
    Observe,
    /// The first convolution.
    Stem,
    /// A residual block, by index.
    Block(usize),
    /// The convolution in front of both heads.
    Heads,
    /// The layers of the heads.
    Layers,
}

/// What a thread computes in: planes and outputs of one pass.
#[derive(Debug)]
pub(crate) struct Workspace {
    observations: Planes,
    /// The residual stream.
    stream: Planes,
    /// Between the two convolutions of a block.
    inner: Planes,
    /// The second convolution's sums, where they are scaled before they are added.
    scaled: Option<Planes>,
    features: Planes,
    /// `[positions, padded actions]`.
    policy: Vec<f32>,
    /// `[positions, 64]`.
    hidden: Vec<f32>,
    summaries: Summaries,
}

impl Tower {
    /// Reads and packs a published version.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an architecture that the kernel does not take, [`Error::Unavailable`] for a path that
    /// this machine does not have; bytes that are not exactly such a network's are refused by name.
    pub fn new(architecture: &Architecture, bytes: &[u8], path: Path) -> Result<Self, Error> {
        Self::from_folded(&Folded::from_safetensors(architecture, bytes)?, path)
    }

    /// A network of random weights, for benchmarks.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn random(architecture: &Architecture, seed: u64, path: Path) -> Result<Self, Error> {
        Self::from_folded(&Folded::random(architecture, seed)?, path)
    }

    pub(crate) fn from_folded(folded: &Folded, path: Path) -> Result<Self, Error> {
        if !path.is_available() {
            let reason = "this CPU or this system does not have it".to_owned();
            return Err(Error::Unavailable { path, reason });
        }
        let architecture = folded.architecture.clone();
        let board = Board { height: architecture.height, width: architecture.width };
        let packing = path.packing();
        let positions = positions_of_a_pass(packing.format, board, architecture.channels);
        let block_lines = Planes::block_lines(board, positions);
        let convolution = |affine| Product::convolution(packing, affine, board, block_lines);
        let over_cells = |dense, first| Product::over_cells(packing, dense, board, block_lines, first);
        let (runs, wanted) = path.runs(board, positions);
        Ok(Self {
            path,
            board,
            positions,
            runs,
            wanted,
            stem: convolution(&folded.stem),
            blocks: folded
                .blocks
                .iter()
                .map(|block| Block {
                    first: convolution(&block.first),
                    second: convolution(&block.second),
                    pooling: block.pooling.clone(),
                    excitation: block.excitation.clone(),
                })
                .collect(),
            heads: convolution(&folded.heads),
            policy: over_cells(&folded.policy, 0),
            hidden: over_cells(&folded.hidden, HEAD_CHANNELS),
            value: folded.value.clone(),
            multiply_adds: folded.multiply_adds(),
            architecture,
        })
    }

    /// The network's shape.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// What it is computed with.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// Multiply-adds of one position that matter to the answer, in stem, blocks and heads: the border, whose inputs are
    /// zero, and padding do not count.
    #[must_use]
    pub fn multiply_adds(&self) -> usize {
        self.multiply_adds
    }

    /// Positions that pass together at most.
    pub(crate) fn positions(&self) -> usize {
        self.positions
    }

    pub(crate) fn workspace(&self) -> Workspace {
        let planes = |channels| Planes::new(self.path.packing().format, self.board, channels, self.positions);
        let channels = self.architecture.channels;
        let excites = self.blocks.iter().any(|block| block.excitation.is_some());
        Workspace {
            observations: planes(self.architecture.planes),
            stream: planes(channels),
            inner: planes(channels),
            scaled: excites.then(|| planes(channels)),
            features: planes(2 * HEAD_CHANNELS),
            policy: vec![0.0; self.positions * self.policy.padded_outputs()],
            hidden: vec![0.0; self.positions * VALUE_HIDDEN],
            summaries: Summaries::default(),
        }
    }

    /// Runs observations `[positions, C, H, W]`, at most a pass, through the network; `done` hears of each stage.
    pub(crate) fn forward(&self, workspace: &mut Workspace, observations: &[f32], mut done: impl FnMut(Stage)) {
        let Workspace { observations: planes, stream, inner, scaled, features, policy, hidden, summaries } = workspace;
        let len = self.architecture.planes * self.board.cells();
        let positions = observations.len() / len;
        for (position, observation) in observations.chunks_exact(len).enumerate() {
            planes.observe(position, observation);
        }
        done(Stage::Observe);

        let runs = &self.runs[..self.runs.len() / self.positions * positions];
        let cells = Rows { runs, stride: 1, wanted: &self.wanted };
        let multiply = |product: &Product, input: &Planes, output: &mut Planes, add: bool, relu: bool| {
            self.path.multiply(product, input, cells, Output::Planes { planes: output, add, relu });
        };
        multiply(&self.stem, planes, stream, false, true);
        done(Stage::Stem);
        for (index, block) in self.blocks.iter().enumerate() {
            multiply(&block.first, stream, inner, false, block.pooling.is_none());
            if let Some(pooling) = &block.pooling {
                for position in 0..positions {
                    pooling::pool(inner, position, pooling, self.architecture.channels, summaries);
                }
            }
            match (&block.excitation, &mut *scaled) {
                (Some(excitation), Some(scaled)) => {
                    multiply(&block.second, inner, scaled, false, false);
                    for position in 0..positions {
                        let channels = self.architecture.channels;
                        pooling::excite(scaled, stream, position, excitation, channels, summaries);
                    }
                }
                _ => multiply(&block.second, inner, stream, true, true),
            }
            done(Stage::Block(index));
        }
        multiply(&self.heads, stream, features, false, true);
        done(Stage::Heads);

        let run = [Run { line: features.index(0, 0, 0), rows: positions, edges: Edges::default() }];
        let rows = Rows { runs: &run, stride: self.board.pixels(), wanted: &[] };
        self.path.multiply(&self.policy, features, rows, Output::Matrix { values: policy, relu: false });
        self.path.multiply(&self.hidden, features, rows, Output::Matrix { values: hidden, relu: true });
        done(Stage::Layers);
    }

    /// Policy logits `[A]` of a position of the last pass.
    pub(crate) fn policy<'a>(&self, workspace: &'a Workspace, position: usize) -> &'a [f32] {
        &workspace.policy[position * self.policy.padded_outputs()..][..self.architecture.actions]
    }

    /// Logits of a win, a draw and a loss of a position of the last pass.
    pub(crate) fn value(&self, workspace: &Workspace, position: usize) -> [f32; 3] {
        let hidden = &workspace.hidden[position * VALUE_HIDDEN..][..VALUE_HIDDEN];
        std::array::from_fn(|outcome| {
            let weights = &self.value.weight[outcome * VALUE_HIDDEN..][..VALUE_HIDDEN];
            let sum: f32 = weights.iter().zip(hidden).map(|(weight, hidden)| weight * hidden).sum();
            self.value.bias[outcome] + sum
        })
    }
}

fn positions_of_a_pass(format: Format, board: Board, channels: usize) -> usize {
    let bytes = 2 * format.lines(channels) * board.pixels() * size_of::<Line>();
    (PASS_BYTES / bytes).clamp(*PASS_POSITIONS.start(), *PASS_POSITIONS.end())
}
