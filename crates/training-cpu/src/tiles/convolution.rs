use std::arch::asm;
use std::cell::RefCell;

use half::bf16;

use super::{LANES, PAIRED, ROW_BYTES, TILE, Unit};
use crate::Path;
use crate::buffer::Buffer;
use crate::norm::Moments;
use crate::shape::Shape;
use crate::stored::{Stored, StoredMut};
use crate::vector::{Formats, Task, Vector};

/// Output tiles multiplied together.
const GROUPS: usize = 2;
/// Outputs per panel.
const PANEL: usize = GROUPS * LANES;
/// Maximum row tiles multiplied together: with two tiles of weights, seven loads serve six products.
const TOGETHER: usize = 3;
/// float32 sums computed together, `[tile of rows, 16, 32]`.
const SUMS: usize = TOGETHER * LANES * PANEL;

/// Weights of a convolution in multiplication order for tiles:
/// `[panels of 32 outputs][taps][blocks of 32 inputs][2 tiles of outputs][16 pairs of inputs][16 outputs]`.
#[derive(Debug)]
pub(crate) struct Tiled {
    shape: Shape,
    path: Path,
    classes: Vec<Class>,
    weights: Buffer,
}

/// Cells with the same on-board taps, which can therefore be multiplied together.
#[derive(Debug)]
struct Class {
    cells: Vec<usize>,
    taps: Vec<Tap>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tap {
    index: usize,
    /// Cells from the output to the input.
    distance: isize,
}

thread_local! {
    /// Scratch: rounded copies of float32 inputs.
    static NARROWED: RefCell<Vec<bf16>> = const { RefCell::new(Vec::new()) };
}

impl Tiled {
    /// Allocates packed weights of zero for a shape that [suits](super::suits) tiles.
    pub(crate) fn new(shape: Shape, path: Path) -> Self {
        debug_assert!(super::suits(shape, path), "{shape:?} on {path}");
        let shape = shape.flattened();
        let mut classes: Vec<Class> = Vec::new();
        for (cell, pairs) in shape.pairs().iter().enumerate() {
            let distance = |to: usize| to as isize - cell as isize;
            let taps: Vec<Tap> =
                pairs.iter().map(|pair| Tap { index: pair.tap, distance: distance(pair.cell) }).collect();
            match classes.iter_mut().find(|class| class.taps == taps) {
                Some(class) => class.cells.push(cell),
                None => classes.push(Class { cells: vec![cell], taps }),
            }
        }
        Self { shape, path, classes, weights: Buffer::zeros(shape.outputs * shape.taps() * shape.inputs / 2) }
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
        self.path.run(Pack { shape: self.shape, weights, packed: &mut self.weights });
    }

    /// Packs weights `[in, taps, out]` of the convolution to differentiate: this kernel computes the input gradient,
    /// with mirrored taps.
    pub(crate) fn pack_transposed(&mut self, weights: &[f32]) {
        self.path.run(PackTransposed { shape: self.shape, weights, packed: &mut self.weights });
    }

    /// Writes `y` `[B, H, W, out]` from `x` `[B, H, W, in]`; `bias` is `[out]`, for float32 outputs only.
    ///
    /// # Panics
    /// If lengths do not fit.
    pub(crate) fn convolve(&self, x: Stored<'_>, bias: Option<&[f32]>, y: StoredMut<'_>) {
        self.convolve_to(x, y, bias, None);
    }

    /// Writes `y` like [`convolve`](Self::convolve) and returns the moments of the outputs before rounding.
    pub(crate) fn convolve_measured(&self, x: Stored<'_>, y: StoredMut<'_>) -> Moments {
        let mut sums = Measured::zeros(self.shape.outputs);
        let rows = x.len() / self.shape.inputs;
        self.convolve_to(x, y, None, Some(&mut sums));
        Moments::of_sums(rows, &sums.sums, &sums.squares)
    }

