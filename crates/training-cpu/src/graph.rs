//! A network, unrolled over some steps, as a graph of operations on the numbers of each position.
//!
//! A layer may be used several times: each use is an operation with values of its own, and the gradients of its weights
//! add up. Operations are computed in phases, between which threads wait for each other: only statistics over the batch
//! need all positions. Within a phase threads compute every operation for a few positions at a time, so that what these
//! read and write stays in their caches; gradients of weights are computed beside the next phase of the backward pass.
//!
//! Where a graph recomputes, only the outputs of segments of blocks are kept; what is within them is computed again
//! before a segment is differentiated, with the statistics of its norms, which need no second barrier.
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

/// Some numbers of each position, `[B, size]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value(usize);

/// The operations of a forward pass and of the backward pass.
#[derive(Debug)]
pub(crate) struct Graph {
    path: Path,
    /// Height and width.
    board: [usize; 2],
    /// H · W.
    cells: usize,
    /// The function behind batch norms.
    function: Activation,
    layers: LayerSet,
    values: Vec<Declared>,
    nodes: Vec<Node>,
    norms: Vec<Norm>,
    /// Values from which the mean over the batch and all of them is subtracted, and the differences.
    centres: Vec<Vec<[Value; 2]>>,
    /// Whether operations that are added have a backward pass.
    is_differentiated: bool,
    recompute: Recompute,
    /// The segment of operations that are added, and the number of segments so far.
    segment: Option<usize>,
    segments: usize,
    /// The phase in which operations that are added are computed at the earliest.
    floor: usize,
    phases: Vec<Phase>,
}

/// A value of the graph.
#[derive(Debug)]
struct Declared {
    /// Numbers of a position.
    size: usize,
    /// Whether its gradient is of use.
    has_gradient: bool,
    /// The phase that computes it.
    phase: usize,
    /// The operation that computes it.
    node: usize,
    /// How it and its gradient lie in memory.
    format: Format,
}

/// An operation and when it is computed.
#[derive(Debug)]
struct Node {
    operation: Operation,
    phase: usize,
    is_differentiated: bool,
    /// The segment of blocks that it belongs to, if these are computed again.
    segment: Option<usize>,
}

impl Graph {
    /// A graph without operations, for a network whose parameters lie in `layout`.
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

    /// The numbers of a position in a slot: those of a value, or of its gradient behind all values.
    fn size(&self, slot: usize) -> usize {
        self.values[slot % self.values.len()].size
    }

    /// How the numbers of a slot lie in memory.
    fn format(&self, slot: usize) -> Format {
        self.values[slot % self.values.len()].format
    }

    /// The float32 that a position takes in a slot.
    fn floats(&self, slot: usize) -> usize {
        self.format(slot).floats(self.size(slot))
    }

    /// The slot of the gradient of a value.
    fn gradient(&self, value: Value) -> usize {
        self.values.len() + value.0
    }

    /// Has the weights at these places among the parameters multiply in float32.
    pub(crate) fn multiply_in_float32(&mut self, places: &[std::ops::Range<usize>]) {
        self.layers.multiply_in_float32(places);
        self.choose_formats();
    }

    /// Packs the parameters `[P]` for a step.
    pub(crate) fn pack(&mut self, parameters: &[f32], threads: &mut Threads) {
        self.layers.pack(parameters, threads);
    }
}
