use weights::Architecture;

use crate::{Error, LatentLayers, Layer, is_vector};

/// Maximum outputs of the projector, as in the published networks.
const PROJECTION_MAX: usize = 1024;

/// Heads of MuZero's self-supervised consistency loss (Ye et al. 2021, section 4.1; SimSiam, Chen & He 2021). Only
/// training needs them: they are in no published file, which they would make up to twice as large.
///
/// The projector maps a latent state, flattened by cell and then channel to `[N]`, to `[P]` in three layers; the
/// predictor maps `[P]` to `[P]` in two. With C channels or hidden units `P = min(2C, 1024)`, and the predictor has P
/// / 2 hidden units: 1024 and 512 as published in the widest networks. All layers are dense (a matrix and layer
/// norm), the last layer of the projector without ReLU, except for the linear output of the predictor. Published
/// networks have batch norms here; layer norms avoid shared statistics between the states of different steps, and
/// with states after the end of an episode.
///
/// Layers are called `consistency.projector.I`, `consistency.predictor.hidden` and `consistency.predictor.output`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsistencyLayers {
    /// Latent states `[N]` to projections `[P]`; no ReLU follows the last layer.
    pub projector: [Layer; 3],
    /// Projections to hidden units `[P / 2]`.
    pub predictor_hidden: Layer,
    /// Hidden units to predicted projections `[P]`.
    pub predictor_output: Layer,
}

impl ConsistencyLayers {
    /// Returns the layers for the consistency loss of a MuZero architecture.
    ///
    /// # Errors
    /// The same as [`LatentLayers::new`], and [`Error::Model`] for a network without dynamics.
    pub fn new(architecture: &Architecture) -> Result<Self, Error> {
        if LatentLayers::new(architecture)?.dynamics.is_none() {
            return Err(Error::Model { expected: "muzero" });
        }
        let &Architecture { height, width, channels, .. } = architecture;
        let state = if is_vector(architecture) { channels } else { channels * height * width };
        let projection = (2 * channels).min(PROJECTION_MAX);
        let projector =
            |index: usize, inputs| Layer::dense(&format!("consistency.projector.{index}"), inputs, projection);
        Ok(Self {
            projector: [projector(0, state), projector(1, projection), projector(2, projection)],
            predictor_hidden: Layer::dense("consistency.predictor.hidden", projection, projection / 2),
            predictor_output: Layer::linear("consistency.predictor.output", projection / 2, projection),
        })
    }

    /// Iterates over all layers, from a latent state to the predicted projection.
    pub fn iter(&self) -> impl Iterator<Item = &Layer> {
        self.projector.iter().chain([&self.predictor_hidden, &self.predictor_output])
    }
}

#[cfg(test)]
mod tests {
    use weights::Model;

    use super::*;

    #[test]
    fn heads_are_twice_as_wide_as_the_network_and_at_most_as_wide_as_the_published_ones() {
        let shapes = |height, channels| {
            let architecture = Architecture {
                model: Model::Muzero { support: 10 },
                ..Architecture::plain("any", [4, height, height], 2, [channels, 1])
            };
            let layers = ConsistencyLayers::new(&architecture).unwrap();
            layers.iter().map(|layer| [layer.inputs, layer.outputs]).collect::<Vec<_>>()
        };
        assert_eq!(shapes(1, 64), [[64, 128], [128, 128], [128, 128], [128, 64], [64, 128]]);
        assert_eq!(shapes(3, 16), [[144, 32], [32, 32], [32, 32], [32, 16], [16, 32]]);
        assert_eq!(shapes(1, 2048), [[2048, 1024], [1024, 1024], [1024, 1024], [1024, 512], [512, 1024]]);
    }
}
