//! Input of KataGo's analysis protocol, to an engine for tests.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use protocols::doubles::FirstCell;
use protocols::katago::{LINE_BYTES_MAX, Perspective, Query, Response, Settings, serve};
use protocols::{BoardGame, Color, Host, Lines};
use serde_json::Value;

/// Checks that any bytes get JSON objects as responses, and that a query without an error has one final response per
/// position. A line that is a query must be read back as written.
///
/// The first byte chooses the game and the perspective.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let game = BoardGame::ALL[usize::from(kind % 4)];
    let perspective = if kind < 128 { Perspective::SideToMove } else { Perspective::Of(Color::Black) };
    let now = Cell::new(1_u64);
    let clock = || {
        now.set((now.get() * 2).min(1 << 40));
        Duration::from_millis(now.get())
    };
    let host = Host { clock: &clock, read_file: &|_, _| Err(io::ErrorKind::NotFound.into()) };
    let (mut input, mut output) = (Lines::new(bytes, LINE_BYTES_MAX), Vec::new());
    let settings = Settings { visits: 2, perspective };
    serve(&mut FirstCell::new(game), &mut input, &mut output, &host, &settings).expect("a vector takes all output");
    let lines: Vec<String> =
        bytes.split(|&byte| byte == b'\n').map(|line| String::from_utf8_lossy(line).into()).collect();
    for query in lines.iter().filter_map(|line| serde_json::from_str::<Query>(line).ok()) {
        let again: Query =
            serde_json::from_value(serde_json::to_value(&query).expect("it is JSON")).expect("it is a query");
        assert_eq!(again, query);
    }
    let mut finals: BTreeMap<String, usize> = BTreeMap::new();
    let mut errors = Vec::new();
    for line in String::from_utf8(output).expect("output is UTF-8").lines() {
        let message: Value = serde_json::from_str(line).expect("a line is JSON");
        let is_known = ["error", "warning", "action", "turnNumber"].iter().any(|field| message.get(field).is_some());
        assert!(is_known, "{message}");
        let id = message["id"].as_str().unwrap_or_default().to_owned();
        if message.get("error").is_some() {
            errors.push(id);
        } else if message.get("isDuringSearch") == Some(&Value::Bool(false)) {
            let _: Response = serde_json::from_value(message).expect("a response");
            *finals.entry(id).or_default() += 1;
        }
    }
    finals.retain(|id, _| !errors.contains(id));
    for (id, count) in finals {
        let expected: usize = lines.iter().map(|line| positions(line, &id)).sum();
        assert_eq!(count, expected, "{id}");
    }
}

/// Returns the number of positions that a line requests, if it is a query with this id.
fn positions(line: &str, id: &str) -> usize {
    let Ok(query) = serde_json::from_str::<Value>(line) else { return 0 };
    if query.get("action").is_some() || query["id"].as_str() != Some(id) {
        return 0;
    }
    query["analyzeTurns"].as_array().map_or(1, Vec::len)
}

/// Returns queries and every action.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let query =
        r#"{"id":"a","moves":[["B","C3"],["W","(0,1)"]],"rules":"chinese","komi":6.5,"boardXSize":5,"boardYSize":4"#;
    let lines = [
        format!("\0{query},\"analyzeTurns\":[0,1,2],\"includePolicy\":true,\"includeOwnership\":true}}\n"),
        format!("\0{query},\"initialStones\":[[\"W\",\"A1\"]],\"priority\":3,\"includePVVisits\":true,\"x\":1}}\n"),
        format!(
            "\u{1}{query},\"avoidMoves\":[{{\"player\":\"B\",\"moves\":[\"A1\"],\"untilDepth\":2}}],\"maxVisits\":9}}\n"
        ),
        format!("\u{3}{query},\"reportDuringSearchEvery\":0.5,\"analyzeTurns\":[2],\"priorities\":[1]}}\n"),
        format!("\0{query}}}\n{{\"id\":\"t\",\"action\":\"terminate\",\"terminateId\":\"a\",\"turnNumbers\":[0,2]}}\n"),
        format!(
            "\0{query},\"overrideSettings\":{{\"reportAnalysisWinratesAs\":\"SIDETOMOVE\",\"maxTime\":0.1,\"a\":1}}}}\n"
        ),
        "\0{\"id\":\"v\",\"action\":\"query_version\"}\n{\"id\":\"m\",\"action\":\"query_models\"}\n".into(),
        "\0{\"id\":\"c\",\"action\":\"clear_cache\"}\n{\"id\":\"t\",\"action\":\"terminate_all\"}\nnonsense\n".into(),
    ];
    lines.into_iter().map(String::into_bytes).collect()
}
