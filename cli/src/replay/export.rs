mod columns;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use experience::Trajectory;
use game::Game;
use games::with_game;
use proto::replay::{Inspector, ListQuery};

use super::id::Id;
use super::show::outcome;
use super::{each, game_of};
use columns::PositionsFile;

/// Writes the trajectories of a query to a file, in its format by its ending.
///
/// # Errors
/// Another ending, a file that exists or cannot be written, a server that refuses.
pub(super) async fn export(
    inspector: &Inspector,
    query: ListQuery,
    to: &Path,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let ending = to.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ensure!(matches!(ending, "parquet" | "txt"), "{}: a file that ends in .parquet or .txt is expected", to.display());
    let ids = inspector.list(query).await?;
    let create = || File::create_new(to).with_context(|| format!("make the file {}", to.display()));
    let written = match ending {
        "parquet" => {
            let mut positions = PositionsFile::new(create()?)?;
            let written = each(inspector, &ids, |located| positions.write(&located.trajectory)).await?;
            positions.finish()?;
            written
        }
        "txt" => {
            let mut file = BufWriter::new(create()?);
            let written = each(inspector, &ids, |located| text(&located.trajectory, &mut file)).await?;
            file.flush()?;
            written
        }
        _ => bail!("an ending that was checked"),
    };
    writeln!(out, "{written} trajectories in {}", to.display())?;
    Ok(())
}

/// One game on a line: its id, its outcome, its moves as players write them.
fn text(trajectory: &Trajectory, file: &mut impl Write) -> anyhow::Result<()> {
    write!(file, "{} {}:", Id(trajectory.id), outcome(trajectory.outcome))?;
    with_game!(game_of(&trajectory.game)?, |game| moves(&game, trajectory, file))?;
    Ok(writeln!(file)?)
}

fn moves<G: Game>(game: &G, trajectory: &Trajectory, file: &mut impl Write) -> anyhow::Result<()> {
    let mut position = game.start();
    for step in &trajectory.steps {
        write!(file, " {}", game.action_name(&position, step.action))?;
        if game.try_play(&mut position, step.action).is_err() {
            write!(file, " (not legal)")?;
            break;
        }
    }
    Ok(())
}
