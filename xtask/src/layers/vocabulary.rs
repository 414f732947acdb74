//! Restricted arrows: the names of a crate that another may use, where the arrow allows less than all of it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A crate's folder, the crate it uses, and all it may name of it. Tests may name more: they play.
const NAMES: [(&str, &str, &[&str]); 1] = [("crates/search", "game", &["Action", "mix"])];

/// Names that are used and may not be, one sentence each.
pub(super) fn violations(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (folder, used, allowed) in NAMES {
        let mut folders = vec![root.join(folder).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
                let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.file_name().is_some_and(|name| name != "tests.rs") {
                    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                    let file = path.strip_prefix(root).unwrap_or(&path).display();
                    let said = said(&text, used).into_iter().filter(|name| !allowed.contains(&name.as_str()));
                    found.extend(said.map(|name| format!("{file}: may not name `{used}::{name}`")));
                }
            }
        }
    }
    Ok(found)
}

/// The first names that follow `krate::` in a text, also inside braces; what is imported whole counts as `*`.
pub(super) fn said(text: &str, krate: &str) -> Vec<String> {
    let path = format!("{krate}::");
    let mut names = Vec::new();
    for (at, _) in text.match_indices(&path) {
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at + path.len()..];
        let list = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
        for item in list.unwrap_or(rest).split(',').take(if list.is_some() { usize::MAX } else { 1 }) {
            let item = item.trim();
            let end = item.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*').unwrap_or(item.len());
            if end > 0 {
                names.push(item[..end].to_owned());
            }
        }
    }
    names
}
