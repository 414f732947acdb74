#[cfg(feature = "parquet")]
mod positions_file;
mod records;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use experience::Trajectory;
use game::Game;
use proto::replay::{Inspector, Located};

use super::{Selection, game_of};

/// The format of an export, as an option.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Format {
    /// A file with one row per position.
    Parquet,
    /// A file with one line per game.
    Text,
    /// A directory with one record per game of Go, Hex, Othello or Gomoku.
    Sgf,
}

impl Format {
    /// Returns the format of files with the extension of `file`.
    fn of_extension(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()? {
            "parquet" => Some(Self::Parquet),
            "txt" => Some(Self::Text),
            _ => None,
        }
    }
}

/// Exports the trajectories of a selection to a new file, or to a directory without records for [`Format::Sgf`]. The
/// extension determines the format if `format` is `None`.
///
/// # Errors
/// The extension is unknown, the file already exists or cannot be written, the game has no such format, or the server
/// rejects the request.
pub(super) async fn export(
    inspector: &Inspector,
    selection: Selection,
    format: Option<Format>,
    to: &Path,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let create = || File::create_new(to).with_context(|| format!("create {}", to.display()));
    let written = match format.or_else(|| Format::of_extension(to)) {
        #[cfg(not(feature = "parquet"))]
        Some(Format::Parquet) => bail!(
            "{}: this program was built without Parquet; rebuild with: cargo build --release --package cli",
            to.display()
        ),
        #[cfg(feature = "parquet")]
        Some(Format::Parquet) => {
            let mut positions = positions_file::PositionsFile::new(create()?)?;
            let written = each(inspector, selection, |located| positions.write(located.trajectory)).await?;
            positions.finish()?;
            written
        }
        Some(Format::Text) => {
            let mut file = BufWriter::new(create()?);
            let written = each(inspector, selection, |located| text(&located.trajectory, &mut file)).await?;
            file.flush()?;
            written
        }
        Some(Format::Sgf) => {
            let mut records = records::Records::new(to);
            each(inspector, selection, |located| records.write(&located.trajectory)).await?
        }
        None => bail!("{}: expected a .parquet or .txt file, or the option --format", to.display()),
    };
    match (format, written) {
        // The first record creates the directory.
        (Some(Format::Sgf), 0) => writeln!(out, "no trajectory is selected; nothing was written to {}", to.display())?,
        _ => writeln!(out, "{written} trajectories in {}", to.display())?,
    }
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
