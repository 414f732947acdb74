//! Finds circles of files: groups within a package in which each file depends on every other file, directly or through
//! others.
//!
//! A file depends on another if code outside tests names an item of the other file by a path that starts with `crate::`
//! or `super::`. Imported and re-exported names are followed to the defining file. A parent does not depend on the
//! modules that it declares.

use std::collections::{BTreeMap, BTreeSet};

use super::rust::{File, Path};

/// Path of a module from the root of the package; empty for the root.
type Module = Vec<String>;

/// Returns the sorted paths of each group of mutually dependent files in the tree.
pub(super) fn circles(files: &[File<'_>]) -> Vec<Vec<String>> {
    let mut packages: BTreeMap<&str, Package<'_>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_test) {
        let Some((package, inside)) = file.path.split_once("/src/") else { continue };
        if inside.starts_with("bin/") || (inside == "main.rs" && has_library(files, package)) {
            continue;
        }
        let node = Node { file: file.path, paths: &file.paths, imports: BTreeMap::new() };
        packages.entry(package).or_default().modules.insert(module(inside), node);
    }
    packages.into_values().flat_map(|package| package.with_imports().circles()).collect()
}

fn has_library(files: &[File<'_>], package: &str) -> bool {
    files.iter().any(|file| file.path.strip_prefix(package) == Some("/src/lib.rs"))
}

/// Returns the module of a file: `a/b.rs` is `a::b`; `lib.rs` and `main.rs` are the root.
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
    file: &'a str,
    paths: &'a [Path],
    /// Imported names, with the path of each from the root.
    imports: BTreeMap<String, Vec<String>>,
}

impl Package<'_> {
    fn with_imports(mut self) -> Self {
        let imports: Vec<_> = self.modules.iter().map(|(module, node)| self.imports(module, node)).collect();
        for (node, imports) in self.modules.values_mut().zip(imports) {
            node.imports = imports;
        }
        self
    }

    fn imports(&self, module: &Module, node: &Node<'_>) -> BTreeMap<String, Vec<String>> {
        let of_package = |path: &&Path| {
            let child = [module.as_slice(), &path.parts[..1]].concat();
            ["crate", "super", "self"].contains(&path.parts[0].as_str()) || self.modules.contains_key(&child)
        };
        let imports = node.paths.iter().filter(|path| path.is_import).filter(of_package);
        imports.map(|path| (path.name.clone(), absolute(module, &path.parts))).collect()
    }

    /// Returns the module that defines the item at a path from the root.
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

    /// Returns the modules that a module depends on.
    fn edges(&self, module: &Module, node: &Node<'_>) -> BTreeSet<Module> {
        const FOLLOWS_MAX: usize = 8;
        let paths = node.paths.iter().filter(|path| ["crate", "super"].contains(&path.parts[0].as_str()));
        paths
            .map(|path| self.definition(&absolute(module, &path.parts), FOLLOWS_MAX))
            .filter(|to| !to.starts_with(module) && self.modules.contains_key(to))
            .collect()
    }

    fn circles(&self) -> Vec<Vec<String>> {
        let edges: BTreeMap<&Module, BTreeSet<Module>> =
            self.modules.iter().map(|(module, node)| (module, self.edges(module, node))).collect();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            edges.keys().map(|module| (*module, reachable(module, &edges))).collect();
        let mut groups = BTreeSet::new();
        for (module, others) in &reached {
            let back = others.iter().filter(|other| reached[*other].contains(module));
            let group: BTreeSet<&str> = back.map(|other| self.modules[*other].file).collect();
            if group.len() > 1 {
                groups.insert(group.into_iter().map(str::to_owned).collect::<Vec<_>>());
            }
        }
        groups.into_iter().collect()
    }
}

/// Returns every module that can be reached from `module`; `module` itself only if a path leads back.
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

/// Resolves a path as written in `module` to a path from the root of the package.
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
