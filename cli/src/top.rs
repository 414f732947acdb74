//! `zerofleet top`: shows the state of a fleet in the terminal.
//!
//! The command only sends read requests to the admin ports of all processes. `sources` finds the processes, a
//! [`Roster`] reads metrics and keeps the history, `snapshot` computes the state at one time for JSON, and `table`
//! formats the state as a table. Text from processes is untrusted: it is cleaned, and no text can crash this program.

mod cost;
mod snapshot;
mod sources;
mod table;

use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fleet::admin_hosts::admin_address;
use fleet::exposition::{agent, ask};
use indicatif::ProgressBar;
use run_metrics::roster::Roster;
use service::Drain;

use crate::screen::redrawn_text;
use crate::stall::Watch;
use crate::unix_seconds;
use cost::Price;
use snapshot::Snapshot;
use sources::Sources;

/// Time between the two polls of `--once`; rates need two polls.
const ONCE_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of a request to an admin port; a process that takes longer is overloaded or has exited.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
/// Maximum polling interval in seconds; a longer interval would miss most events.
const INTERVAL_SECONDS_MAX: f64 = 3600.0;

/// Shows the fleet: processes, rates, versions, bottleneck and cost.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Admin address of a process; may be repeated [default: all services].
    ///
    /// Every IP address of a host name counts as a process; names are resolved again every few seconds. All services
    /// are port 9100 of the hosts replay, learner, inference, actor and arena.
    #[arg(long = "admin", value_name = "HOST:PORT", value_parser = admin_address, conflicts_with = "run")]
    admins: Vec<String>,

    /// Name of a run that is training on this machine.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,

    /// Directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,

    /// Price per hour, in any currency: `1.20`, or by role `learner=0.90`.
    ///
    /// A price without a role is for the whole fleet. A price with a role is for each process of the role; repeat the
    /// option for more roles.
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
    /// An option is invalid, the run does not exist, or the output cannot be written.
    pub(crate) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let (_runtime, drain) = crate::drain_on_signals()?;
        self.watch(&drain, out)
    }

    fn watch(&self, drain: &Drain, out: &mut impl Write) -> anyhow::Result<()> {
        let is_usable = self.interval > 0.0 && self.interval <= INTERVAL_SECONDS_MAX;
        ensure!(is_usable, "--interval must be above 0 and at most {INTERVAL_SECONDS_MAX} seconds");
        cost::check(&self.prices)?;
        let mut sources = Sources::new(&self.admins, self.run.as_deref(), &self.runs)?;
        let (mut roster, mut watch, agent) = (Roster::default(), Watch::default(), agent(TIMEOUT));
        let mut poll = || {
            let now = Instant::now();
            roster.poll(&sources.processes(now), now, unix_seconds(), |address| ask(&agent, address));
            let mut snapshot = Snapshot::of(&roster, &self.prices, Instant::now(), unix_seconds());
            watch.read(&snapshot.metrics, now);
            // A fleet that has refused all work so far is reported at once, before the stall timeout.
            snapshot.metrics.health.fault = watch.at_end(&snapshot.metrics);
            snapshot
        };
        if self.once {
            poll();
            pause(ONCE_INTERVAL, drain);
            return self.write(&poll(), out);
        }
        let screen = (!self.json && std::io::stdout().is_terminal()).then(redrawn_text);
        while !drain.started() {
            let snapshot = poll();
            match &screen {
                Some(screen) => {
                    let size = service::terminal::size(&std::io::stdout());
                    screen.set_message(
                        size.map_or_else(|| table::table(&snapshot), |size| table::fitted(&snapshot, size)),
                    );
                    screen.tick();
                }
                None => self.write(&snapshot, out)?,
            }
            pause(Duration::from_secs_f64(self.interval), drain);
        }
        // The last table stays on the screen.
        screen.iter().for_each(ProgressBar::abandon);
        Ok(())
    }

    fn write(&self, snapshot: &Snapshot, out: &mut impl Write) -> anyhow::Result<()> {
        if self.json {
            writeln!(out, "{}", snapshot.json())?;
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

#[cfg(test)]
mod tests;
