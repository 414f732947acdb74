//! Counts properties of the whole tree. The counts are printed as a table, and each has a limit.
//!
//! A limit only moves towards its target: a count beyond its limit fails, and a count well within its limit is printed
//! with the request to move the limit. Start with [`Counts::new`].

use std::collections::BTreeSet;
use std::fmt;

use super::promises;
use super::rust::{File, files};
use super::{Source, circles};

/// Indefinite pronouns for persons, used for parts of a program that have a name.
const PERSONS: [&str; 4] = ["whoever", "nobody", "somebody", "everybody"];

/// Verbs of speech, which personify code.
const SPEECH: [&str; 12] =
    ["tell", "tells", "telling", "told", "say", "says", "saying", "said", "hear", "hears", "hearing", "heard"];

/// Pronouns that stand for a thing that could be named; a sentence of noun compounds needs few.
const PRONOUNS: [&str; 6] = ["its", "those", "ones", "others", "whose", "their"];

/// Crates that are read first: their comments have lower limits.
const READ_FIRST: [&str; 7] =
    ["crates/search/", "crates/selfplay/", "crates/replay/", "crates/transport/", "proto/", "learner/", "cli/"];

/// Question words; documentation that opens with one does not name its subject.
const QUESTIONS: [&str; 9] = ["what", "which", "who", "whose", "whether", "how", "where", "when", "why"];

/// Fraction of a limit by which a count must be better than the limit before the table requests to move the limit
/// towards its target.
const SLACK: f64 = 0.02;

/// The name of the row whose files are listed if it exceeds its limit.
const CIRCLES: &str = "circles of more than two files";

/// Code lines reserved for the web console. What it does not spend is taken off when it is complete.
const CONSOLE_LINES: f64 = 5_000.0;

/// Code lines reserved for the Python package and for the import and export of weights. As above.
const PYTHON_LINES: f64 = 4_500.0;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    Max(f64),
    Min(f64),
}

use Bound::{Max, Min};

/// A count with its limit and its target.
#[derive(Debug)]
struct Row {
    name: &'static str,
    value: f64,
    limit: Bound,
    target: f64,
}

/// The counts of a tree.
#[derive(Debug)]
pub(super) struct Counts {
    rows: [Row; 12],
    /// Circles of two files, which are printed and have no limit.
    pairs: usize,
    /// Circles of more than two files.
    circles: Vec<Vec<String>>,
}

impl Counts {
    pub(super) fn new(sources: &[Source]) -> Self {
        let files = files(sources);
        // Tests, benches, examples and fuzz targets are outside the program.
        let code: usize = files.iter().filter(|file| !file.is_test).map(|file| file.code_lines).sum();
        let comments = Comments::new(files.iter());
        let first = Comments::new(files.iter().filter(|file| read_first(file)));
        let prose = |of: &Comments| [of.pronouns, of.chains].map(|count| of.per_thousand(count));
        let [first, all] = [&first, &comments].map(prose);
        let (persons, speech) = (comments.per_thousand(comments.persons), comments.per_thousand(comments.speech));
        let questions = share(comments.questions, comments.docs);
        let (pairs, circles): (Vec<_>, Vec<_>) =
            circles::circles(&files).into_iter().partition(|circle| circle.len() == 2);
        let circle_count = circles.len() as f64;
        let tests: usize = files.iter().map(tests).sum();
        let promises = promises::kept(sources) as f64;
        let rows = [
            Row {
                name: "code lines outside tests, examples and fuzz",
                value: code as f64,
                limit: Max(103_850.0 + CONSOLE_LINES + PYTHON_LINES),
                target: 72_000.0,
            },
            Row { name: "folders that hold Rust files", value: folders(&files), limit: Max(242.0), target: 170.0 },
            Row { name: "indefinite persons per 1,000 comment lines", value: persons, limit: Max(0.3), target: 0.3 },
            Row { name: "verbs of speech per 1,000 comment lines", value: speech, limit: Max(2.0), target: 2.0 },
            Row { name: "pronouns, of crates read first", value: first[0], limit: Max(60.0), target: 60.0 },
            Row { name: "pronouns per 1,000 comment lines", value: all[0], limit: Max(60.0), target: 60.0 },
            Row { name: "`of` three times, of crates read first", value: first[1], limit: Max(0.5), target: 0.5 },
            Row { name: "`of` three times per 1,000 comment lines", value: all[1], limit: Max(0.5), target: 0.5 },
            Row { name: "docs that open with a question word, %", value: questions, limit: Max(2.0), target: 2.0 },
            Row { name: CIRCLES, value: circle_count, limit: Max(0.0), target: 0.0 },
            Row { name: "tests", value: tests as f64, limit: Min(1_600.0), target: 1_554.0 },
            Row { name: "promises with a test", value: promises, limit: Max(120.0), target: 120.0 },
        ];
        Self { rows, pairs: pairs.len(), circles }
    }

