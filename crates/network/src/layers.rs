use game::Outcome;
use weights::{Activation, Architecture, BlockKind, Design, HeadKind, Model, NormKind};

use crate::{AttentionBlock, Error, GROUP_CHANNELS, HEAD_CHANNELS, POOLED, POOLING_PERIOD, VALUE_HIDDEN};

/// Layers of a residual tower with a policy head and a win/draw/loss value head.
///
/// Stem: 3×3 convolution, batch norm, activation. Each block: two such groups of layers, with the block input added
/// before the last activation (He et al. 2016). Each head: 1×1 convolution to 32 channels, batch norm, activation,
/// flattened by cell and then channel `[B, H · W · 32]`; policy: linear to `[B, A]` logits; value: linear to 64,
/// activation, linear to `[B, 3]` logits for win, draw and loss of the player to move. The
/// [`Design`](weights::Design) of the architecture names the activation f, ReLU by default.
///
/// A bottleneck block of C channels, the other [`BlockKind`](weights::BlockKind), has 3×3 convolutions between C / 2
/// channels. A 1×1 convolution to C / 2 with batch norm and activation comes before them, and one to C after them;
/// the block input is added to the output of the last batch norm. In the following, the second convolution of such a
/// block is the last one.
///
/// With C channels an architecture may add to the blocks, counted from 0:
///
/// - Global pooling of G channels (Wu 2019, section 3.3), in every third block, I mod 3 = 2. With y the first
///   convolution's output after batch norm, `y[G:] += W [mean of f(y[:G]), max of f(y[:G])] + b`, mean and max over
///   the board, before the activation. W `[C − G, 2G]`; in a bottleneck with C / 2 instead of C.
/// - Squeeze-and-excitation with S hidden units (Hu et al. 2018; the shift is Leela Chess Zero's), in every block.
///   With z the second convolution's output after batch norm, `t = W₂ relu(W₁ [mean of z] + b₁) + b₂`, and the block
///   input is added to `sigmoid(t[:C]) · z + t[C:]`. W₁ `[S, C]`, W₂ `[2C, S]`.
///
/// Pooled heads, the other [`HeadKind`](weights::HeadKind), have no tensor with a board-dependent shape. With h
/// `[H · W, 32]`, the features of a head after the activation, `P(h) = [means, s · means, maxima]` `[96]` over the
/// cells per channel, with s from [`mean_scale`](crate::mean_scale). For A = k · H · W + m actions with m < H · W,
/// action cell · k + i is the i-th action of a cell. A matrix `[k, 32]` maps the features of each cell to k logits; a
/// matrix `[m, 96]`, called `policy.rest`, maps P(h) to the logits of the last m actions. A matrix `[64, 96]` maps
/// P(h) to the hidden units of the value.
///
/// After the residual blocks an architecture may have [`AttentionBlock`]s. The norm after convolutions is the
/// design's [`NormKind`](weights::NormKind), batch norm by default.
///
/// Layers are called `stem`, `block.I.first`, `block.I.second`, in bottleneck blocks `block.I.down` and `block.I.up`,
/// `policy` and `value` (convolutions), `block.I.pooling`, `block.I.excitation.hidden`, `block.I.excitation.output`,
/// `policy.output`, `value.hidden` and `value.output` (linear). [`Layer::tensors`] adds the tensor names of each
/// layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    /// Observations `[C, H, W]` to the first feature maps.
    pub stem: Layer,
    /// Residual blocks, in order.
    pub blocks: Vec<Block>,
    /// Attention blocks after the residual blocks.
    pub attention: Vec<AttentionBlock>,
    /// 1×1 convolution before the policy.
    pub policy: Layer,
    /// Features to policy logits: from all cells together, or pointwise from each cell.
    pub policy_output: Layer,
    /// Pooled features to the policy logits of actions that belong to no cell; only with pooled heads, and if the
    /// game has such actions.
    pub policy_rest: Option<Layer>,
    /// 1×1 convolution before the value.
    pub value: Layer,
    /// Features, flattened or pooled, to the hidden units of the value head.
    pub value_hidden: Layer,
    /// Hidden units to logits of win, draw and loss.
    pub value_output: Layer,
    /// Height and width of the board, `[H, W]`.
    board: [usize; 2],
}

