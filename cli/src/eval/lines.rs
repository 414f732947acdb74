//! `zerofleet eval` for games that are small enough to play every line of play.

use std::io::{self, Write};

use anyhow::Context as _;
use figures::table::Table;
use game::{Action, Game};
use serde::Serialize;
use strength::exhaustive;

use super::{Player, Report};
use crate::move_names::move_names;

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
pub(super) fn measure<G: Game>(game: &G, player: Player) -> anyhow::Result<Report<Lines>> {
    Report::of(game, None, player, |player, simulations| {
        let report = exhaustive::check(game, &mut player.contestant(simulations)).context("play every line")?;
        let exhaustive::Report { decisions, won, drawn, lost, lost_line } = report;
        let names = |line: Vec<Action>| move_names(game, game.start(), line).collect::<Result<Vec<_>, _>>();
        let lost_line = lost_line.map(names).transpose()?.map(|names| names.join(" "));
        Ok(Lines { decisions, won, drawn, lost, lost_line })
    })
}

pub(super) fn write(report: &Report<Lines>, output: &mut impl Write) -> io::Result<()> {
    let Report { game, evaluator, weights_version, simulations, with_search, without_search, .. } = report;
    writeln!(output, "{game}, weights version {weights_version} ({evaluator}), every line of play from both sides\n")?;
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

    fn lines(simulations: u32) -> Report<Lines> {
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
