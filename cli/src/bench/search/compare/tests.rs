use super::super::tests::report;
use super::*;

#[test]
fn speeds_are_compared_with_the_same_game_rule_simulations_and_threads() {
    let mut now = report();
    let mut earlier = report();
    earlier.cpu = "Another CPU".to_owned();
    earlier.searched.reverse();
    earlier.searched.iter_mut().for_each(|searched| searched.simulations_per_second /= 2.0);
    earlier.searched.retain(|searched| searched.threads == 1);
    compare(&mut now, Path::new("before.json"), &earlier);
    for searched in &now.searched {
        assert_eq!(searched.ratio, (searched.threads == 1).then_some(2.0), "{searched:?}");
    }
    assert!(now.together.iter().all(|searched| searched.ratio == Some(1.0)), "{now:?}");
    let compared = now.compared.unwrap();
    assert_eq!((compared.file.as_str(), compared.cpu.as_str()), ("before.json", "Another CPU"));
}
