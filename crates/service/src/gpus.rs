//! NVIDIA GPUs, read through NVML, the driver's library.
//!
//! The library is opened at run time, so that one program serves machines with and without it. Start reading at
//! [`Gpus`].

use std::path::Path;
use std::time::{Duration, SystemTime};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};

/// Minimum major version of the NVIDIA driver for CUDA 13.
pub const DRIVER_MAJOR_MIN: u32 = 580;
/// Remedy for a GPU or driver that the libtorch of `cargo xtask libtorch` does not support.
pub const OTHER_LIBTORCH: &str =
    "set LIBTORCH to a libtorch 2.11 for an older CUDA, see docs/install.md#an-older-driver";
/// Minimum compute capability with kernels in libtorch.
pub const CAPABILITY_MIN: ComputeCapability = ComputeCapability { major: 7, minor: 5 };

/// Device node of the NVIDIA driver, which every container with a GPU has, whatever parts of the driver it has.
const CONTROL_NODE: &str = "/dev/nvidiactl";
/// Time that the load of a process is read for. The driver samples processes about once a second.
const SAMPLED: Duration = Duration::from_secs(2);

/// A GPU with the load at one time. A value that the driver does not report is `None`.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct Gpu {
    /// Index in NVML and in `nvidia-smi`: by PCI bus, over all GPUs of the machine or container.
    pub index: usize,
    /// Model, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Identity, such as `GPU-8f5c…`; empty if the driver does not report it.
    pub uuid: String,
    /// Driver version, such as `580.82.07`.
    pub driver: String,
    /// Compute capability, such as 9.0.
    pub compute_capability: Option<ComputeCapability>,
    /// Memory of the device.
    pub memory_total_bytes: Option<u64>,
    /// Memory held by all processes and the driver.
    pub memory_used_bytes: Option<u64>,
    /// Memory held by this process. In a container with separate process ids, drivers list this process under the id
    /// of the host, or without memory: the value is then `None`.
    pub memory_held_bytes: Option<u64>,
    /// Share of the driver's last sampling period (0.2 to 1 s) in which at least one kernel of any process ran.
    pub busy_share: Option<f64>,
    /// Share of the last two seconds in which kernels of this process ran. `None` without any, and in a container in
    /// which the driver lists this process under the id of the host.
    pub process_busy_share: Option<f64>,
}

impl Gpu {
    /// Returns the major version of the driver.
    #[must_use]
    pub fn driver_major(&self) -> Option<u32> {
        self.driver.split('.').next()?.parse().ok()
    }
}

/// The generation of a GPU's instruction set. Versions compare in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct ComputeCapability {
    /// Digits before the dot.
    pub major: u32,
    /// Digits after the dot.
    pub minor: u32,
}

impl std::fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Bytes per second between the host and a GPU over the bus, for all processes. A value that the driver does not
/// report is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Transfers {
    /// Bytes per second to the GPU.
    pub uploaded_per_second: Option<f64>,
    /// Bytes per second from the GPU.
    pub downloaded_per_second: Option<f64>,
}

/// An open NVML. Opening takes milliseconds and a reading much less, so that repeated readings should keep this value.
#[derive(Debug)]
pub struct Gpus {
    nvml: Nvml,
    driver: String,
}

impl Gpus {
    /// Opens NVML.
    ///
    /// # Errors
    /// The library is missing, or the driver does not respond; the text is for a person to read.
    pub fn open() -> Result<Self, String> {
        if cfg!(target_os = "macos") {
            return Err("macOS has no NVIDIA driver".to_owned());
        }
        let nvml = Nvml::init().map_err(|error| unopened(&error, Path::new(CONTROL_NODE)))?;
        let driver = nvml.sys_driver_version().unwrap_or_default();
        Ok(Self { nvml, driver })
    }

    /// Reads every GPU, by index. A GPU that does not respond is left out.
    ///
    /// # Errors
    /// The driver no longer responds.
    pub fn read(&self) -> Result<Vec<Gpu>, String> {
        let count = self.nvml.device_count().map_err(|error| format!("the NVIDIA driver lists no GPUs: {error}"))?;
        Ok((0..count).filter_map(|index| self.gpu(index)).collect())
    }

    /// Measures the transfers between host and GPU `index` (in NVML's order) for about 40 ms.
    #[must_use]
    pub fn transfers(&self, index: usize) -> Transfers {
        let device = u32::try_from(index).ok().and_then(|index| self.nvml.device_by_index(index).ok());
        // The driver reports kilobytes per second.
        let rate = |counter| Some(f64::from(device.as_ref()?.pcie_throughput(counter).ok()?) * 1e3);
        Transfers {
            uploaded_per_second: rate(PcieUtilCounter::Receive),
            downloaded_per_second: rate(PcieUtilCounter::Send),
        }
    }

