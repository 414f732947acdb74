use super::*;

#[test]
fn labels_escapes_and_comments_are_understood() {
    let text = "# TYPE a counter\na 3\nb{part=\"policy\",who=\"say \\\"x\\\"\"} 0.5\nb{part=\"value\"} NaN\nrubbish\n";
    let exposition = Exposition::parse(text);
    assert_eq!(exposition.get("a", &[]), Some(3.0));
    assert_eq!(exposition.get("b", &[("part", "policy")]), Some(0.5));
    assert_eq!(exposition.series[1].label("who"), Some("say \"x\""));
    assert_eq!(exposition.get("b", &[("part", "value")]), None, "what is not finite counts as missing");
    assert_eq!(exposition.get("c", &[]), None);
}
