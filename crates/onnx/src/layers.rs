//! Layers as nodes of a graph, with the tensors of a file.

use network::activation::{GELU_CUBE, GELU_SCALE};
use network::{Activation, AttentionBlock, Block, Layer, LayerKind, NORM_EPSILON, NormKind, Reader, Role};
use weights::Architecture;

use crate::Error;
use crate::graph::{Builder, Value, size};
use crate::messages::Attribute;

/// Axes from `[N, C, H, W]` to `[N, H, W, C]`.
const CHANNELS_LAST: [i64; 4] = [0, 2, 3, 1];
/// Axes from `[N, H, W, C]` to `[N, C, H, W]`.
const CHANNELS_FIRST: [i64; 4] = [0, 3, 1, 2];
/// Axes of the cells in `[N, C, H, W]`.
const CELLS: [i64; 2] = [2, 3];

/// A graph under construction, with the file of the weights. Planes are `[N, C, H, W]`, rows `[N, C]`, and cells
/// `[N, H · W, C]`.
#[derive(Debug)]
pub(crate) struct Writer<'a, 'b> {
    pub(crate) graph: Builder,
    pub(crate) architecture: &'a Architecture,
    reader: &'a mut Reader<'b>,
}

impl<'a, 'b> Writer<'a, 'b> {
    pub(crate) fn new(architecture: &'a Architecture, reader: &'a mut Reader<'b>) -> Self {
        Self { graph: Builder::default(), architecture, reader }
    }

    /// Reads a tensor that no node uses.
    pub(crate) fn skip(&mut self, layer: &Layer) -> Result<(), Error> {
        layer.tensors().iter().try_for_each(|tensor| Ok(self.reader.tensor("", tensor).map(drop)?))
    }

    fn values(&mut self, layer: &Layer, role: Role) -> Result<Vec<f32>, Error> {
        Ok(self.reader.tensor("", &layer.tensor(role))?)
    }

    /// Adds a tensor of a layer with other dimensions than in the file, in the same order.
    fn tensor(&mut self, layer: &Layer, role: Role, dims: &[usize]) -> Result<Value, Error> {
        let values = self.values(layer, role)?;
        Ok(self.graph.weights(&layer.tensor_name(role), dims, &values))
    }

    /// Applies the activation of the architecture.
    pub(crate) fn activate(&mut self, x: &Value) -> Value {
        let graph = &mut self.graph;
        let gate = match self.architecture.design.activation {
            Activation::Relu => return graph.apply("Relu", &[x]),
            Activation::Mish => {
                let softplus = graph.apply("Softplus", &[x]);
                graph.apply("Tanh", &[&softplus])
            }
            Activation::Silu => graph.apply("Sigmoid", &[x]),
            Activation::Gelu => {
                let [cube, scale] = [GELU_SCALE * GELU_CUBE, GELU_SCALE].map(|number| graph.number(number));
                let square = graph.apply("Mul", &[x, x]);
                let scaled = graph.apply("Mul", &[&square, &cube]);
                let slope = graph.apply("Add", &[&scaled, &scale]);
                let logit = graph.apply("Mul", &[x, &slope]);
                graph.apply("Sigmoid", &[&logit])
            }
        };
        graph.apply("Mul", &[x, &gate])
    }

    pub(crate) fn relu(&mut self, x: &Value) -> Value {
        self.graph.apply("Relu", &[x])
    }

