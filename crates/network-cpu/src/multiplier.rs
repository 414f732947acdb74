use std::marker::PhantomData;

use crate::multiply::{Job, Target};
use crate::paths::transform::Finish;
use crate::planes::{Layout, Planes, TILE_ROWS};
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

/// Functions with the instructions of this path, which must be a floating-point path.
#[allow(clippy::too_many_arguments, reason = "those of a layer")]
impl Multiplier {
    crate::passes::passes! { methods }
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
