//! What a run came to: what was learnt, how fast, and where time went; for people and for machines.

use std::fmt::Write as _;

use serde::Serialize;

use crate::readings::Readings;
use crate::screen::{clock, elo, number, percent, precise};

/// What a run came to.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The run.
    pub run: String,
    /// The game.
    pub game: String,
    /// Every draw descends from it.
    pub seed: u64,
    /// How long the run was meant to take.
    pub minutes: f64,
    /// How often processes were started again in this session, by process.
    pub restarts: Vec<(String, u32)>,
    /// The last word of every number.
    pub last: Readings,
}

impl Summary {
    /// As Markdown, which is also what the screen shows.
    pub fn markdown(&self) -> String {
        let r = &self.last;
        let seconds = r.elapsed_seconds.max(1.0);
        let mean = |total: Option<f64>| number(total.map(|total| total / seconds));
        let mut text = String::new();
        let mut row = |name: &str, value: String| writeln!(text, "| {name} | {value} |").expect("strings grow");
        row("game, seed", format!("{}, {}", self.game, self.seed));
        row("trained", format!("{} of {}", clock(r.elapsed_seconds), clock(self.minutes * 60.0)));
        for (name, search) in [("raw policy", "raw"), ("with search", "search")] {
            // Not every game has solved positions.
            let Some(kept) = r.accuracy_of(search, "preserving") else { continue };
            let kept = percent(Some(kept));
            let best = percent(r.accuracy_of(search, "optimal"));
            row(&format!("solved positions, {name}"), format!("outcome kept {kept}, best move {best}"));
        }
        row("Elo (random play is 0)", elo(r));
        for (name, rating) in &r.opponents {
            row(&format!("Elo of {name}"), format!("{rating:.0}"));
        }
        row("games", format!("{}, {} per second", number(r.games), mean(r.games)));
        row("positions", format!("{}, {} per second", number(r.positions), mean(r.positions)));
        row("evaluations", format!("{}, {} per second", number(r.evaluations), mean(r.evaluations)));
        row("simulations", format!("{}, {} per second", number(r.simulations), mean(r.simulations)));
        row("training steps", format!("{}, {} per second", number(r.steps), mean(r.steps)));
        let losses = [r.loss_total, r.loss_policy, r.loss_value].map(precise);
        row("loss", format!("{} = policy {} + value {}", losses[0], losses[1], losses[2]));
        row("replay", format!("{} items, window {}", number(r.replay_items), number(r.window_items)));
        for (role, share) in shares(r) {
            row(&format!("time of {role}"), share);
        }
        for (name, restarts) in self.restarts.iter().filter(|(_, restarts)| *restarts > 0) {
            row(&format!("restarts of {name}"), restarts.to_string());
        }
        format!("# Run {}\n\n| what | value |\n|---|---|\n{text}", self.run)
    }

    /// The same rows without Markdown's frame.
    pub fn plain(&self) -> String {
        let markdown = self.markdown();
        let rows = markdown.lines().skip(4).filter_map(|row| row.trim_matches('|').split_once('|'));
        let rows: Vec<(&str, &str)> = rows.map(|(name, value)| (name.trim(), value.trim())).collect();
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        rows.into_iter().map(|(name, value)| format!("  {name:<width$}  {value}\n")).collect()
    }
}

/// Where the time of each role went: `search 20 %, evaluate 75 %, wait 5 %`.
fn shares(r: &Readings) -> Vec<(&'static str, String)> {
    let mut shares = Vec::new();
    for role in ["actor", "learner"] {
        let phases =
            r.seconds.iter().filter_map(|(key, seconds)| Some((key.strip_prefix(role)?.strip_prefix('/')?, *seconds)));
        let phases: Vec<_> = phases.collect();
        let all: f64 = phases.iter().map(|(_, seconds)| seconds).sum();
        if all > 0.0 {
            let parts = phases.iter().map(|(phase, seconds)| format!("{phase} {:.0} %", 100.0 * seconds / all));
            shares.push((role, parts.collect::<Vec<_>>().join(", ")));
        }
    }
    shares
}

#[cfg(test)]
mod tests;
