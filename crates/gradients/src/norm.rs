use half::bf16;

/// Rows whose sums are kept in float32 before they are added up in float64.
const BLOCK_ROWS: usize = 128;
/// The most channels that are computed together: their sums fit the registers.
const WIDE: usize = 64;
/// Channels that fill a register.
const REGISTER: usize = 16;

/// Calls a function of `passes`, compiled for AVX-512 where the CPU has it: the same code, four times as wide.
macro_rules! wherever_it_is_fastest {
    ($function:ident($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512dq")
        {
            // SAFETY: the CPU has the features that the function was compiled for.
            return unsafe { wide::$function($($argument),*) };
        }
        passes::$function($($argument),*)
    }};
}

/// A batch norm in training, the addition of a skip connection, and ReLU:
/// `y = relu(γ · (z − μ) / σ + β + around)` with mean and deviation of each channel over the batch (Ioffe and
/// Szegedy 2015).
///
/// Activations are `[N, C]`: N cells of all positions, C channels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Norm {
    /// `[C]`: means over the batch.
    pub mean: Vec<f32>,
    /// `[C]`: variances over the batch, divided by N.
    pub variance: Vec<f32>,
    /// `[C]`: `1 / √(variance + ε)`.
    inverse: Vec<f32>,
}

/// Scale and shift of a batch norm, `[C]` each.
#[derive(Debug, Clone, Copy)]
pub struct Affine<'a> {
    /// The scale γ.
    pub scale: &'a [f32],
    /// The shift β.
    pub shift: &'a [f32],
}

/// Gradients of scale and shift, `[C]` each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AffineGradient {
    /// The gradient of γ.
    pub scale: Vec<f32>,
    /// The gradient of β.
    pub shift: Vec<f32>,
}

impl Norm {
    /// Writes `y` `[N, C]` from `z` `[N, C]` and the skip connection `around`, `[N, C]` if there is one; `epsilon` is
    /// added to variances.
    ///
    /// # Panics
    /// If lengths do not fit, or N or C is 0.
    #[must_use]
    pub fn forward(affine: Affine<'_>, epsilon: f32, z: &[bf16], around: Option<&[bf16]>, y: &mut [bf16]) -> Self {
        let channels = affine.scale.len();
        check(channels, z.len(), &[y.len(), around.map_or(z.len(), <[bf16]>::len)]);
        assert!(affine.shift.len() == channels, "a shift for each channel");
        wherever_it_is_fastest!(forward(affine, epsilon, z, around, y))
    }

    /// Runs the backward pass. The gradient of `y`, `[N, C]`, is `gradient` plus, if there is a second path, its
    /// gradient `besides`; `gradient` becomes the gradient of the skip connection. The gradient of `z` is written into
    /// `of_z`, `[N, C]`.
    ///
    /// # Panics
    /// If lengths are not those of [`forward`](Self::forward).
    #[must_use]
    pub fn backward(
        &self,
        scale: &[f32],
        z: &[bf16],
        y: &[bf16],
        gradient: &mut [bf16],
        besides: Option<&[bf16]>,
        of_z: &mut [bf16],
    ) -> AffineGradient {
        let channels = self.mean.len();
        let of_besides = besides.map_or(z.len(), <[bf16]>::len);
        check(channels, z.len(), &[y.len(), gradient.len(), of_besides, of_z.len()]);
        assert!(scale.len() == channels, "a scale for each channel");
        wherever_it_is_fastest!(backward(self, scale, [z, y], gradient, besides, of_z))
    }
}

fn check(channels: usize, len: usize, others: &[usize]) {
    assert!(channels > 0 && len > 0 && len.is_multiple_of(channels), "whole rows of channels");
    assert!(others.iter().all(|&other| other == len), "activations of one shape");
}

/// The passes, compiled for a CPU with AVX-512.
#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{Affine, AffineGradient, Norm, bf16, passes};

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn forward(
        affine: Affine<'_>,
        epsilon: f32,
        z: &[bf16],
        around: Option<&[bf16]>,
        y: &mut [bf16],
    ) -> Norm {
        passes::forward(affine, epsilon, z, around, y)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn backward(
        norm: &Norm,
        scale: &[f32],
        z_and_y: [&[bf16]; 2],
        gradient: &mut [bf16],
        besides: Option<&[bf16]>,
        of_z: &mut [bf16],
    ) -> AffineGradient {
        passes::backward(norm, scale, z_and_y, gradient, besides, of_z)
    }
}

/// Two passes over memory in each direction. Each pass takes, for all rows, as many channels at once as have sums that
/// fit the registers.
mod passes {
    use super::{Affine, AffineGradient, BLOCK_ROWS, Norm, REGISTER, WIDE, bf16};

