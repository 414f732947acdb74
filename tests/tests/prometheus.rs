//! Checks dashboards, alert rules and the list of metrics against a real Prometheus that scrapes real processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tests::{Prometheus, PrometheusTools, Python, Role, SMALL_TIC_TAC_TOE, Sample, Target, wait_until};

use crate::watched_fleet::{self, Fleet, Panel, deployed, panels};

/// Python version that Grafana's types require.
const GRAFANA_PYTHON: (u8, u8) = (3, 11);

/// Time for which the fleet runs before the pictures are drawn.
const PLAYED: Duration = Duration::from_secs(360);

/// Time limit for the values of all panels, long enough for the slowest machine.
const DEADLINE: Duration = Duration::from_secs(180);

/// Alerts about the disk and the speed of the machine, which may be full, busy and slow here, and about repeated games,
/// which are common in a few seconds of small searches. They may be pending, but must not fire.
const MAY_BE_PENDING: [&str; 5] =
    ["ReplayDiskFillsUp", "InsertsSlow", "InferenceOverloaded", "ActorsOnOldWeights", "SelfPlayRepeatsItself"];

/// Metrics of functions that this fleet does not use: deeper searches during waits, exhaustive play, reanalysis,
/// several boards, categorical values, refusals, accelerators, credentials and trace spans.
const NOT_SEEN_HERE: [&str; 45] = [
    "zerofleet_actor_device_batches_total",
    "zerofleet_actor_device_padded_positions_total",
    "zerofleet_actor_device_positions_total",
    "zerofleet_actor_device_seconds_total",
    "zerofleet_actor_device_too_large_total",
    "zerofleet_actor_full_simulations",
    "zerofleet_actor_weights_refused",
    "zerofleet_arena_episode_length_mean",
    "zerofleet_arena_exhaustive_lost",
    "zerofleet_arena_opponent_return",
    "zerofleet_arena_return_high",
    "zerofleet_arena_return_low",
    "zerofleet_arena_return_mean",
    "zerofleet_device_busy_share",
    "zerofleet_device_graphs",
    "zerofleet_device_info",
    "zerofleet_device_lost",
    "zerofleet_device_memory_bytes",
    "zerofleet_device_memory_held_bytes",
    "zerofleet_device_memory_held_bytes_max",
    "zerofleet_device_memory_used_bytes",
    "zerofleet_device_process_busy_share",
    "zerofleet_device_transfer_bytes_per_second",
    "zerofleet_inference_device_batches_total",
    "zerofleet_inference_device_padded_positions_total",
    "zerofleet_inference_device_positions_total",
    "zerofleet_inference_device_seconds_total",
    "zerofleet_inference_device_too_large_total",
    "zerofleet_learner_board_loss",
    "zerofleet_learner_board_validation_loss",
    "zerofleet_learner_board_validation_policy_accuracy",
    "zerofleet_learner_board_validation_value_squared_error",
    "zerofleet_learner_group_members",
    "zerofleet_learner_group_rank",
    "zerofleet_learner_group_reduce_seconds_total",
    "zerofleet_learner_loss_scale",
    "zerofleet_learner_support",
    "zerofleet_learner_target_magnitude_max",
    "zerofleet_learner_targets_beyond_support_total",
    "zerofleet_learner_targets_total",
    "zerofleet_replay_defects_total",
    "zerofleet_replay_revision_lag_versions",
    "zerofleet_security_certificate_expiry_seconds",
    "zerofleet_security_files_usable_seconds",
    "zerofleet_telemetry_spans_total",
];

/// Settings with which every panel soon has values: solved positions, rated games, an archive and a memory budget.
const EVERYTHING: [(Role, &str); 7] = [
    (Role::Arena, "arena.positions=20"),
    (Role::Arena, "arena.simulations=8"),
    (Role::Arena, "arena.games_per_version=4"),
    (Role::Arena, "arena.playouts=[5]"),
    (Role::Arena, "arena.openings_per_match=1"),
    (Role::Replay, "replay.archive_seconds=1"),
    (Role::Replay, "replay.memory_bytes_max=1000000000"),
];

