//! The two sides, [`Color`].

use game::Player;

/// One of the two sides of a board game. Black moves first, except if handicap stones replace Black's first moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Color {
    /// The player who moves first, [`Player::First`].
    Black,
    /// The player who moves second, [`Player::Second`].
    White,
}

impl Color {
    /// Returns the other side.
    #[must_use]
    pub const fn opponent(self) -> Self {
        match self {
            Self::Black => Self::White,
            Self::White => Self::Black,
        }
    }

    /// Returns 0 for Black, 1 for White.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns `B` or `W`.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Black => 'B',
            Self::White => 'W',
        }
    }

    /// Parses `b`, `black`, `w` or `white` in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_one_of = |names: [&str; 2]| names.iter().any(|name| text.eq_ignore_ascii_case(name));
        if is_one_of(["b", "black"]) { Some(Self::Black) } else { is_one_of(["w", "white"]).then_some(Self::White) }
    }
}

impl From<Player> for Color {
    fn from(player: Player) -> Self {
        match player {
            Player::First => Self::Black,
            Player::Second => Self::White,
        }
    }
}

impl From<Color> for Player {
    fn from(color: Color) -> Self {
        match color {
            Color::Black => Self::First,
            Color::White => Self::Second,
        }
    }
}
