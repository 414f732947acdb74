//! The load and memory of each device, from the metrics of all processes that compute on the device.

use std::collections::{BTreeMap, BTreeSet};

use fleet::Role;
use fleet::exposition::{Exposition, Series};
use serde::{Deserialize, Serialize};
use service::devices::CPU;

use crate::processes::Processes;
use crate::rates::CounterRates;

/// The sort key of a device, by which devices are also merged: whether the device is the CPU (which comes last), the
/// number, the UUID, and the name if there is no UUID.
type Key = (bool, Option<String>, Option<String>, String);

/// The use of a device at one time. Values that no process reports are `None`; for the CPU, all values are `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceUse {
    /// Name of the device in a run file, such as `cuda:1`.
    pub device: String,
    /// Model of the device, such as `NVIDIA H100 80GB HBM3`.
    pub name: Option<String>,
    /// Number of the GPU in `nvidia-smi`. The name is not unique: processes that see different GPUs may all use `cuda`.
    pub gpu: Option<String>,
    /// UUID of the GPU, which is unique across machines.
    pub uuid: Option<String>,
    /// Roles of the processes that compute on the device.
    pub roles: BTreeSet<String>,
    /// Share of time (0 to 1) in which any program computes on the device.
    pub busy_share: Option<f64>,
    /// Share of time (0 to 1) in which the processes of the run compute on the device, added up.
    pub run_busy_share: Option<f64>,
    /// Device memory in bytes held by the processes of the run.
    pub memory_held_bytes: Option<f64>,
    /// Device memory in bytes used by all programs.
    pub memory_used_bytes: Option<f64>,
    /// Total device memory in bytes.
    pub memory_bytes: Option<f64>,
    /// Bytes per second that all programs copy from the host to the device.
    pub uploaded_per_second: Option<f64>,
    /// Bytes per second that all programs copy from the device to the host.
    pub downloaded_per_second: Option<f64>,
}

impl DeviceUse {
    /// Returns the device memory in use in bytes: by the run if the driver reports this value, else by all programs.
    pub fn memory(&self) -> Option<f64> {
        self.memory_held_bytes.or(self.memory_used_bytes)
    }