/// Returns Prometheus and `promtool`; `None` if they cannot be found or downloaded, which fails the test in CI.
fn tools() -> Option<PrometheusTools> {
    match PrometheusTools::find(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap() {
        Ok(tools) => Some(tools),
        Err(why) => {
            tests::skip("prometheus", why);
            None
        }
    }
}

fn python_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python")
}

#[test]
fn promtool_accepts_the_configuration_and_the_rules() {
    let Some(tools) = tools() else { return };
    let path = |name: &str| deployed().join("prometheus").join(name).display().to_string();
    tools.promtool(&["check", "config", &path("prometheus.yml")]).unwrap();
    tools.promtool(&["check", "rules", &path("alerts.yml")]).unwrap();
}

#[test]
fn every_alert_fires_on_made_up_series_and_no_other_does() {
    let Some(tools) = tools() else { return };
    let folder = deployed().join("prometheus");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (rules, made_up) = (read("alerts.yml"), read("alerts.test.yml"));
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(made_up.contains(&format!("alertname=\"{alert}\"")), "no series make {alert} fire in alerts.test.yml");
    }
    tools.promtool(&["test", "rules", &folder.join("alerts.test.yml").display().to_string()]).unwrap();
}

#[test]
fn dashboards_are_of_the_types_that_grafana_publishes() {
    let requirements = python_folder().join("grafana-requirements.txt");
    // Grafana's packages have a separate directory, next to the packages for clients.
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grafana");
    let Some(found) = Python::with_version(&requirements, &packages, GRAFANA_PYTHON).unwrap() else {
        tests::skip_python("3.11");
        return;
    };
    let dashboards: Vec<String> = watched_fleet::dashboards().iter().map(|path| path.display().to_string()).collect();
    assert!(!dashboards.is_empty(), "there are dashboards");
    let dashboards: Vec<&str> = dashboards.iter().map(String::as_str).collect();
    let printed = found.run(&python_folder().join("grafana_dashboards.py"), &dashboards, &python_folder()).unwrap();
    assert!(printed.contains(&format!("{} dashboards, 0 complaints", dashboards.len())), "{printed}");
}

#[test]
fn every_panel_and_alert_answers_rightly_on_a_real_cluster_whose_metrics_are_as_listed() {
    let Some(tools) = tools() else { return };
    let mut fleet = Fleet::new("connect_four", SMALL_TIC_TAC_TOE, &EVERYTHING).unwrap();
    fleet.start().unwrap();
    let prometheus = Prometheus::start(&tools, &deployed().join("prometheus"), &fleet.targets(), None).unwrap();
    promtool_accepts_the_metrics(&tools, &fleet.targets());
    every_panel_shows_something_plausible(&prometheus);
    metrics_are_as_listed(&prometheus);
    no_alert_on_a_healthy_fleet(&prometheus);
    a_killed_process_is_an_alert(&prometheus, &mut fleet);
}

fn every_panel_shows_something_plausible(prometheus: &Prometheus) {
    let mut waiting: Vec<(Panel, String)> = panels().into_iter().flat_map(Panel::queries).collect();
    waiting.retain(|(_, expression)| !NOT_SEEN_HERE.iter().any(|metric| expression.contains(metric)));
    assert!(waiting.len() > 80, "{} queries were read", waiting.len());
    let waited = wait_until("every panel shows something", DEADLINE, || {
        waiting.retain(|(panel, expression)| {
            // The window covers ten scrapes, so that a busy machine may miss some.
            let expression = expression.replace("$__rate_interval", "10s");
            let answer = prometheus.query(&expression).unwrap();
            answer.iter().filter(|sample| sample.value.is_finite()).for_each(|sample| plausible(panel, sample));
            answer.is_empty() || !answer.iter().all(|sample| sample.value.is_finite())
        });
        Ok(waiting.is_empty())
    });
    let waiting: Vec<String> = waiting.iter().map(|(panel, query)| format!("{}: {query}", panel.title)).collect();
    waited.unwrap_or_else(|error| panic!("{error}: nothing, or NaN, in\n{}", waiting.join("\n")));
}

