//! A query with valid fields: [`Job`].

use std::cell::Cell as Shared;
use std::time::Duration;

use serde_json::Value;

use crate::{
    Cell, Color, GoRules, Identity, Move, Ply, Record, Restriction, RestrictionKind, Rules, Setup, Size, Stone,
};

use super::perspective::Perspective;
use super::query::{FieldMessage, MoveRestriction, Query};

/// Maximum number of positions in a query.
const TURNS_MAX: usize = 10_000;
/// Maximum time, in seconds; a longer time is no limit.
const SECONDS_MAX: f64 = 1e9;
/// Maximum absolute komi.
const KOMI_MAX: f32 = 150.0;

/// A query with valid fields. Illegal moves are found when they are played.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    pub(super) id: String,
    pub(super) record: Record,
    /// Number of plies before each position, with the priority.
    pub(super) turns: Vec<Turn>,
    pub(super) visits: Option<u32>,
    pub(super) time: Option<Duration>,
    pub(super) perspective: Option<Perspective>,
    pub(super) restrictions: Vec<Restriction>,
    pub(super) report_every: Option<Duration>,
    pub(super) has_policy: bool,
    pub(super) has_variation_visits: bool,
    /// Length of the query line, which limits the memory of waiting queries.
    pub(super) bytes: usize,
    /// True once the session has warned about unsupported rules.
    pub(super) is_warned: Shared<bool>,
}

/// A position of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) number: usize,
    pub(super) priority: i64,
}

impl Job {
    /// Checks the fields of a query with a line of `bytes` bytes, and adds warnings.
    ///
    /// # Errors
    /// The first invalid field.
    pub(super) fn new(
        query: Query,
        identity: &Identity,
        bytes: usize,
        warnings: &mut Vec<FieldMessage>,
    ) -> Result<Self, FieldMessage> {
        let size = Size::new(query.board_x_size, query.board_y_size).ok_or_else(|| {
            FieldMessage::new("boardXSize", format!("a board has 1 to {} cells a side", Size::SIDE_MAX))
        })?;
        let board = Board { identity, size };
        let plies = query.moves.iter().map(|pair| board.ply(pair)).collect::<Result<Vec<Ply>, _>>()?;
        let stones = query.initial_stones.iter().map(|pair| board.stone(pair)).collect::<Result<Vec<Stone>, _>>()?;
        let first = query.initial_player.as_deref().map(|player| color("initialPlayer", player)).transpose()?;
        let rules = rules(&query, identity, warnings)?;
        let setup = Setup {
            size,
            komi: komi(query.komi, &rules)?,
            rules,
            stones,
            to_move: first.or(plies.first().map(|ply| ply.color)),
        };
        let restrictions = board.restrictions(&query)?;
        let report_every = query.report_during_search_every;
        let report_every = report_every.map(|seconds| interval("reportDuringSearchEvery", seconds)).transpose()?;
        let settings = &query.override_settings;
        let visits = query.max_visits.or(settings.max_visits);
        if visits == Some(0) {
            return Err(FieldMessage::new("maxVisits", "expected at least 1"));
        }
        let time = settings.max_time.map(|seconds| interval("overrideSettings", seconds)).transpose()?;
        let perspective = settings.report_analysis_winrates_as.as_deref().map(perspective).transpose()?;
        if !settings.ignored.is_empty() {
            let names: Vec<&str> = settings.ignored.keys().map(String::as_str).collect();
            warnings.push(FieldMessage::new("overrideSettings", format!("ignored: {}", names.join(", "))));
        }
        Ok(Self {
            turns: turns(&query)?,
            id: query.id,
            record: Record { setup, plies },
            visits: visits.map(|visits| u32::try_from(visits).unwrap_or(u32::MAX)),
            time,
            perspective,
            restrictions,
            report_every,
            has_policy: query.include_policy,
            has_variation_visits: query.include_pv_visits,
            bytes,
            is_warned: Shared::default(),
        })
    }
}

fn color(field: &str, text: &str) -> Result<Color, FieldMessage> {
    Color::parse(text).ok_or_else(|| FieldMessage::new(field, format!("`{text}` is not a player: expected B or W")))
}

fn perspective(text: &str) -> Result<Perspective, FieldMessage> {
    let message = || format!("reportAnalysisWinratesAs: expected BLACK, WHITE or SIDETOMOVE, not `{text}`");
    Perspective::parse(text).ok_or_else(|| FieldMessage::new("overrideSettings", message()))
}

fn interval(field: &str, seconds: f64) -> Result<Duration, FieldMessage> {
    let interval = Duration::try_from_secs_f64(seconds.min(SECONDS_MAX)).ok().filter(|interval| !interval.is_zero());
    interval.ok_or_else(|| FieldMessage::new(field, "expected a positive number of seconds"))
}

