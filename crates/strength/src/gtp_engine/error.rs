//! Defines [`Error`], the reasons why an engine cannot play.

use protocols::gtp;

/// The reason why an engine cannot play.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The protocol has no name for the game.
    #[error("GTP supports only Go, Hex, Othello and Gomoku, not {game}")]
    Game {
        /// Name of the game.
        game: String,
    },
    /// The first process did not start, or cannot play the game.
    #[error("the engine {name} cannot play {game} (run the engine by hand to see its error output)")]
    Start {
        /// Name of the engine.
        name: String,
        /// Name of the game.
        game: String,
        /// Error of the failed command.
        source: Box<gtp::Error>,
    },
    /// The engine lost several consecutive games, because a process failed twice in each game.
    #[error("the engine {name} failed in {games} games in a row")]
    Failing {
        /// Name of the engine.
        name: String,
        /// Number of consecutive games.
        games: u32,
        /// Last failure.
        source: Box<gtp::Error>,
    },
    /// No thread could be started.
    #[error("start a thread for the engine {name}")]
    Thread {
        /// Name of the engine.
        name: String,
        /// Error of the system.
        source: std::io::Error,
    },
}
