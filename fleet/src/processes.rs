//! Starts, watches, scrapes and drains the processes of a run.

use std::iter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use service::directory::replace;
use service::net::{ReservedPort, reserve_wanted};

use crate::child::{self, Child, Event};
use crate::exposition::{self, Exposition};
use crate::placement::Place;
use crate::plan::Plan;
use crate::run_directory::{Inference, archive_of_replay_server, read_json};
use crate::wiring::{self, Role, Wiring};

/// Timeout of one scrape; the metrics of a process that takes longer are missing from this round.
const SCRAPE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for the actors to upload their trajectories; the learner is drained when they have ended, or after this time.
const ACTORS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time since the start of the drain after which the replay server is drained, even if the learner still writes its
/// checkpoint.
const LEARNER_TIMEOUT: Duration = Duration::from_secs(8);
/// Time since the start of the drain after which every process that still runs is killed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks of draining processes.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// A process of the fleet and its admin port.
#[derive(Debug)]
pub struct Member {
    /// The role.
    pub role: Role,
    /// The process.
    pub child: Child,
    admin: SocketAddr,
}

/// A process of a run, as [`RunDirectory::fleet`](crate::RunDirectory::fleet) lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The name in the run.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The address of the admin port.
    pub admin: SocketAddr,
}

/// Reads the list of processes from `file`.
///
/// # Errors
/// Fails if `file` cannot be read or is not a list of processes.
pub fn read_list(file: &Path) -> anyhow::Result<Vec<Listed>> {
    read_json(file)
}

/// The processes of a run.
#[derive(Debug)]
pub struct Fleet {
    members: Vec<Member>,
    replay: Vec<SocketAddr>,
    /// The ports of the processes, reserved so that a restarted process can bind its port again.
    _ports: Vec<ReservedPort>,
    agent: ureq::Agent,
}

/// Selects if an arena rates the weights versions of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rating {
    /// An arena is started.
    On,
    /// No arena is started, because it would take cores from the benchmark.
    Off,
}

/// Returns the folder of this program, which holds the programs of a run too.
///
/// # Errors
/// The program of a planned process is missing; the error names the command that builds it.
pub fn binaries(plan: &Plan, rating: Rating) -> anyhow::Result<PathBuf> {
    let served = (plan.progress.inference == Inference::Remote).then_some(Role::Inference);
    let rated = (rating == Rating::On).then_some(Role::Arena);
    for role in [Role::Replay, Role::Actor].into_iter().chain(served).chain(rated) {
        beside_this_binary(role.program(), role.program())?;
    }
    let learner = beside_this_binary(Role::Learner.program(), Role::Learner.program())?;
    Ok(learner.parent().context("find the folder of this program")?.to_owned())
}

/// Returns the path of the program `name` of `package` in the folder of this program.
///
/// # Errors
/// The file is missing; the error names the command that builds it.
pub fn beside_this_binary(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("find this program")?.with_file_name(name);
    if !program.is_file() {
        bail!("{} is missing; build it with cargo build --release --package {package}", program.display());
    }
    Ok(program)
}

