use inference::Unroll;
use network::{MEMORY_UNITS, VALUE_HIDDEN};

use super::pool::{Memory, Pool};
use super::rows::write;
use crate::KernelVariant;
use crate::folded::Dense;
use crate::multiplier::Multiplier;
use crate::planes::{Board, Layout, Planes};
use crate::product::{GROUP, Output, Product, Run};

/// The groups of the hidden units of the reward head, after which those of the memory come.
const HIDDEN_GROUPS: usize = VALUE_HIDDEN / GROUP;

/// The LSTM between the hidden units and the output of a reward head that predicts value prefixes; its formula stands
/// with [`LatentLayers`](network::LatentLayers). Its matrix is a product in the format of the path, the rest float32.
#[derive(Debug)]
pub(crate) struct Gates {
    /// Hidden units and h, `[128]`, to sums `[4 · 64]`.
    pub(crate) product: Product,
}

/// The buffers of a thread.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Hidden units and h of each row, a cell being a row.
    inputs: Planes,
    /// `[rows, 256]`.
    sums: Vec<f32>,
    /// The memories of the next states.
    next: Vec<Memory>,
}

/// The memory of a network that predicts value prefixes, and its buffers; `None` for one that predicts rewards.
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

    /// Takes steps whose rows `runs` have their hidden units in the [inputs](Buffers::inputs_mut), and writes h to the
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
    /// The hidden units of each row, to be replaced: the first 64 channels.
    pub(crate) fn inputs_mut(&mut self) -> &mut Planes {
        &mut self.inputs
    }

    /// The memory that follows the step of a row, but for its prefix and steps, which are those of before.
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
