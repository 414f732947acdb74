//! Places the processes of a run on the GPUs of this machine, with suitable thread and game counts.
//!
//! Processes on the same GPU take turns, so that each GPU gets a minimum of processes: one evaluating process per GPU,
//! and a separate GPU for the learner if there are two or more GPUs. [`place`] is a pure function of a [`Machine`] and
//! the configuration; explicit devices, process counts and thread counts stay unchanged. [`Machine::here`] describes
//! this machine.

use std::fmt;

use inference::DevicePreference;
use run_file::RunFile;
use run_file::gpu_values::Process;
use service::ConfigError;
use service::gpus::Gpu;

use crate::boards::{ACTORS_MAX, actor_names};
use crate::run_directory::Inference;
use crate::wiring::Role;

pub use self::division::{Costs, learner_threads};

mod division;
mod machine;
#[cfg(test)]
mod tests;

/// Cores per actor process without an accelerator. The threads of one process share an evaluation cache.
const CORES_PER_ACTOR: usize = 8;
/// Minimum threads of an actor on an accelerator: one thread searches while another thread waits for a batch.
const ACCELERATOR_THREADS_MIN: usize = 2;
/// Maximum cores that actors on accelerators leave to the learner, the preparing threads, the replay server and the
/// threads that submit batches.
const OTHER_CORES_MAX: usize = 4;

/// Variables with the settings of libtorch's allocator: a value of the user is kept.
const ALLOCATOR_VARIABLES: [&str; 2] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];

/// Cores, memory and accelerators of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Cores that processes may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Accelerators that libtorch may use.
    pub accelerators: Accelerators,
}

/// The accelerators of a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Accelerators {
    /// No accelerator, for this reason.
    None(String),
    /// A single accelerator that needs no placement: MPS, or a partition of a GPU.
    One {
        /// Name of the accelerator.
        name: String,
        /// The reason why no process can use the accelerator; `None` for a usable accelerator.
        refused: Option<String>,
    },
    /// NVIDIA GPUs, numbered as in CUDA.
    Cuda(Vec<Candidate>),
}

/// A GPU that processes may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The GPU, as listed by the driver.
    pub gpu: Gpu,
    /// The reason why no process can use the GPU; `None` for a usable GPU.
    pub refused: Option<String>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({})", self.gpu.index, self.gpu.name)
    }
}

/// The device of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The device that is configured for the process.
    Configured,
    /// The CPU, for a process with the device setting `auto`.
    Cpu,
    /// The process sees only the GPU with this index in [`Accelerators::Cuda`], and uses this GPU or the CPU, whichever
    /// is faster.
    Gpu(usize),
}

/// Devices, threads and games of the processes of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Device of each learner, in the order of the group.
    pub learners: Vec<Place>,
    /// Device of the arena.
    pub arena: Place,
    /// Device of the inference server, if the run has one.
    pub inference: Option<Place>,
    /// Device of each actor.
    pub actors: Vec<Place>,
    /// Threads of each learner.
    pub learner_threads: usize,
    /// Self-play threads of each actor.
    pub actor_threads: usize,
    /// Cores to divide between learner and actors once both have been measured. `None` unless a single learner and the
    /// actors all run on CPUs with automatic thread counts, and there are more than two cores.
    pub divided_cores: Option<usize>,
    /// Games per thread of an actor on an accelerator; 0 if no accelerator is expected.
    pub accelerator_games: usize,
    /// Maximum number of actors with these games and threads, by the memory of the machine.
    pub actors_max: usize,
    /// Threads of the inference server; 0 lets the server choose.
    pub inference_threads: usize,
    /// Environment variables of processes on each GPU, by GPU index.
    environments: Vec<Vec<(String, String)>>,
    /// Environment variables of all processes without an assigned GPU.
    environment: Vec<(String, String)>,
    /// Human-readable lines with the place of each process, and with the reason for each unused GPU.
    pub lines: Vec<String>,
}

impl Placement {
    /// Returns the setting that places a process of this role on the CPU: `learner.device=cpu`; `None` for other
    /// places.
    pub(crate) fn sets(&self, role: Role, place: Place) -> Option<String> {
        (place == Place::Cpu).then(|| format!("{}.device=cpu", role.name()))
    }

    /// Returns the environment variables of a process with this place, in addition to the variables of this process.
    pub(crate) fn environment(&self, place: Place) -> &[(String, String)] {
        match place {
            Place::Gpu(number) => &self.environments[number],
            Place::Configured | Place::Cpu => &self.environment,
        }
    }
}

