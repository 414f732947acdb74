//! Features of a pooled head: means, scaled means and maxima over the cells of a position, see
//! [`Layers`](network::Layers).

use network::mean_scale;

use crate::vector::{Task, Vector};

/// Writes `[means, s · means, maxima]` `[B, 3C]` of `x` `[B, cells, C]`.
pub(crate) struct Forward<'a> {
    pub(crate) cells: usize,
    pub(crate) channels: usize,
    pub(crate) x: &'a [f32],
    pub(crate) y: &'a mut [f32],
}

impl Task for Forward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { cells, channels, x, y } = self;
        let scale = mean_scale(cells) as f32;
        for (x, y) in x.chunks_exact(cells * channels).zip(y.chunks_exact_mut(3 * channels)) {
            let (means, y) = y.split_at_mut(channels);
            let (scaled, maxima) = y.split_at_mut(channels);
            means.fill(0.0);
            maxima.fill(f32::NEG_INFINITY);
            for x in x.chunks_exact(channels) {
                for ((mean, most), &x) in means.iter_mut().zip(&mut *maxima).zip(x) {
                    // NaN in any cell gives a mean of NaN.
                    *mean += x;
                    *most = if x > *most { x } else { *most };
                }
            }
            for (mean, scaled) in means.iter_mut().zip(scaled) {
                *mean /= cells as f32;
                *scaled = scale * *mean;
            }
        }
    }
}

/// Writes the gradient of x. Cells with equal maxima share the gradient, as in libtorch.
pub(crate) struct Backward<'a> {
    pub(crate) cells: usize,
    pub(crate) channels: usize,
    pub(crate) x: &'a [f32],
    pub(crate) y: &'a [f32],
    pub(crate) of_y: &'a [f32],
    pub(crate) of_x: &'a mut [f32],
}

impl Task for Backward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { cells, channels, x, y, of_y, of_x } = self;
        let scale = mean_scale(cells) as f32;
        let [mut of_mean, mut of_most, mut shares] = [(); 3].map(|()| vec![0.0_f32; channels]);
        let positions = x.chunks_exact(cells * channels).zip(of_x.chunks_exact_mut(cells * channels));
        let pooled = y.chunks_exact(3 * channels).zip(of_y.chunks_exact(3 * channels));
        for ((x, of_x), (y, of_y)) in positions.zip(pooled) {
            let maxima = &y[2 * channels..];
            shares.fill(0.0);
            for x in x.chunks_exact(channels) {
                for ((share, x), most) in shares.iter_mut().zip(x).zip(maxima) {
                    *share += if x == most { 1.0 } else { 0.0 };
                }
            }
            for channel in 0..channels {
                let of_means = of_y[channel] + scale * of_y[channels + channel];
                of_mean[channel] = of_means / cells as f32;
                of_most[channel] = of_y[2 * channels + channel] / shares[channel].max(1.0);
            }
            for (x, of_x) in x.chunks_exact(channels).zip(of_x.chunks_exact_mut(channels)) {
                for channel in 0..channels {
                    let of_maximum = if x[channel] == maxima[channel] { of_most[channel] } else { 0.0 };
                    of_x[channel] = of_mean[channel] + of_maximum;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use network::mean_scale;

    use super::{Backward, Forward};
    use crate::Path;

    #[test]
    fn cells_that_share_a_maximum_share_its_gradient_and_all_share_that_of_the_mean() {
        // Two positions of three cells with two channels each.
        let x = [1.0, 5.0, 4.0, 5.0, 1.0, -1.0, 0.0, 0.0, 0.0, -2.0, 0.0, -4.0];
        let scale = mean_scale(3) as f32;
        let means = [2.0, 3.0, 0.0, -2.0];
        let [a, b, c, d] = means.map(|mean| scale * mean);
        let expected = [2.0, 3.0, a, b, 4.0, 5.0, 0.0, -2.0, c, d, 0.0, 0.0];
        let of_y = [3.0, 0.0, 0.0, 6.0, 1.0, 10.0, 0.0, 0.0, 0.0, 0.0, 6.0, 1.0];
        let of_second = 2.0 * scale;
        let of_x = [1.0, of_second + 5.0, 2.0, of_second + 5.0, 1.0, of_second, 2.0, 1.0, 2.0, 0.0, 2.0, 0.0];
        for path in Path::ALL.into_iter().filter(|path| path.is_available()) {
            let (mut y, mut got) = ([f32::NAN; 12], [f32::NAN; 12]);
            path.run(Forward { cells: 3, channels: 2, x: &x, y: &mut y });
            assert_eq!(y, expected, "{path}");
            path.run(Backward { cells: 3, channels: 2, x: &x, y: &y, of_y: &of_y, of_x: &mut got });
            assert_eq!(got, of_x, "{path}");
        }
    }
}
