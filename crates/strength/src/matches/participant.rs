//! Defines [`Participant`], a player of a match. Every [`Contestant`] is a participant.

use game::{Action, Game};

use crate::contestant::Contestant;
use crate::gtp_engine;

/// A player of a match, which sees the moves of each game and not only the position.
pub trait Participant<G: Game> {
    /// Returns the maximum number of concurrent games; unlimited by default.
    fn concurrent_games_max(&self) -> usize {
        usize::MAX
    }

    /// Returns a reply for each of the unfinished `games`.
    ///
    /// # Errors
    /// The player can play no more games.
    fn reply(&mut self, game: &G, games: &[Ongoing<'_, G::Position>]) -> Result<Vec<Reply>, Failure>;

    /// Notifies the player that a game is over or will not be continued.
    fn end_game(&mut self, number: usize) {
        let _ = number;
    }
}

/// A game in progress.
#[derive(Debug)]
pub struct Ongoing<'a, P> {
    /// Number of the game, unique within a match.
    pub number: usize,
    /// All actions from the start of the game, including the opening.
    pub actions: &'a [Action],
    /// Position after these actions.
    pub position: &'a P,
}

/// A player's reply to a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A legal action.
    Play(Action),
    /// The player resigns the game.
    Resign,
    /// The player loses the game because it broke the rules or failed.
    Forfeit {
        /// Reason, as a short phrase for reports.
        reason: String,
    },
    /// The game has no result, because neither player is clearly at fault. The other game of the opening is not played
    /// either.
    Void {
        /// Reason, as a short phrase for reports.
        reason: String,
    },
}

/// The reason why a participant can play no more games.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The evaluator failed.
    #[error(transparent)]
    Evaluator(#[from] inference::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] gtp_engine::Error),
    /// The match was stopped while the participant chose a move.
    #[error("interrupted")]
    Interrupted,
}

impl<G: Game, C: Contestant<G>> Participant<G> for C {
    fn reply(&mut self, game: &G, games: &[Ongoing<'_, G::Position>]) -> Result<Vec<Reply>, Failure> {
        let positions: Vec<G::Position> = games.iter().map(|game| game.position.clone()).collect();
        Ok(self.choose(game, &positions)?.into_iter().map(Reply::Play).collect())
    }
}