impl Fleet {
    /// Starts every process of a run on free loopback ports, with the programs in the folder `binaries`. A replay
    /// server keeps the port of the previous session unless it is taken.
    pub fn start(plan: &Plan, binaries: &Path, rating: Rating, now: Instant) -> anyhow::Result<Self> {
        let Plan { run, config, placement, .. } = plan;
        let others = 1 + plan.learners + 2 + plan.learners + plan.actors + plan.replay.len();
        let wanted = plan.replay.iter().copied().chain(iter::repeat_n(None, others));
        let reserved = reserve_wanted(wanted).context("find free ports")?;
        let mut ports = reserved.iter().map(ReservedPort::address);
        let replay: Vec<SocketAddr> = ports.by_ref().take(plan.replay.len()).collect();
        let mut next = || ports.next().expect("a port was reserved for every use");
        let (learners, inference): (Vec<SocketAddr>, _) = ((0..plan.learners).map(|_| next()).collect(), next());
        let is_remote = plan.progress.inference == Inference::Remote;
        let scheme = config.security.scheme();
        let endpoint = |address: &SocketAddr| format!("{scheme}://{address}");
        let wiring = Wiring {
            replay: replay.iter().map(endpoint).collect(),
            learner: endpoint(&learners[0]),
            inference: is_remote.then(|| endpoint(&inference)),
        };
        let mut members = Vec::new();
        let mut start = |role: Role, place: Place, name: String, listen: Option<SocketAddr>, sets: Vec<String>| {
            let (admin, listen) = (next(), listen.map(|address| address.to_string()));
            let sets = sets.into_iter().chain(placement.sets(role, place)).chain(wiring.sets(role));
            let mut arguments = wiring::arguments(&run.config(), listen.as_deref(), sets);
            arguments.extend(["--admin".into(), admin.to_string().into(), "--exit-with-parent".into()]);
            let log = run.logs().join(format!("{name}.log"));
            let program = binaries.join(role.program());
            let starting = format!("start {}", program.display());
            let environment = placement.environment(place).to_vec();
            let settings = child::Settings { name, program, arguments, environment, log };
            let child = Child::start(settings, now).context(starting)?;
            members.push(Member { role, child, admin });
            anyhow::Ok(())
        };
        let named = |role: Role| role.program().to_owned();
        for (number, listen) in (1..).zip(&replay) {
            let mut sets = Vec::new();
            let mut name = named(Role::Replay);
            if number > 1 {
                sets.push(format!("run.directory={}", run.of_replay_server(number).display()));
                name = format!("{name}-{number}");
                if !config.replay.archive.is_empty() {
                    sets.push(format!("replay.archive={}", archive_of_replay_server(&config.replay.archive, number)));
                }
            }
            start(Role::Replay, Place::Configured, name, Some(*listen), sets)?;
        }
        let group = learners.iter().map(endpoint).collect::<Vec<_>>().join(",");
        for (number, listen) in (1..).zip(&learners) {
            let (mut sets, mut name) = (Vec::new(), named(Role::Learner));
            if learners.len() > 1 {
                sets.extend([format!("learner.group={group}"), format!("learner.index={}", number - 1)]);
            }
            if number > 1 {
                sets.push(format!("run.directory={}", run.of_learner(number).display()));
                name = format!("{name}-{number}");
            }
            start(Role::Learner, placement.of_learner(number), name, Some(*listen), sets)?;
        }
        if rating == Rating::On {
            start(Role::Arena, placement.arena, named(Role::Arena), None, Vec::new())?;
        }
        if let Some(place) = placement.inference {
            let sets = vec![format!("inference.threads={}", placement.inference_threads)];
            start(Role::Inference, place, named(Role::Inference), Some(inference), sets)?;
        }
        for (actor, &place) in placement.actors.iter().enumerate() {
            let mut sets = vec![format!("actor.id={actor}"), format!("actor.threads={}", placement.actor_threads)];
            if placement.accelerator_games > 0 {
                sets.push(format!("actor.accelerator_games={}", placement.accelerator_games));
            }
            start(Role::Actor, place, format!("actor-{actor}"), None, sets)?;
        }
        let fleet = Self { members, replay, _ports: reserved, agent: exposition::agent(SCRAPE_TIMEOUT) };
        fleet.list(&run.fleet())?;
        Ok(fleet)
    }

    /// Writes name, role and admin address of each process to `file`.
    fn list(&self, file: &Path) -> anyhow::Result<()> {
        let list: Vec<Listed> = self
            .members
            .iter()
            .map(|member| Listed { name: member.child.name().to_owned(), role: member.role, admin: member.admin })
            .collect();
        Ok(replace(file, &serde_json::to_vec_pretty(&list)?)?)
    }

    /// The address of each replay server.
    pub fn replay(&self) -> &[SocketAddr] {
        &self.replay
    }

