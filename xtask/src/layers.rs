//! `cargo xtask layers`: checks the dependencies that cargo reports against the tables of ARCHITECTURE.md.
//!
//! The document is the only list of allowed dependencies, called arrows; all other arrows are forbidden. Start with
//! [`violations`].

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{DependencyKind, Package};

use crate::tidy::rust::{self, File};
use crate::{tidy, workspace};

/// Dependencies that allow only part of a crate: the directory of the dependent crate, the crate that it uses, and the
/// only names that it may use from there. Tests may use more names, because they play games.
const VOCABULARIES: [(&str, &str, &[&str]); 2] = [
    ("crates/search/src/", "game", &["Action", "mix"]),
    // The console shows results of searches, but does not search.
    ("crates/web-console/src/", "selfplay", &["Analysis", "Proven"]),
];

/// The only program that another package may depend on, and that package, which runs the server in the same process.
/// Packages below `tests/` may depend on any program.
const EMBEDDED_PROGRAM: (&str, &str) = ("replay-server", "cli");

/// Contents of the tables of ARCHITECTURE.md.
#[derive(Debug, Default)]
pub struct Table {
    layers: BTreeMap<String, Layer>,
    /// Third-party crates that only some crates of the workspace may use, with these crates.
    walls: BTreeMap<String, Vec<String>>,
}

#[derive(Debug)]
struct Layer {
    rank: u8,
    /// True if only tests may use the crate, at any rank.
    for_tests: bool,
    uses: Vec<String>,
    uses_behind_a_feature: Vec<String>,
}

/// Prints the violations of the tables and fails if there are any.
///
/// # Errors
/// An arrow is forbidden, or the tables or the workspace cannot be read.
pub fn run(root: &Path) -> Result<()> {
    workspace::report(&violations(root)?, "dependencies are not in the tables of ARCHITECTURE.md")
}

/// Returns the violations of the tables, one sentence each.
///
/// # Errors
/// The tables or the workspace cannot be read.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("read ARCHITECTURE.md")?;
    let table = Table::parse(&text).context("read the layer tables of ARCHITECTURE.md")?;
    let metadata = workspace::metadata(&root.join("Cargo.toml"))?;
    let mut found = table.violations(&metadata.workspace_packages());
    let sources = tidy::sources(root)?;
    found.extend(used_programs(&metadata.workspace_packages()));
    found.extend(rust::files(&sources).iter().filter(|file| !file.is_test).flat_map(outside_vocabulary));
    Ok(found)
}

/// Returns one sentence for each dependency on a program that [`EMBEDDED_PROGRAM`] does not name.
fn used_programs(members: &[&Package]) -> Vec<String> {
    let is_program = |name: &str| {
        members.iter().any(|member| member.name == name && member.targets.iter().any(cargo_metadata::Target::is_bin))
    };
    let is_embedded = |user: &str, program: &str| (program, user) == EMBEDDED_PROGRAM;
    let mut found = Vec::new();
    for member in
        members.iter().filter(|member| !member.manifest_path.components().any(|part| part.as_str() == "tests"))
    {
        let used = member.dependencies.iter().filter(|used| used.path.is_some() && is_program(&used.name));
        let others = used.filter(|used| !is_embedded(&member.name, &used.name));
        found.extend(others.map(|used| format!("`{}` may not depend on the program `{}`", member.name, used.name)));
    }
    found
}

/// Returns one sentence for each name that a file uses beyond the vocabulary.
fn outside_vocabulary(file: &File<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (_, used, allowed) in VOCABULARIES.iter().filter(|(folder, ..)| file.path.starts_with(folder)) {
        let paths = file.paths.iter().filter(|path| path.parts[0] == *used);
        // An import of the whole crate gives access to all names in it.
        let names = paths.map(|path| path.parts.get(1).map_or("self", String::as_str));
        let others = names.filter(|name| !allowed.contains(name));
        found.extend(others.map(|name| format!("{}: may not name `{used}::{name}`", file.path)));
    }
    found
}

impl Table {
    /// Reads the two tables, which have the headers `rank` and `third-party crates` in the first column.
    ///
    /// # Errors
    /// A table is missing, a row has the wrong shape, a name occurs twice, or an arrow does not point down.
    pub fn parse(markdown: &str) -> Result<Self> {
        let mut table = Self::default();
        for cells in rows_below(markdown, "rank") {
            let [rank, name, uses, behind_a_feature] = &cells[..] else {
                bail!("a row has {} cells instead of 4: {cells:?}", cells.len())
            };
            let layer = Layer {
                rank: rank.parse().with_context(|| format!("`{rank}` is not a rank"))?,
                for_tests: name.contains("for tests"),
                uses: names(uses),
                uses_behind_a_feature: names(behind_a_feature),
            };
            let name = names(name).pop().with_context(|| format!("a row of rank {rank} names no crate"))?;
            ensure!(table.layers.insert(name.clone(), layer).is_none(), "`{name}` has two rows");
        }
        for cells in rows_below(markdown, "third-party crates") {
            let [crates, only_in, ..] = &cells[..] else { bail!("a row has one cell: {cells:?}") };
            for name in names(crates) {
                ensure!(table.walls.insert(name.clone(), names(only_in)).is_none(), "`{name}` has two rows");
            }
        }
        ensure!(!table.layers.is_empty(), "no table has a header that starts with `rank`");
        ensure!(!table.walls.is_empty(), "no table has a header that starts with `third-party crates`");
        table.check_that_arrows_point_down()?;
        Ok(table)
    }

