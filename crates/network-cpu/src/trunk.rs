use network::Activation;

use crate::KernelVariant;
use crate::arrangement::Arrangement;
use crate::folded::{self, Affine, Dense, Excitation};
use crate::multiplier::Multiplier;
use crate::planes::{Board, INTEGERS, Layout, Planes};
use crate::pooling::Summaries;
use crate::position_norm::PositionNorm;
use crate::product::{Output, Product};
use crate::quantise::Ranges;
use crate::winograd::Winograd;

/// Maximum weight bytes that stay in the second-level cache next to the activations.
const NEAR_BYTES: usize = 1 << 20;

/// A stem and residual blocks, packed for one kernel variant.
#[derive(Debug)]
pub(crate) struct Trunk {
    path: KernelVariant,
    channels: usize,
    /// Channels of the blocks' 3×3 convolutions.
    inner_channels: usize,
    /// Activation function after batch norms; products apply it themselves if it is ReLU.
    activation: Activation,
    /// True if weights come from beyond the second-level cache.
    is_far: bool,
    /// Minimal filtering for the blocks' 3×3 convolutions, where it is used.
    winograd: Option<Winograd>,
    stem: Product,
    /// Norm of single positions after the stem; present for all convolutions or for none.
    stem_norm: Option<PositionNorm>,
    blocks: Vec<Block>,
}

/// A packed residual block.
#[derive(Debug)]
struct Block {
    /// In a bottleneck only.
    down: Option<Convolution>,
    first: Convolution,
    second: Convolution,
    /// In a bottleneck only.
    up: Option<Convolution>,
    pooling: Option<Dense>,
    excitation: Option<Excitation>,
}

/// A convolution of a block.
#[derive(Debug)]
struct Convolution {
    /// One product with nine taps, or one product per point of minimal filtering.
    products: Vec<Product>,
    /// Scales from inputs to integers, by blocks of 64 channels; empty if the inputs stay in floating point.
    inverse: Vec<[f32; INTEGERS]>,
    /// Norm of single positions after the convolution.
    norm: Option<PositionNorm>,
}

impl Convolution {
    /// Packs a convolution in floating point.
    fn new(path: KernelVariant, affine: &Affine, board: Board, winograd: Option<&Winograd>) -> Self {
        let products = match winograd {
            Some(winograd) => winograd.products(path.packing(), affine),
            None => vec![Product::convolution(path.packing(), affine, board)],
        };
        Self { products, inverse: Vec::new(), norm: affine.norm.as_ref().map(PositionNorm::new) }
    }

    /// Packs convolution `index` of a tower in integers.
    fn quantised(path: KernelVariant, affine: &Affine, board: Board, index: usize, ranges: &Ranges) -> Self {
        let (scaled, inverse) = ranges.scale(index, affine);
        Self { products: vec![Product::convolution(path.packing(), &scaled, board)], inverse, norm: None }
    }

    /// Returns the first product.
    fn first(&self) -> &Product {
        &self.products[0]
    }
}

impl Block {
    /// Returns the product that is computed first.
    fn begin(&self) -> &Product {
        self.down.as_ref().unwrap_or(&self.first).first()
    }

    /// Iterates over the convolutions in order of computation.
    fn convolutions_mut(&mut self) -> impl Iterator<Item = &mut Convolution> {
        self.down.iter_mut().chain([&mut self.first, &mut self.second]).chain(&mut self.up)
    }
}

/// Activations of a pass, in the layout of the arrangement.
#[derive(Debug)]
pub(crate) struct Activations {
    /// Residual stream.
    pub(crate) stream: Planes,
    /// Activations between the convolutions of a block.
    inner: Planes,
    /// The same in a bottleneck, where input and output of the first 3×3 convolution are both outside the stream.
    narrow: Option<Planes>,
    /// Sums of the second convolution, if they are scaled or normed before the addition.
    scaled: Option<Planes>,
    /// Inputs of the current convolution as integers.
    integers: Option<Planes>,
    /// Values and products at the points of minimal filtering, where it is used.
    points: Vec<Planes>,
    summaries: Summaries,
}

/// A part of the computation, for measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Writing observations to planes.
    Observe,
    /// First convolution.
    Stem,
    /// First half of a residual block, by index, with pooling.
    Inner(usize),
    /// Second half of a residual block, by index, with excitation and addition.
    Block(usize),
    /// All attention blocks.
    Attention,
    /// Convolution before both heads.
    Heads,
    /// Layers of the heads.
    Layers,
}

