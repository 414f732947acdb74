use std::time::Duration;

use game::Action;

use crate::convert::{Invalid, at_most, inside, invalid, required, time_to_ms};
use crate::inference::v1::position;
use crate::inference::{Moves, SearchQuery, v1};
use crate::limits::{ACTIONS_MAX, NAME_BYTES_MAX, STEPS_MAX};

/// Maximum length of a move in notation, in bytes.
const NOTATION_BYTES_MAX: usize = 64;

fn action(field: String, value: u32) -> Result<Action, Invalid> {
    u16::try_from(value).map(Action).map_err(|_| invalid(field, format!("{value} is not below {ACTIONS_MAX}")))
}

fn position_to_wire(game: Option<String>, moves: Moves) -> v1::Position {
    let moves = match moves {
        Moves::Actions(actions) => {
            position::Moves::Actions(v1::ActionList { actions: actions.into_iter().map(|a| u32::from(a.0)).collect() })
        }
        Moves::Notation(moves) => position::Moves::Notation(v1::NotationList { moves }),
    };
    v1::Position { game: game.unwrap_or_default(), moves: Some(moves) }
}

/// Returns the name of the game, if present, and the moves; a position without moves is the start position.
fn position_from_wire(position: Option<v1::Position>) -> Result<(Option<String>, Moves), Invalid> {
    let v1::Position { game, moves } = required("position", position)?;
    at_most("position.game", game.len(), "bytes", NAME_BYTES_MAX)?;
    let moves = match moves {
        None => Moves::Actions(Vec::new()),
        Some(position::Moves::Actions(v1::ActionList { actions })) => {
            at_most("position.actions", actions.len(), "entries", STEPS_MAX)?;
            let checked = actions.into_iter().enumerate();
            let checked = checked.map(|(ply, value)| action(format!("position.actions[{ply}]"), value));
            Moves::Actions(checked.collect::<Result<_, _>>()?)
        }
        Some(position::Moves::Notation(v1::NotationList { moves })) => {
            at_most("position.notation", moves.len(), "entries", STEPS_MAX)?;
            if let Some(ply) = moves.iter().position(|text| text.len() > NOTATION_BYTES_MAX) {
                let field = format!("position.notation[{ply}]");
                return Err(invalid(field, format!("has more than {NOTATION_BYTES_MAX} bytes")));
            }
            Moves::Notation(moves)
        }
    };
    Ok(((!game.is_empty()).then_some(game), moves))
}

fn query(position: Option<v1::Position>, simulations: u32, milliseconds: u32) -> Result<SearchQuery, Invalid> {
    let (game, moves) = position_from_wire(position)?;
    Ok(SearchQuery {
        game,
        moves,
        simulations: (simulations > 0).then_some(simulations),
        time: (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into())),
    })
}

impl From<SearchQuery> for v1::SelectMoveRequest {
    fn from(SearchQuery { game, moves, simulations, time }: SearchQuery) -> Self {
        Self {
            position: Some(position_to_wire(game, moves)),
            simulations: simulations.unwrap_or(0),
            milliseconds: time_to_ms(time),
        }
    }
}

impl TryFrom<v1::SelectMoveRequest> for SearchQuery {
    type Error = Invalid;

    fn try_from(message: v1::SelectMoveRequest) -> Result<Self, Invalid> {
        let v1::SelectMoveRequest { position, simulations, milliseconds } = message;
        query(position, simulations, milliseconds)
    }
}

/// Returns the query and the report interval.
///
/// # Errors
/// [`Invalid`] names the field.
pub fn analyse_from_wire(message: v1::AnalyseRequest) -> Result<(SearchQuery, Option<Duration>), Invalid> {
    let v1::AnalyseRequest { position, simulations, milliseconds, interval_milliseconds } = message;
    let interval = (interval_milliseconds > 0).then(|| Duration::from_millis(interval_milliseconds.into()));
    Ok((query(position, simulations, milliseconds)?, interval))
}

fn finite(field: &str, values: &[f32]) -> Result<(), Invalid> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(invalid(format!("{field}[{index}]"), "is not finite")),
        None => Ok(()),
    }
}

