use std::time::Duration;

use game::Action;

use super::{analyse_from_wire, analyse_to_wire, selected_from_wire, selected_to_wire};
use crate::inference::{MoveReport, Moves, SearchQuery, SearchReport, v1};

fn report() -> SearchReport {
    let moves = [(3, 40), (5, 2)].map(|(action, visit_count)| MoveReport {
        notation: format!("m{action}"),
        action: Action(action),
        visit_count,
        prior: 0.5,
        value: -0.25,
    });
    SearchReport {
        version: 9,
        simulations: 42,
        value: 0.125,
        moves: moves.to_vec(),
        principal_variation: vec!["m3".into(), "m5".into()],
        is_finished: true,
    }
}

#[test]
fn questions_and_answers_come_back_as_they_were_sent() {
    for moves in [Moves::Actions(vec![Action(3), Action(65_535)]), Moves::Notation(vec!["d4".into()])] {
        let query = SearchQuery {
            game: Some("hex-11".into()),
            moves,
            simulations: Some(100),
            time: Some(Duration::from_millis(250)),
        };
        let wire = v1::SelectMoveRequest::from(query.clone());
        assert_eq!(SearchQuery::try_from(wire).unwrap(), query);
        let interval = Some(Duration::from_millis(50));
        assert_eq!(analyse_from_wire(analyse_to_wire(query.clone(), interval)).unwrap(), (query, interval));
    }
    let selected = selected_to_wire(&report().moves[0], report());
    assert_eq!(selected_from_wire(selected).unwrap(), (report().moves[0].clone(), report()));
}

#[test]
fn a_question_without_moves_is_about_the_start() {
    let wire = v1::SelectMoveRequest { position: Some(v1::Position::default()), ..v1::SelectMoveRequest::default() };
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

    let mut wire = v1::Analysis::from(report());
    wire.moves[1].value = f32::NAN;
    assert!(SearchReport::try_from(wire).unwrap_err().to_string().contains("moves[1]"));
    let other = v1::SelectMoveResponse { action: 7, ..selected_to_wire(&report().moves[0], report()) };
    assert!(selected_from_wire(other).unwrap_err().to_string().contains("action"));
}
