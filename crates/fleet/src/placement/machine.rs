//! Describes this machine: cores, memory, and the GPUs that libtorch can use.

use inference::DevicePreference;
use service::device_trial::DeviceTrial;
use service::gpus::{CAPABILITY_MIN, DRIVER_MAJOR_MIN, Gpu, OTHER_LIBTORCH, gpus, of_cuda};
use service::machine;

use super::{Accelerators, Candidate, Machine, Place};
use crate::trial::{TIME_LIMIT, try_devices};
use crate::wiring::Role;

/// Device name of the GPU in an Apple machine.
const MPS: &str = "mps";

impl Machine {
    /// Describes this machine. The program `learner` tests every GPU that the driver lists; if `learner` is missing,
    /// all GPUs count as usable.
    #[must_use]
    pub fn here() -> Self {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let accelerators = match (cfg!(target_os = "macos"), gpus()) {
            (true, _) => Accelerators::One { name: MPS.to_owned(), refused: None },
            (false, Ok(gpus)) => Accelerators::listed(&gpus, visible.as_deref()),
            (false, Err(reason)) => Accelerators::None(reason),
        };
        let machine = Self { accelerators, ..Self::without_accelerators() };
        match crate::beside_this_binary(Role::Learner.program(), Role::Learner.program()) {
            Ok(learner) if machine.has_one() || !machine.usable().is_empty() => {
                let tried = try_devices(&learner, &machine.variables(), TIME_LIMIT);
                machine.tried(&tried)
            }
            _ => machine,
        }
    }

    /// Describes this machine for a run that uses only the CPU.
    #[must_use]
    pub fn without_accelerators() -> Self {
        let accelerators = Accelerators::None("the run uses only the CPU".to_owned());
        Self { cores: machine::cores(), memory_bytes: machine::memory_bytes().unwrap_or(0), accelerators }
    }

    /// Returns true if a process with this device setting and place may use an NVIDIA GPU, or a partition of one.
    pub(super) fn may_use_cuda(&self, device: DevicePreference, place: Place) -> bool {
        match (&self.accelerators, place, device) {
            (Accelerators::None(_), ..) => false,
            (_, Place::Gpu(_), _) | (_, _, DevicePreference::Cuda(_)) => true,
            (Accelerators::One { name, refused: None }, Place::Configured, DevicePreference::Auto) => name != MPS,
            _ => false,
        }
    }

    /// Marks accelerators that do not work as refused. If the trial itself failed, all accelerators are refused: a
    /// driver that hangs or crashes in the trial would also do so in the run. A GPU or driver that is too old for the
    /// usual libtorch may work with another one, and is the reason only if it does not.
    pub(super) fn tried(mut self, tried: &Result<DeviceTrial, String>) -> Self {
        let reason_of = |device: &str| match tried {
            Err(reason) => Some(reason.clone()),
            Ok(trial) => trial.refusal(device).map(str::to_owned),
        };
        match &mut self.accelerators {
            Accelerators::Cuda(candidates) => {
                for (number, candidate) in candidates.iter_mut().enumerate() {
                    let device = DevicePreference::Cuda(number).to_string();
                    candidate.refused = reason_of(&device).map(|reason| too_old(&candidate.gpu).unwrap_or(reason));
                }
            }
            Accelerators::One { name, refused } => {
                let device = if name == MPS { MPS.to_owned() } else { DevicePreference::Cuda(0).to_string() };
                *refused = reason_of(&device);
            }
            Accelerators::None(_) => {}
        }
        self
    }
}

impl Accelerators {
    /// Returns the GPUs that a process sees if `CUDA_VISIBLE_DEVICES` is `visible`.
    pub(super) fn listed(gpus: &[Gpu], visible: Option<&str>) -> Self {
        let seen = (0..gpus.len()).map_while(|number| of_cuda(gpus, number, visible));
        let candidates: Vec<Candidate> = seen.map(|gpu| Candidate { refused: None, gpu: gpu.clone() }).collect();
        match visible {
            _ if !candidates.is_empty() => Self::Cuda(candidates),
            Some(partition) if partition.starts_with("MIG-") => Self::One { name: partition.to_owned(), refused: None },
            Some(visible) => Self::None(format!("CUDA_VISIBLE_DEVICES={visible} hides every GPU")),
            None => Self::None("the NVIDIA driver lists no GPU".to_owned()),
        }
    }
}

/// Returns the reason why a GPU or driver is too old, with the required version and the remedy.
fn too_old(gpu: &Gpu) -> Option<String> {
    if let Some(capability) = gpu.compute_capability.filter(|&capability| capability < CAPABILITY_MIN) {
        return Some(format!(
            "compute capability is {capability}, but libtorch needs {CAPABILITY_MIN}; {OTHER_LIBTORCH}"
        ));
    }
    let driver = gpu.driver_major().filter(|&major| major < DRIVER_MAJOR_MIN)?;
    let needed = format!("driver has version {driver}, but CUDA 13 needs {DRIVER_MAJOR_MIN}");
    Some(format!("{needed}; update the NVIDIA driver, or {OTHER_LIBTORCH}"))
}