/// Checks that a value is within bounds that hold at any speed of the machine.
fn plausible(panel: &Panel, Sample { labels, value }: &Sample) {
    let (low, high) = match (panel.title.as_str(), panel.unit.as_str()) {
        ("Processes", _) => (0.0, 5.0),
        ("Elo" | "Rating", _) => (-10_000.0, 10_000.0),
        ("Learning rate", _) => (0.0, 0.005),
        ("Refused by the learner" | "Refused per second", _) => (0.0, 0.0),
        // The compared versions were read at different times.
        (title, _) if title.contains("behind") => (-5.0, 1_000.0),
        // Numerators and denominators are counted at different times, and rates are extrapolated to the ends of the
        // window.
        (_, "percentunit") => (0.0, 2.0),
        (_, "s") => (0.0, 3_600.0),
        (_, "bytes") => (0.0, 1e15),
        _ => (0.0, 1e9),
    };
    let title = &panel.title;
    assert!((low..=high).contains(value), "{title}: {value} of {labels:?} is not from {low} to {high}");
}

/// Checks that names, types and descriptions of all metrics follow the conventions, except for Triton's names.
fn promtool_accepts_the_metrics(tools: &PrometheusTools, targets: &[Target]) {
    for target in targets {
        let complaints = tools.check_metrics(target).unwrap();
        let ours: Vec<&str> = complaints.lines().filter(|line| !line.starts_with("nv_inference_")).collect();
        assert!(ours.is_empty(), "{}: {ours:#?}", target.service);
        let without_help = complaints.lines().find(|line| line.ends_with("no help text"));
        assert_eq!(without_help, None, "{}", target.service);
    }
}

/// Checks that docs/metrics.md lists the exported metrics with labels and values.
fn metrics_are_as_listed(prometheus: &Prometheus) {
    let listed = listed();
    let series = prometheus.api("series", &[("match[]", "{job=\"zerofleet\"}")]).unwrap();
    let mut seen = BTreeSet::new();
    for one in series.as_array().unwrap() {
        let labels = one.as_object().unwrap();
        let exported = labels["__name__"].as_str().unwrap();
        // Prometheus adds these series itself.
        if exported == "up" || exported.starts_with("scrape_") || exported.starts_with("ALERTS") {
            continue;
        }
        let part = ["_bucket", "_sum", "_count"].iter().find_map(|part| exported.strip_suffix(part));
        let name = [Some(exported), part].into_iter().flatten().find(|name| listed.contains_key(*name));
        let name = name.unwrap_or_else(|| panic!("{exported} is not listed in docs/metrics.md"));
        let wanted = &listed[name];
        // Prometheus prefixes an exported label with `exported_` if the target has a label of the same name.
        let of_targets = ["__name__", "job", "instance", "role", "le"];
        let ours = labels.iter().filter(|(label, _)| !of_targets.contains(&label.as_str()));
        let ours: BTreeMap<&str, &str> = ours
            .map(|(label, value)| (label.strip_prefix("exported_").unwrap_or(label), value.as_str().unwrap()))
            .collect();
        assert!(
            ours.keys().copied().eq(wanted.keys().map(String::as_str)),
            "{name} has {ours:?}, listed is {wanted:?}"
        );
        for (label, values) in wanted {
            let value = ours[label.as_str()];
            assert!(values.is_empty() || values.iter().any(|one| one == value), "{name} has {label} {value}");
        }
        seen.insert(name.to_owned());
    }
    let unseen: Vec<&String> = listed.keys().filter(|name| !seen.contains(*name)).collect();
    assert_eq!(unseen, NOT_SEEN_HERE, "listed and not exported by any process of the fleet");
}

type Labels = BTreeMap<String, Vec<String>>;

/// Returns the metrics in the tables of docs/metrics.md with labels.
fn listed() -> BTreeMap<String, Labels> {
    let page = std::fs::read_to_string(deployed().join("../docs/metrics.md")).unwrap();
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut found = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        if let ([names, labels, ..], true) = (&cells[..], line.starts_with("| `")) {
            let mut parts = labels.split('`').skip(1);
            let mut read = Labels::new();
            while let (Some(label), values) = (parts.next(), parts.next().unwrap_or_default()) {
                let values = values.trim().trim_start_matches(':').split(',').map(|value| value.trim().to_owned());
                read.insert(label.to_owned(), values.filter(|value| !value.is_empty()).collect());
            }
            let prefix = |name: &str| if name.starts_with("nv_") { "" } else { "zerofleet_" };
            let names = quoted(names).into_iter().map(|name| format!("{}{name}", prefix(&name)));
            found.extend(names.map(|name| (name, read.clone())));
        }
    }
    found
}

