//! Fuses inference convolutions with the operations after them: bias, addition of a skip connection, ReLU.
//!
//! On CUDA, cuDNN computes all of them in one kernel, which saves passes over memory. [`on_device`] decides whether
//! to use that: it compares the fused operators with separate operations on the device. [`Fusing`] dispatches.

use std::sync::{Mutex, PoisonError};

use network::Activation;
use tch::{Device, Tensor};
use weights::Architecture;

#[cfg(test)]
use crate::tests::recorder::{self, Operation};
use crate::{
    Error,
    layers::{self, Affine},
};
use inference::Precision;

/// Operators that fuse a convolution with the operations after it.
pub(crate) trait FusedOperators: std::fmt::Debug + Sync {
    /// Computes `relu(convolution of x + bias)`: `[B, in, H, W]` to `[B, out, H, W]`.
    fn convolve_relu(&self, layer: &Affine, x: &Tensor) -> Result<Tensor, Error>;

    /// Computes `relu(convolution of x + alpha · z + bias)`: x `[B, in, H, W]` and z `[B, out, H, W]` to
    /// `[B, out, H, W]`.
    fn convolve_add_relu(&self, layer: &Affine, x: &Tensor, z: &Tensor, alpha: f64) -> Result<Tensor, Error>;
}

/// cuDNN's fused operators.
#[derive(Debug)]
struct Cudnn;

const ONE: [i64; 2] = [1, 1];

impl FusedOperators for Cudnn {
    fn convolve_relu(&self, Affine { weight, bias, .. }: &Affine, x: &Tensor) -> Result<Tensor, Error> {
        let border = [weight.size()[2] / 2; 2];
        Ok(x.f_cudnn_convolution_relu(weight, Some(bias), ONE, border, ONE, 1)?)
    }

    fn convolve_add_relu(
        &self,
        Affine { weight, bias, .. }: &Affine,
        x: &Tensor,
        z: &Tensor,
        alpha: f64,
    ) -> Result<Tensor, Error> {
        let border = [weight.size()[2] / 2; 2];
        Ok(x.f_cudnn_convolution_add_relu(weight, z, alpha, Some(bias), ONE, border, ONE, 1)?)
    }
}

/// Implementation of convolutions and the operations after them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fusing {
    /// One operation after the other.
    Separate,
    /// Each convolution with all operations after it.
    Fused(&'static dyn FusedOperators),
    /// As `Fused`, but only with the operator that adds. libtorch's operator without an addition adds the unwritten
    /// output times zero, which is NaN where the memory holds NaN. A convolution with equal numbers of inputs and
    /// outputs adds the input times zero instead; other convolutions are separate.
    FusedAdditions(&'static dyn FusedOperators),
}

impl Fusing {
    /// Computes an activation of `convolution of x + bias`: `[B, in, H, W]` to `[B, out, H, W]`. Operators fuse ReLU
    /// alone.
    pub(crate) fn convolve(self, layer: &Affine, x: &Tensor, activation: Activation) -> Result<Tensor, Error> {
        match activation {
            Activation::Relu => self.convolve_relu(layer, x),
            other => layers::activate(layer.convolve(x)?, other),
        }
    }

    /// Computes an activation of `convolution of x + bias + skip`: x `[B, in, H, W]` and skip `[B, out, H, W]` to
    /// `[B, out, H, W]`.
    pub(crate) fn convolve_add(
        self,
        layer: &Affine,
        x: &Tensor,
        skip: &Tensor,
        activation: Activation,
    ) -> Result<Tensor, Error> {
        if activation == Activation::Relu {
            return self.convolve_add_relu(layer, x, skip);
        }
        let mut y = layer.convolve(x)?;
        let _ = y.f_add_(skip)?;
        layers::activate(y, activation)
    }

    /// Computes `relu(convolution of x + bias)`: `[B, in, H, W]` to `[B, out, H, W]`.
    pub(crate) fn convolve_relu(self, layer: &Affine, x: &Tensor) -> Result<Tensor, Error> {
        let (outputs, inputs, ..) = layer.weight.size4()?;
        let y = match self {
            Self::Fused(operators) => operators.convolve_relu(layer, x)?,
            Self::FusedAdditions(operators) if inputs == outputs => operators.convolve_add_relu(layer, x, x, 0.0)?,
            Self::Separate | Self::FusedAdditions(_) => {
                let mut y = layer.convolve(x)?;
                let _ = y.f_relu_()?;
                return Ok(y);
            }
        };
        #[cfg(test)]
        recorder::record(Operation::Convolution, [x, &layer.weight, &y]);
        Ok(y)
    }

    /// Computes `relu(convolution of x + bias + skip)`: x `[B, in, H, W]` and skip `[B, out, H, W]` to
    /// `[B, out, H, W]`.
    pub(crate) fn convolve_add_relu(self, layer: &Affine, x: &Tensor, skip: &Tensor) -> Result<Tensor, Error> {
        let y = match self {
            Self::Fused(operators) | Self::FusedAdditions(operators) => {
                operators.convolve_add_relu(layer, x, skip, 1.0)?
            }
            Self::Separate => {
                let mut y = layer.convolve(x)?;
                let _ = y.f_add_(skip)?.f_relu_()?;
                return Ok(y);
            }
        };
        #[cfg(test)]
        recorder::record(Operation::Convolution, [x, &layer.weight, &y]);
        Ok(y)
    }
}

/// A convolution with inputs, for comparing fused operators with separate operations.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) layer: &'a Affine,
    /// `[B, in, H, W]`.
    pub(crate) x: Tensor,
    /// `[B, out, H, W]`.
    pub(crate) skip: Tensor,
}

