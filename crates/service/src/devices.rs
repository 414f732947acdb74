//! The devices that a process computes on, as metrics: `zerofleet_device_…` in docs/metrics.md.
//!
//! A process calls [`placed`] with a device for each kind of tensors. While any is an accelerator, a task of
//! [`run`](crate::run) reads load and memory once a second. A process on the CPU exports only the placement. A value
//! that the driver does not report is not exported.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metrics::gauge;

use crate::gpus::{Gpu, Gpus, Transfers, of_cuda};
use crate::reasons::Reasons;
use crate::{Drain, machine};

/// The name of the CPU as a device.
pub const CPU: &str = "cpu";
/// Interval between readings; the driver's figures cover about the same time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reason why a device that CUDA numbers is not read.
const UNLISTED: &str =
    "the driver lists no such GPU: CUDA_VISIBLE_DEVICES names a partition of a GPU, or hides the GPU";

/// Device of each kind of tensors in this process.
static PLACED: std::sync::Mutex<BTreeMap<&'static str, String>> = std::sync::Mutex::new(BTreeMap::new());

/// The reasons for work without graphs.
static REFUSALS: Reasons = Reasons::new();

/// Exports whether a kind of work on a CUDA device is submitted as graphs: `what` is the kind (`evaluation`,
/// `training`), `refusal` the reason why it is not, empty if it is, and `None` without such a device. Once stated, a
/// reason applies to the end of the process.
pub fn graphs(what: &'static str, refusal: Option<String>) {
    let Some(refusal) = refusal else { return };
    let current = REFUSALS.label(&refusal);
    for reason in [String::new(), current.clone()] {
        let is_current = f64::from(u8::from(reason == current));
        gauge!("zerofleet_device_graphs", "what" => what, "reason" => reason).set(is_current);
    }
}

/// Exports the device of a kind of tensors: `what` is the kind (`weights`, `parameters`, …), `device` the name in a
/// configuration (`cpu`, `cuda:1`, `mps`). A later call replaces the device of the same kind.
pub fn placed(what: &'static str, device: &str) {
    let mut placed = PLACED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(before) = placed.insert(what, device.to_owned()).filter(|before| before != device) {
        gauge!("zerofleet_device_tensors", "what" => what, "device" => before).set(0.0);
    }
    gauge!("zerofleet_device_tensors", "what" => what, "device" => device.to_owned()).set(1.0);
}

/// Starts the readings, which stop with the drain. Must be called on a runtime.
pub(crate) fn start(drain: Drain) {
    let runtime = tokio::runtime::Handle::current();
    // A driver may block as long as a failing device does: neither a worker of the runtime nor the exit of the
    // process may wait for it. The runtime abandons a blocking task at shutdown.
    tokio::task::spawn_blocking(move || {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        // NVML is opened with the first reading, so that a process on the CPU never opens it.
        let mut gpus: Option<Result<Gpus, String>> = None;
        let mut sampler = Sampler::new(|ordinal| {
            let gpus = gpus.get_or_insert_with(Gpus::open).as_ref().map_err(String::clone)?;
            let all = gpus.read()?;
            let gpu = of_cuda(&all, ordinal, visible.as_deref()).ok_or(UNLISTED)?.clone();
            let transfers = gpus.transfers(gpu.index);
            Ok((gpu, transfers))
        });
        while runtime.block_on(async { tokio::time::timeout(INTERVAL, drain.wait()).await.is_err() }) {
            sampler.sample(&accelerators());
        }
    });
}

/// Returns the accelerators that hold tensors of this process.
fn accelerators() -> BTreeSet<String> {
    let placed = PLACED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    placed.values().filter(|device| *device != CPU).cloned().collect()
}

/// Exports readings of devices; `R` reads a CUDA device by ordinal, or returns the reason why it cannot.
struct Sampler<R> {
    read: R,
    /// Maximum memory observed in use by this process, by device.
    held_bytes_max: BTreeMap<String, u64>,
    /// Devices on which the driver has listed work of this process: a later reading without work is idle time, rather
    /// than unknown.
    busy: BTreeSet<String>,
    /// Reason why a device cannot be read, by device. Each is logged once.
    unread: BTreeMap<String, String>,
}

impl<R: FnMut(usize) -> Result<(Gpu, Transfers), String>> Sampler<R> {
    fn new(read: R) -> Self {
        Self { read, held_bytes_max: BTreeMap::new(), busy: BTreeSet::new(), unread: BTreeMap::new() }
    }

