use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::Architecture;

use crate::board::Board;
use crate::folded::{Affine, Dense, Excitation, Folded, HEAD_CHANNELS, VALUE_HIDDEN};
use crate::line::{Format, INTEGERS, Line};
use crate::planes::Planes;
use crate::pooling::Summaries;
use crate::product::{Edges, Output, Product, Rows, Run};
use crate::quantise::Ranges;
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
    /// The cells of a pass, for what stays in floating point and for the convolutions of the blocks.
    cells: Cells,
    block_cells: Cells,
    stem: Product,
    blocks: Vec<Block>,
    heads: Product,
    policy: Product,
    hidden: Product,
    value: Dense,
    multiply_adds: usize,
}

/// The cells of a pass as a path takes them.
#[derive(Debug)]
struct Cells {
    runs: Vec<Run>,
    wanted: Vec<bool>,
}

impl Cells {
    fn new(path: Path, board: Board, positions: usize) -> Self {
        let (runs, wanted) = path.runs(board, positions);
        Self { runs, wanted }
    }

    /// Those of the first `positions` of `all` positions.
    fn of(&self, positions: usize, all: usize) -> Rows<'_> {
        Rows { runs: &self.runs[..self.runs.len() / all * positions], stride: 1, wanted: &self.wanted }
    }
}

/// A residual block, packed.
#[derive(Debug)]
struct Block {
    first: Convolution,
    second: Convolution,
    pooling: Option<Dense>,
    excitation: Option<Excitation>,
}

/// A convolution of a block.
#[derive(Debug)]
struct Convolution {
    product: Product,
    /// What its inputs are multiplied by to become integers, by blocks of 64 channels; empty if they stay as they are.
    inverse: Vec<[f32; INTEGERS]>,
}

impl Convolution {
    fn new(path: Path, affine: &Affine, index: usize, ranges: Option<&Ranges>, planes: (Board, usize)) -> Self {
        let (board, block_lines) = planes;
        let product = |affine| Product::convolution(path.packing(), affine, board, block_lines);
        match ranges {
            None => Self { product: product(affine), inverse: Vec::new() },
            Some(ranges) => {
                let (scaled, inverse) = ranges.scale(index, affine);
                Self { product: product(&scaled), inverse }
            }
        }
    }
}

