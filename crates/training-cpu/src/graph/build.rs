use network::{AttentionBlock, Block, Layer};
use training::Recompute;

use super::operation::{Activated, Dense, Join, Norm, Normalised};
use super::{Declared, Graph, Loss, Node, Observation, Operation, Value};
use crate::stored::Format;

impl Graph {
    /// Adds the concatenated observations, `[H, W, planes]`.
    pub(crate) fn observe(&mut self, observations: Vec<Observation>, planes: usize) -> Value {
        let y = self.declare(observations.len() * planes * self.cells);
        self.add(Operation::Observe { observations, y });
        y
    }

    /// Adds the action of a step (0-based) as a one-hot row `[A]`.
    pub(crate) fn act(&mut self, step: usize, actions: usize) -> Value {
        let y = self.declare(actions);
        self.add(Operation::Act { step, y });
        y
    }

    /// Adds a matrix with bias.
    pub(crate) fn linear(&mut self, layer: &Layer, x: Value) -> Value {
        self.add_linear(layer, x, false)
    }

    /// Adds a matrix with bias, and ReLU.
    pub(crate) fn rectified_linear(&mut self, layer: &Layer, x: Value) -> Value {
        self.add_linear(layer, x, true)
    }

    /// Adds a matrix with bias, and the activation function of the network.
    pub(crate) fn activated_linear(&mut self, layer: &Layer, x: Value) -> Value {
        if self.function == network::Activation::Relu {
            return self.rectified_linear(layer, x);
        }
        let x = self.linear(layer, x);
        let y = self.declare(layer.outputs);
        self.add(Operation::Apply { x, y });
        y
    }

    fn add_linear(&mut self, layer: &Layer, x: Value, rectifies: bool) -> Value {
        let (matrix, y) = (self.layers.matrix(layer), self.declare(layer.outputs));
        self.add(Operation::Linear { matrix, x, y, rectifies });
        y
    }

    /// Adds a matrix with bias, applied to each cell.
    pub(crate) fn pointwise(&mut self, layer: &Layer, x: Value) -> Value {
        let (matrix, y) = (self.layers.cell_matrix(layer), self.declare(self.cells * layer.outputs));
        self.add(Operation::Linear { matrix, x, y, rectifies: false });
        y
    }

    /// Adds pooling over the cells: mean, scaled mean and maximum per channel, `[H, W, C]` to `[3C]`.
    pub(crate) fn pool(&mut self, x: Value) -> Value {
        let y = self.declare(3 * self.values[x.0].size / self.cells);
        self.add(Operation::Pool { x, y });
        y
    }

    /// Adds a layer norm and a matrix with bias, applied to each cell.
    fn pre_normed(&mut self, layer: &Layer, x: Value) -> Value {
        let norm = self.layers.pre_norm(layer);
        let y = self.normalise(norm, x);
        self.pointwise(layer, y)
    }

    /// Adds a norm of single positions.
    fn normalise(&mut self, norm: usize, x: Value) -> Value {
        let moments = self.layers.position_norms[norm].moments();
        let [moments, y] = [moments, self.values[x.0].size].map(|size| self.declare(size));
        self.add(Operation::Normalise(Normalised { norm, x, moments, y, n: y }));
        y
    }

    fn sum(&mut self, x: Value, beside: Value) -> Value {
        let y = self.declare(self.values[x.0].size);
        self.add(Operation::Add { x, beside, y });
        y
    }

    /// Adds a dense layer with ReLU.
    pub(crate) fn dense(&mut self, layer: &Layer, x: Value) -> Value {
        self.add_dense(layer, x, None, true)
    }

    /// Adds a dense layer with a skip connection: `skip` is added before ReLU.
    pub(crate) fn dense_beside(&mut self, layer: &Layer, x: Value, skip: Value) -> Value {
        self.add_dense(layer, x, Some(skip), true)
    }

    /// Adds a dense layer without ReLU.
    pub(crate) fn dense_normed(&mut self, layer: &Layer, x: Value) -> Value {
        self.add_dense(layer, x, None, false)
    }

    fn add_dense(&mut self, declared: &Layer, x: Value, skip: Option<Value>, rectifies: bool) -> Value {
        let layer = self.layers.dense(declared);
        let [z, moments, y] = [declared.outputs, 2, declared.outputs].map(|size| self.declare(size));
        self.add(Operation::Dense(Dense { layer, x, z, moments, y, skip, rectifies, besides: None }));
        self.add_skip(skip, y);
        y
    }

    /// Adds a convolution with batch norm and activation for each of `xs`, `[H, W, in]` to `[H, W, out]`, with joint
    /// statistics.
    pub(crate) fn convolve(&mut self, layer: &Layer, xs: &[Value]) -> Vec<Value> {
        let convolution = self.layers.rectified(layer);
        self.add_convolution(convolution, xs, None)
    }

