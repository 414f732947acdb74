use std::cell::RefCell;
use std::ops::Range;

use super::operation::{self, Activated, Dense, Join, Normalised, Observation, Operation};
use super::part::Part;
use network::with_function;

use crate::activation::{Apply, Kept, Normed, narrow};
use crate::layer_norm;
use crate::planes::{self, Place};
use crate::pooled;
use crate::rescale;
use crate::stored::{Format, StoredMut};

thread_local! {
    /// Scratch: values of a position as float32.
    pub(super) static ROOMS: RefCell<[Vec<f32>; 3]> = const { RefCell::new([const { Vec::new() }; 3]) };
}

impl<'a> Part<'a> {
    /// Computes an operation for the positions of this part.
    pub(super) fn forward(&mut self, operation: &Operation) {
        let (graph, parameters) = (self.context.graph, self.context.parameters);
        let path = graph.path;
        match *operation {
            Operation::Observe { ref observations, y } => self.write(y, |part, to| part.observe(observations, to)),
            Operation::Act { step, y } => self.write(y, |part, to| {
                to.fill(0.0);
                let actions = graph.size(y.0);
                for (row, to) in part.rows().zip(to.chunks_exact_mut(actions)) {
                    to[part.context.targets.unrolled().action(row, step)] = 1.0;
                }
            }),
            Operation::Linear { matrix, x, y, rectifies } => self.write(y, |part, to| {
                graph.layers.matrices[matrix].apply(parameters, part.stored(x), to);
                if rectifies {
                    to.iter_mut().for_each(|unit| *unit = if *unit <= 0.0 { 0.0 } else { *unit });
                }
            }),
            Operation::Apply { x, y } => self.write(y, |part, to| {
                with_function!(graph.function, function => path.run(Apply { function, x: part.read(x), y: to }));
            }),
            Operation::Dense(Dense { layer, x, z, moments, y, skip, rectifies, .. }) => {
                let layer = &graph.layers.dense[layer];
                let [of_z, of_moments, to] = [z, moments, y].map(|value| self.take(value));
                layer.weights.apply(self.stored(x), None, StoredMut::F32(of_z));
                path.run(layer_norm::Forward {
                    z: of_z,
                    scale: &parameters[layer.scale.clone()],
                    shift: &parameters[layer.shift.clone()],
                    skip: skip.map(|skip| self.read(skip)),
                    rectifies,
                    moments: of_moments,
                    y: to,
                });
                self.put(z, of_z);
                self.put(moments, of_moments);
                self.put(y, to);
            }
            Operation::Convolve { convolution, norm, x, z, .. } => {
                let to = self.take(z);
                let weights = &graph.layers.convolutions[convolution].weights;
                let of_z = StoredMut::new(graph.format(z.0), to);
                self.results.moments.push((norm, weights.apply_measured(path, self.stored(x), of_z)));
                self.put(z, to);
            }
            Operation::Product { convolution, x, y } => self.write(y, |part, to| {
                let weights = &graph.layers.convolutions[convolution].weights;
                weights.apply(part.stored(x), None, StoredMut::F32(to));
            }),
            Operation::Normalise(Normalised { norm, x, moments, y, .. }) => {
                let [of_moments, to] = [moments, y].map(|value| self.take(value));
                graph.layers.position_norms[norm].forward(path, parameters, self.read(x), of_moments, to);
                self.put(moments, of_moments);
                self.put(y, to);
            }
            Operation::Attend { attention, qkv, y } => self.write(y, |part, to| {
                graph.layers.attentions[attention].forward(path, parameters, part.read(qkv), to);
            }),
            Operation::Add { x, beside, y } => self.write(y, |part, to| {
                let pairs = part.read(x).iter().zip(part.read(beside));
                to.iter_mut().zip(pairs).for_each(|(to, (x, beside))| *to = x + beside);
            }),
            Operation::Activate(ref activated) => self.activate(activated),
            Operation::Pool { x, y } => self.write(y, |part, to| {
                let cells = graph.cells;
                path.run(pooled::Forward { cells, channels: graph.size(x.0) / cells, x: part.read(x), y: to });
            }),
            Operation::Rescale { x, y } => self.write(y, |part, to| {
                path.run(rescale::Forward { position: graph.size(x.0), x: part.read(x), y: to });
            }),
            Operation::Join(join) => self.write(join.x, |part, to| part.join(join, to)),
            Operation::Centre { centre, x, y } => self.write(y, |part, to| {
                let means = &part.context.means[centre];
                let rows = to.chunks_exact_mut(means.len()).zip(part.read(x).chunks_exact(means.len()));
                for (to, x) in rows {
                    to.iter_mut().zip(x).zip(means).for_each(|((to, x), mean)| *to = x - mean);
                }
            }),
            Operation::Argmax { encoding, code } => self.write(code, |part, to| {
                to.fill(0.0);
                let codes = graph.size(code.0);
                for (to, encoding) in to.chunks_exact_mut(codes).zip(part.read(encoding).chunks_exact(codes)) {
                    to[crate::losses::greatest(encoding)] = 1.0;
                }
            }),
            Operation::Loss(_) => unreachable!("a loss is computed with its gradient"),
        }
    }

