//! Collects the facts about this machine on which a run depends.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use fleet::feasibility::Programs;
use fleet::plan::{self, Plan};
use fleet::run_directory::Inference;
use fleet::trial::{TIME_LIMIT, try_devices};
use fleet::{Rating, Role};
use network_cpu::KernelVariant;
use run_file::RunFile;
use run_file::learner::libtorch::Cpu;
use service::device_trial::DeviceTrial;
use service::directory::{Room, room, writable};
use service::gpus::{Gpu, gpus};
use service::net::reserve_wanted;
use service::{descriptors, machine};

/// Number of ports that a run needs in addition to the ports of actors and replay servers: three admin ports (learner,
/// arena, inference server) and two gRPC ports (learner, inference server).
const OTHER_PORTS: usize = 5;
/// Everything that the findings depend on. A value that the system does not report is `None`.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) system: String,
    pub(super) cpu: String,
    pub(super) variants: Vec<KernelVariant>,
    /// CPU features that the learner uses for training.
    pub(super) training: Cpu,
    pub(super) cores: usize,
    pub(super) memory: Option<Memory>,
    pub(super) container: Container,
    pub(super) gpus: Result<Vec<Gpu>, String>,
    /// Value of the environment variable `CUDA_VISIBLE_DEVICES`; `None` if the variable is not set.
    pub(super) visible: Option<String>,
    /// Result of trying every device with libtorch, or the reason why the trial failed.
    pub(super) trial: Result<DeviceTrial, String>,
    /// Roles with programs that were built with libtorch.
    pub(super) with_libtorch: Vec<Role>,
    /// Directory of the programs, or an error that names a missing program and the build command.
    pub(super) programs: Result<PathBuf, String>,
    /// The planned run, or the reason why the options or the run file are invalid.
    pub(super) plan: Result<Run, String>,
    pub(super) ports: Ports,
    pub(super) disk: Disk,
    /// Maximum number of open files per process, after raising the soft limit; `None` if unknown.
    pub(super) descriptors: Option<u64>,
}

/// The parts of a [`Plan`] on which findings depend.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) config: RunFile,
    pub(super) inference: Inference,
    pub(super) actors: usize,
    /// Error that names the process already training the run; `None` if the run is not in use.
    pub(super) in_use: Option<String>,
}

/// Memory of the machine, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) bytes: u64,
    pub(super) available_bytes: u64,
}

/// Limits of the control group of this process, as set by containers; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Container {
    pub(super) cores: Option<f64>,
    pub(super) memory_bytes: Option<u64>,
}

/// The results of listening on the ports of a run.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// Number of free ports that the run needs.
    pub(super) needed: usize,
    /// Reason why fewer than `needed` ports are free; `None` if enough ports are free.
    pub(super) refused: Option<String>,
    /// Listen addresses from the command line, each with the error if listening failed.
    pub(super) named: BTreeMap<SocketAddr, Result<(), String>>,
}

/// The disk that holds the run directory or, without a plan, the directory of all runs. If the directory does not exist
/// yet, this is the disk of the nearest existing parent.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) folder: PathBuf,
    pub(super) room: io::Result<Room>,
    pub(super) refused: Option<String>,
}

impl Facts {
    /// Collects the facts about this machine for a run with `args`.
    pub(super) fn read(args: &plan::Args, plan: anyhow::Result<Plan>, named: &[SocketAddr]) -> Self {
        let programs = plan.as_ref().ok().map(|plan| fleet::binaries(plan, Rating::On));
        let programs = match programs {
            Some(found) => found.map_err(|error| format!("{error:#}")),
            // Without a plan, all programs are assumed to be in the directory of the learner program.
            None => beside(Role::Learner).map(|path| path.parent().unwrap_or(Path::new(".")).to_owned()),
        };
        let trial = beside(Role::Learner).and_then(|learner| try_devices(&learner, &[], TIME_LIMIT));
        let programs_here = Programs::here();
        let wanted = plan.as_ref().map_or(0, |plan| OTHER_PORTS + plan.actors + 2 * plan.replay_servers());
        let folder = plan.as_ref().map_or_else(|_| args.runs.clone(), |plan| plan.run.path().to_owned());
        Self {
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cpu: machine::cpu_model(),
            variants: KernelVariant::ALL
                .into_iter()
                .chain(KernelVariant::INT8)
                .filter(|variant| variant.is_available())
                .collect(),
            training: programs_here.cpu,
            cores: machine::cores(),
            memory: fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_in(&text)),
            container: Container::read(Path::new("/sys/fs/cgroup"), &own_group()),
            gpus: gpus(),
            visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            trial,
            with_libtorch: programs_here.with_libtorch,
            programs,
            ports: Ports {
                needed: wanted,
                refused: reserve(wanted).err().map(|error| error.to_string()),
                named: named.iter().map(|&address| (address, listen(address))).collect(),
            },
            disk: Disk::of(&folder),
            descriptors: descriptors::raise_limit(),
            plan: plan.map(Run::of).map_err(|error| format!("{error:#}")),
        }
    }
}

