use std::ops::Range;

use training::Losses;

use super::operation::Operation;
use super::part::{Context, Part, Results};
use super::schedule::Schedule;
use super::weight_use::WeightUse;
use super::{Graph, Value};
use crate::Path;
use crate::buffer::{Buffer, Store};
use crate::losses::Targets;
use crate::matrix::GradientPart;
use crate::norm::{Combination, GradientSums, Moments, Norm};
use crate::parts::{Parts, rows_of_parts};
use crate::stored::Operand;
use crate::threads::Threads;
use crate::weight_sums::WeightSums;

/// Threads of a trainer, and the memory that steps reuse.
#[derive(Debug)]
pub(crate) struct Workshop {
    pub(crate) threads: Threads,
    pub(crate) store: Store,
    /// In a step that checks the layers: the float32 weight gradient `[P]`, from the same inputs and the same output
    /// gradients.
    pub(crate) exact: Option<Vec<f32>>,
}

/// Outputs of a pass that accumulate over the micro-batches of a step.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    /// `[S]`: running statistics.
    pub(crate) statistics: &'a mut [f32],
    /// `[P]`.
    pub(crate) gradient: &'a mut [f32],
    /// Value errors of the micro-batch, `[rows]`.
    pub(crate) value_errors: &'a mut [f32],
}

/// State of a running pass.
struct Pass<'a> {
    graph: &'a Graph,
    parameters: &'a [f32],
    targets: &'a Targets<'a>,
    first_row: usize,
    /// Positions in the largest micro-batch, for which buffers have room.
    largest: usize,
    parts: Parts,
    /// Values first, then gradients in the same order.
    slots: Vec<Buffer>,
    moments: Vec<Vec<Moments>>,
    norms: Vec<Norm>,
    combinations: Vec<Combination>,
    means: Vec<Vec<f32>>,
    /// Whether each value's gradient already has a contribution.
    has_gradient: Vec<bool>,
    pending: Vec<Pending>,
    sums: Losses,
    value_errors: Vec<f32>,
}

/// Weight gradient of one use, computed alongside the next phase.
struct Pending {
    weights: WeightSums,
    /// Slots of the input and of the output gradient.
    slots: [usize; 2],
}

/// One work item of a thread.
enum Work<'a> {
    Positions(Part<'a>, &'a mut Results),
    Weights(GradientPart<'a>),
}

impl Graph {
    /// Runs rows of a batch forward and backward with the packed parameters `[P]`. The largest micro-batch of the
    /// step has `largest` rows; every other one has the same number or one less.
    #[expect(clippy::too_many_arguments, reason = "a pass reads parameters and targets and changes the rest")]
    pub(crate) fn pass(
        &self,
        workshop: &mut Workshop,
        parameters: &[f32],
        targets: &Targets<'_>,
        rows: Range<usize>,
        largest: usize,
        changes: &mut Changes<'_>,
        forward_ended: &mut dyn FnMut(),
    ) -> Losses {
        workshop.store.hold(largest, self.board);
        let floats = self.values.iter().map(|value| value.size).max().unwrap_or(0);
        let mut pass = Pass {
            graph: self,
            parameters,
            targets,
            first_row: rows.start,
            largest,
            parts: Parts::new(rows.len(), rows_of_parts(self.path), floats),
            slots: vec![Buffer::EMPTY; 2 * self.values.len()],
            moments: vec![Vec::new(); self.norms.len()],
            norms: self.norms.iter().map(|norm| self.unmeasured(norm)).collect(),
            combinations: vec![Combination::default(); self.norms.len()],
            means: vec![Vec::new(); self.centres.len()],
            has_gradient: vec![false; self.values.len()],
            pending: Vec::new(),
            sums: Losses::ZERO,
            value_errors: Vec::new(),
        };
        for phase in 0..self.phases.len() {
            pass.forward(workshop, phase, changes.statistics);
        }
        forward_ended();
        for phase in (0..self.phases.len()).rev() {
            pass.backward(workshop, phase, changes.gradient);
        }
        pass.compute_pending(workshop, changes.gradient);
        pass.slots.into_iter().for_each(|buffer| workshop.store.give(buffer));
        changes.value_errors.copy_from_slice(&pass.value_errors);
        pass.sums
    }
}

impl Graph {
    /// Returns a norm before the batch is measured.
    fn unmeasured(&self, norm: &super::operation::Norm) -> Norm {
        match norm.phase {
            Some(_) => Norm::default(),
            None => Norm::identity(self.layers.convolutions[norm.convolution].weights.shape.outputs),
        }
    }
}

