use super::super::tests::report;
use super::*;

#[test]
fn speeds_are_compared_with_the_same_writers_and_sizes() {
    let (mut now, mut earlier) = (report(), report());
    earlier.cpu = "Another CPU".to_owned();
    earlier.writers[0].inserts_per_second /= 2.0;
    earlier.writers[0].samples_per_second /= 4.0;
    earlier.sizes[0].positions += 30;
    compare(&mut now, Path::new("before.json"), &earlier);
    assert_eq!((now.writers[0].inserts_ratio, now.writers[0].samples_ratio), (Some(2.0), Some(4.0)));
    assert_eq!(now.sizes[0].samples_ratio, None);
    assert_eq!(now.compared.unwrap().cpu, "Another CPU");
}

#[test]
fn other_trajectories_are_not_compared() {
    let (mut now, mut earlier) = (report(), report());
    earlier.steps += 1;
    compare(&mut now, Path::new("before.json"), &earlier);
    assert!(now.writers.iter().all(|writers| writers.inserts_ratio.is_none()));
}
