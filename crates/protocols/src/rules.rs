//! The rules that a protocol names: [`Rules`], of Go [`GoRules`], of Gomoku [`GomokuRule`].
//!
//! Those of Go have the fields and names of KataGo
//! ([GTP_Extensions.md](https://github.com/lightvector/KataGo/blob/master/docs/GTP_Extensions.md)).

use serde::{Deserialize, Serialize};

/// The rules of a game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// The only rules of games that have no variants, such as Hex.
    Usual,
    /// Rules of Go.
    Go(GoRules),
    /// A rule of Gomoku.
    Gomoku(GomokuRule),
}

/// The rule of Gomoku for rows of stones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GomokuRule {
    /// Five or more in a row win.
    Freestyle,
    /// Exactly five in a row win.
    ExactlyFive,
    /// Renju: Black may not make overlines, double threes and double fours.
    Renju,
}

/// Rules of Go, as KataGo describes them in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GoRules {
    /// The rule against cycles.
    pub ko: Ko,
    /// The way in which a game is scored.
    #[serde(alias = "score")]
    pub scoring: Scoring,
    /// The points that groups pay.
    pub tax: Tax,
    /// True if groups of several stones may be suicided.
    pub suicide: bool,
    /// True for button Go.
    pub has_button: bool,
    /// The points of White in handicap games.
    pub white_handicap_bonus: HandicapBonus,
}

/// The rule against cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Ko {
    /// A stone may not be recaptured at once.
    Simple,
    /// No position may be repeated.
    Positional,
    /// No position may be repeated with the same player to move.
    Situational,
}

/// The way in which a game is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Scoring {
    /// Stones and surrounded points.
    Area,
    /// Surrounded points and prisoners.
    Territory,
}

/// The points that groups pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Tax {
    /// None.
    None,
    /// Points in seki do not count.
    Seki,
    /// Each group pays for two eyes.
    All,
}

/// The points of White in games with N handicap stones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandicapBonus {
    /// None.
    #[serde(rename = "0")]
    Zero,
    /// N − 1 points.
    #[serde(rename = "N-1")]
    StonesLessOne,
    /// N points.
    #[serde(rename = "N")]
    Stones,
}

impl Default for GoRules {
    fn default() -> Self {
        Self::TROMP_TAYLOR
    }
}

impl GoRules {
    /// The rules of Tromp and Taylor.
    pub const TROMP_TAYLOR: Self = Self {
        ko: Ko::Positional,
        scoring: Scoring::Area,
        tax: Tax::None,
        suicide: true,
        has_button: false,
        white_handicap_bonus: HandicapBonus::Zero,
    };

    /// Returns the rules of this name, as KataGo maps names to rules: `new-zealand`, `New Zealand` or `nz`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let area = |ko, suicide, white_handicap_bonus| Self { ko, suicide, white_handicap_bonus, ..Self::TROMP_TAYLOR };
        let japanese =
            Self { scoring: Scoring::Territory, tax: Tax::Seki, ..area(Ko::Simple, false, HandicapBonus::Zero) };
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        Some(match name.to_ascii_lowercase().as_str() {
            "tromptaylor" => Self::TROMP_TAYLOR,
            "chinese" => area(Ko::Simple, false, HandicapBonus::Stones),
            "chineseogs" | "chinesekgs" => area(Ko::Positional, false, HandicapBonus::Stones),
            "japanese" | "korean" => japanese,
            "stonescoring" => Self { tax: Tax::All, ..area(Ko::Simple, false, HandicapBonus::Zero) },
            "aga" | "bga" | "french" => area(Ko::Situational, false, HandicapBonus::StonesLessOne),
            "newzealand" | "nz" => area(Ko::Situational, true, HandicapBonus::Zero),
            "agabutton" => Self { has_button: true, ..area(Ko::Situational, false, HandicapBonus::StonesLessOne) },
            _ => return None,
        })
    }

    /// Parses a name, or an object in JSON. Fields that are left out are those of Tromp and Taylor, and fields of later
    /// versions of KataGo are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.starts_with('{') { serde_json::from_str(text).ok() } else { Self::named(text) }
    }

    /// The komi of a game for which none is given.
    #[must_use]
    pub const fn komi_usual(&self) -> f32 {
        match (self.scoring, self.has_button) {
            (_, true) => 7.0,
            (Scoring::Area, _) => 7.5,
            (Scoring::Territory, _) => 6.5,
        }
    }
}
