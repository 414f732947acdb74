use super::*;

const LIST_TEXT: &str = "
| metric | labels | meaning |
|---|---|---|
| `actor_games_total`, `actor_positions_total` | | episodes; moves |
| `actor_seconds_total` | `phase`: search, wait | time |
| `replay_sample_seconds` | `table` | histogram |
";

const PROGRAM: &str = "
counter!(\"zerofleet_actor_games_total\").increment(1);
counter!(
    \"zerofleet_actor_positions_total\"
);
gauge!(\"zerofleet_actor_seconds_total\", \"phase\" => phase);
histogram!(\"zerofleet_replay_sample_seconds\", \"table\" => table);
";

fn complaints(list: &str, program: &str, rule: &str) -> Vec<String> {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    unlisted(&[
        source("actor/src/metrics.rs", program),
        source("deploy/prometheus/alerts.yml", rule),
        source("docs/metrics.md", list),
    ])
}

fn complaints_of_rule(rule: &str) -> Vec<String> {
    complaints(LIST_TEXT, PROGRAM, rule)
}

#[test]
fn what_is_listed_exported_and_used_as_listed_is_fine() {
    let rule = "rate(zerofleet_actor_seconds_total{phase=\"wait\", role=\"actor\"}[5m]) / zerofleet_actor_games_total";
    assert_eq!(complaints_of_rule(rule), [""; 0]);
    assert_eq!(
        complaints_of_rule("sum by (le) (zerofleet_replay_sample_seconds_bucket{le=\"1\", table=\"x\"})"),
        [""; 0]
    );
    assert_eq!(complaints_of_rule("{\"expr\": \"zerofleet_actor_seconds_total{phase=\\\"wait\\\"}\"}"), [""; 0]);
}

#[test]
fn an_exported_metric_that_is_not_listed_is_found() {
    let program = format!("{PROGRAM}counter!(\"zerofleet_actor_naps_total\");");
    assert_eq!(
        complaints(LIST_TEXT, &program, ""),
        ["actor/src/metrics.rs: `zerofleet_actor_naps_total` is not listed in docs/metrics.md"]
    );
}

#[test]
fn a_listed_metric_that_no_process_exports_is_found() {
    let list = format!("{LIST_TEXT}| `actor_naps_total` | | naps |\n");
    assert_eq!(complaints(&list, PROGRAM, ""), ["docs/metrics.md: no process exports `zerofleet_actor_naps_total`"]);
}

#[test]
fn a_rule_that_names_no_metric_of_ours_is_found() {
    assert_eq!(
        complaints_of_rule("\n  expr: zerofleet_actor_gmes_total > 0"),
        ["deploy/prometheus/alerts.yml:2: no process exports `zerofleet_actor_gmes_total`"]
    );
    // Parts are of histograms only.
    assert_eq!(complaints_of_rule("zerofleet_actor_games_total_bucket").len(), 1);
}

#[test]
fn a_label_that_the_metric_does_not_have_is_found() {
    assert_eq!(
        complaints_of_rule("zerofleet_actor_games_total{phase=\"wait\"}"),
        ["deploy/prometheus/alerts.yml:1: `zerofleet_actor_games_total` has no label `phase`"]
    );
}

#[test]
fn a_value_that_the_label_never_has_is_found() {
    assert_eq!(
        complaints_of_rule("zerofleet_actor_seconds_total{phase=\"sleep\"}"),
        ["deploy/prometheus/alerts.yml:1: `phase` of `zerofleet_actor_seconds_total` is never `sleep`"]
    );
}

#[test]
fn a_family_and_a_path_are_no_metrics() {
    assert_eq!(complaints_of_rule("all of `zerofleet_actor_…`, x/zerofleet_actor_games"), [""; 0]);
}
