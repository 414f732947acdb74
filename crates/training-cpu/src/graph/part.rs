use std::cell::RefCell;
use std::ops::Range;

use training::Losses;

use super::schedule::Schedule;
use super::{Graph, Value};
use crate::buffer::Buffer;
use crate::losses::Targets;
use crate::norm::{Combination, GradientSums, Moments, Norm};
use crate::stored::{Format, Stored, StoredMut};

thread_local! {
    /// Scratch: a contribution to a gradient that already has one.
    static MORE: RefCell<Buffer> = const { RefCell::new(Buffer::EMPTY) };
    /// Scratch: the contribution and the gradient as float32.
    static WIDENED: RefCell<[Vec<f32>; 2]> = const { RefCell::new([const { Vec::new() }; 2]) };
}

/// Shared inputs of all parts in a phase.
pub(super) struct Context<'a> {
    pub(super) graph: &'a Graph,
    pub(super) parameters: &'a [f32],
    pub(super) targets: &'a Targets<'a>,
    /// First row of the micro-batch.
    pub(super) first_row: usize,
    pub(super) schedule: &'a Schedule,
    /// All slots except the slots being written.
    pub(super) slots: &'a [Buffer],
    pub(super) norms: &'a [Norm],
    pub(super) combinations: &'a [Combination],
    /// Batch means of centred values or of their gradients.
    pub(super) means: &'a [Vec<f32>],
}

/// A range of positions with the slots to write.
pub(super) struct Part<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) positions: Range<usize>,
    /// Written slots, in schedule order.
    pub(super) own: Vec<&'a mut [f32]>,
    /// Whether each value's gradient already has a contribution.
    pub(super) has_gradient: Vec<bool>,
    pub(super) results: Results,
}

/// Contributions of a part to statistics and sums.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) moments: Vec<(usize, Moments)>,
    /// Gradient sums of norms, by node.
    pub(super) sums: Vec<(usize, GradientSums)>,
    /// Gradients of attention tables, by node.
    pub(super) tables: Vec<(usize, Vec<f32>)>,
    pub(super) losses: Losses,
    /// Value errors of the roots, in order.
    pub(super) value_errors: Vec<f32>,
}

impl<'a> Part<'a> {
    /// Returns the numbers of a value stored as float32.
    pub(super) fn read(&self, value: Value) -> &[f32] {
        self.stored(value).floats()
    }

    /// Returns the gradient of a value stored as float32.
    pub(super) fn read_gradient(&self, value: Value) -> &[f32] {
        self.stored_gradient(value).floats()
    }

    /// Returns the stored numbers of a value.
    pub(super) fn stored(&self, value: Value) -> Stored<'_> {
        self.slot(value.0)
    }

    /// Returns the stored gradient of a value.
    pub(super) fn stored_gradient(&self, value: Value) -> Stored<'_> {
        self.slot(self.context.graph.gradient(value))
    }

    fn slot(&self, slot: usize) -> Stored<'_> {
        let graph = self.context.graph;
        let memory = match self.context.schedule.places[slot] {
            Some(place) => &*self.own[place],
            None => {
                let floats = graph.floats(slot);
                &self.context.slots[slot][self.positions.start * floats..self.positions.end * floats]
            }
        };
        Stored::new(graph.format(slot), memory)
    }

    /// Iterates over position ranges for operations on float32: single positions if any of `values` is bfloat16, so
    /// that copies stay in the first-level cache, otherwise all positions at once.
    pub(super) fn ranges(&self, values: &[Option<Value>]) -> impl Iterator<Item = Range<usize>> + use<> {
        let is_bf16 = |value: Value| self.context.graph.format(value.0) == Format::Bf16;
        let positions = self.positions.len();
        let step = if values.iter().flatten().copied().any(is_bf16) { 1 } else { positions };
        (0..positions).step_by(step.max(1)).map(move |first| first..(first + step).min(positions))
    }

    /// Takes the numbers of a value for writing.
    pub(super) fn take(&mut self, value: Value) -> &'a mut [f32] {
        self.take_slot(value.0)
    }

    pub(super) fn put(&mut self, value: Value, numbers: &'a mut [f32]) {
        self.put_slot(value.0, numbers);
    }

    /// Lets `write` write the numbers of a value.
    pub(super) fn write(&mut self, value: Value, write: impl FnOnce(&Self, &mut [f32])) {
        let numbers = self.take(value);
        write(self, numbers);
        self.put(value, numbers);
    }

    /// Takes the gradient of a value for writing.
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

    /// Returns whether an input needs a gradient.
    pub(super) fn needs_gradient(&self, value: Value) -> bool {
        self.context.graph.values[value.0].has_gradient
    }

    /// Returns the numbers of a value at `positions`.
    pub(super) fn some<'b>(&self, numbers: Stored<'b>, value: Value, positions: &Range<usize>) -> Stored<'b> {
        let size = self.context.graph.size(value.0);
        numbers.slice(positions.start * size..positions.end * size)
    }

    /// Returns the numbers of a taken value at `positions`, for writing.
    pub(super) fn some_mut<'b>(&self, memory: &'b mut [f32], value: Value, positions: &Range<usize>) -> StoredMut<'b> {
        let graph = self.context.graph;
        let floats = graph.floats(value.0);
        StoredMut::new(graph.format(value.0), &mut memory[positions.start * floats..positions.end * floats])
    }

    /// Adds the output of `write` to the gradient of an input, if the input needs one. The gradient is stored as
    /// float32.
    pub(super) fn add_gradient(&mut self, value: Value, write: impl FnOnce(&Self, &mut [f32])) {
        self.add_stored_gradient(value, |part, to| write(part, to.floats()));
    }

    /// Adds the output of `write` to the gradient of an input, if the input needs one.
    pub(super) fn add_stored_gradient(&mut self, value: Value, write: impl FnOnce(&Self, StoredMut<'_>)) {
        if !self.needs_gradient(value) {
            return;
        }
        let (path, format) = (self.context.graph.path, self.context.graph.format(value.0));
        let gradient = self.take_gradient(value);
        if std::mem::replace(&mut self.has_gradient[value.0], true) {
            MORE.with_borrow_mut(|more| {
                more.grow(gradient.len());
                let more = &mut more[..gradient.len()];
                more.fill(0.0);
                write(self, StoredMut::new(format, more));
                WIDENED.with_borrow_mut(|[sums, added]| {
                    let added = Stored::new(format, more).widened(path, added);
                    StoredMut::new(format, gradient).change(path, sums, |gradient| {
                        gradient.iter_mut().zip(added).for_each(|(gradient, more)| *gradient += more);
                    });
                });
            });
        } else {
            write(self, StoredMut::new(format, gradient));
        }
        self.put_gradient(value, gradient);
    }
}
