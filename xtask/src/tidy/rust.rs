//! Parses Rust source for the checks: lines of code, and paths in the tokens outside tests.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::{Source, has_extension};

/// A Rust source file.
#[derive(Debug)]
pub(crate) struct File<'a> {
    /// Path relative to the root, with `/`.
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
    /// Lines with code, outside items marked `#[cfg(test)]`; blank lines and pure comment lines do not count.
    pub(crate) code_lines: usize,
    /// Paths in the code outside tests.
    pub(crate) paths: Vec<Path>,
    /// True for a file outside the program: tests, modules that only tests compile, benches, examples, fuzz targets.
    pub(crate) is_test: bool,
}

/// A path of at least two names, such as `a::b::C`. A tree `a::{b, c}` counts as several paths. An import may have one
/// name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    /// Names in the path, without a `self` after other names; `*` for all names.
    pub(crate) parts: Vec<String>,
    /// For an import, the name brought into scope.
    pub(crate) name: String,
    /// True if the path follows `use`.
    pub(crate) is_import: bool,
}

/// Parses every Rust file of the tree.
pub(crate) fn files(sources: &[Source]) -> Vec<File<'_>> {
    let (rust, mut modules) = (sources.iter().filter(|source| has_extension(&source.path, "rs")), Vec::new());
    let mut files: Vec<File<'_>> = rust.map(|source| File::new(source, &mut modules)).collect();
    for file in &mut files {
        let is_in = |module: &String| file.path.strip_prefix(module).is_some_and(|rest| rest.starts_with(['.', '/']));
        file.is_test |= modules.iter().any(is_in);
    }
    files
}

impl<'a> File<'a> {
    /// Parses a file, and adds the paths of modules marked `#[cfg(test)]` to `modules`, without the extension.
    fn new(source: &'a Source, modules: &mut Vec<String>) -> Self {
        let text = source.text.as_str();
        // A file that cannot be tokenised does not compile either; another check reports that.
        let tokens: TokenStream = text.parse().unwrap_or_default();
        let (mut tests, mut names) = (Vec::new(), Vec::new());
        let code = without_tests(tokens, &mut tests, &mut names);
        let stem = source.path.trim_end_matches(".rs");
        let folder = ["/lib", "/main", "/mod"].into_iter().find_map(|root| stem.strip_suffix(root)).unwrap_or(stem);
        modules.extend(names.iter().map(|name| format!("{folder}/{name}")));
        let is_code = |(number, line): &(usize, &str)| {
            let is_empty = line.is_empty() || line.starts_with("//");
            !is_empty && !tests.iter().any(|lines| lines.contains(&(number + 1)))
        };
        let code_lines = text.lines().map(str::trim_start).enumerate().filter(is_code).count();
        Self { path: &source.path, text, code_lines, paths: paths(code), is_test: is_test(&source.path) }
    }
}

/// Returns true for a path outside the program.
fn is_test(path: &str) -> bool {
    let mut parts = path.split('/');
    let is_outside = |part: &str| ["tests", "fuzz", "benches", "examples", "tests.rs"].contains(&part);
    parts.any(|part| is_outside(part) || part.ends_with("_tests.rs"))
}

/// Removes items marked `#[cfg(test)]`, and adds the lines of each such item with a body to `lines`, and the names of
/// such modules to `modules`. A declaration `mod tests;` has no body.
fn without_tests(
    tokens: TokenStream,
    lines: &mut Vec<RangeInclusive<usize>>,
    modules: &mut Vec<String>,
) -> TokenStream {
    let mut kept = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let inside = without_tests(group.stream(), lines, modules);
                kept.extend([TokenTree::from(Group::new(group.delimiter(), inside))]);
            }
            _ if is_punctuation(&token, '#') && tokens.peek().is_some_and(is_mark_of_tests) => {
                let start = token.span().start().line;
                while let Some(part) = tokens.next() {
                    if matches!(&part, TokenTree::Ident(word) if word == "mod") {
                        modules.extend(tokens.peek().map(ToString::to_string));
                    }
                    let is_body = is_group(&part, Delimiter::Brace);
                    if is_body && !tokens.peek().is_some_and(|next| is_punctuation(next, ';')) {
                        lines.push(start..=part.span().end().line);
                        break;
                    }
                    if is_punctuation(&part, ';') || is_punctuation(&part, ',') {
                        break;
                    }
                }
            }
            _ => kept.extend([token]),
        }
    }
    kept
}

fn is_mark_of_tests(token: &TokenTree) -> bool {
    is_group(token, Delimiter::Bracket) && token.to_string().replace(' ', "") == "[cfg(test)]"
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

fn is_punctuation(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == character)
}

/// Returns the paths in code, in order.
fn paths(code: TokenStream) -> Vec<Path> {
    let tokens: Vec<TokenTree> = code.into_iter().collect();
    let (mut found, mut rest) = (Vec::new(), &tokens[..]);
    while let [first, after @ ..] = rest {
        rest = match first {
            TokenTree::Ident(word) if word == "use" => tree(after, &[], true, &mut found),
            TokenTree::Ident(_) => tree(rest, &[], false, &mut found),
            TokenTree::Group(group) => {
                found.extend(paths(group.stream()));
                after
            }
            _ => after,
        };
    }
    found
}

/// Reads one tree `a::{b, c as d}`, adds the paths to `found`, and returns the remaining tokens.
fn tree<'a>(mut tokens: &'a [TokenTree], before: &[String], is_import: bool, found: &mut Vec<Path>) -> &'a [TokenTree] {
    let mut parts = before.to_vec();
    loop {
        match tokens {
            [TokenTree::Ident(word), rest @ ..] => {
                if word != "self" || parts.is_empty() {
                    parts.push(word.to_string());
                }
                tokens = rest;
            }
            [TokenTree::Group(list), rest @ ..] if list.delimiter() == Delimiter::Brace => {
                let list: Vec<TokenTree> = list.stream().into_iter().collect();
                for part in list.split(|token| is_punctuation(token, ',')).filter(|part| !part.is_empty()) {
                    tree(part, &parts, is_import, found);
                }
                return rest;
            }
            [star, rest @ ..] if is_punctuation(star, '*') => {
                parts.push("*".to_owned());
                tokens = rest;
            }
            _ => {}
        }
        match tokens {
            [first, second, rest @ ..] if is_punctuation(first, ':') && is_punctuation(second, ':') => tokens = rest,
            _ => break,
        }
    }
    let alias = match tokens {
        [TokenTree::Ident(word), TokenTree::Ident(alias), ..] if word == "as" => Some(alias.to_string()),
        _ => None,
    };
    if let Some(name) = alias.or_else(|| parts.last().cloned()).filter(|_| is_import || parts.len() > 1) {
        found.push(Path { parts, name, is_import });
    }
    tokens
}
