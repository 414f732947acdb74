//! The game that a session plays or a file holds: [`Record`].

use crate::{Color, Engine, Error, Move, Setup};

/// The most moves of a record.
const PLIES_MAX: usize = 10_000;

/// A move of one player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ply {
    /// The player.
    pub color: Color,
    /// The move.
    pub played: Move,
}

/// The start of a game and its moves, which lead to the position of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The start.
    pub setup: Setup,
    /// The moves.
    pub plies: Vec<Ply>,
}

impl Record {
    /// Returns a game without moves.
    #[must_use]
    pub const fn new(setup: Setup) -> Self {
        Self { setup, plies: Vec::new() }
    }

    /// Starts the game in the engine and plays its first `plies` moves.
    ///
    /// # Errors
    /// Those of the engine, which then has an undefined game.
    pub fn replay(&self, engine: &mut dyn Engine, plies: usize) -> Result<(), Error> {
        engine.start(&self.setup)?;
        self.plies.iter().take(plies).try_for_each(|ply| engine.play(ply.color, ply.played))
    }

    /// Plays a move in the engine and appends it.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is illegal; nothing has changed then.
    pub fn play(&mut self, engine: &mut dyn Engine, ply: Ply) -> Result<(), Error> {
        if self.plies.len() >= PLIES_MAX {
            return Err(Error::refused(format!("a game has at most {PLIES_MAX} moves")));
        }
        engine.play(ply.color, ply.played)?;
        self.plies.push(ply);
        Ok(())
    }

    /// Takes the last move back.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none.
    pub fn undo(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        let plies = self.plies.len().checked_sub(1).ok_or_else(|| Error::refused("there is no move to take back"))?;
        self.replay(engine, plies)?;
        self.plies.truncate(plies);
        Ok(())
    }

    /// Replaces the game, in the engine too. On an error the game and the engine are as before.
    ///
    /// # Errors
    /// Those of the engine for the new game.
    pub fn replace(&mut self, engine: &mut dyn Engine, new: Self) -> Result<(), Error> {
        if let Err(error) = new.replay(engine, new.plies.len()) {
            self.replay(engine, self.plies.len())?;
            return Err(error);
        }
        *self = new;
        Ok(())
    }
}
