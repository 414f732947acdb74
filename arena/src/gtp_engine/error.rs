//! The reasons for which an engine cannot play: [`Error`].

use protocols::gtp;

/// The reason for which an engine cannot play.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The protocol has no name for the game.
    #[error("the Go Text Protocol plays Go, Hex, Othello and Gomoku, not {game}")]
    Game {
        /// The name of the game.
        game: String,
    },
    /// The first process cannot play the game.
    #[error("the engine {name} cannot play {game} (run it by hand to see what it prints on its standard error)")]
    Start {
        /// The name of the engine.
        name: String,
        /// The name of the game.
        game: String,
        /// The command that failed.
        source: Box<gtp::Error>,
    },
    /// Games in a row were lost because processes failed, each twice.
    #[error("the engine {name} has failed in {games} games in a row")]
    Failing {
        /// The name of the engine.
        name: String,
        /// The number of games.
        games: u32,
        /// The last failure.
        source: Box<gtp::Error>,
    },
    /// No thread could be started.
    #[error("start a thread for the engine {name}")]
    Thread {
        /// The name of the engine.
        name: String,
        /// The error of the system.
        source: std::io::Error,
    },
}
