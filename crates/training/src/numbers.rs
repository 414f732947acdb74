use std::iter::repeat_n;

use network::Role;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{Entry, Layout};

/// Parameters and running statistics of a network, in layout order.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    /// Trained parameters, `[P]`.
    pub parameters: Vec<f32>,
    /// Running means and variances of batch norms, `[S]`.
    pub statistics: Vec<f32>,
}

impl Numbers {
    /// Returns the initial numbers of a new network; `seed` determines all of them. Weights are uniform within
    /// ±`√(6/fan-in)` (He et al. 2015), with three exceptions. Head outputs have a tenth of this bound, so that policy
    /// and value are initially neutral. Outputs of global pooling, squeeze-and-excitation and attention blocks also
    /// have a tenth, so that the network initially resembles a plain tower. Matrices from one-hot actions and chance
    /// codes to planes are uniform within 1, because exactly one input is not 0.
    #[must_use]
    pub fn initial(layout: &Layout, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let padding = |entry: &Entry| repeat_n(0.0, entry.padding());
        let parameters = layout.parameters.iter();
        let parameters =
            parameters.flat_map(|entry| initial_parameters(entry, &mut rng).into_iter().chain(padding(entry)));
        let of_entry = |entry: &Entry| {
            let number = if entry.tensor.role == Role::NormVariance { 1.0 } else { 0.0 };
            repeat_n(number, entry.len).chain(padding(entry))
        };
        Self { parameters: parameters.collect(), statistics: layout.statistics.iter().flat_map(of_entry).collect() }
    }
}

/// Name of the last matrix in the chance encoder. It starts with the full bound, because differences of the outputs
/// immediately select the codes.
const ENCODING: &str = "encoding.output.weight";
/// Name suffixes of matrices with a tenth of the bound: head outputs, including actions without a cell, and additions
/// to the plain tower.
const SMALL: [&str; 3] = [".output.weight", ".rest.weight", ".pooling.weight"];
/// Names of matrices from one-hot actions or chance codes to planes.
const ACTION_PLANES: [&str; 2] = ["dynamics.action.weight", "afterstate.action.weight"];

fn initial_parameters(entry: &Entry, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let bound = match entry.tensor.role {
        Role::Convolution | Role::Linear => {
            let fan_in = entry.len as f32 / entry.tensor.shape[0] as f32;
            let name = &entry.tensor.name;
            let begins_small = name != ENCODING && SMALL.iter().any(|end| name.ends_with(end));
            let scale = if begins_small { 0.1 } else { 1.0 };
            if ACTION_PLANES.contains(&entry.tensor.name.as_str()) { 1.0 } else { scale * (6.0 / fan_in).sqrt() }
        }
        Role::NormScale => return vec![1.0; entry.len],
        _ => return vec![0.0; entry.len],
    };
    (0..entry.len).map(|_| rng.random_range(-bound..bound)).collect()
}

#[cfg(test)]
mod tests {
    use weights::{Architecture, Design, HeadKind};

    use super::Numbers;
    use crate::ModelLayers;
    use crate::positions::tests::tiny;

    #[test]
    fn the_outputs_of_pooled_heads_begin_at_a_tenth_of_the_bound_of_their_inputs_and_decay() {
        let design = Design { heads: HeadKind::Pooled, ..Design::default() };
        // Three actions for each of twelve cells, and two additional actions.
        let layout = ModelLayers::new(&Architecture { design, actions: 38, ..tiny() }).unwrap().layout();
        let numbers = Numbers::initial(&layout, 3);
        for (layer, inputs, scale) in
            [("policy.output", 32.0, 0.1), ("policy.rest", 96.0, 0.1), ("value.hidden", 96.0, 1.0)]
        {
            let [weights, bias] = ["weight", "bias"].map(|part| layout.parameter(&format!("{layer}.{part}")));
            let largest = numbers.parameters[weights.clone()].iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            let bound = scale * (6.0_f32 / inputs).sqrt();
            assert!((0.9 * bound..=bound).contains(&largest), "{layer} reaches {largest} of {bound}");
            assert!(numbers.parameters[bias.clone()].iter().all(|bias| *bias == 0.0));
            assert!(weights.end <= layout.decayed() && bias.start >= layout.decayed(), "{layer}");
        }
    }
}