/// Layers of a residual block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// 1×1 convolution of a bottleneck, to half of the channels.
    pub down: Option<Layer>,
    /// First 3×3 convolution.
    pub first: Layer,
    /// Second 3×3 convolution.
    pub second: Layer,
    /// 1×1 convolution of a bottleneck, to all channels.
    pub up: Option<Layer>,
    /// Global pooling after the first 3×3 convolution, `[C − G, 2G]` with the C channels of that convolution.
    pub pooling: Option<Layer>,
    /// Squeeze-and-excitation after the last convolution.
    pub excitation: Option<Excitation>,
}

/// The two linear layers of squeeze-and-excitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excitation {
    /// Means `[C]` to hidden units `[S]`.
    pub hidden: Layer,
    /// Hidden units `[S]` to scales and shifts `[2C]`.
    pub output: Layer,
}

/// A layer with parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Prefix of the tensor names.
    pub name: String,
    /// Operation of the layer, with norm.
    pub kind: LayerKind,
    /// Input channels of a convolution, or inputs of a linear layer.
    pub inputs: usize,
    /// Output channels of a convolution, or outputs of a linear layer.
    pub outputs: usize,
}

/// Operation of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// A convolution without bias, then a norm.
    ///
    /// An evaluator folds a batch norm into the convolution: `w' = w · γ / √(σ² + ε)`, `b' = β − μ · γ / √(σ² + ε)`
    /// per output channel, with scale γ, shift β, running mean μ, running variance σ² and ε
    /// [`NORM_EPSILON`](crate::NORM_EPSILON).
    Convolution {
        /// Height and width of the kernel: 3 or 1.
        side: usize,
        /// Norm after the convolution, with ε [`NORM_EPSILON`](crate::NORM_EPSILON); [`NormKind::Group`] has groups
        /// of [`GROUP_CHANNELS`](crate::GROUP_CHANNELS).
        norm: NormKind,
    },
    /// A matrix with bias.
    Linear,
    /// A matrix without bias, then layer norm (Ba et al. 2016): `(y − μ) / √(σ² + ε) · γ + β` per position, with mean
    /// μ and variance σ² over the outputs and ε [`NORM_EPSILON`](crate::NORM_EPSILON).
    Dense,
    /// Layer norm over the channels of each cell, then a matrix with bias: `W ((x − μ) / √(σ² + ε) · γ + β) + b`.
    PreNormed,
    /// A matrix with bias, applied to the channels of each cell.
    Pointwise,
    /// A learned number per attention head (output) and offset between two cells (input).
    Offsets,
}

/// A tensor of a network; in files float32, or bfloat16 to save space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name in files.
    pub name: String,
    /// Shape in files.
    pub shape: Vec<usize>,
    /// Purpose in the layer.
    pub role: Role,
}

/// Purpose of a tensor in the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Weights of a convolution, `[out, in, height, width]`.
    Convolution,
    /// Weights of a linear layer, `[out, in]`.
    Linear,
    /// The bias of a linear layer, `[out]`.
    Bias,
    /// Learned biases by attention head and offset, `[heads, (2H − 1) · (2W − 1)]`.
    Offsets,
    /// γ of a norm, `[out]`; `[in]` if the norm comes before a matrix.
    NormScale,
    /// β of a norm, same shape as γ.
    NormShift,
    /// Running mean of a batch norm, `[out]`.
    NormMean,
    /// Running variance of a batch norm, `[out]`; never negative.
    NormVariance,
}

impl Role {
    /// Returns whether gradients train the tensor; running statistics are updated from the batches instead.
    #[must_use]
    pub fn is_trained(self) -> bool {
        !matches!(self, Self::NormMean | Self::NormVariance)
    }

    /// Returns whether the tensor is the weight of a convolution or matrix: weight decay applies to these alone.
    #[must_use]
    pub fn is_weight(self) -> bool {
        matches!(self, Self::Convolution | Self::Linear)
    }

    /// Returns the suffix of the tensor name after the layer name.
    fn part(self) -> &'static str {
        match self {
            Self::Convolution => "convolution.weight",
            Self::Linear => "weight",
            Self::Bias => "bias",
            Self::Offsets => "offsets",
            Self::NormScale => "norm.weight",
            Self::NormShift => "norm.bias",
            Self::NormMean => "norm.mean",
            Self::NormVariance => "norm.variance",
        }
    }
}

impl Tensor {
    /// Returns the number of elements.
    #[must_use]
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the layer name.
    #[must_use]
    pub fn layer(&self) -> &str {
        self.name.strip_suffix(self.role.part()).and_then(|name| name.strip_suffix('.')).unwrap_or(&self.name)
    }
}

