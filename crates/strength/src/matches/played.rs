//! Defines [`Played`], the finished games of a match.

use std::collections::HashSet;

use game::{Action, Outcome, Player};

use crate::ledger::{Results, Tally};

/// A finished game.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayedGame {
    /// All actions from the start of the game, including the opening.
    pub actions: Vec<Action>,
    /// Result of the game.
    pub outcome: Outcome,
    /// How the result came about.
    pub end: GameEnd,
}

/// The way in which the result of a game came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GameEnd {
    /// The rules of the game decided the result.
    Rules,
    /// The loser resigned.
    Resigned,
    /// The loser forfeited the game.
    Forfeited {
        /// Reason, as a short phrase for reports.
        reason: String,
    },
}

/// The two games of an opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Index of the opening in the match.
    pub opening: usize,
    /// Number of plies of the opening.
    pub opening_plies: usize,
    /// The games: in the first, contestant 0 is the first player; in the second, sides are exchanged.
    pub games: [PlayedGame; 2],
    /// True if one of the games repeats, move by move and from the same side, a game that counts. Such a pair does not
    /// count: the repeated game would otherwise count twice, and the other game alone would favour a side.
    pub is_repeated: bool,
}

/// An opening without a result, because a game is void.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoidOpening {
    /// Index of the opening in the match.
    pub opening: usize,
    /// Reason, as a short phrase for reports.
    pub reason: String,
}

/// All games of a match so far.
#[derive(Debug, Clone, Default)]
pub struct Played {
    pairs: Vec<Pair>,
    void: Vec<VoidOpening>,
    /// Number of openings from which games have started.
    openings: usize,
    counted: Counted,
}

/// The games between two contestants that count, including games of earlier matches.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    /// Actions of each game, by the contestant that is the first player: with sides exchanged, the same moves are a
    /// different game.
    games: [HashSet<Vec<Action>>; 2],
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

impl Counted {
    /// Counts the two games of an opening, unless either repeats a game that counts; returns true if they count. The
    /// games of a pair that does not count are not entered, so that a later pair with one of these games can count.
    fn insert(&mut self, games: &[PlayedGame; 2]) -> bool {
        let is_new = self.games.iter().zip(games).all(|(counted, game)| !counted.contains(&game.actions));
        if is_new {
            self.games.iter_mut().zip(games).for_each(|(counted, game)| {
                counted.insert(game.actions.clone());
            });
        }
        is_new
    }
}

impl Played {
    /// Creates a match without games; `counted` holds the games of earlier matches between the same contestants.
    pub fn after(counted: Counted) -> Self {
        Self { counted, ..Self::default() }
    }

    /// Returns the games that count, including earlier matches.
    pub fn into_counted(self) -> Counted {
        self.counted
    }

    /// Reserves indices for `openings` openings that are about to be played, and returns the first index.
    pub(super) fn begin(&mut self, openings: usize) -> usize {
        let first = self.openings;
        self.openings += openings;
        first
    }

    /// Adds the two games of an opening.
    pub(super) fn add(&mut self, opening: usize, opening_plies: usize, games: [PlayedGame; 2]) {
        let is_repeated = !self.counted.insert(&games);
        self.pairs.push(Pair { opening, opening_plies, games, is_repeated });
    }

    /// Adds an opening without a result.
    pub(super) fn add_void(&mut self, opening: VoidOpening) {
        self.void.push(opening);
    }

    /// Returns the pairs of games, in the order of the openings.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Returns the openings without a result.
    #[must_use]
    pub fn void(&self) -> &[VoidOpening] {
        &self.void
    }

    /// Returns the results from the point of view of contestant 0, without pairs that [repeat](Pair::is_repeated) a
    /// game.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally_of(|pair| !pair.is_repeated)
    }

    /// Returns the results of all pairs, including repeated pairs: between contestants that draw at random these are
    /// evidence.
    #[must_use]
    pub fn tally_with_repetitions(&self) -> Tally {
        self.tally_of(|_| true)
    }

    /// Returns the number of games that do not count: both games of each pair that [repeats](Pair::is_repeated) a game.
    #[must_use]
    pub fn repeated_games(&self) -> usize {
        2 * self.pairs.iter().filter(|pair| pair.is_repeated).count()
    }

    /// Returns the results from contestant 0's point of view, with the number of pairs that do not count.
    pub fn results(&self) -> Results {
        Results { tally: self.tally(), repeated: self.repeated_games() as u64 / 2 }
    }

    fn tally_of(&self, counts: impl Fn(&Pair) -> bool) -> Tally {
        let mut tally = Tally::default();
        self.pairs.iter().filter(|pair| counts(pair)).for_each(|pair| tally.count(pair.half_points()));
        tally
    }
}
