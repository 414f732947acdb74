use super::*;

#[test]
fn board_values_are_left_alone() {
    let mut bounds = Bounds::new(ValueRange::Board);
    bounds.include(-0.5);
    bounds.include(0.75);
    assert_eq!(bounds.scale(), Scale::IDENTITY);
}

#[test]
fn normalised_values_span_zero_to_one() {
    let mut bounds = Bounds::new(ValueRange::Normalised);
    [3.0, 11.0, 7.0].into_iter().for_each(|value| bounds.include(value));
    let scale = bounds.scale();
    assert_eq!([3.0, 7.0, 11.0].map(|value| scale.apply(value)), [0.0, 0.5, 1.0]);
}

#[test]
fn one_value_alone_is_not_rescaled() {
    let mut bounds = Bounds::new(ValueRange::Normalised);
    bounds.include(42.0);
    assert_eq!(bounds.scale(), Scale::IDENTITY);
    bounds.include(43.0);
    bounds.clear();
    assert_eq!(bounds.scale(), Scale::IDENTITY);
}
