use super::operation::{self, Activated};
use super::{Graph, Node, Operation, Value};

/// The operations between two barriers, in both directions.
#[derive(Debug, Default)]
pub(super) struct Phase {
    pub(super) forward: Schedule,
    pub(super) backward: Schedule,
    /// Slots that are not needed after this phase of the backward pass and the gradients of weights beside it.
    pub(super) released: Vec<usize>,
}

/// Operations in their order, and the slots that they write.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    pub(super) nodes: Vec<usize>,
    pub(super) written: Vec<usize>,
    /// The index of each slot among those that are written.
    pub(super) places: Vec<Option<usize>>,
}

impl Graph {
    /// Decides when each operation is computed. Nothing is added afterwards.
    pub(crate) fn schedule(&mut self) {
        let phases = self.nodes.iter().map(|node| node.phase + 1).max().unwrap_or(0);
        self.phases = (0..phases).map(|_| Phase::default()).collect();
        self.schedule_forward();
        self.schedule_backward();
        let slots = 2 * self.values.len();
        for phase in &mut self.phases {
            for schedule in [&mut phase.forward, &mut phase.backward] {
                schedule.written.sort_unstable();
                schedule.written.dedup();
                schedule.places = vec![None; slots];
                for (place, &slot) in schedule.written.iter().enumerate() {
                    schedule.places[slot] = Some(place);
                }
            }
        }
    }

    fn schedule_forward(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            // A loss is computed with its gradient.
            let schedule = &mut self.phases[node.phase].forward;
            if !matches!(node.operation, Operation::Loss(_)) {
                schedule.nodes.push(index);
                schedule.written.extend(node.operation.outputs().iter().map(|value| value.0));
            }
        }
    }

    fn schedule_backward(&mut self) {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&index| (self.backward_phase(index), index));
        let mut has_gradient = vec![false; self.values.len()];
        let mut last = vec![self.phases.len(); self.values.len()];
        for index in order.into_iter().rev() {
            let (phase, Node { operation, is_differentiated, .. }) = (self.backward_phase(index), &self.nodes[index]);
            let is_loss = matches!(operation, Operation::Loss(_));
            let leads_to_loss = is_loss || operation.results().iter().any(|value| has_gradient[value.0]);
            if !(*is_differentiated && leads_to_loss) {
                continue;
            }
            let inputs = operation.inputs().into_iter().filter(|input| self.values[input.0].has_gradient);
            // The gradient of the input of a norm is computed with its convolution.
            let is_norm = matches!(operation, Operation::Activate(_));
            let changed: Vec<Value> = inputs.filter(|_| !is_norm).chain(operation.changed()).collect();
            let used = operation.outputs().into_iter().chain(operation.inputs()).chain(operation.read_besides());
            for value in used.chain(operation.results()).chain(changed.iter().copied()) {
                last[value.0] = last[value.0].min(phase);
            }
            let mut written: Vec<usize> = changed.iter().map(|&value| self.gradient(value)).collect();
            changed.iter().for_each(|value| has_gradient[value.0] = true);
            if let Operation::Activate(Activated { kept, .. }) = operation {
                written.extend(operation::forward(kept).map(|value| value.0));
            }
            let schedule = &mut self.phases[phase].backward;
            schedule.nodes.push(index);
            schedule.written.extend(written);
        }
        for (value, last) in last.into_iter().enumerate() {
            // Gradients of weights are computed a phase later.
            if let Some(phase) = last.checked_sub(1).and_then(|phase| self.phases.get_mut(phase)) {
                phase.released.extend([value, self.values.len() + value]);
            }
        }
    }

    fn backward_phase(&self, index: usize) -> usize {
        let node = &self.nodes[index];
        node.phase - usize::from(node.operation.waits_for_the_batch())
    }
}
