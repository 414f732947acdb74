use game::{Outcome, Player, Spec};

/// The value of a position under perfect play, for the player to move: the result and the number of plies to the end.
/// Larger values are better: a sooner win, a later loss.
///
/// A win in n plies is [`LONGEST`] − n, a loss in n plies n − [`LONGEST`], and a draw 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value(i32);

/// More plies than in any game.
const LONGEST: i32 = 1 << 16;

impl Value {
    /// Less than the value of any position.
    pub(crate) const MIN: Self = Self(-LONGEST - 1);

    /// Returns the value of a position that is over, for `player`.
    pub(crate) fn of_end(outcome: Outcome, player: Player) -> Self {
        match outcome {
            Outcome::Win(winner) if winner == player => Self(LONGEST),
            Outcome::Win(_) => Self(-LONGEST),
            _ => Self(0),
        }
    }

    /// Returns the value of a win after this number of plies.
    pub(crate) fn won_in(plies: usize) -> Self {
        Self(LONGEST - plies_of(plies))
    }

    /// Returns the value of a loss after this number of plies.
    pub(crate) fn lost_in(plies: usize) -> Self {
        Self(plies_of(plies) - LONGEST)
    }

    /// Returns the value for the opponent one ply earlier, who chose the action leading to this position.
    pub(crate) fn before(self) -> Self {
        Self(-self.0 + self.0.signum())
    }

    /// Returns the [score](crate::Oracle) if `plies` plies were played before this position.
    pub(crate) fn score(self, spec: &Spec, plies: usize) -> i32 {
        let left = plies_of(spec.max_plies) - plies_of(plies) - (LONGEST - self.0.abs());
        if self.0 == 0 { 0 } else { self.0.signum() * (1 + left / 2) }
    }
}

fn plies_of(plies: usize) -> i32 {
    i32::try_from(plies).expect("games have fewer than 65,536 plies")
}
