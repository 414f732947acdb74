//! Each promise of the specification stands beside a test that exists, or the word *pending*.

use super::Source;

const SPECIFICATION: &str = "docs/specification.md";

/// The rows of the specification that name no test, or one that is nowhere.
pub(super) fn unkept(sources: &[Source]) -> Vec<String> {
    let Some(specification) = sources.iter().find(|source| source.path == SPECIFICATION) else {
        return vec![format!("{SPECIFICATION} is missing")];
    };
    let rows = specification.text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    rows.filter_map(|(index, row)| {
        let keeper = row.trim_end_matches(['|', ' ']).rsplit('|').next()?.trim();
        if keeper.is_empty() || keeper == "kept by" || keeper.starts_with("--") || keeper == "*pending*" {
            return None;
        }
        let place = format!("{SPECIFICATION}:{}", index + 1);
        let tests: Vec<&str> = keeper.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            return Some(format!("{place}: names no test and does not say *pending*"));
        }
        let lost = tests.into_iter().find(|test| !exists(test, sources))?;
        Some(format!("{place}: there is no test `{lost}`"))
    })
    .collect()
}

/// Whether `crate::some::path::name` is a test of that crate; the path between serves people.
fn exists(test: &str, sources: &[Source]) -> bool {
    let package = test.split("::").next().unwrap_or(test).replace('_', "-");
    let name = test.rsplit("::").next().unwrap_or(test);
    let folders = [format!("{package}/"), format!("crates/{package}/")];
    sources
        .iter()
        .filter(|source| folders.iter().any(|folder| source.path.starts_with(folder)))
        .any(|source| holds_test(&source.text, name))
}

/// Whether a function of this name stands below the mark of a test.
fn holds_test(text: &str, name: &str) -> bool {
    let function = format!("fn {name}(");
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_marked = |index: usize| {
        let mut attributes =
            lines[..index].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        attributes.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    };
    lines.iter().enumerate().any(|(index, line)| line.contains(&function) && is_marked(index))
}
