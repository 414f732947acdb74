//! Placement of the processes of a run on the GPUs of this machine, with threads and games that suit them.
//!
//! Contexts of several processes take turns on a GPU, so each GPU gets as few processes as possible: one evaluating
//! process, and the learner has a GPU of its own if there are two or more. [`place`] is a pure function of a
//! [`Machine`] and the configuration; settings that name a device, a number of processes or of threads stay as they
//! are. [`Machine::here`] describes this machine.

use std::fmt;

use inference::DevicePreference;
use service::ConfigError;
use service::gpus::Gpu;

use crate::boards::actor_names;
use crate::config::Fleet as Config;
use crate::run_directory::Inference;
use crate::wiring::Role;

mod machine;
#[cfg(test)]
mod tests;

/// Cores per actor process without an accelerator. The threads of one process share an evaluation cache.
const CORES_PER_ACTOR: usize = 8;
/// Threads of an actor on an accelerator: one searches while another waits for its batch.
const ACCELERATOR_THREADS_MIN: usize = 2;
/// The most cores that actors on accelerators leave to the learner, its preparing threads, the replay server and the
/// threads that submit batches.
const OTHER_CORES_MAX: usize = 4;

/// The cores, memory and accelerators of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// The cores that processes may use.
    pub cores: usize,
    /// The memory in bytes.
    pub memory_bytes: u64,
    /// The accelerators.
    pub accelerators: Accelerators,
}

/// The accelerators of a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Accelerators {
    /// There is none, for a reason.
    None(String),
    /// One that needs no placement: MPS, or a partition of a GPU.
    One {
        /// Its name.
        name: String,
        /// The reason why no process can use it.
        refused: Option<String>,
    },
    /// NVIDIA GPUs, in the order in which CUDA numbers them.
    Cuda(Vec<Candidate>),
}

/// A GPU that processes may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The GPU.
    pub gpu: Gpu,
    /// The reason why no process can use it.
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
    /// The device that its settings choose.
    Configured,
    /// The CPU, in place of `auto`.
    Cpu,
    /// The GPU of this number in [`Accelerators::Cuda`] is the only one that the process sees. It compares that GPU
    /// with the CPU, as `auto` does.
    Gpu(usize),
}

/// The devices, threads and games of the processes of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The device of each learner, in the order of their group.
    pub learners: Vec<Place>,
    /// The device of the arena.
    pub arena: Place,
    /// The device of the inference server, if the run has one.
    pub inference: Option<Place>,
    /// The device of each actor.
    pub actors: Vec<Place>,
    /// Self-play threads of each actor.
    pub actor_threads: usize,
    /// The games of each thread of an actor on an accelerator; 0 if none is expected.
    pub accelerator_games: usize,
    /// The threads of the inference server; 0 leaves their number to the server.
    pub inference_threads: usize,
    /// The environment of processes on each GPU, by its number.
    environments: Vec<Vec<(String, String)>>,
    /// The environment of all other processes.
    environment: Vec<(String, String)>,
    lines: Vec<String>,
}

impl Placement {
    /// Returns the settings by which a process of this role has its place: `learner.device=cpu`.
    pub(crate) fn sets(&self, role: Role, place: Place) -> Option<String> {
        (place == Place::Cpu).then(|| format!("{}.device=cpu", role.name()))
    }

    /// Returns the variables that a process with this place gets in addition to those of this process.
    pub(crate) fn environment(&self, place: Place) -> &[(String, String)] {
        match place {
            Place::Gpu(number) => &self.environments[number],
            Place::Configured | Place::Cpu => &self.environment,
        }
    }

    /// The lines that describe to a person which process is where, and which GPUs are unused for which reason.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// Places the processes of a run, with this number of learners and with `actors` self-play processes if that number is
/// given.
///
/// Each learner has a GPU of its own, from the first on; where there are fewer GPUs, they take turns on them. There is
/// one actor on each of the others, and if there is none, one on each GPU beside a learner. An inference server has the
/// first GPU for evaluation, and the actors then use none: their evaluators are only used while the server is away. The
/// arena is on the CPU by default, where it may use a tenth of one core: on a GPU it would take turns with self-play.
/// With `arena.device=auto` it compares the last GPU with the CPU.
///
/// # Errors
/// [`ConfigError`] names a key of the actors that is out of range.
pub fn place(
    machine: &Machine,
    config: &Config,
    learners: usize,
    actors: Option<usize>,
    inference: Inference,
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
        // Else each actor would hold memory of a GPU for the time when the server is away.
        (true, _) if machine.has_accelerator() => auto(config.actor.device, Some(Place::Cpu)),
        (false, true) => auto(config.actor.device, cycled(&evaluating, actor).map(Place::Gpu)),
        _ => auto(config.actor.device, None),
    };
    let actor_threads = match (config.actor.threads, is_accelerated) {
        (0, true) => machine.accelerator_threads(count),
        (0, false) => threads_per_actor(machine.cores, count) * if is_served { 2 } else { 1 },
        (threads, _) => threads,
    };
    let is_remote = inference == Inference::Remote;
    let server = is_remote.then(|| auto(config.inference.device, gpu(evaluating.first())));
    let is_server_accelerated = match config.inference.device {
        DevicePreference::Auto => matches!(server, Some(Place::Gpu(_))) || machine.has_one(),
        device => device.is_accelerator(),
    };
    let inference_threads = match config.inference.threads {
        0 if is_remote && !is_server_accelerated => threads_per_actor(machine.cores, 1),
        threads => threads,
    };
    let mut placement = Placement {
        learners,
        arena: auto(config.arena.device, gpu(evaluating.last())),
        inference: server,
        actors: (0..count).map(of_actor).collect(),
        actor_threads,
        accelerator_games: 0,
        inference_threads,
        environments: machine.environments(),
        environment: machine.order(),
        lines: Vec::new(),
    };
    if is_accelerated {
        placement.accelerator_games =
            config.actor_settings()?.accelerator_games(actor_threads, machine.memory_bytes / count.max(1) as u64);
    }
    placement.lines = describe(machine, config, &placement);
    Ok(placement)
}

