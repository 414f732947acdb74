//! Starts, watches, scrapes and drains the processes of a run.

use std::ffi::OsString;
use std::iter;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use service::directory::replace;

use crate::child::{self, Child, Event};
use crate::config::Fleet as Config;
use crate::exposition::{self, Exposition};
use crate::run_directory::{Inference, RunDirectory};

/// Actors hand in what they hold; when they are gone, or after this time, the learner is asked to end.
const ACTORS_PATIENCE: Duration = Duration::from_secs(5);
/// The learner writes its checkpoint; when it is gone, or this long after the beginning, the replay server is asked to end.
const LEARNER_PATIENCE: Duration = Duration::from_secs(8);
/// This long after the beginning, whoever still runs is killed.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// How often ending processes are looked at.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// The role of a process in a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Plays.
    Actor,
    /// Stores.
    Replay,
    /// Trains.
    Learner,
    /// Measures.
    Arena,
    /// Evaluates for the actors.
    Inference,
}

/// A process of the fleet and its admin port.
#[derive(Debug)]
pub struct Member {
    /// What it is.
    pub role: Role,
    /// The process.
    pub child: Child,
    admin: SocketAddr,
    metrics: String,
}

/// A process of a run, as [`RunDirectory::fleet`] lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its name in the run.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Its admin port.
    pub admin: SocketAddr,
}

/// The processes that `file` lists.
///
/// # Errors
/// It is not there, or lists none.
pub fn read_list(file: &Path) -> anyhow::Result<Vec<Listed>> {
    let text = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("understand {}", file.display()))
}

/// A process that did not drain as it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undrained {
    /// Its name.
    pub name: String,
    /// What happened instead, in words that follow its name.
    pub how: String,
}

/// The processes of a run.
#[derive(Debug)]
pub struct Fleet {
    members: Vec<Member>,
    replay: Vec<SocketAddr>,
    agent: ureq::Agent,
}

/// How many processes of which size, and where the binaries are.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Self-play processes.
    pub actors: usize,
    /// Threads of each, whatever the run file says.
    pub actor_threads: usize,
    /// Whether an inference server evaluates for them.
    pub inference: Inference,
    /// Its threads, whatever the run file says.
    pub inference_threads: usize,
    /// Where each replay server listened before; on any free port where that is not known, or not free. At least one.
    pub replay: Vec<Option<SocketAddr>>,
    /// The folder that holds `replay-server`, `learner`, `actor`, `arena` and `inference-server`.
    pub binaries: PathBuf,
    /// How the endpoints of its servers begin: `http` or `https`.
    pub scheme: &'static str,
    /// Whether versions are rated meanwhile.
    pub rating: Rating,
    /// The archive of the first replay server, from which those of the others follow; empty for none.
    pub archive: String,
}

/// Whether an arena rates the versions of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rating {
    /// One does.
    On,
    /// None is started: it would take cores from what is measured.
    Off,
}

impl Settings {
    /// Those of a run that is configured like this, with the binaries beside this one.
    pub fn beside_this_binary(
        config: &Config,
        actors: usize,
        inference: Inference,
        rating: Rating,
    ) -> anyhow::Result<Self> {
        let (scheme, binaries) = (config.security.scheme(), this_folder()?);
        let served = (inference == Inference::Remote).then_some("inference-server");
        let rated = (rating == Rating::On).then_some("arena");
        for name in ["replay-server", "learner", "actor"].into_iter().chain(served).chain(rated) {
            present(&binaries, name, name)?;
        }
        let (actor_threads, inference_threads) = (config.actor.threads, config.inference.threads);
        let (replay, archive) = (vec![None], config.replay.archive.clone());
        Ok(Self { actors, actor_threads, inference, inference_threads, replay, binaries, scheme, rating, archive })
    }
}

/// The path of the program `name` of `package` in the folder of this program.
///
/// # Errors
/// It is not there; the error names the command that builds it.
pub fn beside_this_binary(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    present(&this_folder()?, name, package)
}

fn this_folder() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("find this program")?;
    Ok(this.parent().context("find the folder of this program")?.to_owned())
}

fn present(folder: &Path, name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let program = folder.join(name);
    if !program.is_file() {
        bail!("{} is missing; build it with cargo build --release --package {package}", program.display());
    }
    Ok(program)
}

