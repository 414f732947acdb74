use super::*;
use crate::bench::selfplay::tests::report;

#[test]
fn ratios_are_to_the_same_speeds_of_the_earlier_report() {
    let earlier = report();
    let mut now = earlier.clone();
    now.evaluator[0].evaluations_per_second *= 10.0;
    now.plain.as_mut().unwrap().evaluations_per_second *= 2.0;
    now.whole.positions_per_second *= 3.0;
    compare(&mut now, Path::new("before.json"), &earlier);
    let compared = now.compared.unwrap();
    let best = now.evaluator.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max);
    let before = earlier.evaluator.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max);
    assert_eq!(compared.evaluator, Some(best / before));
    assert_eq!((compared.plain, compared.whole), (Some(2.0), Some(3.0)));
    assert_eq!(compared.file, "before.json");
}

#[test]
fn another_network_has_no_ratio() {
    let earlier = report();
    let mut now = Report { network: "20x256".to_owned(), ..earlier.clone() };
    compare(&mut now, Path::new("before.json"), &earlier);
    let compared = now.compared.unwrap();
    assert_eq!((compared.evaluator, compared.plain, compared.whole), (None, None, None));
}
