use super::*;

#[test]
fn a_size_is_read_back() {
    let size: DenseSize = "126x64x7".parse().unwrap();
    assert_eq!(size, DenseSize(DenseShape { inputs: 126, hidden: 64, actions: 7 }));
    assert_eq!(size.to_string(), "126x64x7");
}

#[test]
fn what_is_no_size_is_answered_with_how_one_is_written() {
    for text in ["", "64", "126x64", "126x64x7x1", "126x64xseven", "-1x64x7"] {
        let error = text.parse::<DenseSize>().unwrap_err();
        assert!(error.contains(&format!("`{text}`")) && error.contains("126x64x7"), "{error}");
    }
}
