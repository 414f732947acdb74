use std::io::Write;

use anyhow::anyhow;
use experience::{Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Game, Outcome, Player};
use games::with_game;
use proto::replay::{Inspector, ListQuery, Located, TableEdge, TableStats};

use super::id::Id;
use super::{each, game_of};

/// Number of printed moves of a search policy.
const LISTED_MOVES: usize = 4;

/// Prints contents and counters of every table.
pub(super) async fn stats(inspector: &Inspector, out: &mut impl Write) -> anyhow::Result<()> {
    let server = inspector.stats_of(proto::replay::MAIN_TABLE).await?;
    for name in &server.tables {
        table(name, &inspector.stats_of(name).await?.table, out)?;
    }
    Ok(())
}

fn table(name: &str, stats: &TableStats, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "table {name}")?;
    writeln!(
        out,
        "  holds       {} positions of {} trajectories, {} in the window, {} trajectories in quarantine",
        stats.items, stats.trajectories, stats.window_items, stats.quarantined_total
    )?;
    let edge = |edge: &Option<TableEdge>| {
        edge.map_or("none".to_owned(), |edge| format!("{} (weights {})", Id(edge.id), edge.weights_version))
    };
    writeln!(out, "  from        {} to {}", edge(&stats.oldest), edge(&stats.newest))?;
    writeln!(
        out,
        "  total       {} positions of {} trajectories in, {} samples out; {} duplicates, {} rejected since the start",
        stats.items_inserted_total,
        stats.trajectories_inserted_total,
        stats.samples_total,
        stats.duplicates_total,
        stats.refused_total
    )?;
    writeln!(
        out,
        "  ratio       {:.2} samples per insert, target {:.2}",
        stats.samples_per_insert, stats.samples_per_insert_target
    )?;
    writeln!(out, "  on disk     {:.1} MB", stats.bytes as f64 / 1e6)?;
    writeln!(out, "  waiting     {}", stats.waiting_reason.as_deref().unwrap_or("none"))?;
    Ok(())
}

/// Prints a line for each trajectory.
pub(super) async fn list(inspector: &Inspector, query: ListQuery, out: &mut impl Write) -> anyhow::Result<()> {
    let ids = inspector.list(query).await?;
    writeln!(out, "{:<20} {:>5} {:>8} {:<11} {:>10}  in", "trajectory", "plies", "weights", "outcome", "surprise")?;
    each(inspector, &ids, |located| {
        let Located { trajectory, tables, quarantined, .. } = located;
        let newest = trajectory.last_weights_version().0;
        let surprise = trajectory.surprise().map_or("–".to_owned(), |surprise| format!("{surprise:.3}"));
        let place = if quarantined { "quarantine".to_owned() } else { tables.join(", ") };
        writeln!(
            out,
            "{:<20} {:>5} {newest:>8} {:<11} {surprise:>10}  {place}",
            Id(trajectory.id()).to_string(),
            trajectory.plies(),
            outcome(trajectory.outcome()),
        )?;
        Ok(())
    })
    .await
    .map(drop)
}

/// Prints everything that is known about one trajectory.
pub(super) async fn trajectory(inspector: &Inspector, id: TrajectoryId, out: &mut impl Write) -> anyhow::Result<()> {
    let located = inspector.get(id).await?.ok_or_else(|| anyhow!("no table holds trajectory {}", Id(id)))?;
    let Located { trajectory, tables, inserted_unix_ms, quarantined } = located;
    writeln!(out, "trajectory {} of {}: {}", Id(id), trajectory.game(), outcome(trajectory.outcome()))?;
    let place = if quarantined { " in quarantine" } else { "" };
    writeln!(out, "in {}{place}; inserted at {} s since 1970", tables.join(", "), inserted_unix_ms / 1000)?;
    writeln!(out, "\n{:>4} {:<6} {:<8} {:>7} {:>8}  search policy", "ply", "player", "move", "value", "weights")?;
    with_game!(game_of(trajectory.game())?, |game| steps(&game, &trajectory, out))
}

/// Prints the moves of a trajectory and its last position.
fn steps<G: Game>(game: &G, trajectory: &Trajectory, out: &mut impl Write) -> anyhow::Result<()> {
    let mut position = game.start();
    for (ply, step) in trajectory.steps().enumerate() {
        let player = match game.to_move(&position) {
            Player::First => "first",
            Player::Second => "second",
        };
        let name = |action: Action| game.action_name(&position, action);
        let (value, policy) = searched(&step, name);
        let played = name(step.action);
        writeln!(out, "{ply:>4} {player:<6} {played:<8} {value:>7} {:>8}  {policy}", step.weights_version.0)?;
        if game.try_play(&mut position, step.action).is_err() {
            writeln!(out, "\nply {ply} breaks the rules: {played} is not legal there")?;
            return Ok(());
        }
    }
    writeln!(out, "\n{}", game.render(&position))?;
    Ok(())
}

/// Formats the value and the most likely moves of a step's search.
fn searched(step: &Step, name: impl Fn(Action) -> String) -> (String, String) {
    match &step.kind {
        StepKind::Opening => ("–".to_owned(), "random opening".to_owned()),
        StepKind::Fast { value } => (format!("{value:+.3}"), "fast search".to_owned()),
        StepKind::Full { policy, value } => {
            let mut policy = policy.clone();
            policy.sort_by(|a, b| b.probability.total_cmp(&a.probability));
            let moves = policy.iter().take(LISTED_MOVES);
            let moves = moves.map(|entry| format!("{} {:.0} %", name(entry.action), 100.0 * entry.probability));
            (format!("{value:+.3}"), moves.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Formats an outcome.
pub(super) fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Win(Player::First) => "first wins",
        Outcome::Win(Player::Second) => "second wins",
        Outcome::Draw => "draw",
        Outcome::Finished => "finished",
    }
}
