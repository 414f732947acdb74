use super::*;

#[test]
fn images_that_nobody_has_are_refused_by_name() {
    let error = chosen(&["actors".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("actors") && error.contains("replay-server"), "{error}");
    assert_eq!(chosen(&[]).unwrap().len(), recipe::PROCESSES.len());
    assert_eq!(chosen(&["actor".to_owned()]).unwrap().len(), 1);
}
