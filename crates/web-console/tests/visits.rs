//! Tests of the console over HTTP, as a browser or an attacker sends requests.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

use fleet::RunDirectory;
use fleet::run_directory::Progress;
use run_file::RunFile;
use run_metrics::{RunEvent, RunMetrics};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use service::live::{SearchedAction, Snapshot};
use service::{Drain, SecuritySection};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use transport::security::Scopes;
use web_console::{Console, Settings};

use crate::http::{self, DEADLINE, POLL, answered, status, until_contains, word};

/// Number of event streams that a console serves at once.
const STREAMS_MAX: usize = 64;

/// A run directory with a console.
struct Visited {
    console: Console,
    run: RunDirectory,
    _folder: TempDir,
}

impl Visited {
    /// Opens the console of a run of Hex that `prepare` writes.
    async fn new(prepare: impl FnOnce(&RunDirectory)) -> Self {
        Self::with(SecuritySection::default(), Scopes::default(), prepare).await
    }

    async fn with(security: SecuritySection, scopes: Scopes, prepare: impl FnOnce(&RunDirectory)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        let mut config = RunFile::default();
        (config.run.game, config.run.seed) = ("hex-5".to_owned(), 7);
        std::fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
        run.keep_progress(&Progress { minutes: 10.0, ..Progress::default() }).unwrap();
        prepare(&run);
        let settings = Settings { security, scopes, ..crate::settings(run.clone()) };
        Self { console: Console::start(settings, Drain::new()).await.unwrap(), run, _folder: folder }
    }

    async fn send(&self, request: &str) -> String {
        http::send(self.console.address(), request).await
    }

    async fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost:7080\r\n\r\n")).await
    }

    async fn post(&self, path: &str, headers: &str, form: &str) -> String {
        http::post(self.console.address(), path, headers, form).await
    }

    async fn until(&self, path: &str, text: &str) -> String {
        http::until(self.console.address(), path, text).await
    }

    /// Opens an event stream, and returns it with the first bytes of the response.
    async fn stream(&self) -> (TcpStream, String) {
        self.stream_of("").await
    }

    /// Opens the event stream of the page at this address.
    async fn stream_of(&self, page: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(self.console.address()).await.unwrap();
        let request = format!("GET /events{page} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let text = until_contains(&mut stream, "\r\n\r\n").await;
        (stream, text)
    }
}

fn append(run: &RunDirectory, readings: &[RunMetrics]) {
    let mut text = std::fs::read_to_string(run.metrics()).unwrap_or_default();
    readings.iter().for_each(|reading| text.push_str(&(serde_json::to_string(reading).unwrap() + "\n")));
    std::fs::write(run.metrics(), text).unwrap();
}

/// Returns a reading after some minutes, recorded now.
fn reading(minutes: f64) -> RunMetrics {
    RunMetrics {
        elapsed_seconds: 60.0 * minutes,
        unix_seconds: SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64(),
        steps: Some(500.0 * minutes),
        games_per_second: Some(12.5),
        loss_total: Some(2.5),
        elo: Some(900.0),
        elo_low: Some(820.0),
        elo_high: Some(980.0),
        accuracy: [("search/preserving/overall".to_owned(), 0.876)].into(),
        ..RunMetrics::default()
    }
}