/// Checks that all values in a report are finite and all actions in range.
fn checked(report: v1::Analysis) -> Result<v1::Analysis, Invalid> {
    finite("value", &[report.value])?;
    for (i, each) in report.moves.iter().enumerate() {
        finite("value", &[each.prior, each.value]).map_err(inside(format!("moves[{i}]")))?;
        action(format!("moves[{i}].action"), each.action)?;
    }
    Ok(report)
}

pub(crate) fn selected_from_wire(message: v1::SelectMoveResponse) -> Result<(v1::MoveAnalysis, v1::Analysis), Invalid> {
    let v1::SelectMoveResponse { r#move: _, action: index, analysis } = message;
    let report = checked(required("analysis", analysis)?).map_err(inside("analysis"))?;
    let best = report.moves.iter().find(|report| report.action == index);
    let best = best.cloned().ok_or_else(|| invalid("action", format!("{index} is not among the moves")))?;
    Ok((best, report))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use game::Action;

    use super::{analyse_from_wire, checked, selected_from_wire};
    use crate::inference::{Moves, SearchQuery, v1};

    fn report() -> v1::Analysis {
        let moves = [(3, 40), (5, 2)].map(|(action, visit_count)| v1::MoveAnalysis {
            r#move: format!("m{action}"),
            action,
            visit_count,
            prior: 0.5,
            value: -0.25,
        });
        v1::Analysis {
            version: 9,
            simulations: 42,
            value: 0.125,
            moves: moves.to_vec(),
            principal_variation: vec!["m3".into(), "m5".into()],
            finished: true,
        }
    }

    fn selected() -> v1::SelectMoveResponse {
        v1::SelectMoveResponse { r#move: "m3".into(), action: 3, analysis: Some(report()) }
    }

    #[test]
    fn search_queries_and_analyses_come_back_as_they_were_sent() {
        for moves in [Moves::Actions(vec![Action(3), Action(65_535)]), Moves::Notation(vec!["d4".into()])] {
            let query = SearchQuery {
                game: Some("hex-11".into()),
                moves,
                simulations: Some(100),
                time: Some(Duration::from_millis(250)),
            };
            let wire = v1::SelectMoveRequest::from(query.clone());
            assert_eq!(SearchQuery::try_from(wire.clone()).unwrap(), query);
            let v1::SelectMoveRequest { position, simulations, milliseconds } = wire;
            let wire = v1::AnalyseRequest { position, simulations, milliseconds, interval_milliseconds: 50 };
            assert_eq!(analyse_from_wire(wire).unwrap(), (query, Some(Duration::from_millis(50))));
        }
        assert_eq!(selected_from_wire(selected()).unwrap(), (report().moves[0].clone(), report()));
    }

    #[test]
    fn a_search_query_without_moves_is_for_the_start_position() {
        let wire =
            v1::SelectMoveRequest { position: Some(v1::Position::default()), ..v1::SelectMoveRequest::default() };
        let query = SearchQuery::try_from(wire).unwrap();
        assert_eq!(query, SearchQuery { game: None, moves: Moves::Actions(vec![]), simulations: None, time: None });
    }

    #[test]
    fn a_field_that_is_wrong_is_named() {
        let refused = |position: Option<v1::Position>| {
            let wire = v1::SelectMoveRequest { position, ..v1::SelectMoveRequest::default() };
            SearchQuery::try_from(wire).unwrap_err().to_string()
        };
        let actions = |actions| Some(v1::position::Moves::Actions(v1::ActionList { actions }));
        let notation = |moves| Some(v1::position::Moves::Notation(v1::NotationList { moves }));
        let position = |moves| Some(v1::Position { game: String::new(), moves });
        assert!(refused(None).contains("position"));
        assert!(refused(position(actions(vec![1, 70_000]))).contains("position.actions[1]"));
        assert!(refused(position(actions(vec![1; 70_000]))).contains("position.actions"));
        assert!(refused(position(notation(vec!["x".repeat(65)]))).contains("position.notation[0]"));
        assert!(refused(Some(v1::Position { game: "x".repeat(300), moves: None })).contains("position.game"));

        let mut wire = report();
        wire.moves[1].value = f32::NAN;
        assert!(checked(wire).unwrap_err().to_string().contains("moves[1]"));
        let other = v1::SelectMoveResponse { action: 7, ..selected() };
        assert!(selected_from_wire(other).unwrap_err().to_string().contains("action"));
    }
}