impl Run {
    fn of(plan: Plan) -> Self {
        let lock = plan.run.is_trained().then(|| plan.run.lock());
        let in_use = lock.and_then(|lock| lock.err().map(|error| format!("{error:#}")));
        Self { config: plan.config, inference: plan.progress.inference, actors: plan.actors, in_use }
    }
}

impl Disk {
    fn of(folder: &Path) -> Self {
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let existing = absolute.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned();
        let refused = writable(&existing).err().map(|error| service::chain(&error.into()));
        Self { room: room(&existing), refused, folder: existing }
    }
}

impl Container {
    /// Reads the limits of `group` and all parent groups below `root` (cgroup v2), and keeps the lowest.
    pub(super) fn read(root: &Path, group: &str) -> Self {
        let path = root.join(group.trim_start_matches('/'));
        // In a container, the cgroup of the process is the mount root, whatever the path on the host.
        let folders = path.ancestors().take_while(|folder| folder.starts_with(root)).chain([root]);
        let mut limits = Self::default();
        for folder in folders {
            let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
            let memory = read("memory.max").and_then(|text| text.trim().parse().ok());
            let cores = read("cpu.max").and_then(|text| cores_in(&text));
            limits.memory_bytes = [limits.memory_bytes, memory].into_iter().flatten().min();
            limits.cores = [limits.cores, cores].into_iter().flatten().reduce(f64::min);
        }
        limits
    }
}

/// Returns the cgroup path of this process.
fn own_group() -> String {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned()
}

/// Parses `QUOTA PERIOD` from `cpu.max` (both in microseconds) into a number of cores; `None` for the quota `max`.
fn cores_in(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok().filter(|period| *period > 0.0)?)
}

/// Parses total and available memory from the text of `/proc/meminfo`; `None` if a value is missing.
pub(super) fn memory_in(meminfo: &str) -> Option<Memory> {
    let of = |key| machine::listed_bytes(meminfo, key);
    Some(Memory { bytes: of("MemTotal:")?, available_bytes: of("MemAvailable:")? })
}

fn beside(role: Role) -> Result<PathBuf, String> {
    fleet::beside_this_binary(role.program(), role.program()).map_err(|error| format!("{error:#}"))
}

/// Reserves `count` free ports and releases the ports at once, to check that a run can reserve as many.
fn reserve(count: usize) -> io::Result<()> {
    // Tokio sockets need a runtime only for waiting, and nothing waits here.
    reserve_wanted(std::iter::repeat_n(None, count)).map(drop)
}

/// Listens on an address and closes the socket at once, to check that the address is free.
fn listen(address: SocketAddr) -> Result<(), String> {
    TcpListener::bind(address).map(drop).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use".to_owned(),
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_a_control_group_and_those_above_it_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let write = |path: &str, text: &str| fs::write(root.path().join(path), text).unwrap();
        assert_eq!(Container::read(root.path(), "/outer/inner"), Container::default());
        write("memory.max", "8000\n");
        write("outer/memory.max", "4000\n");
        write("outer/inner/memory.max", "max\n");
        write("outer/cpu.max", "150000 100000\n");
        write("outer/inner/cpu.max", "max 100000\n");
        let limits = Container { cores: Some(1.5), memory_bytes: Some(4000) };
        assert_eq!(Container::read(root.path(), "/outer/inner"), limits);
        // In a container, the cgroup path is the path on the host.
        let of_root = Container { cores: None, memory_bytes: Some(8000) };
        assert_eq!(Container::read(root.path(), "/docker/0123"), of_root);
    }

    #[test]
    fn memory_is_read_in_kibibytes() {
        let memory = memory_in("MemTotal:       16 kB\nMemFree:  1 kB\nMemAvailable:    8 kB\n").unwrap();
        assert_eq!((memory.bytes, memory.available_bytes), (16 << 10, 8 << 10));
        assert!(memory_in("MemTotal: many kB\n").is_none());
    }

    #[test]
    fn the_nearest_folder_that_exists_is_judged() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::of(&folder.path().join("runs/first"));
        assert_eq!((disk.folder.as_path(), disk.refused), (folder.path(), None));
        assert!(disk.room.unwrap().bytes > 0);
    }

    #[test]
    fn a_port_that_another_listener_holds_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listen(listener.local_addr().unwrap()), Err("the port is in use".to_owned()));
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(listen(address), Ok(()));
    }
}
