//! `zerofleet replay`: inspects a live replay server, or the log of a run.
//!
//! Every command sends requests to a server. With `--run`, that is the live server of a run which is trained, or else
//! one that this process starts on the run's log and drains at the end; it holds the lock of the log meanwhile. Only
//! `verify` reads files itself, and changes nothing. Start with [`Args::run`].

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

/// Looks into a replay server, or into the log of a run.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    request: Request,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Request {
    /// What the tables hold and have done, and why somebody waits.
    Stats {
        #[command(flatten)]
        source: Source,
    },
    /// The actors that insert at a live server, and those it has lost.
    Actors {
        #[command(flatten)]
        live: source::Live,
        /// One JSON object for programs.
        #[arg(long)]
        json: bool,
    },
    /// The trajectories held, a line each.
    Ls {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        listing: Listing,
    },
    /// One trajectory: its moves with search policies and values.
    Get {
        #[command(flatten)]
        source: Source,
        /// ACTOR/EPOCH/SEQUENCE, as `ls` prints it.
        id: Id,
    },
    /// Reads a run's log and says what is damaged; changes nothing. Fails if anything is.
    Verify {
        #[command(flatten)]
        run: source::RunArgs,
    },
    /// Writes a table's trajectories to a file: Parquet with a row for each position, or text with a line for each
    /// game.
    Export {
        #[command(flatten)]
        source: Source,
        /// The table.
        #[arg(long, default_value = MAIN_TABLE)]
        table: String,
        /// `id`, `newest` first, or `surprising`: those first whose outcome was least expected.
        #[arg(long, value_enum, default_value = "id")]
        order: Order,
        /// At most so many trajectories; 0 for all.
        #[arg(long, default_value_t = 0)]
        limit: u64,
        /// FILE.parquet or FILE.txt.
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Takes a trajectory, or all of an actor, out of sampling.
    Quarantine {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        suspect: SuspectArgs,
        /// Why, for people.
        #[arg(long, default_value = "an operator asked for it")]
        reason: String,
    },
    /// Puts it back.
    Release {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        suspect: SuspectArgs,
    },
    /// Changes settings of a table while a live server runs; without any it shows those in force. A change outlasts
    /// restarts until the run file says something else of the table.
    Configure {
        #[command(flatten)]
        source: Source,
        /// Which table.
        #[arg(long, default_value = MAIN_TABLE)]
        table: String,
        /// Keys of `[[replay.tables]]`: `samples_per_insert=4 window_items_min=100000`.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<configure::Setting>,
    },
}

/// Which trajectories, in which order.
#[derive(Debug, Clone, clap::Args)]
struct Listing {
    /// Of which table.
    #[arg(long, default_value = MAIN_TABLE)]
    table: String,
    /// `id`, `newest` first, or `surprising`: those first whose outcome was least expected.
    #[arg(long, value_enum, default_value_t)]
    order: Order,
    /// At most so many; 0 for all.
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

/// Whom to take out of sampling.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
struct SuspectArgs {
    /// All of this actor, past and to come.
    #[arg(long, value_name = "ID")]
    actor: Option<u64>,
    /// One trajectory, ACTOR/EPOCH/SEQUENCE.
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
        trajectory.or(self.actor.map(Suspect::Actor)).ok_or_else(|| anyhow!("name --actor or --trajectory"))
    }
}

impl Args {
    /// Asks and prints.
    ///
    /// # Errors
    /// A server that does not answer or refuses, a run that is not there or in use, a damaged log, a file that cannot
    /// be written.
    pub fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
        match self.request {
            Request::Verify { run } => verify::verify(&run, out),
            Request::Stats { source } => {
                runtime.block_on(ask(&source, async |inspector| show::stats(inspector, out).await))
            }
            Request::Actors { live, json } => {
                let how = if json { actors::Form::Json } else { actors::Form::Table };
                runtime.block_on(async { actors::tell(&live.inspector()?, how, out).await })
            }
            Request::Ls { source, listing } => {
                runtime.block_on(ask(&source, async |inspector| show::list(inspector, listing.query(), out).await))
            }
            Request::Get { source, id: Id(id) } => {
                runtime.block_on(ask(&source, async |inspector| show::trajectory(inspector, id, out).await))
            }
            Request::Export { source, table, order, limit, to } => {
                let query = Listing { table, order, limit }.query();
                runtime.block_on(ask(&source, async |inspector| export::export(inspector, query, &to, out).await))
            }
            Request::Quarantine { source, suspect, reason } => {
                let suspect = suspect.suspect()?;
                runtime.block_on(ask(&source, async |inspector| {
                    let items = inspector.quarantine(Quarantine { suspect, reason }).await?;
                    Ok(writeln!(out, "{} is out of sampling: {items} positions fewer", name(suspect))?)
                }))
            }
            Request::Release { source, suspect } => {
                let suspect = suspect.suspect()?;
                runtime.block_on(ask(&source, async |inspector| {
                    let items = inspector.release(suspect).await?;
                    Ok(writeln!(out, "{} is released: {items} positions more", name(suspect))?)
                }))
            }
            Request::Configure { source, table, settings } => {
                runtime.block_on(async { configure::configure(&source.live_only()?, &table, &settings, out).await })
            }
        }
    }
}

/// Puts a question to what `source` names, and closes it again.
async fn ask(source: &Source, question: impl AsyncFnOnce(&Inspector) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let opened = source.open().await?;
    let asked = question(&opened.inspector).await;
    opened.close(asked).await
}

fn name(suspect: Suspect) -> String {
    match suspect {
        Suspect::Trajectory(id) => format!("trajectory {}", Id(id)),
        Suspect::Actor(actor) => format!("actor {actor}"),
    }
}

/// The game of a trajectory, by the name that it carries.
fn game_of(name: &str) -> anyhow::Result<GameKind> {
    name.parse().with_context(|| format!("trajectories of {name}"))
}

/// Every trajectory that a query lists and that is still held when it is asked for.
async fn each(
    inspector: &Inspector,
    ids: &[TrajectoryId],
    mut see: impl FnMut(proto::replay::Located) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let mut seen = 0;
    for &id in ids {
        // What left the table meanwhile is no error.
        if let Some(located) = inspector.get(id).await? {
            ensure!(located.trajectory.id() == id, "the server answered another trajectory");
            see(located)?;
            seen += 1;
        }
    }
    Ok(seen)
}
