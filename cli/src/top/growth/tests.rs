use super::*;

/// A process that told these values of `a{part="x"}`, a second apart.
fn growth(values: &[f64]) -> Growth {
    let begin = Instant::now();
    let mut growth = Growth::default();
    for (second, value) in values.iter().enumerate() {
        let told = Exposition::parse(&format!("a{{part=\"x\"}} {value}\n"));
        growth.remember(begin + Duration::from_secs(second as u64), told);
    }
    growth
}

#[test]
fn a_rate_is_what_was_gained_since_the_first_look() {
    assert_eq!(growth(&[1000.0, 1010.0, 1020.0]).rate("a", &[]), Some(10.0), "what was there before is not of late");
    assert_eq!(growth(&[1000.0]).rate("a", &[]), None);
    assert_eq!(growth(&[1000.0, 1010.0]).rate("b", &[]), None);
}

#[test]
fn a_counter_that_begins_again_never_makes_a_negative_rate() {
    assert_eq!(growth(&[1000.0, 5.0, 15.0]).rate("a", &[]), Some(7.5));
}

#[test]
fn only_the_last_seconds_count() {
    let values: Vec<f64> = (0..100).map(|second| if second < 60 { 0.0 } else { f64::from(second) }).collect();
    let growth = growth(&values);
    assert_eq!(growth.rate("a", &[]), Some(1.0));
    assert!(growth.looks.len() <= 22, "{} looks are kept", growth.looks.len());
}

#[test]
fn rates_come_by_label() {
    let rates = growth(&[0.0, 2.0]).rates_by("a", &["part"]);
    assert_eq!(rates.into_iter().collect::<Vec<_>>(), [(vec!["x".to_owned()], 2.0)]);
    assert!(growth(&[0.0, 2.0]).rates_by("a", &["part", "table"]).is_empty());
}
