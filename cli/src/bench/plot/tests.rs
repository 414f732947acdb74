use super::*;

#[test]
fn round_numbers_are_one_two_and_five_of_each_decade() {
    assert_eq!(round_numbers(1.2, 3.1).map(short).collect::<Vec<_>>(), ["20", "50", "100", "200", "500", "1.0k"]);
}

#[test]
fn labels_are_short() {
    let labels = [2.34, 950.4, 1234.0, 31_204.0, 951_000.0, 1_234_567.0].map(short);
    assert_eq!(labels, ["2.3", "950", "1.2k", "31k", "951k", "1.2M"]);
}

#[test]
fn a_picture_without_panels_or_speeds_is_drawn_too() {
    let folder = tempfile::tempdir().unwrap();
    let line = Line { name: "nothing".to_owned(), colour: COLOURS[0], width: 1, speeds: Vec::new() };
    let panel = Panel { title: "empty".to_owned(), sizes: "size", lines: vec![line] };
    for panels in [vec![], vec![panel]] {
        draw(&folder.path().join("plot.svg"), "Nothing", &panels).unwrap();
    }
}
