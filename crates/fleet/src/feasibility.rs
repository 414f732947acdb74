//! Finds the reasons why a run could never train, before any process starts.
//!
//! [`obstacles`] depends only on the configuration of the run and the [`Programs`] of this machine. Each rule comes
//! from the crate that would fail. `zerofleet train`, `tune` and `doctor` call it, as do the compose file and the
//! decision about libtorch.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use evaluators::{BatchMax, Calibration, Settings, Threads};
use game::Game as _;
use run_file::RunFile;
use run_file::actor::Kernel;
use run_file::arena::GateKind;
use run_file::learner;
use run_file::learner::libtorch::{Cpu, Reason, why};
use service::ConfigError;

use crate::Role;
use crate::programs::beside_this_binary;
use crate::run_directory::{Inference, Learner};

/// Remedy for a program without libtorch.
const TORCH_BUILD: &str = "build it with libtorch (cargo xtask train)";

/// A reason why a run could never train.
#[derive(Debug)]
pub enum Obstacle {
    /// Keys of the run file contradict each other on any machine.
    Settings(ConfigError),
    /// The program of a role cannot compute the run; a program built with libtorch might.
    Engine(Role, ConfigError),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(error) | Self::Engine(_, error) => error.fmt(f),
        }
    }
}

/// All obstacles of a run; at least one.
#[derive(Debug)]
pub struct Infeasible(Vec<Obstacle>);

impl std::error::Error for Infeasible {}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// The capabilities of the programs of a run.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Roles with a program that links libtorch.
    pub with_libtorch: Vec<Role>,
    /// CPU features for training.
    pub cpu: Cpu,
}

impl Programs {
    /// Inspects the programs in this program's directory. A missing program counts as a program without libtorch.
    #[must_use]
    pub fn here() -> Self {
        let is_linked =
            |role: &Role| beside_this_binary(role.program(), role.program()).is_ok_and(|path| links_libtorch(&path));
        Self { with_libtorch: Role::ALL.into_iter().filter(is_linked).collect(), cpu: Cpu::this() }
    }

    /// Returns the capabilities for a run that `learner` trains: a program of the user may train any network.
    #[must_use]
    pub fn with(mut self, learner: Learner) -> Self {
        self.with_libtorch.extend((learner == Learner::Own).then_some(Role::Learner));
        self
    }

    /// Returns the capabilities of programs with libtorch for every role, for checks of settings alone.
    #[must_use]
    pub fn of_every_kind() -> Self {
        Self { with_libtorch: Role::ALL.to_vec(), cpu: Cpu::this() }
    }
}

/// Library names that occur in the file of a program that links libtorch.
const LIBTORCH: [&[u8]; 2] = [b"libtorch_cpu.so", b"libtorch_cpu.dylib"];
/// Bytes at the start of a program file in which library names are searched.
const LISTED_BYTES: u64 = 4 << 20;

/// Returns true if the start of a program file contains the name of a libtorch library.
fn links_libtorch(program: &Path) -> bool {
    let mut bytes = Vec::new();
    // After a read error, the bytes read before are searched.
    let _ = File::open(program).map(|file| file.take(LISTED_BYTES).read_to_end(&mut bytes));
    LIBTORCH.iter().any(|name| bytes.windows(name.len()).any(|window| window == *name))
}

/// Checks that a run can train.
///
/// # Errors
/// [`Infeasible`] lists every obstacle; [`ConfigError`] names a key that is out of range.
pub fn check(config: &RunFile, inference: Inference, programs: &Programs) -> anyhow::Result<()> {
    let found = obstacles(config, inference, programs)?;
    if found.is_empty() { Ok(()) } else { Err(Infeasible(found).into()) }
}

/// Returns every reason why a run could never train with these programs.
///
/// # Errors
/// A single key is out of range; the error names the key.
pub fn obstacles(config: &RunFile, inference: Inference, programs: &Programs) -> Result<Vec<Obstacle>, ConfigError> {
    let learner = config.learner_settings()?;
    let settings = of_settings(config, &learner, inference)?.into_iter().map(Obstacle::Settings);
    Ok(settings.chain(of_engines(config, &learner, inference, programs)).collect())
}

