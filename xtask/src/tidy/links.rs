//! Links of documents lead somewhere.

use std::path::{Component, Path, PathBuf};

use super::Source;

/// The relative links of a Markdown document whose file or heading does not exist.
pub(super) fn broken(root: &Path, document: &Source, sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, target) in targets(&document.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() {
            PathBuf::from(&document.path)
        } else {
            normalised(&Path::new(&document.path).parent().unwrap_or(Path::new("")).join(file))
        };
        if !root.join(&path).exists() {
            found.push(format!("{}:{number}: `{target}` leads nowhere", document.path));
        } else if !heading.is_empty() && has_no_heading(sources, &path, heading) {
            found.push(format!("{}:{number}: `{target}` names a heading that is not there", document.path));
        }
    }
    found
}

/// The targets of `](…)` in a document, with line numbers; code blocks hold none.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            if let Some((target, _)) = line[at + 2..].split_once(')') {
                found.push((index + 1, target.split(' ').next().unwrap_or(target)));
            }
        }
    }
    found
}

fn normalised(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                result.pop();
            }
            Component::CurDir => {}
            other => result.push(other),
        }
    }
    result
}

fn has_no_heading(sources: &[Source], path: &Path, heading: &str) -> bool {
    let document = sources.iter().find(|source| Path::new(&source.path) == path);
    document.is_some_and(|document| {
        !document.text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading)
    })
}

/// The anchor that forges give a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}
