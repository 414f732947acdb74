use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Tensor};

use crate::{Error, Precision, network};

/// Uniform numbers within `bound` of zero, in `shape`. The seed alone decides every number.
pub(crate) fn uniform(
    shape: &[i64],
    bound: f32,
    device: Device,
    precision: Precision,
    seed: u64,
) -> Result<Tensor, Error> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_: i64| rng.random_range(-bound..bound)).collect();
    Ok(network::upload(&values, device)?.f_view(shape)?.f_to_kind(precision.kind())?)
}
