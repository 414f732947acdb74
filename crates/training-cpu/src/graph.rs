//! A network unrolled over several steps, as a graph of operations on per-position values.
//!
//! A layer may be used several times: each use is an operation with separate values, and the weight gradients add up.
//! Operations are computed in phases, with a barrier between phases: only batch statistics need all positions. Within
//! a phase each thread computes every operation for a few positions at a time, so that intermediate values stay in
//! cache. Weight gradients are computed alongside the next phase of the backward pass.
//!
//! With recomputation only the outputs of block segments are kept. The inside of a segment is recomputed before the
//! segment is differentiated, with the norm statistics of the forward pass, so that no second barrier is needed.
//!
//! A graph is built once (`build`) and scheduled (`schedule`); a `pass` runs it for a batch. Start with `operation`.

mod backward;
mod build;
mod formats;
mod forward;
mod layers;
mod memory;
mod operation;
mod part;
mod pass;
mod schedule;
mod weight_use;

use network::{Activation, Architecture};
use training::{Layout, Recompute};

use self::layers::LayerSet;
pub(crate) use self::operation::{Loss, Observation};
use self::operation::{Norm, Operation};
pub(crate) use self::pass::{Changes, Workshop};
use self::schedule::Phase;
use crate::Path;
use crate::stored::Format;
use crate::threads::Threads;

/// Handle of a value: `size` numbers per position, `[B, size]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value(usize);

/// Operations of the forward pass and the backward pass.
#[derive(Debug)]
pub(crate) struct Graph {
    path: Path,
    /// Height and width.
    board: [usize; 2],
    /// H · W.
    cells: usize,
    /// Activation function after batch norms.
    function: Activation,
    layers: LayerSet,
    values: Vec<Declared>,
    nodes: Vec<Node>,
    norms: Vec<Norm>,
    /// Input and output of each centring; the subtracted mean is over the batch and over all values of a group.
    centres: Vec<Vec<[Value; 2]>>,
    /// Whether newly added operations have a backward pass.
    is_differentiated: bool,
    recompute: Recompute,
    /// Segment of newly added operations, and the number of segments so far.
    segment: Option<usize>,
    segments: usize,
    /// Earliest phase of newly added operations.
    floor: usize,
    phases: Vec<Phase>,
}

/// A value of the graph.
#[derive(Debug)]
struct Declared {
    /// Numbers per position.
    size: usize,
    /// Whether the backward pass needs the gradient.
    has_gradient: bool,
    /// Phase of the operation that computes the value.
    phase: usize,
    /// Operation that computes the value.
    node: usize,
    /// Storage format of the value and of the gradient.
    format: Format,
}

/// An operation with the phase that computes it.
#[derive(Debug)]
struct Node {
    operation: Operation,
    phase: usize,
    is_differentiated: bool,
    /// Segment of blocks around the operation, if segments are recomputed.
    segment: Option<usize>,
}

impl Graph {
    /// Creates an empty graph for a network with parameters in `layout`.
    pub(crate) fn new(layout: &Layout, architecture: &Architecture, path: Path, recompute: Recompute) -> Self {
        let &Architecture { height, width, design, .. } = architecture;
        Self {
            path,
            board: [height, width],
            cells: height * width,
            function: design.activation,
            layers: LayerSet::new(layout.clone(), [height, width], path),
            values: Vec::new(),
            nodes: Vec::new(),
            norms: Vec::new(),
            centres: Vec::new(),
            is_differentiated: true,
            recompute,
            segment: None,
            segments: 0,
            floor: 0,
            phases: Vec::new(),
        }
    }

    /// Returns the numbers per position in a slot. Values come first, then gradients in the same order.
    fn size(&self, slot: usize) -> usize {
        self.values[slot % self.values.len()].size
    }

    /// Returns the storage format of a slot.
    fn format(&self, slot: usize) -> Format {
        self.values[slot % self.values.len()].format
    }

    /// Returns the float32 units that a position takes in a slot.
    fn floats(&self, slot: usize) -> usize {
        self.format(slot).floats(self.size(slot))
    }

    /// Returns the slot of a value's gradient.
    fn gradient(&self, value: Value) -> usize {
        self.values.len() + value.0
    }

    /// Switches the weights at these parameter ranges to float32 products.
    pub(crate) fn multiply_in_float32(&mut self, places: &[std::ops::Range<usize>]) {
        self.layers.multiply_in_float32(places);
        self.choose_formats();
    }

    /// Packs the parameters `[P]` for a step.
    pub(crate) fn pack(&mut self, parameters: &[f32], threads: &mut Threads) {
        self.layers.pack(parameters, threads);
    }
}
