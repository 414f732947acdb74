//! Tests of matches, comparisons between two versions and reports, with a script in place of `zerofleet match`.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::PathBuf;
use std::process::Command;

use fleet::RunDirectory;
use fleet::run_directory::Progress;
use run_file::RunFile;
use run_metrics::RunMetrics;
use service::Drain;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use web_console::{Console, Settings};

use crate::http::{self, DEADLINE, OURS, POLL, status, until_contains, word};

/// Takes the place of `zerofleet`.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/match.sh");

/// The console of a Hex run with three versions, two of them rated.
struct Visited {
    console: Console,
    folder: TempDir,
}

impl Visited {
    async fn new(scopes: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = run_in(&folder);
        train(&run);
        Self::of(run, folder, scopes).await
    }

    async fn of(run: RunDirectory, folder: TempDir, scopes: &str) -> Self {
        let settings = Settings { scopes: scopes.parse().unwrap(), program: SCRIPT.into(), ..crate::settings(run) };
        Self { console: Console::start(settings, Drain::new()).await.unwrap(), folder }
    }

    async fn get(&self, path: &str) -> String {
        http::get(self.console.address(), path).await
    }

    /// Sends the form of a match with the word of the pages.
    async fn post(&self, form: &str) -> String {
        let form = format!("word={}&{form}", word(&self.get("/sign-in").await));
        http::post(self.console.address(), "/strength/match", OURS, &form).await
    }

    async fn start(&self, games: u32) -> String {
        self.post(&format!("change=start&a=3&b=1&games={games}&simulations=16")).await
    }

    async fn until(&self, text: &str) -> String {
        http::until(self.console.address(), "/strength", text).await
    }

    /// Returns the file with the id of the latest process.
    fn process(&self) -> PathBuf {
        self.folder.path().join("process")
    }
}

/// Creates a run of Hex that has not been trained.
fn run_in(folder: &TempDir) -> RunDirectory {
    let run = RunDirectory::new(folder.path(), "first").unwrap();
    run.create().unwrap();
    let mut config = RunFile::default();
    (config.run.game, config.run.seed) = ("hex-5".to_owned(), 7);
    std::fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
    run.keep_progress(&Progress { minutes: 10.0, ..Progress::default() }).unwrap();
    run
}

/// Writes the manifests of the first versions.
fn keep(run: &RunDirectory, versions: u64) {
    let architecture = r#"{"game":"hex-5","planes":2,"height":5,"width":5,"actions":25,"channels":8,"blocks":1}"#;
    std::fs::create_dir_all(run.path().join("weights")).unwrap();
    for version in 1..=versions {
        let (step, digest) = (10 * version, "ab".repeat(32));
        let text = format!(
            r#"{{"version":{version},"training_step":{step},"digest":"{digest}","size_bytes":5,"architecture":{architecture}}}"#
        );
        std::fs::write(run.path().join(format!("weights/v{version:06}.json")), text).unwrap();
    }
}

