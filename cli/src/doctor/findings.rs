//! Classifies facts about a machine: harmless, noteworthy, or a fault that would stop a run.

use fleet::Role;
use fleet::feasibility::{self, Obstacle, Programs};
use fleet::run_directory::Inference;
use inference::DevicePreference;
use network_cpu::KernelVariant;
use run_file::RunFile;
use run_file::learner::libtorch::{Reason, why};
use serde::Serialize;
use service::ConfigError;
use service::device_trial::DeviceTrial;
use service::devices::CPU;
use service::gpus::{CAPABILITY_MIN, DRIVER_MAJOR_MIN, Gpu, OTHER_LIBTORCH, of_cuda};

use super::machine::{Container, Disk, Facts, Memory, Run};

/// Minimum free disk space in bytes for a run: room for a checkpoint of a large network and minutes of replay log.
const FREE_BYTES_MIN: u64 = 500_000_000;
/// Free disk space in bytes below which a finding warns that a long run may fill the disk.
const FREE_BYTES_NOTED: u64 = 5_000_000_000;
/// Minimum limit of open files per process: libraries, logs, the replay log and connections of a small fleet.
const DESCRIPTORS_MIN: u64 = 256;

/// Remedy that refers to the documentation of device messages.
const MESSAGES: &str = "see docs/doctor.md for device messages";
/// Reason shown if the device preference `auto` selects the CPU.
const NO_ACCELERATOR: &str = "no accelerator works, for the reasons above";

/// A fact about the machine, with a verdict and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Subject of the finding, such as `cpu`, `gpu` or `learner`.
    pub(super) section: &'static str,
    pub(super) verdict: Verdict,
    pub(super) text: String,
    /// Suggested correction; `None` if the verdict is fine.
    pub(super) remedy: Option<String>,
}

/// The consequence of a finding for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The finding has no consequence for the run.
    Fine,
    /// The run works, but could be faster: a device or a faster kernel is unused. Also marks unknown values.
    Note,
    /// The run does not start, or stops later.
    Fault,
}

impl Finding {
    fn fine(section: &'static str, text: impl Into<String>) -> Self {
        Self { section, verdict: Verdict::Fine, text: text.into(), remedy: None }
    }

    fn note(section: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { section, verdict: Verdict::Note, text: text.into(), remedy: Some(remedy.into()) }
    }

    fn fault(section: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fault, ..Self::note(section, text, remedy) }
    }
}

/// Returns the number of findings that would stop a run.
pub(super) fn faults(found: &[Finding]) -> usize {
    found.iter().filter(|finding| finding.verdict == Verdict::Fault).count()
}

/// Returns all findings about the machine in the order of the printed page.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = vec![Finding::fine("system", system(facts)), Finding::fine("cpu", cpu(facts))];
    found.extend(gpus(facts));
    found.extend(libtorch(facts));
    match &facts.plan {
        Ok(run) => {
            found.extend(
                run.in_use
                    .iter()
                    .map(|error| Finding::fault("run", error, "stop that process, or choose another run with --run")),
            );
            found.extend(devices(facts, run));
            found.extend(obstacles(facts, run));
        }
        Err(error) => found.push(Finding::fault("run", error, "correct the option, the run file or the run")),
    }
    if let Err(missing) = &facts.programs {
        found.push(Finding::fault("programs", missing, "build all programs of a run: cargo xtask train"));
    }
    found.extend(ports(facts));
    found.push(disk(&facts.disk));
    found.push(descriptors(facts.descriptors));
    found
}

fn system(facts: &Facts) -> String {
    let Container { cores, memory_bytes } = facts.container;
    let mut text = format!("{}, {} cores", facts.system, facts.cores);
    if let Some(cores) = cores {
        text += &format!(" (limited to {cores:.1} by the control group)");
    }
    if let Some(Memory { bytes, available_bytes }) = facts.memory {
        text += &format!(", {} memory, {} available", gigabytes(bytes), gigabytes(available_bytes));
    }
    if let Some(limit) = memory_bytes {
        text += &format!(" (limited to {} by the control group)", gigabytes(limit));
    }
    text
}