/// A decision with the reason.
#[derive(Debug, Clone)]
struct Decision {
    fusing: Fusing,
    /// Human-readable.
    description: String,
}

/// Decisions so far: weights of the same network are loaded again and again.
static DECISIONS: Mutex<Vec<(Architecture, Device, Precision, Decision)>> = Mutex::new(Vec::new());

/// Returns the implementation of a network's convolutions on `device`. On CUDA, `samples` are compared once per
/// network and precision; other devices compute separately.
///
/// # Errors
/// [`Error::OutOfMemory`] if the device has too little memory for the comparison.
pub(crate) fn on_device<'a>(
    architecture: &Architecture,
    device: Device,
    precision: Precision,
    samples: impl FnOnce() -> Result<Vec<Sample<'a>>, Error>,
) -> Result<Fusing, Error> {
    if !device.is_cuda() {
        return Ok(Fusing::Separate);
    }
    let mut decisions = DECISIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = decisions.iter().find(|(of, on, with, _)| (of, on, with) == (architecture, &device, &precision));
    if let Some((.., decision)) = found {
        return Ok(decision.fusing);
    }
    let decision = decide(&Cudnn, &samples()?, precision)?;
    let fusing = decision.fusing;
    decisions.push((architecture.clone(), device, precision, decision));
    Ok(fusing)
}

/// Returns a human-readable description of the convolutions on `device`, with the reason if they are not fused.
/// `None` on devices other than CUDA and before the first network was loaded.
pub(crate) fn description(device: Device) -> Option<String> {
    let decisions = DECISIONS.lock().unwrap_or_else(PoisonError::into_inner);
    decisions.iter().rev().find(|(_, on, ..)| *on == device).map(|(.., decision)| decision.description.clone())
}

/// Returns the maximum difference, relative to the largest number, since sums have another order and bfloat16 is
/// rounded at other places. In float32 both may round the inputs to TF32.
fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 3e-3,
        Precision::Bf16 | Precision::F16 => 2e-2,
    }
}

