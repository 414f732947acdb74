//! `zerofleet top`: shows the state of a fleet in the terminal.
//!
//! It only reads the admin ports of all processes. `sources` finds the processes, `poll` reads their metrics, `roster`
//! keeps their history; `snapshot` computes the state at one time, and `table` and JSON show it. Text from processes is
//! untrusted: `sanitize` cleans it on arrival, and no text ends this program.

mod cost;
mod poll;
mod rates;
mod roster;
mod sanitize;
mod snapshot;
mod sources;
mod table;

use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use service::Drain;

use cost::Price;
use roster::Roster;
use snapshot::Snapshot;
use sources::{AdminAddress, Sources};

/// Time between the two polls of `--once`, which rates need.
const ONCE_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between checks of Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
/// Longest polling interval; with a longer one, most events would be missed.
const INTERVAL_SECONDS_MAX: f64 = 3600.0;

/// Shows the fleet: processes, rates, versions, bottleneck and cost.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Admin port of a process; may be repeated. Every address of a host name is a process, and names are resolved
    /// again every few seconds [default: replay, learner, inference, actor and arena, port 9100].
    #[arg(long = "admin", value_name = "HOST:PORT", conflicts_with = "run")]
    admins: Vec<AdminAddress>,

    /// Name of a run that `zerofleet train` is training on this machine.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,

    /// Folder of all runs.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,

    /// Price per hour, in any currency: of the whole fleet (`1.20`), or of each process of a role (`learner=0.90`); the
    /// latter may be repeated.
    #[arg(long = "price-per-hour", value_name = "[ROLE=]PRICE")]
    prices: Vec<Price>,

    /// Polling interval in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    interval: f64,

    /// Print once and exit.
    #[arg(long)]
    once: bool,

    /// Print one JSON object per poll instead of a table.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Polls and prints until Ctrl-C.
    ///
    /// # Errors
    /// Invalid options, a run that does not exist, an output that cannot be written.
    pub fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        // The runtime serves only signals; polling is a plain loop.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let drain = Drain::new();
        runtime.block_on(async { drain.on_signals() }).context("listen to signals")?;
        self.watch(&drain, out)
    }

    fn watch(&self, drain: &Drain, out: &mut impl Write) -> anyhow::Result<()> {
        let is_usable = self.interval > 0.0 && self.interval <= INTERVAL_SECONDS_MAX;
        ensure!(is_usable, "--interval must be above 0 and at most {INTERVAL_SECONDS_MAX} seconds");
        cost::check(&self.prices)?;
        let mut sources = Sources::new(&self.admins, self.run.as_deref(), &self.runs)?;
        let mut roster = Roster::default();
        let mut poll = || {
            let now = Instant::now();
            roster.poll(&sources.processes(now), now);
            Snapshot::of(&roster, &self.prices, Instant::now(), unix_seconds())
        };
        if self.once {
            poll();
            pause(ONCE_INTERVAL, drain);
            return self.write(&poll(), out);
        }
        let screen = (!self.json && std::io::stdout().is_terminal()).then(Screen::new);
        while !drain.started() {
            let snapshot = poll();
            match &screen {
                Some(screen) => screen.show(&table::table(&snapshot)),
                None => self.write(&snapshot, out)?,
            }
            pause(Duration::from_secs_f64(self.interval), drain);
        }
        if let Some(screen) = screen {
            screen.close();
        }
        Ok(())
    }

    fn write(&self, snapshot: &Snapshot, out: &mut impl Write) -> anyhow::Result<()> {
        if self.json {
            writeln!(out, "{}", serde_json::to_string(snapshot)?)?;
        } else {
            writeln!(out, "{}", table::table(snapshot))?;
        }
        out.flush().context("write the snapshot")
    }
}

/// Waits for `time`, or until the drain starts.
fn pause(time: Duration, drain: &Drain) {
    let start = Instant::now();
    while !drain.started() && start.elapsed() < time {
        std::thread::sleep(POLL.min(time));
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A text that is redrawn in place.
struct Screen {
    text: ProgressBar,
}

impl Screen {
    fn new() -> Self {
        let text = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
        Self { text: text.with_style(ProgressStyle::with_template("{msg}").expect("the template is a constant")) }
    }

    fn show(&self, text: &str) {
        self.text.set_message(text.to_owned());
        self.text.tick();
    }

    /// Leaves the last text on the screen.
    fn close(&self) {
        self.text.abandon();
    }
}

#[cfg(test)]
mod tests;
