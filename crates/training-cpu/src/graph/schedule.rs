use super::operation::{self, Activated};
use super::{Graph, Node, Operation, Value};

/// Operations between two barriers, in both directions.
#[derive(Debug, Default)]
pub(super) struct Phase {
    pub(super) forward: Schedule,
    /// Slots not needed after this phase of the forward pass: the backward pass does not read them, or recomputes
    /// them.
    pub(super) dropped: Vec<usize>,
    /// Segment operations to recompute before this phase of the backward pass.
    pub(super) recomputed: Schedule,
    pub(super) backward: Schedule,
    /// Slots not needed after this phase of the backward pass and the weight gradients alongside.
    pub(super) released: Vec<usize>,
}

/// Operations in order, with the slots that they write.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    pub(super) nodes: Vec<usize>,
    pub(super) written: Vec<usize>,
    /// Index of each slot within `written`.
    pub(super) places: Vec<Option<usize>>,
}

impl Graph {
    /// Schedules every operation. Nothing may be added afterwards.
    pub(crate) fn schedule(&mut self) {
        self.choose_formats();
        let phases = self.nodes.iter().map(|node| node.phase + 1).max().unwrap_or(0);
        self.phases = (0..phases).map(|_| Phase::default()).collect();
        self.schedule_forward();
        let is_read = self.schedule_backward();
        let is_recomputed = self.schedule_recomputation();
        self.drop_values(&is_read, &is_recomputed);
        let slots = 2 * self.values.len();
        for phase in &mut self.phases {
            for schedule in [&mut phase.forward, &mut phase.recomputed, &mut phase.backward] {
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
            // A loss is computed together with the gradient.
            let schedule = &mut self.phases[node.phase].forward;
            if !matches!(node.operation, Operation::Loss(_)) {
                schedule.nodes.push(index);
                schedule.written.extend(node.operation.outputs().iter().map(|value| value.0));
            }
        }
    }

    /// Returns whether the backward pass reads each value.
    fn schedule_backward(&mut self) -> Vec<bool> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&index| (self.backward_phase(index), index));
        let mut has_gradient = vec![false; self.values.len()];
        let mut last = vec![self.phases.len(); 2 * self.values.len()];
        for index in order.into_iter().rev() {
            let (phase, Node { operation, is_differentiated, .. }) = (self.backward_phase(index), &self.nodes[index]);
            let is_loss = matches!(operation, Operation::Loss(_));
            let leads_to_loss = is_loss || operation.results().iter().any(|value| has_gradient[value.0]);
            if !(*is_differentiated && leads_to_loss) {
                continue;
            }
            let inputs = operation.inputs().into_iter().filter(|input| self.values[input.0].has_gradient);
            // The gradient of a norm's input is computed with the convolution.
            let is_norm = matches!(operation, Operation::Activate(_));
            let changed: Vec<Value> = inputs.filter(|_| !is_norm).chain(operation.changed()).collect();
            let of_gradients = operation.results().into_iter().chain(operation.read_besides());
            let gradients = of_gradients.chain(changed.iter().copied()).map(|value| self.gradient(value));
            for slot in operation.read_backward().iter().map(|value| value.0).chain(gradients) {
                last[slot] = last[slot].min(phase);
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
        for (slot, &last) in last.iter().enumerate() {
            // Weight gradients are computed a phase later.
            if let Some(phase) = last.checked_sub(1).filter(|_| last < self.phases.len()) {
                self.phases[phase].released.push(slot);
            }
        }
        last[..self.values.len()].iter().map(|&last| last < self.phases.len()).collect()
    }

    /// Schedules the recomputation of segment operations with results that only the same segment reads, before the
    /// first phase of the backward pass that may read them. Returns whether each value is recomputed.
    fn schedule_recomputation(&mut self) -> Vec<bool> {
        let mut is_recomputed = vec![false; self.values.len()];
        let mut is_read_elsewhere = vec![false; self.values.len()];
        for Node { operation, segment, .. } in &self.nodes {
            for value in operation.read_forward() {
                is_read_elsewhere[value.0] |= self.nodes[self.values[value.0].node].segment != *segment;
            }
        }
        let mut first = vec![0; self.segments];
        for (phase, node) in self
            .phases
            .iter()
            .enumerate()
            .flat_map(|(phase, of)| of.backward.nodes.iter().map(move |&node| (phase, node)))
        {
            if let Some(segment) = self.nodes[node].segment {
                first[segment] = phase.max(first[segment]);
            }
        }
        for (index, Node { operation, segment, is_differentiated, .. }) in self.nodes.iter().enumerate() {
            let Some(segment) = segment.filter(|_| *is_differentiated) else { continue };
            let outputs = operation.outputs();
            if outputs.iter().any(|value| is_read_elsewhere[value.0]) {
                continue;
            }
            outputs.iter().for_each(|value| is_recomputed[value.0] = true);
            let schedule = &mut self.phases[first[segment]].recomputed;
            schedule.nodes.push(index);
            schedule.written.extend(outputs.iter().map(|value| value.0));
        }
        is_recomputed
    }

    /// Drops values after the last forward use if the backward pass does not read them from then on.
    fn drop_values(&mut self, is_read: &[bool], is_recomputed: &[bool]) {
        let mut last: Vec<usize> = self.values.iter().map(|value| value.phase).collect();
        for Node { operation, phase, .. } in &self.nodes {
            for value in operation.read_forward() {
                last[value.0] = last[value.0].max(*phase);
            }
        }
        for (value, last) in last.into_iter().enumerate() {
            if !is_read[value] || is_recomputed[value] {
                self.phases[last].dropped.push(value);
            }
        }
    }

    fn backward_phase(&self, index: usize) -> usize {
        let node = &self.nodes[index];
        node.phase - usize::from(node.operation.waits_for_the_batch())
    }
}
