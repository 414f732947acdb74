use tch::{Device, Kind, Tensor};

use crate::{Error, gpu::Completion, network};
use training::{LOSSES, Losses, PARTS};

/// Index of the gradient norm, which follows the parts of the loss.
pub(super) const GRADIENT_NORM: i64 = PARTS as i64;
/// Number of leading scalars that must be finite.
pub(super) const FINITE: i64 = GRADIENT_NORM + 1;

/// Scalars and value errors of a step, in transfer from the device.
#[derive(Debug)]
pub(super) struct Measured {
    /// `[S + B]`, or `[S]` without value errors.
    numbers: Tensor,
    /// S: [`LOSSES`], and one more with a loss scale.
    scalars: usize,
    /// End of the copy, if the numbers are being copied to pinned memory.
    copied: Option<Completion>,
}

/// Joins scalars `[S]` and value errors `[B]`, so that one copy transfers both.
pub(super) fn joined(scalars: &Tensor, value_errors: Option<&Tensor>) -> Result<Tensor, Error> {
    Ok(match value_errors {
        Some(errors) => Tensor::f_cat(&[scalars, errors], 0)?,
        None => scalars.shallow_clone(),
    })
}

/// Measured results of a step.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) losses: Losses,
    pub(super) value_errors: Vec<f32>,
    /// Loss scale of the step.
    pub(super) loss_scale: Option<f32>,
    /// The point of the copy, for a later step.
    pub(super) completion: Option<Completion>,
}

impl Measured {
    /// Reads `numbers`, scalars `[S]` and value errors `[B]` as [`joined`] returns them: on CUDA starts the copy. A
    /// later step may write to `numbers`. `idle` are points of earlier steps.
    pub(super) fn new(numbers: &Tensor, scalars: usize, idle: &mut Vec<Completion>) -> Result<Self, Error> {
        if let Device::Cuda(index) = numbers.device() {
            // libtorch pins the memory of a copy that does not block. A blocking copy, started when the numbers are
            // read, would be queued after the next step.
            let copy = numbers.f_to_device_(Device::Cpu, Kind::Float, true, false)?;
            let completion = idle.pop().map_or_else(|| Completion::new(index), Ok);
            if let Ok(copied) = completion.and_then(|copied| copied.record().map(|()| copied)) {
                return Ok(Self { numbers: copy, scalars, copied: Some(copied) });
            }
        }
        Ok(Self { numbers: numbers.f_detach_copy()?, scalars, copied: None })
    }

    /// Waits for the numbers: the losses, with the L2 term scaled by the weight decay, the value errors, and the loss
    /// scale.
    pub(super) fn read(self, weight_decay: f64) -> Result<Read, Error> {
        let _guard = tch::no_grad_guard();
        if let Some(copied) = &self.copied {
            copied.wait()?;
        }
        let numbers = network::download(&self.numbers)?;
        let (scalars, value_errors) = numbers.split_at(self.scalars);
        let (losses, loss_scale) = scalars.split_first_chunk::<LOSSES>().expect("the losses are first");
        let losses = Losses::from_array(losses.map(f64::from));
        let losses = Losses { l2: 0.5 * weight_decay * losses.l2, ..losses };
        let loss_scale = loss_scale.first().copied();
        Ok(Read { losses, value_errors: value_errors.to_vec(), loss_scale, completion: self.copied })
    }
}
