use super::super::report::Compared;
use super::super::tests::report;
use super::*;

#[test]
fn every_number_of_writers_and_every_size_is_a_row() {
    let text = markdown(&report());
    assert!(
        text.contains("\n| 4 | 20000 | 3.20, 9.80 ms | 400000 | 0.60, 1.10 ms | 90000 | 2.00, 5.00 ms |\n"),
        "{text}"
    );
    assert!(text.contains("\n| 1000020 | 390000 | 0.60, 1.20 ms | 25 MB | 0.01 s | 0.90 s |\n"), "{text}");
    assert!(text.contains("\n| alone | 8000 | 300000 | 120 MB |\n"), "{text}");
    assert!(text.contains("\n| beside a sampler that reads nothing | 7900 | 299000 | – |\n"), "{text}");
    assert!(!text.contains('×'), "{text}");
}

#[test]
fn ratios_stand_beside_what_they_are_to() {
    let mut report = report();
    report.compared = Some(Compared { file: "before.json".to_owned(), cpu: "Another CPU".to_owned() });
    report.writers[0].inserts_ratio = Some(1.254);
    let text = markdown(&report);
    assert!(text.contains("\n- ×: over before.json, measured on Another CPU\n"), "{text}");
    assert!(text.contains("| 20000 ×1.25 |"), "{text}");
}
