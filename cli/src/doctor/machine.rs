//! The facts about this machine that a run depends on.

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

/// Ports of a run without actors and replay servers: admin ports of learner, arena and inference server, and the
/// servers of learner and inference server.
const OTHER_PORTS: usize = 5;
/// Input to all findings. A value that the system does not report is `None`.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) system: String,
    pub(super) cpu: String,
    pub(super) variants: Vec<KernelVariant>,
    /// CPU features that training uses.
    pub(super) training: Cpu,
    pub(super) cores: usize,
    pub(super) memory: Option<Memory>,
    pub(super) container: Container,
    pub(super) gpus: Result<Vec<Gpu>, String>,
    /// The variable `CUDA_VISIBLE_DEVICES`.
    pub(super) visible: Option<String>,
    /// The devices that libtorch tried, or the reason why it could not.
    pub(super) trial: Result<DeviceTrial, String>,
    /// Roles with a program that links libtorch.
    pub(super) with_libtorch: Vec<Role>,
    /// Directory of the programs, or the missing program and the command to build it.
    pub(super) programs: Result<PathBuf, String>,
    /// The run, or the reason why it cannot be planned.
    pub(super) plan: Result<Run, String>,
    pub(super) ports: Ports,
    pub(super) disk: Disk,
    /// Limit of open files after a process has raised the soft limit.
    pub(super) descriptors: Option<u64>,
}

/// The parts of a [`Plan`] that the findings use.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) config: RunFile,
    pub(super) inference: Inference,
    pub(super) actors: usize,
    /// The process that is training the run now.
    pub(super) in_use: Option<String>,
}

/// Memory of the machine, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) bytes: u64,
    pub(super) available_bytes: u64,
}

/// Limits of this process's control group, as set by containers; `None` without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Container {
    pub(super) cores: Option<f64>,
    pub(super) memory_bytes: Option<u64>,
}

/// Results of trying the ports of a run.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// Number of ports that a run picks.
    pub(super) needed: usize,
    /// Reason why `needed` ports are not free.
    pub(super) refused: Option<String>,
    /// The given addresses, each with an error if it is refused.
    pub(super) named: BTreeMap<SocketAddr, Result<(), String>>,
}

/// The run directory (without a plan, the directory of all runs), or the nearest existing parent.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) folder: PathBuf,
    pub(super) room: io::Result<Room>,
    pub(super) refused: Option<String>,
}

impl Facts {
    /// Reads the facts about this machine for a run with `args`.
    pub(super) fn read(args: &plan::Args, plan: anyhow::Result<Plan>, named: &[SocketAddr]) -> Self {
        let programs = plan.as_ref().ok().map(|plan| fleet::binaries(plan, Rating::On));
        let programs = match programs {
            Some(found) => found.map_err(|error| format!("{error:#}")),
            // Without a plan, the directory of one program stands for all.
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
        let lock = plan.run.path().join("lock").exists().then(|| plan.run.lock());
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
    /// Reads the limits of `group` and all parent groups below `root`: version 2 of control groups.
    pub(super) fn read(root: &Path, group: &str) -> Self {
        let path = root.join(group.trim_start_matches('/'));
        // In a container, the process's own group is the root of the mount, whatever the path on the host.
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

/// Returns the control group path of this process.
fn own_group() -> String {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned()
}

/// Parses `QUOTA PERIOD` in microseconds into cores; `None` for `max`.
fn cores_in(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok().filter(|period| *period > 0.0)?)
}

/// Parses `/proc/meminfo`.
pub(super) fn memory_in(meminfo: &str) -> Option<Memory> {
    let of = |key: &str| {
        let value = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
    };
    Some(Memory { bytes: of("MemTotal:")?, available_bytes: of("MemAvailable:")? })
}

fn beside(role: Role) -> Result<PathBuf, String> {
    fleet::beside_this_binary(role.program(), role.program()).map_err(|error| format!("{error:#}"))
}

/// Reserves `count` free ports briefly.
fn reserve(count: usize) -> io::Result<()> {
    // Sockets of tokio need a runtime only to wait, and none waits here.
    reserve_wanted(std::iter::repeat_n(None, count)).map(drop)
}

/// Listens on an address briefly.
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
        // In a container, the path is the host's.
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
