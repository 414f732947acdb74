//! Claims about the processes of a run, with lines of shell in their place.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// Far more than a shell takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// A file of the repository: one that a test had just written could not be run while another test forks.
const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/fleet/tests/stand_in.sh");

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
        let settings = Settings {
            actors,
            actor_threads: 3,
            inference,
            inference_threads: 5,
            replay: vec![None],
            binaries: self.folder.path().to_owned(),
            scheme: "https",
            rating: Rating::On,
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
fn the_list_of_a_fleet_names_every_process() {
    let stand_ins = StandIns::new();
    let mut fleet = stand_ins.start(2, Inference::Local);
    let list = read_list(&stand_ins.run.fleet()).unwrap();
    fleet.drain().unwrap();
    let names: Vec<&str> = list.iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(names, ["replay-server", "learner", "arena", "actor-0", "actor-1"]);
}
