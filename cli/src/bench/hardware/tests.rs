use super::*;
use crate::bench::tests::{args, parsed};

const TINY: &str = "--sides 2,16 --elements 64 --towers 1x16@3x3 --dense 4x8x2 --batches 3,1 --threads 2 \
                    --seconds 0.001 --repeats 2";

#[test]
fn a_tiny_run_measures_everything() {
    let mut seen = Vec::new();
    let report = measure(&args(TINY), |so_far| {
        seen.push(so_far.workloads.len());
        Ok(())
    });
    let report = report.unwrap();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
    let names: Vec<&str> = report.workloads.iter().map(|workload| workload.workload.as_str()).collect();
    let expected = ["matrix product", "vector add", "vector multiply", "vector sum", "tower 1x16@3x3", "dense 4x8x2"];
    assert_eq!(names, expected);
    assert_eq!(report.devices[0], "cpu");
    for workload in &report.workloads {
        let sizes = match workload.kind {
            Kind::MatrixProduct => vec![2, 16],
            Kind::VectorOperation => vec![64],
            Kind::Network => vec![1, 3],
        };
        assert_eq!(workload.sizes(), sizes);
        assert!(workload.recommended.is_some() && !workload.in_words.is_empty());
        for setting in workload.settings.iter().filter(|report| report.setting.is_cpu()) {
            assert_eq!((setting.not_measured.as_deref(), setting.speeds.len()), (None, sizes.len()), "{setting:?}");
            for speed in &setting.speeds {
                assert!(speed.latency_us > 0.0 && speed.per_second > 0.0, "{setting:?}");
                assert!(speed.speed_up > Some(0.0) && speed.speed_up <= Some(1.0), "{setting:?}");
            }
        }
    }
}

#[test]
fn time_and_speed_tell_the_same() {
    let report = measure(&args(TINY), |_| Ok(())).unwrap();
    for setting in &report.workloads[0].settings {
        for speed in &setting.speeds {
            let multiply_adds = speed.per_second * speed.latency_us / 1e6;
            assert!((multiply_adds / (speed.size as f64).powi(3) - 1.0).abs() < 1e-6, "{setting:?}");
        }
    }
}

#[test]
fn the_report_is_printed_written_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep").join("folder");
    let (mut table, mut json) = (Vec::new(), Vec::new());
    run(&args(&format!("{TINY} --out {}", out.display())), &mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("\n## tower 1x16@3x3\n\nUse "), "{table}");
    assert_eq!(std::fs::read_to_string(out.join("hardware.md")).unwrap(), table);
    let svg = std::fs::read_to_string(out.join("hardware.svg")).unwrap();
    assert!(svg.contains("dense 4x8x2: evaluations/s"), "{svg}");

    let earlier = out.join("hardware.json");
    run(&args(&format!("{TINY} --json --compare {}", earlier.display())), &mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let product = &json["workloads"][0];
    assert_eq!(product["kind"], "matrix_product");
    assert_eq!(product["settings"][0]["device"], "cpu");
    assert!(product["settings"][0]["speeds"][0]["ratio"].is_number(), "{json}");
    assert_eq!(json["compared"]["file"], earlier.display().to_string());
}

#[test]
fn a_network_that_the_kernel_does_not_take_is_measured_without_it() {
    let line = TINY.replace("1x16@3x3", "1x12@3x3");
    let report = measure(&args(&line), |_| Ok(())).unwrap();
    let tower = report.workloads.iter().find(|workload| workload.workload.starts_with("tower")).unwrap();
    for setting in tower.settings.iter().filter(|report| report.setting.is_cpu()) {
        let is_libtorch = setting.setting.engine == "libtorch";
        assert_eq!((setting.not_measured.is_none(), !setting.speeds.is_empty()), (is_libtorch, is_libtorch));
    }
}

#[test]
fn options_that_make_no_sense_are_named() {
    let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
    for option in ["--sides", "--elements", "--batches", "--repeats"] {
        assert!(error(&format!("{option} 0")).contains(option));
    }
    assert!(error("--seconds=-1").contains("--seconds"));
    assert!(error("--call-seconds-max=-1").contains("--call-seconds-max"));
    assert!(error("--towers 1x0@3x3").contains("1x0@3x3"));
    assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
    for line in [["--towers", "6x64"], ["--dense", "64"], ["--threads", "-1"]] {
        assert!(parsed::<Args>(line).is_err());
    }
}