    /// Calls a pass for all columns of channels.
    macro_rules! for_all_columns {
        ($channels:expr, $pass:ident($($argument:expr),*)) => {{
            let mut first = 0;
            while first < $channels {
                first += match $channels - first {
                    WIDE.. => { $pass::<WIDE>(first, $channels, $($argument),*); WIDE }
                    REGISTER.. => { $pass::<REGISTER>(first, $channels, $($argument),*); REGISTER }
                    _ => { $pass::<1>(first, $channels, $($argument),*); 1 }
                };
            }
        }};
    }

    #[inline(always)]
    pub(super) fn forward(
        affine: Affine<'_>,
        epsilon: f32,
        z: &[bf16],
        around: Option<&[bf16]>,
        y: &mut [bf16],
    ) -> Norm {
        let channels = affine.scale.len();
        let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
        for_all_columns!(channels, moments(z, &mut mean, &mut variance));
        let inverse: Vec<f32> = variance.iter().map(|variance| 1.0 / (variance + epsilon).sqrt()).collect();
        let slope: Vec<f32> = affine.scale.iter().zip(&inverse).map(|(scale, inverse)| scale * inverse).collect();
        let constant: Vec<f32> = (0..channels).map(|c| affine.shift[c] - mean[c] * slope[c]).collect();
        for_all_columns!(channels, normalise(z, around, &slope, &constant, y));
        Norm { mean, variance, inverse }
    }

    /// With g the gradient where y is above zero, else zero, and ẑ the normalised z: `∂β = Σ g`,
    /// `∂γ = Σ g ẑ`, `∂z = γ / σ · (g − ∂β / N − ẑ ∂γ / N)`.
    #[inline(always)]
    pub(super) fn backward(
        norm: &Norm,
        scale: &[f32],
        [z, y]: [&[bf16]; 2],
        gradient: &mut [bf16],
        besides: Option<&[bf16]>,
        of_z: &mut [bf16],
    ) -> AffineGradient {
        let channels = scale.len();
        let (mut of_scale, mut of_shift) = (vec![0.0; channels], vec![0.0; channels]);
        for_all_columns!(channels, rectify(norm, [z, y], gradient, besides, [&mut of_scale, &mut of_shift]));
        // ∂z as a linear function of g and z.
        let count = (z.len() / channels) as f32;
        let slope: Vec<f32> = scale.iter().zip(&norm.inverse).map(|(scale, inverse)| scale * inverse).collect();
        let of_value: Vec<f32> = (0..channels).map(|c| -slope[c] * norm.inverse[c] * of_scale[c] / count).collect();
        let constant: Vec<f32> =
            (0..channels).map(|c| -slope[c] * of_shift[c] / count - of_value[c] * norm.mean[c]).collect();
        for_all_columns!(channels, combine(gradient, z, [&slope, &of_value, &constant], of_z));
        AffineGradient { scale: of_scale, shift: of_shift }
    }

    /// Computes mean and variance. The sums are of distances from the first row, which usually lies closer to the mean
    /// than zero does.
    #[inline(always)]
    fn moments<const W: usize>(first: usize, channels: usize, z: &[bf16], mean: &mut [f32], variance: &mut [f32]) {
        let shift: [f32; W] = widened(columns(z, first));
        let mut totals = [[0.0_f64; W]; 2];
        for block in z.chunks(BLOCK_ROWS * channels) {
            let mut sums = [[0.0_f32; W]; 2];
            for row in block.chunks_exact(channels) {
                let z: [f32; W] = widened(columns(row, first));
                for c in 0..W {
                    let distance = z[c] - shift[c];
                    sums[0][c] += distance;
                    sums[1][c] += distance * distance;
                }
            }
            add_up(&mut totals, &sums);
        }
        let count = (z.len() / channels) as f64;
        for c in 0..W {
            let [distance, square] = [totals[0][c] / count, totals[1][c] / count];
            mean[first + c] = (f64::from(shift[c]) + distance) as f32;
            // Rounding may give slightly less than zero; NaN stays NaN.
            let spread = square - distance * distance;
            variance[first + c] = if spread < 0.0 { 0.0 } else { spread as f32 };
        }
    }

    #[inline(always)]
    fn normalise<const W: usize>(
        first: usize,
        channels: usize,
        z: &[bf16],
        around: Option<&[bf16]>,
        slope: &[f32],
        constant: &[f32],
        y: &mut [bf16],
    ) {
        let (slope, constant): (&[f32; W], &[f32; W]) = (columns(slope, first), columns(constant, first));
        for (row, (z, y)) in z.chunks_exact(channels).zip(y.chunks_exact_mut(channels)).enumerate() {
            let z: [f32; W] = widened(columns(z, first));
            let y: &mut [bf16; W] = columns_mut(y, first);
            match around {
                Some(around) => {
                    let around: [f32; W] = widened(columns(around, row * channels + first));
                    for c in 0..W {
                        y[c] = narrow(relu(z[c] * slope[c] + constant[c] + around[c]));
                    }
                }
                None => {
                    for c in 0..W {
                        y[c] = narrow(relu(z[c] * slope[c] + constant[c]));
                    }
                }
            }
        }
    }