    /// Returns the batch rows of this part.
    pub(super) fn rows(&self) -> std::ops::Range<usize> {
        let first = self.context.first_row;
        first + self.positions.start..first + self.positions.end
    }

    fn observe(&self, observations: &[Observation], to: &mut [f32]) {
        let cells = self.context.graph.cells;
        let position = to.len() / self.positions.len();
        let planes = position / observations.len();
        let channels = position / cells;
        for (row, to) in self.rows().zip(to.chunks_exact_mut(position)) {
            for (index, &observation) in observations.iter().enumerate() {
                let place = Place { first: index * channels / observations.len(), channels };
                let (observations, index) = self.context.targets.observation(row, observation);
                planes::observe(observations, index * planes..(index + 1) * planes, cells, place, to);
            }
        }
    }

    fn activate(&mut self, activated: &Activated) {
        let (graph, context) = (self.context.graph, self.context);
        let &Activated { activation, norm, z, y, skip, ref kept, .. } = activated;
        let to = self.take(y);
        if self.is_narrow(activated) {
            graph.path.run(narrow::Forward {
                norm: &context.norms[norm],
                z: self.stored(z).bf16(),
                skip: skip.map(|skip| self.stored(skip).bf16()),
                y: StoredMut::new(Format::Bf16, to).bf16(),
            });
            self.put(y, to);
            return;
        }
        let mut numbers = Kept {
            squeezed: kept.squeezed.map(|value| self.take(value)).unwrap_or_default(),
            hidden: kept.hidden.map(|value| self.take(value)).unwrap_or_default(),
            terms: kept.terms.map(|value| self.take(value)).unwrap_or_default(),
            ..Kept::default()
        };
        let activation = &graph.layers.activations[activation];
        ROOMS.with_borrow_mut(|[of_z, of_skip, of_y]| {
            for positions in self.ranges(&[Some(z), Some(y), skip]) {
                let z = self.some(self.stored(z), z, &positions).widened(graph.path, of_z);
                let skip = skip.map(|skip| self.some(self.stored(skip), skip, &positions).widened(graph.path, of_skip));
                let normed = Normed { norm: &context.norms[norm], z, cells: graph.cells };
                let mut numbers = some_kept(&mut numbers, &positions, self.positions.len());
                self.some_mut(to, y, &positions).write(graph.path, of_y, |y| {
                    activation.forward(graph.path, graph.function, context.parameters, normed, skip, &mut numbers, y);
                });
            }
        });
        self.put(y, to);
        let Kept { squeezed, hidden, terms, .. } = numbers;
        for (value, numbers) in operation::forward(kept).zip(of_kept(kept, [squeezed, hidden, terms])) {
            self.put(value, numbers);
        }
    }

    fn join(&self, Join { state, beside, cells, .. }: Join, to: &mut [f32]) {
        let [of_state, of_beside] = [state, beside].map(|value| self.context.graph.size(value.0));
        let place = Place { first: of_state / cells, channels: (of_state + of_beside) / cells };
        let rows = self.read(state).chunks_exact(of_state).zip(self.read(beside).chunks_exact(of_beside));
        for ((state, beside), to) in rows.zip(to.chunks_exact_mut(of_state + of_beside)) {
            for (state, to) in state.chunks_exact(place.first).zip(to.chunks_exact_mut(place.channels)) {
                to[..place.first].copy_from_slice(state);
            }
            planes::by_cell(beside, cells, place, to);
        }
    }
}

/// Returns the numbers of the values that an activation keeps.
pub(super) fn of_kept<'a>(
    kept: &Kept<Option<super::Value>>,
    numbers: [&'a mut [f32]; 3],
) -> impl Iterator<Item = &'a mut [f32]> {
    let is_kept = [kept.squeezed, kept.hidden, kept.terms].map(|value| value.is_some());
    numbers.into_iter().zip(is_kept).filter(|(_, is_kept)| *is_kept).map(|(numbers, _)| numbers)
}

/// Returns an activation's kept numbers for `positions`, out of `of` positions in the part.
pub(super) fn some_kept<'a>(
    kept: &'a mut Kept<&mut [f32]>,
    positions: &Range<usize>,
    of: usize,
) -> Kept<&'a mut [f32]> {
    let some = |numbers: &'a mut [f32]| {
        let size = numbers.len() / of;
        &mut numbers[positions.start * size..positions.end * size]
    };
    Kept {
        squeezed: some(kept.squeezed),
        hidden: some(kept.hidden),
        terms: some(kept.terms),
        of_hidden: some(kept.of_hidden),
        of_terms: some(kept.of_terms),
    }
}