/// Places the processes of a run with `learners` learners and, if given, `actors` self-play processes.
///
/// Each learner has a separate GPU, starting with the first GPU; with fewer GPUs than learners, learners take turns.
/// Each remaining GPU has one actor; if no GPU remains, each GPU has an actor next to a learner. An inference server
/// has the first GPU for evaluation. With an inference server, actors use no GPU, since actors only evaluate while the
/// server is away. The arena is on the CPU by default and may use a tenth of one core: on a GPU, arena and self-play
/// would take turns. With `arena.device=auto`, the arena uses the last GPU or the CPU, whichever is faster.
///
/// Actors on the CPU use the cores that the learner threads leave free. With `learner.threads = 0`, a single learner
/// gets `divided` threads from an earlier division of the cores, or one thread if `divided` is 0.
///
/// # Errors
/// [`ConfigError`] names a key of the actors that is out of range.
pub fn place(
    machine: &Machine,
    config: &RunFile,
    learners: usize,
    actors: Option<usize>,
    inference: Inference,
    divided: usize,
) -> Result<Placement, ConfigError> {
    let auto = |device: DevicePreference, place: Option<Place>| match device {
        DevicePreference::Auto => place.unwrap_or_else(|| machine.without_gpu()),
        _ => Place::Configured,
    };
    let usable = machine.usable();
    let of_learner = |learner: usize| auto(config.learner.device, cycled(&usable, learner).map(Place::Gpu));
    let learners: Vec<Place> = (0..learners).map(of_learner).collect();
    let trains = |number: usize| learners.iter().any(|&place| number_of(config.learner.device, place) == Some(number));
    let free: Vec<usize> = usable.iter().copied().filter(|&number| !trains(number)).collect();
    let evaluating = if free.is_empty() { usable } else { free };
    let gpu = |number: Option<&usize>| number.copied().map(Place::Gpu);

    let is_served = inference == Inference::Remote || !config.actor.inference.is_empty();
    let is_accelerated = !is_served && machine.accelerates(config, &evaluating);
    let default = match (is_accelerated, config.actor.device) {
        (false, _) => machine.cores.div_ceil(CORES_PER_ACTOR),
        (true, DevicePreference::Auto) => evaluating.len().max(1),
        (true, _) => 1,
    };
    // Each actor plays one board.
    let count = actors.unwrap_or(default.max(1 + config.run.boards.len()));
    let of_actor = |actor: usize| match (is_served, is_accelerated) {
        // On a GPU, each actor would hold GPU memory that is needed only while the server is away.
        (true, _) if machine.has_accelerator() => auto(config.actor.device, Some(Place::Cpu)),
        (false, true) => auto(config.actor.device, cycled(&evaluating, actor).map(Place::Gpu)),
        _ => auto(config.actor.device, None),
    };
    let may_accelerate = |device: DevicePreference, place: Option<Place>| match device {
        DevicePreference::Auto => matches!(place, Some(Place::Gpu(_))) || machine.has_one(),
        device => device.is_accelerator(),
    };
    let is_alone = learners.len() == 1 && !may_accelerate(config.learner.device, Some(learners[0]));
    let is_free = config.learner.threads == 0 && config.actor.threads == 0 && machine.cores > 2;
    let is_divided = is_alone && is_free && !is_accelerated && !is_served;
    let learner_threads = match config.learner.threads {
        0 if is_divided => divided.clamp(1, machine.cores - 1),
        threads => threads.max(1),
    };
    // The cores already exclude one core for each further learner.
    let reserved = learner_threads + learners.len().saturating_sub(1) * (learner_threads - 1);
    let actor_threads = match (config.actor.threads, is_accelerated) {
        (0, true) => machine.accelerator_threads(count),
        (0, false) => threads_per_actor(machine.cores, reserved, count) * if is_served { 2 } else { 1 },
        (threads, _) => threads,
    };
    let is_remote = inference == Inference::Remote;
    let server = is_remote.then(|| auto(config.inference.device, gpu(evaluating.first())));
    let is_server_accelerated = may_accelerate(config.inference.device, server);
    let inference_threads = match config.inference.threads {
        0 if is_remote && !is_server_accelerated => threads_per_actor(machine.cores, reserved, 1),
        threads => threads,
    };
    let mut placement = Placement {
        learners,
        arena: auto(config.arena.device, gpu(evaluating.last())),
        inference: server,
        actors: (0..count).map(of_actor).collect(),
        learner_threads,
        actor_threads,
        divided_cores: is_divided.then_some(machine.cores),
        accelerator_games: 0,
        actors_max: ACTORS_MAX,
        inference_threads,
        environments: machine.environments(),
        environment: machine.variables(),
        lines: Vec::new(),
    };
    if is_accelerated {
        let settings = config.actor_settings()?;
        let games = |actors: usize| settings.accelerator_games(actor_threads, machine.memory_bytes / actors as u64);
        placement.accelerator_games = games(count.max(1));
        let has_room = |&actors: &usize| games(actors) == placement.accelerator_games;
        placement.actors_max = (count.max(1)..=ACTORS_MAX).rev().find(has_room).unwrap_or(count);
    }
    placement.lines = describe(machine, config, &placement);
    Ok(placement)
}

