use std::marker::PhantomData;
use std::ops::Range;

use network::Activation;

use crate::cells::{Shares, Sizes};
use crate::folded::{Dense, Excitation};
use crate::latent::rows;
use crate::multiply::{Job, Target};
use crate::paths::transform::Finish;
use crate::planes::{Layout, Planes, TILE_ROWS};
use crate::pooling::{PooledMatrices, Summaries};
use crate::position_norm::PositionNorm;
use crate::product::{GROUP, Output, Product, RUN_ROWS, Run};
use crate::variant::of_leaf;
use crate::winograd::Cut;
use crate::{KernelVariant, paths};

/// A path that is ready to multiply on this thread: matrix tiles, if the path has any, are configured until the value
/// is dropped.
#[derive(Debug)]
pub(crate) struct Multiplier {
    path: KernelVariant,
    /// Makes the type not `Send`, since tiles belong to a thread.
    here: PhantomData<*const ()>,
}

impl Multiplier {
    /// Prepares a path.
    ///
    /// # Panics
    /// If the path is not available.
    pub(crate) fn new(path: KernelVariant) -> Self {
        assert!(path.is_available(), "{path} is not available here");
        #[cfg(target_arch = "x86_64")]
        if path.has_tiles() {
            // SAFETY: the path is available.
            unsafe { paths::amx::configure() }
        }
        Self { path, here: PhantomData }
    }

    /// Multiplies the rows of `input` by a matrix that was packed for this path, and meanwhile prefetches the weights
    /// of `next` where that is faster.
    ///
    /// # Panics
    /// If a row, or an input within reach of the row's segments, lies outside the buffers.
    pub(crate) fn multiply(
        &self,
        product: &Product,
        input: &Planes,
        runs: &[Run],
        output: Output<'_>,
        next: Option<&Product>,
    ) {
        check(self.path, product, input, runs, &output);
        let target = match output {
            Output::Planes { planes, first, add, relu } => {
                let lines = planes.lines[planes.layout.line(first, 0)..].as_mut_ptr();
                Target::Planes { lines, block_lines: planes.layout.block_lines, add, relu }
            }
            Output::Matrix { values, relu } => Target::Matrix { values: values.as_mut_ptr(), relu },
        };
        let job = Job { product, input: input.lines.as_ptr(), layout: input.layout, runs, target, next };
        // The path is available and prepared, and the job stays inside its buffers.
        of_leaf!(self.path, multiply(&job), {
            #[cfg(target_arch = "x86_64")]
            KernelVariant::AmxBf16 => paths::amx::multiply(&job),
            #[cfg(target_arch = "x86_64")]
            KernelVariant::AmxI8 => paths::amx::multiply_i8(&job),
            #[cfg(target_arch = "x86_64")]
            KernelVariant::Avx512Bf16 => paths::avx512_bf16::multiply(&job),
            #[cfg(target_arch = "x86_64")]
            KernelVariant::Avx512I8 => paths::avx512_i8::multiply(&job),
            KernelVariant::PortableI8 => paths::portable_i8::multiply(&job),
        });
    }