impl Machine {
    /// The numbers of the GPUs that processes can use.
    fn usable(&self) -> Vec<usize> {
        let Accelerators::Cuda(candidates) = &self.accelerators else { return Vec::new() };
        (0..candidates.len()).filter(|&number| candidates[number].refused.is_none()).collect()
    }

    /// True if the machine has an accelerator, usable or not.
    fn has_accelerator(&self) -> bool {
        !matches!(self.accelerators, Accelerators::None(_))
    }

    /// The place of a process with `auto` that gets no GPU: one that sees only GPUs that were refused would try them.
    fn without_gpu(&self) -> Place {
        match &self.accelerators {
            Accelerators::Cuda(_) | Accelerators::One { refused: Some(_), .. } => Place::Cpu,
            Accelerators::None(_) | Accelerators::One { .. } => Place::Configured,
        }
    }

    /// True if the only accelerator needs no placement and can be used.
    fn has_one(&self) -> bool {
        matches!(self.accelerators, Accelerators::One { refused: None, .. })
    }

    /// True if actors may evaluate on an accelerator.
    fn accelerates(&self, config: &Config, evaluating: &[usize]) -> bool {
        match config.actor.device {
            DevicePreference::Cpu => false,
            DevicePreference::Cuda(_) | DevicePreference::Mps => true,
            DevicePreference::Auto if config.actor.kernel.is_of_cpu() => false,
            DevicePreference::Auto => self.has_one() || !evaluating.is_empty(),
        }
    }

    /// The self-play threads of each of `actors` processes on accelerators.
    fn accelerator_threads(&self, actors: usize) -> usize {
        let others = (self.cores / 4).clamp(1, OTHER_CORES_MAX);
        (self.cores.saturating_sub(others) / actors.max(1)).max(ACCELERATOR_THREADS_MIN)
    }

    /// The variable that makes CUDA number GPUs as `nvidia-smi` does, so that `cuda:1` is the same GPU in both.
    fn order(&self) -> Vec<(String, String)> {
        let is_cuda = matches!(self.accelerators, Accelerators::Cuda(_));
        is_cuda.then(|| ("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned())).into_iter().collect()
    }

    /// The variables of a process on each GPU. It sees no other GPU, so that libtorch takes no memory of another one.
    /// The only GPU of a machine needs no restriction.
    fn environments(&self) -> Vec<Vec<(String, String)>> {
        let Accelerators::Cuda(candidates) = &self.accelerators else { return Vec::new() };
        let only = |candidate: &Candidate| {
            let Gpu { index, uuid, .. } = &candidate.gpu;
            let name = if uuid.is_empty() { index.to_string() } else { uuid.clone() };
            (candidates.len() > 1).then(|| ("CUDA_VISIBLE_DEVICES".to_owned(), name))
        };
        candidates.iter().map(|candidate| self.order().into_iter().chain(only(candidate)).collect()).collect()
    }

    /// Describes the device of a process.
    fn describe(&self, device: DevicePreference, place: Place) -> String {
        match (place, &self.accelerators) {
            (Place::Gpu(number), Accelerators::Cuda(candidates)) => {
                format!("{}, or the CPU if that measures faster", candidates[number])
            }
            (Place::Cpu, _) => "cpu".to_owned(),
            (_, Accelerators::One { name, .. }) if device == DevicePreference::Auto => {
                format!("{name}, or the CPU if that measures faster")
            }
            (_, Accelerators::None(_)) if device == DevicePreference::Auto => "cpu".to_owned(),
            _ => device.to_string(),
        }
    }
}

/// Describes the placement, one line for each device or process.
fn describe(machine: &Machine, config: &Config, placement: &Placement) -> Vec<String> {
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
        games => format!(" of {games} games where the accelerator evaluates"),
    };
    for (name, &place) in actor_names(&config.run.boards, placement.actors.len()).zip(&placement.actors) {
        let device = machine.describe(config.actor.device, place);
        lines.push(format!("{name}: {device}; {} thread(s){games}", placement.actor_threads));
    }
    lines.push(format!("arena: {}", machine.describe(config.arena.device, placement.arena)));
    lines.extend(shared(machine, config, placement));
    lines
}

/// Describes GPUs that several actors share, and GPUs that no process uses.
fn shared(machine: &Machine, config: &Config, placement: &Placement) -> Vec<String> {
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
            format!("{gpu} is shared by {count} learners, which take turns on it and sum with Gloo instead of NCCL")
        })
    };
    machine.usable().into_iter().flat_map(|number| [by_learners(number), line(number)]).flatten().collect()
}

/// Returns the item at `index`, from the start again after the last; `None` if there is none.
fn cycled(items: &[usize], index: usize) -> Option<usize> {
    items.get(index % items.len().max(1)).copied()
}

/// Returns the number of the GPU that a process has or that its setting names.
fn number_of(device: DevicePreference, place: Place) -> Option<usize> {
    match (place, device) {
        (Place::Gpu(number), _) | (Place::Configured, DevicePreference::Cuda(number)) => Some(number),
        _ => None,
    }
}

/// Returns the threads of each actor without an accelerator, leaving one core to the learner if there is more than one.
pub(crate) fn threads_per_actor(cores: usize, actors: usize) -> usize {
    (cores.saturating_sub(1) / actors.max(1)).max(1)
}
