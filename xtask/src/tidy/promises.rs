//! Checks that each promise of the specification names an existing test, or is *pending*.

use super::{Source, quoted};

const SPECIFICATION: &str = "docs/specification.md";

/// Returns the rows of the specification without a test, or with a test that does not exist.
pub(super) fn unkept(sources: &[Source]) -> Vec<String> {
    let Some(specification) = sources.iter().find(|source| source.path == SPECIFICATION) else {
        return vec![format!("{SPECIFICATION} is missing")];
    };
    rows(&specification.text)
        .filter_map(|(number, keeper)| {
            let place = format!("{SPECIFICATION}:{number}");
            let tests: Vec<&str> = quoted(keeper).collect();
            if tests.is_empty() {
                return Some(format!("{place}: names no test and is not *pending*"));
            }
            let lost = tests.into_iter().find(|test| !exists(test, sources))?;
            Some(format!("{place}: there is no test `{lost}`"))
        })
        .collect()
}

/// Returns the number of promises that are not pending.
pub(super) fn kept(sources: &[Source]) -> usize {
    let specification = sources.iter().find(|source| source.path == SPECIFICATION);
    specification.map_or(0, |specification| rows(&specification.text).count())
}

/// Returns line number and last cell of each promise that is not pending.
fn rows(specification: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = specification.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    let cells =
        lines.filter_map(|(index, row)| Some((index + 1, row.trim_end_matches(['|', ' ']).rsplit('|').next()?.trim())));
    cells.filter(|(_, keeper)| {
        !keeper.is_empty() && *keeper != "kept by" && !keeper.starts_with("--") && *keeper != "*pending*"
    })
}

/// Returns true if `crate::some::path::name` is a test in that crate; the modules in the path are not checked.
fn exists(test: &str, sources: &[Source]) -> bool {
    let package = test.split("::").next().unwrap_or(test).replace('_', "-");
    let name = test.rsplit("::").next().unwrap_or(test);
    let folders = ["", "crates/", "tests/"].map(|parent| format!("{parent}{package}/"));
    sources
        .iter()
        .filter(|source| folders.iter().any(|folder| source.path.starts_with(folder)))
        .any(|source| holds_test(&source.text, name))
}

/// Returns true if a function of this name has a test attribute.
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
