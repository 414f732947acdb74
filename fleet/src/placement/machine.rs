//! Description of this machine: cores, memory, and the GPUs that libtorch can use.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use inference::DevicePreference;
use serde::Deserialize;
use service::gpus::{ComputeCapability, Gpu, gpus, of_cuda};
use service::machine;

use super::{Accelerators, Candidate, Machine};
use crate::wiring::Role;

/// The compute capability from which on libtorch's CUDA half has kernels.
const CAPABILITY_MIN: ComputeCapability = ComputeCapability { major: 7, minor: 5 };
/// The major version of the driver that CUDA 13 needs.
const DRIVER_MAJOR_MIN: u32 = 580;
/// The name of the GPU of an Apple machine.
const MPS: &str = "mps";
/// Time for the learner to try all devices. Loading the CUDA half takes some seconds, and so does the first step on each.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(90);
/// Interval between checks whether the trial has ended.
const TRIAL_POLL: Duration = Duration::from_millis(20);

/// The devices that the program `learner` has tried, as `learner --devices` prints them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Tried {
    /// The devices that work.
    pub(super) working: Vec<String>,
    /// The devices that do not work, each followed by a colon and the reason.
    pub(super) missing: Vec<String>,
}

impl Machine {
    /// Describes this machine. The program `learner` tries every GPU that its driver lists; without that program, all of
    /// them count as usable.
    #[must_use]
    pub fn here() -> Self {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let accelerators = match (cfg!(target_os = "macos"), gpus()) {
            (true, _) => Accelerators::One { name: MPS.to_owned(), refused: None },
            (false, Ok(gpus)) => Accelerators::listed(&gpus, visible.as_deref()),
            (false, Err(reason)) => Accelerators::None(reason),
        };
        let memory_bytes = machine::memory_bytes().unwrap_or(0);
        let machine = Self { cores: machine::cores(), memory_bytes, accelerators };
        match crate::beside_this_binary(Role::Learner.program(), Role::Learner.program()) {
            Ok(learner) if machine.has_one() || !machine.usable().is_empty() => {
                let tried = machine.tried_by(&learner);
                machine.tried(tried)
            }
            _ => machine,
        }
    }

    /// Lets the program `learner` try the devices.
    fn tried_by(&self, learner: &Path) -> anyhow::Result<Tried> {
        let mut command = Command::new(learner);
        command.arg("--devices").envs(self.order()).stdin(Stdio::null()).stderr(Stdio::null());
        let printed = output_within(command, TRIAL_TIMEOUT)?;
        serde_json::from_slice(&printed).context("parse what learner --devices printed")
    }

