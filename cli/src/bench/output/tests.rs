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
    let destination = Destination { out: Some(folder.path().to_owned()), ..Destination::default() };
    let draw = |path: &Path| Ok(std::fs::write(path, "<svg/>")?);
    destination.write("some", || "a table".to_owned(), &report, draw).unwrap();
    let json = folder.path().join("some.json");
    let later = Destination { compare: Some(json.clone()), ..Destination::default() };
    assert_eq!(later.earlier::<Report>("some").unwrap(), Some((json.as_path(), report)));
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