/// Returns the rules of a query; in other games than Go, the engine's rules. Adds a warning about unknown rules.
fn rules(query: &Query, identity: &Identity, warnings: &mut Vec<FieldMessage>) -> Result<Rules, FieldMessage> {
    let Rules::Go(usual) = identity.rules else { return Ok(identity.rules) };
    let known = match &query.rules {
        None => return Err(FieldMessage::new("rules", "the field is required")),
        Some(Value::String(text)) => GoRules::parse(text),
        Some(object @ Value::Object(_)) => serde_json::from_value(object.clone()).ok(),
        Some(_) => return Err(FieldMessage::new("rules", "expected a name or an object")),
    };
    if known.is_none() {
        warnings.push(FieldMessage::new("rules", format!("unknown rules: the analysis is by {}", usual.json())));
    }
    let mut rules = known.unwrap_or(usual);
    if let Some(bonus) = &query.white_handicap_bonus {
        let bonus = serde_json::from_value(bonus.clone().into());
        rules.white_handicap_bonus =
            bonus.map_err(|_| FieldMessage::new("whiteHandicapBonus", "expected 0, N-1 or N"))?;
    }
    Ok(Rules::Go(rules))
}

fn komi(komi: Option<f32>, rules: &Rules) -> Result<f32, FieldMessage> {
    let usual = if let Rules::Go(rules) = rules { rules.komi_usual() } else { 0.0 };
    let komi = komi.unwrap_or(usual);
    if komi.abs() <= KOMI_MAX && (2.0 * komi).fract() == 0.0 {
        Ok(komi)
    } else {
        Err(FieldMessage::new("komi", format!("expected a multiple of 0.5 from -{KOMI_MAX} to {KOMI_MAX}")))
    }
}

fn turns(query: &Query) -> Result<Vec<Turn>, FieldMessage> {
    let last = query.moves.len();
    let numbers = query.analyze_turns.clone().unwrap_or_else(|| vec![last]);
    if let Some(number) = numbers.iter().find(|number| **number > last) {
        return Err(FieldMessage::new("analyzeTurns", format!("there is no turn {number} after {last} moves")));
    }
    if numbers.len() > TURNS_MAX {
        return Err(FieldMessage::new("analyzeTurns", format!("a query has at most {TURNS_MAX} turns")));
    }
    let priorities = query.priorities.clone().unwrap_or_else(|| vec![query.priority; numbers.len()]);
    if priorities.len() != numbers.len() {
        return Err(FieldMessage::new("priorities", "expected one priority per turn in analyzeTurns"));
    }
    Ok(numbers.into_iter().zip(priorities).map(|(number, priority)| Turn { number, priority }).collect())
}

/// The board for reading the moves of a query.
struct Board<'a> {
    identity: &'a Identity,
    size: Size,
}

impl Board<'_> {
    fn ply(&self, (player, location): &(String, String)) -> Result<Ply, FieldMessage> {
        Ok(Ply { color: color("moves", player)?, played: self.played("moves", location)? })
    }

    fn stone(&self, (player, location): &(String, String)) -> Result<Stone, FieldMessage> {
        let field = "initialStones";
        let Move::Place(cell) = self.played(field, location)? else {
            return Err(FieldMessage::new(field, format!("`{location}` is not a cell of the board")));
        };
        Ok(Stone { color: color(field, player)?, cell })
    }

    /// Parses a move name, or coordinates from the top left: `(0,13)`.
    fn played(&self, field: &str, text: &str) -> Result<Move, FieldMessage> {
        let coordinates = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let played = match coordinates {
            Some(pair) => self.coordinates(pair).map(Move::Place),
            None => self.identity.game.parse_move(self.size, text).filter(|played| *played != Move::Resign),
        };
        played.ok_or_else(|| FieldMessage::new(field, format!("`{text}` is not a move on this board")))
    }

    fn coordinates(&self, pair: &str) -> Option<Cell> {
        let (x, y) = pair.split_once(',')?;
        self.size.cell(x.trim().parse().ok()?, y.trim().parse().ok()?)
    }

    fn restrictions(&self, query: &Query) -> Result<Vec<Restriction>, FieldMessage> {
        let lists = [
            ("avoidMoves", RestrictionKind::Avoid, &query.avoid_moves),
            ("allowMoves", RestrictionKind::Allow, &query.allow_moves),
        ];
        let mut restrictions: Vec<Restriction> = Vec::new();
        for (field, kind, list) in lists {
            for MoveRestriction { player, moves, .. } in list {
                let moves = moves.iter().map(|text| self.played(field, text)).collect::<Result<Vec<Move>, _>>()?;
                let color = color(field, player)?;
                if kind == RestrictionKind::Allow && restrictions.iter().any(|r| (r.kind, r.color) == (kind, color)) {
                    return Err(FieldMessage::new(field, "expected one entry per player"));
                }
                restrictions.push(Restriction { color, kind, moves });
            }
        }
        Ok(restrictions)
    }
}
