//! AMX: the batch is what is summed over. For each pair of a cell and its neighbour under a tap, a tile of sixteen
//! outputs by thirty-two positions times a tile of thirty-two positions by sixteen inputs is added to sixteen by
//! sixteen sums. Pairs that fall off the board are left out, which on a small one is a fifth of them, and a shift by a
//! tap is just another tile.
//!
//! Both operands are packed into tiles first, by blocks of thirty-two positions and by bands of rows, so that what is
//! multiplied comes from the second-level cache. Sums wait in memory from band to band.

mod packing;
mod tiles;

use half::bf16;

use self::packing::{Source, pack_gradient, pack_input};
use self::tiles::{GROUP, Tile, Unit};
use super::{SIDE, Shape, TAPS, on_board};

/// Positions of a tile.
const BLOCK: usize = 32;
/// Rows, and 32-bit columns, of a tile: channels.
const LANES: usize = 16;
/// Tiles of outputs that are multiplied together; one alone remains of an odd number.
const TOGETHER: usize = 2;
/// Tiles of packed operands that the second-level cache, of 2 MiB, holds beside the sums that come and go.
const CACHED: usize = 1280;

/// Returns whether the CPU has the instructions and the system permits their use.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && cpu::grants_amx()
}

/// The operands of a band of rows of a block of positions, and all sums.
#[derive(Debug)]
pub(super) struct Workspace {
    /// `[slot, tile of inputs, W]`; row y of the board is in slot y modulo their number.
    inputs: Vec<Tile>,
    /// `[row of the band, pair of tiles of outputs, W, 2]`, the last pair being one tile if their number is odd.
    gradients: Vec<Tile>,
    /// `[pair of tiles of outputs, tile of inputs, ky]` of groups `[2, kx]`.
    sums: Vec<[Tile; GROUP]>,
}

/// The blocks of a shape.
#[derive(Debug, Clone, Copy)]
struct Plan {
    shape: Shape,
    input_tiles: usize,
    output_tiles: usize,
    /// Rows of a band.
    rows: usize,
    /// Rows of the input that are kept: those of a band and one to each side, or the whole board.
    slots: usize,
}

impl Plan {
    fn new(shape: Shape) -> Self {
        let (input_tiles, output_tiles) = (shape.inputs.div_ceil(LANES), shape.outputs.div_ceil(LANES));
        let fits = (CACHED / shape.width).saturating_sub(2 * input_tiles) / (input_tiles + output_tiles);
        // With a single row, moving sums costs more than what the cache then lacks room for.
        let most = fits.max(2).min(shape.height);
        // Bands of much the same height.
        let rows = shape.height.div_ceil(shape.height.div_ceil(most));
        Self { shape, input_tiles, output_tiles, rows, slots: (rows + 2).min(shape.height) }
    }

    fn output_pairs(self) -> usize {
        self.output_tiles.div_ceil(TOGETHER)
    }
}

impl Workspace {
    /// # Panics
    /// If the path is not available.
    pub(super) fn new() -> Self {
        assert!(is_available(), "no AMX");
        Self { inputs: Vec::new(), gradients: Vec::new(), sums: Vec::new() }
    }

    /// Lengths fit the shape.
    pub(super) fn compute(&mut self, shape: Shape, input: &[bf16], gradient: &[bf16], weights: &mut [f32]) {
        let plan = Plan::new(shape);
        self.inputs.resize(plan.slots * plan.input_tiles * shape.width, Tile::ZERO);
        self.gradients.resize(plan.rows * plan.output_tiles * shape.width, Tile::ZERO);
        self.sums.resize(plan.output_pairs() * plan.input_tiles * SIDE, [Tile::ZERO; GROUP]);
        let mut unit = Unit::new();
        let mut is_first = true;
        for first in (0..shape.positions).step_by(BLOCK) {
            let mut packed = 0;
            for top in (0..shape.height).step_by(plan.rows) {
                let band = top..(top + plan.rows).min(shape.height);
                let needed = (band.end + 1).min(shape.height);
                (packed..needed).for_each(|y| self.pack_input(plan, input, first, y));
                packed = needed;
                band.clone().for_each(|y| self.pack_gradient(plan, gradient, first, y));
                self.multiply(plan, &mut unit, band, is_first);
                is_first = false;
            }
        }
        drop(unit);
        self.unpack(plan, weights);
    }

    /// Packs row y of the input, of the block that starts with position `first`.
    fn pack_input(&mut self, plan: Plan, input: &[bf16], first: usize, y: usize) {
        let len = plan.input_tiles * plan.shape.width;
        let source = Source::new(plan.shape, input, plan.shape.inputs, first, y);
        pack_input(&source, &mut self.inputs[y % plan.slots * len..][..len]);
    }

    /// Packs row y of the gradient, likewise.
    fn pack_gradient(&mut self, plan: Plan, gradient: &[bf16], first: usize, y: usize) {
        let len = plan.output_tiles * plan.shape.width;
        let source = Source::new(plan.shape, gradient, plan.shape.outputs, first, y);
        pack_gradient(&source, &mut self.gradients[y % plan.rows * len..][..len]);
    }

    /// Adds the products of a band of rows to the sums, or sets them.
    fn multiply(&mut self, plan: Plan, unit: &mut Unit, band: std::ops::Range<usize>, is_first: bool) {
        let Self { inputs, gradients, sums } = self;
        let width = plan.shape.width;
        let mut groups = sums.iter_mut();
        for first in (0..plan.output_tiles).step_by(TOGETHER) {
            let together = TOGETHER.min(plan.output_tiles - first);
            for input_tile in 0..plan.input_tiles {
                for (down, sums) in groups.by_ref().take(SIDE).enumerate() {
                    let seen = on_board(plan.shape.height, down);
                    if is_first {
                        unit.zero()
                    } else {
                        unit.load(sums)
                    }
                    for y in band.start.max(seen.start)..band.end.min(seen.end) {
                        let slot = (y + down - 1) % plan.slots;
                        let inputs = &inputs[(slot * plan.input_tiles + input_tile) * width..][..width];
                        let row = y % plan.rows * plan.output_tiles;
                        let gradients = &gradients[(row + first) * width..][..together * width];
                        unit.multiply_row(gradients, inputs);
                    }
                    unit.store(sums);
                }
            }
        }
    }

    /// Writes the sums as `[O, 3, 3, I]`.
    fn unpack(&self, plan: Plan, weights: &mut [f32]) {
        let Shape { inputs, outputs, .. } = plan.shape;
        for (index, group) in self.sums.iter().enumerate() {
            let (down, column) = (index % SIDE, index / SIDE % plan.input_tiles * LANES);
            let first = index / SIDE / plan.input_tiles * TOGETHER * LANES;
            let len = LANES.min(inputs - column);
            for output in first..(first + TOGETHER * LANES).min(outputs) {
                let (tile, row) = ((output - first) / LANES, (output - first) % LANES);
                for right in 0..SIDE {
                    let to = (output * TAPS + down * SIDE + right) * inputs + column;
                    let sums = group[tile * SIDE + right].row(row);
                    weights[to..][..len].copy_from_slice(&sums[..len]);
                }
            }
        }
    }
}