    /// Merges readings into one entry per device, with mean rates, mean shares and maximum memory.
    pub fn over<'a>(readings: impl IntoIterator<Item = &'a Self>) -> Vec<Self> {
        let mut by_device: BTreeMap<Key, Vec<&Self>> = BTreeMap::new();
        for used in readings {
            by_device.entry(used.key()).or_default().push(used);
        }
        let merge = |uses: Vec<&Self>| {
            let values =
                |value: fn(&Self) -> Option<f64>| uses.iter().filter_map(|used| value(used)).collect::<Vec<_>>();
            let mean = |value| {
                Some(values(value)).filter(|of| !of.is_empty()).map(|of| of.iter().sum::<f64>() / of.len() as f64)
            };
            let most = |value| values(value).into_iter().reduce(f64::max);
            Self {
                device: uses[0].device.clone(),
                name: uses.iter().find_map(|used| used.name.clone()),
                gpu: uses[0].gpu.clone(),
                uuid: uses[0].uuid.clone(),
                roles: uses.iter().flat_map(|used| used.roles.clone()).collect(),
                busy_share: mean(|used| used.busy_share),
                run_busy_share: mean(|used| used.run_busy_share),
                memory_held_bytes: most(|used| used.memory_held_bytes),
                memory_used_bytes: most(|used| used.memory_used_bytes),
                memory_bytes: most(|used| used.memory_bytes),
                uploaded_per_second: mean(|used| used.uploaded_per_second),
                downloaded_per_second: mean(|used| used.downloaded_per_second),
            }
        };
        by_device.into_values().map(merge).collect()
    }

    /// Returns every metric of the device with the name in event files, such as `device/cuda:1/busy_share`.
    pub(crate) fn scalars(&self) -> Vec<(String, f64)> {
        let named = [
            ("busy_share", self.busy_share),
            ("run_busy_share", self.run_busy_share),
            ("memory_held_bytes", self.memory_held_bytes),
            ("memory_used_bytes", self.memory_used_bytes),
            ("uploaded_per_second", self.uploaded_per_second),
            ("downloaded_per_second", self.downloaded_per_second),
        ];
        let scalar = |(name, value): (&str, Option<f64>)| Some((format!("device/{}/{name}", self.device), value?));
        named.into_iter().filter_map(scalar).collect()
    }

    /// Returns the device as described by the metrics of one process, without load and memory.
    fn named(device: &str, exposition: &Exposition) -> Self {
        let is_info =
            |series: &&Series| series.name == "zerofleet_device_info" && series.label("device") == Some(device);
        let info = exposition.series.iter().find(is_info);
        let label = |label| info?.label(label).filter(|value| !value.is_empty()).map(str::to_owned);
        let [name, gpu, uuid] = ["name", "gpu", "uuid"].map(label);
        Self { device: device.to_owned(), name, gpu, uuid, ..Self::default() }
    }

    fn key(&self) -> Key {
        let device = if self.uuid.is_some() { String::new() } else { self.device.clone() };
        (self.device == CPU, self.gpu.clone(), self.uuid.clone(), device)
    }

    /// Adds load and memory of the device from the metrics of one process.
    fn add(&mut self, role: &str, exposition: &Exposition) {
        let device = self.device.clone();
        let get = |name: &str| exposition.get(&format!("zerofleet_device_{name}"), &[("device", &device)]);
        let transfer = |direction| {
            let labels = [("device", device.as_str()), ("direction", direction)];
            exposition.get("zerofleet_device_transfer_bytes_per_second", &labels)
        };
        self.roles.insert(role.to_owned());
        // Takes the maximum, since processes read the counters of the device at different times.
        let most = |a: Option<f64>, b: Option<f64>| [a, b].into_iter().flatten().reduce(f64::max);
        self.busy_share = most(self.busy_share, get("busy_share"));
        self.memory_used_bytes = most(self.memory_used_bytes, get("memory_used_bytes"));
        self.memory_bytes = most(self.memory_bytes, get("memory_bytes"));
        self.uploaded_per_second = most(self.uploaded_per_second, transfer("upload"));
        self.downloaded_per_second = most(self.downloaded_per_second, transfer("download"));
        let sum = |a: Option<f64>, b: Option<f64>| [a, b].into_iter().flatten().reduce(|a, b| a + b);
        self.memory_held_bytes = sum(self.memory_held_bytes, get("memory_held_bytes"));
        self.run_busy_share = sum(self.run_busy_share, get("process_busy_share")).map(|share| share.min(1.0));
    }
}

/// Returns all devices on which these processes compute, with the CPU last.
pub(crate) fn of(processes: &Processes<'_>) -> Vec<DeviceUse> {
    let mut found: BTreeMap<Key, DeviceUse> = BTreeMap::new();
    for (role, rates) in &processes.0 {
        let Some(exposition) = rates.newest() else { continue };
        for device in holders(exposition, None) {
            let used = DeviceUse::named(device, exposition);
            found.entry(used.key()).or_insert(used).add(role.name(), exposition);
        }
    }
    found.into_values().collect()
}

/// Returns the devices that hold tensors of one process. With `what`, only tensors of this kind count.
fn holders<'a>(exposition: &'a Exposition, what: Option<&str>) -> BTreeSet<&'a str> {
    let tensors = exposition.series.iter().filter(|series| {
        let is_of_kind = what.is_none_or(|what| series.label("what") == Some(what));
        series.name == "zerofleet_device_tensors" && series.value > 0.0 && is_of_kind
    });
    tensors.filter_map(|series| series.label("device")).collect()
}