/// Chooses the form that fuses most and agrees with the separate operations on every sample.
fn decide(
    operators: &'static dyn FusedOperators,
    samples: &[Sample<'_>],
    precision: Precision,
) -> Result<Decision, Error> {
    let whole = match compare(Fusing::Fused(operators), samples, precision)? {
        Ok(()) => {
            let description = "convolutions fused with bias, addition and ReLU".to_owned();
            return Ok(Decision { fusing: Fusing::Fused(operators), description });
        }
        Err(reason) => reason,
    };
    match compare(Fusing::FusedAdditions(operators), samples, precision)? {
        Ok(()) => Ok(Decision {
            fusing: Fusing::FusedAdditions(operators),
            description: format!("convolutions fused by the operator with an addition only: {whole}"),
        }),
        Err(reason) => Ok(Decision {
            fusing: Fusing::Separate,
            description: format!("convolutions not fused: {whole}; fusing with an addition only: {reason}"),
        }),
    }
}

/// Returns the reason why `fusing` cannot be used, if there is one. Exhausted memory is an error.
fn compare(fusing: Fusing, samples: &[Sample<'_>], precision: Precision) -> Result<Result<(), String>, Error> {
    let _guard = tch::no_grad_guard();
    let tolerance = tolerance(precision);
    for Sample { layer, x, skip } in samples {
        let expected = [Fusing::Separate.convolve_relu(layer, x)?, Fusing::Separate.convolve_add_relu(layer, x, skip)?];
        let fused = [
            poisoned(&expected[0], || fusing.convolve_relu(layer, x))?,
            poisoned(&expected[1], || fusing.convolve_add_relu(layer, x, skip))?,
        ];
        for ((name, fused), expected) in ["ReLU", "addition and ReLU"].into_iter().zip(fused).zip(&expected) {
            let differs = match fused {
                Err(Error::OutOfMemory { message }) => return Err(Error::OutOfMemory { message }),
                Err(error) => format!("fails: {error}"),
                Ok(fused) => match distance(&fused, expected)? {
                    apart if apart <= tolerance => continue,
                    apart => format!("differs by {apart:.1e} (relative), the limit is {tolerance:.0e}"),
                },
            };
            return Ok(Err(format!("the convolution of {:?} with {name} {differs}", x.size())));
        }
        if precision == Precision::F16 && hides_overflow(fusing, layer, x, skip)? {
            return Ok(Err(format!("the convolution of {:?} turns NaN into numbers", x.size())));
        }
    }
    Ok(Ok(()))
}

/// Returns whether a ReLU of `fusing` has a finite result for NaN, so that an activation beyond the range of float16
/// would not be seen in the logits.
fn hides_overflow(fusing: Fusing, layer: &Affine, x: &Tensor, skip: &Tensor) -> Result<bool, Error> {
    let overflowed = x.f_full_like(f64::NAN)?;
    let results = [fusing.convolve_relu(layer, &overflowed)?, fusing.convolve_add_relu(layer, &overflowed, skip)?];
    let is_hidden = |y: &Tensor| Ok::<_, Error>(y.f_isfinite()?.f_any()?.f_int64_value(&[])? != 0);
    Ok(is_hidden(&results[0])? || is_hidden(&results[1])?)
}

/// Calls `operator` after filling the memory that the output will most likely get with NaN.
fn poisoned<T>(output: &Tensor, operator: impl FnOnce() -> T) -> Result<T, Error> {
    let rubbish = [(); 4].map(|()| output.f_full_like(f64::NAN));
    for tensor in rubbish {
        drop(tensor?);
    }
    Ok(operator())
}

/// Returns the largest difference relative to the largest expected number; infinite if a number is not finite.
pub(crate) fn distance(got: &Tensor, expected: &Tensor) -> Result<f64, Error> {
    let wide = |tensor: &Tensor| tensor.f_to_kind(tch::Kind::Float);
    let (got, expected) = (wide(got)?, wide(expected)?);
    let apart = got.f_sub(&expected)?.f_abs()?.f_max()?.f_double_value(&[])?;
    let relative = apart / expected.f_abs()?.f_max()?.f_double_value(&[])?.max(1e-6);
    Ok(if relative.is_finite() { relative } else { f64::INFINITY })
}

#[cfg(test)]
mod tests;
