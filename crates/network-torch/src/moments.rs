//! Moments of an optimiser as tensors, in the formats of [`training::moments`], with the same rounding repeated on
//! the device: the same random numbers, and the same codes up to float32 rounding.

use tch::{Device, Kind, Tensor};
use training::moments::{BLOCK, MIX_FACTORS, Stored, code_values};
use training::{MomentFormat, MomentKind};

use crate::{Error, network};

const BLOCK_LEN: i64 = BLOCK as i64;
/// The 32 bits of an unsigned number within 64.
const MASK: i64 = 0xffff_ffff;

/// An optimiser moment `[P]` on a device.
#[derive(Debug)]
pub(crate) struct Moment {
    kind: MomentKind,
    /// Float, `BFloat16`, or `Uint8` for codes: `[P]`.
    numbers: Tensor,
    /// Scales of 8-bit codes: `[⌈P / BLOCK⌉]`.
    scales: Option<Tensor>,
    /// Value of each 8-bit code, kept on the device so that no step copies from the host.
    values: Option<Tensor>,
}

impl Moment {
    /// Copies a moment to a device.
    pub(crate) fn upload(moment: &training::Moment, device: Device) -> Result<Self, Error> {
        let (numbers, scales) = match &moment.stored {
            Stored::F32(numbers) => (network::upload(numbers, device)?, None),
            Stored::Bf16(bits) => {
                let bits: Vec<i16> = bits.iter().map(|bits| bits.cast_signed()).collect();
                (Tensor::f_from_slice(&bits)?.f_view_dtype(Kind::BFloat16)?.f_to_device(device)?, None)
            }
            Stored::Int8 { codes, scales } => {
                (Tensor::f_from_slice(codes)?.f_to_device(device)?, Some(network::upload(scales, device)?))
            }
        };
        let has_codes = scales.is_some();
        let values = has_codes.then(|| network::upload(code_values(moment.kind), device)).transpose()?;
        Ok(Self { kind: moment.kind, numbers, scales, values })
    }

    /// Copies the moment to host memory.
    pub(crate) fn download(&self) -> Result<training::Moment, Error> {
        let on_host = self.numbers.f_detach()?.f_to_device(Device::Cpu)?;
        let len = on_host.numel();
        let stored = match (on_host.kind(), &self.scales) {
            (Kind::BFloat16, _) => {
                let mut bits = vec![0_i16; len];
                on_host.f_view_dtype(Kind::Int16)?.f_copy_data(&mut bits, len)?;
                Stored::Bf16(bits.into_iter().map(i16::cast_unsigned).collect())
            }
            (Kind::Uint8, Some(scales)) => {
                let mut codes = vec![0_u8; len];
                on_host.f_copy_data(&mut codes, len)?;
                Stored::Int8 { codes, scales: network::download(scales)? }
            }
            _ => Stored::F32(network::download(&on_host)?),
        };
        Ok(training::Moment { kind: self.kind, stored })
    }

    /// Returns the same tensors.
    pub(crate) fn shallow_clone(&self) -> Self {
        Self {
            kind: self.kind,
            numbers: self.numbers.shallow_clone(),
            scales: self.scales.as_ref().map(Tensor::shallow_clone),
            values: self.values.as_ref().map(Tensor::shallow_clone),
        }
    }

