use super::*;

#[test]
fn parameters_out_of_range_are_named() {
    let said = |selector: Selector| selector.check().unwrap_err().to_string();
    let least = "is not a finite number of at least 0";
    assert_eq!(said(Selector::Prioritised { exponent: -0.5 }), format!("the exponent -0.5 of priorities {least}"));
    assert_eq!(said(Selector::Prioritised { exponent: f64::NAN }), format!("the exponent NaN of priorities {least}"));
    let above = "is not a finite number above 0";
    for (half_life_versions, shown) in [(0.0, "0"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let selector = Selector::StalenessAware { half_life_versions };
        assert_eq!(said(selector), format!("a half-life of {shown} weights versions {above}"));
    }
}

#[test]
fn selectors_without_parameters_pass() {
    for selector in [Selector::Uniform, Selector::Fifo, Selector::Lifo, Selector::MinHeap, Selector::MaxHeap] {
        assert_eq!(selector.check(), Ok(selector));
    }
}