impl Layers {
    /// Returns the layers of an architecture.
    ///
    /// # Errors
    /// The same as [`check`], and [`Error::Model`] for an architecture of another model.
    pub fn new(architecture: &Architecture) -> Result<Self, Error> {
        check(architecture)?;
        if architecture.model != Model::Alphazero {
            return Err(Error::Model { expected: "alphazero" });
        }
        let &Architecture { planes, height, width, actions, channels, blocks, design, .. } = architecture;
        let flattened = height * width * HEAD_CHANNELS;
        let [of_cell, others] = architecture.board().actions_of_cells();
        let (policy_output, policy_rest, features) = match design.heads {
            HeadKind::Flattened => (Layer::linear("policy.output", flattened, actions), None, flattened),
            HeadKind::Pooled => {
                let rest = (others > 0).then(|| Layer::linear("policy.rest", POOLED, others));
                (Layer::pointwise("policy.output", HEAD_CHANNELS, of_cell), rest, POOLED)
            }
        };
        Ok(Self {
            stem: Layer::convolution("stem", (3, design.norm), planes, channels),
            blocks: (0..blocks).map(|index| Block::new(architecture, index)).collect(),
            attention: (0..design.attention).map(|index| AttentionBlock::new(architecture, index)).collect(),
            policy: Layer::convolution("policy", (1, design.norm), channels, HEAD_CHANNELS),
            policy_output,
            policy_rest,
            value: Layer::convolution("value", (1, design.norm), channels, HEAD_CHANNELS),
            value_hidden: Layer::linear("value.hidden", features, VALUE_HIDDEN),
            value_output: Layer::linear("value.output", VALUE_HIDDEN, Outcome::RESULTS),
            board: [height, width],
        })
    }

    /// Iterates over all layers, from the observation to the outputs.
    pub fn iter(&self) -> impl Iterator<Item = &Layer> {
        let policy = [&self.policy, &self.policy_output].into_iter().chain(&self.policy_rest);
        let heads = policy.chain([&self.value, &self.value_hidden, &self.value_output]);
        let attention = self.attention.iter().flat_map(AttentionBlock::layers);
        std::iter::once(&self.stem).chain(self.blocks.iter().flat_map(Block::layers)).chain(attention).chain(heads)
    }

    /// Iterates over all tensors, layer by layer.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor> {
        self.iter().flat_map(Layer::tensors)
    }

    /// Returns the number of trained parameters, without running statistics.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.tensors().filter(|tensor| tensor.role.is_trained()).map(|tensor| tensor.numel()).sum()
    }

    /// Returns the multiply-adds to evaluate one position. Convolutions count products with cells of the board, not
    /// with the padding. Norms, activations and additions do not count. The number of FLOPs is twice as large.
    #[must_use]
    pub fn multiply_adds(&self) -> usize {
        let [height, width] = self.board;
        let pairs = |kind| match kind {
            // Along a side of n cells, a kernel of side 3 forms 3n - 2 pairs: an output cell and an input cell.
            LayerKind::Convolution { side: 3, .. } => (3 * height - 2) * (3 * width - 2),
            LayerKind::Convolution { .. } | LayerKind::PreNormed | LayerKind::Pointwise => height * width,
            LayerKind::Linear | LayerKind::Dense => 1,
            LayerKind::Offsets => 0,
        };
        let of_layers: usize = self.iter().map(|layer| layer.inputs * layer.outputs * pairs(layer.kind)).sum();
        of_layers + self.attention.iter().map(|block| block.pair_multiply_adds(height * width)).sum::<usize>()
    }
}

impl Block {
    fn new(architecture: &Architecture, index: usize) -> Self {
        Self::named(&format!("block.{index}"), architecture, index)
    }

