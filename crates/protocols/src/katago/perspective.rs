//! The side for reported values: [`Perspective`].

use crate::Color;

/// The side for reported values, KataGo's `reportAnalysisWinratesAs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Perspective {
    /// This side; Black in KataGo's example configuration.
    Of(Color),
    /// The player to move.
    SideToMove,
}

impl Perspective {
    /// Parses `BLACK`, `WHITE` or `SIDETOMOVE` in any case.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("sidetomove") { Some(Self::SideToMove) } else { Color::parse(text).map(Self::Of) }
    }
}
