//! `cargo xtask tidy`: checks the machine-checkable rules of STYLE.md that no other tool checks.
//!
//! Each rule is a function from the tree to sentences that name file and line. Counts over the whole tree are printed
//! as a table and have limits. Start with [`violations`].

mod circles;
mod counts;
mod dashboards;
mod dependencies;
mod links;
mod metrics;
mod promises;
pub(crate) mod rust;
mod subjects;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use walkdir::{DirEntry, WalkDir};

use crate::workspace;

use counts::Counts;

/// Maximum lines of a source file, without inline tests; a longer file has more than one subject.
const LINES_MAX: usize = 700;

/// Maximum width of a comment: the same as for code, which rustfmt wraps.
const COMMENT_COLUMNS_MAX: usize = 120;

/// Maximum lines of inline tests; longer tests belong in `foo/tests.rs`.
const INLINE_TEST_LINES_MAX: usize = 150;

/// Line that opens an inline module of tests, which stops at the next line that starts with `}`.
const INLINE_TESTS: &str = "mod tests {";

/// Files that exceed the limit and nevertheless have one subject, each below a comment with the reason.
const LONG_FILES: &[&str] = &[];

/// Names that do not describe the content.
const EMPTY_NAMES: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "types", "misc", "shared"];

/// A text file of the tree.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Prints the counts and every violation, and fails if there is one.
///
/// # Errors
/// A rule is violated, or the tree cannot be read.
pub fn run(root: &Path) -> Result<()> {
    println!("{}", Counts::new(&sources(root)?));
    workspace::report(&violations(root)?, "violations of the style rules")
}

/// Returns the violations of the rules, one sentence each, starting with file and line.
///
/// # Errors
/// The tree cannot be read.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let sources = sources(root)?;
    let mut found = Vec::new();
    for source in &sources {
        found.extend(empty_name(source));
        found.extend(machine_paths(source));
        found.extend(generated(source));
        if has_extension(&source.path, "rs") {
            found.extend(marks_without_issue(source));
            found.extend(wide_comments(source));
            found.extend(too_long(source));
            found.extend(misplaced_tests(source));
        }
        if has_extension(&source.path, "md") {
            found.extend(links::broken(root, source));
        }
    }
    found.extend(Counts::new(&sources).violations());
    found.extend(promises::unkept(&sources));
    found.extend(metrics::unlisted(&sources));
    found.extend(dashboards::defects(&sources));
    found.extend(dependencies::unused(&sources));
    found.extend(subjects::unfit(root));
    Ok(found)
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Returns every text file that could be committed: all except hidden directories, build outputs and runs.
pub(crate) fn sources(root: &Path) -> Result<Vec<Source>> {
    let is_part = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        if !entry.file_type().is_dir() {
            return ![".git", "Cargo.lock"].contains(&&*name);
        }
        let output = entry.depth() == 1 && (name.starts_with("target") || name == "runs");
        let hidden = name.starts_with('.') && ![".ci", ".cargo", ".config", ".github"].contains(&&*name);
        entry.depth() == 0 || !output && !hidden
    };
    let mut found = Vec::new();
    for entry in WalkDir::new(root).into_iter().filter_entry(is_part) {
        let entry = entry.context("list the files of the repository")?;
        if entry.file_type().is_file() {
            let bytes = fs::read(entry.path()).with_context(|| format!("read {}", entry.path().display()))?;
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path()).display().to_string();
            // Binary files have no lines to check.
            found.extend(String::from_utf8(bytes).ok().map(|text| Source { path, text }));
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Returns the texts between backquotes.
pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the locations, as `path:line`, of all lines for which `is_wrong` returns true.
fn lines_where(source: &Source, is_wrong: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
    let lines = source.text.lines().enumerate().filter(move |(_, line)| is_wrong(line));
    lines.map(|(index, _)| format!("{}:{}", source.path, index + 1))
}

fn empty_name(source: &Source) -> Option<String> {
    let code = ["rs", "py", "sh", "proto"].iter().any(|extension| has_extension(&source.path, extension));
    let empty = |part: &str| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part));
    let part = source.path.split('/').find(|part| empty(part)).filter(|_| code)?;
    Some(format!("{}: `{part}` does not describe the content; choose a noun that does", source.path))
}

