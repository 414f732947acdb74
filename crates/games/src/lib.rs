//! The games: tic-tac-toe, Connect Four, Hex; and [`GameKind`], which says which of them a run plays.
//!
//! Each game is one module that implements [`game::Game`] and runs its conformance suite. Code that works for any game
//! is generic over [`game::Game`]; [`with_game!`] takes it from a [`GameKind`] to the concrete rules, once, at the top.

pub mod connect_four;
mod grid;
pub mod hex;
mod kind;
pub mod tic_tac_toe;

pub use connect_four::ConnectFour;
pub use hex::Hex;
pub use kind::{Error, GameKind};
pub use tic_tac_toe::TicTacToe;
