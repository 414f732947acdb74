//! Who would resign, and whether they may.

use game::{Outcome, Player, Players};
use rand::{Rng, RngExt};

use crate::settings::{Resignation, Resigned};

/// Follows one episode's values.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    resignation: Resignation,
    /// Played out with unchanged searches, whatever happens.
    is_calibration: bool,
    hopeless_moves: [u16; 2],
    resigner: Option<Player>,
}

/// What follows from a move's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    PlayOn,
    Decided(Outcome),
}

impl Watch {
    /// Draws whether the episode is one of calibration.
    pub(crate) fn new(resignation: Resignation, players: Players, rng: &mut impl Rng) -> Self {
        let resignation = if players == Players::One { Resignation::Never } else { resignation };
        let is_calibration = match resignation {
            Resignation::Never => false,
            Resignation::Below { calibration_share, .. } => rng.random::<f32>() < calibration_share,
        };
        Self { resignation, is_calibration, hopeless_moves: [0; 2], resigner: None }
    }

    /// Takes note of the value that the search of `mover`'s move expected.
    pub(crate) fn observe(&mut self, mover: Player, value: f32) -> Verdict {
        let Resignation::Below { threshold, consecutive, resigned, .. } = self.resignation else {
            return Verdict::PlayOn;
        };
        if self.resigner.is_some() {
            return Verdict::PlayOn;
        }
        let hopeless = &mut self.hopeless_moves[mover.index()];
        *hopeless = if value < threshold { hopeless.saturating_add(1) } else { 0 };
        if *hopeless < consecutive {
            return Verdict::PlayOn;
        }
        self.resigner = Some(mover);
        match resigned {
            Resigned::Decided if !self.is_calibration => Verdict::Decided(Outcome::Win(mover.opponent())),
            Resigned::Decided | Resigned::PlayedOut => Verdict::PlayOn,
        }
    }

    /// Whether what is left of the game deserves fast searches only.
    pub(crate) fn is_resigned(&self) -> bool {
        self.resigner.is_some() && !self.is_calibration
    }

    /// Whether somebody resigned, or would have.
    pub(crate) fn resigner(&self) -> Option<Player> {
        self.resigner
    }

    pub(crate) fn is_calibration(&self) -> bool {
        self.is_calibration
    }
}

#[cfg(test)]
mod tests;