/// Positions that pass through the convolutions together.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) arrangement: &'a Arrangement,
    pub(crate) positions: usize,
    pub(crate) input: &'a Planes,
}

/// Multipliers of a trunk: one for the blocks, and one for the layers around them if it differs.
pub(crate) struct Multipliers {
    blocks: Multiplier,
    base: Option<Multiplier>,
}

impl Multipliers {
    /// Prepares a path.
    pub(crate) fn new(path: KernelVariant) -> Self {
        Self { blocks: Multiplier::new(path), base: path.is_int8().then(|| Multiplier::new(path.base())) }
    }

    /// Returns the multiplier of the layers in floating point.
    pub(crate) fn base(&self) -> &Multiplier {
        self.base.as_ref().unwrap_or(&self.blocks)
    }
}

impl Trunk {
    /// Packs a trunk for positions in these arrangements; integer blocks need ranges.
    pub(crate) fn new(
        path: KernelVariant,
        board: Board,
        arrangements: &[Arrangement],
        activation: Activation,
        stem: &Affine,
        blocks: &[folded::Block],
        ranges: Option<&Ranges>,
    ) -> Self {
        let channels = stem.bias.len();
        let inner_channels = blocks.first().map_or(channels, |block| block.first.bias.len());
        // Paths that use minimal filtering have one arrangement.
        let winograd = arrangements.first().and_then(|first| Winograd::of(path, first.layout, inner_channels));
        let of_block = |affine, index| match ranges {
            Some(ranges) => Convolution::quantised(path, affine, board, index, ranges),
            None => Convolution::new(path, affine, board, winograd.as_ref()),
        };
        let of_side_one = |affine: &Affine| Convolution::new(path, affine, board, None);
        let count = |affine: Option<&Affine>| affine.map_or(0, |affine| affine.weight.len());
        let weights: usize = blocks
            .iter()
            .map(|block| {
                let sides = count(block.down.as_ref()) + count(block.up.as_ref());
                sides + block.first.weight.len() + block.second.weight.len()
            })
            .sum();
        Self {
            path,
            channels,
            inner_channels,
            activation,
            is_far: weights / path.packing().format.per_word() * size_of::<u32>() > NEAR_BYTES,
            stem: Product::convolution(path.base().packing(), stem, board),
            stem_norm: stem.norm.as_ref().map(PositionNorm::new),
            blocks: blocks
                .iter()
                .enumerate()
                .map(|(index, block)| Block {
                    down: block.down.as_ref().map(of_side_one),
                    first: of_block(&block.first, 2 * index),
                    second: of_block(&block.second, 2 * index + 1),
                    up: block.up.as_ref().map(of_side_one),
                    pooling: block.pooling.clone(),
                    excitation: block.excitation.clone(),
                })
                .collect(),
            winograd,
        }
    }

    /// Iterates over all products, in order of computation.
    pub(crate) fn products_mut(&mut self) -> impl Iterator<Item = &mut Product> {
        let convolutions = self.blocks.iter_mut().flat_map(Block::convolutions_mut);
        std::iter::once(&mut self.stem).chain(convolutions.flat_map(|convolution| &mut convolution.products))
    }

    pub(crate) fn activations(&self, layout: Layout) -> Activations {
        let planes = |format| Planes::new(format, layout, self.channels);
        let inner_planes = |format| Planes::new(format, layout, self.inner_channels);
        let narrows = self.blocks.iter().any(|block| block.down.is_some());
        let format = self.path.base().packing().format;
        let excites = self.blocks.iter().any(|block| block.excitation.is_some());
        let scales = excites || self.stem_norm.is_some();
        Activations {
            stream: planes(format),
            inner: inner_planes(format),
            narrow: narrows.then(|| inner_planes(format)),
            scaled: scales.then(|| planes(format)),
            integers: self.path.is_int8().then(|| planes(self.path.packing().format)),
            points: self.winograd.as_ref().map_or(Vec::new(), |winograd| winograd.planes(self.inner_channels)),
            summaries: Summaries::default(),
        }
    }