impl Machine {
    /// Returns the processes of a placement that may use NVIDIA GPUs; actors only if they evaluate themselves.
    pub(crate) fn on_gpu(&self, config: &RunFile, placement: &Placement) -> Vec<Process> {
        let learners = placement.learners.iter().map(|&place| (Process::Learner, config.learner.device, place));
        let actors = placement.actors.iter().filter(|_| placement.accelerator_games > 0);
        let actors = actors.map(|&place| (Process::Actor, config.actor.device, place));
        let on_gpu = learners.chain(actors).filter(|&(_, device, place)| self.may_use_cuda(device, place));
        on_gpu.map(|(process, ..)| process).collect()
    }

    /// Returns the indices of the GPUs that processes can use.
    fn usable(&self) -> Vec<usize> {
        let Accelerators::Cuda(candidates) = &self.accelerators else { return Vec::new() };
        (0..candidates.len()).filter(|&number| candidates[number].refused.is_none()).collect()
    }

    /// Returns true if the machine has an accelerator, usable or not.
    fn has_accelerator(&self) -> bool {
        !matches!(self.accelerators, Accelerators::None(_))
    }

    /// Returns the place of a process with the device `auto` that gets no GPU. With refused GPUs this is the CPU, since
    /// the process would otherwise try these GPUs.
    fn without_gpu(&self) -> Place {
        match &self.accelerators {
            Accelerators::Cuda(_) | Accelerators::One { refused: Some(_), .. } => Place::Cpu,
            Accelerators::None(_) | Accelerators::One { .. } => Place::Configured,
        }
    }

    /// Returns true if the machine has a single, usable accelerator that needs no placement.
    fn has_one(&self) -> bool {
        matches!(self.accelerators, Accelerators::One { refused: None, .. })
    }

    /// Returns true if actors may evaluate on an accelerator.
    fn accelerates(&self, config: &RunFile, evaluating: &[usize]) -> bool {
        match config.actor.device {
            DevicePreference::Cpu => false,
            DevicePreference::Cuda(_) | DevicePreference::Mps => true,
            DevicePreference::Auto if config.actor.kernel.is_of_cpu() => false,
            DevicePreference::Auto => self.has_one() || !evaluating.is_empty(),
        }
    }

    /// Returns the self-play threads of each of `actors` processes on accelerators.
    fn accelerator_threads(&self, actors: usize) -> usize {
        let others = (self.cores / 4).clamp(1, OTHER_CORES_MAX);
        (self.cores.saturating_sub(others) / actors.max(1)).max(ACCELERATOR_THREADS_MIN)
    }

