use super::*;
use crate::bench::tests::{args, parsed};

const TINY: &str = "--networks 1x16@3x3,0x32@2x3 --batches 3,1 --threads 2 --seconds 0.001 --repeats 2";

#[test]
fn a_tiny_run_measures_everything() {
    let mut seen = Vec::new();
    let report = measure(&args(TINY), |so_far| {
        seen.push(so_far.networks.len());
        Ok(())
    });
    let report = report.unwrap();
    assert_eq!(seen, [1, 2]);
    assert_eq!((report.threads, report.peers.as_deref()), (2, None));
    for network in &report.networks {
        for engine in &network.engines {
            assert_eq!(engine.not_measured, None, "{engine:?}");
            assert!(engine.at(1) > Some(0.0) && engine.at(3) > Some(0.0), "{engine:?}");
            let is_kernel = engine.engine.family() == Family::Kernel;
            assert_eq!((engine.peak.is_some(), engine.layers.len()), (is_kernel, if is_kernel { 2 } else { 0 }));
        }
        assert!(network.chosen.is_some() && network.ratios.iter().all(|ratio| ratio.batch_1.is_some()));
    }
    // 9 cells have 49 neighbours, themselves counted: 3 planes and twice 16 channels to 16.
    let tower = 49 * 16 * (3 + 2 * 16);
    // 64 channels in front of the heads, half of them to ten actions and half to 64 units and those to three outcomes.
    let heads = 9 * 16 * 64 + 9 * 32 * (10 + 64) + 64 * 3;
    assert_eq!(report.networks[0].multiply_adds, Some(tower + heads));
}

#[test]
fn the_report_is_printed_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep").join("folder");
    let one = format!("{TINY} --paths portable-f32 --out {}", out.display());
    let (mut table, mut json) = (Vec::new(), Vec::new());
    run(&args(&one), &mut table).unwrap();
    assert!(String::from_utf8(table).unwrap().contains("\n| **portable-f32** |"));
    let text = std::fs::read_to_string(out.join("kernel.md")).unwrap();
    assert!(text.contains("The kernel chooses portable-f32 (the widest)."), "{text}");
    assert!(out.join("kernel.svg").is_file() && out.join("kernel.json").is_file());
    run(&args(&format!("{one} --json")), &mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["networks"][0]["chosen"], "portable-f32");
    assert!(json["networks"][0]["engines"][0]["speeds"][0]["evaluations_per_second"].is_number());

    let (earlier, mut table) = (out.join("kernel.json"), Vec::new());
    run(&args(&format!("{TINY} --paths portable-f32 --compare {}", earlier.display())), &mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains(&format!("- ×: over {}", earlier.display())) && table.contains(" ×"), "{table}");
}

#[test]
fn peers_that_cannot_be_had_are_a_reason_in_the_report() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let line = format!("{TINY} --paths portable-f32 --peers {}", file.path().display());
    let report = measure(&args(&line), |_| Ok(())).unwrap();
    assert!(report.peers.unwrap().starts_with("not measured: make a virtual environment"));
    let others = report.networks[0].engines.iter().filter(|engine| Engine::PEERS.contains(&engine.engine));
    assert_eq!(others.filter(|engine| engine.not_measured.is_some()).count(), 3);
}

#[test]
fn a_network_that_the_kernel_does_not_take_is_measured_without_it() {
    let report = measure(&args("--networks 1x12@3x3 --batches 1 --threads 1 --seconds 0.001 --repeats 1"), |_| Ok(()));
    let network = &report.unwrap().networks[0];
    assert_eq!((network.chosen, network.multiply_adds), (None, None));
    assert!(network.reason.contains("channels"), "{}", network.reason);
    for engine in &network.engines {
        let is_kernel = engine.engine.family() == Family::Kernel;
        assert_eq!((engine.not_measured.is_some(), engine.speeds.is_empty()), (is_kernel, is_kernel));
    }
}

#[test]
fn options_that_make_no_sense_are_named() {
    let error = |line: &str| measure(&args(line), |_| Ok(())).unwrap_err().to_string();
    assert!(error("--batches 0").contains("--batches"));
    assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
    assert!(error("--repeats 0").contains("--repeats"));
    assert!(error("--seconds=-1").contains("--seconds"));
    assert!(error("--networks 1x0@3x3").contains("1x0@3x3"));
    for line in [["--networks", "6x64"], ["--paths", "sse"]] {
        assert!(parsed::<Args>(line).is_err());
    }
}