impl Fleet {
    /// Starts every process of `run` on free loopback ports.
    pub fn start(settings: &Settings, run: &RunDirectory, now: Instant) -> anyhow::Result<Self> {
        let scheme = settings.scheme;
        let others = 2 + 3 + settings.actors + settings.replay.len();
        let mut ports = pick(settings.replay.iter().copied().chain(iter::repeat_n(None, others)))?.into_iter();
        let replay: Vec<SocketAddr> = ports.by_ref().take(settings.replay.len()).collect();
        let mut next = || ports.next().expect("a port was picked for every use");
        let (learner, inference) = (next(), next());
        let is_remote = settings.inference == Inference::Remote;
        let mut plans = Vec::new();
        for (number, listen) in (1..).zip(&replay) {
            let mut arguments = vec!["--listen".into(), listen.to_string().into()];
            let mut name = "replay-server".to_owned();
            if number > 1 {
                arguments.extend(set(format!("run.directory={}", run.of_replay_server(number).display())));
                name = format!("{name}-{number}");
                if !settings.archive.is_empty() {
                    // In one place, each would take the others' logs for its own.
                    arguments.extend(set(format!("replay.archive={}/{name}", settings.archive.trim_end_matches('/'))));
                }
            }
            plans.push((Role::Replay, "replay-server", name, arguments));
        }
        let all: Vec<String> = replay.iter().map(|address| format!("{scheme}://{address}")).collect();
        let all = all.join(",");
        let mut arguments = vec!["--listen".into(), learner.to_string().into()];
        arguments.extend(set(format!("learner.replay={all}")));
        plans.push((Role::Learner, "learner", "learner".to_owned(), arguments));
        if settings.rating == Rating::On {
            let arguments = set(format!("arena.weights={scheme}://{learner}")).to_vec();
            plans.push((Role::Arena, "arena", "arena".to_owned(), arguments));
        }
        if is_remote {
            let mut arguments = vec!["--listen".into(), inference.to_string().into()];
            arguments.extend(set(format!("inference.learner={scheme}://{learner}")));
            arguments.extend(set(format!("inference.threads={}", settings.inference_threads)));
            plans.push((Role::Inference, "inference-server", "inference-server".to_owned(), arguments));
        }
        for actor in 0..settings.actors {
            let mut sets = vec![
                format!("actor.id={actor}"),
                format!("actor.threads={}", settings.actor_threads),
                format!("actor.replay={all}"),
                format!("actor.learner={scheme}://{learner}"),
            ];
            if is_remote {
                sets.push(format!("actor.inference={scheme}://{inference}"));
            }
            plans.push((Role::Actor, "actor", format!("actor-{actor}"), sets.into_iter().flat_map(set).collect()));
        }
        let mut members = Vec::new();
        for (role, program, name, mut arguments) in plans {
            let admin = next();
            arguments.extend(["--config".into(), run.config().into_os_string()]);
            arguments.extend(["--admin".into(), admin.to_string().into(), "--exit-with-parent".into()]);
            let log = run.logs().join(format!("{name}.log"));
            let settings = child::Settings { name, program: settings.binaries.join(program), arguments, log };
            members.push(member(role, settings, admin, now)?);
        }
        let fleet = Self { members, replay, agent: exposition::agent() };
        fleet.list(&run.fleet())?;
        Ok(fleet)
    }

    /// Writes down where each process tells its numbers, for whoever wants to look.
    fn list(&self, file: &Path) -> anyhow::Result<()> {
        let list: Vec<Listed> = self
            .members
            .iter()
            .map(|member| Listed { name: member.child.name().to_owned(), role: member.role, admin: member.admin })
            .collect();
        Ok(replace(file, &serde_json::to_vec_pretty(&list)?)?)
    }

    /// Where each replay server listens.
    pub fn replay(&self) -> &[SocketAddr] {
        &self.replay
    }

