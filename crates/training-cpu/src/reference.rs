//! Reference by definition for the network, the losses and the gradients, in float64: one graph node per number.
//! Tests compare the kernels with it; no code is shared.

mod attention;
mod latent;
mod pooled;

use std::collections::HashMap;

use network::{Activation, Layer, LayerKind, Layers, NORM_EPSILON, NormKind, Role, activation};
use training::{Layout, Numbers, TrainingBatch};
use weights::Architecture;

pub(crate) use self::latent::unrolled_reference;

/// Index of a number in the graph.
type Variable = usize;
/// Feature maps, `[B][H · W][C]`.
type Maps = Vec<Vec<Vec<Variable>>>;

/// Numbers with the derivatives by their inputs. The lists are flat: one list for each of millions of numbers would
/// dominate the time of a test, above all under the address sanitiser.
#[derive(Default)]
struct Graph {
    values: Vec<f64>,
    /// End of each number's inputs in `inputs`; the start is the end of the previous number.
    ends: Vec<usize>,
    /// Inputs, each with the derivative by it.
    inputs: Vec<(Variable, f64)>,
}

impl Graph {
    fn node(&mut self, value: f64, inputs: impl IntoIterator<Item = (Variable, f64)>) -> Variable {
        self.inputs.extend(inputs);
        self.complete(value)
    }

    /// Adds a number; its inputs are the latest entries of the list.
    fn complete(&mut self, value: f64) -> Variable {
        self.values.push(value);
        self.ends.push(self.inputs.len());
        self.values.len() - 1
    }

    fn constant(&mut self, value: f64) -> Variable {
        self.node(value, [])
    }

    fn value(&self, variable: Variable) -> f64 {
        self.values[variable]
    }

    /// Returns `Σ factor · a`.
    fn sum(&mut self, terms: impl IntoIterator<Item = (Variable, f64)>) -> Variable {
        let begin = self.inputs.len();
        self.inputs.extend(terms);
        let value = self.inputs[begin..].iter().map(|&(a, factor)| factor * self.value(a)).sum();
        self.complete(value)
    }

    /// Returns `Σ a · b`.
    fn products(&mut self, pairs: &[(Variable, Variable)]) -> Variable {
        let values = &self.values;
        self.inputs.extend(pairs.iter().flat_map(|&(a, b)| [(a, values[b]), (b, values[a])]));
        let value = pairs.iter().map(|&(a, b)| values[a] * values[b]).sum();
        self.complete(value)
    }

    /// Applies a function; `at` returns value and slope.
    fn map(&mut self, a: Variable, at: impl Fn(f64) -> (f64, f64)) -> Variable {
        let (value, slope) = at(self.value(a));
        self.node(value, [(a, slope)])
    }

    fn relu(&mut self, a: Variable) -> Variable {
        self.map(a, |x| if x > 0.0 { (x, 1.0) } else { (0.0, 0.0) })
    }

    fn activated(&mut self, activation: Activation, a: Variable) -> Variable {
        let value = |x| activation::value(activation, x);
        // The step of the difference is far above the rounding errors and far below the scale of the functions.
        let slope = |x: f64| match activation {
            Activation::Relu => f64::from(u8::from(x > 0.0)),
            _ => (value(x + 1e-5) - value(x - 1e-5)) / 2e-5,
        };
        self.map(a, |x| (value(x), slope(x)))
    }

    /// Returns the maximum; equal numbers share the gradient.
    fn max(&mut self, all: &[Variable]) -> Variable {
        let most = all.iter().map(|&a| self.value(a)).fold(f64::NEG_INFINITY, f64::max);
        let largest: Vec<_> = all.iter().copied().filter(|&a| self.value(a) == most).collect();
        let share = 1.0 / largest.len() as f64;
        self.node(most, largest.into_iter().map(|a| (a, share)))
    }

    /// Returns the logarithm of the softmax.
    fn log_softmax(&mut self, logits: &[Variable]) -> Vec<Variable> {
        let exponentials: Vec<_> = logits.iter().map(|&a| self.map(a, |x| (x.exp(), x.exp()))).collect();
        let sum = self.sum(exponentials.into_iter().map(|a| (a, 1.0)));
        let normaliser = self.map(sum, |x| (x.ln(), 1.0 / x));
        logits.iter().map(|&a| self.sum([(a, 1.0), (normaliser, -1.0)])).collect()
    }