    fn check_that_arrows_point_down(&self) -> Result<()> {
        for (name, layer) in &self.layers {
            for used in layer.uses.iter().chain(&layer.uses_behind_a_feature) {
                let below =
                    self.layers.get(used).with_context(|| format!("`{name}` uses `{used}`, which has no row"))?;
                ensure!(
                    below.rank < layer.rank,
                    "`{name}` of rank {} may not use `{used}` of rank {}: dependencies must have a lower rank",
                    layer.rank,
                    below.rank
                );
            }
        }
        for name in self.walls.values().flatten() {
            ensure!(self.layers.contains_key(name), "`{name}` may use third-party crates but has no row");
        }
        Ok(())
    }

    /// Returns the dependencies of members that the tables do not allow, one sentence each.
    #[must_use]
    pub fn violations(&self, members: &[&Package]) -> Vec<String> {
        let mut found = Vec::new();
        for member in members {
            self.check_member(member, &mut found);
        }
        let has_member = |name: &str| members.iter().any(|member| member.name.as_str() == name);
        let lost = self.layers.keys().filter(|name| !has_member(name));
        found.extend(lost.map(|name| format!("`{name}` has a row but does not exist; remove the row")));
        found
    }

    fn check_member(&self, member: &Package, found: &mut Vec<String>) {
        let name = member.name.as_str();
        let folder = member.manifest_path.parent().and_then(|folder| folder.file_name()).unwrap_or_default();
        if name != folder {
            found.push(format!("`{name}` is in the directory `{folder}`"));
        }
        let Some(layer) = self.layers.get(name) else {
            found.push(format!("`{name}` has no row in the layer table"));
            return;
        };
        for dependency in &member.dependencies {
            let used = &dependency.name;
            let for_tests = dependency.kind == DependencyKind::Development;
            // A third-party crate may have the name of a workspace member.
            if dependency.path.is_some() {
                // Tests may use any crate of a lower rank, but none of the same or a higher rank.
                let other = self.layers.get(used);
                let may_test_with = other.is_some_and(|other| other.rank < layer.rank || other.for_tests);
                if layer.uses.contains(used) || for_tests && may_test_with {
                    continue;
                }
                match layer.uses_behind_a_feature.contains(used) {
                    true if dependency.optional => {}
                    true => found.push(format!("`{name}` may use `{used}` only behind a feature")),
                    false => found.push(format!("`{name}` may not use `{used}`")),
                }
            } else if !for_tests && self.walls.get(used).is_some_and(|allowed| !allowed.iter().any(|one| one == name)) {
                // Binaries contain no dependency of tests alone.
                found.push(format!("`{name}` may not use the third-party crate `{used}`"));
            }
        }
    }
}

/// Returns the cells of each row of the first Markdown table with `first` as the first header cell.
fn rows_below(markdown: &str, first: &str) -> Vec<Vec<String>> {
    let mut lines = markdown.lines().skip_while(|line| cells(line).first().is_none_or(|cell| cell != first));
    lines.next();
    lines.skip(1).map(cells).take_while(|cells| !cells.is_empty()).collect()
}

