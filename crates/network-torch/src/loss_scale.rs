//! Loss scale on the device, which alone knows whether a queued step is applied.

use tch::{Device, Tensor};
use training::{LossScale, Precision};

use crate::{Error, network};

/// A [`LossScale`] as float32 tensors, with the same rules.
#[derive(Debug)]
pub(crate) struct ScaleOnDevice {
    /// `[1]`.
    factor: Tensor,
    /// `[1]`, whole numbers.
    good_steps: Tensor,
}

impl ScaleOnDevice {
    /// Copies a loss scale to a device.
    pub(crate) fn new(scale: LossScale, device: Device) -> Result<Self, Error> {
        let number = |number: f32| network::upload(&[number], device);
        Ok(Self { factor: number(scale.factor)?, good_steps: number(scale.good_steps as f32)? })
    }

    /// Returns the factor as a scalar.
    pub(crate) fn factor(&self) -> Result<Tensor, Error> {
        Ok(self.factor.f_select(0, 0)?)
    }

    /// Updates the scale in place after a step: whether it `is_applied`, and whether it has `finite_losses`, `[1]`
    /// each.
    pub(crate) fn update(&self, is_applied: &Tensor, finite_losses: &Tensor) -> Result<(), Error> {
        let Self { factor, good_steps } = self;
        let zero = good_steps.f_zeros_like()?;
        let overflows = finite_losses
            .f_logical_and(&is_applied.f_logical_not()?)?
            .f_logical_and(&factor.f_gt(f64::from(LossScale::MIN))?)?;
        let counted = good_steps.f_add_scalar(1.0)?.f_where_self(is_applied, good_steps)?;
        let counted = zero.f_where_self(&overflows, &counted)?;
        let grows = counted.f_ge(f64::from(LossScale::GROWTH_STEPS))?;
        let grown = factor.f_multiply_scalar(2.0)?.f_clamp_max(f64::from(LossScale::MAX))?;
        let next = grown.f_where_self(&grows, factor)?;
        let halved = factor.f_multiply_scalar(0.5)?;
        factor.shallow_clone().f_copy_(&halved.f_where_self(&overflows, &next)?)?;
        Ok(good_steps.shallow_clone().f_copy_(&zero.f_where_self(&grows, &counted)?)?)
    }

    /// Returns the tensors that a step writes.
    pub(crate) fn tensors(&self) -> [&Tensor; 2] {
        [&self.factor, &self.good_steps]
    }

    /// Returns the tensors, for copying.
    pub(crate) fn tensors_mut(&mut self) -> [&mut Tensor; 2] {
        [&mut self.factor, &mut self.good_steps]
    }

    /// Returns the same tensors.
    pub(crate) fn shallow_clone(&self) -> Self {
        Self { factor: self.factor.shallow_clone(), good_steps: self.good_steps.shallow_clone() }
    }

    /// Reads the scale from the device.
    pub(crate) fn download(&self) -> Result<LossScale, Error> {
        let number = |tensor: &Tensor| network::download(tensor).map(|numbers| numbers[0]);
        Ok(LossScale { factor: number(&self.factor)?, good_steps: number(&self.good_steps)? as u32 })
    }
}

/// Returns the loss scale in a precision: `scale`, or the initial one; `None` if the precision needs none.
pub(crate) fn scale_of(
    precision: Precision,
    scale: Option<LossScale>,
    device: Device,
) -> Result<Option<ScaleOnDevice>, Error> {
    match precision {
        Precision::F16 => ScaleOnDevice::new(scale.unwrap_or_default(), device).map(Some),
        Precision::F32 | Precision::Bf16 => Ok(None),
    }
}

/// Returns the loss times the scale.
pub(crate) fn scaled(loss: &Tensor, scale: Option<&ScaleOnDevice>) -> Result<Tensor, Error> {
    match scale {
        Some(scale) => Ok(loss.f_mul(&scale.factor()?)?),
        None => Ok(loss.shallow_clone()),
    }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    /// Returns a truth value `[1]`.
    fn truth(value: bool) -> Tensor {
        Tensor::full([1], i64::from(value), (Kind::Bool, Device::Cpu))
    }

    /// Returns the scale after steps of (finite losses, finite gradient), checked on the device against the rules.
    fn agree(start: LossScale, steps: &[[bool; 2]]) -> LossScale {
        let device = ScaleOnDevice::new(start, Device::Cpu).unwrap();
        let mut expected = start;
        for &[finite_losses, finite_gradient] in steps {
            let is_applied = finite_losses && finite_gradient;
            device.update(&truth(is_applied), &truth(finite_losses)).unwrap();
            expected = match (is_applied, finite_losses) {
                (true, _) => match expected.good_steps + 1 {
                    LossScale::GROWTH_STEPS.. => {
                        LossScale { factor: (2.0 * expected.factor).min(LossScale::MAX), good_steps: 0 }
                    }
                    good_steps => LossScale { good_steps, ..expected },
                },
                (false, true) if expected.factor > LossScale::MIN => {
                    LossScale { factor: 0.5 * expected.factor, good_steps: 0 }
                }
                (false, _) => expected,
            };
            assert_eq!(device.download().unwrap(), expected, "after {finite_losses} and {finite_gradient}");
        }
        expected
    }

    #[test]
    fn the_scale_on_the_device_follows_the_rules() {
        let [good, overflow, loss, both] = [[true, true], [true, false], [false, true], [false, false]];
        let near_growth = LossScale { good_steps: LossScale::GROWTH_STEPS - 2, ..LossScale::new() };
        let grown = agree(near_growth, &[loss, good, both, good, good]);
        assert_eq!(grown, LossScale { factor: 131_072.0, good_steps: 1 });
        let fallen = agree(LossScale::new(), &[good, overflow, overflow, good]);
        assert_eq!(fallen, LossScale { factor: 16_384.0, good_steps: 1 });
        let largest = LossScale { factor: LossScale::MAX, good_steps: LossScale::GROWTH_STEPS - 1 };
        assert_eq!(agree(largest, &[good]), LossScale { factor: LossScale::MAX, good_steps: 0 });
        let least = LossScale { factor: LossScale::MIN, good_steps: 5 };
        assert_eq!(agree(least, &[overflow]), least);
    }

    #[test]
    fn the_scale_on_the_device_stays_within_its_bounds() {
        let least = LossScale { factor: 2.0, good_steps: 3 };
        assert_eq!(agree(least, &[[true, false]; 3]).factor, LossScale::MIN);
        let largest = LossScale { factor: LossScale::MAX, good_steps: LossScale::GROWTH_STEPS - 1 };
        assert_eq!(agree(largest, &[[true, true]; 2]), LossScale { factor: LossScale::MAX, good_steps: 1 });
    }
}
