use std::cell::RefCell;

use super::forward::{ROOMS, of_kept, some_kept};
use super::operation::{self, Activated, Dense, Join, Normalised, Operation};
use super::part::Part;
use super::{Loss, Value};
use network::with_function;

use crate::activation::{Before, Kept, Normed, OfApply, Rectify, narrow};
use crate::layer_norm;
use crate::losses::ChanceRows;
use crate::norm::GradientSums;
use crate::planes::{self, Place};
use crate::pooled;
use crate::rescale;
use crate::stored::{Format, Stored, StoredMut};

thread_local! {
    /// Scratch: values of a position and gradients, as float32.
    static DIFFERENTIATED: RefCell<[Vec<f32>; 6]> = const { RefCell::new([const { Vec::new() }; 6]) };
}

impl<'a> Part<'a> {
    /// Adds the contribution of operation `node` to the gradients of the inputs.
    pub(super) fn backward(&mut self, node: usize) {
        let graph = self.context.graph;
        let path = graph.path;
        match graph.nodes[node].operation {
            Operation::Observe { .. } | Operation::Act { .. } => {}
            Operation::Linear { matrix, x, y, rectifies } => {
                if rectifies {
                    let of_y = self.take_gradient(y);
                    path.run(Rectify { besides: None, y: self.read(y), of_y });
                    self.put_gradient(y, of_y);
                }
                let weights = &graph.layers.matrices[matrix].weights;
                self.add_stored_gradient(x, |part, of_x| weights.transposed(part.stored_gradient(y), of_x));
            }
            Operation::Apply { x, y } => self.add_gradient(x, |part, of_x| {
                of_x.copy_from_slice(part.read_gradient(y));
                let (x, y) = (part.read(x), part.read(y));
                with_function!(graph.function, function => path.run(OfApply { function, x, y, gradient: of_x }));
            }),
            Operation::Dense(ref dense) => self.dense(node, dense),
            Operation::Convolve { convolution, norm, x, z, n } => {
                self.combine(norm, z, n);
                let weights = &graph.layers.convolutions[convolution].weights;
                self.add_stored_gradient(x, |part, of_x| weights.transposed(part.stored_gradient(z), of_x));
            }
            Operation::Product { convolution, x, y } => {
                let weights = &graph.layers.convolutions[convolution].weights;
                self.add_stored_gradient(x, |part, of_x| weights.transposed(part.stored_gradient(y), of_x));
            }
            Operation::Normalise(Normalised { norm, x, moments, n, .. }) => {
                let (norm, mut sums) = (&graph.layers.position_norms[norm], None);
                self.add_gradient(x, |part, of_x| {
                    let read = [part.read(x), part.read(moments), part.read_gradient(n)];
                    sums = Some(norm.backward(path, part.context.parameters, read, of_x));
                });
                self.results.sums.extend(sums.map(|sums| (node, sums)));
            }
            Operation::Attend { attention, qkv, y } => {
                let (attention, mut table) = (&graph.layers.attentions[attention], None);
                self.add_gradient(qkv, |part, of_qkv| {
                    let (parameters, of_y) = (part.context.parameters, part.read_gradient(y));
                    table = Some(attention.backward(path, parameters, part.read(qkv), of_y, of_qkv));
                });
                self.results.tables.extend(table.map(|table| (node, table)));
            }
            Operation::Add { x, beside, y } => {
                for input in [x, beside] {
                    self.add_gradient(input, |part, of_input| of_input.copy_from_slice(part.read_gradient(y)));
                }
            }
            Operation::Activate(ref activated) => self.of_activation(node, activated),
            Operation::Pool { x, y } => self.add_gradient(x, |part, of_x| {
                let (cells, channels) = (graph.cells, graph.size(x.0) / graph.cells);
                let (of_y, y, x) = (part.read_gradient(y), part.read(y), part.read(x));
                path.run(pooled::Backward { cells, channels, x, y, of_y, of_x });
            }),
            Operation::Rescale { x, y } => self.add_gradient(x, |part, of_x| {
                let (position, of_y) = (graph.size(x.0), part.read_gradient(y));
                path.run(rescale::Backward { position, x: part.read(x), y: part.read(y), of_y, of_x });
            }),
            Operation::Join(join) => self.of_join(join),
            Operation::Centre { centre, x, y } => self.add_gradient(x, |part, of_x| {
                let means = &part.context.means[centre];
                let rows = of_x.chunks_exact_mut(means.len()).zip(part.read_gradient(y).chunks_exact(means.len()));
                for (of_x, of_y) in rows {
                    of_x.iter_mut().zip(of_y).zip(means).for_each(|((of_x, of_y), mean)| *of_x = of_y - mean);
                }
            }),
            Operation::Argmax { encoding, code } => self.add_gradient(encoding, |part, of_encoding| {
                of_encoding.copy_from_slice(part.read_gradient(code));
            }),
            Operation::Loss(loss) => self.begin(loss),
        }
    }

