//! The self-supervised consistency loss of EfficientZero (Ye et al. 2021, section 4.1): the latent states that the
//! dynamics predict are compared with those of the observations that followed, as SimSiam (Chen & He 2021) compares two
//! views of an image.

use tch::{Kind, Tensor};

use crate::Error;

/// The least norm that a projection is divided by.
const NORM_MIN: f64 = 1e-5;

/// The two sides of the comparison for the K states after each of B positions, ordered by step and then by position.
#[derive(Debug)]
pub(crate) struct Projections {
    /// `[K · B, P]`: the predictor's outputs for unrolled states.
    pub(crate) predicted: Tensor,
    /// `[K · B, P]`: the projector's outputs for the states of the observations, without gradient.
    pub(crate) observed: Tensor,
}

impl Projections {
    /// `1 − cos(predicted, observed)` for each state, `[K, B]`: 0 where both have one direction, 2 where they are
    /// opposite. This is the published loss and 1.
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
    /// In the consistency loss, `[B, K]`.
    pub(crate) weights: Tensor,
    /// Of the chance that led to them, `[B, K]`.
    pub(crate) chance_weights: Tensor,
}

impl NextStates {
    /// Rows `start..start + len`.
    pub(crate) fn rows(&self, start: i64, len: i64) -> Result<Self, Error> {
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, len);
        Ok(Self {
            observations: part(&self.observations)?,
            weights: part(&self.weights)?,
            chance_weights: part(&self.chance_weights)?,
        })
    }

    /// `Σᵢₖ sₖ rᵢ mᵢₖ dᵢₖ / B` with the distances d, the weights m, and `shares` `[K, B]`, which are sₖ rᵢ.
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