    /// [`crate::pooling::activate`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn activate(&self, y: &mut Planes, position: usize, activation: Activation, channels: usize) {
        of_leaf!(self.path, activate(y, position, activation, channels));
    }

    /// [`crate::pooling::pool`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn pool(
        &self,
        activation: Activation,
        y: &mut Planes,
        position: usize,
        pooling: &Dense,
        channels: usize,
        with: &mut Summaries,
    ) {
        of_leaf!(self.path, pool(activation, y, position, pooling, channels, with));
    }

    /// [`crate::pooling::excite`] with the instructions of this path, which must be a floating-point path.
    #[expect(clippy::too_many_arguments, reason = "those of a layer")]
    pub(crate) fn excite(
        &self,
        activation: Activation,
        z: &Planes,
        x: &mut Planes,
        position: usize,
        excitation: &Excitation,
        channels: usize,
        with: &mut Summaries,
    ) {
        of_leaf!(self.path, excite(activation, z, x, position, excitation, channels, with));
    }

    /// [`crate::pooling::multiply_pooled`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn multiply_pooled(
        &self,
        activation: Activation,
        features: &Planes,
        position: usize,
        matrices: &PooledMatrices,
        logits: &mut [f32],
        hidden: &mut [f32],
    ) {
        of_leaf!(self.path, multiply_pooled(activation, features, position, matrices, logits, hidden));
    }

    /// [`rows::finish_rows`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn finish_rows(
        &self,
        finish: &rows::Finish<'_>,
        count: usize,
        sums: &mut [f32],
        padded: usize,
        output: &mut Planes,
    ) {
        of_leaf!(self.path, finish_rows(finish, count, sums, padded, output));
    }

    /// [`rows::rescale`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn rescale(&self, planes: &mut Planes, position: usize, channels: usize) {
        of_leaf!(self.path, rescale(planes, position, channels));
    }

    /// [`rows::means_of_atoms`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn means_of_atoms(&self, logits: &[f32], padded: usize, bound: usize, means: &mut [f32]) {
        of_leaf!(self.path, means_of_atoms(logits, padded, bound, means));
    }

    /// [`crate::position_norm::normalise`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn normalise(&self, norm: &PositionNorm, y: &mut Planes, position: usize) {
        of_leaf!(self.path, normalise(norm, y, position));
    }

    /// [`crate::position_norm::add`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn add(&self, z: &Planes, x: &mut Planes, position: usize, channels: usize) {
        of_leaf!(self.path, add(z, x, position, channels));
    }

    /// [`crate::cells::take_cells`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn take_cells(&self, planes: &Planes, positions: Range<usize>, channels: usize, to: &mut [f32]) {
        of_leaf!(self.path, take_cells(planes, positions, channels, to));
    }

    /// [`crate::cells::put_cells`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn put_cells(&self, from: &[f32], channels: usize, positions: Range<usize>, planes: &mut Planes) {
        of_leaf!(self.path, put_cells(from, channels, positions, planes));
    }

    /// [`crate::cells::standardise`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn standardise(&self, from: &[f32], channels: usize, to: &mut Planes) {
        of_leaf!(self.path, standardise(from, channels, to));
    }

    /// [`crate::cells::attend`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn attend(
        &self,
        sizes: Sizes,
        pairs: &[f32],
        qkv: &[f32],
        padded: usize,
        shares: &mut Shares,
        to: &mut Planes,
    ) {
        of_leaf!(self.path, attend(sizes, pairs, qkv, padded, shares, to));
    }

    /// [`crate::cells::add_rows`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn add_rows(&self, sums: &[f32], padded: usize, channels: usize, to: &mut [f32]) {
        of_leaf!(self.path, add_rows(sums, padded, channels, to));
    }

    /// [`crate::cells::activate_rows`] with the instructions of this path, which must be a floating-point path.
    pub(crate) fn activate_rows(&self, activation: Activation, sums: &[f32], padded: usize, to: &mut Planes) {
        of_leaf!(self.path, activate_rows(activation, sums, padded, to));
    }

    /// Computes the values of `input` at the points of minimal filtering, for the first positions.
    ///
    /// # Panics
    /// If the path is not in float32, or the layout of the planes does not fit the cut.
    pub(crate) fn split(&self, cut: &Cut, input: &Planes, positions: usize, points: &mut [Planes]) {
        assert!(self.path.is_float32(), "{} does not filter", self.path);
        of_leaf!(self.path, split(cut, input, positions, points));
    }

    /// Computes the outputs from products at the points and writes them to planes; the inverse of
    /// [`split`](Self::split).
    ///
    /// # Panics
    /// The same as [`split`](Self::split), and if the output is a matrix.
    pub(crate) fn join(&self, cut: &Cut, points: &[Planes], positions: usize, output: Output<'_>) {
        let Output::Planes { planes, first: 0, add, relu } = output else {
            unreachable!("a convolution of a block goes into planes from the first position on");
        };
        assert!(self.path.is_float32(), "{} does not filter", self.path);
        of_leaf!(self.path, join(cut, points, positions, planes, Finish { add, relu }));
    }
}

impl Drop for Multiplier {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.path.has_tiles() {
            // SAFETY: the path is available.
            unsafe { paths::amx::release() }
        }
    }
}

/// Lines that a matrix tile reads past the last row.
const OVERREAD: isize = TILE_ROWS as isize - 1;

/// Checks the preconditions of the leaves.
fn check(path: KernelVariant, product: &Product, input: &Planes, runs: &[Run], output: &Output<'_>) {
    let format = path.packing().format;
    assert!(product.format == format && input.format == format, "packed for another path");
    let (before, after) = product.reach(input.layout);
    let (mut count, mut last) = (0, 0);
    for run in runs {
        let inside = run.line.checked_add_signed(before).is_some()
            && run.end().checked_add_signed(after + OVERREAD).is_some_and(|line| line < input.lines.len());
        assert!(inside, "a run of rows reaches out of its planes");
        let rows_max = if path.has_tiles() { TILE_ROWS } else { RUN_ROWS };
        assert!(run.rows <= rows_max, "a run of too many rows");
        assert!(path.has_tiles() || run.computes_all_rows(), "only tiles leave rows out");
        count += run.rows;
        last = last.max(run.end());
    }
    match output {
        Output::Planes { planes, first, .. } => {
            let Layout { board, together, .. } = planes.layout;
            assert!(planes.format == format.of_outputs(), "planes of another format");
            assert!((board, together) == (input.layout.board, input.layout.together), "planes that lie differently");
            assert!(
                !path.has_tiles() || runs.iter().all(|run| run.stride == 1),
                "tiles into planes take neighbouring lines"
            );
            assert!(*first == 0 || together == 1, "positions side by side begin with the first");
            let blocks = (product.groups * GROUP).div_ceil(planes.format.per_line());
            let end = planes.layout.line(*first, 0) + (blocks - 1) * planes.layout.block_lines + last;
            assert!(end < planes.lines.len(), "a run of rows does not fit the output");
        }
        Output::Matrix { values, .. } => {
            assert!(path != KernelVariant::AmxI8, "integers on tiles go into planes");
            let follow =
                |pair: &[Run]| pair[1].line == pair[0].end() + pair[0].stride && pair[1].stride == pair[0].stride;
            assert!(runs.windows(2).all(follow), "the runs into a matrix follow each other");
            assert!(values.len() >= count * product.padded_outputs(), "the output matrix is too small");
        }
    }
}
