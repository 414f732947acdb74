//! The game of a session or a file: [`Record`].

use crate::{Color, Engine, Error, Move, Setup};

/// Maximum number of moves in a record.
const PLIES_MAX: usize = 10_000;

/// A move of one player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ply {
    /// The player who moves.
    pub color: Color,
    /// The move played.
    pub played: Move,
}

/// The start of a game and the moves, which lead to the position of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Start of the game.
    pub setup: Setup,
    /// Moves in order.
    pub plies: Vec<Ply>,
}

impl Record {
    /// Returns a game without moves.
    #[must_use]
    pub const fn new(setup: Setup) -> Self {
        Self { setup, plies: Vec::new() }
    }

    /// Starts the game in the engine and plays the first `plies` moves.
    ///
    /// # Errors
    /// An engine error; the engine's game is then undefined.
    pub fn replay(&self, engine: &mut dyn Engine, plies: usize) -> Result<(), Error> {
        engine.start(&self.setup)?;
        self.plies.iter().take(plies).try_for_each(|ply| engine.play(ply.color, ply.played))
    }

    /// Plays a move in the engine and appends it to the record.
    ///
    /// # Errors
    /// [`Error::Refused`] if the move is illegal; nothing has changed then.
    pub fn play(&mut self, engine: &mut dyn Engine, ply: Ply) -> Result<(), Error> {
        if self.plies.len() >= PLIES_MAX {
            return Err(Error::refused(format!("a game has at most {PLIES_MAX} moves")));
        }
        engine.play(ply.color, ply.played)?;
        self.plies.push(ply);
        Ok(())
    }

    /// Takes back the last move.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no move.
    pub fn undo(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        let plies = self.plies.len().checked_sub(1).ok_or_else(|| Error::refused("there is no move to take back"))?;
        self.replay(engine, plies)?;
        self.plies.truncate(plies);
        Ok(())
    }

    /// Replaces the game, in the engine too. After an error, the game and the engine are unchanged.
    ///
    /// # Errors
    /// The engine's errors for the new game.
    pub fn replace(&mut self, engine: &mut dyn Engine, new: Self) -> Result<(), Error> {
        if let Err(error) = new.replay(engine, new.plies.len()) {
            self.replay(engine, self.plies.len())?;
            return Err(error);
        }
        *self = new;
        Ok(())
    }
}
