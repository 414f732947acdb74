//! Tests the order of start and drain with shell scripts in place of the processes.

use std::fs;
use std::os::unix::fs::symlink;

use run_file::RunFile;
use service::gpus::Gpu;

use super::*;
use crate::placement::{Accelerators, Candidate, Machine, place};
use crate::run_directory::{Progress, RunDirectory};

/// Deadline for a shell script to start; the usual time is far shorter.
const DEADLINE: Duration = Duration::from_secs(60);

/// The script in place of each process. It is a file of the repository, because a file that a test has just written
/// cannot be executed while another test forks.
const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stand_in.sh");

/// A fleet of stand-ins.
struct StandIns {
    folder: tempfile::TempDir,
    run: RunDirectory,
    gate: GateKind,
    /// Further boards of the run.
    boards: Vec<PlannedBoard>,
}

impl StandIns {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["replay-server", "learner", "actor", "arena", "inference-server", "zerofleet"] {
            symlink(STAND_IN, folder.path().join(name)).unwrap();
        }
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        Self { folder, run, gate: GateKind::None, boards: Vec::new() }
    }

    /// Starts the fleet, and waits until every process has written a command line.
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
        self.start_planned(&self.plan(machine, actors, inference, replay_servers, learners))
    }

    fn plan(
        &self,
        machine: &Machine,
        actors: usize,
        inference: Inference,
        replay_servers: usize,
        learners: usize,
    ) -> Plan {
        let mut config = RunFile::default();
        (config.actor.threads, config.inference.threads) = (3, 5);
        config.replay.archive = "file:///archive/".to_owned();
        config.arena.gate = self.gate;
        // Any certificate makes the scheme `https`; the stand-ins never read it.
        config.security.certificate = "certificate.pem".into();
        let progress = Progress { inference, ..Progress::default() };
        let (run, replay, boards) = (self.run.clone(), vec![None; replay_servers], self.boards.clone());
        let placement = place(machine, &config, learners, Some(actors), inference, 0).unwrap();
        let (written, gpu_notes, unread) = (config.clone(), Vec::new(), None);
        Plan { run, config, written, gpu_notes, actors, boards, learners, placement, replay, progress, unread }
    }

    fn start_planned(&self, plan: &Plan) -> Fleet {
        let fleet = Fleet::start(plan, self.folder.path(), Rating::On, Instant::now()).unwrap();
        self.wait_for_starts(fleet.members().len());
        fleet
    }

    /// Waits until this many processes have written a command line.
    fn wait_for_starts(&self, count: usize) {
        let begin = Instant::now();
        while self.lines("started").len() < count {
            assert!(begin.elapsed() < DEADLINE, "only these have started: {:?}", self.lines("started"));
            std::thread::yield_now();
        }
    }

    /// Returns the listed actors.
    fn listed_actors(&self) -> Vec<String> {
        let listed = read_list(&self.run.fleet()).unwrap();
        listed.into_iter().filter(|each| each.role == Role::Actor).map(|each| each.name).collect()
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
    // The arena drains with the actors, and the learner's drain does not wait for the arena.
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
fn a_server_of_weights_takes_the_place_of_the_learner_if_a_program_of_the_user_trains() {
    let stand_ins = StandIns::new();
    let machine = Machine { cores: 16, memory_bytes: 0, accelerators: Accelerators::None(String::new()) };
    let mut plan = stand_ins.plan(&machine, 1, Inference::Local, 1, 1);
    plan.progress.learner = Learner::Own;
    let mut fleet = stand_ins.start_planned(&plan);
    let list = read_list(&stand_ins.run.fleet()).unwrap();
    assert!(list.iter().any(|listed| listed.name == "learner" && listed.role == Role::Learner), "{list:?}");
    assert_eq!(fleet.drain().unwrap(), [""; 0]);
    let started = stand_ins.lines("started");
    assert!(!started.iter().any(|line| line.starts_with("learner")), "{started:?}");
    let server = started.iter().find(|line| line.starts_with("zerofleet weights serve --config ")).unwrap();
    for option in ["--listen ", "--admin ", "--exit-with-parent", "learner.replay=https://", "learner.threads="] {
        assert!(server.contains(option), "{option}: {server}");
    }
    let listen = server.split_once("--listen ").unwrap().1.split(' ').next().unwrap();
    let actor = started.iter().find(|line| line.starts_with("actor")).unwrap();
    assert!(actor.contains(&format!("actor.learner=https://{listen}")), "{actor}");
}

#[test]
fn with_a_gate_processes_that_play_fetch_their_weights_from_the_arena() {
    let stand_ins = StandIns { gate: GateKind::Sprt, ..StandIns::new() };
    let mut fleet = stand_ins.start(1, Inference::Remote);
    fleet.drain().unwrap();
    let started = stand_ins.lines("started");
    let argument = |name: &str, before: &str| {
        let line = started.iter().find(|line| line.starts_with(name)).unwrap();
        line.split_once(before).unwrap().1.split(' ').next().unwrap().to_owned()
    };
    let (learner, arena) = (argument("learner", "--listen "), argument("arena", "--listen "));
    assert_eq!(argument("arena", "arena.weights="), format!("https://{learner}"));
    assert_eq!(argument("actor", "actor.learner="), format!("https://{arena}"));
    assert_eq!(argument("inference-server", "inference.learner="), format!("https://{arena}"));
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
        .map(|line| line.split_once("replay.archive=").map(|(_, after)| after.split(' ').next().unwrap().to_owned()))
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
    let accelerators = Accelerators::Cuda((0..2).map(|index| Candidate { gpu: gpu(index), refused: None }).collect());
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
        assert_eq!(line.contains(&format!("run.directory={}", stand_ins.run.of_learner(number).display())), number > 1);
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

/// Watches a fleet until this many events have happened, and returns the process of each.
fn events(fleet: &mut Fleet, count: usize) -> Vec<(String, Event)> {
    let (begin, mut happened) = (Instant::now(), Vec::new());
    while happened.len() < count {
        assert!(begin.elapsed() < DEADLINE, "only these have happened: {happened:?}");
        let events = fleet.watch(Instant::now()).unwrap();
        happened
            .extend(events.into_iter().map(|(index, event)| (fleet.members()[index].child.name().to_owned(), event)));
        std::thread::yield_now();
    }
    happened.sort_by_key(|(name, _)| name.clone());
    happened
}

#[test]
fn actors_are_added_drained_and_started_again_while_the_fleet_runs() {
    let stand_ins = StandIns::new();
    let machine = Machine { cores: 16, memory_bytes: 0, accelerators: Accelerators::None(String::new()) };
    let plan = stand_ins.plan(&machine, 1, Inference::Local, 1, 1);
    let mut fleet = stand_ins.start_planned(&plan);
    assert_eq!(fleet.change_actors(&plan, 3, Instant::now()).unwrap(), 1);
    stand_ins.wait_for_starts(6);
    assert_eq!(stand_ins.listed_actors(), ["actor-0", "actor-1", "actor-2"]);
    let started = stand_ins.lines("started");
    let last = |line: &String, option: &str| line.rsplit(option).next().unwrap().split(' ').next().unwrap().to_owned();
    let actors: Vec<&String> = started.iter().filter(|line| line.starts_with("actor")).collect();
    let values = |option: &str| actors.iter().map(|line| last(line, option)).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(values("actor.id="), ["0", "1", "2"].map(String::from).into());
    assert_eq!((values("--admin ").len(), values("actor.threads=").len()), (3, 1));

    fleet.change_actors(&plan, 1, Instant::now()).unwrap();
    assert_eq!(stand_ins.listed_actors(), ["actor-0"]);
    let begin = Instant::now();
    while stand_ins.lines("ended").len() < 2 {
        assert!(begin.elapsed() < DEADLINE, "two actors drain");
        std::thread::yield_now();
    }
    let one = "actor-1".to_owned();

    fleet.change_actors(&plan, 2, Instant::now()).unwrap();
    assert_eq!(events(&mut fleet, 1), [(one.clone(), Event::Restarted)]);
    stand_ins.wait_for_starts(7);
    // An actor that still drains starts again after the drain.
    fleet.change_actors(&plan, 1, Instant::now()).unwrap();
    fleet.change_actors(&plan, 2, Instant::now()).unwrap();
    assert_eq!(events(&mut fleet, 1), [(one, Event::Restarted)]);
    stand_ins.wait_for_starts(8);
    fleet.drain_actor("actor-0").unwrap();
    assert_eq!(events(&mut fleet, 1), [("actor-0".to_owned(), Event::Restarted)]);
    stand_ins.wait_for_starts(9);
    for name in ["actor-2", "actor-9", "learner"] {
        assert_eq!(fleet.drain_actor(name).unwrap_err().to_string(), format!("no actor {name} runs"));
    }
    assert!(fleet.members().iter().all(|member| member.child.restarts() == 0));
    for count in [0, 65] {
        let error = fleet.change_actors(&plan, count, Instant::now()).unwrap_err().to_string();
        assert_eq!(error, format!("{count} actors are not in the range 1..=64"));
    }
    assert_eq!(stand_ins.listed_actors(), ["actor-0", "actor-1"]);
    assert_eq!(fleet.drain().unwrap(), [""; 0]);
}

#[test]
fn a_further_actor_plays_the_board_and_has_the_gpu_of_an_earlier_one() {
    let gpu = |index: usize| Gpu { index, uuid: format!("GPU-{index}"), ..Gpu::default() };
    let accelerators = Accelerators::Cuda((0..3).map(|index| Candidate { gpu: gpu(index), refused: None }).collect());
    let machine = Machine { cores: 16, memory_bytes: 1 << 40, accelerators };
    let board = PlannedBoard { game: "go-7".to_owned(), actors: 1, replay: vec![None] };
    let stand_ins = StandIns { boards: vec![board], ..StandIns::new() };
    let mut plan = stand_ins.plan(&machine, 2, Inference::Local, 1, 1);
    plan.config.run.boards = vec!["go-7".to_owned()];
    let mut fleet = stand_ins.start_planned(&plan);
    fleet.change_actors(&plan, 4, Instant::now()).unwrap();
    stand_ins.wait_for_starts(fleet.members().len());
    assert_eq!(stand_ins.listed_actors(), ["actor-0", "actor-go-7-0", "actor-1", "actor-go-7-1"]);
    assert!(fleet.change_actors(&plan, 1, Instant::now()).is_err(), "each board needs an actor");
    plan.placement.actors_max = 4;
    let error = fleet.change_actors(&plan, 5, Instant::now()).unwrap_err().to_string();
    assert_eq!(error, "memory suffices for 4 actors; stop, and resume with --actors 5");
    assert_eq!(stand_ins.listed_actors().len(), 4);
    fleet.drain().unwrap();
    let started = stand_ins.lines("started");
    for id in [0, 1] {
        let of_board: Vec<bool> = started
            .iter()
            .filter(|line| {
                line.starts_with("actor") && line.rsplit("actor.id=").next().unwrap().starts_with(&id.to_string())
            })
            .map(|line| line.contains("run.game=go-7") && line.ends_with("GPU-2"))
            .collect();
        assert_eq!(of_board.iter().filter(|is_it| **is_it).count(), 1, "{started:?}");
    }
}

#[test]
fn a_board_has_replay_servers_and_actors_of_its_own_in_a_folder_of_its_own_and_the_learner_draws_from_all() {
    let board = PlannedBoard { game: "connect_four-5x4".to_owned(), actors: 1, replay: vec![None, None] };
    let stand_ins = StandIns { boards: vec![board], ..StandIns::new() };
    let mut fleet = stand_ins.start(3, Inference::Local);
    let names: Vec<String> = fleet.members().iter().map(|member| member.child.name().to_owned()).collect();
    let addresses = fleet.boards()["connect_four-5x4"].clone();
    fleet.drain().unwrap();
    let expected = [
        "replay-server",
        "replay-server-connect_four-5x4",
        "replay-server-connect_four-5x4-2",
        "learner",
        "arena",
        "actor-0",
        "actor-1",
        "actor-connect_four-5x4-0",
    ];
    assert_eq!(names, expected);

    let started = stand_ins.lines("started");
    let of_board = |line: &&String| line.contains("run.game=connect_four-5x4");
    let endpoints = addresses.iter().map(|address| format!("https://{address}")).collect::<Vec<_>>().join(",");
    let folder = stand_ins.run.of_replay_server(Some("connect_four-5x4"), 1);
    let servers: Vec<_> = started.iter().filter(|line| line.starts_with("replay")).filter(of_board).collect();
    for (number, address) in (1..).zip(&addresses) {
        let server = servers.iter().find(|line| line.contains(&format!("--listen {address}"))).unwrap();
        let below = if number == 1 { String::new() } else { format!("/replay-server-{number}") };
        assert!(server.contains(&format!("run.directory={}{below} ", folder.display())), "{server}");
        assert!(
            server.contains(&format!("replay.archive=file:///archive/replay-connect_four-5x4{below} ")),
            "{server}"
        );
    }
    let actors: Vec<_> = started.iter().filter(|line| line.starts_with("actor")).filter(of_board).collect();
    let [actor] = actors.as_slice() else { panic!("{actors:?}") };
    assert!(actor.contains("actor.id=0") && actor.contains(&format!("run.directory={} ", folder.display())), "{actor}");
    // The last of several assignments of a key counts.
    assert!(actor.rsplit("actor.replay=").next().unwrap().starts_with(&endpoints), "{actor}");
    let learner = started.iter().find(|line| line.starts_with("learner")).unwrap();
    assert!(learner.contains(&format!("game = \"connect_four-5x4\", replay = \"{endpoints}\"")), "{learner}");
}
