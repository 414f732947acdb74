use inference::Unroll;
use network::{MEMORY_UNITS, VALUE_HIDDEN};

use super::pool::{Memory, Pool};
use super::rows::write;
use crate::KernelVariant;
use crate::folded::Dense;
use crate::multiplier::Multiplier;
use crate::planes::{Board, Layout, Planes};
use crate::product::{GROUP, Output, Product, Run};

/// Groups of the reward head's hidden units; the groups of the memory follow.
const HIDDEN_GROUPS: usize = VALUE_HIDDEN / GROUP;

/// LSTM between the hidden units and the output of a reward head with value prefixes, as defined in
/// [`LatentLayers`](network::LatentLayers). The matrix is a product in the format of the path, the rest float32.
#[derive(Debug)]
pub(crate) struct Gates {
    /// Hidden units and h, `[128]`, to sums `[4 · 64]`.
    pub(crate) product: Product,
}

/// Buffers of a thread.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Hidden units and h by row; a cell is a row.
    inputs: Planes,
    /// `[rows, 256]`.
    sums: Vec<f32>,
    /// Memories of the next states.
    next: Vec<Memory>,
}

/// LSTM of a network with value prefixes, with buffers; `None` for a network that predicts rewards.
pub(crate) type Remembering<'a> = Option<(&'a Gates, &'a mut Buffers)>;

impl Gates {
    pub(crate) fn new(path: KernelVariant, memory: &Dense) -> Self {
        Self { product: Product::over_cells(path.packing(), memory, Board::new(1, 1), 0) }
    }

    pub(crate) fn buffers(&self, path: KernelVariant, pass: usize) -> Buffers {
        let layout = Layout::apart(Board::new(1, pass), 1);
        Buffers {
            inputs: Planes::new(path.packing().format, layout, VALUE_HIDDEN + MEMORY_UNITS),
            sums: vec![0.0; pass * self.product.padded_outputs()],
            next: vec![Memory::EMPTY; pass],
        }
    }

    /// Takes steps with the hidden units of the rows `runs` in the [inputs](Buffers::inputs_mut), and writes h to the
    /// same rows of `hidden`.
    pub(crate) fn compute(
        &self,
        multiplier: &Multiplier,
        buffers: &mut Buffers,
        steps: &[Unroll],
        pool: &Pool,
        runs: &[Run],
        hidden: &mut Planes,
    ) {
        let Buffers { inputs, sums, next, .. } = buffers;
        for (row, step) in steps.iter().enumerate() {
            next[row] = pool.memory(step.from);
            write_units(inputs, row, HIDDEN_GROUPS, &next[row].output);
        }
        multiplier.multiply(&self.product, inputs, runs, Output::Matrix { values: sums, relu: false }, None);
        multiplier.remember(sums, self.product.padded_outputs(), &mut next[..steps.len()]);
        for (row, memory) in next.iter().take(steps.len()).enumerate() {
            write_units(hidden, row, 0, &memory.output);
        }
    }
}

impl Buffers {
    /// Returns the hidden units of each row, for writing: the first 64 channels.
    pub(crate) fn inputs_mut(&mut self) -> &mut Planes {
        &mut self.inputs
    }

    /// Returns the memory after the step of a row, with prefix and step count still from before the step.
    pub(crate) fn next(&self, row: usize) -> Memory {
        self.next[row]
    }
}

/// Writes 64 numbers to the channels of a row from group `first` on.
pub(crate) fn write_units(planes: &mut Planes, row: usize, first: usize, units: &[f32]) {
    let (line, block_lines, format) = (planes.index(0, 0, 0) + row, planes.layout.block_lines, planes.format);
    for (group, units) in units.as_chunks::<GROUP>().0.iter().enumerate() {
        write(format, &mut planes.lines[line..], block_lines, first + group, units);
    }
}