    fn dense(&mut self, node: usize, dense: &Dense) {
        let &Dense { layer, x, z, moments, y, besides, rectifies, .. } = dense;
        let (path, layer) = (self.context.graph.path, &self.context.graph.layers.dense[layer]);
        if rectifies {
            let of_y = self.take_gradient(y);
            let besides = besides.map(|besides| self.read_gradient(besides));
            path.run(Rectify { besides, y: self.read(y), of_y });
            self.put_gradient(y, of_y);
        }
        let of_z = self.take_gradient(z);
        let sums = path.run(layer_norm::Backward {
            z: self.read(z),
            scale: &self.context.parameters[layer.scale.clone()],
            moments: self.read(moments),
            gradient: self.read_gradient(y),
            of_z,
        });
        self.put_gradient(z, of_z);
        self.results.sums.push((node, sums));
        self.add_stored_gradient(x, |part, of_x| layer.weights.transposed(part.stored_gradient(z), of_x));
    }

    fn of_activation(&mut self, node: usize, activated: &Activated) {
        let graph = self.context.graph;
        let &Activated { activation, norm, z, n, y, skip, besides, ref kept } = activated;
        let activation = &graph.layers.activations[activation];
        if self.is_narrow(activated) {
            return self.of_narrow(node, activated);
        }
        let of_y = self.take_gradient(y);
        let is_identity = graph.norms[norm].phase.is_none();
        let of_n = if n == y { Default::default() } else { self.take_gradient(n) };
        let norm = &self.context.norms[norm];
        let mut numbers = Kept {
            squeezed: kept.squeezed.map(|value| self.take(value)).unwrap_or_default(),
            hidden: kept.hidden.map(|value| self.take(value)).unwrap_or_default(),
            terms: kept.terms.map(|value| self.take(value)).unwrap_or_default(),
            of_hidden: kept.of_hidden.map(|value| self.take_gradient(value)).unwrap_or_default(),
            of_terms: kept.of_terms.map(|value| self.take_gradient(value)).unwrap_or_default(),
        };
        let mut sums = GradientSums::zeros(norm.mean.len());
        DIFFERENTIATED.with_borrow_mut(|rooms| {
            let [of_z, of_skip, of_besides, room_y, gradient_y, gradient_n] = rooms;
            for positions in self.ranges(&[Some(z), Some(y), Some(n), skip, besides]) {
                let z = self.some(self.stored(z), z, &positions).widened(graph.path, of_z);
                let skip = skip.map(|skip| self.some(self.stored(skip), skip, &positions).widened(graph.path, of_skip));
                let besides = besides.map(|besides| {
                    self.some(self.stored_gradient(besides), besides, &positions).widened(graph.path, of_besides)
                });
                let read_y = self.some(self.stored(y), y, &positions).widened(graph.path, room_y);
                let mut numbers = some_kept(&mut numbers, &positions, self.positions.len());
                let normed = Normed { norm, z, cells: graph.cells };
                self.some_mut(of_y, y, &positions).change(graph.path, gradient_y, |of_y| {
                    let before = Before { normed, skip, terms: &*numbers.terms };
                    activation.differentiate(graph.path, graph.function, before, besides, read_y, of_y);
                    if n == y {
                        activation.backward(graph.path, graph.function, normed, read_y, of_y, &mut numbers, &mut []);
                        sums.add(graph.path, of_y, z, &norm.mean);
                        return;
                    }
                    self.some_mut(of_n, n, &positions).write(graph.path, gradient_n, |of_n| {
                        activation.backward(graph.path, graph.function, normed, read_y, of_y, &mut numbers, of_n);
                        sums.add(graph.path, of_n, z, &norm.mean);
                    });
                });
            }
        });
        if !is_identity {
            self.results.sums.push((node, sums));
        }
        self.put_gradient(y, of_y);
        if n != y {
            self.put_gradient(n, of_n);
        }
        let Kept { squeezed, hidden, terms, of_hidden, of_terms } = numbers;
        for (value, numbers) in operation::forward(kept).zip(of_kept(kept, [squeezed, hidden, terms])) {
            self.put(value, numbers);
        }
        for (value, gradient) in [(kept.of_hidden, of_hidden), (kept.of_terms, of_terms)] {
            if let Some(value) = value {
                self.put_gradient(value, gradient);
            }
        }
    }

    /// Returns whether an activation is a plain ReLU on bfloat16 values only.
    pub(super) fn is_narrow(&self, activated: &Activated) -> bool {
        let graph = self.context.graph;
        let values = [Some(activated.z), Some(activated.y), activated.skip, activated.besides];
        graph.layers.activations[activated.activation].is_plain()
            && graph.function == network::Activation::Relu
            && values.into_iter().flatten().all(|value| graph.format(value.0) == Format::Bf16)
    }