fn rules(prometheus: &Prometheus) -> Vec<Value> {
    let data = prometheus.api("rules", &[]).unwrap();
    data["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn no_alert_on_a_healthy_fleet(prometheus: &Prometheus) {
    for rule in rules(prometheus) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&rule["name"]);
        prometheus.query(&text(&rule["query"])).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(rule["health"], "ok", "{name}: {}", rule["lastError"]);
        assert!(["critical", "warning", "info"].contains(&text(&rule["labels"]["severity"]).as_str()), "{name}");
        for annotation in ["summary", "action"] {
            assert!(!text(&rule["annotations"][annotation]).is_empty(), "{name} has no {annotation}");
        }
        let page = std::fs::read_to_string(deployed().join("../docs/observability.md")).unwrap();
        assert!(page.contains(&format!("\n### {name}\n")), "docs/observability.md has no section about {name}");
    }
    let mut states = BTreeMap::new();
    let waited = wait_until("no alert is pending", DEADLINE, || {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        states = rules(prometheus).iter().map(|rule| (text(&rule["name"]), text(&rule["state"]))).collect();
        let firing: Vec<_> = states.iter().filter(|(_, state)| *state == "firing").collect();
        assert!(firing.is_empty(), "on a healthy fleet: {firing:?}");
        Ok(states.iter().all(|(name, state)| state == "inactive" || MAY_BE_PENDING.contains(&name.as_str())))
    });
    waited.unwrap_or_else(|error| panic!("{error}: {states:?}"));
}

fn a_killed_process_is_an_alert(prometheus: &Prometheus, fleet: &mut Fleet) {
    fleet.cluster.process(Role::Arena).kill().unwrap();
    wait_until("its alert is pending", DEADLINE, || {
        let pending = prometheus.query("ALERTS{alertname=\"ProcessDown\"}").unwrap();
        let roles: Vec<&str> = pending.iter().filter_map(|one| Some(one.labels.get("role")?.as_str())).collect();
        assert!(roles.iter().all(|role| *role == "arena"), "{roles:?} are down");
        Ok(!roles.is_empty())
    })
    .unwrap();
}

/// Sections of a run file with which two cores train within minutes.
const SMALL_CONNECT_FOUR: &str = r#"
[network]
channels = 32
blocks = 3

[selfplay]
games = 64
full_simulations = 64
fast_simulations = 16

[replay]
min_items = 2000
samples_per_insert = 6
error_items = 20000
archive_seconds = 10

[learner]
device = "cpu"
precision = "f32"
batch_size = 128
schedule_minutes = 6
publish_interval_seconds = 10

[actor]
device = "cpu"
threads = 1

[arena]
device = "cpu"
games_per_version = 8
playouts = [50]
cpu_share = 0.2
"#;

#[test]
#[ignore = "it plays for six minutes and writes into docs/pictures"]
fn pictures_of_the_dashboards_are_drawn() {
    let tools = tools().expect("there is a Prometheus");
    let requirements = python_folder().join("grafana-requirements.txt");
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grafana");
    let python = Python::with_version(&requirements, &packages, GRAFANA_PYTHON).unwrap().expect("there is a Python");
    let mut fleet = Fleet::new("connect_four", SMALL_CONNECT_FOUR, &[]).unwrap();
    fleet.start().unwrap();
    let prometheus = Prometheus::start(&tools, &deployed().join("prometheus"), &fleet.targets(), Some("5s")).unwrap();
    let start = std::time::Instant::now();
    wait_until("it has played for long enough", 2 * PLAYED, || Ok(start.elapsed() >= PLAYED)).unwrap();
    let folder = deployed().join("../docs/pictures").display().to_string();
    let dashboards: Vec<String> = watched_fleet::dashboards().iter().map(|path| path.display().to_string()).collect();
    let minutes = (PLAYED.as_secs() / 60).to_string();
    let address = prometheus.address();
    let mut arguments = vec![address.as_str(), minutes.as_str(), folder.as_str()];
    arguments.extend(dashboards.iter().map(String::as_str));
    python.run(&python_folder().join("draw_dashboards.py"), &arguments, &python_folder()).unwrap();
}
