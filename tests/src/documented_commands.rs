// The commands in the fenced blocks of README.md and docs, for tests of these programs. The tests of
// several crates include this file, because no crate sees the command lines of all programs.

use std::collections::BTreeMap;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

/// Example values for the placeholders in commands.
const PLACEHOLDERS: [(&str, &str); 5] =
    [("NAME", "first"), ("VERSION", "12"), ("A", "first"), ("B", "second"), ("C", "1.25")];

/// A command as the shell passes it to a program: without comments, quotes, variables and redirections.
#[derive(Debug, Clone)]
pub(super) struct Documented {
    /// Page that shows the command.
    pub(super) page: String,
    /// Program and arguments.
    pub(super) words: Vec<String>,
}

/// Returns the page and the arguments of every command that runs `program`: in any directory, in a container, or for
/// `zerofleet` by `cargo xtask train` and for `bench` by `zerofleet`. Placeholders have example values.
pub(super) fn of(program: &str) -> Vec<(String, Vec<String>)> {
    let arguments = |Documented { page, words }: Documented| {
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Some(image) = words.iter().position(|word| word.starts_with("zerofleet/cli:")) {
            words = [&["zerofleet"][..], &words[image + 1..]].concat();
        }
        let first = words[0].rsplit('/').next().unwrap_or_default();
        let arguments = match (program, first, &words[1..]) {
            ("xtask", "cargo", ["xtask", rest @ ..]) => rest.to_vec(),
            ("zerofleet", "cargo", ["xtask", "train", rest @ ..]) => {
                [&["train"][..], rest.strip_prefix(&["--"]).unwrap_or(rest)].concat()
            }
            ("bench", "zerofleet", ["bench", rest @ ..]) => rest.to_vec(),
            ("bench", "zerofleet", ["tune", "batch", rest @ ..]) => [&["learner", "--parts=batch"][..], rest].concat(),
            (_, _, rest) if first == program => rest.to_vec(),
            _ => return None,
        };
        // `[OPTIONS]` stands for options that a page does not list.
        let is_written = |word: &&&str| !(word.starts_with('[') && word.ends_with(']'));
        Some((page, arguments.iter().filter(is_written).map(|word| filled(word)).collect()))
    };
    all().into_iter().filter_map(arguments).collect()
}

/// Returns the commands of all pages.
pub(super) fn all() -> Vec<Documented> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut pages = vec![root.join("README.md")];
    add_pages(&root.join("docs"), &mut pages);
    pages.sort();
    let mut found = Vec::new();
    for path in pages {
        let page = path.strip_prefix(root).unwrap().display().to_string();
        let mut variables = BTreeMap::new();
        for block in blocks(&fs::read_to_string(&path).unwrap()) {
            let commands = split(&block).into_iter().filter_map(|words| expanded(&words, &mut variables));
            found.extend(commands.map(|words| Documented { page: page.clone(), words }));
        }
    }
    found
}

fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Returns the text to type of each fenced block.
fn blocks(page: &str) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), None);
    for line in page.lines() {
        open = match (line.trim_start().strip_prefix("```"), open) {
            (Some(language), None) => Some((language.trim(), String::new())),
            (Some(_), Some((language, block))) => {
                found.extend(typed(language, &block));
                None
            }
            (None, Some((language, block))) => Some((language, block + line + "\n")),
            (None, None) => None,
        };
    }
    found
}

/// Returns the text to type of a block: the lines after prompts, or the whole block of a shell without prompts.
fn typed(language: &str, block: &str) -> Option<String> {
    let (mut prompted, mut is_continued) = (String::new(), false);
    for line in block.lines() {
        let command = line.trim_start().strip_prefix("$ ").or(is_continued.then_some(line));
        is_continued = command.is_some_and(|command| command.ends_with('\\'));
        prompted.extend(command.map(|command| format!("{command}\n")));
    }
    let is_shell = ["sh", "bash", "shell", "console"].contains(&language);
    if prompted.is_empty() { is_shell.then(|| block.to_owned()) } else { Some(prompted) }
}

