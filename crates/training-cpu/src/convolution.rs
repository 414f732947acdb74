//! Convolutions and input gradients as products of activation rows and packed weights.
//!
//! A tile is the same cell of a few positions times a panel of output channels; the sums stay in registers over all
//! taps and input channels. Taps beyond the board are the same for all rows of a tile and are left out.

use std::cell::RefCell;
use std::ops::Range;

use crate::Path;
use crate::buffer::Buffer;
use crate::elements::{self, Pair};
use crate::shape::{CellPair, Shape, evenly};
use crate::vector::{Formats, PANEL_MAX, REGISTERS, Task, Vector, for_rows};

/// Weights of a convolution in the multiplication order of a path:
/// `[panels][taps][elements of inputs][outputs of panel]`.
#[derive(Debug)]
pub(crate) struct Packed {
    shape: Shape,
    path: Path,
    /// Inputs per element.
    factors: usize,
    /// Elements per cell for the inputs.
    elements: usize,
    panels: Vec<Panel>,
    pairs: Vec<Vec<CellPair>>,
    weights: Buffer,
}

thread_local! {
    /// Scratch: elements of inputs or weights, where an element is not a plain number.
    static ELEMENTS: RefCell<Buffer> = const { RefCell::new(Buffer::EMPTY) };
}

/// A range of adjacent output channels.
#[derive(Debug, Clone)]
struct Panel {
    outputs: Range<usize>,
    registers: usize,
    /// Start of the panel's weights.
    first: usize,
}

impl Packed {
    /// Allocates packed weights of zero.
    pub(crate) fn new(shape: Shape, path: Path) -> Self {
        let (shape, width) = (shape.flattened(), path.run(Width));
        let factors = elements::factors(path);
        let elements = shape.inputs.div_ceil(factors);
        let mut panels = Vec::new();
        let (mut output, mut first) = (0, 0);
        while output < shape.outputs {
            let registers = if shape.outputs - output > width { REGISTERS } else { 1 };
            let end = shape.outputs.min(output + registers * width);
            panels.push(Panel { outputs: output..end, registers, first });
            first += shape.taps() * elements * registers * width;
            output = end;
        }
        Self { shape, path, factors, elements, panels, pairs: shape.pairs(), weights: Buffer::zeros(first) }
    }

    /// Returns the shape, with the cells of a 1×1 convolution as positions.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the bytes of the packed weights.
    pub(crate) fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Packs weights `[out, taps, in]`.
    pub(crate) fn pack(&mut self, weights: &[f32]) {
        let &mut Self { shape, path, factors, elements, .. } = self;
        if factors == 1 {
            self.arrange(weights);
            return;
        }
        ELEMENTS.with_borrow_mut(|of_weights| {
            let len = shape.outputs * shape.taps() * elements;
            of_weights.grow(len);
            path.run(Pair { channels: shape.inputs, values: weights, elements: &mut of_weights[..len] });
            self.arrange(of_weights);
        });
    }

    /// Arranges elements of weights `[out, taps, elements of inputs]` in panel order.
    fn arrange(&mut self, weights: &[f32]) {
        let (rows, width) = (self.shape.taps() * self.elements, self.path.run(Width));
        for panel in &self.panels {
            let lanes = panel.registers * width;
            let all = &mut self.weights[panel.first..][..rows * lanes];
            for (row, to) in all.chunks_exact_mut(lanes).enumerate() {
                let of_outputs = weights[panel.outputs.start * rows + row..].iter().step_by(rows);
                to[..panel.outputs.len()].iter_mut().zip(of_outputs).for_each(|(to, element)| *to = *element);
            }
        }
    }

    /// Writes `y` `[B, H, W, out]` from `x` `[B, H, W, in]`; `bias` is `[out]`.
    ///
    /// # Panics
    /// If lengths do not fit.
    pub(crate) fn convolve(&self, x: &[f32], bias: Option<&[f32]>, y: &mut [f32]) {
        let positions = self.positions(x.len());
        assert_eq!(y.len(), positions * self.shape.cells() * self.shape.outputs, "outputs of {:?}", self.shape);
        assert!(bias.is_none_or(|bias| bias.len() == self.shape.outputs), "a bias for each output");
        if self.factors == 1 {
            self.path.run(Convolve { packed: self, positions, x, bias, y });
            return;
        }
        ELEMENTS.with_borrow_mut(|of_x| {
            let len = positions * self.shape.cells() * self.elements;
            of_x.grow(len);
            self.path.run(Pair { channels: self.shape.inputs, values: x, elements: &mut of_x[..len] });
            self.path.run(Convolve { packed: self, positions, x: of_x, bias, y });
        });
    }

