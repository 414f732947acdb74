//! `zerofleet replay`: inspects a live replay server, or the log of a run.
//!
//! Every command sends requests to a replay server. With `--run`, this is the live server if the run is training;
//! otherwise this process locks the log of the run, starts a server on the log, and drains the server afterwards. Only
//! `verify` and `drill` read files directly; they change nothing. `batches` draws samples as a learner does. Start with
//! [`Request::run`].

mod batches;
mod drill;
mod export;
mod show;
mod source;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::{Context, anyhow, ensure};
use experience::{Filter, TrajectoryId};
use figures::table::{MISSING, Table};
use game::{Outcome, Player};
use games::GameKind;
use proto::limits::SEARCH_PAGE_MAX;
use proto::replay::{
    Found, Inspector, ListOrder, MAIN_TABLE, Quarantine, SearchPage, SearchQuery, Suspect, TableChange,
};
use replay_server::verify::{Verified, verify as verify_log};
use run_file::replay::Settings;
use source::{OwnServer, RunArgs, Source};

use crate::client_security::LiveServer;

/// Maximum number of trajectories that are requested at a time.
const PAGE: usize = if cfg!(test) { 8 } else { SEARCH_PAGE_MAX };

/// Inspects a live replay server, or the log of a run.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Request {
    /// Shows the contents and counters of every table.
    ///
    /// Also shows why inserts or samples wait.
    Stats {
        #[command(flatten)]
        source: Source,
    },
    /// Lists the actors of a live server, including lost actors.
    Actors {
        #[command(flatten)]
        server: LiveServer,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Lists the stored trajectories, one per line.
    ///
    /// For example, `ls --actor 3 --length 40.. --order surprising` lists long games of actor 3, the least expected
    /// outcomes first.
    Ls {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        listing: Listing,
    },
    /// Shows one trajectory: moves with search policies and values.
    Get {
        #[command(flatten)]
        source: Source,
        /// Trajectory id ACTOR/EPOCH/SEQUENCE, as printed by `ls`.
        id: TrajectoryId,
    },
    /// Checks the replay log of a run, without changing it.
    ///
    /// Reports all damage, and fails if the log is damaged.
    Verify {
        #[command(flatten)]
        run: RunArgs,
    },
    /// Tests the archive of a replay log: restores, checks and serves it.
    ///
    /// Restores into another directory, checks the log there, and reports the contents and any gaps. Changes neither
    /// the archive nor the run. Fails if anything is damaged.
    Drill(drill::Args),
    /// Writes training batches of a live run to standard output.
    ///
    /// Each batch is one line of JSON with name, type and shape per array, then the numbers of all arrays,
    /// little-endian. The samples count for the rate limiter as the samples of a learner do. Unlike the batches of the
    /// process `learner`, they include the trajectories that `learner.validation_share` holds out. The command ends
    /// with the run, or when the reader closes the output.
    Batches(batches::Args),
    /// Exports the trajectories of a table to Parquet, text or SGF.
    ///
    /// The options of `ls` select the trajectories. For example, `export --format sgf --order surprising --limit 9 DIR`
    /// writes the games with the least expected outcomes for SGF editors.
    Export {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        listing: Listing,
        /// Format of the output [default: parquet for FILE.parquet, text for FILE.txt].
        #[arg(long, value_enum)]
        format: Option<export::Format>,
        /// New output file, FILE.parquet or FILE.txt; for SGF, a directory without records.
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Quarantines a trajectory, or all trajectories of an actor.
    ///
    /// Trajectories in quarantine are not sampled until they are released.
    Quarantine {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        suspect: SuspectArgs,
        /// Reason for the quarantine, which the server records.
        #[arg(long, default_value = "requested by an operator")]
        reason: String,
    },
    /// Releases a trajectory, or all of one actor, from quarantine.
    Release {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        suspect: SuspectArgs,
    },
    /// Shows or changes table settings of a live server.
    ///
    /// Without KEY=VALUE, shows the current settings. A change survives restarts until the run file changes the table.
    Configure {
        #[command(flatten)]
        source: Source,
        /// Name of the table.
        #[arg(long, default_value = MAIN_TABLE)]
        table: String,
        /// Settings to change. The keys are those of `[[replay.tables]]`.
        ///
        /// For example: `samples_per_insert=4 window_items_min=100000`.
        #[arg(value_name = "KEY=VALUE", value_parser = key_and_value)]
        settings: Vec<(String, String)>,
    },
}

/// Options that select and sort the listed trajectories.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Listing {
    /// Name of the table.
    #[arg(long, default_value = MAIN_TABLE)]
    table: String,
    /// Sort order [default: newest; for export: id].
    ///
    /// `id` sorts by id, `newest` by age with the latest first, and `surprising` puts the least expected outcomes
    /// first.
    #[arg(long, value_enum)]
    order: Option<Order>,
    /// Maximum number of trajectories; 0 for all [default: 20; for export: 0].
    #[arg(long)]
    limit: Option<u64>,
    /// Only trajectories with this outcome.
    #[arg(long, value_enum)]
    outcome: Option<Ending>,
    /// Only trajectories of this actor.
    #[arg(long, value_name = "ID")]
    actor: Option<u64>,
    /// Only trajectories with a last step searched by these weights versions: 40, 40..60, 40.. or ..60.
    #[arg(long, value_name = "RANGE", value_parser = range)]
    version: Option<RangeInclusive<u64>>,
    /// Only trajectories of this number of plies: 9, 7..9, 7.. or ..9.
    #[arg(long, value_name = "RANGE", value_parser = range)]
    length: Option<RangeInclusive<u64>>,
    /// Only trajectories in quarantine (true), or only trajectories outside (false).
    #[arg(long)]
    quarantined: Option<bool>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Order {
    Id,
    Newest,
    Surprising,
}

/// The outcome of an episode, as an option.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Ending {
    /// The player who moves first wins.
    First,
    /// The player who moves second wins.
    Second,
    /// Neither player wins.
    Draw,
    /// An episode that is scored by rewards ends.
    Finished,
    /// An episode that is scored by rewards is cut short.
    Truncated,
}

