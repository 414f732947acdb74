use std::fmt;
use std::str::FromStr;

use crate::hex;

/// Which game a run plays. Written as its name: `tic_tac_toe`, `connect_four`, `hex-11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GameKind {
    /// Tic-tac-toe.
    TicTacToe,
    /// Connect Four, 7 columns and 6 rows.
    ConnectFour,
    /// Hex with the swap rule.
    Hex {
        /// Cells a side.
        size: hex::Size,
    },
}

/// A name that is no game.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No game is called this.
    #[error(
        "`{name}` is not a game (did you mean `{nearest}`?): the games are tic_tac_toe, connect_four and hex-3 to hex-19"
    )]
    UnknownGame {
        /// What was read.
        name: String,
        /// The name most like it.
        nearest: &'static str,
    },
    /// The game exists, but not at this size.
    #[error("`{name}` has no board: hex is played on {min} to {max} cells a side, `hex-{min}` to `hex-{max}`", min = hex::Size::MIN.get(), max = hex::Size::MAX.get())]
    HexSize {
        /// What was read.
        name: String,
    },
}

impl fmt::Display for GameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TicTacToe => f.write_str("tic_tac_toe"),
            Self::ConnectFour => f.write_str("connect_four"),
            Self::Hex { size } => write!(f, "hex-{}", size.get()),
        }
    }
}

impl FromStr for GameKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "tic_tac_toe" => return Ok(Self::TicTacToe),
            "connect_four" => return Ok(Self::ConnectFour),
            _ => {}
        }
        match name.strip_prefix("hex-") {
            Some(size) => match parse_size(size) {
                Some(size) => Ok(Self::Hex { size }),
                None => Err(Error::HexSize { name: name.into() }),
            },
            None => Err(Error::UnknownGame { name: name.into(), nearest: nearest(name) }),
        }
    }
}

/// Reads a size as [`GameKind`] writes it, so that a game has one name: `hex-011` and `hex-+11` are none.
fn parse_size(text: &str) -> Option<hex::Size> {
    let size = text.parse().ok().and_then(hex::Size::new)?;
    (size.get().to_string() == text).then_some(size)
}

fn nearest(name: &str) -> &'static str {
    let likeness = |candidate: &&str| strsim::normalized_damerau_levenshtein(&name.to_lowercase(), candidate);
    ["connect_four", "tic_tac_toe", "hex-11"]
        .into_iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .expect("there are games")
}

/// Runs an expression with the concrete rules of a [`GameKind`] bound to a name.
///
/// The expression is compiled once per game, so it may call functions generic over [`game::Game`]; its type must not depend
/// on the game.
///
/// ```
/// use game::Game;
///
/// fn actions<G: Game>(game: &G) -> usize {
///     game.spec().actions
/// }
///
/// let kind: games::GameKind = "connect_four".parse()?;
/// assert_eq!(games::with_game!(kind, |game| actions(&game)), 7);
/// # Ok::<(), games::Error>(())
/// ```
#[macro_export]
macro_rules! with_game {
    ($kind:expr, |$game:ident| $body:expr) => {
        match $kind {
            $crate::GameKind::TicTacToe => {
                let $game = $crate::TicTacToe::new();
                $body
            }
            $crate::GameKind::ConnectFour => {
                let $game = $crate::ConnectFour::new();
                $body
            }
            $crate::GameKind::Hex { size } => {
                let $game = $crate::Hex::new(size);
                $body
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use game::Game;

    use super::*;

    #[test]
    fn a_kind_is_read_back_from_its_name() {
        for name in ["tic_tac_toe", "connect_four", "hex-3", "hex-11", "hex-19"] {
            assert_eq!(name.parse::<GameKind>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn the_rules_carry_the_name_of_their_kind() {
        for name in ["tic_tac_toe", "connect_four", "hex-3", "hex-11", "hex-19"] {
            let kind: GameKind = name.parse().unwrap();
            assert_eq!(crate::with_game!(kind, |game| game.spec().name.clone()), name);
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest_right_one() {
        let cases = [("conect-four", "connect_four"), ("TicTacToe", "tic_tac_toe"), ("hex", "hex-11"), ("", "hex-11")];
        for (name, expected) in cases {
            let error = name.parse::<GameKind>().unwrap_err();
            assert_eq!(error, Error::UnknownGame { name: name.into(), nearest: expected }, "{error}");
        }
        assert_eq!(
            "conect_four".parse::<GameKind>().unwrap_err().to_string(),
            "`conect_four` is not a game (did you mean `connect_four`?): \
         the games are tic_tac_toe, connect_four and hex-3 to hex-19"
        );
    }

    #[test]
    fn a_board_of_the_wrong_size_is_refused() {
        for name in ["hex-2", "hex-20", "hex-", "hex-011", "hex-+11", "hex-300", "hex-x"] {
            let message = name.parse::<GameKind>().unwrap_err().to_string();
            let expected = format!("`{name}` has no board: hex is played on 3 to 19 cells a side, `hex-3` to `hex-19`");
            assert_eq!(message, expected);
        }
    }
}