    /// Applies a convolution with the norm.
    pub(crate) fn convolution(&mut self, layer: &Layer, x: &Value) -> Result<Value, Error> {
        let LayerKind::Convolution { side, norm } = layer.kind else { unreachable!("the layer is a convolution") };
        let mut weight = self.values(layer, Role::Convolution)?;
        let bias = match norm {
            NormKind::Batch => Some(self.fold(layer, &mut weight)?),
            NormKind::Layer | NormKind::Group => None,
        };
        let dims = [layer.outputs, layer.inputs, side, side];
        let weight = self.graph.weights(&layer.tensor_name(Role::Linear), &dims, &weight);
        let bias = bias.map(|bias| self.graph.weights(&layer.tensor_name(Role::Bias), &[layer.outputs], &bias));
        let inputs: Vec<&Value> = [x, &weight].into_iter().chain(&bias).collect();
        let y = self.graph.node("Conv", &inputs, vec![Attribute::ints("pads", &[size(side / 2); 4])]);
        match norm {
            NormKind::Batch => Ok(y),
            NormKind::Layer => {
                let cells = self.graph.transpose(&y, &CHANNELS_LAST);
                let normed = self.layer_norm(layer, layer.outputs, &cells)?;
                Ok(self.graph.transpose(&normed, &CHANNELS_FIRST))
            }
            NormKind::Group => self.group_norm(layer, &y),
        }
    }

    /// Multiplies the weights of a convolution by the scales of the batch norm, and returns the bias, as in
    /// [`LayerKind::Convolution`].
    fn fold(&mut self, layer: &Layer, weight: &mut [f32]) -> Result<Vec<f32>, Error> {
        let mut part = |role| self.values(layer, role);
        let (gamma, beta) = (part(Role::NormScale)?, part(Role::NormShift)?);
        let (mean, variance) = (part(Role::NormMean)?, part(Role::NormVariance)?);
        let epsilon = NORM_EPSILON as f32;
        let scale: Vec<f32> =
            gamma.iter().zip(&variance).map(|(gamma, variance)| gamma / (variance + epsilon).sqrt()).collect();
        let fan_in = weight.len() / layer.outputs;
        for (weights, scale) in weight.chunks_exact_mut(fan_in).zip(&scale) {
            weights.iter_mut().for_each(|weight| *weight *= scale);
        }
        Ok((0..layer.outputs).map(|output| beta[output] - mean[output] * scale[output]).collect())
    }

    /// Norms the last axis, of this size.
    fn layer_norm(&mut self, layer: &Layer, width: usize, x: &Value) -> Result<Value, Error> {
        let scale = self.tensor(layer, Role::NormScale, &[width])?;
        let shift = self.tensor(layer, Role::NormShift, &[width])?;
        let attributes = vec![Attribute::int("axis", -1), Attribute::float("epsilon", NORM_EPSILON as f32)];
        Ok(self.graph.node("LayerNormalization", &[x, &scale, &shift], attributes))
    }

    /// Norms groups of adjacent channels over all cells. The operator set lacks this norm, and has one for single
    /// channels.
    fn group_norm(&mut self, layer: &Layer, x: &Value) -> Result<Value, Error> {
        let channels = layer.outputs;
        let groups = channels / network::GROUP_CHANNELS;
        let grouped = self.graph.reshape(x, &[0, size(groups), -1]);
        let one = self.graph.weights(&format!("{}.norm.one", layer.name), &[groups], &vec![1.0; groups]);
        let zero = self.graph.weights(&format!("{}.norm.zero", layer.name), &[groups], &vec![0.0; groups]);
        let epsilon = vec![Attribute::float("epsilon", NORM_EPSILON as f32)];
        let unit = self.graph.node("InstanceNormalization", &[&grouped, &one, &zero], epsilon);
        let unit = self.planes(&unit, channels);
        let scale = self.tensor(layer, Role::NormScale, &[channels, 1, 1])?;
        let shift = self.tensor(layer, Role::NormShift, &[channels, 1, 1])?;
        let scaled = self.graph.apply("Mul", &[&unit, &scale]);
        Ok(self.graph.apply("Add", &[&scaled, &shift]))
    }

    /// Reshapes `[N, …]` to planes.
    pub(crate) fn planes(&mut self, x: &Value, channels: usize) -> Value {
        let &Architecture { height, width, .. } = self.architecture;
        self.graph.reshape(x, &[0, size(channels), size(height), size(width)])
    }

    /// Applies a matrix with bias to rows.
    pub(crate) fn linear(&mut self, layer: &Layer, x: &Value) -> Result<Value, Error> {
        let weight = self.tensor(layer, Role::Linear, &[layer.outputs, layer.inputs])?;
        let bias = self.tensor(layer, Role::Bias, &[layer.outputs])?;
        Ok(self.graph.node("Gemm", &[x, &weight, &bias], vec![Attribute::int("transB", 1)]))
    }

