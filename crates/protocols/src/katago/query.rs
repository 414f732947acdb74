//! A query as written in JSON: [`Query`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Accepted fields without an effect.
const IGNORED: &str = "analysisPVLen firstReportDuringSearchAfter rootPolicyTemperature rootFpuReductionMax \
                       includeOwnership includeOwnershipStdev includeMovesOwnership includeMovesOwnershipStdev \
                       includeNoResultValue";

/// A request to analyse positions of a game. Fields have the names and meanings of KataGo's protocol.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Query {
    /// Any text; the responses repeat it.
    pub id: String,
    /// Stones on the board before the first move: `["B", "Q4"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initial_stones: Vec<(String, String)>,
    /// Moves: `["W", "P5"]`.
    pub moves: Vec<(String, String)>,
    /// Player of the first move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_player: Option<String>,
    /// Rules of Go: a name, or an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Value>,
    /// Komi, a multiple of 0.5 from −150 to 150.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub komi: Option<f32>,
    /// White's points in handicap games, with precedence over the points in the rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub white_handicap_bonus: Option<String>,
    /// Number of columns.
    pub board_x_size: usize,
    /// Number of rows.
    pub board_y_size: usize,
    /// Numbers of moves before the positions to analyse; without them, the last position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analyze_turns: Option<Vec<usize>>,
    /// Maximum number of simulations per position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_visits: Option<u64>,
    /// True to report the network priors.
    #[serde(default)]
    pub include_policy: bool,
    /// True to report the visits of each ply in a variation.
    #[serde(default, rename = "includePVVisits")]
    pub include_pv_visits: bool,
    /// Moves that are not searched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid_moves: Vec<MoveRestriction>,
    /// The only moves to search, at most one entry per player.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_moves: Vec<MoveRestriction>,
    /// Seconds between reports during a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_during_search_every: Option<f64>,
    /// Priority; positions with higher priorities are searched first.
    #[serde(default)]
    pub priority: i64,
    /// Priority of each entry in `analyze_turns`, in place of `priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priorities: Option<Vec<i64>>,
    /// Settings of this query.
    #[serde(default)]
    pub override_settings: OverrideSettings,
}

/// Settings of one query that replace the session's. Fields have the names and meanings of KataGo's configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideSettings {
    /// Side for reported values: `BLACK`, `WHITE` or `SIDETOMOVE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_analysis_winrates_as: Option<String>,
    /// Maximum number of simulations per position, for a query without `max_visits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_visits: Option<u64>,
    /// Maximum time per position, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time: Option<f64>,
    /// All other settings, which are ignored.
    #[serde(flatten)]
    pub ignored: Map<String, Value>,
}

/// A restriction on the moves of a player.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveRestriction {
    /// Player, `B` or `W`.
    pub player: String,
    /// Moves in the notation of the game.
    pub moves: Vec<String>,
    /// Number of plies within which the restriction applies; ignored, since only the searched position is restricted.
    pub until_depth: u32,
}

/// A message about a field of a query: an error or a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldMessage {
    pub(super) field: String,
    pub(super) message: String,
}

impl FieldMessage {
    pub(super) fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// Removes and returns a field of an object; `None` if it is missing or null.
pub(super) fn take<T: DeserializeOwned>(
    object: &mut Map<String, Value>,
    field: &str,
) -> Result<Option<T>, FieldMessage> {
    match object.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => serde_json::from_value(value).map(Some).map_err(|_| FieldMessage::new(field, expected(field))),
    }
}

/// Returns the message for a field with a value of another type.
fn expected(field: &str) -> &'static str {
    match field {
        "moves" | "initialStones" => r#"expected pairs of a player and a move, such as ["B", "C3"]"#,
        "avoidMoves" | "allowMoves" => "expected objects with `player`, `moves` and `untilDepth`",
        "analyzeTurns" | "turnNumbers" | "priorities" => "expected whole numbers",
        "boardXSize" | "boardYSize" | "maxVisits" | "priority" => "expected a whole number",
        "komi" | "reportDuringSearchEvery" => "expected a number",
        "includePolicy" | "includePVVisits" => "expected true or false",
        "overrideSettings" => "expected a text as `reportAnalysisWinratesAs` and numbers as `maxVisits` and `maxTime`",
        _ => "expected a text",
    }
}

/// Removes and returns a required field.
pub(super) fn require<T: DeserializeOwned>(object: &mut Map<String, Value>, field: &str) -> Result<T, FieldMessage> {
    take(object, field)?.ok_or_else(|| FieldMessage::new(field, "the field is required"))
}

impl Query {
    /// Reads a query; also returns warnings about fields without an effect.
    ///
    /// # Errors
    /// The first field that is missing or has another type.
    pub(super) fn from_object(mut object: Map<String, Value>) -> Result<(Self, Vec<FieldMessage>), FieldMessage> {
        let object = &mut object;
        let query = Self {
            id: require(object, "id")?,
            initial_stones: take(object, "initialStones")?.unwrap_or_default(),
            moves: require(object, "moves")?,
            initial_player: take(object, "initialPlayer")?,
            rules: take(object, "rules")?,
            komi: take(object, "komi")?,
            white_handicap_bonus: take_bonus(object)?,
            board_x_size: require(object, "boardXSize")?,
            board_y_size: require(object, "boardYSize")?,
            analyze_turns: take(object, "analyzeTurns")?,
            max_visits: take(object, "maxVisits")?,
            include_policy: take(object, "includePolicy")?.unwrap_or_default(),
            include_pv_visits: take(object, "includePVVisits")?.unwrap_or_default(),
            avoid_moves: take(object, "avoidMoves")?.unwrap_or_default(),
            allow_moves: take(object, "allowMoves")?.unwrap_or_default(),
            report_during_search_every: take(object, "reportDuringSearchEvery")?,
            priority: take(object, "priority")?.unwrap_or_default(),
            priorities: take(object, "priorities")?,
            override_settings: take(object, "overrideSettings")?.unwrap_or_default(),
        };
        let warning = |field: &String| {
            let is_known = IGNORED.split(' ').any(|ignored| ignored == field);
            FieldMessage::new(field, if is_known { "the field is ignored" } else { "the field is unknown" })
        };
        Ok((query, object.keys().map(warning).collect()))
    }
}

/// Removes and returns the bonus, which may also be the number 0.
fn take_bonus(object: &mut Map<String, Value>) -> Result<Option<String>, FieldMessage> {
    let field = "whiteHandicapBonus";
    let Some(bonus) = take::<Value>(object, field)? else { return Ok(None) };
    match bonus {
        Value::String(bonus) => Ok(Some(bonus)),
        Value::Number(bonus) => Ok(Some(bonus.to_string())),
        _ => Err(FieldMessage::new(field, "expected 0, N-1 or N")),
    }
}
