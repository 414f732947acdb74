//! `zerofleet top`: the fleet in the terminal.
//!
//! It reads the admin ports of all processes and sends nothing else. `sources` finds the processes, `ask` reads one,
//! `roster` remembers them over time; `snapshot` computes the state at one time, and `table` and JSON show it. Text
//! from processes is untrusted: `sanitize` cleans it on arrival, and no text ends this program.

mod ask;
mod cost;
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

/// Rates need two looks: with `--once`, this long lies between them.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);
/// How soon Ctrl-C is noticed.
const POLL: Duration = Duration::from_millis(50);
/// Who looks less often sees nothing of what happens between.
const INTERVAL_SECONDS_MAX: f64 = 3600.0;

/// Shows the fleet: processes, rates, versions, who waits for whom, and what it has cost.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The admin port of a process; may be given many times. Each address that a host name stands for is a process, and
    /// names are looked up again every few seconds [default: replay, learner, inference, actor and arena, port 9100].
    #[arg(long = "admin", value_name = "HOST:PORT", conflicts_with = "run")]
    admins: Vec<AdminAddress>,

    /// A run that `zerofleet train` is training on this machine.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,

    /// The folder of runs.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,

    /// What an hour costs, in any money: of the whole fleet (`1.20`), or of each process of a role (`learner=0.90`);
    /// the latter may be given many times.
    #[arg(long = "price-per-hour", value_name = "[ROLE=]PRICE")]
    prices: Vec<Price>,

    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    interval: f64,

    /// Prints once, and ends.
    #[arg(long)]
    once: bool,

    /// One JSON object for each look instead of a table.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Looks and shows, until Ctrl-C.
    ///
    /// # Errors
    /// Options that make no sense, a run that is not there, an output that is gone.
    pub fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        // Only signals live here; looking is a plain loop.
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
        let mut look = || {
            let now = Instant::now();
            roster.look(&sources.processes(now), now);
            Snapshot::of(&roster, &self.prices, Instant::now(), unix_seconds())
        };
        if self.once {
            look();
            pause(BETWEEN_LOOKS, drain);
            return self.write(&look(), out);
        }
        let screen = (!self.json && std::io::stdout().is_terminal()).then(Screen::new);
        while !drain.started() {
            let snapshot = look();
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
        out.flush().context("write what was seen")
    }
}

/// Waits, or until the drain starts.
fn pause(time: Duration, drain: &Drain) {
    let start = Instant::now();
    while !drain.started() && start.elapsed() < time {
        std::thread::sleep(POLL.min(time));
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A text that is drawn over itself.
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

    /// Leaves the last text standing.
    fn close(&self) {
        self.text.abandon();
    }
}

#[cfg(test)]
mod tests;