    fn convolve_to(&self, x: Stored<'_>, y: StoredMut<'_>, bias: Option<&[f32]>, measured: Option<&mut Measured>) {
        let Shape { inputs, outputs, .. } = self.shape;
        let cells = self.shape.cells();
        let positions = x.len() / (cells * inputs);
        assert_eq!(x.len(), positions * cells * inputs, "inputs of {:?}", self.shape);
        assert!(bias.is_none_or(|bias| bias.len() == outputs), "a bias for each output");
        NARROWED.with_borrow_mut(|room| {
            let x = x.narrowed(self.path, room);
            match y {
                StoredMut::Bf16(y) => {
                    assert_eq!(y.len(), positions * cells * outputs, "outputs of {:?}", self.shape);
                    match measured {
                        Some(measured) => {
                            let finish = IntoBf16::<true> { y, measured };
                            self.path.run(Convolve { tiled: self, positions, x, finish });
                        }
                        None => {
                            let finish = IntoBf16::<false> { y, measured: &mut Measured::zeros(0) };
                            self.path.run(Convolve { tiled: self, positions, x, finish });
                        }
                    }
                }
                StoredMut::F32(y) => {
                    assert_eq!(y.len(), positions * cells * outputs, "outputs of {:?}", self.shape);
                    debug_assert!(measured.is_none(), "outputs that are measured are bfloat16");
                    self.path.run(Convolve { tiled: self, positions, x, finish: IntoF32 { y, bias } });
                }
            }
        });
    }
}

struct Pack<'a> {
    shape: Shape,
    weights: &'a [f32],
    packed: &'a mut [f32],
}

impl Task for Pack<'_> {
    const FORMATS: Formats = Formats::Bf16;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { shape, weights, packed } = self;
        let blocks = shape.inputs / PAIRED;
        let mut pairs = [0.0; LANES];
        for (output, weights) in weights.chunks_exact(shape.taps() * shape.inputs).enumerate() {
            let panel = output / PANEL * shape.taps() * blocks * GROUPS * TILE;
            let first = panel + output % PANEL / LANES * TILE + output % LANES;
            for (index, weights) in weights.chunks_exact(PAIRED).enumerate() {
                // SAFETY: the caller fulfils the contract of this function; two registers are a row of a tile.
                unsafe {
                    let low = V::load(weights.as_ptr());
                    V::store(V::pair_adjacent(low, V::load(weights.as_ptr().add(LANES))), pairs.as_mut_ptr());
                }
                let to = packed[first + index * GROUPS * TILE..].iter_mut().step_by(LANES);
                to.zip(&pairs).for_each(|(to, pair)| *to = *pair);
            }
        }
    }
}

struct PackTransposed<'a> {
    shape: Shape,
    weights: &'a [f32],
    packed: &'a mut [f32],
}

impl Task for PackTransposed<'_> {
    const FORMATS: Formats = Formats::Bf16;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { shape, weights, packed } = self;
        let (taps, blocks, outputs) = (shape.taps(), shape.inputs / PAIRED, shape.outputs);
        for (index, row) in packed[..outputs * taps * shape.inputs / 2].chunks_exact_mut(LANES).enumerate() {
            let (pair, rest) = (index % LANES, index / LANES);
            let (group, rest) = (rest % GROUPS, rest / GROUPS);
            let (block, rest) = (rest % blocks, rest / blocks);
            let (tap, panel) = (rest % taps, rest / taps);
            let input = block * PAIRED + 2 * pair;
            let first = (input * taps + taps - 1 - tap) * outputs + panel * PANEL + group * LANES;
            let [first, second] = [first, first + taps * outputs].map(|first| &weights[first..][..LANES]);
            // SAFETY: the caller fulfils the contract of this function; each slice is a register.
            unsafe { V::store(V::pair_lanes(V::load(first.as_ptr()), V::load(second.as_ptr())), row.as_mut_ptr()) };
        }
    }
}

/// Sums and sums of squares of outputs, `[out]`.
struct Measured {
    sums: Vec<f32>,
    squares: Vec<f32>,
}