    /// Iterates over the tensors that a step writes.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        std::iter::once(&self.numbers).chain(&self.scales)
    }

    /// Returns the tensors for modification.
    pub(crate) fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        std::iter::once(&mut self.numbers).chain(&mut self.scales)
    }

    /// Returns the device of the moment.
    pub(crate) fn device(&self) -> Device {
        self.numbers.device()
    }

    /// Returns the tensor itself if it is float32, for a step in place.
    pub(crate) fn floats(&self) -> Option<Tensor> {
        (self.numbers.kind() == Kind::Float).then(|| self.numbers.shallow_clone())
    }

    /// Returns the numbers from `start`, a block boundary, as float32 `[len]`.
    pub(crate) fn read(&self, start: i64, len: i64) -> Result<Tensor, Error> {
        let numbers = self.numbers.f_narrow(0, start, len)?;
        let (Some(scales), Some(values)) = (&self.scales, &self.values) else {
            return Ok(numbers.f_to_kind(Kind::Float)?);
        };
        let values = values.f_index_select(0, &numbers.f_to_kind(Kind::Int64)?)?;
        let value = values.f_mul(&by_number(scales, start, len)?)?;
        Ok(if self.kind == MomentKind::Square { value.f_square()? } else { value })
    }

    /// Rounds numbers `[len]` stochastically and stores them from `start` on, if `is_applied` `[1]`.
    pub(crate) fn write(
        &self,
        start: i64,
        numbers: &Tensor,
        rounding: &Rounding,
        is_applied: &Tensor,
    ) -> Result<(), Error> {
        let len = numbers.size1()?;
        let keep = |new: &Tensor, place: &Tensor| -> Result<(), Error> {
            Ok(place.shallow_clone().f_copy_(&new.f_where_self(is_applied, place)?)?)
        };
        let place = self.numbers.f_narrow(0, start, len)?;
        let bits = rounding.bits(start, len)?;
        let (Some(scales), Some(values)) = (&self.scales, &self.values) else {
            // The upper half of a float32 is a bfloat16.
            let added = bits.f_bitwise_right_shift_tensor_scalar(16_i64)?.f_to_kind(Kind::Int)?;
            let upper = numbers.f_view_dtype(Kind::Int)?.f_add(&added)?.f_bitwise_and(-0x1_0000_i64)?;
            return keep(&upper.f_view_dtype(Kind::Float)?.f_to_kind(Kind::BFloat16)?, &place);
        };
        let coded = if self.kind == MomentKind::Square { numbers.f_sqrt()? } else { numbers.shallow_clone() };
        let blocks = blocks_of(len);
        let padded = coded.f_abs()?.f_constant_pad_nd([0, blocks * BLOCK_LEN - len])?;
        let largest = padded.f_view([blocks, BLOCK_LEN])?.f_amax([1_i64].as_slice(), false)?;
        let divisors = largest.f_clamp_min(f64::from(f32::MIN_POSITIVE))?;
        let relative = coded.f_div(&by_number(&divisors, 0, len)?)?;
        let last = i64::try_from(values.numel()).expect("codes have 8 bits") - 1;
        let below = relative.f_bucketize(values, false, true)?.f_sub_scalar(1_i64)?.f_clamp(0_i64, last - 1)?;
        let [lower, upper] =
            [values.f_index_select(0, &below)?, values.f_index_select(0, &below.f_add_scalar(1_i64)?)?];
        let share = relative.f_sub(&lower)?.f_div(&upper.f_sub(&lower)?)?;
        let drawn = bits.f_bitwise_right_shift_tensor_scalar(8_i64)?.f_to_kind(Kind::Float)?;
        let is_above = drawn.f_multiply_scalar(1.0 / f64::from(1 << 24))?.f_lt_tensor(&share)?;
        let mut codes = below.f_add(&is_above.f_to_kind(Kind::Int64)?)?;
        if self.kind == MomentKind::Square {
            codes = codes.f_maximum(&relative.f_gt(0.0)?.f_to_kind(Kind::Int64)?)?;
        }
        keep(&codes.f_to_kind(Kind::Uint8)?, &place)?;
        keep(&largest, &scales.f_narrow(0, start / BLOCK_LEN, blocks)?)
    }
}

/// Random key of a step and a moment, `[1]`, Int64.
#[derive(Debug)]
pub(crate) struct Rounding(Tensor);

impl Rounding {
    /// Returns [`training::moments::Rounding::stochastic`] for the step `[1]`, float32, on the step's device.
    pub(crate) fn stochastic(step: &Tensor, moment: usize) -> Result<Self, Error> {
        let moment = i64::try_from(moment).expect("an optimiser has few moments");
        let counter = step.f_to_kind(Kind::Int64)?.f_multiply_scalar(2_i64)?.f_add_scalar(moment)?;
        Ok(Self(mixed(&counter.f_bitwise_and(MASK)?)?))
    }

    /// Returns random bits for `len` numbers, `[len]`, Int64.
    fn bits(&self, start: i64, len: i64) -> Result<Tensor, Error> {
        let indices = Tensor::f_arange_start(start, start + len, (Kind::Int64, self.0.device()))?;
        mixed(&indices.f_bitwise_and(MASK)?.f_bitwise_xor_tensor(&self.0)?)
    }
}

