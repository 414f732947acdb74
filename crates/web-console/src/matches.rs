//! Matches between two kept versions, which visitors start and stop. A match is a process of `zerofleet match` beside
//! the run, on one core, one at a time. Start with [`Matches::start`].

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use fleet::RunDirectory;
use maud::{Markup, html};
use parking_lot::Mutex;
use run_metrics::words::{clock, date, unix_seconds};
use service::Drain;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, copy, sink};
use tokio::process::{Child, Command};
use tokio_util::task::AbortOnDropHandle;
use weights::WeightsVersion;

use crate::page::hidden;

/// Path of the page that shows matches.
pub(crate) const PAGE: &str = "/strength";
/// Path of the forms.
pub(crate) const PATH: &str = "/strength/match";

/// Lowers the priority of a match: training comes first.
const NICENESS: &str = "10";
/// Maximum number of games, and of simulations per move.
const GAMES_MAX: u32 = 1_000;
const SIMULATIONS_MAX: u32 = 1_000;
/// Maximum number of bytes to read from each output; a report and the scores have a few thousand.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// The match that a visitor has started last.
#[derive(Debug)]
pub(crate) struct Matches {
    pub(crate) run: RunDirectory,
    /// The program `zerofleet`.
    program: PathBuf,
    /// Stops a match with the console.
    drain: Drain,
    started: Mutex<Option<Started>>,
}

/// A match, and the task that owns the process.
type Started = (Arc<Mutex<Match>>, AbortOnDropHandle<()>);

/// A match as shown.
#[derive(Debug)]
struct Match {
    title: String,
    begin: Instant,
    /// The latest score, the report or the error.
    text: String,
    /// The end in words; `None` while the match is played.
    end: Option<String>,
}

impl Matches {
    pub(crate) fn new(run: RunDirectory, program: PathBuf, drain: Drain) -> Self {
        Self { run, program, drain, started: Mutex::default() }
    }

    /// Starts a match from two versions, the games and the simulations per move, in a runtime of tokio.
    ///
    /// # Errors
    /// A number is missing, a match is played, or the process cannot be started. The error is a sentence.
    pub(crate) fn start(&self, numbers: [Option<u32>; 4], visitor: &str) -> Result<(), String> {
        let [Some(a), Some(b), Some(games), Some(simulations)] = numbers else {
            return Err("The form lacks a number.".to_owned());
        };
        let [games, simulations] = [games.min(GAMES_MAX), simulations.min(SIMULATIONS_MAX)];
        if self.run.admins().is_some() {
            return Err("In a cluster, play the match with zerofleet match where the weights are.".to_owned());
        }
        let mut started = self.started.lock();
        if started.as_ref().is_some_and(is_played) {
            return Err("Another match is being played; stop it first.".to_owned());
        }
        let mut command = Command::new("nice");
        command.args(["-n", NICENESS]).arg(&self.program).args(["match", "--progress", "--exit-with-parent"]);
        command.arg("--runs").arg(self.run.path().parent().unwrap_or(self.run.path()));
        command.args(["--games", &games.to_string(), "--simulations", &simulations.to_string(), "--"]);
        command.args([a, b].map(|version| format!("{}@{version}", self.run.name())));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().map_err(|error| format!("The match cannot be started: {error}."))?;
        let date = date(unix_seconds(SystemTime::now()));
        let title = format!("v{a} against v{b}, {games} games, {simulations} simulations; {visitor}, {date}");
        tracing::info!(visitor, %title, "a visitor started a match");
        let text = "The first score appears after 32 games.".to_owned();
        let shown = Arc::new(Mutex::new(Match { title, begin: Instant::now(), text, end: None }));
        let (drain, followed) = (self.drain.clone(), Arc::clone(&shown));
        let task = tokio::spawn(async move {
            drain.unless_started(follow(child, &followed)).await;
        });
        *started = Some((shown, AbortOnDropHandle::new(task)));
        Ok(())
    }

