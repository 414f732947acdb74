//! Tests of the console of a fleet in containers over HTTP, with scripted admin ports and a scripted replay server.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use experience::TrajectoryId;
use fleet::RunDirectory;
use proto::replay::TableStats;
use run_file::RunFile;
use scripted::ReplayScript;
use service::Drain;
use service::live::{SearchedAction, Snapshot};
use tempfile::TempDir;
use web_console::Console;

use crate::http;

/// The console of a fleet that no session of this machine supervises.
struct Visited {
    console: Console,
    _folder: TempDir,
}

impl Visited {
    /// Opens the console of a fleet with these admin ports and this replay server.
    async fn new(admins: &[String], replay: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = RunFile::default();
        config.run.game = "tic_tac_toe".to_owned();
        config.run.directory = folder.path().join("data");
        config.telemetry.run = "harbour".to_owned();
        config.learner.replay = format!("http://{replay}");
        let path = folder.path().join("zerofleet.toml");
        std::fs::write(&path, service::config::print(&config).unwrap()).unwrap();
        let run = RunDirectory::deployed(path, admins.to_vec()).unwrap();
        Self { console: Console::start(crate::settings(run), Drain::new()).await.unwrap(), _folder: folder }
    }

    async fn get(&self, path: &str) -> String {
        http::get(self.console.address(), path).await
    }

    async fn until(&self, path: &str, text: &str) -> String {
        http::until(self.console.address(), path, text).await
    }
}

/// Serves an admin port with these metrics and this line of a spectator, while the flag is true.
fn admin_port(metrics: &'static str, live: String) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, answers) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(true)));
    let is_answering = Arc::clone(&answers);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten().filter(|_| is_answering.load(Ordering::Relaxed)) {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or_default();
            let body = if request[..length].starts_with(b"GET /live") { live.as_str() } else { metrics };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            // The client may have disconnected.
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    (address.to_string(), answers)
}

/// Returns a search in a game of tic-tac-toe, as an actor sends it.
fn search() -> String {
    let snapshot = Snapshot {
        picture: None,
        game: "tic_tac_toe".into(),
        place: 0,
        episode: 1,
        seed: 0,
        plies: 1,
        actions: vec![4],
        observation: None,
        weights_version: 17,
        simulations: 64,
        value: 0.25,
        top: vec![SearchedAction { action: 3, prior: 0.5, visits: 60, value: 0.25 }],
        played: 3,
    };
    serde_json::to_string(&snapshot).unwrap() + "\n"
}

#[tokio::test]
async fn a_fleet_in_containers_is_watched_over_its_admin_ports_and_its_run_file() {
    let learned = "zerofleet_learner_steps_total 42\nzerofleet_learner_loss{part=\"total\"} 2.5\n";
    let (learner, learner_answers) = admin_port(learned, String::new());
    let (actor, _) = admin_port("zerofleet_actor_games_total 1\n", search());
    let replay = ReplayScript::holding(TableStats::default(), vec![TrajectoryId { actor: 7, epoch: 3, sequence: 0 }]);
    let replay = replay.await;
    let visited = Visited::new(&[learner.clone(), actor.clone()], replay.address).await;

    visited.until("/", "2 of 2 processes respond").await;
    // The console keeps the history.
    let page = visited.until("/", "2.50 total").await;
    for part in
        ["harbour", "In a cluster", ">42<", "since this console started", "Sessions of zerofleet train record events"]
    {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let fleet = visited.get("/fleet").await;
    // Processes of one host have different names.
    let names = [&learner, &actor].map(|address| format!("{address} 127.0.0.1"));
    assert!(names.iter().all(|name| fleet.contains(name)), "{names:?} in {fleet}");
    visited.until("/games", &format!("{}, game 0", names[1])).await;
    let list = visited.get("/replay").await;
    assert!(list.contains(">7/3/0</a>"), "{list}");
    assert!(visited.get("/config").await.contains("learner.replay"));

    learner_answers.store(false, Ordering::Relaxed);
    let page = visited.until("/", &format!("{} stopped responding at", names[0])).await;
    assert!(page.contains("1 of 2 processes respond"), "{page}");
    visited.until("/fleet", "lost for").await;
    learner_answers.store(true, Ordering::Relaxed);
    visited.until("/", "2 of 2 processes respond").await;
}

#[tokio::test]
async fn without_addresses_and_without_the_volume_of_the_arena_pages_explain_what_is_missing() {
    let replay = ReplayScript::holding(TableStats::default(), Vec::new()).await;
    let visited = Visited::new(&["no.such.host.invalid:1".to_owned()], replay.address).await;
    visited.until("/fleet", "or once cluster hosts resolve").await;
    for (path, missing) in
        [("/strength", "The run has no rated games yet"), ("/weights", "The run keeps no weights yet")]
    {
        let page = visited.get(path).await;
        assert!(page.starts_with("HTTP/1.1 200") && page.contains(missing), "{page}");
        assert!(page.contains("the console needs the volume of the arena, mounted read-only"), "{page}");
    }
    for (query, players) in [("", "@N harbour@N"), ("?a=12&b=9", "@12 harbour@9")] {
        let page = visited.get(&format!("/strength{query}")).await;
        let command = format!("<code>zerofleet match harbour{players} --runs DIRECTORY --games 200</code>");
        assert!(page.contains(&command) && !page.contains("/strength/match"), "{page}");
    }
}
