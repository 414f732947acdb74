use serde::Deserialize;

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Report {
    cpu: String,
    speed: f64,
}

#[test]
fn a_report_is_read_back() {
    let report = Report { cpu: "a CPU".to_owned(), speed: 2.5 };
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "some", "a table", &report, |path| Ok(std::fs::write(path, "<svg/>")?)).unwrap();
    assert_eq!(read_report::<Report>(&folder.path().join("some.json"), "some").unwrap(), report);
}

#[test]
fn what_is_no_report_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.json");
    assert!(format!("{:#}", read_report::<Report>(&path, "search").unwrap_err()).contains("other.json"));
    for text in ["", "{}", r#"{"cpu": "x", "networks": []}"#] {
        std::fs::write(&path, text).unwrap();
        let error = format!("{:#}", read_report::<Report>(&path, "search").unwrap_err());
        assert!(error.contains("other.json") && error.contains("bench search --json"), "{error}");
    }
}