impl Measured {
    fn zeros(outputs: usize) -> Self {
        Self { sums: vec![0.0; outputs], squares: vec![0.0; outputs] }
    }
}

/// Final operations on sums.
trait Finish {
    /// State accumulated over the rows of a panel.
    type Panel<V: Vector>: Copy;

    /// Starts a panel of 32 outputs.
    unsafe fn begin<V: Vector>(&self, panel: usize) -> Self::Panel<V>;
    /// Finishes a row of 32 sums; `to` is the index of the first output in the tensor.
    unsafe fn row<V: Vector>(&mut self, panel: &mut Self::Panel<V>, sums: *const f32, to: usize);
    /// Ends a panel. Tiles of sixteen rows and a partial tile have separate panels.
    unsafe fn end<V: Vector>(&mut self, panel: usize, of_panel: Self::Panel<V>);
}

/// Rounds outputs and, if it `MEASURES`, accumulates sums and sums of squares.
struct IntoBf16<'a, const MEASURES: bool> {
    y: &'a mut [bf16],
    measured: &'a mut Measured,
}

impl<const MEASURES: bool> Finish for IntoBf16<'_, MEASURES> {
    type Panel<V: Vector> = [[V::Register; 2]; GROUPS];

    #[inline(always)]
    unsafe fn begin<V: Vector>(&self, _: usize) -> Self::Panel<V> {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { [[V::zero(); 2]; GROUPS] }
    }

    #[inline(always)]
    unsafe fn row<V: Vector>(&mut self, panel: &mut Self::Panel<V>, sums: *const f32, to: usize) {
        // SAFETY: the caller fulfils the contract of this function; a register of pairs holds a row, 32 bfloat16.
        unsafe {
            let outputs = [V::load(sums), V::load(sums.add(LANES))];
            V::store(V::pair_adjacent(outputs[0], outputs[1]), self.y.as_mut_ptr().add(to).cast());
            if MEASURES {
                for (output, [sum, squares]) in outputs.into_iter().zip(panel) {
                    *sum = V::add(*sum, output);
                    *squares = V::multiply_add(*squares, output, output);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn end<V: Vector>(&mut self, panel: usize, of_panel: Self::Panel<V>) {
        if MEASURES {
            for (group, [sum, squares]) in of_panel.into_iter().enumerate() {
                let outputs = panel * PANEL + group * LANES..panel * PANEL + (group + 1) * LANES;
                let Measured { sums, squares: of_squares } = &mut *self.measured;
                let [sums, of_squares] = [sums, of_squares].map(|of| of[outputs.clone()].as_mut_ptr());
                // SAFETY: the caller fulfils the contract of this function; a group of outputs is a register.
                unsafe {
                    V::store(V::add(V::load(sums), sum), sums);
                    V::store(V::add(V::load(of_squares), squares), of_squares);
                }
            }
        }
    }
}

/// Adds a bias if there is one.
struct IntoF32<'a> {
    y: &'a mut [f32],
    bias: Option<&'a [f32]>,
}

impl Finish for IntoF32<'_> {
    type Panel<V: Vector> = [V::Register; GROUPS];

    #[inline(always)]
    unsafe fn begin<V: Vector>(&self, panel: usize) -> Self::Panel<V> {
        // SAFETY: the caller fulfils the contract of this function; a panel of biases is two registers.
        unsafe {
            match self.bias {
                Some(bias) => {
                    let bias = &bias[panel * PANEL..][..PANEL];
                    [V::load(bias.as_ptr()), V::load(bias.as_ptr().add(LANES))]
                }
                None => [V::zero(); GROUPS],
            }
        }
    }

    #[inline(always)]
    unsafe fn row<V: Vector>(&mut self, panel: &mut Self::Panel<V>, sums: *const f32, to: usize) {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            let to = self.y.as_mut_ptr().add(to);
            V::store(V::add(V::load(sums), panel[0]), to);
            V::store(V::add(V::load(sums.add(LANES)), panel[1]), to.add(LANES));
        }
    }

    #[inline(always)]
    unsafe fn end<V: Vector>(&mut self, _: usize, _: Self::Panel<V>) {}
}