    /// Applies a matrix without bias and the layer norm to rows.
    pub(crate) fn dense(&mut self, layer: &Layer, x: &Value) -> Result<Value, Error> {
        let weight = self.tensor(layer, Role::Linear, &[layer.outputs, layer.inputs])?;
        let product = self.graph.node("Gemm", &[x, &weight], vec![Attribute::int("transB", 1)]);
        self.layer_norm(layer, layer.outputs, &product)
    }

    /// Applies a matrix with bias to the channels of each cell in planes.
    pub(crate) fn pointwise(&mut self, layer: &Layer, x: &Value) -> Result<Value, Error> {
        let weight = self.tensor(layer, Role::Linear, &[layer.outputs, layer.inputs, 1, 1])?;
        let bias = self.tensor(layer, Role::Bias, &[layer.outputs])?;
        Ok(self.graph.apply("Conv", &[x, &weight, &bias]))
    }

    /// Applies a matrix with bias to cells.
    fn per_cell(&mut self, layer: &Layer, x: &Value) -> Result<Value, Error> {
        let &Layer { inputs, outputs, .. } = layer;
        let weight = self.values(layer, Role::Linear)?;
        let transposed: Vec<f32> =
            (0..inputs).flat_map(|input| weight.iter().skip(input).step_by(inputs).copied()).collect();
        let weight = self.graph.weights(&layer.tensor_name(Role::Linear), &[inputs, outputs], &transposed);
        let bias = self.tensor(layer, Role::Bias, &[outputs])?;
        let product = self.graph.apply("MatMul", &[x, &weight]);
        Ok(self.graph.apply("Add", &[&product, &bias]))
    }

    /// Applies a residual block.
    pub(crate) fn block(&mut self, block: &Block, x: &Value) -> Result<Value, Error> {
        let mut y = x.clone();
        if let Some(down) = &block.down {
            let narrow = self.convolution(down, x)?;
            y = self.activate(&narrow);
        }
        y = self.convolution(&block.first, &y)?;
        if let Some(pooling) = &block.pooling {
            y = self.pool(pooling, &y)?;
        }
        y = self.activate(&y);
        let mut z = self.convolution(&block.second, &y)?;
        if let Some(up) = &block.up {
            let narrow = self.activate(&z);
            z = self.convolution(up, &narrow)?;
        }
        if let Some(excitation) = &block.excitation {
            let means = self.graph.reduce("ReduceMean", &z, &CELLS);
            let hidden = self.pointwise(&excitation.hidden, &means)?;
            let hidden = self.relu(&hidden);
            let output = self.pointwise(&excitation.output, &hidden)?;
            let [gate, shift] = self.graph.split(&output, 1, [excitation.hidden.inputs; 2]);
            let gate = self.graph.apply("Sigmoid", &[&gate]);
            let gated = self.graph.apply("Mul", &[&z, &gate]);
            z = self.graph.apply("Add", &[&gated, &shift]);
        }
        let sum = self.graph.apply("Add", &[&z, x]);
        Ok(self.activate(&sum))
    }

    /// Adds to the last channels a linear function of the means and maxima of the first.
    fn pool(&mut self, layer: &Layer, y: &Value) -> Result<Value, Error> {
        let [pooled, rest] = self.graph.split(y, 1, [layer.inputs / 2, layer.outputs]);
        let active = self.activate(&pooled);
        let summary = self.pooled(&active, None);
        let bias = self.pointwise(layer, &summary)?;
        let rest = self.graph.apply("Add", &[&rest, &bias]);
        Ok(self.graph.concatenate(&[&pooled, &rest]))
    }

