use std::cell::RefCell;
use std::ops::Range;

use super::schedule::Schedule;
use super::{Graph, Value};
use crate::buffer::Buffer;
use crate::losses::{Sums, Targets};
use crate::norm::{Combination, GradientSums, Moments, Norm};

thread_local! {
    /// A contribution to a gradient that was begun.
    static MORE: RefCell<Buffer> = const { RefCell::new(Buffer::EMPTY) };
}

/// What all parts of the positions read in a phase.
pub(super) struct Context<'a> {
    pub(super) graph: &'a Graph,
    pub(super) parameters: &'a [f32],
    pub(super) targets: &'a Targets<'a>,
    /// The first row of the micro-batch.
    pub(super) first_row: usize,
    pub(super) schedule: &'a Schedule,
    /// All slots but those that are written.
    pub(super) slots: &'a [Buffer],
    pub(super) norms: &'a [Norm],
    pub(super) combinations: &'a [Combination],
    /// The means over the batch of values, or of their gradients, that are centred.
    pub(super) means: &'a [Vec<f32>],
}

/// Some positions, and the slots that they write.
pub(super) struct Part<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) positions: Range<usize>,
    /// In the order of the schedule.
    pub(super) own: Vec<&'a mut [f32]>,
    /// Whether the gradient of each value was begun.
    pub(super) has_gradient: Vec<bool>,
    pub(super) results: Results,
}

/// What the positions of a part add to statistics and sums.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) moments: Vec<(usize, Moments)>,
    /// Of the norms of nodes.
    pub(super) sums: Vec<(usize, GradientSums)>,
    /// The gradients of the tables of attention of nodes.
    pub(super) tables: Vec<(usize, Vec<f32>)>,
    pub(super) losses: Sums,
    /// Of the roots, in order.
    pub(super) value_errors: Vec<f32>,
}

impl<'a> Part<'a> {
    /// The numbers of a value.
    pub(super) fn read(&self, value: Value) -> &[f32] {
        self.slot(value.0)
    }

    /// The gradient of a value.
    pub(super) fn read_gradient(&self, value: Value) -> &[f32] {
        self.slot(self.context.graph.gradient(value))
    }

    fn slot(&self, slot: usize) -> &[f32] {
        match self.context.schedule.places[slot] {
            Some(place) => self.own[place],
            None => {
                let size = self.context.graph.size(slot);
                &self.context.slots[slot][self.positions.start * size..self.positions.end * size]
            }
        }
    }

    /// Takes the numbers of a value, which are written.
    pub(super) fn take(&mut self, value: Value) -> &'a mut [f32] {
        self.take_slot(value.0)
    }

    pub(super) fn put(&mut self, value: Value, numbers: &'a mut [f32]) {
        self.put_slot(value.0, numbers);
    }

    /// Takes the gradient of a value, which is written.
    pub(super) fn take_gradient(&mut self, value: Value) -> &'a mut [f32] {
        self.take_slot(self.context.graph.gradient(value))
    }

    pub(super) fn put_gradient(&mut self, value: Value, numbers: &'a mut [f32]) {
        self.put_slot(self.context.graph.gradient(value), numbers);
    }

    fn take_slot(&mut self, slot: usize) -> &'a mut [f32] {
        let place = self.context.schedule.places[slot].expect("the schedule lists what is written");
        std::mem::take(&mut self.own[place])
    }

    fn put_slot(&mut self, slot: usize, numbers: &'a mut [f32]) {
        let place = self.context.schedule.places[slot].expect("the schedule lists what is written");
        self.own[place] = numbers;
    }

    /// Returns whether the gradient of an input is needed.
    pub(super) fn needs_gradient(&self, value: Value) -> bool {
        self.context.graph.values[value.0].has_gradient
    }

    /// Adds to the gradient of an input what `write` writes, if it is needed.
    pub(super) fn add_gradient(&mut self, value: Value, write: impl FnOnce(&Self, &mut [f32])) {
        if !self.needs_gradient(value) {
            return;
        }
        let gradient = self.take_gradient(value);
        if std::mem::replace(&mut self.has_gradient[value.0], true) {
            MORE.with_borrow_mut(|more| {
                more.grow(gradient.len());
                let more = &mut more[..gradient.len()];
                more.fill(0.0);
                write(self, more);
                gradient.iter_mut().zip(&*more).for_each(|(gradient, more)| *gradient += more);
            });
        } else {
            write(self, gradient);
        }
        self.put_gradient(value, gradient);
    }
}