    /// Adds `besides` to the gradient, zeroes it where `y` is zero, and sums it for the gradients of scale and shift.
    #[inline(always)]
    fn rectify<const W: usize>(
        first: usize,
        channels: usize,
        norm: &Norm,
        [z, y]: [&[bf16]; 2],
        gradient: &mut [bf16],
        besides: Option<&[bf16]>,
        [of_scale, of_shift]: [&mut [f32]; 2],
    ) {
        let mean: &[f32; W] = columns(&norm.mean, first);
        let mut totals = [[0.0_f64; W]; 2];
        for (block, gradient) in gradient.chunks_mut(BLOCK_ROWS * channels).enumerate() {
            let mut sums = [[0.0_f32; W]; 2];
            for (row, gradient) in gradient.chunks_exact_mut(channels).enumerate() {
                let at = (block * BLOCK_ROWS + row) * channels + first;
                let gradient: &mut [bf16; W] = columns_mut(gradient, first);
                if let Some(besides) = besides {
                    let besides: [f32; W] = widened(columns(besides, at));
                    for c in 0..W {
                        gradient[c] = narrow(widen(gradient[c]) + besides[c]);
                    }
                }
                let z: [f32; W] = widened(columns(z, at));
                let y: &[bf16; W] = columns(y, at);
                for c in 0..W {
                    // `y` is never negative: it is zero exactly where its bits are.
                    let passed = if y[c].to_bits() == 0 { 0 } else { gradient[c].to_bits() };
                    gradient[c] = bf16::from_bits(passed);
                    let g = widen(bf16::from_bits(passed));
                    sums[0][c] += g;
                    sums[1][c] += g * (z[c] - mean[c]);
                }
            }
            add_up(&mut totals, &sums);
        }
        for c in 0..W {
            of_shift[first + c] = totals[0][c] as f32;
            of_scale[first + c] = totals[1][c] as f32 * norm.inverse[first + c];
        }
    }

    /// `of_z = slope · gradient + of_value · z + constant`.
    #[inline(always)]
    fn combine<const W: usize>(
        first: usize,
        channels: usize,
        gradient: &[bf16],
        z: &[bf16],
        line: [&[f32]; 3],
        of_z: &mut [bf16],
    ) {
        let [slope, of_value, constant]: [&[f32; W]; 3] = line.map(|part| columns(part, first));
        let rows = gradient.chunks_exact(channels).zip(z.chunks_exact(channels));
        for ((gradient, z), of_z) in rows.zip(of_z.chunks_exact_mut(channels)) {
            let gradient: [f32; W] = widened(columns(gradient, first));
            let z: [f32; W] = widened(columns(z, first));
            let of_z: &mut [bf16; W] = columns_mut(of_z, first);
            for c in 0..W {
                of_z[c] = narrow(slope[c] * gradient[c] + of_value[c] * z[c] + constant[c]);
            }
        }
    }

    #[inline(always)]
    fn add_up<const W: usize>(totals: &mut [[f64; W]; 2], sums: &[[f32; W]; 2]) {
        for (totals, sums) in totals.iter_mut().zip(sums) {
            for (total, sum) in totals.iter_mut().zip(sums) {
                *total += f64::from(*sum);
            }
        }
    }

    /// The columns from `first` on.
    #[inline(always)]
    fn columns<T, const W: usize>(row: &[T], first: usize) -> &[T; W] {
        row[first..].first_chunk().expect("columns lie inside their row")
    }

    #[inline(always)]
    fn columns_mut<T, const W: usize>(row: &mut [T], first: usize) -> &mut [T; W] {
        row[first..].first_chunk_mut().expect("columns lie inside their row")
    }

    #[inline(always)]
    fn widened<const W: usize>(values: &[bf16; W]) -> [f32; W] {
        let mut wide = [0.0; W];
        for c in 0..W {
            wide[c] = widen(values[c]);
        }
        wide
    }

    /// A bfloat16 is the upper half of a float32. The library tests for NaN first, and the compiler cannot vectorise
    /// that.
    #[inline(always)]
    fn widen(value: bf16) -> f32 {
        f32::from_bits(u32::from(value.to_bits()) << 16)
    }

    /// Rounds to nearest, ties to even; NaN stays NaN.
    #[inline(always)]
    fn narrow(value: f32) -> bf16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
        let bits = if value.is_nan() { bits | 0x0040_0000 } else { rounded };
        bf16::from_bits((bits >> 16) as u16)
    }

    /// NaN stays NaN, so that a failed step is detected.
    #[inline(always)]
    fn relu(value: f32) -> f32 {
        if value <= 0.0 { 0.0 } else { value }
    }
}

#[cfg(test)]
mod tests;