    /// Stops the match that is played, if any.
    pub(crate) fn stop(&self, visitor: &str) {
        if let Some((shown, task)) = self.started.lock().as_ref().filter(|started| is_played(started)) {
            // The task drops the process, which is killed.
            task.abort();
            shown.lock().finish(&format!("Stopped by {visitor}"));
            tracing::info!(visitor, "a visitor stopped the match");
        }
    }

    /// Returns true while a match is played.
    pub(crate) fn is_played(&self) -> bool {
        self.started.lock().as_ref().is_some_and(is_played)
    }

    /// Renders the match as an element that changes.
    pub(crate) fn render(&self) -> Markup {
        html! {
            section id="match" role="status" { @if let Some((shown, _)) = &*self.started.lock() {
                @let Match { title, text, end, .. } = &*shown.lock();
                h3 { (title) }
                p { strong { (end.as_deref().unwrap_or("Playing")) } }
                pre.output { (text) }
            } }
        }
    }

    /// Renders the button that stops the match, or the form that starts one between the versions `chosen`.
    pub(crate) fn controls(&self, word: &str, chosen: [Option<WeightsVersion>; 2]) -> Markup {
        html! {
            p.note { "Two compared versions can be matched next to the run, on one core and with low priority." }
            form.search method="post" action=(PATH) {
                (hidden([("word", word)]))
                @if self.is_played() { button name="change" value="stop" { "Stop the match" } }
                @else if let [Some(a), Some(b)] = chosen {
                    (hidden([("a", a.0), ("b", b.0)]))
                    label { "Games" input type="number" name="games" min="2" max=(GAMES_MAX) step="2" value="200"; }
                    label {
                        "Simulations per move"
                        input type="number" name="simulations" min="0" max=(SIMULATIONS_MAX) value="64";
                    }
                    button name="change" value="start" { "Match these two" }
                }
            }
        }
    }
}

/// Renders the command that plays a match of the versions `chosen` where their files are.
pub(crate) fn command(run: &str, chosen: [Option<WeightsVersion>; 2]) -> Markup {
    let [a, b] = chosen.map(|version| version.map_or("N".to_owned(), |version| version.0.to_string()));
    html! {
        p { "A cluster needs the volume of learner or arena as DIRECTORY/" (run) ", with the run file as config.toml:" }
        p { code { "zerofleet match " (run) "@" (a) " " (run) "@" (b) " --runs DIRECTORY --games 200" } }
    }
}

impl Match {
    /// Notes how the match has ended, unless it has ended already.
    fn finish(&mut self, how: &str) {
        let time = clock(self.begin.elapsed().as_secs_f64());
        self.end.get_or_insert_with(|| format!("{how} after {time}"));
    }
}

fn is_played((shown, _): &Started) -> bool {
    shown.lock().end.is_none()
}

/// Shows the output of a process until the process has ended.
async fn follow(mut child: Child, shown: &Mutex<Match>) {
    // The process would stop at the end of the input.
    let _input = child.stdin.take();
    let (Some(output), Some(log)) = (child.stdout.take(), child.stderr.take()) else { return };
    let mut lines = BufReader::new(log.take(OUTPUT_BYTES_MAX)).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        shown.lock().text = line;
    }
    // A full pipe would stop the process.
    let mut rest = lines.into_inner().into_inner().into_inner();
    let _drained = AbortOnDropHandle::new(tokio::spawn(async move { copy(&mut rest, &mut sink()).await }));
    let mut report = String::new();
    let read = output.take(OUTPUT_BYTES_MAX).read_to_string(&mut report).await;
    let status = read.and(child.wait().await);
    let mut shown = shown.lock();
    match status {
        Ok(status) if status.success() => {
            shown.text = report;
            shown.finish("Finished");
        }
        Ok(status) => shown.finish(&format!("Failed ({status})")),
        Err(error) => shown.finish(&format!("Lost ({error})")),
    }
}