#[cfg(test)]
mod tests {
    use service::gpus::ComputeCapability;

    use super::*;

    fn gpu(index: usize, capability: (u32, u32), driver: &str) -> Gpu {
        let (major, minor) = capability;
        Gpu {
            index,
            name: "A100".to_owned(),
            uuid: format!("GPU-{index}"),
            driver: driver.to_owned(),
            compute_capability: Some(ComputeCapability { major, minor }),
            ..Gpu::default()
        }
    }

    fn refusals(accelerators: &Accelerators) -> Vec<Option<String>> {
        let Accelerators::Cuda(candidates) = accelerators else { panic!("no GPUs: {accelerators:?}") };
        candidates.iter().map(|candidate| candidate.refused.clone()).collect()
    }

    fn machine(accelerators: Accelerators) -> Machine {
        Machine { cores: 8, memory_bytes: 1 << 34, accelerators }
    }

    #[test]
    fn gpus_and_drivers_that_are_too_old_are_refused_with_what_is_needed_unless_they_work() {
        let gpus = [gpu(0, (6, 0), "580.82.07"), gpu(1, (7, 5), "580.82.07"), gpu(2, (9, 0), "570.10")];
        let tried = |trial: DeviceTrial| {
            let machine = machine(Accelerators::listed(&gpus, None));
            let refused = refusals(&machine.tried(&Ok(trial)).accelerators);
            refused.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>()
        };
        let missing = vec!["cuda: libtorch finds no CUDA device or no matching driver".to_owned()];
        let refused = tried(DeviceTrial { missing, ..DeviceTrial::default() });
        assert!(
            refused[0].starts_with("compute capability is 6.0, but libtorch needs 7.5; set LIBTORCH"),
            "{refused:?}"
        );
        assert_eq!(refused[1], "libtorch finds no CUDA device or no matching driver");
        let driver = "driver has version 570, but CUDA 13 needs 580; update the NVIDIA driver, or set LIBTORCH to a";
        assert!(refused[2].starts_with(driver), "{refused:?}");
        let working = ["cuda", "cuda:1", "cuda:2"].map(str::to_owned).into();
        assert_eq!(tried(DeviceTrial { working, ..DeviceTrial::default() }), ["", "", ""]);
    }

    #[test]
    fn only_visible_gpus_are_listed_in_the_order_of_the_variable() {
        let gpus = [0, 1, 2].map(|index| gpu(index, (9, 0), "580.1"));
        let Accelerators::Cuda(listed) = Accelerators::listed(&gpus, Some("2,0")) else { panic!("no GPUs") };
        assert_eq!(listed.iter().map(|candidate| candidate.gpu.index).collect::<Vec<_>>(), [2, 0]);
        let hidden = Accelerators::listed(&gpus, Some(""));
        assert_eq!(hidden, Accelerators::None("CUDA_VISIBLE_DEVICES= hides every GPU".to_owned()));
        let partition = Accelerators::listed(&gpus, Some("MIG-5"));
        assert_eq!(partition, Accelerators::One { name: "MIG-5".to_owned(), refused: None });
    }

    #[test]
    fn a_gpu_that_fails_its_trial_is_refused_with_the_reason() {
        let gpus = [0, 1].map(|index| gpu(index, (9, 0), "580.1"));
        let tried = |working: &[&str], missing: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
            let (working, missing) = (owned(working), owned(missing));
            let trial = DeviceTrial { working, missing, ..DeviceTrial::default() };
            refusals(&machine(Accelerators::listed(&gpus, None)).tried(&Ok(trial)).accelerators)
        };
        assert_eq!(tried(&["cpu", "cuda", "cuda:1"], &["mps: no MPS"]), [None, None]);
        let reason = Some("the training step differs".to_owned());
        assert_eq!(tried(&["cpu", "cuda"], &["cuda:1: the training step differs"]), [None, reason]);
        let missing = tried(&["cpu"], &["cuda: libtorch_cuda.so is missing"]);
        assert!(missing.iter().flatten().all(|reason| reason.contains("libtorch_cuda.so is missing")), "{missing:?}");
        assert_eq!(missing.iter().flatten().count(), 2);
    }

    #[test]
    fn no_gpu_is_trusted_if_the_trial_itself_fails() {
        let gpus = [gpu(0, (9, 0), "580.1")];
        let failed = machine(Accelerators::listed(&gpus, None)).tried(&Err("signal: 11".to_owned()));
        let reason = "signal: 11".to_owned();
        assert_eq!(refusals(&failed.accelerators), [Some(reason)]);
        let mps = machine(Accelerators::One { name: MPS.to_owned(), refused: None });
        assert!(!mps.tried(&Err("signal: 11".to_owned())).has_one());
    }
}
