//! `cargo xtask tidy`: the rules of STYLE.md that a machine can check and no other tool does.
//!
//! Each rule is a function from the tree to sentences that name file and line. Start with [`violations`].

mod dashboards;
mod links;
mod metrics;
mod promises;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Beyond this many lines a source file has more than one subject.
const LINES_MAX: usize = 700;

/// Longer files, each with the reason why it is one subject all the same.
const LONG_FILES: &[(&str, &str)] = &[];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "types", "misc", "shared"];

/// A text file of the tree.
#[derive(Debug)]
struct Source {
    /// Relative to the root, with `/`.
    path: String,
    text: String,
}

/// Prints what is untidy and fails if anything is.
///
/// # Errors
/// If something is untidy or the tree cannot be read.
pub fn run(root: &Path) -> Result<()> {
    let violations = violations(root)?;
    for violation in &violations {
        println!("{violation}");
    }
    ensure!(violations.is_empty(), "{} places are untidy", violations.len());
    Ok(())
}

/// What is untidy, one sentence each, beginning with the place.
///
/// # Errors
/// If the tree cannot be read.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let sources = sources(root)?;
    let mut found = Vec::new();
    for source in &sources {
        found.extend(name_says_nothing(source));
        found.extend(machine_paths(source));
        found.extend(generated(source));
        if has_extension(&source.path, "rs") {
            found.extend(marks_without_issue(source));
            found.extend(too_long(source));
            found.extend(inline_tests(source));
        }
        if has_extension(&source.path, "md") {
            found.extend(links::broken(root, source, &sources));
        }
    }
    found.extend(promises::unkept(&sources));
    found.extend(metrics::unlisted(&sources));
    found.extend(dashboards::changed(&sources));
    Ok(found)
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Every text file that could be committed: all but hidden folders, build outputs and runs.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).with_context(|| format!("list {}", folder.display()))? {
            let entry = entry.with_context(|| format!("list {}", folder.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let at_root = folder.as_os_str().is_empty();
            let path = folder.join(&name);
            if entry.file_type().context("look at an entry")?.is_dir() {
                let output = at_root && (name.starts_with("target") || name == "runs");
                let hidden = name.starts_with('.') && ![".ci", ".cargo", ".config", ".github"].contains(&name.as_str());
                if !output && !hidden {
                    folders.push(path);
                }
            } else if name != "Cargo.lock" {
                let bytes = fs::read(root.join(&path)).with_context(|| format!("read {}", path.display()))?;
                // What is not text has no lines to complain about.
                if let Ok(text) = String::from_utf8(bytes) {
                    found.push(Source { path: path.to_string_lossy().replace('\\', "/"), text });
                }
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn name_says_nothing(source: &Source) -> Option<String> {
    let code = ["rs", "py", "sh", "proto"].iter().any(|extension| has_extension(&source.path, extension));
    let empty = |part: &str| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part));
    let part = source.path.split('/').find(|part| empty(part)).filter(|_| code)?;
    Some(format!("{}: `{part}` says nothing about what is inside: find the noun", source.path))
}

/// Paths that exist on one machine only.
fn machine_paths(source: &Source) -> Vec<String> {
    // Put together here, so that this file does not hold what it looks for.
    let folders = ["work", "root", "home", "Users"].map(|folder| format!("/{folder}/"));
    let lines = source.text.lines().enumerate();
    let hits = lines.filter(|(_, line)| {
        folders.iter().any(|folder| {
            line.match_indices(folder.as_str()).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || ".-_}".contains(c))
            })
        })
    });
    hits.map(|(number, _)| format!("{}:{}: a path of one machine", source.path, number + 1)).collect()
}

fn generated(source: &Source) -> Option<String> {
    let marks = [concat!("@", "generated"), concat!("automatically", " generated by")];
    let head = source.text.lines().take(5).collect::<Vec<_>>().join("\n");
    let name = [".pb.rs", "_pb2.py", "_pb2_grpc.py"].iter().any(|end| source.path.ends_with(end));
    (name || marks.iter().any(|mark| head.contains(mark)))
        .then(|| format!("{}: generated code is made by the build, not kept", source.path))
}

/// Work that is left over names the issue that will do it.
fn marks_without_issue(source: &Source) -> Vec<String> {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let comment = |line: &str| line.find("//").map(|at| line[at..].to_owned());
    let without_issue = |comment: String| {
        marks.iter().any(|mark| {
            let mut words = comment.split(|c: char| !c.is_alphanumeric() && c != '#' && c != '(');
            words.any(|word| word.split('(').next() == Some(mark) && !word.contains("(#"))
        })
    };
    let lines = source.text.lines().enumerate();
    lines
        .filter(|(_, line)| comment(line).is_some_and(without_issue))
        .map(|(number, _)| {
            format!("{}:{}: a mark of unfinished work names its issue: `(#12)`", source.path, number + 1)
        })
        .collect()
}

fn too_long(source: &Source) -> Option<String> {
    let lines = source.text.lines().count();
    let listed = LONG_FILES.iter().any(|(path, _)| *path == source.path);
    match (lines > LINES_MAX, listed) {
        (true, false) => Some(format!("{}: {lines} lines are more than {LINES_MAX}: two subjects?", source.path)),
        (false, true) => Some(format!("{}: is listed as long and is not", source.path)),
        _ => None,
    }
}

/// Tests sit in `foo/tests.rs` beside `foo.rs`.
fn inline_tests(source: &Source) -> Option<String> {
    let line = source.text.lines().position(|line| line.trim_end() == "mod tests {")?;
    Some(format!("{}:{}: tests sit in a file of their own, `tests.rs`", source.path, line + 1))
}

#[cfg(test)]
mod tests;