/// The target of a quarantine.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SuspectArgs {
    /// All trajectories of this actor, past and future.
    #[arg(long, value_name = "ID")]
    actor: Option<u64>,
    /// One trajectory, by id ACTOR/EPOCH/SEQUENCE.
    #[arg(long, value_name = "ID")]
    trajectory: Option<TrajectoryId>,
}

impl Listing {
    /// Returns the selection; `order` and `limit` replace options that are not given.
    fn selection(self, order: Order, limit: u64) -> Selection {
        let Self { table, order: given_order, limit: given_limit, outcome, actor, version, length, quarantined } = self;
        let order = match given_order.unwrap_or(order) {
            Order::Id => ListOrder::ASCENDING,
            Order::Newest => ListOrder::Newest,
            Order::Surprising => ListOrder::Surprising,
        };
        let outcome = outcome.map(|ending| match ending {
            Ending::First => Outcome::Win(Player::First),
            Ending::Second => Outcome::Win(Player::Second),
            Ending::Draw => Outcome::Draw,
            Ending::Finished => Outcome::Finished,
            Ending::Truncated => Outcome::Truncated,
        });
        let any = Filter::default();
        let plies = |plies: u64| u32::try_from(plies).unwrap_or(u32::MAX);
        let filter = Filter {
            outcome,
            actor,
            weights_versions: version.unwrap_or(any.weights_versions),
            plies: length.map_or(any.plies, |length| plies(*length.start())..=plies(*length.end())),
        };
        let query = SearchQuery { table, order, filter, quarantined, cursor: None, limit: PAGE };
        Selection { query, limit: Some(given_limit.unwrap_or(limit)).filter(|&limit| limit > 0) }
    }
}

/// The trajectories that a command lists or exports.
struct Selection {
    query: SearchQuery,
    /// Maximum number of trajectories.
    limit: Option<u64>,
}

impl Selection {
    /// Calls `visit` with each page of the search, up to the limit.
    async fn each_page(
        self,
        inspector: &Inspector,
        mut visit: impl AsyncFnMut(Vec<Found>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { mut query, limit } = self;
        let mut left = limit.unwrap_or(u64::MAX);
        while left > 0 {
            query.limit = usize::try_from(left).map_or(PAGE, |left| left.min(PAGE));
            let SearchPage { found, next } = inspector.search(query.clone()).await?;
            left -= found.len() as u64;
            visit(found).await?;
            query.cursor = next;
            if query.cursor.is_none() {
                break;
            }
        }
        Ok(())
    }
}

impl SuspectArgs {
    fn suspect(&self) -> anyhow::Result<Suspect> {
        let trajectory = self.trajectory.map(Suspect::Trajectory);
        trajectory.or(self.actor.map(Suspect::Actor)).ok_or_else(|| anyhow!("use --actor or --trajectory"))
    }
}

impl Request {
    /// Runs the command and prints the result.
    ///
    /// # Errors
    /// The server does not respond or rejects the request, the run does not exist or is in use, the log is damaged, or
    /// a file cannot be written.
    pub(crate) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
        runtime.block_on(self.send(out))
    }

