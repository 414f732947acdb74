//! Starts, watches, scrapes and drains the processes of a run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::iter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use run_file::arena::GateKind;
use serde::{Deserialize, Serialize};
use service::directory::replace;
use service::net::{ReservedPort, reserve_ports, reserve_wanted};

use crate::boards::{ACTORS_MAX, PlannedBoard, actor_name, actor_names, divide};
use crate::child::{self, Child, Event, Exit};
use crate::exposition::{self, Exposition};
use crate::feasibility::{self, Programs};
use crate::placement::Place;
use crate::plan::Plan;
use crate::programs::beside_this_binary;
use crate::run_directory::{Inference, Learner, archive_of_replay_server, read_json};
use crate::wiring::{self, Role, WiredBoard, Wiring};

/// Timeout of one scrape; the metrics of a slower process are missing from this round.
const SCRAPE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum time for the actors to upload trajectories. The learner drains when the actors have exited, or after this
/// time.
const ACTORS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time since the start of the drain after which the replay server drains, even if the learner is still writing the
/// checkpoint.
const LEARNER_TIMEOUT: Duration = Duration::from_secs(8);
/// Time since the start of the drain after which every running process is killed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks of draining processes.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// A process of the fleet with an admin port.
#[derive(Debug)]
pub struct Member {
    /// Role of the process.
    pub role: Role,
    /// The process itself.
    pub child: Child,
    admin: SocketAddr,
    /// True if metrics of the process were read since the last start.
    has_answered: bool,
}

/// A process of a run, as listed in [`RunDirectory::fleet`](crate::RunDirectory::fleet).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Name in the run.
    pub name: String,
    /// Role of the process.
    pub role: Role,
    /// Address of the admin port.
    pub admin: SocketAddr,
}

/// Reads the list of processes from `file`.
///
/// # Errors
/// The file cannot be read, or is not a list of processes.
pub fn read_list(file: &Path) -> anyhow::Result<Vec<Listed>> {
    read_json(file)
}

/// The processes of a run.
#[derive(Debug)]
pub struct Fleet {
    members: Vec<Member>,
    replay: Vec<SocketAddr>,
    /// Replay servers of each further board.
    boards: BTreeMap<String, Vec<SocketAddr>>,
    /// Reserved ports of the processes, so that a restarted process can bind the same port again.
    ports: Vec<ReservedPort>,
    agent: ureq::Agent,
}

/// Determines whether an arena rates the weights versions of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rating {
    /// An arena is started.
    On,
    /// No arena is started, because it would take cores from the benchmark.
    Off,
}

/// Returns the directory of this program, which also holds the programs of a run.
///
/// # Errors
/// The program of a planned process is missing, and the error names the command to build the program; or the programs
/// could never train the run.
pub fn binaries(plan: &Plan, rating: Rating) -> anyhow::Result<PathBuf> {
    let served = (plan.progress.inference == Inference::Remote).then_some(Role::Inference);
    let rated = (rating == Rating::On).then_some(Role::Arena);
    for role in [Role::Replay, Role::Actor].into_iter().chain(served).chain(rated) {
        beside_this_binary(role.program(), role.program())?;
    }
    let learner = match plan.progress.learner {
        Learner::Zerofleet => beside_this_binary(Role::Learner.program(), Role::Learner.program())?,
        own @ Learner::Own => beside_this_binary(own.command().0, "cli")?,
    };
    feasibility::check(&plan.config, plan.progress.inference, &Programs::here().with(plan.progress.learner))?;
    Ok(learner.parent().context("find the directory of this program")?.to_owned())
}