    /// Returns the derivatives of `of` by every number.
    fn gradient(&self, of: Variable) -> Vec<f64> {
        let mut gradient = vec![0.0; self.values.len()];
        gradient[of] = 1.0;
        for variable in (0..=of).rev() {
            let own = gradient[variable];
            let begin = if variable == 0 { 0 } else { self.ends[variable - 1] };
            self.inputs[begin..self.ends[variable]].iter().for_each(|&(input, slope)| gradient[input] += own * slope);
        }
        gradient
    }
}

/// Results of a training step by definition.
pub(crate) struct Reference {
    pub(crate) policy: f64,
    pub(crate) value: f64,
    /// Gradient of `policy + value_loss_weight · value`, `[P]`.
    pub(crate) gradient: Vec<f64>,
    /// Running statistics after the step, `[S]`.
    pub(crate) statistics: Vec<f64>,
}

struct Network {
    graph: Graph,
    board: [usize; 2],
    /// Activation function after batch norms.
    activation: Activation,
    /// Parameters, `[P]`.
    parameters: Vec<Variable>,
    statistics: Vec<f64>,
    places: HashMap<String, usize>,
}

/// Computes the losses and gradients of a batch.
pub(crate) fn reference(
    architecture: &Architecture,
    layout: &Layout,
    numbers: &Numbers,
    batch: &TrainingBatch,
    value_loss_weight: f64,
) -> Reference {
    let mut network = Network::new(architecture, layout, numbers);
    let (policy, value) = network.losses(architecture, batch);
    let total = network.graph.sum([(policy, 1.0), (value, value_loss_weight)]);
    Reference {
        policy: network.graph.value(policy),
        value: network.graph.value(value),
        gradient: network.gradient(total),
        statistics: network.statistics,
    }
}

impl Network {
    fn new(architecture: &Architecture, layout: &Layout, numbers: &Numbers) -> Self {
        let mut graph = Graph::default();
        let entries = layout.parameters.iter().chain(&layout.statistics);
        Self {
            parameters: numbers.parameters.iter().map(|&value| graph.constant(f64::from(value))).collect(),
            graph,
            board: [architecture.height, architecture.width],
            activation: architecture.design.activation,
            statistics: numbers.statistics.iter().copied().map(f64::from).collect(),
            places: entries.map(|entry| (entry.tensor.name.clone(), entry.offset)).collect(),
        }
    }

    /// Returns the gradient of a loss by the parameters, `[P]`.
    fn gradient(&self, of: Variable) -> Vec<f64> {
        let gradient = self.graph.gradient(of);
        self.parameters.iter().map(|&parameter| gradient[parameter]).collect()
    }

    fn losses(&mut self, architecture: &Architecture, batch: &TrainingBatch) -> (Variable, Variable) {
        let layers = Layers::new(architecture).unwrap();
        let observations = self.observations(architecture.planes, &batch.observations.to_floats());
        let mut x = self.tower(&layers.stem, &layers.blocks, &observations);
        for block in &layers.attention {
            x.iter_mut().for_each(|cells| self.attention(block, cells));
        }
        let [policy, value] = [&layers.policy, &layers.value].map(|head| {
            let mut y = self.normed(head, &x);
            self.activate(&mut y);
            y
        });
        let heads = architecture.design.heads;
        let (mut of_policy, mut of_value) = (Vec::new(), Vec::new());
        let weight = batch.policy_weights.iter().sum::<f32>().max(1.0);
        for (row, (policy, value)) in policy.iter().zip(&value).enumerate() {
            let importance = batch.importance.get(row).map_or(1.0, |&importance| f64::from(importance));
            let logits = self.policy_logits(heads, &layers, policy);
            let actions = row * logits.len()..(row + 1) * logits.len();
            let legal: Vec<usize> =
                (0..logits.len()).filter(|&action| batch.legal[actions.start + action] > 0).collect();
            let logs = self.graph.log_softmax(&legal.iter().map(|&action| logits[action]).collect::<Vec<_>>());
            let factor = importance * f64::from(batch.policy_weights[row]) / f64::from(weight);
            for (log, action) in logs.into_iter().zip(legal) {
                of_policy.push((log, -factor * f64::from(batch.policies[actions.start + action])));
            }
            let inputs = self.value_inputs(heads, value);
            let mut hidden = self.linear(&layers.value_hidden, &inputs);
            hidden.iter_mut().for_each(|unit| *unit = self.graph.activated(self.activation, *unit));
            let logits = self.linear(&layers.value_output, &hidden);
            let factor = importance / batch.policy_weights.len() as f64;
            let targets = &batch.wdl[row * 3..(row + 1) * 3];
            let logs = self.graph.log_softmax(&logits).into_iter().zip(targets);
            of_value.extend(logs.map(|(log, &target)| (log, -factor * f64::from(target))));
        }
        (self.graph.sum(of_policy), self.graph.sum(of_value))
    }