fn cpu(facts: &Facts) -> String {
    const FEATURES: [(KernelVariant, &str); 6] = [
        (KernelVariant::Avx2F32, "AVX2"),
        (KernelVariant::Avx512F32, "AVX-512"),
        (KernelVariant::Avx512I8, "AVX-512 VNNI"),
        (KernelVariant::Avx512Bf16, "AVX-512 bf16"),
        (KernelVariant::AmxBf16, "AMX"),
        (KernelVariant::NeonF32, "NEON"),
    ];
    let has = |feature: &&(KernelVariant, &str)| facts.variants.contains(&feature.0);
    let (with, without): (Vec<_>, Vec<_>) = FEATURES.iter().partition(has);
    // Only instruction sets of this architecture count as missing.
    let is_arm = facts.variants.contains(&KernelVariant::NeonF32);
    let of_here = |feature: &&&(KernelVariant, &str)| (feature.0 == KernelVariant::NeonF32) == is_arm;
    let names = |features: &[&(KernelVariant, &'static str)]| {
        let names: Vec<&str> = features.iter().filter(of_here).map(|(_, name)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    format!("{}; usable: {}; not usable: {}", facts.cpu, names(&with), names(&without))
}

fn gpus(facts: &Facts) -> Vec<Finding> {
    let gpus = match &facts.gpus {
        Ok(gpus) if !gpus.is_empty() => gpus,
        Ok(_) => return vec![Finding::fine("gpu", "none: the NVIDIA driver lists no GPU")],
        Err(_) if cfg!(target_os = "macos") => return vec![Finding::fine("gpu", "integrated (MPS)")],
        Err(reason) => return vec![Finding::fine("gpu", format!("none: {reason}"))],
    };
    // A libtorch of the user may work with a GPU or driver that is too old for the usual one.
    let works = facts.trial.as_ref().is_ok_and(|trial| trial.working.iter().any(|device| device.starts_with("cuda")));
    let finding = |of: &Gpu| if works { Finding::fine("gpu", gpu_text(of)) } else { gpu(of) };
    let mut found: Vec<Finding> = gpus.iter().map(finding).collect();
    let is_hidden = of_cuda(gpus, 0, facts.visible.as_deref()).is_none();
    if let Some(visible) = facts.visible.as_deref().filter(|visible| is_hidden && !visible.starts_with("MIG-")) {
        let text = format!("CUDA_VISIBLE_DEVICES={visible} hides every GPU from a run");
        found.push(Finding::note("gpu", text, "unset it, or set it to the numbers above"));
    }
    found
}

fn gpu_text(gpu: &Gpu) -> String {
    let memory = match (gpu.memory_used_bytes, gpu.memory_total_bytes) {
        (Some(used), Some(total)) => format!(", {} of {} in use", gigabytes(used), gigabytes(total)),
        _ => String::new(),
    };
    let capability = gpu.compute_capability.map_or_else(|| "unknown".to_owned(), |capability| capability.to_string());
    format!("{}: {}, compute capability {capability}, driver {}{memory}", gpu.index, gpu.name, gpu.driver)
}

/// Returns a finding on a GPU of a machine on which no GPU works.
fn gpu(gpu: &Gpu) -> Finding {
    let text = gpu_text(gpu);
    if gpu.compute_capability.is_some_and(|capability| capability < CAPABILITY_MIN) {
        let needed = format!("libtorch needs compute capability {CAPABILITY_MIN} or above");
        let remedy = format!("{needed}: use another GPU, or {OTHER_LIBTORCH}");
        return Finding::note("gpu", format!("{text}; too old"), remedy);
    }
    if gpu.driver_major().is_some_and(|major| major < DRIVER_MAJOR_MIN) {
        let needed = format!("CUDA 13 needs version {DRIVER_MAJOR_MIN} or above");
        let remedy = format!("{needed}: update the NVIDIA driver, or {OTHER_LIBTORCH}");
        return Finding::note("gpu", format!("{text}; the driver is too old"), remedy);
    }
    Finding::fine("gpu", text)
}

fn libtorch(facts: &Facts) -> Vec<Finding> {
    let trial = match &facts.trial {
        Ok(trial) => trial,
        Err(reason) => {
            return vec![Finding::fault("libtorch", reason, "run `cargo xtask libtorch`, or see the messages above")];
        }
    };
    let has_gpu = facts.gpus.as_ref().is_ok_and(|gpus| !gpus.is_empty());
    if !facts.with_libtorch.contains(&Role::Learner) {
        let text = "none: `learner` was built without libtorch and trains with the CPU kernels";
        return vec![match has_gpu || cfg!(target_os = "macos") {
            true => Finding::note("libtorch", text, "to train on the GPU, build with libtorch: cargo xtask train"),
            false => Finding::fine("libtorch", text),
        }];
    }
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let version = trial.libtorch.version.as_deref().map_or_else(String::new, |version| format!("{version}, "));
    let cpu_half = path(&trial.libtorch.cpu_half).unwrap_or_else(|| "loaded".to_owned());
    let mut found = vec![Finding::fine("libtorch", format!("{version}CPU half: {cpu_half}"))];
    if cfg!(target_os = "macos") {
        found.push(match trial.refusal("mps") {
            None => Finding::fine("libtorch", "works on mps"),
            Some(reason) => Finding::note("libtorch", format!("does not work on mps: {reason}"), MESSAGES),
        });
        return found;
    }
    found.push(match path(&trial.libtorch.cuda_half) {
        Some(cuda_half) => Finding::fine("libtorch", format!("CUDA half: {cuda_half}")),
        None => {
            let text = format!("CUDA half not loaded: {}", trial.refusal("cuda").unwrap_or("not needed"));
            match has_gpu {
                true => Finding::note("libtorch", text, "fetch it: cargo xtask libtorch --cuda"),
                false => Finding::fine("libtorch", text),
            }
        }
    });
    let accelerators: Vec<&str> = trial.working.iter().map(String::as_str).filter(|name| *name != CPU).collect();
    if !accelerators.is_empty() {
        found.push(Finding::fine("libtorch", format!("works on {}", accelerators.join(", "))));
    }
    let of_listed_gpu =
        |missing: &&String| missing.starts_with("cuda") && has_gpu && trial.libtorch.cuda_half.is_some();
    found.extend(
        trial
            .missing
            .iter()
            .filter(of_listed_gpu)
            .map(|missing| Finding::note("libtorch", format!("does not work on {missing}"), MESSAGES)),
    );
    found
}

/// Returns one finding per role on the configured device, and a finding on a learner that lacks libtorch.
fn devices(facts: &Facts, run: &Run) -> Vec<Finding> {
    let config = &run.config;
    let is_remote = run.inference == Inference::Remote;
    let mut roles =
        vec![("learner", Role::Learner, config.learner.device), ("actor", Role::Actor, config.actor.device)];
    if is_remote {
        roles.push(("inference", Role::Inference, config.inference.device));
    }
    roles.push(("arena", Role::Arena, config.arena.device));
    let devices = roles.into_iter().map(|(section, role, wanted)| device(facts, section, role, wanted));
    devices.chain(lacks_libtorch(facts, config)).collect()
}

/// Returns a fault for each setting with which the run could never train. The device setting of each role has a
/// separate finding.
fn obstacles(facts: &Facts, run: &Run) -> Vec<Finding> {
    const REMEDY: &str = "correct the key in the run file or with --set";
    let programs = Programs { with_libtorch: facts.with_libtorch.clone(), cpu: facts.training };
    let obstacles = match feasibility::obstacles(&run.config, run.inference, &programs) {
        Ok(obstacles) => obstacles,
        Err(error) => return vec![Finding::fault("run", error.to_string(), REMEDY)],
    };
    let found = obstacles.iter().filter(|obstacle| match obstacle {
        Obstacle::Engine(Role::Learner, _) => false,
        Obstacle::Engine(role, ConfigError::Invalid { key, .. }) => *key != format!("{}.device", role.name()),
        Obstacle::Engine(..) | Obstacle::Settings(_) => true,
    });
    found.map(|obstacle| Finding::fault("run", obstacle.to_string(), REMEDY)).collect()
}

/// Returns a finding if the learner trains on the CPU without libtorch, and needs libtorch or would be faster with it.
fn lacks_libtorch(facts: &Facts, config: &RunFile) -> Option<Finding> {
    const REMEDY: &str = "build the learner with libtorch: cargo xtask train";
    if facts.with_libtorch.contains(&Role::Learner) || config.learner.device.is_accelerator() {
        return None;
    }
    let without = "but `learner` was built without libtorch";
    match why(&config.learner_settings().ok()?, facts.training)? {
        reason @ Reason::Required { .. } => Some(Finding::fault("learner", format!("{reason}, {without}"), REMEDY)),
        reason @ Reason::Faster(_) => Some(Finding::note("learner", format!("{reason}, {without}"), REMEDY)),
    }
}

fn device(facts: &Facts, section: &'static str, role: Role, wanted: DevicePreference) -> Finding {
    let key = format!("{section}.device");
    let has_libtorch = facts.with_libtorch.contains(&role);
    let program = role.program();
    match (&facts.trial, wanted) {
        (_, DevicePreference::Cpu) => Finding::fine(section, format!("cpu ({key} is cpu)")),
        (_, wanted) if wanted.is_accelerator() && !has_libtorch => Finding::fault(
            section,
            format!("{key} is {wanted}, but `{program}` was built without libtorch"),
            format!("build it: cargo build --release --package {program} --features torch"),
        ),
        (Err(_), DevicePreference::Auto) => Finding::fine(section, "unknown: the device check failed"),
        (Err(reason), wanted) => {
            let text = format!("{key} is {wanted}, but the device check failed: {reason}");
            Finding::fault(section, text, format!("see docs/doctor.md; --set {key}=auto trains without it"))
        }
        (Ok(trial), DevicePreference::Auto) => automatic(trial, section, role, has_libtorch),
        (Ok(trial), wanted) => match refusal(trial, role, &wanted.to_string()) {
            None => Finding::fine(section, format!("{wanted} ({key} is {wanted})")),
            Some(reason) => {
                let text = format!("{key} is {wanted}, which cannot be used: {reason}");
                Finding::fault(section, text, format!("see docs/doctor.md; --set {key}=auto trains without it"))
            }
        },
    }
}

/// Returns the reason why a role cannot use the named device; `None` if the device works.
fn refusal<'a>(trial: &'a DeviceTrial, role: Role, device: &str) -> Option<&'a str> {
    if role == Role::Learner { trial.training_refusal(device) } else { trial.refusal(device) }
}

/// Returns a finding on the device that the preference `auto` selects for a role.
fn automatic(trial: &DeviceTrial, section: &'static str, role: Role, has_libtorch: bool) -> Finding {
    if role == Role::Learner {
        let device = &trial.training.device;
        let reason = if device == CPU { NO_ACCELERATOR } else { &trial.training.reason };
        return Finding::fine(section, format!("{device} (auto: {reason})"));
    }
    let accelerator = Some(trial.inference.device.as_str()).filter(|device| *device != CPU);
    match (accelerator, has_libtorch) {
        (None, _) => Finding::fine(section, format!("cpu (auto: {NO_ACCELERATOR})")),
        (Some(device), true) => {
            Finding::fine(section, format!("{device} or the CPU, whichever is faster for the network (auto)"))
        }
        (Some(device), false) => {
            let program = role.program();
            let text = format!("cpu (auto: {device} works, but `{program}` was built without libtorch)");
            let remedy = format!("to use it: cargo build --release --package {program} --features torch");
            Finding::note(section, text, remedy)
        }
    }
}

fn ports(facts: &Facts) -> Vec<Finding> {
    let needed = facts.ports.needed;
    let actors = facts.plan.as_ref().map_or(0, |run| run.actors);
    let mut found = vec![match &facts.ports.refused {
        None => Finding::fine("ports", format!("{needed} free ports on 127.0.0.1 for a run with {actors} actor(s)")),
        Some(error) => {
            let remedy = "list the ports in use with `ss -tan`";
            Finding::fault("ports", format!("a run needs {needed} free ports on 127.0.0.1: {error}"), remedy)
        }
    }];
    found.extend(facts.ports.named.iter().map(|(address, free)| match free {
        Ok(()) => Finding::fine("ports", format!("{address} is free")),
        Err(error) => {
            let remedy = "stop the process that holds it, or choose another port (0 picks a free one)";
            Finding::fault("ports", format!("cannot listen on {address}: {error}"), remedy)
        }
    }));
    found
}

fn disk(disk: &Disk) -> Finding {
    let folder = disk.folder.display();
    if let Some(error) = &disk.refused {
        return Finding::fault("disk", error, "choose another directory with --runs");
    }
    match &disk.room {
        Err(error) => Finding::note("disk", format!("{folder}: free space is unknown: {error}"), "check manually"),
        Ok(room) => {
            let text = format!("{} of {} free in {folder}", gigabytes(room.free_bytes), gigabytes(room.bytes));
            let remedy = "free space, or choose another directory with --runs";
            if room.free_bytes < FREE_BYTES_MIN {
                Finding::fault("disk", text, remedy)
            } else if room.free_bytes < FREE_BYTES_NOTED {
                Finding::note("disk", text, remedy)
            } else {
                Finding::fine("disk", text)
            }
        }
    }
}

fn descriptors(limit: Option<u64>) -> Finding {
    match limit {
        None => Finding::fine("files", "the limit of open files is unknown"),
        Some(limit) if limit < DESCRIPTORS_MIN => Finding::fault(
            "files",
            format!("a process may open {limit} files, but a run needs {DESCRIPTORS_MIN}"),
            "raise the hard limit: `ulimit -Hn`, LimitNOFILE= of systemd, or --ulimit nofile= of docker",
        ),
        Some(limit) => Finding::fine("files", format!("a process may open {limit} files")),
    }
}

/// Formats a number of bytes in GB (10^9 bytes).
fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