impl Fleet {
    /// Starts every process of a run on free loopback ports, with the programs in the directory `binaries`. A replay
    /// server keeps the port of the previous session unless the port is taken.
    pub fn start(plan: &Plan, binaries: &Path, rating: Rating, now: Instant) -> anyhow::Result<Self> {
        let Plan { run, config, placement, .. } = plan;
        let others = 2 + plan.learners + 2 + plan.learners + plan.actors + plan.replay_servers();
        let of_boards = plan.boards.iter().flat_map(|board| board.replay.iter().copied());
        let wanted = plan.replay.iter().copied().chain(of_boards).chain(iter::repeat_n(None, others));
        let reserved = reserve_wanted(wanted).context("find free ports")?;
        let mut ports = reserved.iter().map(ReservedPort::address);
        let replay: Vec<SocketAddr> = ports.by_ref().take(plan.replay.len()).collect();
        let of_board = |board: &PlannedBoard| ports.by_ref().take(board.replay.len()).collect();
        let boards: Vec<Vec<SocketAddr>> = plan.boards.iter().map(of_board).collect();
        let mut next = || ports.next().expect("a port was reserved for every use");
        let learners: Vec<SocketAddr> = (0..plan.learners).map(|_| next()).collect();
        let (inference, arena) = (next(), next());
        let is_remote = plan.progress.inference == Inference::Remote;
        let scheme = config.security.scheme();
        let endpoint = |address: &SocketAddr| format!("{scheme}://{address}");
        let wired = |(board, replay): (&PlannedBoard, &Vec<SocketAddr>)| WiredBoard {
            game: board.game.clone(),
            replay: replay.iter().map(endpoint).collect(),
        };
        let wiring = Wiring {
            replay: replay.iter().map(endpoint).collect(),
            learner: endpoint(&learners[0]),
            inference: is_remote.then(|| endpoint(&inference)),
            boards: plan.boards.iter().zip(&boards).map(wired).collect(),
        };
        let is_gated = rating == Rating::On && config.arena.gate != GateKind::None;
        // With a gate, actors and inference server fetch only accepted weights, from the arena.
        let of_players = if is_gated { Wiring { learner: endpoint(&arena), ..wiring.clone() } } else { wiring.clone() };
        let mut members = Vec::new();
        let mut start = |role: Role, place: Place, name: String, listen: Option<SocketAddr>, sets: Vec<String>| {
            let (admin, listen) = (next(), listen.map(|address| address.to_string()));
            let wiring = if matches!(role, Role::Actor | Role::Inference) { &of_players } else { &wiring };
            // Settings for a single process are last and take precedence.
            let sets = placement.sets(role, place).into_iter().chain(wiring.sets(role)).chain(sets);
            let (program, command) = match role {
                Role::Learner => plan.progress.learner.command(),
                other => (other.program(), &[] as &[&str]),
            };
            let mut arguments: Vec<OsString> = command.iter().map(OsString::from).collect();
            arguments.extend(wiring::arguments(&run.config(), listen.as_deref(), sets));
            arguments.extend(["--admin".into(), admin.to_string().into(), "--exit-with-parent".into()]);
            let log = run.logs().join(format!("{name}.log"));
            let program = binaries.join(program);
            let starting = format!("start {}", program.display());
            let environment = placement.environment(place).to_vec();
            let settings = child::Settings { name, program, arguments, environment, log };
            let child = Child::start(settings, now).context(starting)?;
            // A group has learners on devices of one kind, which a learner on the CPU could not join again.
            let is_grouped = role == Role::Learner && plan.learners > 1;
            let without = if is_grouped { Vec::new() } else { wiring::without_device(config, role) };
            let child = child.or_without_device(without);
            members.push(Member { role, child, admin, has_answered: false });
            anyhow::Ok(())
        };
        let named = |role: Role| role.program().to_owned();
        let further = plan.boards.iter().map(|board| Some(board.game.as_str())).zip(&boards);
        for (board, servers) in iter::once((None, &replay)).chain(further) {
            for (number, listen) in (1..).zip(servers) {
                let mut sets: Vec<String> = board.iter().map(|game| format!("run.game={game}")).collect();
                let mut name = named(Role::Replay);
                name.extend(board.map(|game| format!("-{game}")));
                if number > 1 {
                    name.push_str(&format!("-{number}"));
                }
                if board.is_some() || number > 1 {
                    sets.push(format!("run.directory={}", run.of_replay_server(board, number).display()));
                    if !config.replay.archive.is_empty() {
                        let archive = archive_of_replay_server(&config.replay.archive, board, number);
                        sets.push(format!("replay.archive={archive}"));
                    }
                }
                start(Role::Replay, Place::Configured, name, Some(*listen), sets)?;
            }
        }
        let group = learners.iter().map(endpoint).collect::<Vec<_>>().join(",");
        for ((number, listen), &place) in (1..).zip(&learners).zip(&placement.learners) {
            let mut sets = vec![format!("learner.threads={}", placement.learner_threads)];
            let mut name = named(Role::Learner);
            if learners.len() > 1 {
                sets.extend([format!("learner.group={group}"), format!("learner.index={}", number - 1)]);
            }
            if number > 1 {
                sets.push(format!("run.directory={}", run.of_learner(number).display()));
                name = format!("{name}-{number}");
            }
            start(Role::Learner, place, name, Some(*listen), sets)?;
        }
        if rating == Rating::On {
            start(Role::Arena, placement.arena, named(Role::Arena), is_gated.then_some(arena), Vec::new())?;
        }
        if let Some(place) = placement.inference {
            let sets = vec![format!("inference.threads={}", placement.inference_threads)];
            start(Role::Inference, place, named(Role::Inference), Some(inference), sets)?;
        }
        let mut places = placement.actors.iter().copied();
        let of_boards: usize = plan.boards.iter().map(|board| board.actors).sum();
        let further = wiring.boards.iter().map(Some).zip(plan.boards.iter().map(|board| board.actors));
        for (board, actors) in iter::once((None, plan.actors - of_boards)).chain(further) {
            // Actors of a board count from 0, so that each spool belongs to servers of the same board in any session.
            for (actor, place) in places.by_ref().take(actors).enumerate() {
                let mut sets = vec![format!("actor.id={actor}"), format!("actor.threads={}", placement.actor_threads)];
                if placement.accelerator_games > 0 {
                    sets.push(format!("actor.accelerator_games={}", placement.accelerator_games));
                }
                if let Some(WiredBoard { game, replay }) = board {
                    let folder = run.of_replay_server(Some(game), 1);
                    sets.extend([format!("run.game={game}"), format!("run.directory={}", folder.display())]);
                    sets.push(format!("actor.replay={}", replay.join(",")));
                }
                start(Role::Actor, place, actor_name(board.map(|board| board.game.as_str()), actor), None, sets)?;
            }
        }
        let boards = plan.boards.iter().map(|board| board.game.clone()).zip(boards).collect();
        let fleet = Self { members, replay, boards, ports: reserved, agent: exposition::agent(SCRAPE_TIMEOUT) };
        fleet.list(&run.fleet())?;
        Ok(fleet)
    }

