use super::super::report::Compared;
use super::super::tests::report;
use super::*;

#[test]
fn every_search_is_a_row() {
    let text = markdown(&report());
    assert!(
        text.contains("\n| game | rule | simulations per move | threads | simulations/s | bytes per node |\n"),
        "{text}"
    );
    assert!(text.contains("\n| connect_four | puct | 64 | 1 | 6.10 M | 270 |\n"), "{text}");
    assert!(text.contains("\n| 2 | 8 | 21000 |\n"), "{text}");
    assert!(!text.contains("ratio"), "{text}");
}

#[test]
fn ratios_stand_beside_what_they_are_to() {
    let mut report = report();
    report.compared = Some(Compared { file: "before.json".to_owned(), cpu: "Another CPU".to_owned() });
    report.searched[0].ratio = Some(1.254);
    let text = markdown(&report);
    assert!(text.contains("\n- ratio: to before.json, measured on Another CPU\n"), "{text}");
    assert!(text.contains("\n| connect_four | puct | 64 | 1 | 6.10 M | 270 | 1.25 |\n"), "{text}");
    assert!(text.contains("\n| connect_four | gumbel | 64 | 2 | 4.00 M | 270 | – |\n"), "{text}");
}
