use games::ConnectFour;
use inference::Wdl;
use inference::testing::{Fault, Faulty, Scripted, Uniform};

use super::*;

/// Two positions: in the first only column 4 keeps the win, in the second every column but the first loses.
const POSITIONS: &str = "\
moves,band,c1,c2,c3,c4,c5,c6,c7
12,early,-1,-1,-1,5,-1,-1,-1
1122,late,0,-2,-2,-2,-2,-2,-2
";

/// Likes the fourth column.
fn fond_of_the_middle() -> impl Evaluator {
    Scripted::new(ConnectFour::new().spec().observation, 7, |_: &[f32], legal: &[Action], priors: &mut [f32]| {
        for (action, prior) in legal.iter().zip(priors) {
            *prior = if action.0 == 3 { 0.4 } else { 0.1 };
        }
        Wdl::EVEN
    })
}

fn eval(
    text: &str,
    simulations: u32,
    format: Format,
    evaluator: &mut dyn Evaluator,
) -> (Result<Report, Error>, String) {
    let mut output = Vec::new();
    let game = ConnectFour::new();
    let report = run(&game, "some.csv", text, &Settings::new(simulations), evaluator, format, &mut output);
    (report, String::from_utf8(output).unwrap())
}

#[test]
fn without_simulations_the_likeliest_move_is_judged() {
    let (_, table) = eval(POSITIONS, 0, Format::Table, &mut fond_of_the_middle());
    assert_eq!(
        table.lines().map(str::trim_end).collect::<Vec<_>>(),
        [
            "connect_four, weights version 7 (scripted), positions of some.csv",
            "",
            "                            raw policy",
            "band       positions   keeps outcome optimal",
            "early              1         100.0 % 100.0 %",
            "late               1           0.0 %   0.0 %",
            "all                2          50.0 %  50.0 %",
        ]
    );
}

#[test]
fn with_simulations_both_are_reported() {
    let (report, table) = eval(POSITIONS, 16, Format::Table, &mut fond_of_the_middle());
    let report = report.unwrap();
    assert_eq!(report.with_search.unwrap().overall.positions, 2);
    assert_eq!(report.without_search.overall.outcome_preserving, 1);
    assert!(table.contains("16 simulations") && table.contains("raw policy"), "{table}");
}

#[test]
fn json_holds_the_same_by_band_and_overall() {
    let (report, json) = eval(POSITIONS, 0, Format::Json, &mut fond_of_the_middle());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["game"], "connect_four");
    assert_eq!(json["weights_version"], 7);
    assert_eq!(json["with_search"], serde_json::Value::Null);
    assert_eq!(json["without_search"]["overall"]["outcome_preserving_share"], 0.5);
    assert_eq!(json["without_search"]["bands"][1]["band"], "late");
    assert_eq!(json, serde_json::to_value(report.unwrap()).unwrap());
}

/// A win on the board is found by a search that knows nothing else.
#[test]
fn a_search_finds_what_the_raw_policy_does_not() {
    let text = "moves,band,c1,c2,c3,c4,c5,c6,c7\n727272,mate,-1,-1,-1,-1,-1,-1,18\n";
    let mut evaluator = Uniform::new(ConnectFour::new().spec().observation);
    let report = eval(text, 64, Format::Table, &mut evaluator).0.unwrap();
    assert_eq!(report.with_search.unwrap().overall.optimal, 1);
    assert_eq!(report.without_search.overall.optimal, 0);
}

#[test]
fn errors_say_what_is_at_fault() {
    let game = ConnectFour::new();
    let mut uniform = Uniform::new(game.spec().observation);
    let error = eval("moves\n", 0, Format::Table, &mut uniform).0.unwrap_err();
    assert!(error.to_string().starts_with("some.csv, line 1: the header is `moves`"), "{error}");
    let mut faulty = Faulty::new(game.spec().observation, Fault::Backend, 0);
    let error = eval(POSITIONS, 0, Format::Table, &mut faulty).0.unwrap_err();
    assert!(matches!(error, Error::Evaluator(inference::Error::Backend(_))), "{error}");
}