    /// Returns the means, the means times `scale` if there is one, and the maxima of planes over the cells, as planes
    /// of one cell.
    pub(crate) fn pooled(&mut self, x: &Value, scale: Option<f64>) -> Value {
        let graph = &mut self.graph;
        let means = graph.reduce("ReduceMean", x, &CELLS);
        let maxima = graph.reduce("ReduceMax", x, &CELLS);
        let scaled = scale.map(|scale| {
            let scale = graph.number(scale);
            graph.apply("Mul", &[&means, &scale])
        });
        let parts: Vec<&Value> = [&means].into_iter().chain(&scaled).chain([&maxima]).collect();
        graph.concatenate(&parts)
    }

    /// Returns the features of a head, as planes.
    pub(crate) fn features(&mut self, layer: &Layer, x: &Value) -> Result<Value, Error> {
        let y = self.convolution(layer, x)?;
        Ok(self.activate(&y))
    }

    /// Flattens planes by cell and then channel.
    pub(crate) fn flattened(&mut self, x: &Value) -> Value {
        let cells = self.graph.transpose(x, &CHANNELS_LAST);
        self.graph.flatten(&cells)
    }

    /// Applies attention blocks to planes.
    pub(crate) fn attend(&mut self, blocks: &[AttentionBlock], x: &Value) -> Result<Value, Error> {
        let &Architecture { height, width, channels, .. } = self.architecture;
        if blocks.is_empty() {
            return Ok(x.clone());
        }
        let offsets: Vec<i64> = AttentionBlock::offsets([height, width]).into_iter().map(size).collect();
        let offsets = self.graph.integers(&[height * width; 2], &offsets);
        let rows = self.graph.reshape(x, &[0, size(channels), -1]);
        let mut cells = self.graph.transpose(&rows, &[0, 2, 1]);
        for block in blocks {
            cells = self.attention(block, &offsets, &cells)?;
        }
        let rows = self.graph.transpose(&cells, &[0, 2, 1]);
        Ok(self.planes(&rows, channels))
    }

    /// Applies an attention block to cells. `offsets` are those of [`AttentionBlock::offsets`].
    fn attention(&mut self, block: &AttentionBlock, offsets: &Value, x: &Value) -> Result<Value, Error> {
        let (channels, heads) = (block.output.inputs, block.heads());
        let of_head = channels / heads;
        let normed = self.layer_norm(&block.qkv, channels, x)?;
        let qkv = self.per_cell(&block.qkv, &normed)?;
        let [queries, keys, values] = self.graph.split(&qkv, 2, [channels; 3]);
        let mut by_head = |x: &Value, axes: &[i64]| {
            let heads = self.graph.reshape(x, &[0, 0, size(heads), size(of_head)]);
            self.graph.transpose(&heads, axes)
        };
        // [N, heads, cells, D], and for the keys [N, heads, D, cells].
        let queries = by_head(&queries, &[0, 2, 1, 3]);
        let keys = by_head(&keys, &[0, 2, 3, 1]);
        let values = by_head(&values, &[0, 2, 1, 3]);
        let scale = self.graph.number(1.0 / (of_head as f64).sqrt());
        let products = self.graph.apply("MatMul", &[&queries, &keys]);
        let scaled = self.graph.apply("Mul", &[&products, &scale]);
        let table = self.tensor(&block.position, Role::Offsets, &[heads, block.position.inputs])?;
        let pairs = self.graph.node("Gather", &[&table, offsets], vec![Attribute::int("axis", 1)]);
        let scores = self.graph.apply("Add", &[&scaled, &pairs]);
        let shares = self.graph.softmax(&scores);
        let sums = self.graph.apply("MatMul", &[&shares, &values]);
        let by_cell = self.graph.transpose(&sums, &[0, 2, 1, 3]);
        let by_cell = self.graph.reshape(&by_cell, &[0, 0, size(channels)]);
        let added = self.per_cell(&block.output, &by_cell)?;
        let x = self.graph.apply("Add", &[x, &added]);
        let normed = self.layer_norm(&block.hidden, channels, &x)?;
        let hidden = self.per_cell(&block.hidden, &normed)?;
        let hidden = self.activate(&hidden);
        let added = self.per_cell(&block.feed_forward, &hidden)?;
        Ok(self.graph.apply("Add", &[&x, &added]))
    }
}