impl<'a> Pass<'a> {
    fn forward(&mut self, workshop: &mut Workshop, phase: usize, statistics: &mut [f32]) {
        let graph = self.graph;
        let schedule = &graph.phases[phase].forward;
        for (centre, [x, _]) in centred(graph, schedule) {
            self.means[centre] = self.mean(&graph.centres[centre], x.0, |[x, _]| x.0);
        }
        let results = self.run(workshop, schedule, |part, node| part.forward(&graph.nodes[node].operation));
        for (norm, moments) in results.into_iter().flat_map(|results| results.moments) {
            self.moments[norm].push(moments);
        }
        for (index, norm) in graph.norms.iter().enumerate().filter(|(_, norm)| norm.phase == Some(phase)) {
            let convolution = &graph.layers.convolutions[norm.convolution];
            let moments = std::mem::take(&mut self.moments[index]);
            self.norms[index] = convolution.norm(&moments, self.parameters);
            convolution.update(&self.norms[index], statistics);
        }
        self.give(workshop, &graph.phases[phase].dropped);
    }

    /// Recomputes the dropped values that this phase of the backward pass is the first to read. Norms keep the
    /// statistics of the forward pass.
    fn recompute(&mut self, workshop: &mut Workshop, phase: usize, gradient: &mut [f32]) {
        let graph = self.graph;
        let schedule = &graph.phases[phase].recomputed;
        if schedule.nodes.is_empty() {
            return;
        }
        self.run(workshop, schedule, |part, node| part.forward(&graph.nodes[node].operation));
        self.add_computed(workshop, gradient);
    }

    fn backward(&mut self, workshop: &mut Workshop, phase: usize, gradient: &mut [f32]) {
        let graph = self.graph;
        self.recompute(workshop, phase, gradient);
        let schedule = &graph.phases[phase].backward;
        for (centre, [_, y]) in centred(graph, schedule) {
            self.means[centre] = self.mean(&graph.centres[centre], graph.gradient(y), |[_, y]| graph.gradient(y));
        }
        let results = self.run(workshop, schedule, |part, node| part.backward(node));
        self.add_computed(workshop, gradient);
        let mut of_norms: Vec<Vec<GradientSums>> = vec![Vec::new(); graph.norms.len()];
        for Results { sums, tables, losses, value_errors, .. } in results {
            self.sums += losses;
            self.value_errors.extend(value_errors);
            for (node, of_table) in tables {
                let Operation::Attend { attention, .. } = graph.nodes[node].operation else {
                    unreachable!("attention has a table")
                };
                add(&mut gradient[graph.layers.attentions[attention].table()], &of_table);
            }
            for (node, sums) in sums {
                match &graph.nodes[node].operation {
                    Operation::Dense(dense) => {
                        let layer = &graph.layers.dense[dense.layer];
                        add(&mut gradient[layer.scale.clone()], &sums.scale);
                        add(&mut gradient[layer.shift.clone()], &sums.shift);
                    }
                    Operation::Normalise(normalised) => {
                        let norm = &graph.layers.position_norms[normalised.norm];
                        add(&mut gradient[norm.scale.clone()], &sums.scale);
                        add(&mut gradient[norm.shift.clone()], &sums.shift);
                    }
                    Operation::Activate(activated) => of_norms[activated.norm].push(sums),
                    _ => unreachable!("norms have sums"),
                }
            }
        }
        for (index, sums) in of_norms.iter().enumerate().filter(|(_, sums)| !sums.is_empty()) {
            let convolution = &graph.layers.convolutions[graph.norms[index].convolution];
            self.combinations[index] = convolution.combination(&self.norms[index], sums, gradient);
        }
        for &node in &schedule.nodes {
            let inputs = graph.nodes[node].operation.inputs().into_iter();
            inputs.for_each(|input| self.has_gradient[input.0] |= graph.values[input.0].has_gradient);
            self.add_pending(workshop, node, gradient);
        }
        self.give(workshop, &graph.phases[phase].released);
    }

    /// Returns the memory of slots to the store.
    fn give(&mut self, workshop: &mut Workshop, slots: &[usize]) {
        for &slot in slots {
            workshop.store.give(std::mem::take(&mut self.slots[slot]));
        }
    }

    /// Adds the weight gradients computed alongside the last phase.
    fn add_computed(&mut self, workshop: &mut Workshop, gradient: &mut [f32]) {
        for Pending { weights, .. } in self.pending.drain(..) {
            weights.add(gradient, &mut workshop.threads, &mut workshop.store);
        }
    }

