use game::Outcome;
use network::{Activation, HEAD_CHANNELS, VALUE_HIDDEN};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::Architecture;

use crate::arrangement::{Arrangement, Pass};
use crate::attention::{self, Attention};
use crate::folded::{Dense, Folded};
use crate::head_layers::{self, HeadLayers};
use crate::planes::{Board, Format, Planes};
use crate::position_norm::PositionNorm;
use crate::product::{Output, Product, Slab};
use crate::quantise::Ranges;
use crate::trunk::{Activations, Multipliers, Part, Stage, Trunk};
use crate::{Error, KernelVariant};

/// A weights version packed for one kernel variant; threads share it.
#[derive(Debug)]
pub struct Tower {
    architecture: Architecture,
    path: KernelVariant,
    board: Board,
    /// Arrangements of a pass, the one for the most positions first.
    arrangements: Vec<Arrangement>,
    trunk: Trunk,
    attention: Attention,
    heads: Product,
    /// Norm of single positions after the convolutions of both heads.
    heads_norm: Option<PositionNorm>,
    head_layers: HeadLayers,
    value: Dense,
    multiply_adds: usize,
}

/// Networks that integer paths support.
pub(crate) const INTEGERS_TAKE: &str = "int8 supports residual blocks with relu only";

/// Checks that an integer path supports networks of this design.
fn check_integers(architecture: &Architecture, path: KernelVariant) -> Result<(), Error> {
    match path.is_int8() && !architecture.design.is_default() {
        true => Err(Error::Unavailable { path, reason: INTEGERS_TAKE.to_owned() }),
        false => Ok(()),
    }
}

/// Buffers of a thread.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Buffers of each arrangement.
    buffers: Vec<Buffers>,
    /// Buffers of the attention blocks, if there are any.
    attention: Option<attention::Buffers>,
    head_layers: head_layers::Buffers,
}

/// Planes of a pass.
#[derive(Debug)]
struct Buffers {
    observations: Planes,
    activations: Activations,
    features: Planes,
}

impl Tower {
    /// Reads and packs a published version.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an architecture that the kernel does not support, [`Error::Unavailable`] for a path
    /// that this machine lacks. [`Error::Network`] for bytes that do not match the architecture exactly; it names the
    /// tensor.
    pub fn new(architecture: &Architecture, bytes: &[u8], path: KernelVariant) -> Result<Self, Error> {
        Error::check(architecture)?;
        Self::from_folded(&Folded::from_safetensors(architecture, bytes)?, path, None)
    }

    /// Reads and packs a published version for an integer path, scaled by the ranges that a tower of the same version
    /// has measured.
    ///
    /// # Errors
    /// The same as [`new`](Self::new).
    pub fn quantised(
        architecture: &Architecture,
        bytes: &[u8],
        path: KernelVariant,
        ranges: &Ranges,
    ) -> Result<Self, Error> {
        Error::check(architecture)?;
        Self::from_folded(&Folded::from_safetensors(architecture, bytes)?, path, Some(ranges))
    }

    /// Packs a network with random weights, for benchmarks; an integer path takes ranges from random positions.
    ///
    /// # Errors
    /// The same as [`new`](Self::new).
    pub fn random(architecture: &Architecture, seed: u64, path: KernelVariant) -> Result<Self, Error> {
        Error::check(architecture)?;
        check_integers(architecture, path)?;
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

    /// Packs a network for a path; an integer path needs ranges.
    pub(crate) fn from_folded(folded: &Folded, path: KernelVariant, ranges: Option<&Ranges>) -> Result<Self, Error> {
        let unavailable = |reason: &str| Err(Error::Unavailable { path, reason: reason.to_owned() });
        if !path.is_available() {
            return unavailable("not supported by this CPU or system");
        }
        check_integers(&folded.architecture, path)?;
        if path.is_int8() && ranges.is_none() {
            return unavailable("activation ranges are missing");
        }
        let ranges = ranges.filter(|_| path.is_int8());
        let architecture = folded.architecture.clone();
        let board = path.turn(Board::new(architecture.height, architecture.width));
        let packing = path.base().packing();
        let arrangements = Arrangement::of(path, board, architecture.channels);
        let mut tower = Self {
            path,
            board,
            trunk: Trunk::new(
                path,
                board,
                &arrangements,
                architecture.design.activation,
                &folded.stem,
                &folded.blocks,
                ranges,
            ),
            attention: Attention::new(path.base(), architecture.design.activation, board.cells(), &folded.attention),
            heads: Product::convolution(packing, &folded.heads, board),
            heads_norm: folded.heads.norm.as_ref().map(PositionNorm::new),
            head_layers: HeadLayers::new(path.base(), board, folded),
            value: folded.value.clone(),
            multiply_adds: folded.multiply_adds,
            arrangements,
            architecture,
        };
        Slab::gather(&mut tower.products_mut().map(|product| &mut product.weights).collect::<Vec<_>>());
        Ok(tower)
    }

    /// Iterates over all products, in order of computation.
    fn products_mut(&mut self) -> impl Iterator<Item = &mut Product> {
        let attention = self.attention.products_mut();
        self.trunk.products_mut().chain(attention).chain([&mut self.heads]).chain(self.head_layers.products_mut())
    }

    /// Returns the shape of the network.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Returns the path that computes the network.
    #[must_use]
    pub fn path(&self) -> KernelVariant {
        self.path
    }

    /// Returns the multiply-adds per position, as counted by [`network::Layers::multiply_adds`]: nine taps per cell.
    /// Minimal filtering, in float32 paths, gives the same result with fewer.
    #[must_use]
    pub fn multiply_adds(&self) -> usize {
        self.multiply_adds
    }

    /// Splits a number of positions into passes through the network.
    pub(crate) fn passes(&self, positions: usize) -> impl Iterator<Item = Pass> + use<'_> {
        Arrangement::passes(&self.arrangements, positions)
    }