    /// Adds consecutive residual blocks for each of `xs`, `[H, W, C]` to `[H, W, C]`, with joint statistics.
    pub(crate) fn blocks(&mut self, blocks: &[Block], xs: Vec<Value>) -> Vec<Value> {
        let mut xs = xs;
        for segment in blocks.chunks(Recompute::segment_blocks(blocks.len())) {
            self.begin_segment();
            xs = segment.iter().fold(xs, |xs, block| self.block(block, &xs));
        }
        self.segment = None;
        xs
    }

    /// Adds consecutive attention blocks for each of `xs`, `[H, W, C]` to `[H, W, C]`.
    pub(crate) fn attention(&mut self, blocks: &[AttentionBlock], xs: Vec<Value>) -> Vec<Value> {
        let mut xs = xs;
        for segment in blocks.chunks(Recompute::segment_blocks(blocks.len())) {
            self.begin_segment();
            for block in segment {
                self.begin_phase(&xs);
                xs = xs.into_iter().map(|x| self.attend(block, x)).collect();
            }
        }
        self.segment = None;
        xs
    }

    /// Adds an attention block, `[H, W, C]` to `[H, W, C]`.
    fn attend(&mut self, block: &AttentionBlock, x: Value) -> Value {
        let qkv = self.pre_normed(&block.qkv, x);
        let (attention, y) = (self.layers.attention(block), self.declare(self.values[x.0].size));
        self.add(Operation::Attend { attention, qkv, y });
        let added = self.pointwise(&block.output, y);
        let x = self.sum(x, added);
        let hidden = self.pre_normed(&block.hidden, x);
        let y = self.declare(self.values[hidden.0].size);
        self.add(Operation::Apply { x: hidden, y });
        let added = self.pointwise(&block.feed_forward, y);
        self.sum(x, added)
    }

    /// Starts a segment of blocks to recompute, if the graph recomputes.
    fn begin_segment(&mut self) {
        self.segment = (self.recompute == Recompute::Blocks).then_some(self.segments);
        self.segments += 1;
    }

    /// Starts a phase after `xs` where no batch norm does: weight gradients are computed alongside the next phase,
    /// and memory is reused by other phases.
    fn begin_phase(&mut self, xs: &[Value]) {
        self.floor = xs.iter().map(|x| self.values[x.0].phase + 1).fold(self.floor, usize::max);
    }

    /// Adds a residual block for each of `xs`, `[H, W, C]` to `[H, W, C]`, with joint statistics.
    fn block(&mut self, block: &Block, xs: &[Value]) -> Vec<Value> {
        let mut convolutions = self.layers.block(block);
        if convolutions.iter().any(|&convolution| self.layers.convolutions[convolution].position_norm.is_some()) {
            self.begin_phase(xs);
        }
        let last = convolutions.pop().expect("a block has convolutions");
        let y =
            convolutions.into_iter().fold(xs.to_vec(), |y, convolution| self.add_convolution(convolution, &y, None));
        self.add_convolution(last, &y, Some(xs))
    }

    fn add_convolution(&mut self, convolution: usize, xs: &[Value], skips: Option<&[Value]>) -> Vec<Value> {
        let size = self.cells * self.layers.convolutions[convolution].weights.shape.outputs;
        let changes_skip = self.layers.activations[convolution].changes_skip();
        let norm = self.norms.len();
        let mut outputs = Vec::new();
        for &x in xs {
            let [z, y] = [size; 2].map(|size| self.declare(size));
            let n = if changes_skip { self.declare(size) } else { y };
            outputs.push(match self.layers.convolutions[convolution].position_norm {
                None => {
                    self.add(Operation::Convolve { convolution, norm, x, z, n });
                    [z, n, y]
                }
                Some(norm) => {
                    self.add(Operation::Product { convolution, x, y: z });
                    let moments = self.layers.position_norms[norm].moments();
                    let [moments, normed] = [moments, size].map(|size| self.declare(size));
                    self.add(Operation::Normalise(Normalised { norm, x: z, moments, y: normed, n }));
                    [normed, n, y]
                }
            });
        }
        let is_of_batch = self.layers.convolutions[convolution].position_norm.is_none();
        let phase = is_of_batch.then(|| outputs.iter().map(|[z, ..]| self.values[z.0].phase).max().unwrap_or(0));
        self.norms.push(Norm { convolution, phase });
        for (index, &[z, n, y]) in outputs.iter().enumerate() {
            let skip = skips.map(|skips| skips[index]);
            let sizes = self.layers.activations[convolution].sizes();
            let [squeezed, hidden, terms] =
                [sizes.squeezed, sizes.hidden, sizes.terms].map(|size| (size > 0).then(|| self.declare(size)));
            // A gradient has the slot of the value.
            let kept = crate::activation::Kept { squeezed, hidden, terms, of_hidden: hidden, of_terms: terms };
            let activated = Activated { activation: convolution, norm, z, n, y, skip, besides: None, kept };
            self.add_after(phase.map_or(0, |phase| phase + 1), Operation::Activate(activated));
            self.add_skip(skip, y);
        }
        outputs.into_iter().map(|[.., y]| y).collect()
    }

