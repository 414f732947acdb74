//! `zerofleet replay`: inspects a live replay server, or the log of a run.
//!
//! Every command sends requests to a server. With `--run`, this is the live server of a run in training, or else one
//! that this process starts on the run's log, whose lock it holds, and drains at the end. Only `verify` reads files
//! itself; it changes nothing. Start with [`Args::run`].

mod actors;
mod configure;
mod export;
mod id;
mod show;
mod source;
mod verify;

use std::io::Write;
use std::num::NonZeroU64;
use std::path::PathBuf;

use anyhow::{Context, anyhow, ensure};
use experience::TrajectoryId;
use games::GameKind;
use proto::replay::{Inspector, ListOrder, ListQuery, MAIN_TABLE, Quarantine, Suspect};

use id::Id;
use source::Source;

#[cfg(test)]
mod tests;

/// Inspects a live replay server, or the log of a run.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    request: Request,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Request {
    /// Shows contents and counters of every table, and the reason for waiting inserts or samples.
    Stats {
        #[command(flatten)]
        source: Source,
    },
    /// Lists the actors of a live server, including lost ones.
    Actors {
        #[command(flatten)]
        live: source::Live,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Lists the stored trajectories, one per line.
    Ls {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        listing: Listing,
    },
    /// Shows one trajectory: its moves with search policies and values.
    Get {
        #[command(flatten)]
        source: Source,
        /// Trajectory id ACTOR/EPOCH/SEQUENCE, as printed by `ls`.
        id: Id,
    },
    /// Checks a run's log and reports damage, without changing it. Fails if anything is damaged.
    Verify {
        #[command(flatten)]
        run: source::RunArgs,
    },
    /// Exports a table's trajectories to a file: Parquet with a row per position, or text with a line per game.
    Export {
        #[command(flatten)]
        source: Source,
        /// Name of the table.
        #[arg(long, default_value = MAIN_TABLE)]
        table: String,
        /// Sort by `id`, `newest` first, or `surprising` first (the least expected outcomes).
        #[arg(long, value_enum, default_value = "id")]
        order: Order,
        /// Maximum number of trajectories; 0 for all.
        #[arg(long, default_value_t = 0)]
        limit: u64,
        /// Output file, FILE.parquet or FILE.txt.
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Quarantines a trajectory, or all of an actor: excludes it from sampling.
    Quarantine {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        suspect: SuspectArgs,
        /// Reason, for the record.
        #[arg(long, default_value = "requested by an operator")]
        reason: String,
    },
    /// Releases a trajectory, or all of an actor, from quarantine.
    Release {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        suspect: SuspectArgs,
    },
    /// Changes settings of a table of a live server; without KEY=VALUE, shows the current ones. A change survives
    /// restarts until the run file changes the table.
    Configure {
        #[command(flatten)]
        source: Source,
        /// Name of the table.
        #[arg(long, default_value = MAIN_TABLE)]
        table: String,
        /// Settings by keys of `[[replay.tables]]`: `samples_per_insert=4 window_items_min=100000`.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<configure::Setting>,
    },
}

/// The selection and order of trajectories.
#[derive(Debug, Clone, clap::Args)]
struct Listing {
    /// Name of the table.
    #[arg(long, default_value = MAIN_TABLE)]
    table: String,
    /// Sort by `id`, `newest` first, or `surprising` first (the least expected outcomes).
    #[arg(long, value_enum, default_value_t)]
    order: Order,
    /// Maximum number of trajectories; 0 for all.
    #[arg(long, default_value_t = 20)]
    limit: u64,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Order {
    Id,
    #[default]
    Newest,
    Surprising,
}

/// The target of a quarantine.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
struct SuspectArgs {
    /// All trajectories of this actor, past and future.
    #[arg(long, value_name = "ID")]
    actor: Option<u64>,
    /// One trajectory, by its id ACTOR/EPOCH/SEQUENCE.
    #[arg(long, value_name = "ID")]
    trajectory: Option<Id>,
}

impl Listing {
    fn query(&self) -> ListQuery {
        let order = match self.order {
            Order::Id => ListOrder::Ascending,
            Order::Newest => ListOrder::Newest,
            Order::Surprising => ListOrder::Surprising,
        };
        ListQuery { table: self.table.clone(), order, after: None, limit: NonZeroU64::new(self.limit) }
    }
}

impl SuspectArgs {
    fn suspect(&self) -> anyhow::Result<Suspect> {
        let trajectory = self.trajectory.map(|Id(id)| Suspect::Trajectory(id));
        trajectory.or(self.actor.map(Suspect::Actor)).ok_or_else(|| anyhow!("use --actor or --trajectory"))
    }
}

impl Args {
    /// Runs the command and prints its result.
    ///
    /// # Errors
    /// A server that does not answer or rejects the request, a run that does not exist or is in use, a damaged log, a
    /// file that cannot be written.
    pub fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
        match self.request {
            Request::Verify { run } => verify::verify(&run, out),
            Request::Stats { source } => {
                runtime.block_on(with_server(&source, async |inspector| show::stats(inspector, out).await))
            }
            Request::Actors { live, json } => {
                let how = if json { actors::Form::Json } else { actors::Form::Table };
                runtime.block_on(async { actors::print(&live.inspector()?, how, out).await })
            }
            Request::Ls { source, listing } => runtime
                .block_on(with_server(&source, async |inspector| show::list(inspector, listing.query(), out).await)),
            Request::Get { source, id: Id(id) } => {
                runtime.block_on(with_server(&source, async |inspector| show::trajectory(inspector, id, out).await))
            }
            Request::Export { source, table, order, limit, to } => {
                let query = Listing { table, order, limit }.query();
                runtime
                    .block_on(with_server(&source, async |inspector| export::export(inspector, query, &to, out).await))
            }
            Request::Quarantine { source, suspect, reason } => {
                let suspect = suspect.suspect()?;
                runtime.block_on(with_server(&source, async |inspector| {
                    let items = inspector.quarantine(Quarantine { suspect, reason }).await?;
                    Ok(writeln!(out, "{} is quarantined: {items} fewer positions", name(suspect))?)
                }))
            }
            Request::Release { source, suspect } => {
                let suspect = suspect.suspect()?;
                runtime.block_on(with_server(&source, async |inspector| {
                    let items = inspector.release(suspect).await?;
                    Ok(writeln!(out, "{} is released: {items} more positions", name(suspect))?)
                }))
            }
            Request::Configure { source, table, settings } => {
                runtime.block_on(async { configure::configure(&source.live_only()?, &table, &settings, out).await })
            }
        }
    }
}

/// Opens the server that `source` names, sends the request and closes the server.
async fn with_server(
    source: &Source,
    request: impl AsyncFnOnce(&Inspector) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let opened = source.open().await?;
    let result = request(&opened.inspector).await;
    opened.close(result).await
}

fn name(suspect: Suspect) -> String {
    match suspect {
        Suspect::Trajectory(id) => format!("trajectory {}", Id(id)),
        Suspect::Actor(actor) => format!("actor {actor}"),
    }
}

/// Returns the game of a trajectory by its name.
fn game_of(name: &str) -> anyhow::Result<GameKind> {
    name.parse().with_context(|| format!("trajectories of {name}"))
}

/// Passes each of the trajectories that is still stored to `visit`, and returns their number.
async fn each(
    inspector: &Inspector,
    ids: &[TrajectoryId],
    mut visit: impl FnMut(proto::replay::Located) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let mut visited = 0;
    for &id in ids {
        // A trajectory that has left the table since the listing is not an error.
        if let Some(located) = inspector.get(id).await? {
            ensure!(located.trajectory.id() == id, "the server returned another trajectory");
            visit(located)?;
            visited += 1;
        }
    }
    Ok(visited)
}