fn cells(line: &str) -> Vec<String> {
    let Some(row) = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|')) else { return Vec::new() };
    row.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Returns the texts between backticks.
fn names(cell: &str) -> Vec<String> {
    tidy::quoted(cell).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    //! Tests of the layer table itself, and of the check that enforces it.

    use cargo_metadata::Package;
    use serde_json::{Value, json};

    use super::{Table, outside_vocabulary, used_programs, violations};
    use crate::tidy::{Source, rust};
    use crate::workspace;

    const TABLES: &str = "
| rank | crate | may use | behind a feature |
|---|---|---|---|
| 2 | `actor` | `search` `game` | `network` |
| 1 | `search` | `game` | |
| 1 | `network` | | |
| 0 | `game` | | |

| third-party crates | only in | why |
|---|---|---|
| `tch` `torch-sys` | `network` | heavy |
";

    /// Describes a crate with dependencies: `name?` is optional, `name*` for tests only.
    fn member(name: &str, uses: &[&str]) -> Package {
        let dependency = |written: &&str| {
            let name = written.trim_end_matches([' ', '?', '*']);
            let ours = ["actor", "search", "network", "game"].contains(&name);
            json!({
                "name": name, "req": "*", "optional": written.ends_with('?'), "uses_default_features": true,
                "features": [], "path": ours.then(|| format!("/here/{name}")),
                "kind": if written.ends_with('*') { json!("dev") } else { Value::Null },
            })
        };
        let package = json!({
            "name": name, "version": "0.0.0", "id": name, "targets": [], "features": {},
            "manifest_path": format!("/here/{name}/Cargo.toml"),
            "dependencies": uses.iter().map(dependency).collect::<Vec<_>>(),
        });
        serde_json::from_value(package).unwrap()
    }

    /// Returns the findings for `changed` among otherwise valid members.
    fn findings(changed: Package) -> String {
        let mut members =
            vec![member("actor", &[]), member("search", &[]), member("network", &[]), member("game", &[])];
        members.retain(|member| member.name != changed.name);
        members.push(changed);
        Table::parse(TABLES).unwrap().violations(&members.iter().collect::<Vec<_>>()).join("\n")
    }

    fn refusal(tables: &str) -> String {
        format!("{:#}", Table::parse(tables).unwrap_err())
    }

    #[test]
    fn every_dependency_of_this_workspace_is_an_arrow_of_the_architecture() {
        let found = violations(&workspace::root()).unwrap();
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }

    #[test]
    fn listed_arrows_pass_and_unlisted_ones_are_named() {
        assert_eq!(findings(member("actor", &["search", "network?", "anyhow"])), "");
        assert_eq!(findings(member("search", &["game", "network"])), "`search` may not use `network`");
    }

    #[test]
    fn an_arrow_behind_a_feature_must_be_optional() {
        assert_eq!(findings(member("actor", &["network"])), "`actor` may use `network` only behind a feature");
    }

    #[test]
    fn tests_may_use_any_crate_below_and_none_beside_or_above() {
        assert_eq!(findings(member("network", &["game*"])), "");
        assert_eq!(findings(member("network", &["search*"])), "`network` may not use `search`");
    }

    #[test]
    fn a_walled_crate_is_named_inside_its_wall_only() {
        assert_eq!(findings(member("network", &["tch"])), "");
        assert_eq!(findings(member("search", &["tch*"])), "", "what only tests name is in no binary");
        assert_eq!(findings(member("search", &["tch"])), "`search` may not use the third-party crate `tch`");
    }

    #[test]
    fn every_member_has_a_row_and_every_row_a_member() {
        let text = findings(member("utility", &[]));
        assert_eq!(text, "`utility` has no row in the layer table");
        let members = [member("actor", &[]), member("search", &[]), member("network", &[])];
        let text = Table::parse(TABLES).unwrap().violations(&members.iter().collect::<Vec<_>>()).join("\n");
        assert_eq!(text, "`game` has a row but does not exist; remove the row");
    }

    #[test]
    fn nothing_depends_on_a_program_but_tests_and_those_that_embed_a_server() {
        let program = |name: &str| {
            let mut package = member(name, &[]);
            let target = json!({ "name": name, "kind": ["bin"], "crate_types": ["bin"], "src_path": "/here/main.rs" });
            package.targets.push(serde_json::from_value(target).unwrap());
            package
        };
        let used = |user: &Package, name: &str| used_programs(&[user, &program(name)]).join("\n");
        let uses = |name: &str, used: &str| {
            let mut user = member(name, &["game"]);
            user.dependencies[0].name = used.to_owned();
            user
        };
        assert_eq!(used(&uses("fleet", "actor"), "actor"), "`fleet` may not depend on the program `actor`");
        assert_eq!(used(&uses("cli", "replay-server"), "replay-server"), "");
        let mut system_tests = uses("system", "actor");
        system_tests.manifest_path = "/here/tests/Cargo.toml".into();
        assert_eq!(used(&system_tests, "actor"), "");
    }

    #[test]
    fn a_package_is_called_like_its_folder() {
        let mut moved = member("game", &[]);
        moved.manifest_path = "/here/rules/Cargo.toml".into();
        assert_eq!(findings(moved), "`game` is in the directory `rules`");
    }

    #[test]
    fn a_table_with_an_arrow_sideways_or_to_nowhere_is_refused() {
        let sideways = TABLES.replace("| `network` | | |", "| `network` | `search` | |");
        assert!(refusal(&sideways).contains("dependencies must have a lower rank"), "{}", refusal(&sideways));
        let nowhere = TABLES.replace("| `network` | | |", "| `network` | `tower` | |");
        assert_eq!(refusal(&nowhere), "`network` uses `tower`, which has no row");
        assert_eq!(refusal("# nothing"), "no table has a header that starts with `rank`");
    }

    #[test]
    fn the_names_of_a_crate_are_found_in_paths_and_imports() {
        let text =
            "use game::{Action, Outcome as O};\nfn f(a: &game::Game) {}\nuse subgame::X;\nuse game::*;\nuse game;";
        let file = |path: &str| [Source { path: path.to_owned(), text: text.to_owned() }];
        let found = outside_vocabulary(&rust::files(&file("crates/search/src/tree.rs"))[0]);
        let named = ["Outcome", "Game", "*", "self"];
        assert_eq!(found, named.map(|name| format!("crates/search/src/tree.rs: may not name `game::{name}`")));
        assert_eq!(outside_vocabulary(&rust::files(&file("crates/games/src/hex.rs"))[0]), [""; 0]);
    }
}
