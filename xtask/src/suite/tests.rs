//! Claims about the summary.

use super::Summary;

#[test]
fn closing_lines_of_all_test_binaries_are_summed() {
    let mut summary = Summary::default();
    for line in [
        "running 3 tests",
        "test tests::a ... ok",
        "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.50s",
    ] {
        summary.add(line);
    }
    assert_eq!(summary, Summary { passed: 4, failed: 2, ignored: 1 });
    assert_eq!(summary.to_string(), "4 passed, 2 failed, 1 skipped");
}