    /// Reads these devices and sets the metrics. A value that cannot be read keeps the last reading.
    fn sample(&mut self, devices: &BTreeSet<String>) {
        for device in devices {
            match ordinal(device) {
                Some(ordinal) => match (self.read)(ordinal) {
                    Ok((gpu, transfers)) => self.export(device, &gpu, transfers),
                    Err(reason) => self.warn(device, reason),
                },
                // The GPU of an Apple machine is a part of the processor, and no driver reports the load.
                None => info(device, &machine::cpu_model(), "", ""),
            }
        }
    }

    fn warn(&mut self, device: &str, reason: String) {
        if let Entry::Vacant(first) = self.unread.entry(device.to_owned()) {
            tracing::warn!(device, "no load, memory or transfers of the device are measured: {reason}");
            first.insert(reason);
        }
    }

    fn export(&mut self, device: &str, gpu: &Gpu, transfers: Transfers) {
        info(device, &gpu.name, &gpu.index.to_string(), &gpu.uuid);
        let labels = [("device", device.to_owned())];
        if let Some(held) = gpu.memory_held_bytes {
            let most = self.held_bytes_max.entry(device.to_owned()).or_default();
            *most = held.max(*most);
            gauge!("zerofleet_device_memory_held_bytes", &labels).set(held as f64);
            gauge!("zerofleet_device_memory_held_bytes_max", &labels).set(*most as f64);
        }
        if let Some(used) = gpu.memory_used_bytes {
            gauge!("zerofleet_device_memory_used_bytes", &labels).set(used as f64);
        }
        if let Some(total) = gpu.memory_total_bytes {
            gauge!("zerofleet_device_memory_bytes", &labels).set(total as f64);
        }
        if let Some(share) = gpu.busy_share {
            gauge!("zerofleet_device_busy_share", &labels).set(share);
        }
        let is_idle = self.busy.contains(device);
        if let Some(share) = gpu.process_busy_share.or(is_idle.then_some(0.0)) {
            self.busy.insert(device.to_owned());
            gauge!("zerofleet_device_process_busy_share", &labels).set(share);
        }
        for (direction, rate) in
            [("upload", transfers.uploaded_per_second), ("download", transfers.downloaded_per_second)]
        {
            if let Some(rate) = rate {
                gauge!("zerofleet_device_transfer_bytes_per_second", "device" => device.to_owned(),
                       "direction" => direction)
                .set(rate);
            }
        }
    }
}

fn info(device: &str, name: &str, gpu: &str, uuid: &str) {
    let labels = [("device", device), ("name", name), ("gpu", gpu), ("uuid", uuid)];
    gauge!("zerofleet_device_info", &labels.map(|(label, value)| (label, value.to_owned()))).set(1.0);
}