/// Splits a text into commands of words, as a shell does.
pub(super) fn split(text: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    // True before the file of a redirection.
    let mut is_target = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.get_or_insert_default().extend(chars.next().filter(|next| *next != '\n')),
            '\'' => word.get_or_insert_default().extend(chars.by_ref().take_while(|next| *next != '\'')),
            '"' => add_quoted(&mut chars, word.get_or_insert_default()),
            '$' if chars.peek() == Some(&'(') => {
                skip_substitution(&mut chars);
                word.get_or_insert_default().push('x');
            }
            '#' if word.is_none() => while chars.next_if(|next| *next != '\n').is_some() {},
            _ if !c.is_whitespace() && !"|&;<>".contains(c) => word.get_or_insert_default().push(c),
            _ => {
                // In `2>`, the number is no word.
                let is_descriptor = |word: &String| "<>".contains(c) && word.chars().all(|c| c.is_ascii_digit());
                // A continued line is no word either.
                let ended = word.take().filter(|word| !word.is_empty() && !is_descriptor(word));
                if let Some(ended) = ended
                    && !std::mem::take(&mut is_target)
                {
                    words.push(ended);
                }
                if "<>".contains(c) {
                    let _ = chars.next_if_eq(&'>');
                    is_target = chars.next_if_eq(&'&').is_none();
                    if !is_target {
                        let _ = chars.next();
                    }
                } else if "|&;\n".contains(c) {
                    commands.push(std::mem::take(&mut words));
                }
            }
        }
    }
    words.extend(word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

/// Adds the rest of a text in double quotes to a word.
fn add_quoted(chars: &mut Peekable<Chars<'_>>, word: &mut String) {
    while let Some(c) = chars.next() {
        match c {
            '"' => return,
            '\\' => word.extend(chars.next()),
            '$' if chars.peek() == Some(&'(') => {
                skip_substitution(chars);
                word.push('x');
            }
            _ => word.push(c),
        }
    }
}

/// Skips a command in parentheses, of which the output is unknown.
fn skip_substitution(chars: &mut Peekable<Chars<'_>>) {
    let mut depth = 0;
    for c in chars.by_ref() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

/// Substitutes variables. `None` for a command that only sets variables, which are noted.
fn expanded(words: &[String], variables: &mut BTreeMap<String, String>) -> Option<Vec<String>> {
    let words: Vec<String> = words.iter().map(|word| with_values(word, variables)).collect();
    let assigned = |word: &String| {
        let (name, value) = word.split_once('=')?;
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.contains(is_outside_names);
        is_name.then(|| (name.to_owned(), value.to_owned()))
    };
    let start = words.iter().position(|word| assigned(word).is_none());
    if start.is_none() {
        variables.extend(words.iter().filter_map(assigned));
    }
    start.map(|start| words[start..].to_vec())
}

fn is_outside_names(c: char) -> bool {
    !c.is_ascii_alphanumeric() && c != '_'
}

fn with_values(word: &str, variables: &BTreeMap<String, String>) -> String {
    let mut parts = word.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start_matches('{');
        let end = part.find(is_outside_names).unwrap_or(part.len());
        // A variable of another page or of a loop.
        text.push_str(variables.get(&part[..end]).map_or("x", String::as_str));
        text.push_str(part[end..].trim_start_matches('}'));
    }
    text
}

/// Replaces the placeholders in a word by example values.
fn filled(word: &str) -> String {
    let value = |name: &str| PLACEHOLDERS.iter().find(|(placeholder, _)| *placeholder == name).map(|(_, value)| *value);
    let mut text = String::new();
    for part in word.split_inclusive(is_outside_names) {
        let name = part.trim_end_matches(is_outside_names);
        text.push_str(value(name).unwrap_or(name));
        text.push_str(&part[name.len()..]);
    }
    text
}