    /// Adds the rescaling of each position's numbers to `[0, 1]`.
    pub(crate) fn rescale(&mut self, x: Value) -> Value {
        let y = self.declare(self.values[x.0].size);
        self.add(Operation::Rescale { x, y });
        y
    }

    /// Adds the concatenation of `state` `[H, W, C]` and `beside` `[D, H, W]` by cell, `[H, W, C + D]`. Only `share`
    /// of the gradient reaches `state`.
    pub(crate) fn join(&mut self, state: Value, beside: Value, share: f32) -> Value {
        self.add_join(state, beside, self.cells, share)
    }

    /// Adds the concatenation of two rows.
    pub(crate) fn concatenate(&mut self, first: Value, second: Value) -> Value {
        self.add_join(first, second, 1, 1.0)
    }

    fn add_join(&mut self, state: Value, beside: Value, cells: usize, share: f32) -> Value {
        let x = self.declare(self.values[state.0].size + self.values[beside.0].size);
        self.add(Operation::Join(Join { state, beside, cells, share, x }));
        x
    }

    /// Subtracts from each of `xs` the mean over the batch and over all of `xs`.
    pub(crate) fn centre(&mut self, xs: &[Value]) -> Vec<Value> {
        let phase = xs.iter().map(|x| self.values[x.0].phase).max().unwrap_or(0) + 1;
        let centre = self.centres.len();
        let pairs: Vec<[Value; 2]> = xs.iter().map(|&x| [x, self.declare(self.values[x.0].size)]).collect();
        self.centres.push(pairs.clone());
        for &[x, y] in &pairs {
            self.add_after(phase, Operation::Centre { centre, x, y });
        }
        pairs.into_iter().map(|[_, y]| y).collect()
    }

    /// Adds the one-hot row of each position's largest number.
    pub(crate) fn argmax(&mut self, encoding: Value) -> Value {
        let code = self.declare(self.values[encoding.0].size);
        self.add(Operation::Argmax { encoding, code });
        code
    }

    /// Adds a loss on declared values.
    pub(crate) fn add_loss(&mut self, loss: Loss) {
        self.add(Operation::Loss(loss));
    }

    /// Decides whether operations added from now on have a backward pass.
    pub(crate) fn differentiate(&mut self, is_differentiated: bool) {
        self.is_differentiated = is_differentiated;
    }

    fn declare(&mut self, size: usize) -> Value {
        self.values.push(Declared { size, has_gradient: false, phase: 0, node: 0, format: Format::F32 });
        Value(self.values.len() - 1)
    }

    fn add(&mut self, operation: Operation) {
        self.add_after(0, operation);
    }

    /// Adds an operation in the first phase from `phase` on that has all inputs.
    fn add_after(&mut self, phase: usize, operation: Operation) {
        let inputs = operation.inputs();
        let read = inputs.iter().copied().chain(operation.read_besides());
        let phase = read.map(|input| self.values[input.0].phase).fold(phase.max(self.floor), usize::max);
        let has_gradient = self.is_differentiated
            && match &operation {
                Operation::Linear { .. }
                | Operation::Dense(_)
                | Operation::Convolve { .. }
                | Operation::Product { .. } => true,
                _ => inputs.iter().any(|input| self.values[input.0].has_gradient),
            };
        for output in operation.outputs() {
            self.values[output.0] = Declared { phase, has_gradient, node: self.nodes.len(), ..self.values[output.0] };
        }
        self.nodes.push(Node { operation, phase, is_differentiated: has_gradient, segment: self.segment });
    }

    /// Makes the backward pass of the operation that computes `skip` add the gradient of `y`.
    fn add_skip(&mut self, skip: Option<Value>, y: Value) {
        let Some(skip) = skip else { return };
        match &mut self.nodes[self.values[skip.0].node].operation {
            Operation::Dense(Dense { besides, .. }) | Operation::Activate(Activated { besides, .. }) => {
                *besides = Some(y);
            }
            _ => unreachable!("layers with ReLU end in skip connections"),
        }
    }
}