    pub(crate) fn workspace(&self) -> Workspace {
        Workspace {
            buffers: self.arrangements.iter().map(|arrangement| self.buffers(arrangement)).collect(),
            attention: self.attention.buffers(),
            head_layers: self.head_layers.buffers(&self.arrangements),
        }
    }

    fn buffers(&self, arrangement: &Arrangement) -> Buffers {
        let (layout, format) = (arrangement.layout, self.path.base().packing().format);
        Buffers {
            observations: Planes::new(format, layout, self.architecture.planes),
            activations: self.trunk.activations(layout),
            features: Planes::new(format, arrangement.features, 2 * HEAD_CHANNELS),
        }
    }

    /// Measures the largest activations before the convolutions of the blocks, over observations
    /// `[positions, C, H, W]`.
    ///
    /// # Panics
    /// If the path does not compute in float32.
    #[must_use]
    pub fn ranges(&self, observations: &[f32]) -> Ranges {
        assert!(self.path.packing().format == Format::F32, "ranges are read from float32");
        let mut ranges = Ranges::new(&self.architecture);
        let mut workspace = self.workspace();
        let len = self.architecture.planes * self.board.cells();
        for pass in self.passes(observations.len() / len) {
            self.forward(&mut workspace, pass, observations, |stage, planes, positions| match stage {
                Stage::Stem if self.architecture.blocks > 0 => ranges.see(0, planes, positions),
                Stage::Inner(index) => ranges.see(2 * index + 1, planes, positions),
                Stage::Block(index) if index + 1 < self.architecture.blocks => {
                    ranges.see(2 * (index + 1), planes, positions);
                }
                _ => {}
            });
        }
        ranges
    }

    /// Runs the positions of a pass, out of observations `[positions, C, H, W]`, through the network. `done` is
    /// called after each stage with the written planes and their number of positions.
    pub(crate) fn forward(
        &self,
        workspace: &mut Workspace,
        pass: Pass,
        observations: &[f32],
        mut done: impl FnMut(Stage, &Planes, usize),
    ) {
        let len = self.architecture.planes * self.board.cells();
        let observations = &observations[pass.first * len..][..pass.positions * len];
        let activation = self.architecture.design.activation;
        let rectifies = activation == Activation::Relu;
        let multipliers = Multipliers::new(self.path);
        let base = multipliers.base();
        let Workspace { buffers, attention, head_layers } = workspace;
        let Buffers { observations: planes, activations, features } = &mut buffers[pass.arrangement];
        let arrangement = &self.arrangements[pass.arrangement];
        for range in arrangement.parts(pass.positions) {
            let positions = range.len();
            let observations = &observations[range.start * len..range.end * len];
            for (position, observation) in observations.chunks_exact(len).enumerate() {
                planes.observe(position, observation);
            }
            done(Stage::Observe, planes, positions);
            let of_trunk = |stage, planes: &Planes| done(stage, planes, positions);
            let part = Part { arrangement, positions, input: planes };
            self.trunk.compute(&multipliers, part, activations, &self.heads, of_trunk);
            if let Some(attention) = attention {
                self.attention.compute(base, &mut activations.stream, positions, attention);
                done(Stage::Attention, &activations.stream, positions);
            }
            let relu = rectifies && self.heads_norm.is_none();
            let into_features = Output::Planes { planes: features, first: range.start, add: false, relu };
            base.multiply(&self.heads, &activations.stream, arrangement.cells(positions), into_features, None);
            if let Some(norm) = &self.heads_norm {
                range.clone().for_each(|position| base.normalise(norm, features, position));
            }
            if !relu {
                range.for_each(|position| base.activate(features, position, activation, 2 * HEAD_CHANNELS));
            }
            done(Stage::Heads, features, positions);
        }

        self.head_layers.compute(base, arrangement, features, pass.positions, head_layers);
        done(Stage::Layers, features, pass.positions);
    }

    /// Returns the policy logits `[A]` of a position in the last pass.
    pub(crate) fn policy<'a>(&self, workspace: &'a Workspace, position: usize) -> &'a [f32] {
        &workspace.head_layers.policy(position)[..self.architecture.actions]
    }

    /// Returns the logits of win, draw and loss of a position in the last pass.
    pub(crate) fn value(&self, workspace: &Workspace, position: usize) -> [f32; Outcome::RESULTS] {
        let hidden = workspace.head_layers.hidden(position);
        std::array::from_fn(|outcome| {
            let weights = &self.value.weight[outcome * VALUE_HIDDEN..][..VALUE_HIDDEN];
            let sum: f32 = weights.iter().zip(hidden).map(|(weight, hidden)| weight * hidden).sum();
            self.value.bias[outcome] + sum
        })
    }
}
