#[cfg(feature = "parquet")]
mod positions_file;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroU64;
use std::path::Path;

use anyhow::{Context, bail};
use experience::Trajectory;
use game::Game;
use proto::replay::{Inspector, ListOrder, ListQuery, Located};

use super::show::{id_text, outcome};
use super::{each, game_of};

/// Number of trajectory ids that are requested and kept in memory at a time.
const PAGE_IDS: u64 = if cfg!(test) { 8 } else { 4096 };

/// Exports the trajectories that match a query to a new file. The extension determines the format: `.parquet` or
/// `.txt`.
///
/// # Errors
/// The extension is unknown, the file already exists or cannot be written, or the server rejects the request.
pub(super) async fn export(
    inspector: &Inspector,
    query: ListQuery,
    to: &Path,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let ending = to.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let create = || File::create_new(to).with_context(|| format!("create {}", to.display()));
    let written = match ending {
        #[cfg(not(feature = "parquet"))]
        "parquet" => bail!(
            "{}: this program was built without Parquet; rebuild with: cargo build --release --package cli",
            to.display()
        ),
        #[cfg(feature = "parquet")]
        "parquet" => {
            let mut positions = positions_file::PositionsFile::new(create()?)?;
            let written = pages(inspector, query, |located| positions.write(located.trajectory)).await?;
            positions.finish()?;
            written
        }
        "txt" => {
            let mut file = BufWriter::new(create()?);
            let written = pages(inspector, query, |located| text(&located.trajectory, &mut file)).await?;
            file.flush()?;
            written
        }
        _ => bail!("{}: expected a .parquet or .txt file", to.display()),
    };
    writeln!(out, "{written} trajectories in {}", to.display())?;
    Ok(())
}

/// Calls `visit` for every trajectory that matches a query, and returns the number. In id order, ids are requested in
/// pages, which limits memory. Other orders need a list of all ids.
async fn pages(
    inspector: &Inspector,
    mut query: ListQuery,
    mut visit: impl FnMut(Located) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    if query.order != ListOrder::ASCENDING {
        let ids = inspector.list(query).await?;
        return each(inspector, &ids, visit).await;
    }
    let mut left = query.limit.map_or(u64::MAX, NonZeroU64::get);
    let mut seen = 0;
    while let Some(page) = NonZeroU64::new(left.min(PAGE_IDS)) {
        query.limit = Some(page);
        let ids = inspector.list(query.clone()).await?;
        seen += each(inspector, &ids, &mut visit).await?;
        let Some(&last) = ids.last().filter(|_| ids.len() as u64 == page.get()) else { break };
        query.after = Some(last);
        left -= page.get();
    }
    Ok(seen)
}

/// Writes a trajectory as one line: id, outcome and moves in the notation of the game.
fn text(trajectory: &Trajectory, file: &mut impl Write) -> anyhow::Result<()> {
    write!(file, "{} {}:", id_text(trajectory.id()), outcome(trajectory.outcome()))?;
    moves(&game_of(trajectory.game())?.rules(), trajectory, file)?;
    Ok(writeln!(file)?)
}

fn moves<G: Game>(game: &G, trajectory: &Trajectory, file: &mut impl Write) -> anyhow::Result<()> {
    let mut position = game.start();
    for step in trajectory.steps() {
        write!(file, " {}", game.action_name(&position, step.action))?;
        if game.try_play(&mut position, step.action).is_err() {
            write!(file, " (not legal)")?;
            break;
        }
    }
    Ok(())
}