    fn gpu(&self, index: u32) -> Option<Gpu> {
        let device = self.nvml.device_by_index(index).ok()?;
        let memory = device.memory_info().ok();
        let capability = device.cuda_compute_capability().ok();
        let version = |part: i32| u32::try_from(part).ok();
        let (this, samples) = (std::process::id(), device.process_utilization_stats(sampled_since()));
        Some(Gpu {
            index: usize::try_from(index).ok()?,
            name: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
            uuid: device.uuid().unwrap_or_default(),
            driver: self.driver.clone(),
            compute_capability: capability.and_then(|capability| {
                Some(ComputeCapability { major: version(capability.major)?, minor: version(capability.minor)? })
            }),
            memory_total_bytes: memory.as_ref().map(|memory| memory.total),
            memory_used_bytes: memory.as_ref().map(|memory| memory.used),
            memory_held_bytes: device.running_compute_processes().ok().and_then(|list| held(&list, this)),
            busy_share: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
            process_busy_share: samples.ok().and_then(|samples| busy(&samples, this)),
        })
    }
}

/// Reads every GPU once; [`Gpus`] reads repeatedly.
///
/// # Errors
/// As [`Gpus::open`] and [`Gpus::read`]; a machine without an NVIDIA driver is an error.
pub fn gpus() -> Result<Vec<Gpu>, String> {
    Gpus::open()?.read()
}

/// Returns the GPU that a program sees as CUDA device `ordinal`; `visible` is the value of `CUDA_VISIBLE_DEVICES`.
///
/// CUDA numbers the visible devices from zero, in the order of the variable. Without the variable, the fastest comes
/// first, which is the order of NVML if all GPUs are of one model. `None` if the variable hides the device or names a
/// partition of a GPU.
#[must_use]
pub fn of_cuda<'a>(gpus: &'a [Gpu], ordinal: usize, visible: Option<&str>) -> Option<&'a Gpu> {
    let Some(visible) = visible else { return gpus.get(ordinal) };
    let named = visible.split(',').map(str::trim).nth(ordinal).filter(|named| !named.is_empty())?;
    let by_index = |index: usize| gpus.iter().find(|gpu| gpu.index == index);
    // CUDA accepts any unambiguous prefix of an identity.
    let by_identity = || gpus.iter().find(|gpu| named.starts_with("GPU-") && gpu.uuid.starts_with(named));
    named.parse().ok().map_or_else(by_identity, by_index)
}

/// Returns the memory held by process `id`; `None` if it is not listed, or listed without memory.
fn held(listed: &[ProcessInfo], id: u32) -> Option<u64> {
    let of_process = listed.iter().filter(|process| process.pid == id);
    of_process.fold(None, |held, process| match process.used_gpu_memory {
        // No process computes without memory: in containers, drivers find the process and not the memory.
        UsedGpuMemory::Unavailable | UsedGpuMemory::Used(0) => held,
        UsedGpuMemory::Used(bytes) => Some(held.unwrap_or(0) + bytes),
    })
}

/// Returns the mean load by process `id` in samples of the driver; `None` without a sample.
fn busy(samples: &[ProcessUtilizationSample], id: u32) -> Option<f64> {
    let shares: Vec<f64> =
        samples.iter().filter(|sample| sample.pid == id).map(|sample| f64::from(sample.sm_util) / 100.0).collect();
    (!shares.is_empty()).then(|| (shares.iter().sum::<f64>() / shares.len() as f64).min(1.0))
}

/// Returns the start of the time that the load of a process is read for, in microseconds since 1970.
fn sampled_since() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(now.saturating_sub(SAMPLED).as_micros()).unwrap_or(0)
}

