use std::path::Path;

use super::report::{Report, Rule, Searched};
use crate::plot::{self, COLOURS, Line, Panel};

/// Draws simulations/s by simulations per move, one panel for each game, to `path` (SVG).
///
/// # Errors
/// A file that cannot be written.
pub fn draw(path: &Path, report: &Report) -> anyhow::Result<()> {
    let mut games: Vec<&str> = report.searched.iter().map(|searched| searched.game.as_str()).collect();
    games.dedup();
    let panels: Vec<Panel> = games.into_iter().map(|game| panel(game, report)).collect();
    plot::draw(path, &format!("Simulations/s of the tree alone on {}", report.cpu), &panels)
}

fn panel(game: &str, report: &Report) -> Panel {
    let mut lines: Vec<Line> = Vec::new();
    for searched in report.searched.iter().filter(|searched| searched.game == game) {
        let name = name(searched);
        let at = lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
            lines.push(line(name, searched));
            lines.len() - 1
        });
        lines[at].speeds.push((searched.simulations as usize, searched.simulations_per_second));
    }
    lines.iter_mut().for_each(|line| line.speeds.sort_by_key(|(simulations, _)| *simulations));
    Panel { title: game.to_owned(), sizes: "simulations per move", lines }
}

fn name(Searched { rule, threads, .. }: &Searched) -> String {
    format!("{rule}, {threads} {}", if *threads == 1 { "thread" } else { "threads" })
}

/// One colour for each rule; several threads are drawn heavier.
fn line(name: String, searched: &Searched) -> Line {
    let [blue, orange, ..] = COLOURS;
    let colour = match searched.rule {
        Rule::Puct => blue,
        Rule::Gumbel => orange,
    };
    Line { name, colour, width: if searched.threads == 1 { 1 } else { 3 }, speeds: Vec::new() }
}
