//! The result of a game in the common notation of GTP and SGF: [`GameResult`].

use std::fmt;

use crate::Color;

/// The result of a game.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GameResult {
    /// One side won.
    Win {
        /// Side that won.
        color: Color,
        /// The reason of the win.
        by: Victory,
    },
    /// Neither side won.
    Draw,
    /// The game has no result, or was suspended.
    Void,
}

/// The way in which a game was won.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Victory {
    /// By this many points.
    Points(f32),
    /// The opponent resigned.
    Resignation,
    /// The opponent exceeded the time.
    Time,
    /// The opponent forfeited.
    Forfeit,
    /// By the rules of a game without points, or unknown.
    Unspecified,
}

impl GameResult {
    /// Returns the result of a game with this margin for Black, in points.
    #[must_use]
    pub fn from_margin(black_margin: f32) -> Self {
        let win = |color, points| Self::Win { color, by: Victory::Points(points) };
        if black_margin > 0.0 {
            win(Color::Black, black_margin)
        } else if black_margin < 0.0 {
            win(Color::White, -black_margin)
        } else {
            Self::Draw
        }
    }

    /// Parses the value of the SGF property `RE`; `None` if it is unknown (`?`) or has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "0" | "draw" | "jigo" => Some(Self::Draw),
            "void" => Some(Self::Void),
            text => {
                let (color, by) = text.split_once('+')?;
                Some(Self::Win { color: Color::parse(color.trim())?, by: Victory::parse(by.trim())? })
            }
        }
    }
}

impl Victory {
    /// Parses the reason of a win in lower case.
    fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::Unspecified),
            "r" | "resign" => Some(Self::Resignation),
            "t" | "time" => Some(Self::Time),
            "f" | "forfeit" => Some(Self::Forfeit),
            points => points.parse().ok().filter(|points: &f32| points.is_finite() && *points > 0.0).map(Self::Points),
        }
    }
}

/// Formats the result like GTP's `final_score` and SGF's `RE`: `B+3.5`, `W+R`, `B+`, `0`, `Void`.
impl fmt::Display for GameResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draw => f.write_str("0"),
            Self::Void => f.write_str("Void"),
            Self::Win { color, by } => match by {
                Victory::Points(points) => write!(f, "{}+{points}", color.letter()),
                Victory::Resignation => write!(f, "{}+R", color.letter()),
                Victory::Time => write!(f, "{}+T", color.letter()),
                Victory::Forfeit => write!(f, "{}+F", color.letter()),
                Victory::Unspecified => write!(f, "{}+", color.letter()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read_as_it_is_written() {
        for text in ["B+3.5", "W+R", "B+T", "W+F", "B+", "0", "Void", "W+12"] {
            assert_eq!(GameResult::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(GameResult::parse("b+Resign").unwrap().to_string(), "B+R");
        assert_eq!(GameResult::from_margin(-0.5).to_string(), "W+0.5");
        for text in ["?", "", "B", "X+1", "B+nan", "B+-1", "B+inf"] {
            assert_eq!(GameResult::parse(text), None, "{text}");
        }
    }
}