    fn positions(&self, len: usize) -> usize {
        let position = self.shape.cells() * self.shape.inputs;
        assert!(len.is_multiple_of(position), "inputs of {:?}", self.shape);
        len / position
    }
}

/// Returns the maximum rows of a path's tile.
pub(crate) fn rows_max(path: Path) -> usize {
    path.run(RowsMax)
}

struct RowsMax;

impl Task for RowsMax {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> usize {
        V::ROWS_MAX
    }
}

/// Floats per register.
struct Width;

impl Task for Width {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> usize {
        const { assert!(V::WIDTH * REGISTERS <= PANEL_MAX, "a panel fits") };
        V::WIDTH
    }
}

struct Convolve<'a> {
    packed: &'a Packed,
    positions: usize,
    /// Input elements.
    x: &'a [f32],
    bias: Option<&'a [f32]>,
    y: &'a mut [f32],
}

impl Task for Convolve<'_> {
    const FORMATS: Formats = Formats::Elements;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { packed, positions, x, bias, y } = self;
        let (elements, Shape { outputs, .. }) = (packed.elements, packed.shape);
        let cells = packed.shape.cells();
        for panel in &packed.panels {
            let mut start = [0.0; PANEL_MAX];
            if let Some(bias) = bias {
                start[..panel.outputs.len()].copy_from_slice(&bias[panel.outputs.clone()]);
            }
            let start = start.as_ptr();
            let weights = packed.weights[panel.first..].as_ptr();
            for rows in evenly(positions, V::ROWS_MAX) {
                for (cell, pairs) in packed.pairs.iter().enumerate() {
                    let stride = [cells * elements, cells * outputs];
                    let x = x[rows.start * stride[0]..].as_ptr();
                    let to = rows.start * stride[1] + cell * outputs + panel.outputs.start;
                    let y = Rows { first: y[to..].as_mut_ptr(), stride: stride[1], valid: panel.outputs.len() };
                    let products = Products { x, stride: stride[0], pairs, elements, weights, start };
                    // SAFETY: lengths were checked by `convolve`; a tile reads and writes rows of its positions alone,
                    // and the weights of its panel.
                    unsafe { tile_of::<V>(rows.len(), panel.registers, &products, y) };
                }
            }
        }
    }
}

/// Inputs of a tile's products.
struct Products<'a> {
    /// First position.
    x: *const f32,
    /// Elements between positions.
    stride: usize,
    pairs: &'a [CellPair],
    /// Elements per cell for the inputs.
    elements: usize,
    /// Weights of the panel.
    weights: *const f32,
    /// Initial sums, one per lane of the panel.
    start: *const f32,
}

/// Destination of a tile.
#[derive(Clone, Copy)]
struct Rows {
    first: *mut f32,
    /// Floats between rows.
    stride: usize,
    /// Floats per row.
    valid: usize,
}

/// Computes a tile of up to 14 rows.
///
/// # Safety
/// The CPU must have the path's instructions; pointers must be valid for the rows, the pairs and the panel.
#[inline(always)]
unsafe fn tile_of<V: Vector>(rows: usize, registers: usize, products: &Products<'_>, to: Rows) {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { for_rows!(rows, registers, tile::<V>(products, to)) }
}