/// Returns an error for each key that prevents training on any machine.
fn of_settings(
    config: &RunFile,
    learner: &learner::Settings,
    inference: Inference,
) -> Result<Vec<ConfigError>, ConfigError> {
    let replay = config.replay_settings()?;
    let mut found = Vec::new();
    let mut refuse = |key: &str, reason: String| found.push(ConfigError::invalid(key, reason));
    let architecture = learner.architecture();
    let of_boards = learner.boards.iter().map(|board| (&board.game, &board.architecture));
    for (game, architecture) in std::iter::once((&learner.game, &architecture)).chain(of_boards) {
        if let Err(error) = evaluators::check_network(&wanted(config, Role::Actor), true, architecture)
            && !error.is_of_the_kernel()
        {
            refuse("network", format!("{game}: {error}"));
        }
        let rules = game.rules();
        let spec = rules.spec();
        for (key, limit, of_game, what) in [
            ("replay.actions_max", replay.limits.actions, spec.actions, "actions"),
            ("replay.steps_max", replay.limits.steps_max, spec.max_plies, "steps in the longest episode"),
        ] {
            if of_game > limit {
                refuse(key, format!("is {limit}, but {} has {of_game} {what}; set at least {of_game}", spec.name));
            }
        }
    }
    let (batch, table) = (learner.learner.batch_size as u64, &replay.tables[0]);
    let batch_max = table.rate_limiter.batch_items_max();
    if batch > batch_max {
        let reason = format!("is {batch}, more than the {batch_max} samples that replay.error_items allows at once");
        refuse("learner.batch_size", reason);
    }
    let served_by = match inference {
        Inference::Remote => Some("--inference"),
        Inference::Local => (!config.actor.inference.is_empty()).then_some("actor.inference"),
    };
    found.extend(served_by.and_then(|key| config.check_served(key).err()));
    Ok(found)
}

/// Returns an obstacle for each engine that the run needs and the programs lack.
fn of_engines(
    config: &RunFile,
    learner: &learner::Settings,
    inference: Inference,
    programs: &Programs,
) -> Vec<Obstacle> {
    let architecture = learner.architecture();
    let of_boards = || learner.boards.iter().map(|board| &board.architecture);
    let architectures = || std::iter::once(&architecture).chain(of_boards());
    let has_libtorch = |role: Role| programs.with_libtorch.contains(&role);
    let mut found = Vec::new();
    if let Some(Reason::Required { key, why }) = why(learner, programs.cpu).filter(|_| !has_libtorch(Role::Learner)) {
        let reason = format!("{why}, but `learner` was built without libtorch; {TORCH_BUILD}");
        found.push(Obstacle::Engine(Role::Learner, ConfigError::invalid(key, reason)));
    }
    let is_served = inference == Inference::Remote || !config.actor.inference.is_empty();
    let evaluates = config.actor.kernel != Kernel::Simulated;
    let roles = [
        (Role::Actor, evaluates && (!is_served || config.actor.inference_fallback)),
        (Role::Inference, evaluates && inference == Inference::Remote),
        (Role::Arena, config.arena.gate != GateKind::None),
    ];
    for role in roles.into_iter().filter(|(_, is_used)| *is_used).map(|(role, _)| role) {
        let wanted = wanted(config, role);
        if let Err(invalid) = evaluators::check(&wanted, has_libtorch(role)) {
            let key = format!("{}.{}", role.name(), invalid.setting);
            found.push(Obstacle::Engine(role, ConfigError::invalid(key, invalid.reason)));
        } else if let Some(error) = architectures()
            .find_map(|architecture| evaluators::check_network(&wanted, has_libtorch(role), architecture).err())
            && error.is_of_the_kernel()
        {
            let channels = architecture.channels;
            let multiple = if architecture.design.block.inner_channels(channels) == channels { 16 } else { 32 };
            let above = channels.next_multiple_of(multiple);
            let below = above.saturating_sub(multiple);
            let works = if below == 0 { format!("{above} works") } else { format!("{below} and {above} work") };
            let reason = format!(
                "{channels} is not supported by `{}`, which was built without libtorch: {error}; {works}, or \
                 {TORCH_BUILD}, which is slow",
                role.program()
            );
            found.push(Obstacle::Engine(role, ConfigError::invalid("network.channels", reason)));
        }
    }
    found
}

/// Returns the evaluator settings of a role.
fn wanted(config: &RunFile, role: Role) -> Settings {
    let (device, precision, kernel) = match role {
        Role::Inference => (config.inference.device, config.inference.precision, config.inference.kernel),
        Role::Arena => (config.arena.device, config.arena.precision, config.arena.kernel),
        _ => match config.actor.kernel {
            Kernel::Network(kernel) => (config.actor.device, config.actor.precision, kernel),
            Kernel::Simulated => (config.actor.device, config.actor.precision, config.inference.kernel),
        },
    };
    Settings {
        device,
        precision,
        kernel,
        calibration: if role == Role::Actor { Calibration::OnRecentPositions } else { Calibration::Off },
        threads: Threads::exactly(1),
        batch_max: BatchMax::exactly(1),
        torch_build: TORCH_BUILD,
    }
}

