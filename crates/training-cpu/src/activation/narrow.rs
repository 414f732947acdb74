//! ReLU with batch norm and optional skip connection in one pass over bfloat16. Rows are whole registers, as in
//! products on tiles.

use half::bf16;

use crate::norm::{Combination, GradientSums, Norm};
use crate::vector::{Formats, Task, Vector};

/// `y = relu(n + skip)`.
pub(crate) struct Forward<'a> {
    pub(crate) norm: &'a Norm,
    pub(crate) z: &'a [bf16],
    pub(crate) skip: Option<&'a [bf16]>,
    pub(crate) y: &'a mut [bf16],
}

impl Task for Forward<'_> {
    const FORMATS: Formats = Formats::Bf16;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { norm, z, skip, y } = self;
        let channels = norm.mean.len();
        assert!(channels.is_multiple_of(V::WIDTH) && z.len() == y.len(), "whole rows");
        assert!(skip.is_none_or(|skip| skip.len() == z.len()), "a skip connection of all rows");
        for row in (0..z.len()).step_by(channels) {
            for channel in (0..channels).step_by(V::WIDTH) {
                let place = row + channel;
                // SAFETY: the caller fulfils the contract of this function; registers lie within rows and norms.
                unsafe {
                    let constant = V::load(norm.constant.as_ptr().add(channel));
                    let slope = V::load(norm.slope.as_ptr().add(channel));
                    let mut sum = V::multiply_add(constant, slope, V::load_bf16(z.as_ptr().add(place)));
                    if let Some(skip) = skip {
                        sum = V::add(sum, V::load_bf16(skip.as_ptr().add(place)));
                    }
                    V::store_bf16(V::passed(sum, sum), y.as_mut_ptr().add(place));
                }
            }
        }
    }
}

/// Adds the gradient of a second use of y, zeroes the sum where y is zero, and sums it for the norm.
pub(crate) struct Backward<'a> {
    pub(crate) norm: &'a Norm,
    pub(crate) cells: usize,
    pub(crate) z: &'a [bf16],
    pub(crate) besides: Option<&'a [bf16]>,
    pub(crate) y: &'a [bf16],
    pub(crate) of_y: &'a mut [bf16],
    pub(crate) sums: &'a mut GradientSums,
}

impl Task for Backward<'_> {
    const FORMATS: Formats = Formats::Bf16;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { norm, cells, z, besides, y, of_y, sums } = self;
        let channels = norm.mean.len();
        assert!(channels.is_multiple_of(V::WIDTH) && [z.len(), y.len()] == [of_y.len(); 2], "whole rows");
        assert!(besides.is_none_or(|besides| besides.len() == z.len()), "a second use of all rows");
        let position = cells * channels;
        for first in (0..z.len()).step_by(position) {
            for channel in (0..channels).step_by(V::WIDTH) {
                // SAFETY: the caller fulfils the contract of this function; registers lie within rows and norms.
                unsafe {
                    let mean = V::load(norm.mean.as_ptr().add(channel));
                    let [to_shift, to_scale] =
                        [&mut sums.shift, &mut sums.scale].map(|sum| sum[channel..].as_mut_ptr());
                    let (mut shift, mut scale) = (V::load(to_shift), V::load(to_scale));
                    for place in (first + channel..first + position).step_by(channels) {
                        let mut gradient = V::load_bf16(of_y.as_ptr().add(place));
                        if let Some(besides) = besides {
                            gradient = V::add(gradient, V::load_bf16(besides.as_ptr().add(place)));
                        }
                        gradient = V::passed(gradient, V::load_bf16(y.as_ptr().add(place)));
                        V::store_bf16(gradient, of_y.as_mut_ptr().add(place));
                        shift = V::add(shift, gradient);
                        let distance = V::subtract(V::load_bf16(z.as_ptr().add(place)), mean);
                        scale = V::multiply_add(scale, gradient, distance);
                    }
                    V::store(shift, to_shift);
                    V::store(scale, to_scale);
                }
            }
        }
    }
}

/// Writes the gradient of a norm's input z from the output gradient.
pub(crate) struct Combine<'a> {
    pub(crate) combination: &'a Combination,
    pub(crate) of_n: &'a [bf16],
    pub(crate) z: &'a [bf16],
    pub(crate) of_z: &'a mut [bf16],
}

impl Task for Combine<'_> {
    const FORMATS: Formats = Formats::Bf16;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { combination: Combination { slope, of_z: by_z, constant }, of_n, z, of_z } = self;
        let channels = slope.len();
        assert!(channels.is_multiple_of(V::WIDTH) && [z.len(), of_n.len()] == [of_z.len(); 2], "whole rows");
        for row in (0..z.len()).step_by(channels) {
            for channel in (0..channels).step_by(V::WIDTH) {
                let place = row + channel;
                // SAFETY: the caller fulfils the contract of this function; registers lie within rows and norms.
                unsafe {
                    let [slope, by_z, constant] =
                        [slope, by_z, constant].map(|line| V::load(line.as_ptr().add(channel)));
                    let sum = V::multiply_add(constant, by_z, V::load_bf16(z.as_ptr().add(place)));
                    let sum = V::multiply_add(sum, slope, V::load_bf16(of_n.as_ptr().add(place)));
                    V::store_bf16(sum, of_z.as_mut_ptr().add(place));
                }
            }
        }
    }
}