/// # Safety
/// The conditions of [`tile_of`] apply.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll, and spills the sums")]
unsafe fn tile<V: Vector, const ROWS: usize, const REGISTERS: usize>(products: &Products<'_>, to: Rows) {
    let &Products { x, stride, pairs, elements, weights, start } = products;
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let mut first = [V::zero(); REGISTERS];
        for register in 0..REGISTERS {
            first[register] = V::load(start.add(register * V::WIDTH));
        }
        let mut sums = [first; ROWS];
        for pair in pairs {
            let mut weights = weights.add(pair.tap * elements * REGISTERS * V::WIDTH);
            let mut x = x.add(pair.cell * elements);
            for _ in 0..elements {
                let mut of_input = [V::zero(); REGISTERS];
                for register in 0..REGISTERS {
                    of_input[register] = V::load(weights.add(register * V::WIDTH));
                }
                for row in 0..ROWS {
                    let x = V::broadcast(x.add(row * stride));
                    for register in 0..REGISTERS {
                        sums[row][register] = V::multiply(sums[row][register], x, of_input[register]);
                    }
                }
                weights = weights.add(REGISTERS * V::WIDTH);
                x = x.add(1);
            }
        }
        for row in 0..ROWS {
            let to_row = to.first.add(row * to.stride);
            if to.valid == REGISTERS * V::WIDTH {
                for register in 0..REGISTERS {
                    V::store(sums[row][register], to_row.add(register * V::WIDTH));
                }
            } else {
                let mut lanes = [0.0; PANEL_MAX];
                for register in 0..REGISTERS {
                    V::store(sums[row][register], lanes.as_mut_ptr().add(register * V::WIDTH));
                }
                to_row.copy_from_nonoverlapping(lanes.as_ptr(), to.valid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use training::Precision;

    use super::Packed;
    use crate::Path;
    use crate::buffer::Buffer;
    use crate::filtering::Filtered;
    use crate::matrix::{GradientPart, Kernel};
    use crate::shape::Shape;
    use crate::stored::{Format, Operand, Stored, StoredMut};

    /// Boards and channels with whole and partial registers, and batches with whole and partial tiles.
    const SHAPES: [(usize, Shape); 15] = [
        (1, Shape { side: 3, height: 1, width: 1, inputs: 1, outputs: 1 }),
        (7, Shape { side: 3, height: 1, width: 5, inputs: 3, outputs: 5 }),
        (13, Shape { side: 3, height: 6, width: 7, inputs: 16, outputs: 24 }),
        (2, Shape { side: 3, height: 19, width: 19, inputs: 5, outputs: 33 }),
        (15, Shape { side: 3, height: 2, width: 2, inputs: 40, outputs: 17 }),
        (6, Shape { side: 3, height: 3, width: 3, inputs: 33, outputs: 64 }),
        (5, Shape { side: 1, height: 3, width: 4, inputs: 19, outputs: 32 }),
        (300, Shape { side: 1, height: 1, width: 1, inputs: 70, outputs: 7 }),
        (1, Shape { side: 1, height: 1, width: 1, inputs: 1, outputs: 3 }),
        // Channels that suit matrix tiles.
        (35, Shape { side: 3, height: 6, width: 7, inputs: 32, outputs: 64 }),
        (16, Shape { side: 3, height: 1, width: 1, inputs: 64, outputs: 32 }),
        (97, Shape { side: 3, height: 2, width: 5, inputs: 32, outputs: 32 }),
        (3, Shape { side: 3, height: 19, width: 19, inputs: 96, outputs: 32 }),
        (41, Shape { side: 1, height: 3, width: 9, inputs: 64, outputs: 32 }),
        (600, Shape { side: 1, height: 1, width: 1, inputs: 32, outputs: 64 }),
    ];

    /// Draws random numbers that a path multiplies without rounding them first.
    fn draw(rng: &mut ChaCha8Rng, len: usize, path: Path) -> Buffer {
        let mut values = Buffer::zeros(len);
        for value in &mut *values {
            let drawn: f32 = rng.random_range(-1.0..1.0);
            *value = match path.precision() {
                Precision::F32 => drawn,
                Precision::Bf16 | Precision::F16 => bf16::from_f32(drawn).to_f32(),
            };
        }
        values
    }

    /// Calls `product` for every product of the convolution, with the indices of `y`, weight and `x`.
    fn products(positions: usize, shape: Shape, mut product: impl FnMut(usize, usize, usize)) {
        let Shape { inputs, outputs, .. } = shape;
        for position in 0..positions {
            for (cell, pairs) in shape.pairs().iter().enumerate() {
                for (pair, output) in pairs.iter().flat_map(|pair| (0..outputs).map(move |output| (pair, output))) {
                    for input in 0..inputs {
                        let y = (position * shape.cells() + cell) * outputs + output;
                        let x = (position * shape.cells() + pair.cell) * inputs + input;
                        product(y, (output * shape.taps() + pair.tap) * inputs + input, x);
                    }
                }
            }
        }
    }

    fn assert_close(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
        let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
        let apart = square(&mut got.iter().zip(expected).map(|(got, expected)| f64::from(*got) - expected));
        let error = (apart / square(&mut expected.iter().copied())).sqrt();
        assert!(got.len() == expected.len() && error < tolerance, "{what}: relative error {error}");
    }

    /// Returns the paths of this CPU; prints a line for each missing path.
    #[expect(clippy::disallowed_macros, reason = "a test says what it leaves out")]
    fn paths() -> impl Iterator<Item = Path> {
        Path::ALL.into_iter().filter(|path| {
            let is_available = path.is_available();
            if !is_available {
                println!("skipped: this CPU lacks {path}");
            }
            is_available
        })
    }

    /// Relative error of long float32 sums.
    const SUMS: f64 = 5e-6;

    type New = fn(Shape, Path) -> Kernel;

    fn operand(buffer: &Buffer) -> Operand<'_> {
        Operand { buffer, format: Format::F32 }
    }

    fn kernels() -> [(&'static str, New); 3] {
        [
            ("the one for the shape", Kernel::new),
            ("direct", |shape, path| Kernel::Direct(Packed::new(shape, path))),
            ("filtered", |shape, path| Kernel::Filtered(Filtered::new(shape, path))),
        ]
    }

    #[test]
    fn outputs_and_both_gradients_agree_with_float64_on_every_path() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (path, (positions, shape)) in paths().flat_map(|path| SHAPES.map(|shape| (path, shape))) {
            let [of_x, of_y] = [shape.inputs, shape.outputs].map(|channels| positions * shape.cells() * channels);
            let of_weights = shape.outputs * shape.taps() * shape.inputs;
            let [x, weights, gradient, bias] =
                [of_x, of_weights, of_y, shape.outputs].map(|len| draw(&mut rng, len, path));
            let mut expected = [vec![0.0; of_y], vec![0.0; of_x], vec![0.0; of_weights]];
            products(positions, shape, |y, weight, input| {
                expected[0][y] += f64::from(weights[weight]) * f64::from(x[input]);
                expected[1][input] += f64::from(weights[weight]) * f64::from(gradient[y]);
                expected[2][weight] += f64::from(x[input]) * f64::from(gradient[y]);
            });

            for (name, kernel) in kernels() {
                // Values at points are sums, which are rounded to bfloat16.
                let is_rounded = name == "filtered" && path.precision() == Precision::Bf16;
                let is_line = shape.height.min(shape.width) == 1;
                if name == "filtered" && shape.side == 1 || is_rounded && is_line {
                    continue;
                }
                let what = format!("{name}, {shape:?}, {path}");
                let tolerance = if is_rounded { 2e-2 } else { SUMS };
                let mut y = vec![f32::NAN; of_y];
                let mut packed = kernel(shape, path);
                packed.pack(&weights);
                packed.convolve(Stored::F32(&x), None, StoredMut::F32(&mut y));
                assert_close(&format!("outputs, {what}"), &y, &expected[0], tolerance);

                let mut input = vec![f32::NAN; of_x];
                let mut packed = kernel(shape.transposed(), path);
                packed.pack_transposed(&weights);
                packed.convolve(Stored::F32(&gradient), None, StoredMut::F32(&mut input));
                assert_close(&format!("input gradient, {what}"), &input, &expected[1], tolerance);

                let mut weight = vec![0.0; of_weights];
                let flat = if shape.side == 1 { positions * shape.cells() } else { positions };
                let of_weight = kernel(shape, path).gradient(flat, path);
                let mut sums = vec![f32::NAN; of_weight.sums()];
                of_weight.parts(operand(&x), operand(&gradient), &mut sums).into_iter().for_each(GradientPart::compute);
                let (first, second) = weight.split_at_mut(of_weights / shape.outputs);
                of_weight.add(&sums, 0..1, first);
                of_weight.add(&sums, 1..shape.outputs, second);
                assert_close(&format!("weight gradient, {what}"), &weight, &expected[2], tolerance);
            }
            let mut y = vec![f32::NAN; of_y];
            let mut packed = Packed::new(shape, path);
            packed.pack(&weights);
            packed.convolve(&x, Some(&bias), &mut y);
            expected[0].iter_mut().enumerate().for_each(|(index, y)| *y += f64::from(bias[index % shape.outputs]));
            assert_close(&format!("outputs with bias of {shape:?}, {path}"), &y, &expected[0], SUMS);
        }
    }
}