/// Applies the 32-bit bijection of [`training::moments`].
fn mixed(x: &Tensor) -> Result<Tensor, Error> {
    let shifted = |x: &Tensor, by: i64| -> Result<Tensor, Error> {
        Ok(x.f_bitwise_xor_tensor(&x.f_bitwise_right_shift_tensor_scalar(by)?)?)
    };
    // The lower half of a product is right although 64 bits overflow.
    let multiplied = |x: &Tensor, factor: u32| -> Result<Tensor, Error> {
        Ok(x.f_multiply_scalar(i64::from(factor))?.f_bitwise_and(MASK)?)
    };
    let x = multiplied(&shifted(x, 16)?, MIX_FACTORS[0])?;
    let x = multiplied(&shifted(&x, 15)?, MIX_FACTORS[1])?;
    shifted(&x, 16)
}

/// Returns the number of blocks in `len` numbers; the last block may be smaller.
fn blocks_of(len: i64) -> i64 {
    (len + BLOCK_LEN - 1) / BLOCK_LEN
}

/// Returns the block scale of each of `len` numbers from `start` on, a block boundary.
fn by_number(scales: &Tensor, start: i64, len: i64) -> Result<Tensor, Error> {
    let blocks = scales.f_narrow(0, start / BLOCK_LEN, blocks_of(len))?;
    let repeated = blocks.f_view([-1, 1])?.f_expand([-1, BLOCK_LEN], false)?.f_reshape([-1])?;
    Ok(repeated.f_narrow(0, 0, len)?)
}

/// Creates a moment of zeros on a device.
pub(crate) fn zeros(kind: MomentKind, format: MomentFormat, len: usize, device: Device) -> Result<Moment, Error> {
    Moment::upload(&training::Moment::zeros(kind, format, len), device)
}

#[cfg(test)]
mod tests {
    use tch::{Device, Tensor};
    use training::moments::Rounding as OnHost;
    use training::{MomentFormat, MomentKind};

    use super::{Moment, Rounding, zeros};
    use crate::network::download;

    /// Numbers over several powers of ten.
    fn numbers(kind: MomentKind, len: usize) -> Vec<f32> {
        let number = |index: usize| {
            let magnitude = 10_f32.powf(-((index * 37 % 101) as f32) / 25.0);
            if kind == MomentKind::Gradient && index.is_multiple_of(3) { -magnitude } else { magnitude }
        };
        (0..len).map(number).collect()
    }

    #[test]
    fn numbers_are_rounded_as_the_kernels_of_the_cpu_round_them() {
        for kind in [MomentKind::Gradient, MomentKind::Square] {
            for format in [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Int8] {
                let numbers = numbers(kind, 1100);
                let moment = zeros(kind, format, 1100, Device::Cpu).unwrap();
                let rounding = Rounding::stochastic(&Tensor::from_slice(&[7.0_f32]), 1).unwrap();
                let mut expected = training::Moment::zeros(kind, format, 1100);
                for (part, start) in expected.parts(512).iter_mut().zip([0, 512, 1024]) {
                    let numbers = &numbers[start..1100.min(start + 512)];
                    part.write(numbers, OnHost::stochastic(7, 1), start);
                    if format != MomentFormat::F32 {
                        let is_applied = Tensor::from_slice(&[true]);
                        moment.write(start as i64, &Tensor::from_slice(numbers), &rounding, &is_applied).unwrap();
                    }
                }
                if format == MomentFormat::F32 {
                    continue;
                }
                let got = moment.download().unwrap();
                // Division and subtraction may round differently, which changes a code next to a drawn number.
                let apart = got.to_floats().iter().zip(expected.to_floats()).filter(|(got, x)| **got != *x).count();
                assert!(apart <= 2, "{apart} of 1100 numbers of {kind:?} in {format} differ");
                assert_eq!(download(&moment.read(512, 588).unwrap()).unwrap(), got.to_floats()[512..]);
                assert_eq!(Moment::upload(&got, Device::Cpu).unwrap().download().unwrap(), got);

                let refused = Tensor::from_slice(&[false]);
                moment.write(0, &Tensor::from_slice(&[f32::NAN; 512]), &rounding, &refused).unwrap();
                assert_eq!(moment.download().unwrap(), got, "a refused step changed a moment");
            }
        }
    }
}
