use super::*;

#[test]
fn times_are_told_for_the_first_and_for_shares_of_the_subscribers() {
    let begun = Instant::now();
    let held = |milliseconds| Held { at: begun + Duration::from_millis(milliseconds), bytes: 1 };
    let held: Vec<Held> = (1..=100).map(held).collect();
    let told = quantiles(begun, &held);
    assert_eq!(told, [(1, 0.001), (10, 0.01), (25, 0.025), (50, 0.05), (75, 0.075), (90, 0.09), (100, 0.1)]);
    assert_eq!(quantiles(begun, &held[..1]), [(1, 0.001)]);
    assert_eq!(quantiles(begun, &[]), []);
}