    /// Leaves out the accelerators that do not work. If the trial itself failed, none can be trusted: a driver that
    /// hangs or crashes there would do the same in a process of the run.
    pub(super) fn tried(mut self, tried: anyhow::Result<Tried>) -> Self {
        let reason_of = |device: &str| match &tried {
            Err(error) => Some(format!("the trial of the devices failed: {}", service::chain(error))),
            Ok(Tried { working, .. }) if working.iter().any(|works| works == device) => None,
            Ok(Tried { missing, .. }) => {
                let named = missing.iter().find_map(|missing| missing.strip_prefix(device)?.strip_prefix(": "));
                // Without the CUDA half, the first device has the reason for all.
                let first = missing.iter().find(|missing| missing.starts_with("cuda: "));
                Some(named.or(first.map(String::as_str)).unwrap_or("libtorch does not list it").to_owned())
            }
        };
        match &mut self.accelerators {
            Accelerators::Cuda(candidates) => {
                for (number, candidate) in candidates.iter_mut().enumerate() {
                    let device = DevicePreference::Cuda(number).to_string();
                    candidate.refused = candidate.refused.take().or_else(|| reason_of(&device));
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
    /// Returns the GPUs that a process sees where `CUDA_VISIBLE_DEVICES` is `visible`.
    pub(super) fn listed(gpus: &[Gpu], visible: Option<&str>) -> Self {
        let seen = (0..gpus.len()).map_while(|number| of_cuda(gpus, number, visible));
        let candidates: Vec<Candidate> =
            seen.map(|gpu| Candidate { refused: too_old(gpu), gpu: gpu.clone() }).collect();
        match visible {
            _ if !candidates.is_empty() => Self::Cuda(candidates),
            Some(partition) if partition.starts_with("MIG-") => Self::One { name: partition.to_owned(), refused: None },
            Some(visible) => Self::None(format!("CUDA_VISIBLE_DEVICES={visible} hides every GPU")),
            None => Self::None("the NVIDIA driver lists no GPU".to_owned()),
        }
    }
}

/// Returns what is too old about a GPU or its driver, and what is needed.
fn too_old(gpu: &Gpu) -> Option<String> {
    if let Some(capability) = gpu.compute_capability.filter(|&capability| capability < CAPABILITY_MIN) {
        return Some(format!("its compute capability is {capability}, and libtorch needs {CAPABILITY_MIN}"));
    }
    let driver = gpu.driver_major().filter(|&major| major < DRIVER_MAJOR_MIN)?;
    Some(format!("its driver has version {driver}, and CUDA 13 needs {DRIVER_MAJOR_MIN}: update the NVIDIA driver"))
}

/// Runs a command and returns its standard output.
///
/// # Errors
/// The command fails, or does not end within `limit` and is killed.
fn output_within(mut command: Command, limit: Duration) -> anyhow::Result<Vec<u8>> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("start the trial")?;
    let deadline = Instant::now() + limit;
    while child.try_wait().context("wait for the trial")?.is_none() {
        if Instant::now() >= deadline {
            // The process may have ended in the meantime.
            let _ = child.kill();
            let _ = child.wait();
            bail!("no answer within {} s", limit.as_secs());
        }
        std::thread::sleep(TRIAL_POLL);
    }
    // The output is a few lines, which fit the pipe, so that the process can end before they are read.
    let output = child.wait_with_output().context("read the trial")?;
    if !output.status.success() {
        bail!("{}", output.status);
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
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
    fn gpus_and_drivers_that_are_too_old_are_refused_with_what_is_needed() {
        let gpus = [gpu(0, (6, 0), "580.82.07"), gpu(1, (7, 5), "580.82.07"), gpu(2, (9, 0), "570.10")];
        let refused = refusals(&Accelerators::listed(&gpus, None));
        assert_eq!(refused[0].as_deref(), Some("its compute capability is 6.0, and libtorch needs 7.5"));
        assert_eq!(refused[1], None);
        let driver = "its driver has version 570, and CUDA 13 needs 580: update the NVIDIA driver";
        assert_eq!(refused[2].as_deref(), Some(driver));
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
            let tried = Tried { working: owned(working), missing: owned(missing) };
            refusals(&machine(Accelerators::listed(&gpus, None)).tried(Ok(tried)).accelerators)
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
        let failed = machine(Accelerators::listed(&gpus, None)).tried(Err(anyhow::anyhow!("signal: 11")));
        let reason = "the trial of the devices failed: signal: 11".to_owned();
        assert_eq!(refusals(&failed.accelerators), [Some(reason)]);
        let mps = machine(Accelerators::One { name: MPS.to_owned(), refused: None });
        assert!(!mps.tried(Err(anyhow::anyhow!("signal: 11"))).has_one());
    }

    #[test]
    fn a_trial_that_hangs_is_killed_and_one_that_fails_is_an_error() {
        let shell = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            command
        };
        let minute = Duration::from_secs(60);
        assert_eq!(output_within(shell("echo '{}'"), minute).unwrap(), b"{}\n");
        assert!(output_within(shell("exit 3"), minute).unwrap_err().to_string().contains('3'));
        let error = output_within(shell("exec tail -f /dev/null"), Duration::ZERO).unwrap_err().to_string();
        assert_eq!(error, "no answer within 0 s");
    }
}
