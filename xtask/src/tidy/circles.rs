//! Circles of files: groups of files of one package in which each depends on each other, over any number of steps.
//!
//! A file depends on another if its code, tests left out, names an item of it by a path that begins with `crate::` or
//! `super::`; names that a file imports or re-exports are followed to the file that defines them. A parent does not
//! depend on the modules that it declares.

use std::collections::{BTreeMap, BTreeSet};

use super::rust::File;

/// The path of a module from the root of its package; empty for the root.
type Module = Vec<String>;

/// Paths of files that depend on each other, sorted, for every such group in the tree.
pub(super) fn circles(files: &[File<'_>]) -> Vec<Vec<String>> {
    let mut packages: BTreeMap<&str, Package<'_>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_test) {
        let Some((package, inside)) = file.path.split_once("/src/") else { continue };
        if inside.starts_with("bin/") || (inside == "main.rs" && has_library(files, package)) {
            continue;
        }
        let source = Node { path: file.path, code: &file.code, imports: BTreeMap::new() };
        packages.entry(package).or_default().modules.insert(module(inside), source);
    }
    packages.into_values().flat_map(|package| package.with_imports().circles()).collect()
}

fn has_library(files: &[File<'_>], package: &str) -> bool {
    files.iter().any(|file| file.path.strip_prefix(package) == Some("/src/lib.rs"))
}

/// `a/b.rs` is `a::b`; `lib.rs` and `main.rs` are the root.
fn module(inside: &str) -> Module {
    let stem = inside.strip_suffix(".rs").unwrap_or(inside);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    let parts = stem.split('/').filter(|part| !["lib", "main"].contains(part));
    parts.map(str::to_owned).collect()
}

#[derive(Debug, Default)]
struct Package<'a> {
    modules: BTreeMap<Module, Node<'a>>,
}

#[derive(Debug)]
struct Node<'a> {
    path: &'a str,
    code: &'a str,
    /// Names in scope by `use`, with the path each stands for, from the root.
    imports: BTreeMap<String, Vec<String>>,
}

impl Package<'_> {
    fn with_imports(mut self) -> Self {
        let imports: Vec<_> = self.modules.iter().map(|(module, node)| self.imports(module, node.code)).collect();
        for (node, imports) in self.modules.values_mut().zip(imports) {
            node.imports = imports;
        }
        self
    }

    fn imports(&self, module: &Module, code: &str) -> BTreeMap<String, Vec<String>> {
        let statements = code.match_indices("use ").filter(|(at, _)| is_word_start(code, *at));
        let leaves = statements.flat_map(|(at, found)| leaves(&code[at + found.len()..]));
        leaves
            .filter_map(|(name, path)| {
                let first = path.first()?;
                let child = [module.as_slice(), std::slice::from_ref(first)].concat();
                let absolute = match first.as_str() {
                    "crate" | "super" | "self" => absolute(module, &path),
                    _ if self.modules.contains_key(&child) => [module.clone(), path].concat(),
                    _ => return None,
                };
                Some((name, absolute))
            })
            .collect()
    }

    /// The file that defines what a path from the root names.
    fn definition(&self, path: &[String], follows_max: usize) -> Module {
        let mut module = Module::new();
        for (index, name) in path.iter().enumerate() {
            module.push(name.clone());
            if self.modules.contains_key(&module) {
                continue;
            }
            module.pop();
            let import = self.modules.get(&module).and_then(|node| node.imports.get(name));
            return match import {
                Some(import) if follows_max > 0 => {
                    let rest = [import.as_slice(), &path[index + 1..]].concat();
                    self.definition(&rest, follows_max - 1)
                }
                _ => module,
            };
        }
        module
    }

    /// The modules that a module depends on.
    fn edges(&self, module: &Module, code: &str) -> BTreeSet<Module> {
        const FOLLOWS_MAX: usize = 8;
        let starts = ["crate::", "super::"].into_iter().flat_map(|root| code.match_indices(root));
        let starts = starts.filter(|(at, _)| is_word_start(code, *at) && !code[..*at].ends_with("::"));
        starts
            .flat_map(|(at, _)| leaves(&code[at..]))
            .map(|(_, path)| self.definition(&absolute(module, &path), FOLLOWS_MAX))
            .filter(|to| !to.starts_with(module) && self.modules.contains_key(to))
            .collect()
    }

    fn circles(&self) -> Vec<Vec<String>> {
        let edges: BTreeMap<&Module, BTreeSet<Module>> =
            self.modules.iter().map(|(module, node)| (module, self.edges(module, node.code))).collect();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            edges.keys().map(|module| (*module, reachable(module, &edges))).collect();
        let mut groups = BTreeSet::new();
        for (module, others) in &reached {
            let back = others.iter().filter(|other| reached[*other].contains(module));
            let group: BTreeSet<&str> = back.map(|other| self.modules[*other].path).collect();
            if group.len() > 1 {
                groups.insert(group.into_iter().map(str::to_owned).collect::<Vec<_>>());
            }
        }
        groups.into_iter().collect()
    }
}

/// Every module that can be reached from `module`; itself only if a path leads back.
fn reachable<'a>(module: &Module, edges: &'a BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&Module> = edges[module].iter().collect();
    while let Some(next) = waiting.pop() {
        if reached.insert(next) {
            waiting.extend(&edges[next]);
        }
    }
    reached
}

/// A path as written in `module`, from the root of the package.
fn absolute(module: &Module, path: &[String]) -> Vec<String> {
    let (mut from, mut rest) = (module.clone(), path);
    while let Some((first, others)) = rest.split_first() {
        match first.as_str() {
            "crate" => from.clear(),
            "super" => drop(from.pop()),
            "self" => {}
            _ => break,
        }
        rest = others;
    }
    from.extend(rest.iter().cloned());
    from
}

fn is_word_start(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The paths of the tree at the start of `code`, `a::{b, c as d}`, each with the name it brings into scope.
fn leaves(code: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    tree(code, &[], &mut found);
    found
}

/// Reads one tree, adds its paths to `found`, and returns what follows.
fn tree<'a>(code: &'a str, before: &[String], found: &mut Vec<(String, Vec<String>)>) -> &'a str {
    let mut path = before.to_vec();
    let mut rest = code.trim_start();
    loop {
        if let Some(mut list) = rest.strip_prefix('{') {
            while !list.trim_start().starts_with('}') {
                let after = tree(list, &path, found);
                let next = after.trim_start().trim_start_matches(',');
                if next.len() == list.len() || next.is_empty() {
                    return next;
                }
                list = next;
            }
            return list.trim_start().strip_prefix('}').unwrap_or(list);
        }
        let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(len);
        if !word.is_empty() && (word != "self" || path.is_empty()) {
            path.push(word.to_owned());
        }
        match after.strip_prefix("::") {
            Some(more) if !word.is_empty() => rest = more.trim_start(),
            _ => {
                let alias = after.strip_prefix(" as ").map(|alias| alias.split([',', ';', '}', '\n']).next());
                let name = alias.flatten().map(|alias| alias.trim().to_owned());
                if let Some(name) = name.or_else(|| path.last().cloned()) {
                    found.push((name, path));
                }
                let stars = after.strip_prefix('*').unwrap_or(after);
                return stars.find([',', '}', ';']).map_or("", |end| &stars[end..]);
            }
        }
    }
}
