//! Tests of the replay pages over HTTP, with scripted replay servers.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::SystemTime;

use experience::TrajectoryId;
use fleet::RunDirectory;
use fleet::run_directory::Progress;
use proto::replay::TableStats;
use run_file::RunFile;
use run_metrics::RunMetrics;
use scripted::ReplayScript;
use service::Drain;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use web_console::{Console, Settings};

use crate::http::{self, DEADLINE, OURS, POLL, status, word};
use crate::settings::ScriptedThinker;

/// The console of a run that a session trains.
struct Visited {
    console: Console,
    _lock: std::fs::File,
    _folder: TempDir,
}

impl Visited {
    /// Opens the console of a run with these replay servers.
    async fn new(replay: Vec<SocketAddr>) -> Self {
        Self::with(replay, "view,infer,admin", ScriptedThinker::default()).await
    }

    async fn with(replay: Vec<SocketAddr>, scopes: &str, thinker: ScriptedThinker) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        let mut config = RunFile::default();
        config.run.game = "tic_tac_toe".to_owned();
        std::fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
        run.keep_progress(&Progress { minutes: 10.0, replay, ..Progress::default() }).unwrap();
        let reading = RunMetrics {
            elapsed_seconds: 60.0,
            unix_seconds: SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64(),
            distinct: [("overall".to_owned(), 0.42)].into(),
            ..RunMetrics::default()
        };
        std::fs::write(run.metrics(), serde_json::to_string(&reading).unwrap() + "\n").unwrap();
        let lock = run.lock().unwrap();
        let (scopes, thinker) = (scopes.parse().unwrap(), Arc::new(thinker));
        let settings = Settings { scopes, thinker, ..crate::settings(run) };
        let console = Console::start(settings, Drain::new()).await.unwrap();
        let visited = Self { console, _lock: lock, _folder: folder };
        let begin = Instant::now();
        while visited.get("/replay").await.contains("No session trains the run") {
            assert!(begin.elapsed() < DEADLINE, "the console reads the run");
            sleep(POLL).await;
        }
        visited
    }

    async fn get(&self, path: &str) -> String {
        http::get(self.console.address(), path).await
    }

    async fn post(&self, headers: &str, form: &str) -> String {
        http::post(self.console.address(), "/replay/quarantine", headers, form).await
    }
}

/// Returns the page in a response, without the headers.
fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

/// Starts a replay server that holds this many games of three plies, by actor 7 in epoch 3.
async fn holding(games: u64) -> ReplayScript {
    let ids = (0..games).map(|sequence| TrajectoryId { actor: 7, epoch: 3, sequence });
    ReplayScript::holding(TableStats::default(), ids.collect()).await
}

#[tokio::test]
async fn a_search_is_paged_by_the_server_and_keeps_its_conditions() {
    let server = holding(3).await;
    let visited = Visited::new(vec![server.address]).await;
    let page = visited.get("/replay?outcome=first+wins&order=surprising&plies_min=2&plies_max=&server=").await;
    assert_eq!(status(&page), 200, "{page}");
    for part in [">7/3/0</a>", ">7/3/1</a>", "first wins", "<td>v2</td>", "sampled", "<td>3</td>", "42 % all plies"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains(">7/3/2</a>") && !page.contains("Replay server"), "{page}");
    assert!(page.contains("<option selected>first wins</option>"), "{page}");
    let next = "/replay?outcome=first+wins&amp;plies_min=2&amp;order=surprising&amp;cursor=2";
    assert!(page.contains(&format!("href=\"{next}\"")), "{page}");
    let page = visited.get(&next.replace("&amp;", "&")).await;
    assert!(page.contains(">7/3/2</a>") && !page.contains(">7/3/1</a>") && !page.contains("Next page"), "{page}");
    let empty = holding(0).await;
    let page = Visited::new(vec![empty.address]).await.get("/replay").await;
    assert!(page.contains("No stored game meets the conditions"), "{page}");
}