    /// Adds observations `[B, C, H, W]`.
    fn observations(&mut self, planes: usize, observations: &[f32]) -> Maps {
        let cells = self.board[0] * self.board[1];
        let of_position = |position: &[f32]| {
            let of_cell = |cell: usize| (0..planes).map(move |plane| position[plane * cells + cell]);
            (0..cells).map(|cell| of_cell(cell).map(|x| self.graph.constant(f64::from(x))).collect()).collect()
        };
        observations.chunks_exact(planes * cells).map(of_position).collect()
    }

    /// Applies stem and blocks.
    fn tower(&mut self, stem: &Layer, blocks: &[network::Block], x: &Maps) -> Maps {
        let mut x = self.normed(stem, x);
        self.activate(&mut x);
        for block in blocks {
            let mut y = x.clone();
            if let Some(down) = &block.down {
                y = self.normed(down, &y);
                self.activate(&mut y);
            }
            y = self.normed(&block.first, &y);
            if let Some(pooling) = &block.pooling {
                y.iter_mut().for_each(|position| self.pool(pooling, position));
            }
            self.activate(&mut y);
            let mut z = self.normed(&block.second, &y);
            if let Some(up) = &block.up {
                self.activate(&mut z);
                z = self.normed(up, &z);
            }
            if let Some(network::Excitation { hidden, output }) = &block.excitation {
                z.iter_mut().for_each(|position| self.excite([hidden, output], position));
            }
            for (z, x) in z.iter_mut().flatten().flatten().zip(x.iter().flatten().flatten()) {
                *z = self.graph.sum([(*z, 1.0), (*x, 1.0)]);
            }
            self.activate(&mut z);
            x = z;
        }
        x
    }

    /// Returns the parameter at an index of a tensor.
    fn parameter(&self, layer: &Layer, role: Role, index: usize) -> Variable {
        self.parameters[self.place(layer, role) + index]
    }

    /// Returns the offset of a tensor within the parameters. Loops look it up once: a look-up takes longer than a
    /// product.
    fn place(&self, layer: &Layer, role: Role) -> usize {
        self.places[&layer.tensor_name(role)]
    }

    fn activate(&mut self, maps: &mut Maps) {
        maps.iter_mut().flatten().flatten().for_each(|x| *x = self.graph.activated(self.activation, *x));
    }

    /// Returns `W x + b`.
    fn linear(&mut self, layer: &Layer, x: &[Variable]) -> Vec<Variable> {
        let place = self.place(layer, Role::Linear);
        let output = |output: usize| {
            let weight = |input: usize| self.parameters[place + output * layer.inputs + input];
            let pairs: Vec<_> = x.iter().enumerate().map(|(input, &x)| (x, weight(input))).collect();
            let (product, bias) = (self.graph.products(&pairs), self.parameter(layer, Role::Bias, output));
            self.graph.sum([(product, 1.0), (bias, 1.0)])
        };
        (0..layer.outputs).map(output).collect()
    }

    /// Applies a convolution and batch norm.
    fn normed(&mut self, layer: &Layer, x: &Maps) -> Maps {
        let LayerKind::Convolution { side, norm } = layer.kind else { unreachable!("the layer is a convolution") };
        let [height, width] = self.board.map(|len| isize::try_from(len).unwrap());
        let side = isize::try_from(side).unwrap();
        let place = self.place(layer, Role::Convolution);
        let mut z: Maps = x.iter().map(|x| vec![vec![0; layer.outputs]; x.len()]).collect();
        for (z, x) in z.iter_mut().zip(x) {
            for (cell, output) in
                (0..height * width).flat_map(|cell| (0..layer.outputs).map(move |output| (cell, output)))
            {
                let mut pairs = Vec::new();
                for (down, right) in (0..side).flat_map(|down| (0..side).map(move |right| (down, right))) {
                    let (row, column) = (cell / width + down - side / 2, cell % width + right - side / 2);
                    if !(0..height).contains(&row) || !(0..width).contains(&column) {
                        continue;
                    }
                    let tap = usize::try_from(output as isize * side * side + down * side + right).unwrap();
                    for (input, &x) in x[usize::try_from(row * width + column).unwrap()].iter().enumerate() {
                        pairs.push((x, self.parameters[place + tap * layer.inputs + input]));
                    }
                }
                z[usize::try_from(cell).unwrap()][output] = self.graph.products(&pairs);
            }
        }
        match norm {
            NormKind::Batch => (0..layer.outputs).for_each(|channel| self.normalise(layer, channel, &mut z)),
            NormKind::Layer => z.iter_mut().flatten().for_each(|cell| *cell = self.layer_norm(layer, cell)),
            NormKind::Group => z.iter_mut().for_each(|cells| self.group_norm(layer, cells)),
        }
        z
    }