    /// Computes the operations of a schedule, and the pending weight gradients alongside.
    fn run(
        &mut self,
        workshop: &mut Workshop,
        schedule: &Schedule,
        compute: impl Fn(&mut Part<'_>, usize) + Sync,
    ) -> Vec<Results> {
        let (graph, rows) = (self.graph, self.parts.positions());
        let mut written: Vec<Buffer> = Vec::with_capacity(schedule.written.len());
        for &slot in &schedule.written {
            let buffer = std::mem::take(&mut self.slots[slot]);
            let is_new = buffer.is_empty();
            let floats = graph.floats(slot);
            written.push(if is_new { workshop.store.take(rows * floats, self.largest * floats) } else { buffer });
        }
        let sizes = schedule.written.iter().map(|&slot| graph.floats(slot));
        let mut split: Vec<_> =
            written.iter_mut().zip(sizes).map(|(buffer, size)| self.parts.split(buffer, size).into_iter()).collect();
        let context = Context {
            graph,
            parameters: self.parameters,
            targets: self.targets,
            first_row: self.first_row,
            schedule,
            slots: &self.slots,
            norms: &self.norms,
            combinations: &self.combinations,
            means: &self.means,
        };
        let mut results: Vec<Results> = self.parts.iter().map(|_| Results::default()).collect();
        let parts = self.parts.iter().zip(&mut results).map(|(positions, results)| {
            let own = split.iter_mut().filter_map(Iterator::next).collect();
            let has_gradient = self.has_gradient.clone();
            let part = Part { context: &context, positions, own, has_gradient, results: Results::default() };
            Work::Positions(part, results)
        });
        let parts: Vec<Work<'_>> = parts.collect();
        let weights = self.pending.iter_mut().flat_map(|pending| pending.parts(graph, &self.slots)).map(Work::Weights);
        workshop.threads.each(weights.chain(parts).collect(), |work| match work {
            Work::Positions(mut part, results) => {
                schedule.nodes.iter().for_each(|&node| compute(&mut part, node));
                *results = part.results;
            }
            Work::Weights(part) => part.compute(),
        });
        for (&slot, buffer) in schedule.written.iter().zip(written) {
            self.slots[slot] = buffer;
        }
        results
    }

    /// Adds the bias gradients of an operation, and queues the weight gradients.
    fn add_pending(&mut self, workshop: &mut Workshop, node: usize, gradient: &mut [f32]) {
        let (graph, rows) = (self.graph, self.parts.positions());
        for WeightUse { weights, biased, x, y } in graph.weights_of(node) {
            if let Some(matrix) = biased {
                matrix.add_bias_gradient(&self.slots[graph.gradient(y)], gradient);
            }
            if let Some(mut exact) = workshop.exact.take() {
                let mut sums = WeightSums::new(weights, rows, self.largest, Path::widest(), &mut workshop.store);
                let [x, of_y] = [x.0, graph.gradient(y)]
                    .map(|slot| Operand { buffer: &self.slots[slot], format: graph.format(slot) });
                let parts = sums.parts(x, of_y);
                workshop.threads.each(parts, GradientPart::compute);
                sums.add(&mut exact, &mut workshop.threads, &mut workshop.store);
                workshop.exact = Some(exact);
            }
            let weights = WeightSums::new(weights, rows, self.largest, weights.path, &mut workshop.store);
            self.pending.push(Pending { weights, slots: [x.0, graph.gradient(y)] });
        }
    }

    /// Computes the remaining weight gradients.
    fn compute_pending(&mut self, workshop: &mut Workshop, gradient: &mut [f32]) {
        let graph = self.graph;
        let rest = self.pending.iter_mut().flat_map(|pending| pending.parts(graph, &self.slots)).collect();
        workshop.threads.each(rest, GradientPart::compute);
        self.add_computed(workshop, gradient);
    }

    /// Returns the mean row over the slots of all `pairs`, each of the same size as `slot`.
    fn mean(&self, pairs: &[[Value; 2]], slot: usize, of_pair: impl Fn([Value; 2]) -> usize) -> Vec<f32> {
        let size = self.graph.size(slot);
        let mut sums = vec![0.0_f64; size];
        for row in pairs.iter().flat_map(|&pair| self.slots[of_pair(pair)].chunks_exact(size)) {
            sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += f64::from(*number));
        }
        let rows = (pairs.len() * self.parts.positions()) as f64;
        sums.into_iter().map(|sum| (sum / rows) as f32).collect()
    }
}

impl Pending {
    fn parts<'a>(&'a mut self, graph: &Graph, slots: &'a [Buffer]) -> Vec<GradientPart<'a>> {
        let [x, of_y] = self.slots.map(|slot| Operand { buffer: &slots[slot], format: graph.format(slot) });
        self.weights.parts(x, of_y)
    }
}

/// Returns the centred values of a schedule.
fn centred<'a>(graph: &'a Graph, schedule: &'a Schedule) -> impl Iterator<Item = (usize, [Value; 2])> + 'a {
    schedule.nodes.iter().filter_map(|&node| match graph.nodes[node].operation {
        Operation::Centre { centre, x, y } if graph.centres[centre][0] == [x, y] => Some((centre, [x, y])),
        _ => None,
    })
}

fn add(to: &mut [f32], numbers: &[f32]) {
    to.iter_mut().zip(numbers).for_each(|(to, number)| *to += number);
}
