//! Rules named in protocols: [`Rules`], [`GoRules`] for Go, [`GomokuRule`] for Gomoku.
//!
//! Go rules have KataGo's fields and names
//! ([GTP_Extensions.md](https://github.com/lightvector/KataGo/blob/master/docs/GTP_Extensions.md)).

use serde::{Deserialize, Serialize};

/// The rules of a game, by game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// The only rules of games without variants, such as Hex.
    Usual,
    /// Rules of Go.
    Go(GoRules),
    /// A rule of Gomoku.
    Gomoku(GomokuRule),
}

/// Gomoku's rule for rows of stones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GomokuRule {
    /// Five or more in a row win.
    Freestyle,
    /// Exactly five in a row win.
    ExactlyFive,
    /// Renju: Black may not make overlines, double threes or double fours.
    Renju,
}

/// Rules of Go, with KataGo's JSON form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GoRules {
    /// The rule against cycles.
    pub ko: Ko,
    /// The scoring method.
    #[serde(alias = "score")]
    pub scoring: Scoring,
    /// The points that groups lose.
    pub tax: Tax,
    /// True if suicide of several stones is legal.
    pub suicide: bool,
    /// True for button Go.
    pub has_button: bool,
    /// White's points in handicap games.
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

/// The scoring method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Scoring {
    /// Stones and surrounded points.
    Area,
    /// Surrounded points and prisoners.
    Territory,
}

/// The points that groups lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Tax {
    /// No tax.
    None,
    /// Points in seki do not count.
    Seki,
    /// Each group pays for two eyes.
    All,
}

/// White's points in games with N handicap stones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandicapBonus {
    /// No points.
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

    /// Returns the rules with this name, mapped like in KataGo: `new-zealand`, `New Zealand` or `nz`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let area = |ko, suicide, white_handicap_bonus| Self { ko, suicide, white_handicap_bonus, ..Self::TROMP_TAYLOR };
        let japanese =
            Self { scoring: Scoring::Territory, tax: Tax::Seki, ..area(Ko::Simple, false, HandicapBonus::Zero) };
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        Some(match name.to_ascii_lowercase().as_str() {
            "tromptaylor" | "goe" | "ing" => Self::TROMP_TAYLOR,
            "chinese" => area(Ko::Simple, false, HandicapBonus::Stones),
            "chineseogs" | "chinesekgs" => area(Ko::Positional, false, HandicapBonus::Stones),
            "japanese" | "korean" => japanese,
            "ancientterritory" => Self { tax: Tax::All, ..japanese },
            "stonescoring" | "ancientarea" => Self { tax: Tax::All, ..area(Ko::Simple, false, HandicapBonus::Zero) },
            "aga" | "bga" | "french" => area(Ko::Situational, false, HandicapBonus::StonesLessOne),
            "newzealand" | "nz" => area(Ko::Situational, true, HandicapBonus::Zero),
            "agabutton" => Self { has_button: true, ..area(Ko::Situational, false, HandicapBonus::StonesLessOne) },
            _ => return None,
        })
    }

    /// Parses a name, or a JSON object. Missing fields are from Tromp and Taylor; fields of later KataGo versions are
    /// ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.starts_with('{') { serde_json::from_str(text).ok() } else { Self::named(text) }
    }

    /// Returns the JSON form.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("rules have a JSON form")
    }

    /// Returns the komi of a game without a given komi.
    #[must_use]
    pub const fn komi_usual(&self) -> f32 {
        match (self.scoring, self.has_button) {
            (_, true) => 7.0,
            (Scoring::Area, _) => 7.5,
            (Scoring::Territory, _) => 6.5,
        }
    }
}
