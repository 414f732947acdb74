//! Norms of single positions after convolutions and before matrices: layer norm of each cell, and group norm.

use std::ops::Range;

use network::{GROUP_CHANNELS, NORM_EPSILON, NormKind};

use crate::Path;
use crate::layer_norm;
use crate::norm::GradientSums;
use crate::vector::{Task, Vector};

/// A norm of single positions, with the ranges of its parameters.
#[derive(Debug, Clone)]
pub(crate) struct PositionNorm {
    /// H · W.
    pub(crate) cells: usize,
    /// Whether the norm is over groups of channels and all cells, rather than over all channels of a cell.
    pub(crate) is_grouped: bool,
    /// Range of γ, `[C]`.
    pub(crate) scale: Range<usize>,
    /// Range of β, `[C]`.
    pub(crate) shift: Range<usize>,
}

impl PositionNorm {
    /// Returns the norm of this kind for a convolution; `None` for batch norm.
    pub(crate) fn of(kind: NormKind, cells: usize, [scale, shift]: [Range<usize>; 2]) -> Option<Self> {
        (kind != NormKind::Batch).then_some(Self { cells, is_grouped: kind == NormKind::Group, scale, shift })
    }

    /// Returns the number of moments per position: mean and inverse standard deviation of each cell or group.
    pub(crate) fn moments(&self) -> usize {
        2 * if self.is_grouped { self.scale.len() / GROUP_CHANNELS } else { self.cells }
    }

    /// Writes the norm of x `[B, H, W, C]` to y, and the moments `[B, moments / 2, 2]`.
    pub(crate) fn forward(&self, path: Path, parameters: &[f32], x: &[f32], moments: &mut [f32], y: &mut [f32]) {
        let (scale, shift) = (&parameters[self.scale.clone()], &parameters[self.shift.clone()]);
        if self.is_grouped {
            let cells = self.cells;
            return path.run(Forward { cells, z: x, scale, shift, moments, y });
        }
        path.run(layer_norm::Forward { z: x, scale, shift, skip: None, rectifies: false, moments, y });
    }

    /// Writes the gradient of x from the output gradient, and returns the sums for the gradients of β and γ.
    pub(crate) fn backward(
        &self,
        path: Path,
        parameters: &[f32],
        [x, moments, gradient]: [&[f32]; 3],
        of_x: &mut [f32],
    ) -> GradientSums {
        let scale = &parameters[self.scale.clone()];
        if self.is_grouped {
            return path.run(Backward { cells: self.cells, z: x, scale, moments, gradient, of_z: of_x });
        }
        path.run(layer_norm::Backward { z: x, scale, moments, gradient, of_z: of_x })
    }
}

/// Writes `y = γ (z − μ) / σ + β` with the moments of each channel group over the cells of a position.
struct Forward<'a> {
    cells: usize,
    /// `[B, cells, C]`.
    z: &'a [f32],
    /// γ, `[C]`.
    scale: &'a [f32],
    /// β, `[C]`.
    shift: &'a [f32],
    /// `[B, groups, 2]`: μ and 1 / σ.
    moments: &'a mut [f32],
    /// `[B, cells, C]`.
    y: &'a mut [f32],
}

/// Numbers of a group in one cell.
type Group = [f32; GROUP_CHANNELS];

impl Task for Forward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { cells, z, scale, shift, moments, y } = self;
        let groups = scale.len() / GROUP_CHANNELS;
        let (scale, shift) = (groups_of(scale), groups_of(shift));
        let (z, y) = (groups_of(z), y.as_chunks_mut::<GROUP_CHANNELS>().0);
        let positions = z.chunks_exact(cells * groups).zip(y.chunks_exact_mut(cells * groups));
        for ((z, y), moments) in positions.zip(moments.as_chunks_mut::<2>().0.chunks_exact_mut(groups)) {
            for (group, moments) in moments.iter_mut().enumerate() {
                let numbers = (cells * GROUP_CHANNELS) as f32;
                let mean = sum(cells, |cell| z[cell * groups + group]) / numbers;
                let squares = sum(cells, |cell| z[cell * groups + group].map(|z| (z - mean) * (z - mean)));
                let inverse = (f64::from(squares / numbers) + NORM_EPSILON).sqrt().recip() as f32;
                *moments = [mean, inverse];
                let (scale, shift) = (scale[group], shift[group]);
                for cell in 0..cells {
                    let z = z[cell * groups + group];
                    let y = &mut y[cell * groups + group];
                    for lane in 0..GROUP_CHANNELS {
                        y[lane] = (z[lane] - mean) * inverse * scale[lane] + shift[lane];
                    }
                }
            }
        }
    }
}

