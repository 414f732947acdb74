use network::Role;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{Entry, Layout};

/// The numbers of a network, in the order of its layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    /// The trained parameters, `[P]`.
    pub parameters: Vec<f32>,
    /// Running means and variances, `[S]`.
    pub statistics: Vec<f32>,
}

impl Numbers {
    /// The numbers of a new network: weights uniform within `√(6 / fan-in)` (He et al. 2015), the outputs of the heads
    /// a tenth of it so that play begins undecided, those of global pooling, squeeze-and-excitation and attention
    /// blocks likewise so that training begins near the plain tower. The matrices that map one-hot actions and chance
    /// codes to planes are uniform within 1, because one of its inputs is not 0. The seed alone decides every number.
    #[must_use]
    pub fn initial(layout: &Layout, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let parameters = layout.parameters.iter().flat_map(|entry| initial_parameters(entry, &mut rng)).collect();
        let of_entry = |entry: &Entry| {
            std::iter::repeat_n(if entry.tensor.role == Role::NormVariance { 1.0 } else { 0.0 }, entry.len)
        };
        Self { parameters, statistics: layout.statistics.iter().flat_map(of_entry).collect() }
    }
}

/// The last matrix of the encoder of chance, whose differences name codes from the beginning.
const ENCODING: &str = "encoding.output.weight";
/// The matrices from one-hot actions or chance codes to planes.
const ACTION_PLANES: [&str; 2] = ["dynamics.action.weight", "afterstate.action.weight"];

fn initial_parameters(entry: &Entry, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let bound = match entry.tensor.role {
        Role::Convolution | Role::Linear => {
            let fan_in = entry.len as f32 / entry.tensor.shape[0] as f32;
            let name = &entry.tensor.name;
            let begins_small =
                name != ENCODING && [".output.weight", ".pooling.weight"].iter().any(|end| name.ends_with(end));
            let scale = if begins_small { 0.1 } else { 1.0 };
            if ACTION_PLANES.contains(&entry.tensor.name.as_str()) { 1.0 } else { scale * (6.0 / fan_in).sqrt() }
        }
        Role::NormScale => return vec![1.0; entry.len],
        _ => return vec![0.0; entry.len],
    };
    (0..entry.len).map(|_| rng.random_range(-bound..bound)).collect()
}
