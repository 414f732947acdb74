//! The layer table itself, and claims about the check that holds it.

use super::vocabulary::said;
use super::{Dependency, Member, Table, violations};
use crate::workspace;

const TABLES: &str = "
| rank | crate | may use | behind a feature |
|---|---|---|---|
| 2 | `actor` | `search` `game` | `network` |
| 2 | `arena` (planned) | `game` | |
| 1 | `search` | `game` | |
| 1 | `network` | | |
| 0 | `game` | | |

| third-party crates | only in | why |
|---|---|---|
| `tch` `torch-sys` | `network` | heavy |
";

/// `name?` is an optional dependency, `name*` one of tests only.
fn member(name: &str, uses: &[&str]) -> Member {
    let uses = uses.iter().map(|written| {
        let name = written.trim_end_matches([' ', '?', '*']).to_owned();
        Dependency {
            ours: ["actor", "search", "network", "game"].contains(&name.as_str()),
            optional: written.ends_with('?'),
            for_tests: written.ends_with('*'),
            name,
        }
    });
    Member { name: name.to_owned(), folder: name.to_owned(), uses: uses.collect() }
}

/// The findings for `changed` among members that are otherwise in order.
fn findings(changed: Member) -> String {
    let mut members = vec![member("actor", &[]), member("search", &[]), member("network", &[]), member("game", &[])];
    members.retain(|member| member.name != changed.name);
    members.push(changed);
    Table::parse(TABLES).unwrap().violations(&members).join("\n")
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
    assert_eq!(findings(member("actor", &["network"])), "`actor` may use `network` behind a feature only");
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
fn every_member_has_a_row_and_every_row_a_member_unless_planned() {
    let text = findings(member("utility", &[]));
    assert_eq!(text, "`utility` has no row in the layer table");
    let text = findings(member("arena", &[]));
    assert_eq!(text, "`arena` exists and is still marked (planned)");
    let members = [member("actor", &[]), member("search", &[]), member("network", &[])];
    let text = Table::parse(TABLES).unwrap().violations(&members).join("\n");
    assert_eq!(text, "`game` has a row and does not exist: remove the row or mark it (planned)");
}

#[test]
fn a_package_is_called_like_its_folder() {
    let moved = Member { folder: "rules".to_owned(), ..member("game", &[]) };
    assert_eq!(findings(moved), "`game` lies in a folder called `rules`");
}

#[test]
fn a_table_with_an_arrow_sideways_or_to_nowhere_is_refused() {
    let sideways = TABLES.replace("| `network` | | |", "| `network` | `search` | |");
    assert!(refusal(&sideways).contains("arrows point down, never sideways"), "{}", refusal(&sideways));
    let nowhere = TABLES.replace("| `network` | | |", "| `network` | `tower` | |");
    assert_eq!(refusal(&nowhere), "`network` uses `tower`, which has no row");
    assert_eq!(refusal("# nothing"), "there is no table whose header begins with `rank`");
}

#[test]
fn the_names_of_a_crate_are_found_in_paths_and_imports() {
    let text = "use game::{Action, Outcome as O};\nfn f(a: &game::Game) {}\nuse subgame::X;\nuse game::*;";
    assert_eq!(said(text, "game"), ["Action", "Outcome", "Game", "*"]);
}