/// Describes the reason why NVML cannot be opened, with a remedy if one is known. `control_node` is the path of
/// [`CONTROL_NODE`].
fn unopened(error: &NvmlError, control_node: &Path) -> String {
    match error {
        NvmlError::LibloadingError(reason) if !reason.to_string().to_lowercase().contains("no such file") => {
            format!("the library of the NVIDIA driver cannot be loaded: {reason}")
        }
        NvmlError::LibloadingError(_) if control_node.exists() => {
            "a GPU is present, and the library libnvidia-ml.so.1 of the NVIDIA driver is missing: the container lacks \
             the driver capability `utility`, start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility; without a \
             container: install the complete driver"
                .to_owned()
        }
        NvmlError::LibloadingError(_) => {
            "no NVIDIA driver is installed (its library libnvidia-ml.so.1 is missing); in a \
             container: it was started without GPUs, see `docker run --gpus all`"
                .to_owned()
        }
        NvmlError::DriverNotLoaded => {
            "the NVIDIA driver is installed but not loaded: `sudo modprobe nvidia`, or restart the machine".to_owned()
        }
        NvmlError::LibRmVersionMismatch => {
            "the NVIDIA driver was updated while an earlier version is loaded: restart the machine".to_owned()
        }
        NvmlError::NoPermission => {
            "this user may not use the NVIDIA driver: check the permissions of /dev/nvidia*".to_owned()
        }
        error => format!("the NVIDIA driver does not respond: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: usize, uuid: &str) -> Gpu {
        Gpu { index, uuid: uuid.to_owned(), driver: "580.82.07".to_owned(), ..Gpu::default() }
    }

    #[test]
    fn cuda_numbers_the_visible_gpus_in_the_order_of_the_variable() {
        let gpus = [gpu(0, "GPU-aa"), gpu(1, "GPU-bb"), gpu(2, "GPU-cc")];
        let index = |ordinal, visible| of_cuda(&gpus, ordinal, visible).map(|gpu| gpu.index);
        assert_eq!(index(1, None), Some(1));
        assert_eq!(index(3, None), None);
        assert_eq!((index(0, Some("2,0")), index(1, Some("2,0")), index(2, Some("2,0"))), (Some(2), Some(0), None));
        assert_eq!(index(0, Some("GPU-b")), Some(1), "the beginning of an identity is enough");
        for hidden in ["", "-1", "NoDevFiles", "MIG-bb", "GPU-dd", "7"] {
            assert_eq!(index(0, Some(hidden)), None, "{hidden}");
        }
    }

    #[test]
    fn the_memory_of_a_process_is_the_sum_over_its_entries_and_unknown_without_any() {
        let entry = |pid, used_gpu_memory| ProcessInfo {
            pid,
            used_gpu_memory,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let listed = [
            entry(7, UsedGpuMemory::Used(3)),
            entry(8, UsedGpuMemory::Used(50)),
            entry(7, UsedGpuMemory::Used(4)),
            entry(9, UsedGpuMemory::Unavailable),
        ];
        assert_eq!([held(&listed, 7), held(&listed, 9), held(&listed, 10)], [Some(7), None, None]);
    }

    #[test]
    fn a_process_that_a_container_lists_without_memory_holds_an_unknown_amount() {
        let used_gpu_memory = UsedGpuMemory::Used(0);
        let listed = [ProcessInfo { pid: 1, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None }];
        assert_eq!(held(&listed, 1), None);
    }

    #[test]
    fn the_load_by_a_process_is_the_mean_of_its_samples_and_unknown_without_any() {
        let sample = |pid, sm_util| ProcessUtilizationSample {
            pid,
            timestamp: 1,
            sm_util,
            mem_util: 90,
            enc_util: 0,
            dec_util: 0,
        };
        let samples = [sample(7, 25), sample(8, 100), sample(7, 75), sample(9, 130)];
        assert_eq!([7, 9, 1].map(|id| busy(&samples, id)), [Some(0.5), Some(1.0), None]);
    }

    #[test]
    fn a_library_that_does_not_open_is_missing_without_gpus_without_a_capability_or_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (library, node) = (folder.path().join("libnvidia-ml.so.1"), folder.path().join("nvidiactl"));
        let reason = || {
            let error = Nvml::builder().lib_path(library.as_os_str()).init().unwrap_err();
            unopened(&error, &node)
        };
        assert!(reason().starts_with("no NVIDIA driver is installed (its library libnvidia-ml.so.1 is missing)"));
        std::fs::write(&node, "").unwrap();
        assert!(reason().contains("lacks the driver capability `utility`"), "{}", reason());
        std::fs::write(&library, "no library").unwrap();
        assert!(reason().starts_with("the library of the NVIDIA driver cannot be loaded: "), "{}", reason());
    }

    #[test]
    fn a_driver_that_refuses_names_what_to_check() {
        let reason = |error| unopened(&error, Path::new("/nowhere"));
        assert!(reason(NvmlError::NoPermission).contains("the permissions of /dev/nvidia*"));
        assert!(reason(NvmlError::DriverNotLoaded).contains("modprobe nvidia"));
        assert!(reason(NvmlError::GpuLost).starts_with("the NVIDIA driver does not respond: "));
    }

    #[test]
    fn the_major_version_of_a_driver_is_its_first_number() {
        assert_eq!(gpu(0, "").driver_major(), Some(580));
        assert_eq!(Gpu::default().driver_major(), None);
    }

    #[test]
    fn compute_capabilities_compare_by_version() {
        let capability = |major, minor| ComputeCapability { major, minor };
        assert!(capability(7, 5) < capability(8, 0) && capability(9, 0) < capability(12, 0));
        assert_eq!(capability(7, 5).to_string(), "7.5");
    }

    /// Passes on every machine: without a driver there is a reason, with a driver complete readings.
    #[test]
    fn this_machine_lists_its_gpus_or_gives_a_reason() {
        match gpus() {
            Ok(gpus) => assert!(gpus.iter().all(|gpu| !gpu.name.is_empty() && !gpu.driver.is_empty()), "{gpus:?}"),
            Err(reason) => assert!(!reason.is_empty() && !reason.contains('\n'), "{reason}"),
        }
    }
}
