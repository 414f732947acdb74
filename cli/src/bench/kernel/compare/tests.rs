use super::super::testing::report;
use super::*;

#[test]
fn speeds_are_compared_with_the_same_network_engine_and_batch() {
    let mut now = report();
    let text = serde_json::to_string(&now).unwrap();
    let mut earlier: Earlier = serde_json::from_str(&text).unwrap();
    earlier.cpu = "Another CPU".to_owned();
    for engine in &mut earlier.networks[0].engines {
        engine.speeds.iter_mut().for_each(|speed| speed.evaluations_per_second /= 2.0);
        engine.speeds.retain(|speed| speed.batch != 8);
    }
    compare(&mut now, Path::new("before.json"), &earlier);
    for speed in now.networks[0].engines.iter().flat_map(|engine| &engine.speeds) {
        assert_eq!(speed.ratio, (speed.batch != 8).then_some(2.0), "{speed:?}");
    }
    let compared = now.compared.unwrap();
    assert_eq!((compared.file.as_str(), compared.cpu.as_str()), ("before.json", "Another CPU"));
}

#[test]
fn other_numbers_of_threads_are_not_compared() {
    let mut now = report();
    let mut earlier: Earlier = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
    earlier.threads += 1;
    compare(&mut now, Path::new("before.json"), &earlier);
    assert!(now.networks[0].engines.iter().flat_map(|engine| &engine.speeds).all(|speed| speed.ratio.is_none()));
}
