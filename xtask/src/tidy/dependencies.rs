//! Checks that each package names every declared dependency in code.

use super::Source;

/// Returns the dependencies without a mention in the code of the package, one sentence each.
pub(super) fn unused(sources: &[Source]) -> Vec<String> {
    let manifests: Vec<&Source> = sources.iter().filter(|source| is_manifest(&source.path)).collect();
    let folders: Vec<&str> = manifests.iter().map(|manifest| folder_of(&manifest.path)).collect();
    let mut found = Vec::new();
    for (manifest, folder) in manifests.iter().zip(&folders) {
        // A file belongs to the package of the innermost manifest above it.
        let owner =
            |path: &str| folders.iter().filter(|folder| path.starts_with(**folder)).max_by_key(|folder| folder.len());
        let code = code(sources, |path| owner(path) == Some(folder));
        for (number, name) in dependencies(&manifest.text) {
            if !code.iter().any(|text| names_crate(text, &name.replace('-', "_"))) {
                found.push(format!("{}:{number}: `{name}` is an unused dependency", manifest.path));
            }
        }
    }
    found
}

/// Returns the code of a package, including files that it takes from other packages by `#[path = "…"]`.
fn code(sources: &[Source], is_own: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut files: Vec<&Source> =
        sources.iter().filter(|source| source.path.ends_with(".rs") && is_own(&source.path)).collect();
    let mut next = 0;
    while let Some(&file) = files.get(next) {
        next += 1;
        for path in file.text.lines().filter_map(included) {
            let path = joined(&file.path, path);
            let is_new = |source: &&Source| source.path == path && files.iter().all(|file| file.path != path);
            if let Some(source) = sources.iter().find(is_new) {
                files.push(source);
            }
        }
    }
    files.iter().map(|file| file.text.as_str()).collect()
}

/// Returns the path in an attribute `#[path = "…"]`.
fn included(line: &str) -> Option<&str> {
    line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]")
}

/// Resolves a path relative to the directory of a file.
fn joined(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn is_manifest(path: &str) -> bool {
    path == "Cargo.toml" || path.ends_with("/Cargo.toml")
}

/// Returns the directory of a manifest with a trailing `/`; empty for the root.
fn folder_of(manifest: &str) -> &str {
    manifest.strip_suffix("Cargo.toml").unwrap_or(manifest)
}

/// Returns the names in all dependency sections of a package, with line numbers. Skips the section of a workspace: an
/// entry takes effect only in the packages that list it.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut in_section = false;
    let mut found = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_section = section.ends_with("dependencies") && !section.starts_with("workspace.");
        } else if in_section && line.starts_with(|first: char| first.is_ascii_alphabetic()) {
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            found.push((index + 1, line.split(|c| !is_of_name(c)).next().unwrap_or(line)));
        }
    }
    found
}

/// Returns true if the code holds `name::`, `use name;` or `use name as`. A variable of the same name does not count.
fn names_crate(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let starts = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let is_imported = before.ends_with("use ") && [";", " as "].iter().any(|end| after.starts_with(end));
        starts && (after.starts_with("::") || is_imported)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_dependency_that_no_code_names_is_found_by_its_line() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\n# Why.\narc-swap.workspace = true\nserde = \"1\"\n\n\
                        [dev-dependencies]\nproptest = { version = \"1\" }\n";
        let code = "use serde::Serialize;\nlet proptest = arc_swap;\n";
        let found = unused(&[source("a/Cargo.toml", manifest), source("a/src/lib.rs", code)]);
        assert_eq!(
            found,
            [
                "a/Cargo.toml:6: `arc-swap` is an unused dependency",
                "a/Cargo.toml:10: `proptest` is an unused dependency"
            ]
        );
    }

    #[test]
    fn code_of_another_package_does_not_count_and_tests_do() {
        let manifest = "[dependencies]\nserde = \"1\"\n";
        let outer = [source("a/Cargo.toml", manifest), source("a/b/Cargo.toml", ""), source("a/b/x.rs", "serde::x")];
        assert_eq!(unused(&outer).len(), 1);
        for code in ["serde::x", "use serde;", "use serde as s;", "#[serde::x]"] {
            assert_eq!(unused(&[source("a/Cargo.toml", manifest), source("a/tests/x.rs", code)]), [""; 0], "{code}");
        }
    }

    #[test]
    fn code_that_a_package_includes_from_another_folder_counts() {
        let files = |path: &str| {
            let manifest = source("a/Cargo.toml", "[dependencies]\nserde = \"1\"\n");
            let test = source("a/tests/x.rs", &format!("#[path = \"{path}\"]\nmod y;\n"));
            [manifest, test, source("b/y.rs", "#[path = \"z.rs\"]\nmod z;\n"), source("b/z.rs", "serde::x")]
        };
        assert_eq!(unused(&files("../../b/y.rs")), [""; 0]);
        assert_eq!(unused(&files("../b/y.rs")).len(), 1);
    }

    #[test]
    fn workspace_dependencies_are_not_reported_as_unused() {
        assert_eq!(unused(&[source("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"\n")]), [""; 0]);
    }
}
