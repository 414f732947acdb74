use super::*;

#[test]
fn small_numbers_keep_three_digits() {
    assert_eq!([1234.5, 99.94, 4.567, 0.0123].map(number), ["1234", "99.9", "4.57", "0.01"]);
}

#[test]
fn times_are_told_in_the_unit_that_fits() {
    assert_eq!(
        [1.234, 56.78, 999.0, 12_345.0, 2_500_000.0].map(time),
        ["1.23 µs", "56.8 µs", "999 µs", "12.3 ms", "2.50 s"]
    );
}
