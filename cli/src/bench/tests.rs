use super::*;

#[test]
fn the_median_is_the_middle() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[]), None);
}