    async fn send(self, out: &mut impl Write) -> anyhow::Result<()> {
        match self {
            Self::Verify { run } => verify(&run, out),
            Self::Drill(drill) => drill.run(out).await,
            Self::Batches(batches) => batches.run(out).await,
            Self::Actors { server, json } => {
                let actors = Inspector::new(server.reach()?)?.actors().await?;
                if json {
                    writeln!(out, "{}", show::actors_json(&actors))?;
                } else {
                    show::actors(&actors, out)?;
                }
                Ok(())
            }
            Self::Configure { source, table, settings } => configure(&source.live_only()?, &table, settings, out).await,
            Self::Stats { source } => with_server(&source, async |server| show::stats(server, out).await).await,
            Self::Ls { source, listing } => {
                let selection = listing.selection(Order::Newest, 20);
                with_server(&source, async |server| show::list(server, selection, out).await).await
            }
            Self::Get { source, id } => {
                with_server(&source, async |server| show::trajectory(server, id, out).await).await
            }
            Self::Export { source, listing, format, to } => {
                let selection = listing.selection(Order::Id, 0);
                with_server(&source, async |server| export::export(server, selection, format, &to, out).await).await
            }
            Self::Quarantine { source, suspect, reason } => {
                let suspect = suspect.suspect()?;
                with_server(&source, async |server| {
                    let items = server.quarantine(Quarantine { suspect, reason }).await?;
                    Ok(writeln!(out, "{} is quarantined: {items} fewer positions", name(suspect))?)
                })
                .await
            }
            Self::Release { source, suspect } => {
                let suspect = suspect.suspect()?;
                with_server(&source, async |server| {
                    let items = server.release(suspect).await?;
                    Ok(writeln!(out, "{} is released: {items} more positions", name(suspect))?)
                })
                .await
            }
        }
    }
}

/// Connects to the server of `source`, sends the request, and drains the server if this process started the server. If
/// both the request and the server fail, returns the error of the request.
async fn with_server(
    source: &Source,
    request: impl AsyncFnOnce(&Inspector) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (inspector, own) = source.open().await?;
    let result = request(&inspector).await;
    let Some(own) = own else { return result };
    let finished = finish(own).await;
    result.and(finished)
}

/// Drains a server that this process started.
async fn finish((running, drain): OwnServer) -> anyhow::Result<()> {
    drain.start();
    running.finished().await
}

fn name(suspect: Suspect) -> String {
    match suspect {
        Suspect::Trajectory(id) => format!("trajectory {}", id.slashed()),
        Suspect::Actor(actor) => format!("actor {actor}"),
    }
}

/// Parses the game name of a trajectory.
fn game_of(name: &str) -> anyhow::Result<GameKind> {
    games::stored(name).with_context(|| format!("show trajectories of {name}"))
}

/// Checks the replay log of a run, and prints contents and damage.
///
/// # Errors
/// The log is in use, cannot be read or is damaged.
fn verify(run: &RunArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let (settings, _) = run.settings()?;
    // Without the lock, a record that a live server is writing would look like damage.
    let _lock = service::directory::lock(&settings.directory).context("lock the log")?;
    report_verified(&settings, out)
}

/// Reads a replay log to the end, and prints contents and damage.
///
/// # Errors
/// The log cannot be read or is damaged.
fn report_verified(settings: &Settings, out: &mut impl Write) -> anyhow::Result<()> {
    let Verified { trajectories, items, revisions, others, segments, bytes, damage } = verify_log(settings)?;
    writeln!(
        out,
        "{trajectories} trajectories of {items} positions, {revisions} revisions and {others} other records in {segments} \
         files of {:.1} MB",
        bytes as f64 / 1e6
    )?;
    for found in &damage {
        let done = if found.cut { "cut off" } else { "skipped" };
        writeln!(
            out,
            "{}: {} bytes at offset {} are {}; {done} at the next restart",
            found.name, found.length, found.offset, found.what
        )?;
    }
    ensure!(damage.is_empty(), "the log in {} is damaged in {} places", settings.directory.display(), damage.len());
    writeln!(out, "all checksums are valid")?;
    Ok(())
}

/// Changes table settings of a live server, and prints all settings before and after the change.
async fn configure(
    inspector: &Inspector,
    table: &str,
    settings: Vec<(String, String)>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let nothing = TableChange { table: table.to_owned(), ..TableChange::default() };
    let before = inspector.configure(nothing).await?;
    let now =
        inspector.configure(TableChange { table: table.to_owned(), settings: settings.into_iter().collect() }).await?;
    let mut rows = Table::default().words([format!("table {table}")]).numbers(["before", "now"]).words([""]);
    for (key, now) in &now {
        let before = before.get(key).map_or(MISSING, String::as_str);
        rows.row([key.as_str(), before, now.as_str(), if before == now { "" } else { "changed" }]);
    }
    Ok(write!(out, "{rows}")?)
}

/// Parses KEY=VALUE, with a key of `[[replay.tables]]`. The server checks key and value.
fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Parses N, FROM..TO with both included, FROM.. or ..TO.
fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let bound = |part: &str, open: u64| if part.is_empty() { Ok(open) } else { part.parse::<u64>() };
    match (bound(from, 0), bound(to, u64::MAX)) {
        (Ok(from), Ok(to)) if from <= to && !text.is_empty() => Ok(from..=to),
        _ => Err(format!("`{text}` is not a range: expected a number, FROM..TO, FROM.. or ..TO")),
    }
}
