//! The use of each device, from the metrics of all processes on it.

use std::collections::{BTreeMap, BTreeSet};

use fleet::exposition::{Exposition, Series};
use serde::{Deserialize, Serialize};
use service::devices::CPU;

use super::{Processes, RunMetrics};
use crate::screen::number;

/// Order and identity of devices: the CPU last, then the number, the identity, and the name of a device without an
/// identity.
type Key = (bool, Option<String>, Option<String>, String);

/// A device at one time, with the processes that compute on it. Values that no process reports are missing, which on
/// a CPU are all of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceUse {
    /// Name in a configuration: `cuda:1`.
    pub device: String,
    /// Model: `NVIDIA H100 80GB HBM3`.
    pub name: Option<String>,
    /// Number in `nvidia-smi`. Processes that each see a different GPU may use the same name for it.
    pub gpu: Option<String>,
    /// Identity, which differs between two machines.
    pub uuid: Option<String>,
    /// Roles of the processes that compute on the device.
    pub roles: BTreeSet<String>,
    /// Share of time spent computing, for all programs.
    pub busy_share: Option<f64>,
    /// Memory held by these processes.
    pub memory_held_bytes: Option<f64>,
    /// Memory held by all programs.
    pub memory_used_bytes: Option<f64>,
    /// Memory of the device.
    pub memory_bytes: Option<f64>,
    /// Bytes per second from the host, of all programs.
    pub uploaded_per_second: Option<f64>,
    /// Bytes per second to the host, of all programs.
    pub downloaded_per_second: Option<f64>,
}

impl DeviceUse {
    /// Returns the memory in use: by the run if the driver reports it, else by all programs.
    pub(crate) fn memory(&self) -> Option<f64> {
        self.memory_held_bytes.or(self.memory_used_bytes)
    }

    /// Returns every device in the readings of a run, with mean rates and shares and maximum memory.
    pub(crate) fn over(readings: &[RunMetrics]) -> Vec<Self> {
        let mut by_device: BTreeMap<Key, Vec<&Self>> = BTreeMap::new();
        for used in readings.iter().flat_map(|reading| &reading.devices) {
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
                memory_held_bytes: most(|used| used.memory_held_bytes),
                memory_used_bytes: most(|used| used.memory_used_bytes),
                memory_bytes: most(|used| used.memory_bytes),
                uploaded_per_second: mean(|used| used.uploaded_per_second),
                downloaded_per_second: mean(|used| used.downloaded_per_second),
            }
        };
        by_device.into_values().map(merge).collect()
    }

    /// Formats the device as one line; unknown values are left out.
    pub(super) fn line(&self) -> String {
        let roles: Vec<&str> = self.roles.iter().map(String::as_str).collect();
        // The maker is implied by `cuda`, and the line must fit a terminal.
        let name = self.name.as_deref().map(|name| format!(" {}", name.trim_start_matches("NVIDIA ")));
        let busy = self.busy_share.map(|share| format!("busy {:.0} %", 100.0 * share));
        let gigabytes = |bytes: f64| number(Some(bytes / 1e9));
        let memory = self.memory().map(|held| match self.memory_bytes {
            Some(total) => format!("{} of {} GB", gigabytes(held), gigabytes(total)),
            None => format!("{} GB", gigabytes(held)),
        });
        let figures: Vec<String> = busy.into_iter().chain(memory).collect();
        let figures = if figures.is_empty() { String::new() } else { format!(": {}", figures.join(", ")) };
        let device = self.gpu.as_ref().map_or_else(|| self.device.clone(), |gpu| format!("GPU {gpu}"));
        format!("{device}{} ({}){figures}", name.unwrap_or_default(), roles.join(", "))
    }

    /// Returns every metric with the name in event files: `device/cuda:1/busy_share`.
    pub(super) fn scalars(&self) -> Vec<(String, f64)> {
        let named = [
            ("busy_share", self.busy_share),
            ("memory_held_bytes", self.memory_held_bytes),
            ("memory_used_bytes", self.memory_used_bytes),
            ("uploaded_per_second", self.uploaded_per_second),
            ("downloaded_per_second", self.downloaded_per_second),
        ];
        let scalar = |(name, value): (&str, Option<f64>)| Some((format!("device/{}/{name}", self.device), value?));
        named.into_iter().filter_map(scalar).collect()
    }

    /// Returns the device as described by this process, without the load.
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

    /// Adds the report of another process on this device.
    fn add(&mut self, role: &str, exposition: &Exposition) {
        let device = self.device.clone();
        let get = |name: &str| exposition.get(&format!("zerofleet_device_{name}"), &[("device", &device)]);
        let transfer = |direction| {
            let labels = [("device", device.as_str()), ("direction", direction)];
            exposition.get("zerofleet_device_transfer_bytes_per_second", &labels)
        };
        self.roles.insert(role.to_owned());
        // Processes read the same device at different times.
        let most = |a: Option<f64>, b: Option<f64>| [a, b].into_iter().flatten().reduce(f64::max);
        self.busy_share = most(self.busy_share, get("busy_share"));
        self.memory_used_bytes = most(self.memory_used_bytes, get("memory_used_bytes"));
        self.memory_bytes = most(self.memory_bytes, get("memory_bytes"));
        self.uploaded_per_second = most(self.uploaded_per_second, transfer("upload"));
        self.downloaded_per_second = most(self.downloaded_per_second, transfer("download"));
        let held = [self.memory_held_bytes, get("memory_held_bytes")];
        self.memory_held_bytes = held.into_iter().flatten().reduce(|a, b| a + b);
    }
}