    /// The processes, in the order they were started.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Looks at every process, and starts those again whose pause is over.
    pub fn watch(&mut self, now: Instant) -> anyhow::Result<Vec<(usize, Event)>> {
        let mut events = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            let event = member.child.watch(now).with_context(|| format!("start {}", member.child.name()))?;
            events.extend(event.map(|event| (index, event)));
        }
        Ok(events)
    }

    /// Asks every process for its numbers; those that do not answer are left out.
    pub fn scrape(&self) -> Vec<(usize, Role, Exposition)> {
        let running = self.members.iter().enumerate().filter(|(_, member)| member.child.running());
        let scraped = running.filter_map(|(index, member)| {
            Some((index, member.role, exposition::scrape(&self.agent, &member.metrics)?))
        });
        scraped.collect()
    }

    /// Ends every process in order: actors and arena, learner, replay server. Returns who did not drain as asked.
    pub fn drain(&mut self) -> anyhow::Result<Vec<Undrained>> {
        let begin = Instant::now();
        let mut undrained = Vec::new();
        let order: [(&[Role], Duration); 3] = [
            (&[Role::Actor, Role::Arena], ACTORS_PATIENCE),
            (&[Role::Learner, Role::Inference], LEARNER_PATIENCE),
            (&[Role::Replay], DRAIN_PATIENCE),
        ];
        for (roles, patience) in order {
            for member in self.of(roles) {
                member.child.terminate();
            }
            // The learner does not need the arena to be gone, only the actors' work to be handed in.
            let awaited = if roles.contains(&Role::Actor) { &[Role::Actor][..] } else { roles };
            while begin.elapsed() < patience && self.any_running(awaited, &mut undrained)? {
                std::thread::sleep(DRAIN_POLL);
            }
        }
        let all = [Role::Actor, Role::Arena, Role::Learner, Role::Inference, Role::Replay];
        while begin.elapsed() < DRAIN_PATIENCE && self.any_running(&all, &mut undrained)? {
            std::thread::sleep(DRAIN_POLL);
        }
        for Member { child, .. } in self.members.iter_mut().filter(|member| member.child.running()) {
            child.kill();
            let how = format!("did not end within {} s and was killed; its log says more", DRAIN_PATIENCE.as_secs());
            undrained.push(Undrained { name: child.name().to_owned(), how });
        }
        Ok(undrained)
    }

    fn of(&mut self, roles: &[Role]) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().filter(move |member| roles.contains(&member.role))
    }

    /// Whether a process of these roles still runs; those that failed to drain are added to `undrained`.
    fn any_running(&mut self, roles: &[Role], undrained: &mut Vec<Undrained>) -> anyhow::Result<bool> {
        let mut any = false;
        for Member { child, .. } in self.of(roles) {
            if let Some(how) = child.ended()? {
                undrained.push(Undrained { name: child.name().to_owned(), how });
            }
            any |= child.running();
        }
        Ok(any)
    }
}

fn member(role: Role, settings: child::Settings, admin: SocketAddr, now: Instant) -> anyhow::Result<Member> {
    let program = settings.program.clone();
    let child = Child::start(settings, now).with_context(|| format!("start {}", program.display()))?;
    Ok(Member { role, child, admin, metrics: format!("http://{admin}/metrics") })
}

fn set(assignment: String) -> [OsString; 2] {
    ["--set".into(), assignment.into()]
}

/// Returns ports that were free a moment ago; all are held until the last is picked, so that no two are the same.
///
/// # Errors
/// No port is free.
pub fn free_ports(count: usize) -> anyhow::Result<Vec<SocketAddr>> {
    pick(iter::repeat_n(None, count))
}

/// As [`free_ports`], each the wanted one where that is free.
fn pick(wanted: impl Iterator<Item = Option<SocketAddr>>) -> anyhow::Result<Vec<SocketAddr>> {
    let hold = |wanted: Option<SocketAddr>| match wanted.map(TcpListener::bind) {
        Some(Ok(listener)) => Ok(listener),
        Some(Err(_)) | None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
    };
    let held: Vec<TcpListener> = wanted.map(hold).collect::<Result<_, _>>().context("find free ports")?;
    held.iter().map(|listener| listener.local_addr().context("find free ports")).collect()
}

#[cfg(test)]
mod tests {
    //! Claims about the processes of a run, with lines of shell in their place.

    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Far more than a shell takes.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// A file of the repository: one that a test had just written could not be run while another test forks.
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

        /// Starts it, and waits until everybody has written how.
        fn start(&self, actors: usize, inference: Inference) -> Fleet {
            self.start_with(actors, inference, 1)
        }

        fn start_with(&self, actors: usize, inference: Inference, replay_servers: usize) -> Fleet {
            let settings = Settings {
                actors,
                actor_threads: 3,
                inference,
                inference_threads: 5,
                replay: vec![None; replay_servers],
                binaries: self.folder.path().to_owned(),
                scheme: "https",
                rating: Rating::On,
                archive: "file:///archive/".to_owned(),
            };
            let fleet = Fleet::start(&settings, &self.run, Instant::now()).unwrap();
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
        assert_eq!(fleet.drain().unwrap(), []);
        let mut ended = stand_ins.lines("ended");
        // It is asked with the actors, and nobody waits for it.
        ended.retain(|name| name != "arena");
        assert_eq!(ended, ["actor", "actor", "learner", "replay-server"]);
        assert!(fleet.members().iter().all(|member| !member.child.running()));
    }

    #[test]
    fn every_process_is_told_where_the_others_listen_and_how_many_threads_it_has() {
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
        assert_eq!(admins.len(), 6, "no two have one port");
    }

    #[test]
    fn each_replay_server_has_a_folder_and_an_archive_of_its_own() {
        let stand_ins = StandIns::new();
        let mut fleet = stand_ins.start_with(1, Inference::Local, 3);
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
        // The first has what the run file says.
        assert_eq!(archives, [None, of(2), of(3)]);
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
