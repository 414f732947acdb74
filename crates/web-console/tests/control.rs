//! Tests of the changes of a session over HTTP, with scripted replay servers and a supervisor that the test reads.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};

use fleet::RunDirectory;
use fleet::run_directory::Progress;
use proto::replay::{Inspector, TableChange};
use run_file::RunFile;
use scripted::ReplayScript;
use service::Drain;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use web_console::{Console, Settings};

use crate::http::{self, DEADLINE, OURS, POLL, status, word};

/// Page with the forms.
const PAGE: &str = "/fleet/changes";

/// The console of a run that a session trains.
struct Visited {
    console: Console,
    _lock: std::fs::File,
    _folder: TempDir,
}

impl Visited {
    /// Opens the console with these replay servers and this supervisor.
    async fn new(replay: Vec<SocketAddr>, scopes: &str, supervisor: Option<mpsc::Sender<String>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        std::fs::write(run.config(), service::config::print(&RunFile::default()).unwrap()).unwrap();
        run.keep_progress(&Progress { minutes: 10.0, replay, ..Progress::default() }).unwrap();
        std::fs::write(run.fleet(), r#"[{"name":"actor-0","role":"actor","admin":"127.0.0.1:1"}]"#).unwrap();
        let lock = run.lock().unwrap();
        let settings = Settings { scopes: scopes.parse().unwrap(), supervisor, ..crate::settings(run) };
        let console = Console::start(settings, Drain::new()).await.unwrap();
        let visited = Self { console, _lock: lock, _folder: folder };
        let begin = Instant::now();
        while visited.get(PAGE).await.contains("No session trains the run") {
            assert!(begin.elapsed() < DEADLINE, "the console reads the run");
            sleep(POLL).await;
        }
        visited
    }

    async fn get(&self, path: &str) -> String {
        http::get(self.console.address(), path).await
    }

    async fn post(&self, headers: &str, form: &str) -> String {
        http::post(self.console.address(), PAGE, headers, form).await
    }

    /// Sends a confirmed form of the page.
    async fn change(&self, name: &str, value: &str) -> String {
        let word = word(&self.get(PAGE).await);
        self.post(OURS, &format!("word={word}&change={name}&value={value}&confirm=yes")).await
    }
}

/// Returns the settings of a replay server after a change of the key, or now if there is no change.
async fn settings(server: &ReplayScript, change: Option<(&str, &str)>) -> BTreeMap<String, String> {
    let inspector = Inspector::new(&server.endpoint()).unwrap();
    let settings = change.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    inspector.configure(TableChange { settings, ..TableChange::default() }).await.unwrap()
}

/// Starts a replay server with four samples per insert.
async fn limited() -> ReplayScript {
    let server = ReplayScript::start().await;
    settings(&server, Some(("samples_per_insert", "4.0"))).await;
    server
}

/// Returns the line of a change by the only visitor of these tests.
fn line(change: &str) -> String {
    format!("{change} a visitor of this machine")
}

#[tokio::test]
async fn confirmed_changes_reach_the_supervisor_and_the_page_of_the_fleet_says_so() {
    let server = limited().await;
    let (supervisor, mut requests) = mpsc::channel(8);
    let visited = Visited::new(vec![server.address], "view,admin", Some(supervisor)).await;
    assert!(visited.get("/fleet").await.contains("href=\"/fleet/changes\""));
    let page = visited.get(PAGE).await;
    let actor = "<select name=\"value\"><option>actor-0</option></select>";
    for part in ["max=\"64\"", "holds until the session ends", actor, "Stop the session, I am sure"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains("kubectl"), "{page}");
    for (name, value) in [("actors", "3"), ("drain", "actor-0"), ("stop", "")] {
        let done = visited.change(name, value).await;
        assert!(status(&done) == 303 && done.contains("location: /fleet?change=requested\r\n"), "{done}");
        assert_eq!(requests.try_recv(), Ok(line(&format!("{name}={value}"))));
    }
    assert!(visited.get("/fleet?change=requested").await.contains("The change was requested"));
    assert!(!visited.get("/fleet").await.contains("was requested"));
}

#[tokio::test]
async fn samples_per_insert_change_on_all_replay_servers_with_or_without_a_supervisor() {
    let servers = [limited().await, limited().await];
    let (sender, mut requests) = mpsc::channel(8);
    for (supervisor, samples) in [(Some(sender), "6.5"), (None, "8")] {
        let addresses = servers.iter().map(|server| server.address).collect();
        let visited = Visited::new(addresses, "view,admin", supervisor).await;
        assert!(visited.get(PAGE).await.contains("Replay server 2: <strong>"));
        let done = visited.change("samples_per_insert", samples).await;
        assert_eq!(status(&done), 303, "{done}");
        for server in &servers {
            assert_eq!(settings(server, None).await["samples_per_insert"], samples);
        }
        let page = visited.get(PAGE).await;
        assert!(page.contains(&format!("Replay server 1: <strong>{samples}</strong>")), "{page}");
    }
    assert_eq!(requests.try_recv(), Ok(line("samples_per_insert=6.5")));
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn forged_unconfirmed_and_impossible_changes_and_visitors_without_the_scope_change_nothing() {
    let server = limited().await;
    let (supervisor, mut requests) = mpsc::channel(8);
    let visited = Visited::new(vec![server.address], "view,admin", Some(supervisor.clone())).await;
    let word = word(&visited.get(PAGE).await);
    let form = format!("word={word}&change=actors&value=3&confirm=yes");
    for (headers, form, code, message) in [
        ("", form.clone(), 403, "Another site"),
        ("Origin: http://evil.example\r\n", form.clone(), 403, "Another site"),
        (OURS, form.replace(&word, "guessed"), 403, "Forged form"),
        (OURS, form.replace("&confirm=yes", ""), 400, "The change was not confirmed"),
        (OURS, form.replace("value=3", "value=0"), 400, "`actors` cannot be changed to `0`."),
        (OURS, form.replace("value=3", "value=65"), 400, "`actors` cannot be changed to `65`."),
        (OURS, form.replace("value=3", "value=3+mallory"), 400, "`actors` cannot be changed to `3 mallory`."),
        (OURS, form.replace("actors", "learners"), 400, "`learners` cannot be changed"),
        (OURS, form.replace("actors", "stop"), 400, "`stop` cannot be changed to `3`."),
        (OURS, form.replace("actors&value=3", "drain&value=a+b"), 400, "`drain` cannot be changed to `a b`."),
        (OURS, form.replace("actors&value=3", "samples_per_insert&value=0"), 400, "cannot be changed to `0`."),
        (OURS, form.replace("actors&value=3", "samples_per_insert&value=inf"), 400, "cannot be changed to `inf`."),
    ] {
        let response = visited.post(headers, &form).await;
        assert!(status(&response) == code && response.contains(message), "{form}: {response}");
        assert!(code == 403 || response.contains("Nothing was changed"), "{form}: {response}");
    }
    let narrowed = Visited::new(vec![server.address], "view", Some(supervisor)).await;
    let refused = narrowed.post(OURS, &form).await;
    assert!(status(&refused) == 403 && refused.contains("does not grant the scope admin"), "{refused}");
    let page = narrowed.get(PAGE).await;
    assert!(!page.contains("<form") && !narrowed.get("/fleet").await.contains(PAGE), "{page}");
    assert!(requests.try_recv().is_err());
    assert_eq!(settings(&server, None).await["samples_per_insert"], "4.0");
}

#[tokio::test]
async fn a_console_without_a_supervisor_shows_commands() {
    let server = limited().await;
    let visited = Visited::new(vec![server.address], "view,admin", None).await;
    let page = visited.get(PAGE).await;
    for command in ["zerofleet train --run first --actors N", "--scale actor=N", "kubectl -n zerofleet scale"] {
        assert!(page.contains(command), "{command} is not in {page}");
    }
    for (name, value) in [("actors", "3"), ("drain", "actor-0"), ("stop", "")] {
        assert!(!page.contains(&format!("value=\"{name}\"")), "{page}");
        let refused = visited.change(name, value).await;
        assert!(status(&refused) == 400 && refused.contains("has not started this console"), "{refused}");
    }
}

#[tokio::test]
async fn a_busy_supervisor_and_a_lost_replay_server_are_described() {
    // The port is free again, but nothing listens there.
    let lost = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (supervisor, mut requests) = mpsc::channel(1);
    let visited = Visited::new(vec![lost], "view,admin", Some(supervisor)).await;
    let page = visited.get(PAGE).await;
    assert!(status(&page) == 200 && page.contains("The replay server is not available"), "{page}");
    let refused = visited.change("samples_per_insert", "5").await;
    assert!(status(&refused) == 503 && refused.contains("The change may not be complete"), "{refused}");
    assert_eq!(status(&visited.change("actors", "3").await), 303);
    let refused = visited.change("actors", "4").await;
    assert!(status(&refused) == 400 && refused.contains("is busy; try again later"), "{refused}");
    assert_eq!(requests.try_recv(), Ok(line("actors=3")));
    assert_eq!(status(&visited.change("actors", "4").await), 303);
}
