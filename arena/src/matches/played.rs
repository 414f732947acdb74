//! The games of a match that are over: [`Played`].

use std::collections::HashSet;

use game::{Action, Outcome, Player};

use crate::ledger::Tally;

/// A finished game.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayedGame {
    /// All actions from the start of the game, those of the opening first.
    pub actions: Vec<Action>,
    /// The outcome.
    pub outcome: Outcome,
    /// The way in which the game ended.
    pub end: GameEnd,
}

/// The way in which a game ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GameEnd {
    /// By the rules of the game.
    Rules,
    /// The loser resigned.
    Resigned,
    /// The loser forfeited the game.
    Forfeited {
        /// The reason, as a phrase.
        reason: String,
    },
}

/// The two games of an opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The index of the opening among those of the match.
    pub opening: usize,
    /// The number of plies of the opening.
    pub opening_plies: usize,
    /// The games: the first with contestant 0 as the first player, the second with sides exchanged.
    pub games: [PlayedGame; 2],
    /// Whether an earlier pair of the match has the same two games, move by move. Such a pair is no evidence.
    pub is_repeated: bool,
}

/// An opening without a result, because one of its games is void.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoidOpening {
    /// The index of the opening among those of the match.
    pub opening: usize,
    /// The reason, as a phrase.
    pub reason: String,
}

/// All games of a match so far.
#[derive(Debug, Clone, Default)]
pub struct Played {
    pairs: Vec<Pair>,
    void: Vec<VoidOpening>,
    /// The number of openings from which games have begun.
    openings: usize,
    /// The actions of the two games of each pair.
    seen: HashSet<[Vec<Action>; 2]>,
}

impl PlayedGame {
    /// Returns the half points of the first player: 0 for a loss, 1 for a draw, 2 for a win.
    #[must_use]
    pub fn half_points_of_first(&self) -> usize {
        match self.outcome {
            Outcome::Win(winner) => 2 * usize::from(winner == Player::First),
            Outcome::Draw | Outcome::Finished | Outcome::Truncated => 1,
        }
    }

    /// Returns the loser and the reason of a forfeit.
    #[must_use]
    pub fn forfeit(&self) -> Option<(Player, &str)> {
        match (&self.end, self.outcome) {
            (GameEnd::Forfeited { reason }, Outcome::Win(winner)) => Some((winner.opponent(), reason)),
            _ => None,
        }
    }
}

impl Pair {
    /// Returns the half points of contestant 0 in both games, from 0 to 4.
    #[must_use]
    pub fn half_points(&self) -> usize {
        let [one, other] = &self.games;
        one.half_points_of_first() + 2 - other.half_points_of_first()
    }
}

impl Played {
    /// Counts openings from which games begin, and returns the index of the first of them.
    pub(super) fn begin(&mut self, openings: usize) -> usize {
        let first = self.openings;
        self.openings += openings;
        first
    }

    /// Adds the two games of an opening.
    pub(super) fn add(&mut self, opening: usize, opening_plies: usize, games: [PlayedGame; 2]) {
        let is_repeated = !self.seen.insert(games.each_ref().map(|game| game.actions.clone()));
        self.pairs.push(Pair { opening, opening_plies, games, is_repeated });
    }

    /// Adds an opening without a result.
    pub(super) fn add_void(&mut self, opening: VoidOpening) {
        self.void.push(opening);
    }

    /// Returns the pairs of games in the order of their openings.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Returns the openings without a result.
    #[must_use]
    pub fn void(&self) -> &[VoidOpening] {
        &self.void
    }

    /// Returns the results from the point of view of contestant 0, in which pairs with identical moves count once.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally_of(|pair| !pair.is_repeated)
    }

    /// Returns the results of all pairs, repeated ones too.
    #[must_use]
    pub fn tally_with_repetitions(&self) -> Tally {
        self.tally_of(|_| true)
    }

    /// Returns the number of games that repeat those of an earlier pair move by move.
    #[must_use]
    pub fn repeated_games(&self) -> usize {
        2 * self.pairs.iter().filter(|pair| pair.is_repeated).count()
    }

    fn tally_of(&self, counts: impl Fn(&Pair) -> bool) -> Tally {
        let mut tally = Tally::default();
        self.pairs.iter().filter(|pair| counts(pair)).for_each(|pair| tally.count(pair.half_points()));
        tally
    }
}
