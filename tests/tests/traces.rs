//! Traces of real processes, as a collector receives them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, wait_until};

use crate::trace_collector::{Collector, Seen};

const DEADLINE: Duration = Duration::from_secs(90);
const STEPS: &str = "zerofleet_learner_steps_total";
/// Tolerated difference between the clocks of two processes on one machine, in case the system time is set or a process
/// is stalled.
const CLOCKS_NS: u64 = 1_000_000_000;
/// The table of spans.
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/traces.md");

/// Row of a span in the documented table.
#[derive(Debug, Default)]
struct Documented {
    services: BTreeSet<String>,
    parents: BTreeSet<String>,
    attributes: BTreeSet<String>,
}

fn telemetry(otlp: &str) -> String {
    format!("{SMALL_TIC_TAC_TOE}\n[telemetry]\notlp = \"{otlp}\"\ntrace_share = 1\nrun = \"traced\"\n")
}

/// Returns the rows of the table by span, with processes, parents and attributes.
fn documented() -> BTreeMap<String, Documented> {
    let text = std::fs::read_to_string(DOCS).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("| span |")).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    let quoted = |cell: &str| -> BTreeSet<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [span, process, below, attributes] = cells[..] else { panic!("{line}") };
        let services = quoted(process).into_iter().map(|name| format!("zerofleet-{name}")).collect();
        let span = quoted(span).into_iter().next().unwrap();
        (span, Documented { services, parents: quoted(below), attributes: quoted(attributes) })
    };
    rows.map(row).collect()
}

/// Returns true if a trace has these spans, each a child of the one before.
fn has_chain(trace: &[&Seen], chain: &[&str]) -> bool {
    let Some((first, rest)) = chain.split_first() else { return true };
    let mut above: BTreeSet<&[u8]> =
        trace.iter().filter(|span| span.name == *first).map(|span| span.id.as_slice()).collect();
    for name in rest {
        above = trace
            .iter()
            .filter(|span| span.name == *name && above.contains(span.parent.as_slice()))
            .map(|span| span.id.as_slice())
            .collect();
    }
    !above.is_empty()
}

/// Span chains of a game that an inference server evaluated, and of a training step that published weights.
const GAME: &[&[&str]] = &[&["game", "search", "evaluation", "evaluate"], &["game", "insert", "store"]];
const STEP: &[&[&str]] = &[
    &["training_step", "sample"],
    &["training_step", "prepare"],
    &["training_step", "step", "stage"],
    &["training_step", "step", "forward"],
    &["training_step", "step", "backward"],
    &["training_step", "step", "optimiser"],
    &["training_step", "publish"],
];

fn is_complete(seen: &[Seen], chains: &[&[&str]]) -> bool {
    let mut traces = BTreeMap::<&[u8], Vec<&Seen>>::new();
    for span in seen {
        traces.entry(&span.trace).or_default().push(span);
    }
    traces.values().any(|trace| chains.iter().all(|chain| has_chain(trace, chain)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_game_and_a_training_step_are_each_one_trace_over_all_processes() {
    let collector = Collector::start().await;
    let mut cluster = Cluster::new("tic_tac_toe", &telemetry(&collector.endpoint)).unwrap();
    let (mut server, endpoint) = cluster.inference_server().unwrap();
    cluster.process(Role::Actor).argue(&["--set", &format!("actor.inference={endpoint}")]);
    server.start().unwrap();
    cluster.start(&[Role::Replay, Role::Learner]).unwrap();
    server.ready(DEADLINE).unwrap();
    cluster.start(&[Role::Actor]).unwrap();
    wait_until("a game and a training step are traced from end to end", DEADLINE, || {
        let seen = collector.seen();
        Ok(is_complete(&seen, GAME) && is_complete(&seen, STEP))
    })
    .unwrap();
    for role in [Role::Actor, Role::Learner, Role::Replay] {
        cluster.process(role).terminate();
        let output = cluster.process(role).ended(DEADLINE).unwrap();
        assert!(output.status.success(), "{role:?}: {}", output.text);
    }
    let seen = collector.seen();
    parents_are_right(&seen);
    spans_are_documented(&seen);
    for Seen { resource, .. } in &seen {
        assert_eq!(
            (resource["zerofleet.run"].as_str(), resource["zerofleet.game"].as_str()),
            ("traced", "tic_tac_toe")
        );
        assert!(!resource["service.version"].is_empty() && !resource["service.instance.id"].is_empty());
    }
}

/// Checks that every span with a received parent belongs to the same trace as the parent and starts after it.
fn parents_are_right(seen: &[Seen]) {
    let by_id: BTreeMap<&[u8], &Seen> = seen.iter().map(|span| (span.id.as_slice(), span)).collect();
    assert_eq!(by_id.len(), seen.len(), "each span has an id of its own and came in once");
    for span in seen {
        assert!(span.start_ns <= span.end_ns, "{span:?}");
        let Some(parent) = by_id.get(span.parent.as_slice()) else { continue };
        let tolerance = if span.service == parent.service { 0 } else { CLOCKS_NS };
        assert_eq!(span.trace, parent.trace, "{span:?} below {parent:?}");
        assert!(span.start_ns + tolerance >= parent.start_ns, "{span:?} below {parent:?}");
    }
}

/// Checks that the received spans are in the table of docs/traces.md as documented, and that every documented span was
/// received.
fn spans_are_documented(seen: &[Seen]) {
    let (table, by_id) = (documented(), seen.iter().map(|span| (span.id.as_slice(), span)).collect::<BTreeMap<_, _>>());
    let mut found = BTreeMap::<&str, Documented>::new();
    for span in seen {
        let row = table.get(&span.name).unwrap_or_else(|| panic!("docs/traces.md lacks {}", span.name));
        let entry = found.entry(&span.name).or_default();
        entry.services.insert(span.service.clone());
        entry.attributes.extend(span.attributes.keys().cloned());
        let parent = by_id.get(span.parent.as_slice()).map(|parent| parent.name.clone());
        let is_documented = parent.as_ref().is_none_or(|parent| row.parents.contains(parent));
        assert!(is_documented, "docs/traces.md does not have {} below {parent:?}", span.name);
        entry.parents.extend(parent);
    }
    for (name, row) in &table {
        let found = found.get(name.as_str()).unwrap_or_else(|| panic!("{name} never came"));
        assert_eq!(found.services, row.services, "processes of {name}");
        assert_eq!(found.attributes, row.attributes, "attributes of {name}");
        assert_eq!(found.parents, row.parents, "what {name} is below");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_collector_causes_at_most_one_warning_and_the_fleet_trains_and_drains() {
    // No collector listens on this port.
    let mut cluster = Cluster::new("tic_tac_toe", &telemetry("http://127.0.0.1:1")).unwrap();
    let roles = [Role::Replay, Role::Learner, Role::Actor];
    cluster.start(&roles).unwrap();
    wait_until("it trains", DEADLINE, || Ok(cluster.metric(Role::Learner, STEPS).is_some_and(|steps| steps >= 20.0)))
        .unwrap();
    wait_until("the actor logs it", DEADLINE, || {
        Ok(cluster.process(Role::Actor).log_text().contains("cannot export traces"))
    })
    .unwrap();
    for role in [Role::Actor, Role::Learner, Role::Replay] {
        cluster.process(role).terminate();
        let output = cluster.process(role).ended(DEADLINE).unwrap();
        assert!(output.status.success(), "{role:?}: {}", output.text);
        let warnings = output.text.matches("cannot export traces").count();
        assert!(warnings <= 1, "{role:?} warns {warnings} times");
    }
}