/// Returns the devices with tensors of these processes, the CPU last.
pub(super) fn of(processes: &Processes<'_>) -> Vec<DeviceUse> {
    let mut found: BTreeMap<Key, DeviceUse> = BTreeMap::new();
    for (role, rates) in &processes.0 {
        let Some(exposition) = rates.newest() else { continue };
        let placed =
            exposition.series.iter().filter(|series| series.name == "zerofleet_device_tensors" && series.value > 0.0);
        let devices: BTreeSet<&str> = placed.filter_map(|series| series.label("device")).collect();
        for device in devices {
            let used = DeviceUse::named(device, exposition);
            found.entry(used.key()).or_insert(used).add(role.name(), exposition);
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use fleet::Role;

    use super::*;
    use crate::run_metrics::{CounterRates, device_lines};

    fn devices(processes: &[(Role, &str)]) -> Vec<DeviceUse> {
        let rates: Vec<(Role, CounterRates)> = processes
            .iter()
            .map(|(role, text)| {
                let mut rates = CounterRates::default();
                rates.remember(Instant::now(), Exposition::parse(text));
                (*role, rates)
            })
            .collect();
        of(&Processes(rates.iter().map(|(role, rates)| (*role, rates)).collect()))
    }

    const LEARNER: &str = "zerofleet_device_tensors{what=\"parameters\",device=\"cuda\"} 1\n\
        zerofleet_device_tensors{what=\"moments\",device=\"cuda\"} 1\n\
        zerofleet_device_info{device=\"cuda\",name=\"NVIDIA H100\",gpu=\"0\",uuid=\"GPU-a\"} 1\n\
        zerofleet_device_memory_held_bytes{device=\"cuda\"} 3\n\
        zerofleet_device_memory_used_bytes{device=\"cuda\"} 9\n\
        zerofleet_device_memory_bytes{device=\"cuda\"} 80\n\
        zerofleet_device_busy_share{device=\"cuda\"} 0.5\n\
        zerofleet_device_transfer_bytes_per_second{device=\"cuda\",direction=\"upload\"} 7\n";
    const ACTOR: &str = "zerofleet_device_tensors{what=\"weights\",device=\"cpu\"} 0\n\
        zerofleet_device_tensors{what=\"weights\",device=\"cuda\"} 1\n\
        zerofleet_device_info{device=\"cuda\",name=\"NVIDIA H100\",gpu=\"0\",uuid=\"GPU-a\"} 1\n\
        zerofleet_device_memory_held_bytes{device=\"cuda\"} 4\n\
        zerofleet_device_busy_share{device=\"cuda\"} 0.75\n";
    const ON_THE_CPU: &str = "zerofleet_device_tensors{what=\"weights\",device=\"cpu\"} 1\n";

    #[test]
    fn processes_on_one_device_share_its_load_and_add_up_their_memory() {
        let found = devices(&[(Role::Learner, LEARNER), (Role::Actor, ACTOR), (Role::Arena, ON_THE_CPU)]);
        let [gpu, cpu] = &found[..] else { panic!("{found:?}") };
        assert_eq!(gpu.roles, BTreeSet::from(["learner".to_owned(), "actor".to_owned()]));
        assert_eq!(gpu.name.as_deref(), Some("NVIDIA H100"));
        assert_eq!((gpu.busy_share, gpu.memory(), gpu.memory_bytes), (Some(0.75), Some(7.0), Some(80.0)));
        assert_eq!((gpu.uploaded_per_second, gpu.downloaded_per_second), (Some(7.0), None));
        let expected =
            DeviceUse { device: CPU.to_owned(), roles: BTreeSet::from(["arena".to_owned()]), ..DeviceUse::default() };
        assert_eq!(*cpu, expected);
    }

    #[test]
    fn a_device_is_one_line_with_its_roles_and_what_is_known_of_it() {
        let roles = BTreeSet::from(["learner".to_owned(), "actor".to_owned()]);
        let gpu = DeviceUse {
            device: "cuda".to_owned(),
            name: Some("NVIDIA H100 80GB HBM3".to_owned()),
            roles,
            busy_share: Some(0.871),
            memory_used_bytes: Some(12.34e9),
            memory_bytes: Some(85e9),
            ..DeviceUse::default()
        };
        let line = gpu.line();
        assert_eq!(line, "cuda H100 80GB HBM3 (actor, learner): busy 87 %, 12.3 of 85.0 GB");
        let second = DeviceUse { gpu: Some("1".to_owned()), ..gpu.clone() };
        assert_eq!(second.line(), line.replace("cuda", "GPU 1"));
        let bare = DeviceUse { name: None, busy_share: None, memory_used_bytes: None, ..gpu.clone() };
        assert_eq!(bare.line(), "cuda (actor, learner)");
        let cpu =
            DeviceUse { device: CPU.to_owned(), roles: BTreeSet::from(["arena".to_owned()]), ..Default::default() };
        assert_eq!(device_lines(&[gpu, cpu.clone()]), [line, "cpu (arena)".to_owned()]);
        assert_eq!(device_lines(&[cpu]), ["cpu"]);
        assert_eq!(device_lines(&[]), [""; 0]);
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
}