/// Place of a row tile: indices of the first row's first input and first output.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    x: usize,
    y: usize,
}

/// Stored sums that wait for the final operations while the next sums are computed: the matrix unit and the vector
/// unit work side by side.
struct Waiting {
    places: [Place; TOGETHER],
    count: usize,
    /// Index of the next rows, in units of [`FOUR`].
    next: usize,
}

/// Rows finished at once.
const FOUR: usize = 4;
/// Groups of [`FOUR`] rows in all tiles that are multiplied together.
const FOURS: usize = TOGETHER * LANES / FOUR;

struct Convolve<'a, F> {
    tiled: &'a Tiled,
    positions: usize,
    x: &'a [bf16],
    finish: F,
}

impl<F: Finish> Task for Convolve<'_, F> {
    const FORMATS: Formats = Formats::Bf16;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { tiled, positions, x, mut finish } = self;
        let shape = tiled.shape;
        let (cells, panels) = (shape.cells(), shape.outputs / PANEL);
        let whole = positions / LANES;
        let rest = positions % LANES;
        let mut places: Vec<Place> = Vec::new();
        for (tiles, rows) in [(0..whole, LANES), (whole..whole + 1, rest)] {
            if rows == 0 || tiles.is_empty() {
                continue;
            }
            let mut of_tiles = [LANES as u8; 8];
            // Tiles of sums and of rows; the last tile holds weights.
            of_tiles[..7].fill(rows as u8);
            of_tiles[WEIGHTS] = LANES as u8;
            // SAFETY: the path has tiles; places and lengths were checked by `convolve_to`: a row tile only reads and
            // writes cells of positions in the batch, and weights of the panel.
            unsafe {
                let _unit = Unit::new(of_tiles);
                for panel in 0..panels {
                    let mut kernel = Kernel::<V, F>::new(shape, rows, x, &tiled.weights, panel, &finish);
                    for class in &tiled.classes {
                        places.clear();
                        for tile in tiles.clone() {
                            let first = tile * LANES * cells;
                            let place = |cell: &usize| Place {
                                x: (first + cell) * shape.inputs,
                                y: (first + cell) * shape.outputs + panel * PANEL,
                            };
                            places.extend(class.cells.iter().map(place));
                        }
                        let mut left = &places[..];
                        while !left.is_empty() {
                            let (now, later) = left.split_at(together(left.len()));
                            left = later;
                            match *now {
                                [a, b, c] => kernel.tiles(&class.taps, [a, b, c], &mut finish),
                                [a, b] => kernel.tiles(&class.taps, [a, b], &mut finish),
                                [a] => kernel.tiles(&class.taps, [a], &mut finish),
                                _ => unreachable!("one to three tiles of rows"),
                            }
                        }
                    }
                    kernel.end(&mut finish);
                }
            }
        }
    }
}

/// Returns the number of tiles to take next: three, but twice two rather than three and a single last one, which
/// would have to wait for each product.
fn together(left: usize) -> usize {
    match left {
        2 | 4 => 2,
        more => more.min(TOGETHER),
    }
}

/// Index of the weight tile.
const WEIGHTS: usize = 7;

/// State of a panel.
struct Kernel<V: Vector, F: Finish> {
    x: *const bf16,
    /// Weights of the panel.
    weights: *const f32,
    inputs: usize,
    /// Bytes between input rows.
    stride: usize,
    /// Numbers between output rows.
    y_stride: usize,
    /// Rows of a tile.
    rows: usize,
    index: usize,
    of_panel: F::Panel<V>,
    waiting: Waiting,
    /// Sums being computed and waiting sums.
    sums: [Sums; 2],
    current: usize,
}

#[repr(C, align(64))]
struct Sums([f32; SUMS]);