/// Serves the admin port of a learner after 42 steps, which trains three quarters of the time, while the flag is true.
fn learner() -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, answers) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(true)));
    let is_answering = Arc::clone(&answers);
    std::thread::spawn(move || {
        let answered = listener.incoming().flatten().filter(|_| is_answering.load(Ordering::Relaxed));
        for (seconds, mut stream) in answered.enumerate() {
            let _ = stream.read(&mut [0; 4096]);
            let phase =
                |name: &str, time: usize| format!("zerofleet_learner_seconds_total{{phase=\"{name}\"}} {time}\n");
            let body = "zerofleet_learner_steps_total 42\n".to_owned()
                + &phase("train", 3 * seconds)
                + &phase("wait", seconds);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            // The client may have disconnected.
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    (address, answers)
}

/// The admin port of an actor that plays Hex.
#[derive(Default)]
struct Actor {
    polls: AtomicUsize,
    listeners: AtomicUsize,
}

/// Serves the admin port of an actor. A listener gets lines that are no games, and one game.
fn actor() -> (SocketAddr, Arc<Actor>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, actor) = (listener.local_addr().unwrap(), Arc::<Actor>::default());
    let counted = Arc::clone(&actor);
    let illegal = serde_json::to_string(&game(1, &[12, 12])).unwrap();
    let lines = format!("no json\n{{}}\n{illegal}\n{}\n", serde_json::to_string(&game(0, &[12])).unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or_default();
            let (body, count) = match request[..length].starts_with(b"GET /live") {
                true => (lines.as_str(), &counted.listeners),
                false => ("zerofleet_actor_games_total 1\n", &counted.polls),
            };
            count.fetch_add(1, Ordering::Relaxed);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            // The client may have disconnected.
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    (address, actor)
}

/// Returns a search in a game of Hex.
fn game(place: usize, actions: &[u16]) -> Snapshot {
    Snapshot {
        game: "hex-5".into(),
        place,
        episode: 1,
        seed: 0,
        plies: actions.len(),
        actions: actions.to_vec(),
        observation: None,
        picture: None,
        weights_version: 17,
        simulations: 64,
        value: 0.25,
        top: vec![SearchedAction { action: 3, prior: 0.5, visits: 60, value: 0.25 }],
        played: 3,
    }
}

/// Waits until a counter exceeds `count`.
async fn until_more(counter: &AtomicUsize, count: usize) {
    let begin = Instant::now();
    while counter.load(Ordering::Relaxed) <= count {
        assert!(begin.elapsed() < DEADLINE, "the counter stays at {count}");
        sleep(POLL).await;
    }
}

fn finished(run: &RunDirectory) {
    append(run, &[reading(5.0), reading(10.0)]);
}

#[tokio::test]
async fn the_overview_of_a_finished_run_shows_its_values_charts_and_events_without_scripts() {
    let event = RunEvent { unix_seconds: 1_764_296_851.5, text: "learner <b>was killed</b>".to_owned() };
    let visited = Visited::new(|run| {
        finished(run);
        std::fs::write(run.events(), serde_json::to_string(&event).unwrap() + "\n").unwrap();
    })
    .await;
    let page = visited.until("/", "Finished").await;
    for part in ["first", "10:00", "5000", "900 (820 to 980)", "87.6 %", "12.5", "2025-11-28 02:27 UTC"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(page.contains("learner &lt;b&gt;was killed&lt;/b&gt;") && !page.contains("<b>"), "{page}");
    assert!(page.matches("<svg").count() == 3 && page.contains("http-equiv=\"refresh\""), "{page}");
    assert!(page.len() < 100_000, "{} bytes", page.len());
    assert!(page.contains("content-security-policy: default-src 'none';"), "{page}");
}

#[tokio::test]
async fn the_configuration_shows_the_effective_file_and_the_difference_from_the_preset() {
    let visited = Visited::new(|_| {}).await;
    let page = visited.get("/config").await;
    assert_eq!(status(&page), 200, "{page}");
    let (differing, all) = page.split_once("All keys").unwrap();
    assert!(differing.contains("run.seed") && !differing.contains("run.game"), "{differing}");
    assert!(all.contains("learner.batch_size") && !page.contains("security.tokens"), "{all}");
    std::fs::write(visited.run.config(), "[learner]\nbacth_size = 1\n").unwrap();
    let page = visited.get("/config").await;
    assert!(status(&page) == 500 && page.contains("did you mean batch_size"), "{page}");
    assert_eq!(status(&visited.get("/").await), 200, "the overview does not need the run file");
}

#[tokio::test]
async fn a_run_without_metrics_and_a_run_whose_session_has_stopped_writing_are_described() {
    let visited = Visited::new(|_| {}).await;
    let page = visited.until("/", "Not trained yet").await;
    assert!(page.contains("The run has no metrics yet") && page.contains("Nothing has happened yet"), "{page}");
    let stopped = Visited::new(|run| append(run, &[reading(5.0)])).await;
    stopped.until("/", "Stopped").await;
    let _lock = visited.run.lock().unwrap();
    append(&visited.run, &[RunMetrics { unix_seconds: 1.0, ..reading(5.0) }]);
    visited.until("/", "No new metrics").await;
}

#[tokio::test]
async fn a_process_that_stops_responding_is_named_until_it_responds_again() {
    let (admin, answers) = learner();
    let visited = Visited::new(|run| {
        append(run, &[reading(5.0)]);
        std::fs::write(run.fleet(), format!(r#"[{{"name":"learner","role":"learner","admin":"{admin}"}}]"#)).unwrap();
    })
    .await;
    let _lock = visited.run.lock().unwrap();
    let page = visited.until("/", "1 of 1 processes respond").await;
    assert!(page.contains(">42<") && page.contains("5:00 left"), "{page}");
    answers.store(false, Ordering::Relaxed);
    let page = visited.until("/", "learner stopped responding at").await;
    assert!(page.contains("0 of 1 processes respond"), "{page}");
    answers.store(true, Ordering::Relaxed);
    let page = visited.until("/", "1 of 1 processes respond").await;
    assert!(!page.contains("stopped responding"), "{page}");
}

#[tokio::test]
async fn a_session_that_has_ended_trains_no_longer_and_has_lost_no_process() {
    let (admin, answers) = learner();
    let visited = Visited::new(|run| {
        append(run, &[RunMetrics { elo: None, elo_low: None, elo_high: None, ..reading(5.0) }]);
        std::fs::write(run.fleet(), format!(r#"[{{"name":"learner","role":"learner","admin":"{admin}"}}]"#)).unwrap();
    })
    .await;
    let _lock = visited.run.lock().unwrap();
    let page = visited.until("/", "1 of 1 processes respond").await;
    assert!(page.contains("Not measured yet: Elo") && page.matches("<svg").count() == 2, "{page}");
    let event = |text: &str| serde_json::to_string(&RunEvent { unix_seconds: 1.0, text: text.into() }).unwrap() + "\n";
    let ended = event(RunEvent::ENDED);
    std::fs::write(visited.run.events(), &ended).unwrap();
    answers.store(false, Ordering::Relaxed);
    let page = visited.until("/", "Stopped").await;
    assert!(!page.contains("stopped responding") && !page.contains("processes respond"), "{page}");
    std::fs::write(visited.run.events(), ended + &event("session started, 5:00 of training so far")).unwrap();
    visited.until("/", ">Training<").await;
}

#[tokio::test]
async fn actors_are_listened_to_while_a_visitor_watches_and_their_games_are_drawn() {
    let (admin, actor) = actor();
    let visited = Visited::new(|run| {
        append(run, &[reading(5.0)]);
        std::fs::write(run.fleet(), format!(r#"[{{"name":"actor-0","role":"actor","admin":"{admin}"}}]"#)).unwrap();
    })
    .await;
    let _lock = visited.run.lock().unwrap();
    visited.until("/fleet", "1 process, 1 ready").await;
    // Each reading of the run sends two requests.
    until_more(&actor.polls, 6).await;
    assert_eq!(actor.listeners.load(Ordering::Relaxed), 0, "no visitor watches games");
    let page = visited.until("/games", "Board with").await;
    for part in ["Board with 5 rows and 5 columns; first player: 1 stone; last move: c3", "hex-5, ply 1", "v17"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(page.contains("http-equiv=\"refresh\"") && !page.contains("style="), "{page}");
    assert_eq!(page.matches("<svg class=\"board").count(), 1, "a game against the rules is left out: {page}");
    let page = visited.until("/games?actor=actor-0&place=0", "% of the search").await;
    assert!(page.contains("id=\"game\"") && page.matches("<svg class=\"board").count() == 2, "{page}");
    let page = visited.get("/games?actor=%3Cb%3E&place=9").await;
    assert!(page.contains("Waiting for the next search in game 9 of &lt;b&gt;."), "{page}");
    let page = visited.until("/", "Board with").await;
    assert!(page.contains("Games in progress") && !page.contains("% of the search"), "{page}");
    until_more(&actor.listeners, 2).await;
}

#[tokio::test]
async fn the_stream_of_a_selected_game_sends_the_games_alone() {
    let (admin, actor) = actor();
    let visited = Visited::new(|run| {
        std::fs::write(run.fleet(), format!(r#"[{{"name":"actor-0","role":"actor","admin":"{admin}"}}]"#)).unwrap();
    })
    .await;
    let _lock = visited.run.lock().unwrap();
    let (mut stream, mut text) = visited.stream_of("/games?actor=actor-0&place=0").await;
    if !text.contains("% of the search") {
        text += &until_contains(&mut stream, "% of the search").await;
    }
    assert!(text.contains("id=\"games\"") && text.contains("id=\"game\"") && !text.contains("id=\"charts\""), "{text}");
    until_more(&actor.listeners, 0).await;
}

#[tokio::test]
async fn without_actors_the_page_of_games_says_what_is_missing() {
    let visited = Visited::new(finished).await;
    visited.until("/games", "Games appear here while actors play.").await;
}

#[tokio::test]
async fn a_stream_sends_all_fragments_and_then_those_that_have_changed() {
    let visited = Visited::new(finished).await;
    visited.until("/", "Finished").await;
    let (mut stream, mut text) = visited.stream().await;
    if !text.contains("id=\"events\"") {
        text += &until_contains(&mut stream, "id=\"events\"").await;
    }
    assert!(text.contains("content-type: text/event-stream") && text.contains("id=\"charts\""), "{text}");
    append(&visited.run, &[RunMetrics { elo: Some(1234.0), ..reading(10.0) }]);
    let change = until_contains(&mut stream, "1234").await;
    assert!(!change.contains("id=\"events\""), "{change}");
    visited.console.stop().await;
    let mut rest = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("the stream ends with the console").unwrap();
}

#[tokio::test]
async fn the_fleet_shows_processes_phases_and_bottleneck_and_streams_only_its_own_parts() {
    let (admin, answers) = learner();
    let visited = Visited::new(|run| {
        append(run, &[reading(5.0)]);
        std::fs::write(run.fleet(), format!(r#"[{{"name":"learner","role":"learner","admin":"{admin}"}}]"#)).unwrap();
    })
    .await;
    let lock = visited.run.lock().unwrap();
    let page = visited.until("/fleet", "<meter").await;
    for part in ["1 process, 1 ready", &admin.to_string(), "75 %", ">train<", "id=\"bottleneck\"", "id=\"events\""] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(page.contains("http-equiv=\"refresh\"") && !page.contains("style="), "{page}");
    let mut stream = TcpStream::connect(visited.console.address()).await.unwrap();
    stream.write_all(b"GET /events/fleet HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let text = until_contains(&mut stream, "id=\"processes\"").await;
    assert!(!text.contains("id=\"charts\""), "{text}");
    answers.store(false, Ordering::Relaxed);
    visited.until("/fleet", "1 process, 0 ready, 1 lost").await;
    drop(lock);
    visited.until("/fleet", "No processes are known").await;
}

/// Writes results between players: the openings by the half points of the first player.
fn rate(run: &RunDirectory, results: &[(&str, &str, [u64; 5])]) {
    let line = |(a, b, pairs): &(&str, &str, [u64; 5])| format!(r#"{{"a":"{a}","b":"{b}","pairs":{pairs:?}}}"#);
    let lines: Vec<String> = results.iter().map(line).collect();
    let text = format!(r#"{{"format":2,"game":"hex-5","ratings":[],"results":[{}]}}"#, lines.join(","));
    std::fs::write(run.path().join("ratings.json"), text).unwrap();
}

#[tokio::test]
async fn the_strength_follows_the_recorded_games_and_stays_readable_with_damaged_ratings() {
    let first = ("v1", "random", [0, 0, 2, 0, 6]);
    let visited = Visited::new(|run| {
        let readings = [1.0, 2.0].map(|version| RunMetrics {
            weights_version: Some(version),
            validation_loss_policy: Some(1.234),
            accuracy: ["raw/preserving/late", "search/preserving/late"].map(|name| (name.to_owned(), 0.625)).into(),
            ..reading(5.0 * version)
        });
        append(run, &readings);
        rate(run, &[first]);
    })
    .await;
    let page = visited.until("/strength", "<svg").await;
    for part in ["One fit of all 16 games", ">14/16<", ">2/16<", ">late<", "62.5 %", "policy 1.234", "training steps"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(page.matches("<svg").count() == 3 && page.len() < 100_000, "{page}");
    rate(&visited.run, &[first, ("v1", "v2", [0, 0, 8, 0, 0])]);
    let page = visited.get("/strength").await;
    assert!(page.contains("all 32 games") && page.contains(">8/16<"), "{page}");
    std::fs::write(visited.run.path().join("ratings.json"), "{").unwrap();
    let page = visited.get("/strength").await;
    assert!(status(&page) == 200 && page.contains("is not a ratings file") && page.contains("<svg"), "{page}");
}

#[tokio::test]
async fn a_run_without_games_and_weights_says_so() {
    let visited = Visited::new(|_| {}).await;
    let page = visited.until("/strength", "Charts appear").await;
    assert!(page.contains("no rated games yet") && page.contains("No accuracy is measured"), "{page}");
    assert!(visited.get("/weights").await.contains("keeps no weights yet"));
}

/// Writes the manifest of a weights version.
fn keep(run: &RunDirectory, version: u64) {
    let digest = "ab".repeat(32);
    let architecture = r#"{"game":"hex-5","planes":2,"height":5,"width":5,"actions":25,"channels":8,"blocks":1}"#;
    let text = format!(
        r#"{{"version":{version},"training_step":{},"digest":"{digest}","size_bytes":5,"architecture":{architecture}}}"#,
        10 * version
    );
    let folder = run.path().join("weights");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("v{version:06}.json")), text).unwrap();
}

#[tokio::test]
async fn kept_versions_are_paged_and_downloaded_and_no_other_file_is() {
    let prepare = |run: &RunDirectory| {
        (1..=101).for_each(|version| keep(run, version));
        std::fs::write(run.path().join("weights").join("v000101.safetensors"), "bytes").unwrap();
        rate(run, &[("v101", "random", [0, 0, 2, 0, 6])]);
    };
    let visited = Visited::new(prepare).await;
    let page = visited.get("/weights").await;
    for part in [">v101<", ">1010<", "Page 1 of 2", "abababababab<", "/weights/v101.safetensors", "101 versions"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(page.matches("<tr>").count() == 101 && !page.contains(">v1<") && page.len() < 100_000, "{page}");
    for path in ["/weights?page=2", "/weights?page=99"] {
        let page = visited.get(path).await;
        assert!(page.contains(">v1<") && page.contains("Later versions") && !page.contains(">v101<"), "{page}");
    }
    let file = visited.get("/weights/v101.safetensors").await;
    assert!(status(&file) == 200 && file.ends_with("\r\n\r\nbytes"), "{file}");
    assert!(file.contains("content-disposition: attachment; filename=\"first-v101.safetensors\""), "{file}");
    for path in ["v1.safetensors", "v102.safetensors", "v101.json", "..%2Fconfig.toml", "../config.toml", "%00"] {
        assert_eq!(status(&visited.get(&format!("/weights/{path}")).await), 404, "{path}");
    }
    let blind = Visited::with(SecuritySection::default(), "infer".parse().unwrap(), prepare).await;
    assert_eq!(status(&blind.get("/weights/v101.safetensors").await), 403);
}

#[tokio::test]
async fn programs_read_state_versions_and_metrics_as_json_with_the_scope_view() {
    let prepare = |run: &RunDirectory| {
        finished(run);
        (1..=101).for_each(|version| keep(run, version));
        std::fs::write(run.path().join("weights").join("v000003.json"), "{").unwrap();
        rate(run, &[("v101", "random", [0, 0, 2, 0, 6])]);
    };
    let visited = Visited::new(prepare).await;
    let body = |response: &str| {
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/json"), "{response}");
        serde_json::from_str::<serde_json::Value>(body).unwrap()
    };
    let state = body(&visited.until("/run.json", "\"elapsed_seconds\":600.0").await);
    assert!(state["name"] == "first" && state["game"] == "hex-5" && state["pages"] == 2, "{state}");
    let versions = state["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 99, "a damaged manifest is left out");
    assert!(versions[0]["manifest"]["training_step"] == 1010 && versions[0]["elo"].is_f64(), "{state}");
    assert!(versions[1]["manifest"]["version"] == 100 && versions[1]["elo"].is_null(), "{state}");
    let last = body(&visited.get("/run.json?page=2").await);
    assert_eq!(last["versions"][0]["manifest"]["version"], 1);
    let beyond = body(&visited.get(&format!("/run.json?page={}", usize::MAX)).await);
    assert!(beyond["versions"].as_array().unwrap().is_empty() && beyond["pages"] == 2, "{beyond}");
    let metrics = body(&visited.get("/metrics.json").await);
    assert!(metrics["rows"].as_array().unwrap().len() == 2 && metrics["rows"][1]["elo"] == 900.0, "{metrics}");
    let folder = tempfile::tempdir().unwrap();
    let guarded = Visited::with(tokens(&folder), Scopes::default(), prepare).await;
    let blind = Visited::with(SecuritySection::default(), "infer".parse().unwrap(), prepare).await;
    for path in ["/run.json", "/metrics.json"] {
        let (unknown, forbidden) = (guarded.get(path).await, blind.get(path).await);
        assert_eq!((status(&unknown), status(&forbidden)), (401, 403), "{path}");
        let reason = "This console does not grant the scope view (--console-scopes).";
        assert_eq!(body(&forbidden)["error"], reason);
        assert!(body(&unknown)["error"].is_string());
    }
}

#[tokio::test]
async fn other_hosts_and_origins_are_refused() {
    let visited = Visited::new(finished).await;
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:7080", "[::1]:7080"] {
        let page = visited.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!(status(&page), 200, "{host}: {page}");
    }
    for host in
        ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:7080", "evil@localhost", "10.0.0.1", ""]
    {
        let page = visited.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert!([400, 421].contains(&status(&page)) && !page.contains("Finished"), "{host}: {page}");
    }
    let twice = visited.send("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n").await;
    assert_eq!(status(&twice), 421, "{twice}");
    for origin in ["http://evil.example", "null", "https://localhost:7080", "http://localhost:1"] {
        let request = format!("GET /events HTTP/1.1\r\nHost: localhost:7080\r\nOrigin: {origin}\r\n\r\n");
        let page = visited.send(&request).await;
        assert!(status(&page) == 403 && !page.contains("access-control"), "{origin}: {page}");
    }
    for (kind, expected) in [("image", 403), ("document", 200)] {
        let fetched = format!("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: {kind}\r\n\r\n");
        let page = visited.send(&format!("GET / HTTP/1.1\r\nHost: localhost\r\n{fetched}")).await;
        assert_eq!(status(&page), expected, "{kind}: {page}");
    }
}

#[tokio::test]
async fn a_forged_post_changes_nothing() {
    let visited = Visited::new(finished).await;
    let word = word(&visited.get("/sign-in").await);
    let form = format!("word={word}&token=x");
    let form = form.as_str();
    let ours = "Origin: http://localhost\r\n";
    for (headers, form) in [
        ("", form),
        ("Origin: http://evil.example\r\n", form),
        ("Origin: null\r\n", form),
        (ours, "token=x"),
        (ours, "word=guessed&token=x"),
        (ours, "%%%=&&&"),
    ] {
        for path in ["/sign-in", "/sign-out"] {
            let response = visited.post(path, headers, form).await;
            assert!(status(&response) == 403 && !response.contains("set-cookie"), "{path} {form}: {response}");
        }
    }
    assert_eq!(status(&visited.post("/sign-out", ours, form).await), 303);
}

#[tokio::test]
async fn a_narrowed_console_grants_no_more_to_anyone() {
    let visited = Visited::with(SecuritySection::default(), "view".parse().unwrap(), finished).await;
    assert_eq!(status(&visited.get("/").await), 200);
    let response = visited.post("/anything", "Origin: http://localhost\r\n", "").await;
    assert!(status(&response) == 403 && response.contains("does not grant the scope admin"), "{response}");
    let blind = Visited::with(SecuritySection::default(), "infer".parse().unwrap(), finished).await;
    assert_eq!(status(&blind.get("/").await), 403);
    assert_eq!(status(&blind.get("/console.css").await), 200);
}

#[tokio::test]
async fn huge_and_malformed_requests_are_refused() {
    let visited = Visited::new(finished).await;
    let large = "x".repeat(400_000);
    let body = visited.post("/sign-in", "Origin: http://localhost\r\n", &large[..40_000]).await;
    assert_eq!(status(&body), 413, "{body}");
    // The connection is closed, with or without a response.
    for request in [
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {large}\r\n\r\n"),
        format!("GET /{large} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "\u{0}\u{1}\u{2}\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
    ] {
        let response = visited.send(&request).await;
        assert!(response.is_empty() || (400..500).contains(&status(&response)), "{response}");
    }
    assert_eq!(status(&visited.get("/nothing").await), 404);
    assert_eq!(status(&visited.get("/").await), 200, "the console still serves");
}

#[tokio::test]
async fn idle_streams_are_bounded_and_leave_room_for_pages() {
    let visited = Visited::new(finished).await;
    let mut open = Vec::new();
    for _ in 0..STREAMS_MAX {
        let (stream, head) = visited.stream().await;
        assert_eq!(status(&head), 200, "{head}");
        open.push(stream);
    }
    for _ in 0..10 {
        let (_stream, head) = visited.stream().await;
        assert!(status(&head) == 503 && head.contains("retry-after: 10"), "{head}");
    }
    assert_eq!(status(&visited.get("/").await), 200);
    open.pop();
    let begin = Instant::now();
    while status(&visited.stream().await.1) != 200 {
        assert!(begin.elapsed() < DEADLINE, "a closed stream leaves its place");
        sleep(POLL).await;
    }
}

/// Writes accepted tokens: `secret` may view and change, `looker` may view, `trainer` may train.
fn tokens(folder: &TempDir) -> SecuritySection {
    let path = folder.path().join("tokens");
    std::fs::write(
        &path,
        "operator view,infer,admin 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n\
         guest view d133efd9800e396abbeb9de0cc7a6f873d58159121a0fc587f8a2ec1208ad50a\nlearner train 06ea17a8981d25b0315ff17bd1ebad3d95c15a3f8b764eaadb93612d9b61a54e\n",
    )
    .unwrap();
    SecuritySection { tokens: path, ..SecuritySection::default() }
}

#[tokio::test]
async fn a_token_becomes_a_cookie_and_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let visited = Visited::with(tokens(&folder), Scopes::default(), finished).await;
    let mut pages = vec![visited.get("/").await, visited.get("/events").await, visited.get("/?token=secret").await];
    assert!(pages.iter().all(|page| status(page) == 401 && !page.contains("Finished")), "{pages:?}");
    let word = word(&pages[0]);
    let ours = "Origin: http://localhost\r\n";
    for (token, expected) in [("wrong", 401), ("", 401), ("a;b", 401), ("trainer", 403)] {
        let page = visited.post("/sign-in", ours, &format!("word={word}&token={token}")).await;
        assert!(status(&page) == expected && !page.contains("set-cookie"), "{token}: {page}");
        pages.push(page);
    }
    let signed_in = visited.post("/sign-in", ours, &format!("word={word}&token=+secret%0A")).await;
    let cookie = "set-cookie: zerofleet=secret; Path=/; HttpOnly; SameSite=Strict\r\n";
    assert!(status(&signed_in) == 303 && signed_in.contains(cookie), "{signed_in}");
    for header in ["Cookie: a=b; zerofleet=secret", "Authorization: Bearer secret"] {
        let page = visited.send(&format!("GET / HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n")).await;
        assert!(status(&page) == 200 && page.contains("Sign out operator"), "{header}: {page}");
        pages.push(page);
    }
    let unknown = visited.send("GET / HTTP/1.1\r\nHost: localhost\r\nCookie: zerofleet=other\r\n\r\n").await;
    assert_eq!(status(&unknown), 401);
    let viewer = format!("{ours}Cookie: zerofleet=looker\r\n");
    let denied = visited.post("/anything", &viewer, "").await;
    assert!(status(&denied) == 403 && denied.contains("the token of guest has view"), "{denied}");
    for page in pages.iter().chain([&unknown, &denied]) {
        let shown = ["secret", "wrong", "trainer", "looker"].into_iter().find(|token| page.contains(token));
        assert_eq!(shown, None, "{page}");
    }
    let signed_out = visited.post("/sign-out", ours, &format!("word={word}")).await;
    assert!(signed_out.contains("set-cookie: zerofleet=; Path=/") && signed_out.contains("Max-Age=0"), "{signed_out}");
}

#[tokio::test]
async fn with_a_certificate_pages_and_cookies_are_for_https_alone() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let [certificate, key_path] = ["server.pem", "server.key"].map(|name| folder.path().join(name));
    std::fs::write(&certificate, &pem).unwrap();
    std::fs::write(&key_path, key.serialize_pem()).unwrap();
    let security = SecuritySection { certificate, key: key_path, ..tokens(&folder) };
    let visited = Visited::with(security, Scopes::default(), finished).await;
    assert!(visited.console.url().starts_with("https://"), "{}", visited.console.url());
    let (address, client) = (visited.console.address(), trusting(&pem));
    let page = over_tls(&client, address, "GET /sign-in HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let form = format!("word={}&token=secret", word(&page));
    let length = form.len();
    let request = |scheme: &str| {
        let head = format!("POST /sign-in HTTP/1.1\r\nHost: localhost\r\nOrigin: {scheme}://localhost\r\n");
        format!("{head}Content-Length: {length}\r\n\r\n{form}")
    };
    let signed_in = over_tls(&client, address, &request("https")).await;
    let cookie = "set-cookie: __Host-zerofleet=secret; Path=/; HttpOnly; SameSite=Strict; Secure\r\n";
    assert!(status(&signed_in) == 303 && signed_in.contains(cookie), "{signed_in}");
    assert_eq!(status(&over_tls(&client, address, &request("http")).await), 403);
    assert!(!visited.get("/").await.contains("HTTP/1.1 200"), "plain HTTP is not answered");
}

/// Returns a client that trusts one certificate and offers the protocols of a browser.
fn trusting(pem: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut client = builder.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    client
}

async fn over_tls(client: &ClientConfig, address: SocketAddr, request: &str) -> String {
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client.clone()));
    let stream = TcpStream::connect(address).await.unwrap();
    answered(connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap(), request).await
}