/// Returns the ordinal of a CUDA device: 0 for `cuda`, 1 for `cuda:1`; `None` for another device.
fn ordinal(device: &str) -> Option<usize> {
    match device.strip_prefix("cuda")? {
        "" => Some(0),
        index => index.strip_prefix(':')?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    /// Returns the metrics that `work` exports, as lines.
    fn exported(work: impl FnOnce()) -> Vec<String> {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, work);
        let text = recorder.handle().render();
        let mut lines: Vec<String> =
            text.lines().filter(|line| line.starts_with("zerofleet_device_")).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn named(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn gpu(held: u64) -> Gpu {
        Gpu {
            index: 3,
            name: "NVIDIA H100".to_owned(),
            uuid: "GPU-a".to_owned(),
            memory_total_bytes: Some(80),
            memory_used_bytes: Some(30),
            memory_held_bytes: Some(held),
            busy_share: Some(0.5),
            ..Gpu::default()
        }
    }

    #[test]
    fn a_device_exports_its_name_its_load_and_its_memory_with_the_peak() {
        let mut held = [20, 10].into_iter();
        let transfers = Transfers { uploaded_per_second: Some(7.0), downloaded_per_second: None };
        let lines = exported(|| {
            let mut sampler = Sampler::new(|ordinal| {
                assert_eq!(ordinal, 1);
                Ok((gpu(held.next().unwrap()), transfers))
            });
            sampler.sample(&named(&["cuda:1"]));
            sampler.sample(&named(&["cuda:1"]));
        });
        let expected = [
            "zerofleet_device_busy_share{device=\"cuda:1\"} 0.5",
            "zerofleet_device_info{device=\"cuda:1\",name=\"NVIDIA H100\",gpu=\"3\",uuid=\"GPU-a\"} 1",
            "zerofleet_device_memory_bytes{device=\"cuda:1\"} 80",
            "zerofleet_device_memory_held_bytes_max{device=\"cuda:1\"} 20",
            "zerofleet_device_memory_held_bytes{device=\"cuda:1\"} 10",
            "zerofleet_device_memory_used_bytes{device=\"cuda:1\"} 30",
            "zerofleet_device_transfer_bytes_per_second{device=\"cuda:1\",direction=\"upload\"} 7",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_device_whose_driver_does_not_answer_exports_nothing_and_keeps_the_first_reason() {
        let mut reasons = ["no capability", "no permission"].into_iter();
        let lines = exported(|| {
            let mut sampler = Sampler::new(|_| Err(reasons.next().unwrap().to_owned()));
            sampler.sample(&named(&["cuda"]));
            sampler.sample(&named(&["cuda"]));
            assert_eq!(sampler.unread, BTreeMap::from([("cuda".to_owned(), "no capability".to_owned())]));
        });
        assert_eq!(lines, [""; 0]);
        assert_eq!(exported(|| Sampler::new(|_| panic!("nothing is read")).sample(&named(&[]))), [""; 0]);
    }

    #[test]
    fn a_container_in_which_the_driver_does_not_know_the_process_exports_the_device_alone() {
        let device = Gpu { memory_held_bytes: None, process_busy_share: None, ..gpu(0) };
        let lines = exported(|| {
            Sampler::new(|_| Ok((device.clone(), Transfers::default()))).sample(&named(&["cuda"]));
        });
        let names: Vec<&str> = lines.iter().filter_map(|line| line.split('{').next()).collect();
        let of_the_device = ["busy_share", "info", "memory_bytes", "memory_used_bytes"];
        assert_eq!(names, of_the_device.map(|name| format!("zerofleet_device_{name}")));
    }

    #[test]
    fn a_process_that_the_driver_has_seen_at_work_is_idle_afterwards() {
        let mut shares = [None, Some(0.25), None].into_iter();
        let mut sampler = Sampler::new(|_| {
            let process_busy_share = shares.next().unwrap();
            Ok((Gpu { process_busy_share, ..gpu(1) }, Transfers::default()))
        });
        let mut share = || {
            let lines = exported(|| sampler.sample(&named(&["cuda"])));
            let of_process =
                |line: &String| Some(line.split_once("process_busy_share{device=\"cuda\"} ")?.1.to_owned());
            lines.iter().find_map(of_process)
        };
        assert_eq!([share(), share(), share()], [None, Some("0.25".to_owned()), Some("0".to_owned())]);
    }

    #[test]
    fn the_gpu_of_an_apple_machine_has_a_name_and_no_load() {
        let lines = exported(|| Sampler::new(|_| panic!("no driver reports it")).sample(&named(&["mps"])));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("zerofleet_device_info{device=\"mps\""), "{lines:?}");
    }

    #[test]
    fn tensors_that_move_are_on_their_new_device_only() {
        let lines = exported(|| {
            placed("weights", "cuda");
            placed("weights", CPU);
            placed("weights", CPU);
        });
        let expected = [
            "zerofleet_device_tensors{what=\"weights\",device=\"cpu\"} 1",
            "zerofleet_device_tensors{what=\"weights\",device=\"cuda\"} 0",
        ];
        assert_eq!(lines, expected);
        assert_eq!(accelerators(), named(&[]));
    }

    #[test]
    fn work_is_submitted_as_graphs_until_a_reason_is_stated() {
        assert_eq!(exported(|| graphs("evaluation", None)), [""; 0]);
        let used = "zerofleet_device_graphs{what=\"evaluation\",reason=\"\"}";
        assert_eq!(exported(|| graphs("evaluation", Some(String::new()))), [format!("{used} 1")]);
        let lines = exported(|| {
            for refusal in ["", "no library", "no library"] {
                graphs("evaluation", Some(refusal.to_owned()));
            }
        });
        let refused = "zerofleet_device_graphs{what=\"evaluation\",reason=\"no library\"} 1";
        assert_eq!(lines, [format!("{used} 0"), refused.to_owned()]);
    }

    #[test]
    fn only_cuda_devices_have_an_ordinal() {
        let ordinals = ["cuda", "cuda:3", "mps", "cuda:x", "cpu"].map(ordinal);
        assert_eq!(ordinals, [Some(0), Some(3), None, None, None]);
    }
}
