//! Draws the ratings of a match or round robin as bars with confidence intervals.

use std::path::Path;

use figures::plot::{Axis, Bar, Chart, Figure};
use service::directory::{FileError, replace};

use super::report::{MatchPlayer, Report};

/// Width of the picture in pixels.
const WIDTH: i32 = 900;

/// Draws the ratings of all players with games to the SVG file `path`.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(path: &Path, report: &Report) -> Result<(), FileError> {
    let games: u64 = report.pairings.iter().map(|pairing| pairing.games).sum();
    let title = format!("{}: Elo relative to {} with 95 % intervals, {games} games", report.game, report.reference());
    // The range contains 0, at which the bars start.
    let bounds = report.players.iter().filter_map(|player| player.rating).flat_map(|rating| [rating.low, rating.high]);
    let axis = Axis::around(bounds.chain([-1.0, 1.0]));
    let bar = |index: usize| {
        let MatchPlayer { name, rating, .. } = &report.players[index];
        let rating = rating.as_ref()?;
        let (label, interval) = (format!("{:+.0}", rating.elo), Some([rating.low, rating.high]));
        Some(Bar { name: name.clone(), value: rating.elo, label, interval })
    };
    let bars = report.by_rating().into_iter().filter_map(bar).collect();
    let chart = Chart::of_bars(String::new(), WIDTH, "Elo", axis, bars);
    replace(path, Figure { title, columns: vec![vec![chart]] }.svg().as_bytes())
}
