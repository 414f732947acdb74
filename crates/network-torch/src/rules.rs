use inference::{DevicePreference, Precision};
use tch::{Device, Kind};

use crate::{Error, gpu, gpu::ComputeCapability};

/// Returns the name of a device in a configuration.
#[must_use]
pub fn device_name(device: Device) -> String {
    match device {
        Device::Cpu => "cpu".to_owned(),
        Device::Cuda(index) => DevicePreference::Cuda(index).to_string(),
        Device::Mps => "mps".to_owned(),
        Device::Vulkan => "vulkan".to_owned(),
    }
}

/// Returns the kind of tensors in a precision.
pub(crate) fn kind(precision: Precision) -> Kind {
    match precision {
        Precision::F32 => Kind::Float,
        Precision::Bf16 => Kind::BFloat16,
        Precision::F16 => Kind::Half,
    }
}

/// Use of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Evaluating positions.
    Inference,
    /// Training steps.
    Training,
}

impl std::fmt::Display for Purpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Inference => "inference",
            Self::Training => "training",
        })
    }
}

/// Memory order of the dimensions of activations and convolution weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFormat {
    /// Activations as `[B, H, W, C]`, weights as `[out, H, W, in]`: the format of the fast kernels on CPUs and in
    /// cuDNN.
    ChannelsLast,
    /// Activations as `[B, C, H, W]`, weights as `[out, in, H, W]`.
    ChannelsFirst,
}

/// Threads that may submit work to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmittingThreads {
    /// One thread at a time, until the results have been read.
    One,
    /// Several threads at once.
    Many,
}

/// Limits of a kind of device: formats, precisions, and threads and batches for submission. See decision 0038.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRules {
    /// Format of activations and convolution weights.
    pub memory_format: MemoryFormat,
    /// Whether networks may be evaluated in bfloat16. Float32 is always possible.
    pub bf16_inference: bool,
    /// Whether networks may be evaluated in float16.
    pub f16_inference: bool,
    /// Whether networks may be trained in bfloat16.
    pub bf16_training: bool,
    /// Whether networks may be trained in float16.
    pub f16_training: bool,
    /// Whether convolutions of float32 numbers round the inputs to TF32, which has 10 bits of mantissa.
    pub tf32_convolutions: bool,
    /// Threads that may submit work.
    pub submitting_threads: SubmittingThreads,
    /// Maximum batches submitted before the oldest is read.
    pub batches_in_flight_max: usize,
    /// Whether host buffers are pinned, so that copies overlap with computation.
    pub pins_host_memory: bool,
    /// For inference, input planes are padded with zeros to a multiple of this.
    pub planes_multiple: usize,
}

impl DeviceRules {
    /// Rules of the CPU, on which every thread computes a separate batch.
    pub const CPU: Self = Self {
        memory_format: MemoryFormat::ChannelsLast,
        bf16_inference: true,
        f16_inference: true,
        bf16_training: true,
        f16_training: true,
        tf32_convolutions: false,
        submitting_threads: SubmittingThreads::Many,
        batches_in_flight_max: 1,
        pins_host_memory: false,
        planes_multiple: 1,
    };

    /// Rules of Apple's GPUs. In libtorch 2.11, batch norms on channels-last activations have wrong gradients there,
    /// batch norms of bfloat16 activations with float32 parameters abort the process, and two submitting threads can
    /// crash it. Training in float16 would need the same batch norms; float16 is not tried.
    pub const MPS: Self = Self {
        memory_format: MemoryFormat::ChannelsFirst,
        bf16_inference: true,
        f16_inference: false,
        bf16_training: false,
        f16_training: false,
        tf32_convolutions: false,
        submitting_threads: SubmittingThreads::One,
        batches_in_flight_max: 1,
        pins_host_memory: false,
        planes_multiple: 1,
    };

    /// Returns the rules of `device`. On CUDA they depend on the compute capability.
    #[must_use]
    pub fn of(device: Device) -> Self {
        match device {
            Device::Cpu | Device::Vulkan => Self::CPU,
            Device::Cuda(index) => Self::cuda(gpu::compute_capability(index).ok()),
            Device::Mps => Self::MPS,
        }
    }

