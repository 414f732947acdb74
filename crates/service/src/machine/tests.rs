use super::*;

#[test]
fn the_first_model_that_linux_lists_counts() {
    let text = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: other\n";
    assert_eq!(model_in(text).as_deref(), Some("AMD EPYC"));
    assert_eq!(model_in("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
}