#[cfg(test)]
mod tests {
    use run_file::learner::libtorch::Path as CpuPath;
    use service::config::Sources;

    use super::*;

    /// Returns programs without libtorch on a CPU without bfloat16.
    fn plain() -> Programs {
        Programs { with_libtorch: Vec::new(), cpu: Cpu { path: CpuPath::Avx2, has_bf16: false } }
    }

    fn found(sets: &[&str], inference: Inference, programs: &Programs) -> String {
        let sets = sets.iter().map(|&set| set.to_owned()).collect();
        let config: RunFile =
            Sources { file: None, env: std::iter::empty(), sets }.read(games::preset).unwrap().load().unwrap();
        let found = obstacles(&config, inference, programs).unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_preset_trains_on_a_plain_cpu() {
        for game in games::GAMES.iter().flat_map(|entry| entry.examples()) {
            let refused = found(&[&format!("run.game={game}")], Inference::Local, &plain());
            assert_eq!(refused, "", "{game}");
        }
        assert_eq!(found(&["network.model=muzero"], Inference::Local, &plain()), "");
        let boards = ["run.game=hex-5", "run.boards=[\"hex-7\"]", "network.heads=pooled"];
        assert_eq!(found(&boards, Inference::Local, &plain()), "");
    }

    #[test]
    fn what_could_never_train_is_refused_by_its_key_with_what_works() {
        let remote = Inference::Remote;
        let local = Inference::Local;
        for (sets, inference, expected) in [
            (&["network.channels=24"][..], local, "network.channels: 24 is not supported by `actor`"),
            (&["network.channels=24"], local, "16 and 32 work"),
            (&["network.channels=8"], local, "16 works"),
            (&["network.channels=48", "network.block=bottleneck"], local, "32 and 64 work"),
            (&["actor.kernel=libtorch"], local, "actor.kernel: `libtorch` needs libtorch"),
            (&["actor.device=cuda"], local, "actor.device: `cuda` needs libtorch"),
            (&["learner.precision=bf16"], local, "learner.precision: the CPU does not support bf16"),
            (
                &["replay.actions_max=6"],
                local,
                "replay.actions_max: is 6, but connect_four has 7 actions; set at least 7",
            ),
            (&["replay.steps_max=41"], local, "replay.steps_max: is 41, but connect_four has 42 steps"),
            (
                &["learner.batch_size=193", "replay.error_items=100", "replay.samples_per_insert=8"],
                local,
                "learner.batch_size: is 193, more than the 192 samples",
            ),
            (
                &[
                    "run.game=gym:Vector-v0",
                    "environment.actions=3",
                    "environment.steps_max=9",
                    "environment.planes=5000",
                    "environment.height=1",
                    "environment.width=1",
                ],
                local,
                "network: gym:Vector-v0: invalid planes 5000",
            ),
            (&["arena.device=cuda", "arena.gate=sprt"], local, "arena.device: `cuda` needs libtorch"),
            (&["inference.device=cuda"], remote, "inference.device: `cuda` needs libtorch"),
            (&["network.model=muzero"], remote, "--inference: an inference server does not support MuZero networks"),
            (&["run.game=catch", "actor.inference=http://127.0.0.1:1"], local, "actor.inference: an inference server"),
            (
                &["run.game=hex-5", "run.boards=[\"hex-7\"]", "network.heads=pooled"],
                remote,
                "--inference: an inference server supports only one board",
            ),
        ] {
            let refused = found(sets, inference, &plain());
            assert!(refused.contains(expected), "{sets:?}: `{refused}` does not contain `{expected}`");
        }
    }

    #[test]
    fn several_obstacles_are_listed_together_and_libtorch_removes_those_of_engines() {
        let sets = ["network.channels=24", "learner.precision=f16", "replay.actions_max=6"];
        assert_eq!(found(&sets, Inference::Local, &plain()).lines().count(), 3);
        let linked = Programs { with_libtorch: Role::ALL.to_vec(), ..plain() };
        assert_eq!(found(&sets, Inference::Local, &linked).lines().count(), 1);
    }

    #[test]
    fn a_program_is_linked_with_libtorch_if_its_file_names_the_library() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, b"\x7fELF\0libc.so.6\0").unwrap();
        assert!(!links_libtorch(&program));
        std::fs::write(&program, b"\x7fELF\0libtorch_cpu.so\0").unwrap();
        assert!(links_libtorch(&program));
        assert!(!links_libtorch(&folder.path().join("missing")));
    }
}