    /// Returns the variables of every process on a machine with GPUs.
    fn variables(&self) -> Vec<(String, String)> {
        if !matches!(self.accelerators, Accelerators::Cuda(_)) {
            return Vec::new();
        }
        // CUDA then numbers GPUs as `nvidia-smi` does, so that `cuda:1` is the same GPU in both.
        let order = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        // After exhausted memory, smaller batches then fit between the blocks of the larger ones.
        let segments = ("PYTORCH_ALLOC_CONF", "expandable_segments:True");
        let is_given = ALLOCATOR_VARIABLES.iter().any(|name| std::env::var_os(name).is_some());
        let all = [order].into_iter().chain((!is_given).then_some(segments));
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns, for each GPU, the environment variables of a process on this GPU. The process sees no other GPU, so
    /// that libtorch allocates memory only on this GPU. The only GPU of a machine needs no restriction.
    fn environments(&self) -> Vec<Vec<(String, String)>> {
        let Accelerators::Cuda(candidates) = &self.accelerators else { return Vec::new() };
        let only = |candidate: &Candidate| {
            let Gpu { index, uuid, .. } = &candidate.gpu;
            let name = if uuid.is_empty() { index.to_string() } else { uuid.clone() };
            (candidates.len() > 1).then(|| ("CUDA_VISIBLE_DEVICES".to_owned(), name))
        };
        candidates.iter().map(|candidate| self.variables().into_iter().chain(only(candidate)).collect()).collect()
    }

    /// Describes the device of a process for the screen.
    fn describe(&self, device: DevicePreference, place: Place) -> String {
        match (place, &self.accelerators) {
            (Place::Gpu(number), Accelerators::Cuda(candidates)) => {
                format!("{}, or the CPU if faster", candidates[number])
            }
            (Place::Cpu, _) => "cpu".to_owned(),
            (_, Accelerators::One { name, .. }) if device == DevicePreference::Auto => {
                format!("{name}, or the CPU if faster")
            }
            (_, Accelerators::None(_)) if device == DevicePreference::Auto => "cpu".to_owned(),
            _ => device.to_string(),
        }
    }
}

/// Describes the placement for the screen, with one line per device or process.
fn describe(machine: &Machine, config: &RunFile, placement: &Placement) -> Vec<String> {
    let mut lines = Vec::new();
    match &machine.accelerators {
        Accelerators::None(reason) => lines.push(format!("no accelerator: {reason}")),
        Accelerators::One { name, refused } => {
            lines.extend(refused.iter().map(|reason| format!("{name} is not used: {reason}")));
        }
        Accelerators::Cuda(candidates) => lines.extend(candidates.iter().filter_map(|candidate| {
            candidate.refused.as_ref().map(|reason| format!("{candidate} is not used: {reason}"))
        })),
    }
    for (number, &place) in (1..).zip(&placement.learners) {
        let name = if number == 1 { "learner".to_owned() } else { format!("learner-{number}") };
        lines.push(format!("{name}: {}", machine.describe(config.learner.device, place)));
    }
    if let Some(place) = placement.inference {
        lines.push(format!("inference server: {}", machine.describe(config.inference.device, place)));
    }
    let games = match placement.accelerator_games {
        0 => String::new(),
        games => format!(" of {games} games if the accelerator evaluates"),
    };
    for (name, &place) in actor_names(&config.run.boards, placement.actors.len()).zip(&placement.actors) {
        let device = machine.describe(config.actor.device, place);
        lines.push(format!("{name}: {device}; {} thread(s){games}", placement.actor_threads));
    }
    lines.push(format!("arena: {}", machine.describe(config.arena.device, placement.arena)));
    lines.extend(shared(machine, config, placement));
    lines
}

/// Describes GPUs that several actors or several learners share, and GPUs that no process uses.
fn shared(machine: &Machine, config: &RunFile, placement: &Placement) -> Vec<String> {
    let Accelerators::Cuda(candidates) = &machine.accelerators else { return Vec::new() };
    let Placement { learners, arena, inference, actors, .. } = placement;
    let server = inference.map(|place| (config.inference.device, place));
    let others = learners.iter().map(|&place| (config.learner.device, place));
    let others: Vec<_> = others.chain([(config.arena.device, *arena)]).chain(server).collect();
    let line = |number: usize| {
        let is_here = |device, place| number_of(device, place) == Some(number);
        let is_used = others.iter().any(|&(device, place)| is_here(device, place));
        match actors.iter().filter(|&&place| is_here(config.actor.device, place)).count() {
            0 if !is_used => Some(format!("{} is not used: no process needs it", candidates[number])),
            0 | 1 => None,
            actors => Some(format!("{} is shared by {actors} actors, which take turns on it", candidates[number])),
        }
    };
    let by_learners = |number: usize| {
        let place = |place| number_of(config.learner.device, place) == Some(number);
        let count = learners.iter().filter(|&&learner| place(learner)).count();
        (count > 1).then(|| {
            let gpu = &candidates[number];
            format!("{gpu} is shared by {count} learners, which take turns on it and reduce with Gloo instead of NCCL")
        })
    };
    machine.usable().into_iter().flat_map(|number| [by_learners(number), line(number)]).flatten().collect()
}

/// Returns the item at `index` modulo the number of items; `None` without items.
fn cycled(items: &[usize], index: usize) -> Option<usize> {
    items.get(index % items.len().max(1)).copied()
}

/// Returns the index of the GPU that a process gets, or that the device setting names.
fn number_of(device: DevicePreference, place: Place) -> Option<usize> {
    match (place, device) {
        (Place::Gpu(number), _) | (Place::Configured, DevicePreference::Cuda(number)) => Some(number),
        _ => None,
    }
}

/// Returns the number of threads per actor on the CPU, with a learner on the same cores; at least one.
#[must_use]
pub fn threads_per_actor(cores: usize, learner_threads: usize, actors: usize) -> usize {
    (cores.saturating_sub(learner_threads) / actors.max(1)).max(1)
}
