//! Elements of products: plain float32, or pairs of bfloat16 (see [`Vector::FACTORS`]).

use half::bf16;

use crate::Path;
use crate::vector::{Formats, Task, Vector};

/// Returns the element of one or two factors; a missing second factor counts as 0.
#[inline(always)]
fn element(factors: &[f32], of_element: usize) -> f32 {
    if of_element == 1 {
        return factors[0];
    }
    let bits = |factor: f32| u32::from(bf16::from_f32(factor).to_bits());
    f32::from_bits(bits(factors[0]) | factors.get(1).map_or(0, |&second| bits(second) << 16))
}

/// Returns the elements of rows of `channels` values, with `of_element` factors per element.
pub(crate) fn of_rows(values: &[f32], channels: usize, of_element: usize) -> impl Iterator<Item = f32> {
    let rows = values.chunks_exact(channels);
    rows.flat_map(move |row| row.chunks(of_element).map(move |factors| element(factors, of_element)))
}

/// Returns the factors per element of a path.
pub(crate) fn factors(path: Path) -> usize {
    path.run(Factors)
}

struct Factors;

impl Task for Factors {
    const FORMATS: Formats = Formats::Elements;
    type Output = usize;

    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> usize {
        V::FACTORS
    }
}

/// Writes the elements of rows of `channels` values, with two factors per element.
pub(crate) struct Pair<'a> {
    pub(crate) channels: usize,
    /// `[N, channels]`.
    pub(crate) values: &'a [f32],
    /// `[N, channels / 2, rounded up]`.
    pub(crate) elements: &'a mut [f32],
}

impl Task for Pair<'_> {
    const FORMATS: Formats = Formats::Bf16;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { channels, values, elements } = self;
        if !channels.is_multiple_of(2) {
            elements.iter_mut().zip(of_rows(values, channels, 2)).for_each(|(to, element)| *to = element);
            return;
        }
        let whole = values.len() / (2 * V::WIDTH);
        for register in 0..whole {
            // SAFETY: the caller fulfils the contract of this function; whole registers lie within both slices.
            unsafe {
                let from = values.as_ptr().add(register * 2 * V::WIDTH);
                let pairs = V::pair_adjacent(V::load(from), V::load(from.add(V::WIDTH)));
                V::store(pairs, elements.as_mut_ptr().add(register * V::WIDTH));
            }
        }
        let rest = values[whole * 2 * V::WIDTH..].chunks_exact(2);
        elements[whole * V::WIDTH..].iter_mut().zip(rest).for_each(|(to, factors)| *to = element(factors, 2));
    }
}