    /// Returns the counts beyond their limits.
    pub(super) fn violations(&self) -> Vec<String> {
        let wrong = self.rows.iter().filter(|row| row.is_broken());
        wrong
            .map(|row| {
                let circles = self.circles.iter().filter(|_| row.name == CIRCLES);
                let files: String = circles.map(|circle| format!("\n  {}", circle.join(", "))).collect();
                format!("{}: {} passes the limit of {}{files}", row.name, shown(row.value), row.limit)
            })
            .collect()
    }
}

/// Formats the counts as a table.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<48} {:>9} {:>15} {:>9}", "count", "now", "limit", "target")?;
        for row in &self.rows {
            let move_it = if row.is_slack() { "  move the limit in xtask/src/tidy/counts.rs" } else { "" };
            let [value, limit, target] = [shown(row.value), row.limit.to_string(), shown(row.target)];
            writeln!(f, "{:<48} {value:>9} {limit:>15} {target:>9}{move_it}", row.name)?;
        }
        writeln!(f, "{:<48} {:>9}", "circles of two files", self.pairs)
    }
}

impl Row {
    fn is_broken(&self) -> bool {
        match self.limit {
            Max(max) => self.value > max,
            Min(min) => self.value < min,
        }
    }

    fn is_slack(&self) -> bool {
        match self.limit {
            Max(max) => max > self.target && self.value < max * (1.0 - SLACK),
            Min(min) => min < self.target && self.value > min * (1.0 + SLACK),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Max(max) => write!(f, "at most {}", shown(*max)),
            Min(min) => write!(f, "at least {}", shown(*min)),
        }
    }
}

/// Formats a whole number without decimals, any other with one.
fn shown(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.1}") }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn read_first(file: &File<'_>) -> bool {
    READ_FIRST.iter().any(|folder| file.path.starts_with(folder))
}

fn folders(files: &[File<'_>]) -> f64 {
    let folders: BTreeSet<&str> =
        files.iter().map(|file| file.path.rsplit_once('/').map_or("", |(folder, _)| folder)).collect();
    folders.len() as f64
}

/// Counts of lines and words in all comments.
#[derive(Debug, Default)]
struct Comments {
    /// Comment lines, including those of tests.
    lines: usize,
    /// Occurrences of [`PERSONS`].
    persons: usize,
    /// Occurrences of [`SPEECH`].
    speech: usize,
    /// Occurrences of [`PRONOUNS`].
    pronouns: usize,
    /// Lines with `of` three times.
    chains: usize,
    /// Documentation comments: runs of lines that begin with the same of `///` and `//!`.
    docs: usize,
    /// Documentation comments whose first word is one of [`QUESTIONS`].
    questions: usize,
}

impl Comments {
    fn new<'a>(files: impl Iterator<Item = &'a File<'a>>) -> Self {
        let mut counts = Self::default();
        for file in files {
            let mut last_mark = "";
            for line in file.text.lines().map(str::trim_start) {
                let mark = ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(mark)).unwrap_or("");
                if !mark.is_empty() {
                    counts.add(&line[mark.len()..], mark != "//" && mark != last_mark);
                }
                last_mark = mark;
            }
        }
        counts
    }

    fn add(&mut self, text: &str, opens_doc: bool) {
        let words = || text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let is_in = |word: &str, list: &[&str]| list.iter().any(|listed| word.eq_ignore_ascii_case(listed));
        self.lines += 1;
        self.persons += words().filter(|word| is_in(word, &PERSONS)).count();
        self.speech += words().filter(|word| is_in(word, &SPEECH)).count();
        self.pronouns += words().filter(|word| is_in(word, &PRONOUNS)).count();
        self.chains += usize::from(words().filter(|word| *word == "of").count() >= 3);
        if opens_doc {
            self.docs += 1;
            self.questions += usize::from(words().next().is_some_and(|word| is_in(word, &QUESTIONS)));
        }
    }

    fn per_thousand(&self, count: usize) -> f64 {
        if self.lines == 0 { 0.0 } else { 1_000.0 * count as f64 / self.lines as f64 }
    }
}

