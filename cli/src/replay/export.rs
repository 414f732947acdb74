#[cfg(feature = "parquet")]
mod positions_file;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use experience::Trajectory;
use game::Game;
use proto::replay::{Inspector, Located};

use super::{Selection, game_of};

/// Exports the trajectories of a selection to a new file. The extension determines the format: `.parquet` or
/// `.txt`.
///
/// # Errors
/// The extension is unknown, the file already exists or cannot be written, or the server rejects the request.
pub(super) async fn export(
    inspector: &Inspector,
    selection: Selection,
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
            let written = each(inspector, selection, |located| positions.write(located.trajectory)).await?;
            positions.finish()?;
            written
        }
        "txt" => {
            let mut file = BufWriter::new(create()?);
            let written = each(inspector, selection, |located| text(&located.trajectory, &mut file)).await?;
            file.flush()?;
            written
        }
        _ => bail!("{}: expected a .parquet or .txt file", to.display()),
    };
    writeln!(out, "{written} trajectories in {}", to.display())?;
    Ok(())
}

/// Calls `visit` for every trajectory of a selection that is still stored, and returns the number.
async fn each(
    inspector: &Inspector,
    selection: Selection,
    mut visit: impl FnMut(Located) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let mut visited = 0;
    selection
        .each_page(inspector, async |page| {
            for found in page {
                // A trajectory that has left the table since the search is not an error.
                if let Some(located) = inspector.get(found.id).await? {
                    ensure!(located.trajectory.id() == found.id, "the server returned another trajectory");
                    visit(located)?;
                    visited += 1;
                }
            }
            Ok(())
        })
        .await?;
    Ok(visited)
}

/// Writes a trajectory as one line: id, outcome and moves in the notation of the game.
fn text(trajectory: &Trajectory, file: &mut impl Write) -> anyhow::Result<()> {
    write!(file, "{} {}:", trajectory.id().slashed(), trajectory.outcome().name())?;
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