    /// Writes name, role and admin address of each process to `file`, without processes that drain before the others.
    fn list(&self, file: &Path) -> anyhow::Result<()> {
        let stay = self.members.iter().filter(|member| !member.child.is_draining());
        let list =
            stay.map(|&Member { role, ref child, admin, .. }| Listed { name: child.name().to_owned(), role, admin });
        Ok(replace(file, &serde_json::to_vec_pretty(&list.collect::<Vec<_>>())?)?)
    }

    /// Returns the address of each replay server for the board of `run.game`.
    pub fn replay(&self) -> &[SocketAddr] {
        &self.replay
    }

    /// Returns the address of each replay server for the further boards, by name.
    pub fn boards(&self) -> &BTreeMap<String, Vec<SocketAddr>> {
        &self.boards
    }

    /// Returns the processes, in start order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Checks every process, and restarts an exited process once the delay is over.
    pub fn watch(&mut self, now: Instant) -> anyhow::Result<Vec<(usize, Event)>> {
        let mut events = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            let event = member.child.watch(now).with_context(|| format!("start {}", member.child.name()))?;
            member.has_answered &= event.is_none();
            events.extend(event.map(|event| (index, event)));
        }
        Ok(events)
    }

    /// Scrapes the metrics of every process; processes that do not respond are left out.
    pub fn scrape(&mut self) -> Vec<(usize, Role, Exposition)> {
        let running = self.members.iter_mut().enumerate().filter(|(_, member)| member.child.running());
        let scraped = running.filter_map(|(index, member)| {
            let exposition = exposition::scrape(&self.agent, member.admin)?;
            member.has_answered = true;
            Some((index, member.role, exposition))
        });
        scraped.collect()
    }

    /// Returns true while each role required for learning has a running process that has responded since its start.
    pub fn works(&self) -> bool {
        let works = |member: &Member| member.has_answered && member.child.running();
        let needed = [Role::Actor, Role::Replay, Role::Learner];
        needed.iter().all(|role| self.members.iter().any(|member| member.role == *role && works(member)))
    }

    /// Restarts the learner and the actors with these numbers of threads. Each drains first.
    pub fn restart_with_threads(&mut self, learner: usize, actor: usize) {
        for (role, key, threads) in [(Role::Learner, "learner.threads", learner), (Role::Actor, "actor.threads", actor)]
        {
            for member in self.of(&[role]) {
                member.child.restart_with(["--set".into(), format!("{key}={threads}").into()]);
            }
        }
    }

    /// Changes the number of actors of all boards, and returns the number before. A further actor has the device and
    /// the threads of an actor in `plan`. Excess actors drain; they start again with a later increase.
    ///
    /// # Errors
    /// A board would have no actor, there would be more than [`ACTORS_MAX`], the memory does not suffice for the games
    /// of all actors on accelerators, or a process cannot be started: then earlier changes stay.
    pub fn change_actors(&mut self, plan: &Plan, count: usize, now: Instant) -> anyhow::Result<usize> {
        let further = &plan.config.run.boards;
        let (boards, allowed) = (1 + further.len(), 1 + further.len()..=ACTORS_MAX);
        ensure!(allowed.contains(&count), "{count} actors are not in the range {allowed:?}");
        let fitting = plan.placement.actors_max;
        ensure!(count <= fitting, "memory suffices for {fitting} actors; stop, and resume with --actors {count}");
        let (wanted, mut before): (Vec<String>, _) = (actor_names(further, count).collect(), 0);
        for Member { child, .. } in self.of(&[Role::Actor]) {
            before += usize::from(!child.is_draining());
            match (wanted.iter().any(|name| name == child.name()), child.is_draining()) {
                (true, true) => child.restart_after_drain(now),
                (false, false) => child.terminate(),
                _ => {}
            }
        }
        let all = iter::once(None).chain(further.iter().map(|board| Some(board.as_str())));
        let counts = divide(count, boards).zip(divide(plan.actors, boards));
        let started = all.zip(counts).try_for_each(|(board, (count, planned))| {
            (planned..count).try_for_each(|number| self.start_actor(plan, board, number, number % planned))
        });
        let listed = self.list(&plan.run.fleet());
        started?;
        listed.context("the actors have changed, but not the list of processes")?;
        Ok(before)
    }

    /// Drains the actor with this name, which then starts again.
    ///
    /// # Errors
    /// There is no such actor, or it does not run.
    pub fn drain_actor(&mut self, name: &str) -> anyhow::Result<()> {
        let mut actors = self.of(&[Role::Actor]).map(|member| &mut member.child);
        let is_it = |child: &&mut Child| child.name() == name && child.running() && !child.is_draining();
        let child = actors.find(is_it).with_context(|| format!("no actor {name} runs"))?;
        child.restart_with([]);
        Ok(())
    }

    /// Starts an actor with the settings of the actor `like` of the board, unless it exists.
    fn start_actor(&mut self, plan: &Plan, board: Option<&str>, number: usize, like: usize) -> anyhow::Result<()> {
        let find = |name: &str| self.members.iter().find(|member| member.child.name() == name);
        let (name, like) = (actor_name(board, number), actor_name(board, like));
        let (None, Some(Member { child, admin, .. })) = (find(&name), find(&like)) else { return Ok(()) };
        let (mut settings, before) = (child.settings().clone(), admin.to_string());
        let [port] = reserve_ports().context("find a free port")?;
        let admin = port.address();
        for argument in settings.arguments.iter_mut().filter(|argument| **argument == *before) {
            *argument = admin.to_string().into();
        }
        settings.arguments.extend(["--set".into(), format!("actor.id={number}").into()]);
        settings.log.set_file_name(format!("{name}.log"));
        settings.name = name;
        let child = Child::start(settings, Instant::now()).context("start an actor")?;
        let child = child.or_without_device(wiring::without_device(&plan.config, Role::Actor));
        self.members.push(Member { role: Role::Actor, child, admin, has_answered: false });
        self.ports.push(port);
        Ok(())
    }

    /// Returns true if another actor plays on the board of this actor, or is about to be restarted.
    pub fn has_similar_actor(&self, index: usize) -> bool {
        let board = |member: &Member| member.child.name().rsplit_once('-').map(|(board, _)| board.to_owned());
        let (member, others) = (&self.members[index], self.members.iter().enumerate().filter(|(at, _)| *at != index));
        let is_similar = |other: &Member| other.role == Role::Actor && board(other) == board(member);
        member.role == Role::Actor && others.into_iter().any(|(_, other)| is_similar(other) && other.child.is_kept())
    }

    /// Drains every process in order: actors and arena, then learner and inference server, then replay servers.
    /// Returns a sentence for each process that failed to drain.
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
            undrained.push(format!("{name} did not stop within {seconds} s and was killed; see the log"));
        }
        Ok(undrained)
    }

    /// Restarts the drained arena on a whole core to rate the weights version with this manifest. Waits until all games
    /// are played, or `goes_on` returns false. Does nothing without an arena.
    pub fn measure_last(&mut self, manifest: &Path, goes_on: impl Fn() -> bool) -> anyhow::Result<()> {
        let Some(Member { child, .. }) = self.of(&[Role::Arena]).next() else { return Ok(()) };
        let sets = [format!("arena.weights={}", manifest.display()), "arena.cpu_share=1.0".to_owned()];
        child.start_again(sets.into_iter().flat_map(|set| ["--set".into(), set.into()])).context("start the arena")?;
        let mut stopping: Option<Instant> = None;
        loop {
            if let Some(exit) = child.exit()? {
                ensure!(exit.succeeded, "the arena {}: {}", exit.how, exit.last_log_line);
                return Ok(());
            }
            match stopping {
                None if !goes_on() => {
                    child.terminate();
                    stopping = Some(Instant::now());
                }
                Some(since) if since.elapsed() > DRAIN_TIMEOUT => child.kill(),
                _ => {}
            }
            std::thread::sleep(DRAIN_POLL);
        }
    }

    fn of(&mut self, roles: &[Role]) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().filter(move |member| roles.contains(&member.role))
    }

    /// Returns true while a process with one of these roles runs; adds failed drains to `undrained`.
    fn any_running(&mut self, roles: &[Role], undrained: &mut Vec<String>) -> anyhow::Result<bool> {
        let mut any = false;
        for Member { child, .. } in self.of(roles) {
            if let Some(Exit { how, last_log_line, .. }) = child.exit()?.filter(|exit| !exit.succeeded) {
                undrained.push(format!("{} {how}; last log line: {last_log_line}", child.name()));
            }
            any |= child.running();
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests;