impl<V: Vector, F: Finish> Kernel<V, F> {
    #[inline(always)]
    unsafe fn new(shape: Shape, rows: usize, x: &[bf16], weights: &Buffer, panel: usize, finish: &F) -> Self {
        let of_panel = shape.taps() * shape.inputs / PAIRED * GROUPS * TILE;
        Self {
            x: x.as_ptr(),
            weights: weights[panel * of_panel..].as_ptr(),
            inputs: shape.inputs,
            stride: shape.cells() * shape.inputs * size_of::<bf16>(),
            y_stride: shape.cells() * shape.outputs,
            rows,
            index: panel,
            // SAFETY: the caller fulfils the contract of this function.
            of_panel: unsafe { finish.begin::<V>(panel) },
            waiting: Waiting { places: [Place::default(); TOGETHER], count: 0, next: FOURS },
            sums: [const { Sums([0.0; SUMS]) }; 2],
            current: 0,
        }
    }

    /// Computes the sums of a few row tiles, and meanwhile finishes the waiting sums.
    #[inline(always)]
    unsafe fn tiles<const TILES: usize>(&mut self, taps: &[Tap], places: [Place; TILES], finish: &mut F) {
        let segments = taps.len() * self.inputs / PAIRED;
        let beside = FOURS.div_ceil((segments * 2 / 3).max(1));
        let settling = (segments / 3).min(SETTLING);
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            cpu::zero_sums();
            let mut segment = 0;
            for tap in taps {
                let rows = places.map(|place| self.x.add(place.x).offset(tap.distance * self.inputs as isize));
                let weights = self.weights.add(tap.index * self.inputs / PAIRED * GROUPS * TILE);
                for block in 0..self.inputs / PAIRED {
                    let rows = rows.map(|row| row.add(block * PAIRED));
                    multiply(rows, self.stride, weights.add(block * GROUPS * TILE));
                    if segment >= settling {
                        self.finish(beside, finish);
                    }
                    segment += 1;
                }
            }
            self.finish(FOURS, finish);
            self.waiting.places[..TILES].copy_from_slice(&places);
            self.waiting.count = TILES;
            self.waiting.next = 0;
            cpu::store_sums::<TILES>(self.sums[self.current].0.as_mut_ptr());
            self.current = 1 - self.current;
        }
    }

    /// Finishes up to four times `fours` rows of the waiting sums.
    #[inline(always)]
    unsafe fn finish(&mut self, fours: usize, finish: &mut F) {
        let sums = self.sums[1 - self.current].0.as_ptr();
        for _ in 0..fours {
            let (tile, first) = (self.waiting.next / (LANES / FOUR), self.waiting.next % (LANES / FOUR) * FOUR);
            if tile >= self.waiting.count {
                return;
            }
            self.waiting.next += 1;
            let to = self.waiting.places[tile].y;
            for row in first..self.rows.min(first + FOUR) {
                // SAFETY: the caller fulfils the contract of this function; the row is one of the tile's.
                unsafe {
                    let sums = sums.add((tile * LANES + row) * PANEL);
                    finish.row::<V>(&mut self.of_panel, sums, to + row * self.y_stride);
                }
            }
        }
    }

    /// Finishes all waiting sums.
    #[inline(always)]
    unsafe fn end(mut self, finish: &mut F) {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            self.finish(FOURS, finish);
            finish.end::<V>(self.index, self.of_panel);
        }
    }
}

/// Segments multiplied, if there are enough, before the waiting sums are finished: these cannot be read until they
/// have been stored, and instructions that wait for them would block products.
const SETTLING: usize = 4;

