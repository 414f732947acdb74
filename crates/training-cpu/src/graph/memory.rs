//! Memory of a pass, known in advance: buffers are taken and given back in the order of the schedule.

use super::Graph;
use super::schedule::Schedule;
use crate::Path;
use crate::buffer::{PlannedBuffer, PlannedStore};
use crate::matrix::Weights;
use crate::weight_sums::WeightSums;

/// Planned buffers of a pass.
struct Plan<'a> {
    graph: &'a Graph,
    positions: usize,
    /// Whether weight gradients are computed in float32 too.
    checks_layers: bool,
    store: PlannedStore,
    slots: Vec<PlannedBuffer>,
    pending: Vec<PlannedBuffer>,
}

impl Graph {
    /// Returns the bytes that passes take from a store: activations, activation gradients, and weight-gradient sums.
    /// The largest pass has `positions` positions; with `checks_layers` weight gradients are computed in float32 too.
    pub(crate) fn activation_bytes(&self, positions: usize, checks_layers: bool) -> usize {
        let slots = vec![PlannedBuffer::default(); 2 * self.values.len()];
        let (store, pending) = (PlannedStore::default(), Vec::new());
        let mut plan = Plan { graph: self, positions, checks_layers, store, slots, pending };
        for phase in &self.phases {
            plan.write(&phase.forward);
            plan.give(&phase.dropped);
        }
        for phase in self.phases.iter().rev() {
            if !phase.recomputed.nodes.is_empty() {
                plan.write(&phase.recomputed);
                plan.add_computed();
            }
            plan.write(&phase.backward);
            plan.add_computed();
            phase.backward.nodes.iter().for_each(|&node| plan.pend(node));
            plan.give(&phase.released);
        }
        plan.store.bytes()
    }

    /// Returns the bytes of the packed weights of a step.
    pub(crate) fn packed_bytes(&self) -> usize {
        self.layers.weights().map(Weights::packed_bytes).sum()
    }
}

impl Plan<'_> {
    fn write(&mut self, schedule: &Schedule) {
        for &slot in &schedule.written {
            if self.slots[slot] == PlannedBuffer::default() {
                self.slots[slot] = self.store.take(self.positions * self.graph.floats(slot));
            }
        }
    }

    fn give(&mut self, slots: &[usize]) {
        slots.iter().for_each(|&slot| self.store.give(std::mem::take(&mut self.slots[slot])));
    }

    fn pend(&mut self, node: usize) {
        for used in self.graph.weights_of(node) {
            if self.checks_layers {
                let exact = self.store.take(WeightSums::capacity(used.weights, self.positions, Path::widest()));
                self.store.give(exact);
            }
            let capacity = WeightSums::capacity(used.weights, self.positions, used.weights.path);
            self.pending.push(self.store.take(capacity));
        }
    }

    fn add_computed(&mut self) {
        self.pending.drain(..).for_each(|buffer| self.store.give(buffer));
    }
}
