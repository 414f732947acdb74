use super::*;
use crate::bench::tests::{args, parsed};

const TINY: &str = "--games tic_tac_toe,hex-3 --simulations 4,16 --threads 1,2 --blocks 1 --channels 16 \
    --together-simulations 20 --seconds 0.001 --repeats 2";

/// A report of made-up numbers.
pub(super) fn report() -> Report {
    let searched = |rule, threads, millions: f64| Searched {
        game: "connect_four".to_owned(),
        rule,
        simulations: 64,
        threads,
        simulations_per_second: millions * 1e6,
        bytes_per_node: 270.4,
        ratio: None,
    };
    let together = |threads, simulations_per_second| SearchedTogether {
        game: "connect_four".to_owned(),
        network: "6x64".to_owned(),
        evaluator: "tower f32".to_owned(),
        simulations: 800,
        threads,
        leaves: 8,
        simulations_per_second,
        ratio: None,
    };
    Report {
        cpu: "Some CPU".to_owned(),
        target: "x86_64 linux".to_owned(),
        cores: 2,
        seconds: 1.0,
        repeats: 3,
        turn: Turn::Median,
        seed: 7,
        compared: None,
        searched: vec![
            searched(Rule::Puct, 1, 6.1),
            searched(Rule::Puct, 2, 12.0),
            searched(Rule::Gumbel, 1, 2.0),
            searched(Rule::Gumbel, 2, 4.0),
        ],
        together: vec![together(1, 11_000.0), together(2, 21_000.0)],
    }
}

#[test]
fn a_tiny_run_measures_everything() {
    let report = measure(&args(TINY)).unwrap();
    assert_eq!(report.searched.len(), 2 * 2 * 2 * 2);
    for searched in &report.searched {
        assert!(searched.simulations_per_second > 0.0, "{searched:?}");
        // A node without its edges is 64 bytes; nine actions and a swap have two octets of 192.
        assert!((64.0..64.0 + 2.0 * 192.0 + 200.0).contains(&searched.bytes_per_node), "{searched:?}");
    }
    let teams: Vec<_> = report.together.iter().map(|searched| (searched.threads, searched.leaves)).collect();
    assert_eq!(teams, [(1, 1), (1, 8), (2, 1), (2, 8)]);
    assert!(report.together.iter().all(|searched| searched.simulations_per_second > 0.0), "{report:?}");
}

#[test]
fn the_report_is_printed_written_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep").join("folder");
    let (mut table, mut json) = (Vec::new(), Vec::new());
    run(&args(&format!("{TINY} --out {}", out.display())), &mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("\n| hex-3 | gumbel | 16 | 2 |"), "{table}");
    assert_eq!(std::fs::read_to_string(out.join("search.md")).unwrap(), table);
    let svg = std::fs::read_to_string(out.join("search.svg")).unwrap();
    assert!(svg.contains("hex-3") && svg.contains("gumbel, 2 threads"), "{svg}");

    let earlier = out.join("search.json");
    run(&args(&format!("{TINY} --json --compare {}", earlier.display())), &mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert!(json["searched"][0]["ratio"].is_number(), "{json}");
    assert_eq!(json["compared"]["file"], earlier.display().to_string());
}

#[test]
fn equal_numbers_of_threads_are_measured_once() {
    let cores = machine::cores();
    let report = measure(&args(&format!(
        "--games tic_tac_toe --simulations 2 --rules puct --threads 0,{cores} --blocks 0 --seconds 0 --repeats 1"
    )));
    assert_eq!(report.unwrap().searched.iter().map(|searched| searched.threads).collect::<Vec<_>>(), [cores]);
}

#[test]
fn options_that_make_no_sense_are_named() {
    let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
    assert!(error("--simulations 64,0").contains("--simulations"));
    assert!(error("--leaves 0").contains("--leaves"));
    assert!(error("--repeats 0").contains("--repeats"));
    assert!(error("--seconds=-1").contains("--seconds"));
    assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
    for line in [["--games", "chess"], ["--rules", "uct"], ["--threads", "-1"]] {
        assert!(parsed::<Args>(line).is_err());
    }
}
