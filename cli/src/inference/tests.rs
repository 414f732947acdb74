use std::time::Duration;

use clap::Parser;
use game::Action;
use proto::inference::{BatchesOfSize, InferenceStats, MoveReport, SearchReport};

use super::{Args, write_move, write_stats};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn stats_say_what_is_served_and_why_batches_are_small() {
    let stats = InferenceStats {
        game: "hex-11".into(),
        versions: vec![7, 8],
        evaluator: "tower".into(),
        asks: 3,
        batches: vec![BatchesOfSize { size: 4, full: 0, delay: 0, idle: 2, compute_time: Duration::from_micros(30) }],
        explanation: "because".into(),
        ..InferenceStats::default()
    };
    let said = text(|out| write_stats(&stats, out));
    for words in ["hex-11, weights versions 7, 8, by tower", "3 asks answered", "because", "≤ 4", " 15\n"] {
        assert!(said.contains(words), "`{words}` is missing in: {said}");
    }
    assert!(text(|out| write_stats(&InferenceStats::default(), out)).contains("no weights have come yet"));
}

#[test]
fn the_move_to_play_comes_first() {
    let best = MoveReport { notation: "d4".into(), action: Action(3), visit_count: 90, prior: 0.25, value: 0.5 };
    let report = SearchReport {
        version: 2,
        simulations: 100,
        value: 0.5,
        moves: vec![best.clone()],
        principal_variation: vec!["d4".into(), "e5".into()],
        is_finished: true,
    };
    let said = text(|out| write_move(&best, &report, out));
    assert!(said.starts_with("d4\nvalue +0.50 after 100 simulations, weights version 2; best play d4 e5\n"), "{said}");
}

#[test]
fn a_server_that_nobody_can_trust_is_refused_before_it_is_asked() {
    let line = ["inference", "stats", "--server", "https://127.0.0.1:1"];
    let error = Line::try_parse_from(line).unwrap().args.run(&mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("security.ca"), "{error}");
}