/// A part of the computation, for those who measure it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Observations into planes.
    Observe,
    /// The first convolution.
    Stem,
    /// The first half of a residual block, by index, with its pooling.
    Inner(usize),
    /// The second half, with its excitation and addition.
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
    /// The inputs of the convolution at hand as integers.
    integers: Option<Planes>,
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
        Self::from_folded(&Folded::from_safetensors(architecture, bytes)?, path, None)
    }

    /// The same for a path of integers, scaled by the ranges that a tower of the same version has seen.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn quantised(architecture: &Architecture, bytes: &[u8], path: Path, ranges: &Ranges) -> Result<Self, Error> {
        Self::from_folded(&Folded::from_safetensors(architecture, bytes)?, path, Some(ranges))
    }

    /// A network of random weights, for benchmarks; a path of integers takes its ranges from random positions.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn random(architecture: &Architecture, seed: u64, path: Path) -> Result<Self, Error> {
        let folded = Folded::random(architecture, seed)?;
        if !path.is_int8() {
            return Self::from_folded(&folded, path, None);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let len = 8 * architecture.planes * architecture.height * architecture.width;
        let observations: Vec<f32> = (0..len).map(|_| f32::from(rng.random_bool(0.3))).collect();
        let ranges = Self::from_folded(&folded, path.base(), None)?.ranges(&observations);
        Self::from_folded(&folded, path, Some(&ranges))
    }

    /// Packs for a path; a path of integers needs ranges.
    pub(crate) fn from_folded(folded: &Folded, path: Path, ranges: Option<&Ranges>) -> Result<Self, Error> {
        let unavailable = |reason: &str| Err(Error::Unavailable { path, reason: reason.to_owned() });
        if !path.is_available() {
            return unavailable("this CPU or this system does not have it");
        }
        if path.is_int8() && ranges.is_none() {
            return unavailable("it needs the ranges of activations");
        }
        let ranges = ranges.filter(|_| path.is_int8());
        let architecture = folded.architecture.clone();
        let board = Board { height: architecture.height, width: architecture.width };
        let packing = path.base().packing();
        let positions = positions_of_a_pass(packing.format, board, architecture.channels);
        let block_lines = Planes::block_lines(board, positions);
        let convolution = |affine| Product::convolution(packing, affine, board, block_lines);
        let of_block = |affine, index| Convolution::new(path, affine, index, ranges, (board, block_lines));
        let over_cells = |dense, first| Product::over_cells(packing, dense, board, block_lines, first);
        Ok(Self {
            path,
            board,
            positions,
            cells: Cells::new(path.base(), board, positions),
            block_cells: Cells::new(path, board, positions),
            stem: convolution(&folded.stem),
            blocks: folded
                .blocks
                .iter()
                .enumerate()
                .map(|(index, block)| Block {
                    first: of_block(&block.first, 2 * index),
                    second: of_block(&block.second, 2 * index + 1),
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
        let planes = |channels| Planes::new(self.path.base().packing().format, self.board, channels, self.positions);
        let channels = self.architecture.channels;
        let excites = self.blocks.iter().any(|block| block.excitation.is_some());
        Workspace {
            observations: planes(self.architecture.planes),
            stream: planes(channels),
            inner: planes(channels),
            scaled: excites.then(|| planes(channels)),
            integers: self
                .path
                .is_int8()
                .then(|| Planes::new(self.path.packing().format, self.board, channels, self.positions)),
            features: planes(2 * HEAD_CHANNELS),
            policy: vec![0.0; self.positions * self.policy.padded_outputs()],
            hidden: vec![0.0; self.positions * VALUE_HIDDEN],
            summaries: Summaries::default(),
        }
    }

    /// The largest activations in front of the convolutions of the blocks, over observations `[positions, C, H, W]`.
    ///
    /// # Panics
    /// If the path does not compute in float32.
    #[must_use]
    pub fn ranges(&self, observations: &[f32]) -> Ranges {
        assert!(self.path.packing().format == Format::F32, "ranges are read from float32");
        let mut ranges = Ranges::new(&self.architecture);
        let mut workspace = self.workspace();
        let len = self.architecture.planes * self.board.cells();
        for pass in observations.chunks(self.positions * len) {
            let positions = pass.len() / len;
            self.forward(&mut workspace, pass, |stage, planes| match stage {
                Stage::Stem if !self.blocks.is_empty() => ranges.see(0, planes, positions),
                Stage::Inner(index) => ranges.see(2 * index + 1, planes, positions),
                Stage::Block(index) if index + 1 < self.blocks.len() => {
                    ranges.see(2 * (index + 1), planes, positions);
                }
                _ => {}
            });
        }
        ranges
    }

    /// Runs observations `[positions, C, H, W]`, at most a pass, through the network; `done` hears of each stage, and sees
    /// the planes it made.
    pub(crate) fn forward(
        &self,
        workspace: &mut Workspace,
        observations: &[f32],
        mut done: impl FnMut(Stage, &Planes),
    ) {
        let Workspace { observations: planes, stream, inner, scaled, integers, features, policy, hidden, summaries } =
            workspace;
        let len = self.architecture.planes * self.board.cells();
        let positions = observations.len() / len;
        for (position, observation) in observations.chunks_exact(len).enumerate() {
            planes.observe(position, observation);
        }
        done(Stage::Observe, planes);

        let base = self.path.base();
        let cells = self.cells.of(positions, self.positions);
        let block_cells = self.block_cells.of(positions, self.positions);
        let multiply = |product: &Product, input: &Planes, output: &mut Planes| {
            base.multiply(product, input, cells, Output::Planes { planes: output, add: false, relu: true });
        };
        let mut convolve = |of: &Convolution, input: &Planes, output: &mut Planes, add: bool, relu: bool| {
            let input = match &mut *integers {
                Some(integers) => {
                    self.path.quantise(input, &of.inverse, positions, integers);
                    integers
                }
                None => input,
            };
            self.path.multiply(&of.product, input, block_cells, Output::Planes { planes: output, add, relu });
        };
        multiply(&self.stem, planes, stream);
        done(Stage::Stem, stream);
        for (index, block) in self.blocks.iter().enumerate() {
            convolve(&block.first, stream, inner, false, block.pooling.is_none());
            if let Some(pooling) = &block.pooling {
                for position in 0..positions {
                    base.pool(inner, position, pooling, self.architecture.channels, summaries);
                }
            }
            done(Stage::Inner(index), inner);
            match (&block.excitation, &mut *scaled) {
                (Some(excitation), Some(scaled)) => {
                    convolve(&block.second, inner, scaled, false, false);
                    for position in 0..positions {
                        let channels = self.architecture.channels;
                        base.excite(scaled, stream, position, excitation, channels, summaries);
                    }
                }
                _ => convolve(&block.second, inner, stream, true, true),
            }
            done(Stage::Block(index), stream);
        }
        multiply(&self.heads, stream, features);
        done(Stage::Heads, features);

        let run = [Run { line: features.index(0, 0, 0), rows: positions, edges: Edges::default() }];
        let rows = Rows { runs: &run, stride: self.board.pixels(), wanted: &[] };
        base.multiply(&self.policy, features, rows, Output::Matrix { values: policy, relu: false });
        base.multiply(&self.hidden, features, rows, Output::Matrix { values: hidden, relu: true });
        done(Stage::Layers, features);
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
