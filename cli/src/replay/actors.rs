use std::io::Write;
use std::time::Duration;

use proto::replay::{Actor, Actors, Inspector};
use serde_json::{Value, json};

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A text table.
    Table,
    /// One JSON object.
    Json,
}

/// Prints the actors of a live server.
pub(super) async fn print(inspector: &Inspector, form: Form, out: &mut impl Write) -> anyhow::Result<()> {
    let actors = inspector.actors().await?;
    match form {
        Form::Table => table(&actors, out)?,
        Form::Json => writeln!(out, "{}", object(&actors))?,
    }
    Ok(())
}

fn table(Actors { actors, lost_total, heartbeat }: &Actors, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{:<20} {:<8} {:>9} {:>9} {:>8} {:>12} {:>10}  {:<21} epoch",
        "actor", "state", "here for", "silent", "weights", "trajectories", "unanswered", "address"
    )?;
    for actor in actors {
        let Actor { weights_version, trajectories, unanswered, credit, address, epoch, .. } = actor;
        let weights = weights_version.map_or("–".to_owned(), |version| version.to_string());
        writeln!(
            out,
            "{:<20} {:<8} {:>9} {:>9} {weights:>8} {trajectories:>12} {:>10}  {address:<21} {epoch}",
            actor.actor,
            actor.state.name(),
            time(actor.since),
            time(actor.silent),
            format!("{unanswered}/{credit}"),
        )?;
    }
    writeln!(out, "{lost_total} lost since the server started; heartbeat every {}", time(*heartbeat))
}

fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..600 => format!("{seconds} s"),
        600..36_000 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn object(Actors { actors, lost_total, heartbeat }: &Actors) -> Value {
    let actor = |actor: &Actor| {
        json!({
            "actor": actor.actor,
            "epoch": actor.epoch,
            "state": actor.state.name(),
            "address": actor.address,
            "since_seconds": actor.since.as_secs_f64(),
            "silent_seconds": actor.silent.as_secs_f64(),
            "weights_version": actor.weights_version,
            "trajectories": actor.trajectories,
            "unanswered": actor.unanswered,
            "credit": actor.credit,
        })
    };
    json!({
        "actors": actors.iter().map(actor).collect::<Vec<_>>(),
        "lost_total": lost_total,
        "heartbeat_seconds": heartbeat.as_secs_f64(),
    })
}
