//! Self-supervised consistency loss of EfficientZero (Ye et al. 2021, section 4.1). It compares the latent states
//! that the dynamics predict with the states of the observations that followed, as SimSiam (Chen & He 2021) compares
//! two views of an image.

use tch::{Kind, Tensor};

use crate::Error;

/// Minimum norm in the division of a projection.
const NORM_MIN: f64 = 1e-5;

/// Both sides of the comparison for the K states after each of B positions, ordered by step and then by position.
#[derive(Debug)]
pub(crate) struct Projections {
    /// `[K · B, P]`: predictor outputs for unrolled states.
    pub(crate) predicted: Tensor,
    /// `[K · B, P]`: projector outputs for the states of the observations, without gradient.
    pub(crate) observed: Tensor,
}

impl Projections {
    /// Returns `1 − cos(predicted, observed)` for each state, `[K, B]`: 0 for equal directions, 2 for opposite
    /// directions. This is the published loss plus 1.
    pub(crate) fn distances(&self, steps: i64) -> Result<Tensor, Error> {
        let cosine = Tensor::f_cosine_similarity(&self.predicted, &self.observed, -1, NORM_MIN)?;
        Ok(cosine.f_neg()?.f_add_scalar(1.0)?.f_view([steps, -1])?)
    }
}

/// Observations of the states after each action.
#[derive(Debug)]
pub(crate) struct NextStates {
    /// `[B, K, C, H, W]`.
    pub(crate) observations: Tensor,
    /// Weights in the consistency loss, `[B, K]`.
    pub(crate) weights: Tensor,
    /// Weights of the preceding chance events, `[B, K]`.
    pub(crate) chance_weights: Tensor,
}

impl NextStates {
    /// Returns the rows `start..start + len`.
    pub(crate) fn rows(&self, start: i64, len: i64) -> Result<Self, Error> {
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, len);
        Ok(Self {
            observations: part(&self.observations)?,
            weights: part(&self.weights)?,
            chance_weights: part(&self.chance_weights)?,
        })
    }

    /// Returns `Σᵢₖ sₖ rᵢ mᵢₖ dᵢₖ / B` with distances d, weights m, and `shares` `[K, B]` equal to sₖ rᵢ.
    pub(crate) fn loss(&self, projections: &Projections, shares: &Tensor, positions: i64) -> Result<Tensor, Error> {
        let distances = projections.distances(shares.size()[0])?;
        let weighted = distances.f_mul(&self.weights.f_transpose(0, 1)?)?.f_mul(shares)?;
        Ok(weighted.f_sum(None::<Kind>)?.f_divide_scalar(positions)?)
    }
}

#[cfg(test)]
mod tests {
    use tch::Tensor;

    use super::*;
    use crate::tests::networks::{assert_close, numbers};

    #[test]
    fn the_distance_depends_on_directions_alone_and_ranges_from_0_to_2() {
        let rows = |values: &[f32]| Tensor::from_slice(values).view([-1, 2]);
        let projections = Projections {
            predicted: rows(&[1.0, 1.0, 3.0, 0.0, -2.0, 0.0, 0.0, 0.0]),
            observed: rows(&[5.0, 5.0, 0.0, 0.1, 7.0, 0.0, 1.0, 0.0]),
        };
        assert_close(&numbers(&projections.distances(2).unwrap()), &[0.0, 1.0, 2.0, 1.0], 1e-6);
    }
}