/// Finds paths that exist on one machine only.
fn machine_paths(source: &Source) -> Vec<String> {
    // Assembled at run time, so that this file does not contain the forbidden paths.
    let folders = ["work", "root", "home", "Users"].map(|folder| format!("/{folder}/"));
    let is_start = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || ".-_}".contains(c));
    let names_one = |line: &str| {
        folders.iter().any(|folder| line.match_indices(folder.as_str()).any(|(at, _)| is_start(&line[..at])))
    };
    lines_where(source, names_one).map(|place| format!("{place}: a path that exists only on one machine")).collect()
}

fn generated(source: &Source) -> Option<String> {
    let marks = [concat!("@", "generated"), concat!("automatically", " generated by")];
    let head = source.text.lines().take(5).collect::<Vec<_>>().join("\n");
    let name = [".pb.rs", "_pb2.py", "_pb2_grpc.py"].iter().any(|end| source.path.ends_with(end));
    (name || marks.iter().any(|mark| head.contains(mark)))
        .then(|| format!("{}: generated code must not be committed", source.path))
}

/// Finds marks of unfinished work that name no issue.
fn marks_without_issue(source: &Source) -> Vec<String> {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let is_mark = |word: &str| marks.iter().any(|mark| word.split('(').next() == Some(mark) && !word.contains("(#"));
    let is_left_over = |line: &str| {
        let comment = line.find("//").map_or("", |at| &line[at..]);
        comment.split(|c: char| !c.is_alphanumeric() && c != '#' && c != '(').any(is_mark)
    };
    let places = lines_where(source, is_left_over);
    places.map(|place| format!("{place}: unfinished work must name an issue, such as `(#12)`")).collect()
}

/// Finds comments wider than the code; rows of tables cannot be wrapped.
fn wide_comments(source: &Source) -> Vec<String> {
    let is_wide = |line: &str| {
        let text = line.trim_start();
        text.starts_with("//") && !text.contains(" |") && line.chars().count() > COMMENT_COLUMNS_MAX
    };
    let places = lines_where(source, is_wide);
    places.map(|place| format!("{place}: a comment is wider than {COMMENT_COLUMNS_MAX} columns")).collect()
}

fn too_long(source: &Source) -> Option<String> {
    let lines = source.text.lines().count() - inline_test_lines(source);
    match (lines > LINES_MAX, LONG_FILES.contains(&source.path.as_str())) {
        (true, false) => Some(format!("{}: {lines} lines are more than {LINES_MAX}: split by subject", source.path)),
        (false, true) => Some(format!("{}: is listed as long but is not", source.path)),
        _ => None,
    }
}

/// Finds short tests in a separate file, and long tests inline.
fn misplaced_tests(source: &Source) -> Option<String> {
    let in_own_file = source.path.ends_with("/tests.rs") && !source.text.lines().any(|line| line.starts_with("mod "));
    let lines = source.text.lines().count();
    if in_own_file && lines <= INLINE_TEST_LINES_MAX {
        return Some(format!("{}: tests of up to {INLINE_TEST_LINES_MAX} lines belong inline", source.path));
    }
    let inline = inline_test_lines(source);
    // In a separate file, the tests have two lines and one level of indentation less.
    (inline > INLINE_TEST_LINES_MAX + INLINE_TEST_LINES_MAX / 5)
        .then(|| format!("{}: {inline} lines of tests belong in a separate file, `tests.rs`", source.path))
}

/// Counts the lines of an inline module of tests.
fn inline_test_lines(source: &Source) -> usize {
    let tests = source.text.lines().skip_while(|line| *line != INLINE_TESTS);
    tests.take_while(|line| !line.starts_with('}')).count()
}

#[cfg(test)]
mod tests {
    //! Tests of the tree itself and of each rule.

    use std::fs;

    use super::{Source, generated, links, machine_paths, marks_without_issue, misplaced_tests};
    use super::{empty_name, promises, too_long, violations, wide_comments};
    use crate::workspace;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn this_tree_is_tidy() {
        let found = violations(&workspace::root()).unwrap();
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }

    #[test]
    fn paths_of_one_machine_are_named_by_line() {
        let text = format!("fine\nsee {}name/x\nhttps://site/{}x", concat!("/ho", "me/"), concat!("ro", "ot/"));
        assert_eq!(machine_paths(&source("a.md", &text)), ["a.md:2: a path that exists only on one machine"]);
    }

    #[test]
    fn wide_comments_are_named_by_line_unless_they_are_rows_of_a_table() {
        let word = "w".repeat(117);
        let text = format!("// {word}\n/// {word}\n    // {word}\nlet code = \"{word}\";\n//! | {word} |\n");
        let wide = wide_comments(&source("a.rs", &text));
        assert_eq!(wide, [2, 3].map(|line| format!("a.rs:{line}: a comment is wider than 120 columns")));
    }

    #[test]
    fn unfinished_work_names_its_issue() {
        let mark = concat!("TO", "DO");
        let text = format!("// {mark}: later\n// {mark}(#7): later\nlet {mark} = 1;");
        let found = marks_without_issue(&source("a.rs", &text));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a.rs:1:"), "{found:?}");
    }

    #[test]
    fn names_that_do_not_describe_the_content_are_refused() {
        assert!(empty_name(&source("crates/x/src/utils.rs", "")).is_some());
        assert!(empty_name(&source("crates/x/src/common/y.rs", "")).is_some());
        assert!(empty_name(&source("crates/x/src/commonality.rs", "")).is_none());
    }

    #[test]
    fn generated_code_is_refused() {
        assert!(generated(&source("a.rs", concat!("// @", "generated by a tool"))).is_some());
        assert!(generated(&source("replay.pb.rs", "")).is_some());
        assert!(generated(&source("a.rs", "//! Made by hand.")).is_none());
    }

    #[test]
    fn long_files_are_refused() {
        assert!(too_long(&source("a.rs", &"\n".repeat(701))).is_some());
        assert!(too_long(&source("a.rs", &"\n".repeat(700))).is_none());
        assert!(too_long(&source("a.rs", &format!("{}mod tests {{\n    \n}}\n", "\n".repeat(699)))).is_none());
    }

    #[test]
    fn short_tests_stand_inline_and_long_ones_in_a_file() {
        let inline = |lines| format!("mod tests {{\n{}}}\n", "    use a;\n".repeat(lines));
        assert!(misplaced_tests(&source("a.rs", &inline(150))).is_none());
        assert!(misplaced_tests(&source("a.rs", &inline(200))).is_some());
        assert!(misplaced_tests(&source("a/tests.rs", &"use a;\n".repeat(151))).is_none());
        assert!(misplaced_tests(&source("a/tests.rs", &"use a;\n".repeat(150))).is_some());
        assert!(misplaced_tests(&source("a/tests.rs", "mod b;\n")).is_none());
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("docs")).unwrap();
        let text =
            "[a](../Cargo.toml) [b](lost.md) [c](#here-and-now) [d](#lost) [e](https://example.org)\n# Here and now\n";
        for path in ["Cargo.toml", "docs/page.md"] {
            fs::write(root.path().join(path), text).unwrap();
        }
        let document = source("docs/page.md", text);
        assert_eq!(
            links::broken(root.path(), &document),
            ["docs/page.md:1: `lost.md` is a broken link", "docs/page.md:1: `#lost` names a missing heading"]
        );
        assert_eq!(links::broken(root.path(), &source("x.md", "```\n[a](lost.md)\n```")).len(), 0);
    }

    #[test]
    fn a_promise_names_a_test_that_exists_or_is_pending() {
        let text = "| promise | kept by |\n|---|---|\n| a | `game::b::holds` |\n| b | `game::lost` |\n| c | *pending* |\n| d | hope |\n| e | `game::b::helps` |\n";
        let tests = "/// Helps.\nfn helps() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn holds() {}\n";
        let sources = [source("docs/specification.md", text), source("crates/game/src/b.rs", tests)];
        assert_eq!(
            promises::unkept(&sources),
            [
                "docs/specification.md:4: there is no test `game::lost`",
                "docs/specification.md:6: names no test and is not *pending*",
                "docs/specification.md:7: there is no test `game::b::helps`"
            ]
        );
    }
}