    fn normalise(&mut self, layer: &Layer, channel: usize, z: &mut Maps) {
        let all: Vec<Variable> = z.iter().flatten().map(|cell| cell[channel]).collect();
        let share = 1.0 / all.len() as f64;
        let mean = self.graph.sum(all.iter().map(|&z| (z, share)));
        let distances: Vec<_> = all.iter().map(|&z| self.graph.sum([(z, 1.0), (mean, -1.0)])).collect();
        let squares: Vec<_> = distances.iter().map(|&distance| self.graph.products(&[(distance, distance)])).collect();
        let variance = self.graph.sum(squares.into_iter().map(|square| (square, share)));
        let inverse = self.graph.map(variance, |v| {
            let inverse = 1.0 / (v + NORM_EPSILON).sqrt();
            (inverse, -0.5 * inverse.powi(3))
        });
        let (scale, shift) =
            (self.parameter(layer, Role::NormScale, channel), self.parameter(layer, Role::NormShift, channel));
        let slope = self.graph.products(&[(scale, inverse)]);
        for (z, distance) in z.iter_mut().flatten().zip(distances) {
            let scaled = self.graph.products(&[(distance, slope)]);
            z[channel] = self.graph.sum([(scaled, 1.0), (shift, 1.0)]);
        }
        let correction = all.len() as f64 / (all.len() - 1).max(1) as f64;
        for (role, value) in
            [(Role::NormMean, self.graph.value(mean)), (Role::NormVariance, correction * self.graph.value(variance))]
        {
            let running = &mut self.statistics[self.places[&layer.tensor_name(role)] + channel];
            *running = 0.9 * *running + 0.1 * value;
        }
    }

    /// Applies global pooling to one position, before the activation.
    fn pool(&mut self, layer: &Layer, position: &mut [Vec<Variable>]) {
        let (pooled, share) = (layer.inputs / 2, 1.0 / position.len() as f64);
        let mut features = vec![0; layer.inputs];
        for channel in 0..pooled {
            let all: Vec<_> =
                position.iter().map(|cell| self.graph.activated(self.activation, cell[channel])).collect();
            features[channel] = self.graph.sum(all.iter().map(|&x| (x, share)));
            features[pooled + channel] = self.graph.max(&all);
        }
        let terms = self.linear(layer, &features);
        for cell in position {
            for (x, term) in cell[pooled..].iter_mut().zip(&terms) {
                *x = self.graph.sum([(*x, 1.0), (*term, 1.0)]);
            }
        }
    }

    /// Applies squeeze-and-excitation to one position.
    fn excite(&mut self, [hidden, output]: [&Layer; 2], position: &mut [Vec<Variable>]) {
        let (channels, share) = (hidden.inputs, 1.0 / position.len() as f64);
        let squeezed: Vec<_> =
            (0..channels).map(|channel| self.graph.sum(position.iter().map(|cell| (cell[channel], share)))).collect();
        let mut units = self.linear(hidden, &squeezed);
        units.iter_mut().for_each(|unit| *unit = self.graph.relu(*unit));
        let mut terms = self.linear(output, &units);
        for scale in &mut terms[..channels] {
            *scale = self.graph.map(*scale, |x| {
                let sigmoid = 1.0 / (1.0 + (-x).exp());
                (sigmoid, sigmoid * (1.0 - sigmoid))
            });
        }
        for cell in position {
            for (channel, z) in cell.iter_mut().enumerate() {
                let scaled = self.graph.products(&[(*z, terms[channel])]);
                *z = self.graph.sum([(scaled, 1.0), (terms[channels + channel], 1.0)]);
            }
        }
    }
}

/// Panics unless every tensor of `got` agrees with `expected`, both at the places of `entries`: the distance must be
/// at most `tolerance` times the norm, or times `floor` if that is larger.
pub(crate) fn assert_tensors_close(
    what: &str,
    entries: &[training::Entry],
    got: &[f32],
    expected: &[f64],
    [tolerance, floor]: [f64; 2],
) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for entry in entries {
        let (got, expected) = (&got[entry.range()], &expected[entry.range()]);
        let norm = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
        let apart = got.iter().zip(expected).map(|(got, x)| (f64::from(*got) - x).powi(2)).sum::<f64>().sqrt();
        let error = apart / norm.max(floor);
        assert!(error <= tolerance, "{what}, {}: {error} of {norm}", entry.tensor.name);
    }
}