    /// Returns the rules of a CUDA device. If the compute capability cannot be read, every precision is permitted, and
    /// a measurement and the probe decide.
    #[must_use]
    pub fn cuda(capability: Option<ComputeCapability>) -> Self {
        let is_from = |first: ComputeCapability| capability.is_none_or(|capability| capability >= first);
        let has_bf16 = is_from(ComputeCapability::AMPERE);
        // Before, GPUs have no matrix units, and most multiply float16 numbers at a 64th of the rate of float32.
        let has_f16 = is_from(ComputeCapability::VOLTA);
        Self {
            memory_format: MemoryFormat::ChannelsLast,
            bf16_inference: has_bf16,
            f16_inference: has_f16,
            bf16_training: has_bf16,
            f16_training: has_f16,
            tf32_convolutions: has_bf16,
            submitting_threads: SubmittingThreads::Many,
            batches_in_flight_max: 3,
            pins_host_memory: true,
            // cuDNN's matrix units take channels in groups of eight and copy tensors of other sizes.
            planes_multiple: 8,
        }
    }

    /// Returns whether a device with these rules computes in `precision` for `purpose`.
    #[must_use]
    pub fn permits(&self, precision: Precision, purpose: Purpose) -> bool {
        match (precision, purpose) {
            (Precision::F32, _) => true,
            (Precision::Bf16, Purpose::Inference) => self.bf16_inference,
            (Precision::Bf16, Purpose::Training) => self.bf16_training,
            (Precision::F16, Purpose::Inference) => self.f16_inference,
            (Precision::F16, Purpose::Training) => self.f16_training,
        }
    }

    /// Checks that `device`, which has these rules, computes in `precision` for `purpose`.
    pub(crate) fn check(&self, device: Device, precision: Precision, purpose: Purpose) -> Result<(), Error> {
        match self.permits(precision, purpose) {
            true => Ok(()),
            false => Err(Error::Device { device: device_name(device), reason: self.refusal(precision, purpose) }),
        }
    }

    /// Returns the human-readable reason why a device with these rules does not compute in `precision`.
    pub(crate) fn refusal(&self, precision: Precision, purpose: Purpose) -> String {
        match [Precision::Bf16, Precision::F16].into_iter().any(|other| self.permits(other, purpose)) {
            true => format!("the device does not support {purpose} in {precision}"),
            false => format!("the device supports {purpose} in f32 only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_computes_in_bf16_from_compute_capability_8() {
        let rules = |major, minor| DeviceRules::cuda(Some(ComputeCapability { major, minor }));
        for purpose in [Purpose::Inference, Purpose::Training] {
            assert!(rules(8, 0).permits(Precision::Bf16, purpose) && rules(12, 1).permits(Precision::Bf16, purpose));
            assert!(!rules(7, 5).permits(Precision::Bf16, purpose));
            assert!(rules(7, 5).permits(Precision::F32, purpose));
        }
        assert!(rules(9, 0).tf32_convolutions && !rules(7, 5).tf32_convolutions);
    }

    #[test]
    fn cuda_computes_in_f16_from_compute_capability_7_and_mps_does_not() {
        let rules = |major, minor| DeviceRules::cuda(Some(ComputeCapability { major, minor }));
        for purpose in [Purpose::Inference, Purpose::Training] {
            for (major, minor) in [(7, 0), (7, 5), (8, 0), (12, 0)] {
                assert!(rules(major, minor).permits(Precision::F16, purpose), "{major}.{minor}, {purpose}");
            }
            for (major, minor) in [(5, 2), (6, 0), (6, 1)] {
                assert!(!rules(major, minor).permits(Precision::F16, purpose), "{major}.{minor}, {purpose}");
            }
            assert!(DeviceRules::cuda(None).permits(Precision::F16, purpose));
            assert!(!DeviceRules::MPS.permits(Precision::F16, purpose));
        }
        let refused = DeviceRules::MPS.check(Device::Mps, Precision::F16, Purpose::Inference).unwrap_err().to_string();
        assert_eq!(refused, "cannot use device mps: the device does not support inference in f16");
    }

    #[test]
    fn mps_trains_in_f32_with_channels_first_from_one_thread() {
        let rules = DeviceRules::of(Device::Mps);
        assert!(!rules.permits(Precision::Bf16, Purpose::Training) && rules.permits(Precision::F32, Purpose::Training));
        assert_eq!(rules.memory_format, MemoryFormat::ChannelsFirst);
        assert_eq!((rules.submitting_threads, rules.batches_in_flight_max), (SubmittingThreads::One, 1));
    }
}
