//! Checks that the relative links of documents lead to existing files and headings.

use std::fs;
use std::path::Path;

use super::Source;

/// Returns the relative links of a Markdown document that lead to no existing file or heading.
pub(super) fn broken(root: &Path, document: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (number, target) in targets(&document.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = root.join(&document.path);
        let path = if file.is_empty() { path } else { path.with_file_name(file) };
        if !path.exists() {
            found.push(format!("{}:{number}: `{target}` is a broken link", document.path));
        } else if !heading.is_empty() && has_no_heading(&path, heading) {
            found.push(format!("{}:{number}: `{target}` names a missing heading", document.path));
        }
    }
    found
}

/// Returns the targets of `](…)` in a document, with line numbers; skips code blocks.
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

/// Returns true if a text file lacks the heading; false for a binary file, which cannot be checked.
fn has_no_heading(path: &Path, heading: &str) -> bool {
    let text = fs::read_to_string(path);
    text.is_ok_and(|text| !text.lines().any(|line| line.starts_with('#') && anchor(line) == heading))
}

/// Returns the anchor that code hosting sites generate for a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}