/// Adds to the sums `[tile of rows, tile of outputs]` the products over 32 inputs: one to three row tiles, with rows
/// `stride` bytes apart, times two weight tiles.
#[inline(always)]
unsafe fn multiply<const TILES: usize>(rows: [*const bf16; TILES], stride: usize, weights: *const f32) {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        match *rows.as_slice() {
            [first, second, third] => asm!(
                "tileloadd tmm7, [{weights} + {weight_stride}*1]",
                "tileloadd tmm6, [{first} + {stride}*1]",
                "tdpbf16ps tmm0, tmm6, tmm7",
                "tileloadd tmm6, [{second} + {stride}*1]",
                "tdpbf16ps tmm2, tmm6, tmm7",
                "tileloadd tmm6, [{third} + {stride}*1]",
                "tdpbf16ps tmm4, tmm6, tmm7",
                "tileloadd tmm7, [{weights} + {weight_stride}*1 + 1024]",
                "tdpbf16ps tmm5, tmm6, tmm7",
                "tileloadd tmm6, [{second} + {stride}*1]",
                "tdpbf16ps tmm3, tmm6, tmm7",
                "tileloadd tmm6, [{first} + {stride}*1]",
                "tdpbf16ps tmm1, tmm6, tmm7",
                first = in(reg) first,
                second = in(reg) second,
                third = in(reg) third,
                weights = in(reg) weights,
                stride = in(reg) stride,
                weight_stride = in(reg) ROW_BYTES,
                options(nostack, readonly),
            ),
            [first, second] => asm!(
                "tileloadd tmm4, [{first} + {stride}*1]",
                "tileloadd tmm7, [{weights} + {weight_stride}*1]",
                "tdpbf16ps tmm0, tmm4, tmm7",
                "tileloadd tmm5, [{second} + {stride}*1]",
                "tdpbf16ps tmm2, tmm5, tmm7",
                "tileloadd tmm7, [{weights} + {weight_stride}*1 + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm5, tmm7",
                first = in(reg) first,
                second = in(reg) second,
                weights = in(reg) weights,
                stride = in(reg) stride,
                weight_stride = in(reg) ROW_BYTES,
                options(nostack, readonly),
            ),
            [first] => asm!(
                "tileloadd tmm4, [{first} + {stride}*1]",
                "tileloadd tmm7, [{weights} + {weight_stride}*1]",
                "tdpbf16ps tmm0, tmm4, tmm7",
                "tileloadd tmm7, [{weights} + {weight_stride}*1 + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                first = in(reg) first,
                weights = in(reg) weights,
                stride = in(reg) stride,
                weight_stride = in(reg) ROW_BYTES,
                options(nostack, readonly),
            ),
            _ => unreachable!("one to three tiles of rows"),
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::Tiled;
    use crate::Path;
    use crate::norm::Moments;
    use crate::shape::Shape;
    use crate::stored::{Stored, StoredMut};

    #[test]
    #[expect(clippy::disallowed_macros, reason = "a test says what it leaves out")]
    fn outputs_are_rounded_to_bfloat16_and_measured_for_whole_and_broken_tiles() {
        if !Path::Amx.is_available() {
            println!("skipped: this CPU lacks {}", Path::Amx);
            return;
        }
        let shape = Shape { side: 3, height: 3, width: 4, inputs: 32, outputs: 64 };
        let mut tiled = Tiled::new(shape, Path::Amx);
        let number = |index: usize| ((index * 7919) % 1013) as f32 / 506.5 - 0.9;
        tiled.pack(&(0..shape.outputs * shape.taps() * shape.inputs).map(number).collect::<Vec<_>>());
        for positions in [1, 15, 16, 18, 32, 49] {
            let [of_x, of_y] = [shape.inputs, shape.outputs].map(|channels| positions * shape.cells() * channels);
            let x: Vec<bf16> = (0..of_x).map(|index| bf16::from_f32(number(3 * index + 1))).collect();
            let mut expected = vec![0.0; of_y];
            tiled.convolve(Stored::Bf16(&x), None, StoredMut::F32(&mut expected));
            let mut y = vec![bf16::NAN; of_y];
            let measured = tiled.convolve_measured(Stored::Bf16(&x), StoredMut::Bf16(&mut y));
            let rounded: Vec<bf16> = expected.iter().map(|output| bf16::from_f32(*output)).collect();
            assert_eq!(y, rounded, "{positions} positions");
            let moments = Moments::of(Path::Amx, &expected, shape.outputs);
            assert!(measured.is_close_to(&moments, 1e-4), "{positions} positions: {measured:?}, not {moments:?}");
        }
    }
}