/// Counts the functions marked as tests.
fn tests(file: &File<'_>) -> usize {
    let lines = file.text.lines().map(str::trim_start);
    lines.filter(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = r#"//! Which is a question, and nobody answers.
//! Nobody, they say.

/// Adds. Heard and told: its count of the sums of those of others.
pub fn add() {
    // Code in a "comment" { is none.
    let text = "// { not a comment";
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod inline {
    #[test]
    fn adds() { let open = '{'; }
}
"#;

    fn counts(files: &[(&str, &str)]) -> Counts {
        let source = |(path, text): &(&str, &str)| Source { path: (*path).to_owned(), text: (*text).to_owned() };
        Counts::new(&files.iter().map(source).collect::<Vec<_>>())
    }

    fn value(counts: &Counts, name: &str) -> f64 {
        counts.rows.iter().find(|row| row.name == name).unwrap().value
    }

    #[test]
    fn code_is_counted_outside_tests_and_comments() {
        let tests = ["a/src/inline.rs", "a/src/inline/c.rs", "a/tests/x.rs", "fuzz/b.rs"].map(|path| (path, PROGRAM));
        let counts = counts(&[&tests[..], &[("a/src/lib.rs", PROGRAM)]].concat());
        assert_eq!(value(&counts, "code lines outside tests, examples and fuzz"), 5.0);
        assert_eq!(value(&counts, "folders that hold Rust files"), 4.0);
    }

    #[test]
    fn words_are_counted_in_comments_alone() {
        let counts = counts(&[("a/src/lib.rs", PROGRAM)]);
        assert_eq!(value(&counts, "indefinite persons per 1,000 comment lines"), 500.0);
        assert_eq!(value(&counts, "verbs of speech per 1,000 comment lines"), 750.0);
        assert_eq!(value(&counts, "pronouns per 1,000 comment lines"), 750.0);
        assert_eq!(value(&counts, "`of` three times per 1,000 comment lines"), 250.0);
        assert_eq!(value(&counts, "pronouns, of crates read first"), 0.0);
        assert_eq!(value(&counts, "docs that open with a question word, %"), 50.0);
    }

    #[test]
    fn tests_and_promises_are_counted() {
        let specification = "| promise | kept by |\n|---|---|\n| a | `a::adds` |\n| b | *pending* |\n";
        let counts = counts(&[("a/src/lib.rs", PROGRAM), ("docs/specification.md", specification)]);
        assert_eq!(value(&counts, "tests"), 1.0);
        assert_eq!(value(&counts, "promises with a test"), 1.0);
    }

    #[test]
    fn a_count_beyond_its_limit_fails_and_one_far_below_is_to_be_moved() {
        let row = |value, limit| Row { name: "tests", value, limit, target: 0.0 };
        assert!(row(101.0, Max(100.0)).is_broken() && !row(100.0, Max(100.0)).is_broken());
        assert!(row(99.0, Min(100.0)).is_broken() && !row(100.0, Min(100.0)).is_broken());
        assert!(row(90.0, Max(100.0)).is_slack() && !row(99.0, Max(100.0)).is_slack());
        let empty = counts(&[]);
        assert!(empty.violations().iter().any(|violation| violation.starts_with("tests: 0 passes")));
        let slack = Counts { rows: std::array::from_fn(|_| row(90.0, Max(100.0))), ..empty };
        assert!(slack.to_string().contains("move the limit"));
    }

    #[test]
    fn a_circle_of_files_is_found_through_the_exports_of_a_parent() {
        let circle = [
            ("a/src/lib.rs", "mod b;\nmod c;\nmod d;\npub use c::C;\n"),
            ("a/src/b.rs", "use crate::{C, d::D};\n"),
            ("a/src/c.rs", "use super::d::{self, D as Other};\n"),
            ("a/src/d.rs", "fn f() -> crate::b::B {}\n#[cfg(test)]\nmod tests { use crate::e::E; }\n"),
            ("a/src/e.rs", "use crate::d::D;\n"),
        ];
        // Two files alone are a pair.
        assert!(counts(&circle[1..]).circles.is_empty());
        let counts = counts(&circle);
        assert_eq!(counts.circles, [["a/src/b.rs", "a/src/c.rs", "a/src/d.rs"]]);
        assert_eq!((counts.pairs, value(&counts, CIRCLES)), (0, 1.0));
    }
}
