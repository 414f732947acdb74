use std::io::{self, Write};
use std::time::Duration;

use anyhow::anyhow;
use experience::{Step, StepKind, Trajectory, TrajectoryId, WeightsVersion};
use figures::table::{MISSING, Table};
use game::{Action, Game, Player};
use proto::replay::{Actor, Actors, Inspector, Located, TableEdge, TableStats};
use serde_json::{Value, json};

use super::{Selection, game_of};

/// Maximum number of moves printed per search policy.
const LISTED_MOVES: usize = 4;

/// Prints the contents and counters of every table of a replay server.
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
        let id = edge.as_ref().and_then(|edge| Some((edge.id?, edge.weights_version)));
        id.map_or("none".to_owned(), |(id, weights)| {
            format!("{} (weights {})", TrajectoryId::from(id).slashed(), WeightsVersion(weights))
        })
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
    let waiting = if stats.waiting_reason.is_empty() { "none" } else { &stats.waiting_reason };
    writeln!(out, "  waiting     {waiting}")?;
    Ok(())
}

/// Prints one line for each trajectory of a selection.
pub(super) async fn list(inspector: &Inspector, selection: Selection, out: &mut impl Write) -> anyhow::Result<()> {
    let table = Table::default().words(["trajectory"]).numbers(["plies", "weights"]);
    let mut table = table.words(["outcome"]).numbers(["surprise"]).words(["state"]);
    selection
        .each_page(inspector, async |page| {
            for found in page {
                let state = if found.quarantined { "quarantine" } else { "sampled" };
                table.row([
                    found.id.slashed(),
                    found.plies.to_string(),
                    found.weights_version.0.to_string(),
                    found.outcome.name().to_owned(),
                    found.surprise.map_or(MISSING.to_owned(), |surprise| format!("{surprise:.3}")),
                    state.to_owned(),
                ]);
            }
            Ok(())
        })
        .await?;
    Ok(write!(out, "{table}")?)
}

/// Prints outcome, tables, insertion time and moves of a trajectory.
pub(super) async fn trajectory(inspector: &Inspector, id: TrajectoryId, out: &mut impl Write) -> anyhow::Result<()> {
    let located = inspector.get(id).await?.ok_or_else(|| anyhow!("trajectory {} not found", id.slashed()))?;
    let Located { trajectory, tables, inserted_unix_ms, quarantined, revision, revised_unix_ms } = located;
    writeln!(out, "trajectory {} of {}: {}", id.slashed(), trajectory.game(), trajectory.outcome().name())?;
    let place = if quarantined { " in quarantine" } else { "" };
    writeln!(out, "in {}{place}; inserted at {} s since 1970", tables.join(", "), inserted_unix_ms / 1000)?;
    if revision > 0 {
        writeln!(out, "searched again at {} s since 1970: revision {revision}", revised_unix_ms / 1000)?;
    }
    writeln!(out)?;
    steps(&game_of(trajectory.game())?.rules(), &trajectory, out)
}

/// Prints the moves of a trajectory and the final position.
fn steps<G: Game>(game: &G, trajectory: &Trajectory, out: &mut impl Write) -> anyhow::Result<()> {
    let mut position = game.start();
    let table = Table::default().numbers(["ply"]).words(["player", "move"]);
    let mut table = table.numbers(["value", "weights"]).words(["search policy"]);
    for (ply, step) in trajectory.steps().enumerate() {
        let player = match game.to_move(&position) {
            Player::First => "first",
            Player::Second => "second",
        };
        let name = |action: Action| game.action_name(&position, action);
        let (value, policy) = searched(&step, LISTED_MOVES, name);
        let played = name(step.action);
        let weights = step.weights_version.0.to_string();
        table.row([ply.to_string(), player.to_owned(), played.clone(), value, weights, policy]);
        if game.try_play(&mut position, step.action).is_err() {
            return Ok(writeln!(out, "{table}\nply {ply}: illegal move {played}")?);
        }
    }
    Ok(writeln!(out, "{table}\n{}", game.render(&position))?)
}

/// Formats the value and up to `listed` most probable moves from the search of a step.
pub(super) fn searched(step: &Step, listed: usize, name: impl Fn(Action) -> String) -> (String, String) {
    match &step.kind {
        StepKind::Opening => (MISSING.to_owned(), "random opening".to_owned()),
        StepKind::Fast { value } => (format!("{value:+.3}"), "fast search".to_owned()),
        StepKind::Full { policy, value } => {
            let mut policy = policy.clone();
            policy.sort_by(|a, b| b.probability.total_cmp(&a.probability));
            let moves = policy.iter().take(listed);
            let moves = moves.map(|entry| format!("{} {:.0} %", name(entry.action), 100.0 * entry.probability));
            (format!("{value:+.3}"), moves.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Prints the actors of a replay server as a table.
pub(super) fn actors(Actors { actors, lost_total, heartbeat_ms }: &Actors, out: &mut impl Write) -> io::Result<()> {
    let numbers = ["here for", "silent", "weights", "trajectories", "unanswered"];
    let mut table = Table::default().words(["actor", "state"]).numbers(numbers).words(["address"]).numbers(["epoch"]);
    for actor in actors {
        table.row([
            actor.actor.to_string(),
            actor.state().name().to_owned(),
            time(actor.since_ms),
            time(actor.silent_ms),
            actor.weights_version.map_or(MISSING.to_owned(), |version| version.to_string()),
            actor.trajectories.to_string(),
            format!("{}/{}", actor.unanswered, actor.credit),
            actor.address.clone(),
            actor.epoch.to_string(),
        ]);
    }
    let heartbeat = time((*heartbeat_ms).into());
    writeln!(out, "{table}{lost_total} lost since the server started; heartbeat every {heartbeat}")
}

fn time(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..10 => format!("{:.1} s", seconds_of(ms)),
        10..600 => format!("{seconds} s"),
        600..36_000 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn seconds_of(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

/// Returns the actors of a replay server as a JSON object.
pub(super) fn actors_json(Actors { actors, lost_total, heartbeat_ms }: &Actors) -> Value {
    let actor = |actor: &Actor| {
        json!({
            "actor": actor.actor,
            "epoch": actor.epoch,
            "state": actor.state().name(),
            "address": actor.address,
            "since_seconds": seconds_of(actor.since_ms),
            "silent_seconds": seconds_of(actor.silent_ms),
            "weights_version": actor.weights_version,
            "trajectories": actor.trajectories,
            "unanswered": actor.unanswered,
            "credit": actor.credit,
        })
    };
    json!({
        "actors": actors.iter().map(actor).collect::<Vec<_>>(),
        "lost_total": lost_total,
        "heartbeat_seconds": seconds_of((*heartbeat_ms).into()),
    })
}