    /// Backward pass of an activation that [is narrow](Self::is_narrow).
    fn of_narrow(&mut self, node: usize, activated: &Activated) {
        let &Activated { norm, z, y, besides, .. } = activated;
        let gradient = self.take_gradient(y);
        let graph = self.context.graph;
        let (norm, cells) = (&self.context.norms[norm], graph.cells);
        let mut sums = GradientSums::zeros(norm.mean.len());
        graph.path.run(narrow::Backward {
            norm,
            cells,
            z: self.stored(z).bf16(),
            besides: besides.map(|besides| self.stored_gradient(besides).bf16()),
            y: self.stored(y).bf16(),
            of_y: StoredMut::new(Format::Bf16, gradient).bf16(),
            sums: &mut sums,
        });
        self.put_gradient(y, gradient);
        self.results.sums.push((node, sums));
    }

    /// Writes the gradient of a norm's input z from the gradient of the output n.
    fn combine(&mut self, norm: usize, z: Value, n: Value) {
        let path = self.context.graph.path;
        let gradient = self.take_gradient(z);
        if let (Stored::Bf16(of_n), Stored::Bf16(of_z)) = (self.stored_gradient(n), self.stored(z)) {
            let combination = &self.context.combinations[norm];
            let written = StoredMut::new(Format::Bf16, gradient).bf16();
            path.run(narrow::Combine { combination, of_n, z: of_z, of_z: written });
            self.put_gradient(z, gradient);
            return;
        }
        ROOMS.with_borrow_mut(|[of_n, of_z, written]| {
            for positions in self.ranges(&[Some(z), Some(n)]) {
                let of_n = self.some(self.stored_gradient(n), n, &positions).widened(path, of_n);
                let z_here = self.some(self.stored(z), z, &positions).widened(path, of_z);
                self.some_mut(gradient, z, &positions).write(path, written, |of_z| {
                    self.context.combinations[norm].apply(path, of_n, z_here, of_z);
                });
            }
        });
        self.put_gradient(z, gradient);
    }

    fn of_join(&mut self, Join { state, beside, cells, share, x }: Join) {
        let [of_state, of_beside] = [state, beside].map(|value| self.context.graph.size(value.0));
        let place = Place { first: of_state / cells, channels: (of_state + of_beside) / cells };
        self.add_gradient(state, |part, to| {
            let rows = to.chunks_exact_mut(place.first).zip(part.read_gradient(x).chunks_exact(place.channels));
            for (to, of_x) in rows {
                to.iter_mut().zip(of_x).for_each(|(to, of_x)| *to = share * of_x);
            }
        });
        self.add_gradient(beside, |part, to| {
            let rows = to.chunks_exact_mut(of_beside).zip(part.read_gradient(x).chunks_exact(of_state + of_beside));
            rows.for_each(|(to, of_x)| planes::by_plane(of_x, cells, place, to));
        });
    }

    /// Sums a loss and writes the gradients that start from it.
    fn begin(&mut self, loss: Loss) {
        let (targets, rows) = (self.context.targets, self.rows());
        let mut sums = std::mem::take(&mut self.results.losses);
        match loss {
            Loss::Policy { step, logits } => {
                self.differentiate(logits, |_, of| targets.policy(rows, step, of, &mut sums));
            }
            Loss::Value { step, logits } => {
                let mut errors = std::mem::take(&mut self.results.value_errors);
                self.differentiate(logits, |_, of| targets.value(rows, step, of, &mut sums, &mut errors));
                self.results.value_errors = errors;
            }
            Loss::Reward { step, logits } => {
                self.differentiate(logits, |_, of| targets.unrolled().reward(rows, step, of, &mut sums));
            }
            Loss::Afterstate { step, logits } => {
                self.differentiate(logits, |_, of| targets.unrolled().afterstate(rows, step, of, &mut sums));
            }
            Loss::Chance { step, logits, encoding } => {
                let mut of_encoding = self.read(encoding).to_vec();
                self.differentiate(logits, |_, of| {
                    let of_rows = ChanceRows { logits: of, encodings: &mut of_encoding };
                    targets.unrolled().chance(rows, step, of_rows, &mut sums);
                });
                self.add_gradient(encoding, |_, of| of.copy_from_slice(&of_encoding));
            }
            Loss::Consistency { step, predicted, observed } => self.differentiate(predicted, |part, of| {
                targets.unrolled().consistency(rows, step, part.read(observed), of, &mut sums);
            }),
        }
        self.results.losses = sums;
    }

    /// Adds the gradient of a loss to that of a value: `replace` overwrites the copied numbers with the gradient.
    fn differentiate(&mut self, value: Value, replace: impl FnOnce(&Self, &mut [f32])) {
        self.add_gradient(value, |part, of| {
            of.copy_from_slice(part.read(value));
            replace(part, of);
        });
    }
}