#[tokio::test]
async fn malformed_conditions_are_refused_with_a_message_next_to_the_form() {
    let server = holding(1).await;
    let visited = Visited::new(vec![server.address]).await;
    for (query, message) in [
        ("actor=-1", "Actor: `-1` is not a whole number in range."),
        ("actor=18446744073709551616", "is not a whole number"),
        ("version_min=5&version_max=4", "Version: 5 to 4 is not a range"),
        ("plies_min=4294967296", "Length: `4294967296` is not a whole number in range."),
        ("outcome=%3Cb%3E", "Outcome: `&lt;b&gt;` is not a choice."),
        ("order=random", "Order: `random` is not a choice."),
        ("quarantined=maybe", "In quarantine: `maybe` is not a choice."),
        ("cursor=%00", "This is no page of a search."),
        ("server=9", "There is no replay server `9`; the servers are 1."),
    ] {
        let page = visited.get(&format!("/replay?{query}")).await;
        assert!(status(&page) == 400 && page.contains(message), "{query}: {page}");
        assert!(page.contains("role=\"search\""), "{query}: {page}");
    }
}

#[tokio::test]
async fn a_game_is_shown_at_every_ply_by_the_rules() {
    let server = holding(1).await;
    let visited = Visited::new(vec![server.address]).await;
    for (ply, parts) in [
        (0, ["3 columns; empty", "The first player plays <strong>1</strong>", "drawn at random", ">First</a>"]),
        (1, ["row 1, column 1", "The second player plays <strong>2</strong>", "-0.500", "A fast search chose"]),
        (2, ["row 1, column 2", "The first player plays <strong>3</strong>", "75 % of the search", "<td>75.0 %</td>"]),
        (3, ["row 1, column 3", "is over: first wins.", "Value of the search for the first player", ">Last</a>"]),
    ] {
        let page = visited.get(&format!("/replay/game?id=7/3/0&ply={ply}")).await;
        assert_eq!(status(&page), 200, "{page}");
        for part in parts {
            assert!(page.contains(part), "ply {ply}: {part} is not in {page}");
        }
        let forward = format!("ply={}\"", ply + 1);
        assert_eq!(page.contains(&forward), ply < 3, "ply {ply}: {page}");
    }
    for (query, code, message) in [
        ("", 400, "is not ACTOR/EPOCH/SEQUENCE"),
        ("id=7-3-0", 400, "is not ACTOR/EPOCH/SEQUENCE"),
        ("id=7/3/0&ply=4", 400, "The game has 3 plies; there is no ply 4."),
        ("id=7/3/0&ply=-1", 400, "`-1` is not the number of a ply."),
        ("id=7/3/9", 404, "does not hold the game 7/3/9"),
    ] {
        let page = visited.get(&format!("/replay/game?{query}")).await;
        assert!(status(&page) == code && page.contains(message), "{query}: {page}");
    }
}

#[tokio::test]
async fn the_policy_of_the_latest_network_stands_next_to_the_stored_one() {
    let server = holding(1).await;
    let visited = Visited::new(vec![server.address]).await;
    let now = "The latest network, v9 without a search: value for the player to move +0.250.";
    let columns = ["move", "stored", "now"].map(|name| format!("<th scope=\"col\">{name}</th>")).concat();
    for (ply, row) in [
        (0, "<th scope=\"row\"><strong>1</strong></th><td>–</td><td>11.1 %</td></tr>"),
        (1, "<th scope=\"row\"><strong>2</strong></th><td>–</td><td>12.5 %</td></tr>"),
        (2, "<th scope=\"row\">4</th><td>75.0 %</td><td>14.3 %</td></tr>"),
    ] {
        let page = visited.get(&format!("/replay/game?id=7/3/0&ply={ply}")).await;
        assert!(page.contains(now) && page.contains(&columns) && page.contains(row), "ply {ply}: {page}");
    }
    let last = visited.get("/replay/game?id=7/3/0&ply=3").await;
    assert!(status(&last) == 200 && !last.contains("latest network"), "{last}");
}

#[tokio::test]
async fn without_weights_or_the_scope_a_stored_game_is_shown_without_an_opinion() {
    let server = holding(1).await;
    for (scopes, reason) in [("view,infer", true), ("view", false)] {
        let thinker = ScriptedThinker { refusal: reason.then_some("run first has published no weights yet") };
        let visited = Visited::with(vec![server.address], scopes, thinker).await;
        let page = visited.get("/replay/game?id=7/3/0&ply=2").await;
        assert!(status(&page) == 200 && page.contains("<td>75.0 %</td>") && !page.contains(">now</th>"), "{page}");
        let shown = page.contains("The latest network is not shown: run first has published no weights yet.");
        assert_eq!((shown, page.contains("latest network")), (reason, reason), "{page}");
    }
}