/// Writes the gradient of z from the output gradient, and returns the sums for the gradients of β and γ; formula as
/// in [`layer_norm::Backward`].
struct Backward<'a> {
    cells: usize,
    /// `[B, cells, C]`.
    z: &'a [f32],
    /// γ, `[C]`.
    scale: &'a [f32],
    /// `[B, groups, 2]`: μ and 1 / σ.
    moments: &'a [f32],
    /// `[B, cells, C]`.
    gradient: &'a [f32],
    /// `[B, cells, C]`.
    of_z: &'a mut [f32],
}

impl Task for Backward<'_> {
    type Output = GradientSums;

    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> GradientSums {
        let Self { cells, z, scale, moments, gradient, of_z } = self;
        let (channels, groups) = (scale.len(), scale.len() / GROUP_CHANNELS);
        let mut sums = GradientSums { shift: vec![0.0; channels], scale: vec![0.0; channels] };
        let of_shift = sums.shift.as_chunks_mut::<GROUP_CHANNELS>().0;
        let of_scale = sums.scale.as_chunks_mut::<GROUP_CHANNELS>().0;
        let (scale, of_position) = (groups_of(scale), cells * groups);
        let inputs = groups_of(z).chunks_exact(of_position).zip(groups_of(gradient).chunks_exact(of_position));
        let outputs = of_z.as_chunks_mut::<GROUP_CHANNELS>().0.chunks_exact_mut(of_position);
        for (((z, gradient), of_z), moments) in inputs.zip(outputs).zip(moments.as_chunks::<2>().0.chunks_exact(groups))
        {
            for (group, &[mean, inverse]) in moments.iter().enumerate() {
                let scale = scale[group];
                let (mut of_shifts, mut of_scales) = ([0.0; GROUP_CHANNELS], [0.0; GROUP_CHANNELS]);
                for cell in 0..cells {
                    let (z, gradient) = (z[cell * groups + group], gradient[cell * groups + group]);
                    for lane in 0..GROUP_CHANNELS {
                        of_shifts[lane] += gradient[lane];
                        of_scales[lane] += gradient[lane] * ((z[lane] - mean) * inverse);
                    }
                }
                let share = inverse / (cells * GROUP_CHANNELS) as f32;
                let (mut sum_of, mut sum_by) = (0.0, 0.0);
                for lane in 0..GROUP_CHANNELS {
                    of_shift[group][lane] += of_shifts[lane];
                    of_scale[group][lane] += of_scales[lane];
                    sum_of += of_shifts[lane] * scale[lane];
                    sum_by += of_scales[lane] * scale[lane];
                }
                for cell in 0..cells {
                    let (z, gradient) = (z[cell * groups + group], gradient[cell * groups + group]);
                    let of_z = &mut of_z[cell * groups + group];
                    for lane in 0..GROUP_CHANNELS {
                        let normalised = (z[lane] - mean) * inverse;
                        of_z[lane] = gradient[lane] * scale[lane] * inverse - (sum_of + normalised * sum_by) * share;
                    }
                }
            }
        }
        sums
    }
}

#[inline(always)]
fn groups_of(numbers: &[f32]) -> &[Group] {
    numbers.as_chunks::<GROUP_CHANNELS>().0
}

/// Returns the sum of all lanes of `term` over `cells` cells.
#[inline(always)]
fn sum(cells: usize, term: impl Fn(usize) -> Group) -> f32 {
    let mut sums = [0.0; GROUP_CHANNELS];
    for cell in 0..cells {
        let term = term(cell);
        for lane in 0..GROUP_CHANNELS {
            sums[lane] += term[lane];
        }
    }
    sums.iter().sum()
}