    /// Returns the block with this index, with layer names that start with `prefix`.
    pub(crate) fn named(prefix: &str, architecture: &Architecture, index: usize) -> Self {
        let &Architecture { channels, squeeze_excitation: units, global_pooling: pooled, design, .. } = architecture;
        let inner = design.block.inner_channels(channels);
        let narrows = design.block == BlockKind::Bottleneck;
        let (one, three) = ((1, design.norm), (3, design.norm));
        let name = |part: &str| format!("{prefix}.{part}");
        let pools = pooled > 0 && index % POOLING_PERIOD == POOLING_PERIOD - 1;
        Self {
            down: narrows.then(|| Layer::convolution(&name("down"), one, channels, inner)),
            first: Layer::convolution(&name("first"), three, inner, inner),
            second: Layer::convolution(&name("second"), three, inner, inner),
            up: narrows.then(|| Layer::convolution(&name("up"), one, inner, channels)),
            pooling: pools.then(|| Layer::linear(&name("pooling"), 2 * pooled, inner - pooled)),
            excitation: (units > 0).then(|| Excitation {
                hidden: Layer::linear(&name("excitation.hidden"), channels, units),
                output: Layer::linear(&name("excitation.output"), units, 2 * channels),
            }),
        }
    }

    /// Iterates over the convolutions in order of computation.
    pub fn convolutions(&self) -> impl Iterator<Item = &Layer> {
        self.down.iter().chain([&self.first, &self.second]).chain(&self.up)
    }

    /// Returns the convolution after which the block input is added.
    #[must_use]
    pub fn last(&self) -> &Layer {
        self.up.as_ref().unwrap_or(&self.second)
    }

    /// Iterates over all layers of the block.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        let excitation = self.excitation.iter().flat_map(|Excitation { hidden, output }| [hidden, output]);
        self.convolutions().chain(&self.pooling).chain(excitation)
    }
}

impl Layer {
    /// Creates a convolution with this kernel side and norm.
    pub(crate) fn convolution(name: &str, (side, norm): (usize, NormKind), inputs: usize, outputs: usize) -> Self {
        Self { name: name.to_owned(), kind: LayerKind::Convolution { side, norm }, inputs, outputs }
    }

    pub(crate) fn linear(name: &str, inputs: usize, outputs: usize) -> Self {
        Self { name: name.to_owned(), kind: LayerKind::Linear, inputs, outputs }
    }

    fn pointwise(name: &str, inputs: usize, outputs: usize) -> Self {
        Self { name: name.to_owned(), kind: LayerKind::Pointwise, inputs, outputs }
    }

    pub(crate) fn dense(name: &str, inputs: usize, outputs: usize) -> Self {
        Self { name: name.to_owned(), kind: LayerKind::Dense, inputs, outputs }
    }

    /// Returns the tensors. Convolution: `.convolution.weight` and `.norm.{weight, bias, mean, variance}`, the last
    /// two with batch norm only. Linear: `.weight` and `.bias`. Dense: `.weight` and `.norm.{weight, bias}`. Matrix
    /// after a norm: all three. Attention offsets: `.offsets`.
    #[must_use]
    pub fn tensors(&self) -> Vec<Tensor> {
        let roles: &[Role] = match self.kind {
            LayerKind::Convolution { norm: NormKind::Batch, .. } => {
                &[Role::Convolution, Role::NormScale, Role::NormShift, Role::NormMean, Role::NormVariance]
            }
            LayerKind::Convolution { .. } => &[Role::Convolution, Role::NormScale, Role::NormShift],
            LayerKind::Linear | LayerKind::Pointwise => &[Role::Linear, Role::Bias],
            LayerKind::Dense => &[Role::Linear, Role::NormScale, Role::NormShift],
            LayerKind::PreNormed => &[Role::Linear, Role::Bias, Role::NormScale, Role::NormShift],
            LayerKind::Offsets => &[Role::Offsets],
        };
        roles.iter().map(|role| self.tensor(*role)).collect()
    }

    /// Returns the tensor with the given role.
    #[must_use]
    pub fn tensor(&self, role: Role) -> Tensor {
        let shape = match (role, self.kind) {
            (Role::Convolution, LayerKind::Convolution { side, .. }) => vec![self.outputs, self.inputs, side, side],
            (Role::Linear | Role::Convolution | Role::Offsets, _) => vec![self.outputs, self.inputs],
            (Role::NormScale | Role::NormShift, LayerKind::PreNormed) => vec![self.inputs],
            _ => vec![self.outputs],
        };
        Tensor { name: self.tensor_name(role), shape, role }
    }

    /// Returns the name of the tensor with the given role.
    #[must_use]
    pub fn tensor_name(&self, role: Role) -> String {
        format!("{}.{}", self.name, role.part())
    }
}