#[tokio::test]
async fn pages_that_search_need_the_scope_infer() {
    let visited = Visited::with(Vec::new(), "view,admin", ScriptedThinker::default()).await;
    for path in ["/play/events?game=hex-5", "/play/answer?game=hex-5", "/play/move?x=1"] {
        let refused = visited.get(path).await;
        assert!(status(&refused) == 403 && refused.contains("does not grant the scope infer"), "{path}: {refused}");
    }
    assert_eq!(status(&visited.get("/playground").await), 404);
}

#[tokio::test]
async fn a_confirmed_quarantine_is_made_and_reverted_by_a_release() {
    let server = holding(2).await;
    let visited = Visited::new(vec![server.address]).await;
    let game = "/replay/game?server=1&id=7%2F3%2F0";
    let page = visited.get(game).await;
    let word = word(&page);
    for (change, suspect, button, state) in [
        ("quarantine", "game", "Quarantine this game", "in quarantine"),
        ("release", "game", "Release this game", "sampled"),
        ("quarantine", "actor", "Quarantine all games of actor 7", "in quarantine"),
    ] {
        let before = visited.get(game).await;
        assert!(before.contains(button), "{before}");
        let form = format!("word={word}&server=1&id=7/3/0&change={change}&suspect={suspect}");
        let unsure = visited.post(OURS, &form).await;
        assert!(status(&unsure) == 400 && unsure.contains("was not confirmed"), "{unsure}");
        assert_eq!(body(&visited.get(game).await), body(&before), "an unconfirmed form changes nothing");
        let done = visited.post(OURS, &format!("{form}&confirm=yes&reason=too+good")).await;
        assert!(status(&done) == 303 && done.contains(&format!("location: {game}\r\n")), "{done}");
        let after = visited.get(game).await;
        assert!(after.contains(&format!("<strong>{state}</strong>")), "{after}");
    }
    let list = visited.get("/replay").await;
    assert_eq!(list.matches("<td>in quarantine</td>").count(), 2, "{list}");
}

#[tokio::test]
async fn a_forged_or_malformed_form_and_a_visitor_without_the_scope_change_nothing() {
    let server = holding(1).await;
    let visited = Visited::new(vec![server.address]).await;
    let game = "/replay/game?id=7/3/0";
    let page = visited.get(game).await;
    let word = word(&page);
    let form = format!("word={word}&id=7/3/0&change=quarantine&suspect=game&confirm=yes");
    let narrowed = Visited::with(vec![server.address], "view", ScriptedThinker::default()).await;
    let refused = narrowed.post(OURS, &form).await;
    assert!(status(&refused) == 403 && refused.contains("does not grant the scope admin"), "{refused}");
    assert!(!narrowed.get(game).await.contains("<button name=\"suspect\""));
    for (headers, form, code) in [
        ("", form.clone(), 403),
        ("Origin: http://evil.example\r\n", form.clone(), 403),
        (OURS, form.replace(&word, "guessed"), 403),
        (OURS, form.replace("suspect=game", "suspect=all"), 400),
        (OURS, form.replace("change=quarantine", "change=delete"), 400),
        (OURS, form.replace("7/3/0", "7/3"), 400),
        (OURS, form.replace("7/3/0", "7/3/9"), 503),
    ] {
        let response = visited.post(headers, &form).await;
        assert_eq!(status(&response), code, "{form}: {response}");
    }
    assert_eq!(body(&visited.get(game).await), body(&page));
}

#[tokio::test]
async fn a_lost_server_is_described_and_another_server_can_be_chosen() {
    let server = holding(1).await;
    // The port is free again, but nothing listens there.
    let lost = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let visited = Visited::new(vec![lost, server.address]).await;
    for path in ["/replay", "/replay?server=1", "/replay/game?id=7/3/0"] {
        let page = visited.get(path).await;
        assert!(status(&page) == 503 && page.contains("The replay server is not available"), "{path}: {page}");
    }
    let page = visited.get("/replay?server=2").await;
    assert!(page.contains("<option selected>2</option>") && page.contains(">7/3/0</a>"), "{page}");
    assert!(page.contains("href=\"/replay/game?server=2&amp;id=7%2F3%2F0\""), "{page}");
}

#[tokio::test]
async fn a_server_that_accepts_but_stays_silent_meets_a_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap();
    let visited = Visited::new(vec![silent]).await;
    let page = visited.get("/replay").await;
    assert!(status(&page) == 503 && page.contains(" not respond"), "{page}");
}

#[tokio::test]
async fn a_session_without_replay_servers_is_described() {
    let visited = Visited::new(Vec::new()).await;
    let page = visited.get("/replay").await;
    assert!(page.contains("The session has not started a replay server yet."), "{page}");
}