fn rate(run: &RunDirectory, results: &str) {
    let text = format!(r#"{{"format":2,"game":"hex-5","ratings":[],"results":[{results}]}}"#);
    std::fs::write(run.path().join("ratings.json"), text).unwrap();
}

/// Writes metrics, three kept versions and rated games of two.
fn train(run: &RunDirectory) {
    let reading = |version: f64| RunMetrics {
        elapsed_seconds: 200.0 * version,
        unix_seconds: 1e9,
        steps: Some(10.0 * version + 5.0),
        weights_version: Some(version),
        validation_loss_policy: Some(1.0 + version),
        accuracy: [("search/preserving/late".to_owned(), version / 4.0)].into(),
        ..RunMetrics::default()
    };
    let lines = [1.0, 2.0, 3.0].map(|version| serde_json::to_string(&reading(version)).unwrap() + "\n");
    std::fs::write(run.metrics(), lines.concat()).unwrap();
    keep(run, 3);
    rate(run, r#"{"a":"v1","b":"random","pairs":[0,0,2,0,6]},{"a":"v2","b":"v1","pairs":[1,0,2,0,5]}"#);
}

/// Waits until the process whose id is in a file has ended.
async fn until_ended(file: PathBuf) {
    let id = std::fs::read_to_string(file).unwrap();
    let begin = Instant::now();
    while Command::new("kill").args(["-0", id.trim()]).output().unwrap().status.success() {
        assert!(begin.elapsed() < DEADLINE, "process {id} has ended");
        sleep(POLL).await;
    }
}

#[tokio::test]
async fn a_match_of_two_versions_ends_with_a_report_or_the_error_of_the_process() {
    let visited = Visited::new("view,admin").await;
    let response = visited.start(64).await;
    assert!(status(&response) == 303 && response.contains("location: /strength#match\r\n"), "{response}");
    let page = visited.until("Finished after 0:").await;
    for part in [
        "v3 against v1, 64 games, 16 simulations; a visitor of this machine, 20",
        "first@3 scores 40.5 of 64 against first@1 (63.3 %)",
        "Elo difference +94 (95 % interval +40 to +148)",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains("data-live") && !page.contains("http-equiv=\"refresh\""), "{page}");
    assert_eq!(status(&visited.start(128).await), 303);
    let page = visited.until("Failed (exit status: 1) after 0:").await;
    assert!(page.contains("<pre class=\"output\">error: weights 3 of run first are damaged</pre>"), "{page}");
    assert!(!page.contains("Finished after 0:"), "the latest match is shown: {page}");
}

#[tokio::test]
async fn a_match_is_followed_stopped_and_ended_with_the_console() {
    let visited = Visited::new("view,admin").await;
    assert_eq!(status(&visited.start(200).await), 303);
    let page = visited.until("32 of 200 games, 18.5 of 32 points, Elo +55").await;
    for part in ["Playing", "Stop the match", "data-live", "http-equiv=\"refresh\""] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let second = visited.start(64).await;
    assert!(status(&second) == 400 && second.contains("Another match is being played"), "{second}");
    let mut stream = TcpStream::connect(visited.console.address()).await.unwrap();
    stream.write_all(b"GET /events/strength HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let text = until_contains(&mut stream, "of 200 games").await;
    assert!(text.contains("id=\"match\"") && !text.contains("id=\"charts\""), "{text}");
    assert_eq!(status(&visited.post("change=stop").await), 303);
    let page = visited.get("/strength").await;
    assert!(page.contains("Stopped by a visitor of this machine after") && page.contains("32 of 200 games"), "{page}");
    until_ended(visited.process()).await;
    assert_eq!(status(&visited.post("change=stop").await), 303, "nothing is left to stop");
    assert_eq!(status(&visited.start(4_000_000).await), 303);
    visited.until("32 of 1000 games").await;
    let (process, Visited { console, folder: _folder }) = (visited.process(), visited);
    console.stop().await;
    until_ended(process).await;
}

#[tokio::test]
async fn only_changes_of_the_console_within_bounds_start_a_match() {
    let visited = Visited::new("view,admin").await;
    for form in ["a=3&b=--csv&games=64&simulations=16", "a=3&b=1&games=-2&simulations=16", "a=3&b=1&games=64", ""] {
        let page = visited.post(&format!("change=start&{form}")).await;
        assert!(status(&page) == 400 && page.contains("The form lacks a number."), "{form}: {page}");
    }
    let form = "change=start&a=3&b=1&games=64&simulations=16";
    let forged = http::post(visited.console.address(), "/strength/match", OURS, form).await;
    assert!(status(&forged) == 403 && !visited.process().exists(), "{forged}");
    visited.until("name=\"b\" min=\"1\" value=\"2\"").await;
    let compared = "/strength?a=3&b=1";
    let page = visited.get(compared).await;
    assert!(page.contains("Match these two") && page.contains("type=\"hidden\" name=\"b\" value=\"1\""), "{page}");
    let looking = Visited::new("view").await;
    assert_eq!(status(&looking.start(64).await), 403);
    assert!(!looking.get(compared).await.contains("Match these two"));
}

#[tokio::test]
async fn two_versions_are_compared_by_step_rating_direct_games_accuracy_and_losses() {
    let visited = Visited::new("view").await;
    let page = visited.until("Two versions compared").await;
    assert!(!page.contains("Comparison of two versions"), "{page}");
    let page = visited.get("/strength?a=2&b=1").await;
    let (_, table) = page.split_once("Comparison of two versions").unwrap();
    for row in [
        "training step</th><td>20</td><td>10</td>",
        "points against the other</th><td>12 of 16</td><td>4 of 16</td>",
        "held-out games</th><td>policy 3.000</td><td>policy 2.000</td>",
        "outcome kept, search, late</th><td>50.0 %</td><td>25.0 %</td>",
    ] {
        assert!(table.contains(row), "{row} is not in {table}");
    }
    let above = table.split_once("Elo above the other</th><td>").unwrap().1;
    let elo: f64 = above.split('\u{a0}').next().unwrap().parse().unwrap();
    assert!(elo > 0.0 && above.contains(&format!("<td>-{elo}\u{a0}(")), "{above}");
    let page = visited.get("/strength?a=3&b=9&b=%3Cb%3E").await;
    assert!(page.contains("training step</th><td>30</td><td>–</td>") && page.contains("Elo</th><td>–</td>"), "{page}");
    assert_eq!(status(&visited.get("/strength?a=x&b=%3Cb%3E").await), 200);
}

/// Writes 10,000 readings, 2,000 rated versions that are kept, 1,000 events and the summary of a session.
fn train_long(run: &RunDirectory) {
    let reading = |index: u32| {
        let t = f64::from(index) / 10_000.0;
        let wave = (f64::from(index) / 7.0).sin();
        format!(
            r#"{{"elapsed_seconds":{},"unix_seconds":1e9,"weights_version":{},"steps":{index},"loss_total":{},"loss_policy":{},
            "loss_value":{},"validation_loss_policy":{},"validation_loss_value":{},"elo":{},"elo_low":{},"elo_high":{},
            "accuracy":{{"raw/preserving/overall":{t},"search/preserving/overall":{t},"raw/value_error/overall":{t}}},
            "opponents":{{"playouts-50":350.0}},"distinct":{{"overall":{t}}}}}"#,
            600.0 * t,
            2_000.0 * t,
            3.0 - t + wave,
            1.0 + wave,
            1.5 - wave,
            1.2 + wave,
            1.7 - wave,
            900.0 * t + wave,
            900.0 * t - 80.0 + wave,
            900.0 * t + 80.0 + wave,
        )
        .replace('\n', "")
            + "\n"
    };
    std::fs::write(run.metrics(), (1..=10_000).map(reading).collect::<String>()).unwrap();
    let event = |index: u32| format!(r#"{{"unix_seconds":1e9,"text":"event <{index}>"}}"#) + "\n";
    std::fs::write(run.events(), (1..=1_000).map(event).collect::<String>()).unwrap();
    let summary = "# Run first\n\n| metric | value |\n|---|---|\n| loss | a\\|b |\n";
    std::fs::write(run.path().join("summary.md"), summary).unwrap();
    keep(run, 2_000);
    let result = |version: u32| format!(r#"{{"a":"v{version}","b":"v{}","pairs":[1,0,2,0,1]}}"#, version - 1);
    let results = (2..=2_000).map(result).chain([r#"{"a":"v1","b":"random","pairs":[0,0,2,0,6]}"#.to_owned()]);
    rate(run, &results.collect::<Vec<_>>().join(","));
}

#[test]
fn the_report_of_a_long_run_is_a_small_file_that_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_in(&folder);
    train_long(&run);
    let text = web_console::report(&run).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.len() < 1_000_000, "{} bytes", text.len());
    for part in [
        "<title>Report of first",
        "Finished</span>",
        "2000 versions are kept",
        ">v2000<",
        ">20000<",
        "event &lt;1000&gt;",
        "<th scope=\"row\">loss</th><td>a|b</td>",
        "<code>run.seed</code>",
        "training steps",
        "prefers-color-scheme: dark",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    for id in ["state", "strength", "weights", "configuration", "events", "summary"] {
        let [link, target] = [format!("<a href=\"#{id}\">"), format!("<section id=\"{id}\">")];
        assert!(text.matches(&link).count() == 1 && text.matches(&target).count() == 1, "{id}: {text}");
    }
    assert_eq!((text.matches("event &lt;").count(), text.matches("<code title=").count()), (50, 100));
    assert_eq!(text.matches("aria-label=\"Loss").count(), 1, "a chart is drawn once");
    for part in ["http:", "https:", "<script", "<link", "<form", "src=", "url(", "@import", "href=\"/"] {
        assert!(!text.contains(part), "{part} is in {text}");
    }
}

#[tokio::test]
async fn the_console_sends_the_report_as_a_file_to_visitors_who_may_look() {
    let visited = Visited::new("view").await;
    let response = visited.get("/report.html").await;
    assert!(status(&response) == 200 && response.contains("<title>Report of first"), "{response}");
    assert!(response.contains("content-disposition: attachment; filename=\"first-report.html\"\r\n"), "{response}");
    assert!(visited.get("/").await.contains("href=\"/report.html\" download"));
    assert_eq!(status(&Visited::new("infer").await.get("/report.html").await), 403);
    let folder = tempfile::tempdir().unwrap();
    let untrained = Visited::of(run_in(&folder), folder, "view").await;
    let response = untrained.get("/report.html").await;
    let reason = "run first has no metrics yet; train it with zerofleet train --run first";
    assert!(status(&response) == 500 && response.contains(reason), "{response}");
}