    /// Computes the stream of a part. `next` is the layer after the trunk, and `done` is called after each stage with
    /// the written planes.
    pub(crate) fn compute(
        &self,
        multipliers: &Multipliers,
        part: Part<'_>,
        activations: &mut Activations,
        next: &Product,
        mut done: impl FnMut(Stage, &Planes),
    ) {
        let Part { arrangement, positions, input } = part;
        let Activations { stream, inner, narrow, scaled, integers, points, summaries } = activations;
        let (multiplier, base) = (&multipliers.blocks, multipliers.base());
        let block_cells = arrangement.block_cells(positions);
        let mut convolve =
            |of: &Convolution, input: &Planes, output: &mut Planes, [add, relu]: [bool; 2], next: &Product| {
                let output = Output::Planes { planes: output, first: 0, add, relu };
                // A convolution with one product has no points.
                if let Some(winograd) = self.winograd.as_ref().filter(|_| of.products.len() > 1) {
                    return winograd.convolve(multiplier, &of.products, input, positions, points, output);
                }
                let input = match &mut *integers {
                    Some(integers) => {
                        self.path.quantise(input, &of.inverse, positions, integers);
                        integers
                    }
                    None => input,
                };
                multiplier.multiply(of.first(), input, block_cells, output, self.far(next));
            };
        let rectifies = self.activation == Activation::Relu && self.stem_norm.is_none();
        let into_stream = Output::Planes { planes: stream, first: 0, add: false, relu: rectifies };
        base.multiply(&self.stem, input, arrangement.cells(positions), into_stream, None);
        self.follow(base, &self.stem_norm, stream, positions, self.channels);
        done(Stage::Stem, stream);
        for (index, block) in self.blocks.iter().enumerate() {
            let after = self.blocks.get(index + 1).map_or(next, Block::begin);
            let input = match (&block.down, &mut *narrow) {
                (Some(down), Some(narrow)) => {
                    convolve(down, stream, narrow, [false, rectifies], block.first.first());
                    self.follow(base, &down.norm, narrow, positions, self.inner_channels);
                    &*narrow
                }
                _ => &*stream,
            };
            convolve(&block.first, input, inner, [false, rectifies && block.pooling.is_none()], block.second.first());
            match &block.pooling {
                Some(pooling) => {
                    normalise(base, &block.first.norm, inner, positions);
                    for position in 0..positions {
                        base.pool(self.activation, inner, position, pooling, self.inner_channels, summaries);
                    }
                }
                None => self.follow(base, &block.first.norm, inner, positions, self.inner_channels),
            }
            done(Stage::Inner(index), inner);
            let (last, input) = match (&block.up, &mut *narrow) {
                (Some(up), Some(narrow)) => {
                    convolve(&block.second, inner, narrow, [false, rectifies], up.first());
                    self.follow(base, &block.second.norm, narrow, positions, self.inner_channels);
                    (up, &*narrow)
                }
                _ => (&block.second, &*inner),
            };
            match (&block.excitation, &mut *scaled) {
                (Some(excitation), Some(scaled)) => {
                    convolve(last, input, scaled, [false, false], after);
                    normalise(base, &last.norm, scaled, positions);
                    for position in 0..positions {
                        base.excite(self.activation, scaled, stream, position, excitation, self.channels, summaries);
                    }
                }
                (None, Some(scaled)) if last.norm.is_some() => {
                    convolve(last, input, scaled, [false, false], after);
                    normalise(base, &last.norm, scaled, positions);
                    for position in 0..positions {
                        base.add(scaled, stream, position, self.channels);
                        base.activate(stream, position, self.activation, self.channels);
                    }
                }
                _ => {
                    convolve(last, input, stream, [true, rectifies], after);
                    self.follow(base, &None, stream, positions, self.channels);
                }
            }
            done(Stage::Block(index), stream);
        }
    }

    /// Applies the norm of single positions, if there is one, and the activation to the sums of a product, unless the
    /// product has applied it.
    fn follow(
        &self,
        base: &Multiplier,
        norm: &Option<PositionNorm>,
        planes: &mut Planes,
        positions: usize,
        channels: usize,
    ) {
        normalise(base, norm, planes, positions);
        if norm.is_some() || self.activation != Activation::Relu {
            (0..positions).for_each(|position| base.activate(planes, position, self.activation, channels));
        }
    }

    /// Returns the product if the weights do not stay in the second-level cache between passes, otherwise `None`.
    fn far<'a>(&self, product: &'a Product) -> Option<&'a Product> {
        self.is_far.then_some(product)
    }
}

/// Applies a norm of single positions, if there is one.
pub(crate) fn normalise(base: &Multiplier, norm: &Option<PositionNorm>, planes: &mut Planes, positions: usize) {
    if let Some(norm) = norm {
        (0..positions).for_each(|position| base.normalise(norm, planes, position));
    }
}