    /// The processes, in the order they were started.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Checks every process, and restarts those whose delay is over.
    pub fn watch(&mut self, now: Instant) -> anyhow::Result<Vec<(usize, Event)>> {
        let mut events = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            let event = member.child.watch(now).with_context(|| format!("start {}", member.child.name()))?;
            events.extend(event.map(|event| (index, event)));
        }
        Ok(events)
    }

    /// Scrapes the metrics of every process; processes that do not answer are left out.
    pub fn scrape(&self) -> Vec<(usize, Role, Exposition)> {
        let running = self.members.iter().enumerate().filter(|(_, member)| member.child.running());
        let scraped = running
            .filter_map(|(index, member)| Some((index, member.role, exposition::scrape(&self.agent, member.admin)?)));
        scraped.collect()
    }

    /// Drains every process in order: actors and arena, learner, replay server. Returns a sentence for each process
    /// that failed to drain.
    pub fn drain(&mut self) -> anyhow::Result<Vec<String>> {
        let begin = Instant::now();
        let mut undrained = Vec::new();
        let order: [(&[Role], Duration); 3] = [
            (&[Role::Actor, Role::Arena], ACTORS_TIMEOUT),
            (&[Role::Learner, Role::Inference], LEARNER_TIMEOUT),
            (&[Role::Replay], DRAIN_TIMEOUT),
        ];
        for (roles, timeout) in order {
            for member in self.of(roles) {
                member.child.terminate();
            }
            // The learner waits only for the actors, which upload to it and to the replay server, not for the arena.
            let awaited = if roles.contains(&Role::Actor) { &[Role::Actor][..] } else { roles };
            while begin.elapsed() < timeout && self.any_running(awaited, &mut undrained)? {
                std::thread::sleep(DRAIN_POLL);
            }
        }
        while begin.elapsed() < DRAIN_TIMEOUT && self.any_running(&Role::ALL, &mut undrained)? {
            std::thread::sleep(DRAIN_POLL);
        }
        for Member { child, .. } in self.members.iter_mut().filter(|member| member.child.running()) {
            child.kill();
            let (name, seconds) = (child.name(), DRAIN_TIMEOUT.as_secs());
            undrained.push(format!("{name} did not end within {seconds} s and was killed; see its log"));
        }
        Ok(undrained)
    }

    fn of(&mut self, roles: &[Role]) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().filter(move |member| roles.contains(&member.role))
    }

    /// Returns true while a process of these roles runs; adds those that failed to drain to `undrained`.
    fn any_running(&mut self, roles: &[Role], undrained: &mut Vec<String>) -> anyhow::Result<bool> {
        let mut any = false;
        for Member { child, .. } in self.of(roles) {
            undrained.extend(child.ended()?.map(|how| format!("{} {how}", child.name())));
            any |= child.running();
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    //! Tests the order of start and drain with shell scripts in place of the processes.

    use std::fs;
    use std::os::unix::fs::symlink;

    use service::gpus::Gpu;

    use super::*;
    use crate::config::Fleet as Config;
    use crate::placement::{Accelerators, Candidate, Machine, place};
    use crate::run_directory::{Progress, RunDirectory};

    /// Deadline for a shell script to start; it takes far less.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// The script in place of each process. It is a file of the repository, because a file that a test has just written
    /// cannot be executed while another test forks.
    const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stand_in.sh");

    /// A fleet of stand-ins.
    struct StandIns {
        folder: tempfile::TempDir,
        run: RunDirectory,
    }

    impl StandIns {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in ["replay-server", "learner", "actor", "arena", "inference-server"] {
                symlink(STAND_IN, folder.path().join(name)).unwrap();
            }
            let run = RunDirectory::new(folder.path(), "first").unwrap();
            run.create().unwrap();
            Self { folder, run }
        }

        /// Starts the fleet, and waits until every process has written its command line.
        fn start(&self, actors: usize, inference: Inference) -> Fleet {
            let machine = Machine { cores: 16, memory_bytes: 0, accelerators: Accelerators::None(String::new()) };
            self.start_on(&machine, actors, inference, 1)
        }

        fn start_on(&self, machine: &Machine, actors: usize, inference: Inference, replay_servers: usize) -> Fleet {
            self.start_with(machine, actors, inference, replay_servers, 1)
        }

        fn start_with(
            &self,
            machine: &Machine,
            actors: usize,
            inference: Inference,
            replay_servers: usize,
            learners: usize,
        ) -> Fleet {
            let mut config = Config::default();
            (config.actor.threads, config.inference.threads) = (3, 5);
            config.replay.archive = "file:///archive/".to_owned();
            // Any certificate makes the scheme `https`; the stand-ins never read it.
            config.security.certificate = "certificate.pem".into();
            let progress = Progress { inference, ..Progress::default() };
            let (run, replay) = (self.run.clone(), vec![None; replay_servers]);
            let placement = place(machine, &config, Some(actors), inference).unwrap();
            let written = config.clone();
            let plan = Plan { run, config, written, actors, learners, placement, replay, progress, unread: None };
            let fleet = Fleet::start(&plan, self.folder.path(), Rating::On, Instant::now()).unwrap();
            let begin = Instant::now();
            while self.lines("started").len() < fleet.members().len() {
                assert!(begin.elapsed() < DEADLINE, "only these have started: {:?}", self.lines("started"));
                std::thread::yield_now();
            }
            fleet
        }

        fn lines(&self, name: &str) -> Vec<String> {
            let text = fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        }
    }

    #[test]
    fn actors_end_first_then_the_learner_and_the_replay_server_last() {
        let stand_ins = StandIns::new();
        let mut fleet = stand_ins.start(2, Inference::Local);
        assert_eq!(fleet.drain().unwrap(), [""; 0]);
        let mut ended = stand_ins.lines("ended");
        // The arena drains with the actors, and the drain of the learner does not wait for it.
        ended.retain(|name| name != "arena");
        assert_eq!(ended, ["actor", "actor", "learner", "replay-server"]);
        assert!(fleet.members().iter().all(|member| !member.child.running()));
    }

    #[test]
    fn every_process_gets_the_addresses_of_the_others_and_its_thread_count() {
        let stand_ins = StandIns::new();
        let mut fleet = stand_ins.start(2, Inference::Remote);
        fleet.drain().unwrap();
        let started = stand_ins.lines("started");
        let of = |name: &str| started.iter().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
        let argument = |line: &str, before: &str| {
            let (_, after) = line.split_once(before).unwrap_or_else(|| panic!("{line} lacks {before}"));
            after.split(' ').next().unwrap().to_owned()
        };
        let [replay, learner, inference] =
            ["replay-server", "learner", "inference-server"].map(|name| argument(of(name)[0], "--listen "));
        assert_eq!(argument(of("learner")[0], "learner.replay="), format!("https://{replay}"));
        assert_eq!(argument(of("arena")[0], "arena.weights="), format!("https://{learner}"));
        assert_eq!(argument(of("inference-server")[0], "inference.threads="), "5");
        let mut ids = Vec::new();
        for actor in of("actor") {
            assert_eq!(argument(actor, "actor.replay="), format!("https://{replay}"));
            assert_eq!(argument(actor, "actor.learner="), format!("https://{learner}"));
            assert_eq!(argument(actor, "actor.inference="), format!("https://{inference}"));
            assert_eq!(argument(actor, "actor.threads="), "3");
            ids.push(argument(actor, "actor.id="));
        }
        ids.sort();
        assert_eq!(ids, ["0", "1"]);
        let admins: std::collections::BTreeSet<_> = started.iter().map(|line| argument(line, "--admin ")).collect();
        assert_eq!(admins.len(), 6, "every process has a port of its own");
    }

    #[test]
    fn each_replay_server_has_a_folder_and_an_archive_of_its_own() {
        let stand_ins = StandIns::new();
        let machine = Machine { cores: 16, memory_bytes: 0, accelerators: Accelerators::None(String::new()) };
        let mut fleet = stand_ins.start_on(&machine, 1, Inference::Local, 3);
        fleet.drain().unwrap();
        let mut archives: Vec<_> = stand_ins
            .lines("started")
            .iter()
            .filter(|line| line.starts_with("replay-server"))
            .map(|line| {
                line.split_once("replay.archive=").map(|(_, after)| after.split(' ').next().unwrap().to_owned())
            })
            .collect();
        archives.sort();
        let of = |number| Some(format!("file:///archive/replay-server-{number}"));
        // The first server uses the archive of the run file.
        assert_eq!(archives, [None, of(2), of(3)]);
    }

    #[test]
    fn each_process_on_a_gpu_sees_that_gpu_only() {
        let gpu = |index: usize| Gpu { index, uuid: format!("GPU-{index}"), ..Gpu::default() };
        let candidate = |index| Candidate { gpu: gpu(index), refused: None };
        let accelerators = Accelerators::Cuda((0..3).map(candidate).collect());
        let stand_ins = StandIns::new();
        let machine = Machine { cores: 16, memory_bytes: 1 << 40, accelerators };
        let mut fleet = stand_ins.start_on(&machine, 2, Inference::Local, 1);
        fleet.drain().unwrap();
        let started = stand_ins.lines("started");
        let visible = |name: &str| {
            let lines = started.iter().filter(|line| line.starts_with(name));
            let mut visible: Vec<&str> = lines.map(|line| line.rsplit(' ').next().unwrap()).collect();
            visible.sort_unstable();
            visible
        };
        assert_eq!(visible("learner"), ["CUDA_VISIBLE_DEVICES=GPU-0"]);
        assert_eq!(visible("actor"), ["CUDA_VISIBLE_DEVICES=GPU-1", "CUDA_VISIBLE_DEVICES=GPU-2"]);
        assert_eq!(visible("arena"), visible("replay-server"), "the arena is on the CPU");
        let actor = started.iter().find(|line| line.starts_with("actor")).unwrap();
        assert!(actor.contains("--set actor.accelerator_games=2048"), "{actor}");
    }

    #[test]
    fn each_learner_knows_all_of_them_and_has_a_place_and_a_folder_of_its_own_and_those_with_gpus_the_next_one() {
        let stand_ins = StandIns::new();
        let gpu = |index: usize| Gpu { index, uuid: format!("GPU-{index}"), ..Gpu::default() };
        let accelerators =
            Accelerators::Cuda((0..2).map(|index| Candidate { gpu: gpu(index), refused: None }).collect());
        let machine = Machine { cores: 16, memory_bytes: 1 << 40, accelerators };
        let mut fleet = stand_ins.start_with(&machine, 1, Inference::Local, 1, 3);
        fleet.drain().unwrap();
        let mut started = stand_ins.lines("started");
        started.retain(|line| line.starts_with("learner"));
        started.sort_by_key(|line| line.split_once("learner.index=").unwrap().1.to_owned());
        let group = |line: &String| line.split_once("learner.group=").unwrap().1.split(' ').next().unwrap().to_owned();
        assert!(started.iter().all(|line| group(line) == group(&started[0])), "{started:?}");
        for ((number, line), listen) in (1..).zip(&started).zip(group(&started[0]).split(',')) {
            assert!(line.contains(&format!("--listen {}", listen.trim_start_matches("https://"))), "{line}");
            assert!(line.contains(&format!("learner.index={}", number - 1)), "{line}");
            assert_eq!(
                line.contains(&format!("run.directory={}", stand_ins.run.of_learner(number).display())),
                number > 1
            );
        }
        let visible: Vec<&str> = started.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(visible, [0, 1, 0].map(|gpu| format!("CUDA_VISIBLE_DEVICES=GPU-{gpu}")));
    }

    #[test]
    fn the_list_of_a_fleet_names_every_process() {
        let stand_ins = StandIns::new();
        let mut fleet = stand_ins.start(2, Inference::Local);
        let list = read_list(&stand_ins.run.fleet()).unwrap();
        fleet.drain().unwrap();
        let names: Vec<&str> = list.iter().map(|listed| listed.name.as_str()).collect();
        assert_eq!(names, ["replay-server", "learner", "arena", "actor-0", "actor-1"]);
    }
}
