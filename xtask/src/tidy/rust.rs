//! Parses Rust source for the checks: lines of code, and paths in the tokens outside tests.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::{Source, has_extension};

/// A file of Rust.
#[derive(Debug)]
pub(crate) struct File<'a> {
    /// Relative to the root, with `/`.
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
    /// Lines that are neither blank nor a comment alone, outside items that are marked `#[cfg(test)]`.
    pub(crate) code_lines: usize,
    /// The paths in its code, tests left out.
    pub(crate) paths: Vec<Path>,
    /// True for a file outside the program: tests, benches, examples, fuzz targets.
    pub(crate) is_test: bool,
}

/// A path of at least two names, such as `a::b::C`; a tree, `a::{b, c}`, is several. An import may have one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    /// The names in it, without a `self` after other names; `*` for all names.
    pub(crate) parts: Vec<String>,
    /// The name that it brings into scope if it is an import.
    pub(crate) name: String,
    /// True if it follows `use`.
    pub(crate) is_import: bool,
}

/// Every Rust file of the tree.
pub(crate) fn files(sources: &[Source]) -> Vec<File<'_>> {
    sources.iter().filter(|source| has_extension(&source.path, "rs")).map(File::new).collect()
}

impl<'a> File<'a> {
    fn new(source: &'a Source) -> Self {
        let text = source.text.as_str();
        // A file that cannot be tokenised does not compile either, which another check reports.
        let tokens: TokenStream = text.parse().unwrap_or_default();
        let mut tests = Vec::new();
        let code = without_tests(tokens, &mut tests);
        let is_code = |(number, line): &(usize, &str)| {
            let is_empty = line.is_empty() || line.starts_with("//");
            !is_empty && !tests.iter().any(|lines| lines.contains(&(number + 1)))
        };
        let code_lines = text.lines().map(str::trim_start).enumerate().filter(is_code).count();
        Self { path: &source.path, text, code_lines, paths: paths(code), is_test: is_test(&source.path) }
    }
}

/// True for a path outside the program.
fn is_test(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| ["tests", "fuzz", "benches", "examples", "tests.rs"].contains(&part))
}

/// Leaves out items marked `#[cfg(test)]`, and adds the lines of those that have a body to `lines`: a declaration, `mod
/// tests;`, has no body.
fn without_tests(tokens: TokenStream, lines: &mut Vec<RangeInclusive<usize>>) -> TokenStream {
    let mut kept = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let inside = without_tests(group.stream(), lines);
                kept.extend([TokenTree::from(Group::new(group.delimiter(), inside))]);
            }
            _ if is_punctuation(&token, '#') && tokens.peek().is_some_and(is_mark_of_tests) => {
                let start = token.span().start().line;
                while let Some(part) = tokens.next() {
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

/// The paths in code, in order.
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

/// Reads one tree, `a::{b, c as d}`, adds its paths to `found`, and returns the tokens that follow.
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