/// Maximum planes of an observation.
pub const PLANES_MAX: usize = 4096;
/// Maximum side of a board, in cells.
pub const SIDE_MAX: usize = 96;
/// Maximum side of a board for a network with attention blocks: evaluators keep a number for each pair of cells.
pub const ATTENTION_SIDE_MAX: usize = 64;
/// Maximum actions of a policy.
pub const ACTIONS_MAX: usize = 65_535;
/// Maximum channels of a tower.
pub const CHANNELS_MAX: usize = 2048;
/// Maximum residual blocks of a tower.
pub const BLOCKS_MAX: usize = 256;
/// Maximum attention blocks of a tower.
pub const ATTENTION_MAX: usize = 256;
/// Maximum hidden units of squeeze-and-excitation.
pub const SQUEEZE_EXCITATION_MAX: usize = 2048;

/// Maximum support n of categorical values and rewards.
pub const SUPPORT_MAX: usize = 1024;
/// Maximum number of chance codes.
pub const CODES_MAX: usize = 1024;

/// Checks every size of an architecture.
///
/// Architectures come from manifests, which are untrusted input: the limits exclude arithmetic overflow and
/// allocations larger than any machine's memory.
///
/// # Errors
/// [`Error::Architecture`] names the first dimension that is out of range.
pub fn check(architecture: &Architecture) -> Result<(), Error> {
    let &Architecture { planes, height, width, actions, channels, blocks, squeeze_excitation, global_pooling, .. } =
        architecture;
    let block = architecture.design.block;
    if block == BlockKind::Bottleneck && !channels.is_multiple_of(2) {
        return Err(Error::OddChannels { channels });
    }
    let support = architecture.model.support().unwrap_or(1);
    let codes = match architecture.model {
        Model::StochasticMuzero { codes, .. } => codes,
        Model::Alphazero | Model::AlphazeroReturns { .. } | Model::Muzero { .. } => 1,
    };
    let side_max = if architecture.design.attention > 0 { ATTENTION_SIDE_MAX } else { SIDE_MAX };
    let dimensions = [
        ("support", support, 1, SUPPORT_MAX),
        ("codes", codes, 1, CODES_MAX),
        ("planes", planes, 1, PLANES_MAX),
        ("height", height, 1, side_max),
        ("width", width, 1, side_max),
        ("actions", actions, 1, ACTIONS_MAX),
        ("channels", channels, 1, CHANNELS_MAX),
        // A network may have no block.
        ("blocks", blocks, 0, BLOCKS_MAX),
        ("attention", architecture.design.attention, 0, ATTENTION_MAX),
        ("squeeze_excitation", squeeze_excitation, 0, SQUEEZE_EXCITATION_MAX),
        // At least one channel is left for the result of the pooling.
        ("global_pooling", global_pooling, 0, block.inner_channels(channels).saturating_sub(1)),
    ];
    for (what, got, least, limit) in dimensions {
        if got < least || got > limit {
            return Err(Error::Architecture { what, got, least, limit });
        }
    }
    check_design(architecture)
}

/// Checks that the model supports the design, as MuZero towers support the default alone, and that the parts fit the
/// channels.
fn check_design(architecture: &Architecture) -> Result<(), Error> {
    let &Architecture { channels, design, .. } = architecture;
    let Design { activation, block, norm, attention, attention_heads: heads, heads: kind } = design;
    let others = [
        (activation != Activation::Relu, format!("activation {activation}")),
        (block != BlockKind::Residual, format!("block {block}")),
        (norm != NormKind::Batch, format!("norm {norm}")),
        (attention > 0, format!("attention {attention}")),
        (kind != HeadKind::Flattened, format!("heads {kind}")),
    ];
    if let Some((_, part)) =
        others.into_iter().find(|(is_other, _)| *is_other && architecture.model != Model::Alphazero)
    {
        return Err(Error::Design { part });
    }
    let (actions, cells) = (architecture.actions, architecture.height * architecture.width);
    if kind == HeadKind::Pooled && actions < cells {
        return Err(Error::PooledHeads { actions, cells });
    }
    // Without attention blocks a number of heads would give the same network two names.
    let fits = if attention == 0 { heads == 0 } else { heads > 0 && channels.is_multiple_of(heads) };
    if !fits {
        return Err(Error::AttentionHeads { attention, heads, channels });
    }
    let channels = block.inner_channels(channels);
    if norm == NormKind::Group && !channels.is_multiple_of(GROUP_CHANNELS) {
        return Err(Error::GroupChannels { group: GROUP_CHANNELS, channels });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
