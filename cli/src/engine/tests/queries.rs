//! Tests of sessions in KataGo's analysis protocol and in the Gomocup protocol.

use std::collections::BTreeSet;

use protocols::doubles::Script;
use protocols::katago::{self, Perspective};
use protocols::{Settings, gomocup};
use serde_json::{Value, json};

use super::*;

fn no_file(_: &str, _: u64) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::NotFound.into())
}

/// Returns the messages of a session. Each input line arrives after the session has polled the input `looks_per_line`
/// times.
fn messages(game: &str, lines: &[Value], looks_per_line: usize) -> Vec<Value> {
    let mut engine = engine(game);
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    let mut input = Script::new(&text.join("\n"), looks_per_line);
    let settings = katago::Settings { visits: 40, perspective: Perspective::Of(BLACK) };
    let text = session(&no_file, |output, host| katago::serve(&mut engine, &mut input, output, host, &settings));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns a query about a game on a board of 5x5.
fn query(id: &str, moves: Value, rest: Value) -> Value {
    let mut query = json!({
        "id": id, "moves": moves, "rules": "tromp-taylor", "komi": 7.5, "boardXSize": 5, "boardYSize": 5,
    });
    for (field, value) in rest.as_object().unwrap() {
        query[field] = value.clone();
    }
    query
}

/// Returns the field names of an object.
fn fields(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Fields in a response with a policy, named as in KataGo's protocol.
const RESPONSE_FIELDS: [&str; 6] = ["id", "isDuringSearch", "moveInfos", "policy", "rootInfo", "turnNumber"];
/// Fields of `rootInfo` with numeric values.
const ROOT_NUMBERS: [&str; 8] =
    ["rawWinrate", "scoreLead", "scoreSelfplay", "scoreStdev", "utility", "visits", "weight", "winrate"];
const ROOT_TEXTS: [&str; 3] = ["currentPlayer", "symHash", "thisHash"];
/// Fields in each element of `moveInfos` if the query sets `includePVVisits`.
const MOVE_FIELDS: [&str; 18] = [
    "edgeVisits",
    "edgeWeight",
    "lcb",
    "move",
    "order",
    "prior",
    "pv",
    "pvEdgeVisits",
    "pvVisits",
    "scoreLead",
    "scoreMean",
    "scoreSelfplay",
    "scoreStdev",
    "utility",
    "utilityLcb",
    "visits",
    "weight",
    "winrate",
];

/// Checks the values of a move on 5x5, from the perspective of the player to move, against each other and the policy.
fn check_move_info(info: &Value, policy: &Value) {
    assert_eq!(fields(info), BTreeSet::from(MOVE_FIELDS), "{info}");
    let number = |field: &str| info[field].as_f64().unwrap();
    let all_are = |fields: &[&str], value: f64| fields.iter().all(|field| number(field) == value);
    assert!(number("visits") >= 1.0 && all_are(&["edgeVisits", "edgeWeight", "weight"], number("visits")), "{info}");
    assert!(all_are(&["scoreLead", "scoreMean", "scoreSelfplay", "scoreStdev"], 0.0), "none is predicted: {info}");
    let is_utility_of = |field, winrate| (number(field) - (2.0 * number(winrate) - 1.0)).abs() < 1e-6;
    assert!(is_utility_of("utility", "winrate") && is_utility_of("utilityLcb", "lcb"), "{info}");
    assert!((0.0..=1.0).contains(&number("winrate")) && number("lcb") <= number("winrate"), "{info}");
    let size = Size::square(5).unwrap();
    let index = match BoardGame::Go.parse_move(size, info["move"].as_str().unwrap()).unwrap() {
        Move::Place(cell) => size.index(cell),
        _ => size.len(),
    };
    assert_eq!(info["prior"], policy[index], "{info}");
    let (pv, visits) = (info["pv"].as_array().unwrap(), info["pvVisits"].as_array().unwrap());
    assert_eq!((&pv[0], &visits[0], pv.len()), (&info["move"], &info["visits"], visits.len()), "{info}");
    assert_eq!(info["pvEdgeVisits"], info["pvVisits"], "{info}");
}

#[test]
fn a_query_is_answered_with_the_documented_fields() {
    let moves = json!([["B", "C3"], ["W", "B2"]]);
    let rest = json!({
        "analyzeTurns": [0, 2], "includePolicy": true, "includeOwnership": true, "includePVVisits": true,
        "maxVisits": 60,
    });
    let messages = messages("go-5", &[query("q", moves, rest)], 1);
    let warning = "the field is ignored";
    assert_eq!(messages[0], json!({ "id": "q", "field": "includeOwnership", "warning": warning }));
    let responses = &messages[1..];
    assert_eq!(responses.len(), 2, "{responses:?}");
    for (response, turn, legal) in [(&responses[0], 0, 25), (&responses[1], 2, 23)] {
        assert_eq!(fields(response), BTreeSet::from(RESPONSE_FIELDS));
        assert_eq!((&response["id"], &response["turnNumber"]), (&json!("q"), &json!(turn)));
        assert_eq!(response["isDuringSearch"], json!(false));
        let root = &response["rootInfo"];
        assert_eq!(fields(root), ROOT_NUMBERS.into_iter().chain(ROOT_TEXTS).collect::<BTreeSet<_>>());
        assert_eq!((&root["visits"], &root["currentPlayer"]), (&json!(60), &json!("B")));
        assert!(ROOT_NUMBERS.iter().all(|field| root[field].is_number()), "{root}");
        assert!(["thisHash", "symHash"].iter().all(|hash| root[hash].as_str().unwrap().len() == 16), "{root}");
        let infos = response["moveInfos"].as_array().unwrap();
        let visits: u64 = infos.iter().map(|info| info["visits"].as_u64().unwrap()).sum();
        assert_eq!((visits, &infos[0]["order"]), (60, &json!(0)));
        assert!(infos.iter().map(|info| info["order"].as_u64().unwrap()).is_sorted_by(|a, b| a < b), "{infos:?}");
        infos.iter().for_each(|info| check_move_info(info, &response["policy"]));
        // The policy has a number for each cell, and one for the pass.
        let policy: Vec<f64> = response["policy"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).collect();
        assert_eq!((policy.len(), policy.iter().filter(|share| **share >= 0.0).count()), (26, legal + 1));
        assert!((policy.iter().filter(|share| **share >= 0.0).sum::<f64>() - 1.0).abs() < 1e-4);
    }
}

#[test]
fn stones_restrictions_priorities_and_faults_of_queries_are_understood() {
    let stones = json!({ "initialStones": [["B", "B2"], ["B", "D4"]], "initialPlayer": "W" });
    let allowed = [json!({ "player": "B", "moves": ["A1"], "untilDepth": 1 })];
    let allowed = json!({ "allowMoves": allowed, "includePolicy": true });
    let lines = [
        query("handicap", json!([]), stones),
        query("allowed", json!([]), allowed),
        query("illegal", json!([["B", "C3"], ["W", "C3"]]), json!({})),
        query("japanese", json!([["B", "C3"]]), json!({ "rules": "japanese", "analyzeTurns": [0, 1] })),
        query("button", json!([]), json!({ "rules": { "hasButton": true, "tax": "ALL", "suicide": false } })),
        query("chinese", json!([]), json!({ "rules": "chinese" })),
        query("size", json!([]), json!({ "boardXSize": 9, "boardYSize": 9 })),
        query("urgent", json!([]), json!({ "priority": 5 })),
        json!({ "id": "v", "action": "query_version" }),
        json!({ "id": "m", "action": "query_models" }),
        json!({ "id": "c", "action": "clear_cache" }),
    ];
    let messages = messages("go-5", &lines, 1);
    let of = |id: &str| messages.iter().find(|message| message["id"] == id).unwrap();
    assert_eq!(of("handicap")["rootInfo"]["currentPlayer"], "W");
    assert_eq!(of("allowed")["moveInfos"].as_array().unwrap().len(), 1);
    assert_eq!(of("allowed")["moveInfos"][0]["move"], "A1");
    // The restriction applies to the search, but not to the reported policy.
    let policy = of("allowed")["policy"].as_array().unwrap();
    assert_eq!(policy.iter().filter(|prior| prior.as_f64().unwrap() >= 0.0).count(), 26);
    for (id, reason, field) in [
        ("illegal", "Illegal move 1: C3: illegal move", json!("moves")),
        ("size", "the network plays on boards of 5 x 5 cells", Value::Null),
    ] {
        assert_eq!((&of(id)["error"], &of(id)["field"]), (&json!(reason), &field));
    }
    let nearest = |ko: &str| {
        let rules =
            format!("{{\"ko\":\"{ko}\",\"scoring\":\"AREA\",\"tax\":\"NONE\",\"suicide\":false,\"hasButton\":false");
        let rules = format!("{rules},\"whiteHandicapBonus\":\"0\"}}");
        json!(format!("unsupported rules: the analysis is by the nearest, {rules}"))
    };
    for (id, ko, positions) in
        [("japanese", Some("SIMPLE"), 2), ("button", Some("POSITIONAL"), 1), ("chinese", None, 1)]
    {
        let own: Vec<&Value> = messages.iter().filter(|message| message["id"] == id).collect();
        let warnings: Vec<&Value> = own.iter().filter_map(|message| message.get("warning")).collect();
        assert_eq!(warnings, ko.map(nearest).iter().collect::<Vec<_>>(), "{id}");
        assert_eq!(own.iter().filter(|message| message["rootInfo"].is_object()).count(), positions, "{own:?}");
    }
    let place = |id: &str| messages.iter().position(|message| message["id"] == id);
    assert!(place("urgent") < place("handicap"));
    assert_eq!((&of("v")["version"], &of("m")["models"][0]["name"]), (&json!("7"), &json!("zerofleet test 7")));
}

#[test]
fn a_search_reports_while_it_runs_and_ends_when_it_is_terminated() {
    let endless = query("long", json!([]), json!({ "maxVisits": 1_000_000, "reportDuringSearchEvery": 0.01 }));
    let end = json!({ "id": "t", "action": "terminate", "terminateId": "long" });
    let messages = messages("go-5", &[endless, end], 10);
    assert_eq!(messages[0]["isDuringSearch"], json!(true));
    let last = messages.iter().rfind(|message| message["id"] == "long").unwrap();
    assert_eq!(last["isDuringSearch"], json!(false));
    assert!(last["rootInfo"]["visits"].as_u64().unwrap() < 10_000, "{last}");
}

/// Returns the responses of a Gomocup session, without the lines `MESSAGE`.
fn answers(text: &str) -> Vec<String> {
    let mut engine = engine("gomoku-7");
    let mut input = Script::new(text, 10);
    let settings = Settings { visits: 30, time: None, lag: Duration::from_millis(10) };
    let text = session(&no_file, |output, host| gomocup::serve(&mut engine, &mut input, output, host, &settings));
    text.lines().filter(|line| !line.starts_with("MESSAGE")).map(str::to_owned).collect()
}

#[test]
fn gomoku_is_played_by_the_protocol_of_gomocup() {
    let text = "START 15\nSTART 7\nBEGIN\nSTART 7\nTURN 3,3\nTURN 3,3\nBOARD\n0,0,2\n1,1,1\n2,2,2\n3,3,1\n0,6,2\nDONE\n\
                INFO timeout_turn 200\nRESTART\nBEGIN\nINFO rule 1\nBEGIN\nABOUT\nEND\nBEGIN";
    let answers = answers(text);
    let is_cell = |answer: &str| {
        let pair = answer.split_once(',').and_then(|(x, y)| Some((x.parse::<u8>().ok()?, y.parse::<u8>().ok()?)));
        pair.is_some_and(|(x, y)| x < 7 && y < 7)
    };
    assert_eq!(answers[..2], ["ERROR the network plays on boards of 7 x 7 cells", "OK"]);
    assert!(is_cell(&answers[2]) && is_cell(&answers[4]) && answers[4] != "3,3", "{answers:?}");
    assert_eq!((answers[3].as_str(), answers[5].as_str()), ("OK", "ERROR 3,3: illegal move"));
    assert!(is_cell(&answers[6]) && !["0,0", "1,1", "2,2", "3,3", "0,6"].contains(&answers[6].as_str()), "{answers:?}");
    assert!(answers[7] == "OK" && is_cell(&answers[8]), "{answers:?}");
    assert_eq!(answers[9..], ["ERROR only free-style Gomoku is supported", "name=\"zerofleet test\", version=\"7\""]);
}

#[test]
fn a_board_is_set_up_although_stones_of_no_player_are_next_to_four_own_ones() {
    // With the color of the four, the stone at 4,0 would complete a five.
    let board = "0,0,1\n1,0,1\n2,0,1\n3,0,1\n4,0,3\n4,1,3\n4,2,3\n4,3,3\n4,4,3\n0,6,2\n1,6,2\n2,6,2";
    let answers = answers(&format!("START 7\nINFO rule 2\nBOARD\n{board}\nDONE\nEND\n"));
    let is_cell = answers[1].split_once(',').is_some_and(|(x, y)| x.len() == 1 && y.len() == 1);
    assert!(answers.len() == 2 && is_cell, "{answers:?}");
}
