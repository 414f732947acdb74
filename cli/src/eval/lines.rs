//! `zerofleet eval` for games that are small enough to play every line of play.

use std::io::{self, Write};

use anyhow::Context as _;
use figures::table::Table;
use game::{Action, Game};
use serde::Serialize;
use strength::exhaustive;

use super::Player;

/// Results of playing a small game as either player against every possible reply.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LinesReport {
    /// Name of the game.
    pub game: String,
    /// Name of the evaluator, such as `libtorch cpu bf16`.
    pub evaluator: String,
    /// Evaluated weights version.
    pub weights_version: u64,
    /// Number of simulations per position.
    pub simulations: u32,
    /// Results with moves chosen by search; `None` for 0 simulations.
    pub with_search: Option<Lines>,
    /// Results with moves chosen by the raw policy.
    pub without_search: Lines,
}

/// Numbers of final positions over all lines of play. A position that several lines reach counts once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Lines {
    /// Number of positions in which the player chose a move.
    pub decisions: usize,
    /// Number of final positions that the player won.
    pub won: usize,
    /// Number of final positions that are draws.
    pub drawn: usize,
    /// Number of final positions that the player lost.
    pub lost: usize,
    /// Moves in one lost line of play, in the notation of the game; `None` if no line is lost.
    pub lost_line: Option<String>,
}

/// Plays every line of a small game, both with and without search.
///
/// # Errors
/// The network fails.
pub(super) fn measure<G: Game>(game: &G, mut player: Player) -> anyhow::Result<LinesReport> {
    let simulations = player.simulations;
    let mut lines = |simulations| -> anyhow::Result<Lines> {
        let report = exhaustive::check(game, &mut player.contestant(simulations)).context("play every line")?;
        let exhaustive::Report { decisions, won, drawn, lost, lost_line } = report;
        Ok(Lines { decisions, won, drawn, lost, lost_line: lost_line.map(|line| names(game, &line)) })
    };
    let without_search = lines(0)?;
    let with_search = if simulations > 0 { Some(lines(simulations)?) } else { None };
    let attributes = player.network.attributes();
    Ok(LinesReport {
        game: game.spec().name.clone(),
        evaluator: attributes.name.to_string(),
        weights_version: attributes.weights_version,
        simulations,
        with_search,
        without_search,
    })
}

/// Formats the moves in a line of play from the start, in the notation of the game.
fn names<G: Game>(game: &G, line: &[Action]) -> String {
    let mut position = game.start();
    let names: Vec<String> = line
        .iter()
        .map(|&action| {
            let name = game.action_name(&position, action);
            game.play(&mut position, action);
            name
        })
        .collect();
    names.join(" ")
}

pub(super) fn write(report: &LinesReport, output: &mut impl Write) -> io::Result<()> {
    let LinesReport { game, evaluator, weights_version, simulations, with_search, without_search } = report;
    writeln!(output, "{game}, weights version {weights_version} ({evaluator}), every line of play from both sides")?;
    writeln!(output)?;
    let mut table = Table::default().words([""]).numbers(["decisions", "won", "drawn", "lost"]).words(["a lost line"]);
    let searched = with_search.iter().map(|lines| (format!("{simulations} simulations"), lines));
    for (name, lines) in [("raw policy".to_owned(), without_search)].into_iter().chain(searched) {
        let Lines { decisions, won, drawn, lost, lost_line } = lines;
        let counts = [decisions, won, drawn, lost].map(usize::to_string);
        table.row([name].into_iter().chain(counts).chain([lost_line.clone().unwrap_or_default()]));
    }
    write!(output, "{table}")
}

#[cfg(test)]
mod tests {
    use evaluator_doubles::Uniform;
    use evaluators::Network;
    use games::TicTacToe;
    use selfplay::SearchSettings;

    use super::*;

    fn lines(simulations: u32) -> LinesReport {
        let game = TicTacToe::new();
        let network = Network::Evaluator(Box::new(Uniform::new(game.spec().observation)));
        measure(&game, Player { network, simulations, search: SearchSettings::default(), discount: 1.0 }).unwrap()
    }

    /// A search that is deep enough to prove every result never loses. The raw policy loses: with equal priors, it
    /// always chooses the first legal action.
    #[test]
    fn lost_lines_are_counted_with_search_and_without() {
        let report = lines(20_000);
        let searched = report.with_search.clone().unwrap();
        assert_eq!((searched.lost, &searched.lost_line), (0, &None));
        assert!(searched.won > 0 && searched.drawn > 0 && report.without_search.lost > 0, "{report:?}");
        let mut text = Vec::new();
        write(&report, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lost_line = report.without_search.lost_line.unwrap();
        assert!(text.contains("20000 simulations") && text.contains(&format!("  {lost_line}\n")), "{text}");
    }

    #[test]
    fn without_simulations_only_the_raw_policy_is_measured() {
        assert_eq!(lines(0).with_search, None);
    }
}