impl Processes<'_> {
    /// Returns the devices on which the processes of a role hold tensors of the kind `what`, most often one.
    pub fn device_of(&self, role: Role, what: &str) -> Option<String> {
        let expositions = self.of(role).filter_map(CounterRates::newest);
        let devices: BTreeSet<&str> = expositions.flat_map(|exposition| holders(exposition, Some(what))).collect();
        (!devices.is_empty()).then(|| devices.into_iter().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::exported;

    fn devices(processes: &[(Role, &str)]) -> Vec<DeviceUse> {
        let rates: Vec<(Role, CounterRates)> =
            processes.iter().map(|(role, text)| (*role, exported(&[text]))).collect();
        of(&Processes(rates.iter().map(|(role, rates)| (*role, rates)).collect()))
    }

    const LEARNER: &str = "zerofleet_device_tensors{what=\"parameters\",device=\"cuda\"} 1\n\
        zerofleet_device_tensors{what=\"moments\",device=\"cuda\"} 1\n\
        zerofleet_device_info{device=\"cuda\",name=\"NVIDIA H100\",gpu=\"0\",uuid=\"GPU-a\"} 1\n\
        zerofleet_device_memory_held_bytes{device=\"cuda\"} 3\n\
        zerofleet_device_memory_used_bytes{device=\"cuda\"} 9\n\
        zerofleet_device_memory_bytes{device=\"cuda\"} 80\n\
        zerofleet_device_busy_share{device=\"cuda\"} 0.5\n\
        zerofleet_device_process_busy_share{device=\"cuda\"} 0.25\n\
        zerofleet_device_transfer_bytes_per_second{device=\"cuda\",direction=\"upload\"} 7\n";
    const ACTOR: &str = "zerofleet_device_tensors{what=\"weights\",device=\"cpu\"} 0\n\
        zerofleet_device_tensors{what=\"weights\",device=\"cuda\"} 1\n\
        zerofleet_device_info{device=\"cuda\",name=\"NVIDIA H100\",gpu=\"0\",uuid=\"GPU-a\"} 1\n\
        zerofleet_device_memory_held_bytes{device=\"cuda\"} 4\n\
        zerofleet_device_busy_share{device=\"cuda\"} 0.75\n\
        zerofleet_device_process_busy_share{device=\"cuda\"} 0.375\n";
    const ON_THE_CPU: &str = "zerofleet_device_tensors{what=\"weights\",device=\"cpu\"} 1\n";

    #[test]
    fn processes_on_one_device_share_its_load_and_add_up_their_work_and_memory() {
        let found = devices(&[(Role::Learner, LEARNER), (Role::Actor, ACTOR), (Role::Arena, ON_THE_CPU)]);
        let [gpu, cpu] = &found[..] else { panic!("{found:?}") };
        assert_eq!(gpu.roles, BTreeSet::from(["learner".to_owned(), "actor".to_owned()]));
        assert_eq!(gpu.name.as_deref(), Some("NVIDIA H100"));
        assert_eq!((gpu.busy_share, gpu.memory(), gpu.memory_bytes), (Some(0.75), Some(7.0), Some(80.0)));
        assert_eq!(
            (gpu.run_busy_share, gpu.uploaded_per_second, gpu.downloaded_per_second),
            (Some(0.625), Some(7.0), None)
        );
        let expected =
            DeviceUse { device: CPU.to_owned(), roles: BTreeSet::from(["arena".to_owned()]), ..DeviceUse::default() };
        assert_eq!(*cpu, expected);
    }

    #[test]
    fn a_run_on_the_cpu_has_no_figures_of_a_device() {
        let found = devices(&[(Role::Learner, ON_THE_CPU), (Role::Actor, ON_THE_CPU)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].scalars(), []);
    }

    #[test]
    fn devices_of_one_name_on_two_machines_are_two_devices() {
        let other = LEARNER.replace("GPU-a", "GPU-b");
        assert_eq!(devices(&[(Role::Learner, LEARNER), (Role::Learner, &other)]).len(), 2);
    }

    #[test]
    fn without_the_memory_of_processes_that_of_all_programs_counts() {
        let hidden = LEARNER.replace("zerofleet_device_memory_held_bytes", "other");
        assert_eq!(devices(&[(Role::Learner, &hidden)])[0].memory(), Some(9.0));
    }

    #[test]
    fn the_device_of_tensors_is_the_one_that_they_are_on_now() {
        let tensors = |device: &str, value: u8| {
            format!("zerofleet_device_tensors{{what=\"weights\",device=\"{device}\"}} {value}\n")
        };
        let moved = exported(&[&(tensors("cpu", 0) + &tensors("cuda", 1))]);
        let other = exported(&[&tensors("cpu", 1)]);
        let one = Processes(vec![(Role::Actor, &moved)]);
        assert_eq!(one.device_of(Role::Actor, "weights").as_deref(), Some("cuda"));
        let both = Processes(vec![(Role::Actor, &moved), (Role::Actor, &other)]);
        assert_eq!(both.device_of(Role::Actor, "weights").as_deref(), Some("cpu, cuda"));
        assert_eq!(both.device_of(Role::Actor, "parameters"), None);
        assert_eq!(both.device_of(Role::Learner, "weights"), None);
    }
}
