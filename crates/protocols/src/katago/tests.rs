//! Tests of the analysis protocol: queries, actions and faults, written as lines of JSON.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::doubles::{FirstCell, Script};
use crate::{BoardGame, Color, Host};

/// Returns the messages of a session in which each line arrives after `looks` polls. Every reading advances the clock
/// by a millisecond.
fn messages_of(game: BoardGame, perspective: Perspective, looks: usize, lines: &[String]) -> Vec<Value> {
    let now = Cell::new(0);
    let clock = || {
        now.set(now.get() + 1);
        Duration::from_millis(now.get())
    };
    let host = Host { clock: &clock, read_file: &|_, _| Err(io::ErrorKind::NotFound.into()) };
    let mut output = Vec::new();
    let settings = Settings { visits: 40, perspective };
    let mut input = Script::new(&lines.join("\n"), looks);
    serve(&mut FirstCell::new(game), &mut input, &mut output, &host, &settings).unwrap();
    String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn messages(lines: &[Value]) -> Vec<Value> {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    messages_of(BoardGame::Go, Perspective::Of(Color::Black), 1, &lines)
}

fn query() -> Query {
    let pair = |player: &str, location: &str| (player.to_owned(), location.to_owned());
    Query {
        id: "foo".into(),
        moves: vec![pair("B", "A5"), pair("W", "(1,0)")],
        rules: Some(json!("tromp-taylor")),
        komi: Some(7.5),
        board_x_size: 5,
        board_y_size: 5,
        ..Query::default()
    }
}

/// Returns the query of [`query`] with other fields.
fn with(fields: &Value) -> Value {
    let mut query = serde_json::to_value(query()).unwrap();
    for (name, value) in fields.as_object().unwrap() {
        query[name] = value.clone();
    }
    query
}

#[test]
fn each_turn_of_a_query_has_one_response() {
    let responses =
        messages(&[with(&json!({ "analyzeTurns": [0, 1, 2], "includePolicy": true, "includePVVisits": true,
        "initialStones": [["W", "E1"]] }))]);
    let responses: Vec<Response> = responses.into_iter().map(|value| serde_json::from_value(value).unwrap()).collect();
    let turns: Vec<(usize, bool)> =
        responses.iter().map(|response| (response.turn_number, response.is_during_search)).collect();
    assert_eq!(turns, [(0, false), (1, false), (2, false)]);
    let root = responses[1].root_info.as_ref().unwrap();
    // White is to move, and values are for Black.
    assert_eq!((root.current_player.as_str(), root.visits), ("W", 40));
    assert_eq!((root.winrate, root.utility, root.raw_winrate), (0.375, -0.25, 0.4375));
    assert_eq!((root.this_hash.as_str(), root.sym_hash.as_str()), ("00000000000000AB", "00000000000000CD"));
    let info = &responses[1].move_infos.as_ref().unwrap()[0];
    assert_eq!((info.played.as_str(), info.visits, info.order, info.winrate), ("B5", 40, 0, 0.375));
    assert!(info.lcb > info.winrate, "the bound is cautious for White: {}", info.lcb);
    assert_eq!((&info.pv, info.pv_visits.as_deref()), (&vec!["B5".to_owned()], Some(&[40][..])));
    let policy = responses[2].policy.as_ref().unwrap();
    assert_eq!((policy.len(), policy[0], policy[1], policy[24], policy[25]), (26, -1.0, -1.0, -1.0, -1.0));
    assert!((policy.iter().filter(|prior| **prior > 0.0).sum::<f64>() - 1.0).abs() < 1e-6);
}

#[test]
fn without_turns_the_last_position_is_analysed_and_without_options_nothing_is_added() {
    let responses = messages(&[with(&json!({ "maxVisits": 9 }))]);
    assert_eq!(responses.len(), 1);
    assert_eq!((&responses[0]["turnNumber"], &responses[0]["rootInfo"]["visits"]), (&json!(2), &json!(9)));
    for absent in ["policy", "noResults"] {
        assert!(responses[0].get(absent).is_none(), "{absent}");
    }
    for absent in ["pvVisits", "pvEdgeVisits"] {
        assert!(responses[0]["moveInfos"][0].get(absent).is_none(), "{absent}");
    }
}

#[test]
fn a_higher_priority_is_searched_first_and_equal_ones_in_their_order() {
    let responses = messages(&[
        with(&json!({ "id": "low", "priority": -1 })),
        with(&json!({ "id": "mixed", "analyzeTurns": [0, 1], "priorities": [0, 5] })),
        with(&json!({ "id": "usual" })),
    ]);
    let order: Vec<(&str, u64)> = responses
        .iter()
        .map(|response| (response["id"].as_str().unwrap(), response["turnNumber"].as_u64().unwrap()))
        .collect();
    assert_eq!(order, [("mixed", 1), ("mixed", 0), ("usual", 2), ("low", 2)]);
}

#[test]
fn moves_are_avoided_or_alone_allowed() {
    let only = |field: &str, moves: Value| {
        let entry = json!([{ "player": "B", "moves": moves, "untilDepth": 1 }]);
        messages(&[with(&json!({ field: entry }))])[0]["moveInfos"][0]["move"].clone()
    };
    assert_eq!(only("avoidMoves", json!(["C5", "D5"])), json!("E5"));
    assert_eq!(only("allowMoves", json!(["A1"])), json!("A1"));
}

#[test]
fn reports_during_a_search_and_its_termination_end_with_one_final_response() {
    let lines = [
        with(&json!({ "maxVisits": 1_000_000, "reportDuringSearchEvery": 0.01 })).to_string(),
        with(&json!({ "id": "waits", "analyzeTurns": [0, 1] })).to_string(),
        json!({ "id": "t1", "action": "terminate", "terminateId": "waits", "turnNumbers": [1] }).to_string(),
        json!({ "id": "t2", "action": "terminate", "terminateId": "foo" }).to_string(),
    ];
    let messages = messages_of(BoardGame::Go, Perspective::SideToMove, 30, &lines);
    let of = |id: &str| messages.iter().filter(|message| message["id"] == id).collect::<Vec<_>>();
    let (last, during) = of("foo").split_last().map(|(last, during)| (*last, during.to_vec())).unwrap();
    assert!(during.len() >= 3 && during.iter().all(|message| message["isDuringSearch"] == true), "{during:?}");
    assert_eq!((&last["isDuringSearch"], &last["rootInfo"]["winrate"]), (&json!(false), &json!(0.625)));
    assert!(last["rootInfo"]["visits"].as_u64().unwrap() < 10_000);
    let expected = json!({ "id": "waits", "turnNumber": 1, "isDuringSearch": false, "noResults": true });
    assert_eq!(*of("waits")[0], expected);
    assert_eq!(of("waits")[1]["turnNumber"], 0);
    assert_eq!(*of("t1")[0], serde_json::from_str::<Value>(&lines[2]).unwrap());
    assert_eq!(of("t2").len(), 1);
}

#[test]
fn actions_are_echoed_with_their_answers() {
    let messages = messages(&[
        json!({ "id": "v", "action": "query_version" }),
        json!({ "id": "m", "action": "query_models" }),
        json!({ "id": "c", "action": "clear_cache", "note": 1 }),
        json!({ "id": "t", "action": "terminate_all" }),
    ]);
    let model = json!([{ "name": "first-cell 1.0", "internalName": "first-cell 1.0", "usesHumanSLProfile": false }]);
    let expected = [
        json!({ "id": "v", "action": "query_version", "version": "1.0", "git_hash": "<omitted>" }),
        json!({ "id": "m", "action": "query_models", "models": model }),
        json!({ "id": "t", "action": "terminate_all" }),
        json!({ "id": "c", "action": "clear_cache", "note": 1 }),
    ];
    assert_eq!(messages, expected);
}

#[test]
fn every_invalid_field_is_named_in_one_error() {
    let allow = |player: &str| json!({ "player": player, "moves": ["A1"], "untilDepth": 1 });
    let cases = [
        (json!({ "id": 5 }), "id"),
        (json!({ "moves": [["B"]] }), "moves"),
        (json!({ "moves": [["X", "A1"]] }), "moves"),
        (json!({ "moves": [["B", "F1"]] }), "moves"),
        (json!({ "moves": [["B", "resign"]] }), "moves"),
        (json!({ "moves": [["B", "(5,0)"]] }), "moves"),
        (json!({ "moves": [["B", "A1"], ["W", "A1"]], "analyzeTurns": [2, 2] }), "moves"),
        (json!({ "initialStones": [["B", "pass"]] }), "initialStones"),
        (json!({ "initialPlayer": "green" }), "initialPlayer"),
        (json!({ "rules": null }), "rules"),
        (json!({ "rules": 5 }), "rules"),
        (json!({ "komi": 0.3 }), "komi"),
        (json!({ "komi": 151 }), "komi"),
        (json!({ "whiteHandicapBonus": "2" }), "whiteHandicapBonus"),
        (json!({ "boardXSize": 0 }), "boardXSize"),
        (json!({ "boardYSize": -1 }), "boardYSize"),
        (json!({ "analyzeTurns": [3] }), "analyzeTurns"),
        (json!({ "priorities": [1, 2] }), "priorities"),
        (json!({ "maxVisits": 0 }), "maxVisits"),
        (json!({ "maxVisits": 1.5 }), "maxVisits"),
        (json!({ "reportDuringSearchEvery": -1.0 }), "reportDuringSearchEvery"),
        (json!({ "allowMoves": [{ "player": "B", "moves": ["A1"] }] }), "allowMoves"),
        (json!({ "allowMoves": [allow("B"), allow("W"), allow("B")] }), "allowMoves"),
        (json!({ "initialStones": {} }), "initialStones"),
        (json!({ "initialPlayer": 1 }), "initialPlayer"),
        (json!({ "komi": "6.5" }), "komi"),
        (json!({ "boardXSize": "five" }), "boardXSize"),
        (json!({ "analyzeTurns": 1 }), "analyzeTurns"),
        (json!({ "analyzeTurns": [-1] }), "analyzeTurns"),
        (json!({ "includePolicy": 1 }), "includePolicy"),
        (json!({ "priority": "high" }), "priority"),
        (json!({ "priorities": [0.5] }), "priorities"),
        (json!({ "avoidMoves": "A1" }), "avoidMoves"),
        (json!({ "whiteHandicapBonus": [] }), "whiteHandicapBonus"),
        (json!({ "overrideSettings": [1] }), "overrideSettings"),
        (json!({ "overrideSettings": { "reportAnalysisWinratesAs": "GREEN" } }), "overrideSettings"),
        (json!({ "overrideSettings": { "maxTime": -1 } }), "overrideSettings"),
        (json!({ "overrideSettings": { "maxVisits": true } }), "overrideSettings"),
        (json!({ "action": "terminate_all", "turnNumbers": {} }), "turnNumbers"),
        (json!({ "action": "dance" }), "action"),
        (json!({ "action": "terminate" }), "terminateId"),
        (json!({ "analyzeTurns": vec![0; 10_001] }), "analyzeTurns"),
    ];
    for (fields, field) in cases {
        let messages = messages(&[with(&fields)]);
        assert_eq!(messages.len(), 1, "{fields}: {messages:?}");
        let error = messages[0]["error"].as_str().unwrap();
        assert_eq!(messages[0]["field"].as_str(), Some(field), "{fields}");
        let of_rust = ["invalid", "usize", "u32", "u64", "i64", "f64", "struct", "tuple", "sequence", "map", "line 1"];
        assert!(of_rust.iter().all(|word| !error.contains(word)), "{error}");
        let id = if field == "id" { None } else { Some("foo") };
        assert_eq!(messages[0]["id"].as_str(), id, "{fields}");
    }
    let lines = ["nonsense", "[1]", "", "{\"id\":\"a\"", "\u{0}"].map(str::to_owned);
    let messages = messages_of(BoardGame::Go, Perspective::SideToMove, 1, &lines);
    assert_eq!(messages.len(), 4);
    let is_error = |message: &Value| {
        message["error"].as_str().unwrap().starts_with("the line is not a JSON object: wrong at column ")
    };
    assert!(messages.iter().all(|message| is_error(message) && message.get("field").is_none()), "{messages:?}");
}

#[test]
fn fields_without_an_effect_are_warned_about_and_the_query_is_answered() {
    let messages = messages(&[with(&json!({ "overrideSettings": { "a": 1 }, "colour": "red" }))]);
    let warning = |field: &str, text: &str| json!({ "id": "foo", "field": field, "warning": text });
    assert_eq!(messages[0], warning("colour", "the field is unknown"));
    assert_eq!(messages[1], warning("overrideSettings", "ignored: a"));
    assert_eq!((messages.len(), &messages[2]["turnNumber"]), (3, &json!(2)));
}

#[test]
fn settings_of_a_query_replace_those_of_the_session() {
    let root = |settings: Value| {
        let messages = messages(&[with(&json!({ "overrideSettings": settings, "analyzeTurns": [1] }))]);
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages[0]["rootInfo"].clone()
    };
    // White is to move.
    for (side, winrate) in [("BLACK", 0.375), ("b", 0.375), ("White", 0.625), ("SIDETOMOVE", 0.625)] {
        assert_eq!(root(json!({ "reportAnalysisWinratesAs": side }))["winrate"], winrate, "{side}");
    }
    assert_eq!(root(json!({ "maxVisits": 9 }))["visits"], 9);
    assert_eq!(root(json!({ "maxVisits": 1_u64 << 50, "maxTime": 1e20 }))["visits"], 2048);
    assert_eq!(root(json!({ "maxTime": 0.002 }))["visits"], 8, "a slice takes two readings of the clock");
    let both = messages(&[with(&json!({ "overrideSettings": { "maxVisits": 9 }, "maxVisits": 7 }))]);
    assert_eq!(both[0]["rootInfo"]["visits"], 7);
}

#[test]
fn unknown_rules_are_warned_about_and_the_query_is_answered() {
    for rules in [json!("whist"), json!("{\"ko\":\"NONE\"}"), json!({ "scoring": "STONES" }), json!("{")] {
        let messages = messages(&[with(&json!({ "rules": rules, "analyzeTurns": [0, 1] }))]);
        assert_eq!((messages.len(), &messages[0]["field"]), (3, &json!("rules")), "{messages:?}");
        assert!(messages[0]["warning"].as_str().unwrap().starts_with("unknown rules: the analysis is by {\"ko\""));
    }
    for rules in [json!("ancient-territory"), json!("ing"), json!({ "score": "AREA", "friendlyPassOk": true })] {
        assert_eq!(messages(&[with(&json!({ "rules": rules }))]).len(), 1, "{rules}");
    }
}

#[test]
fn a_position_of_another_game_needs_no_rules() {
    let line = json!({ "id": "h", "moves": [["B", "a1"], ["W", "swap-pieces"]], "boardXSize": 5, "boardYSize": 5 });
    let messages = messages_of(BoardGame::Hex, Perspective::Of(Color::White), 1, &[line.to_string()]);
    assert_eq!(messages[0]["moveInfos"][0]["move"], "b1");
    assert_eq!(messages[0]["rootInfo"]["currentPlayer"], "B");
    assert_eq!(messages[0]["rootInfo"]["winrate"], 0.375);
}
