//! Metrics about lost, rejected and blocked work in a run, from which all warnings derive.

use std::collections::{BTreeMap, BTreeSet};

use fleet::Role;
use serde::{Deserialize, Serialize};
use service::reasons::OTHER;

use crate::processes::{Processes, metric};
use crate::rates::{CounterRates, named};

/// The health of a run, from the metrics of all processes. Unless stated otherwise, counts start at zero with each
/// process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// Reason why the run learns nothing, with a remedy; `None` while the run learns.
    pub fault: Option<String>,
    /// Number of trajectories that replay servers did not store, by reason: `invalid`, `not_stored`, `over_memory`,
    /// `stale` or `without_items`.
    pub unstored: BTreeMap<String, f64>,
    /// Most frequent defect of invalid trajectories; `None` without invalid trajectories.
    pub defect: Option<String>,
    /// Reason why an actor rejects weights that are at least as recent as the weights in use.
    pub weights_refusal: Option<String>,
    /// Share of time for which rate limiters block inserts, summed over all tables and reasons.
    pub inserts_held: f64,
    /// Share of time for which the rate limiters of the main tables block samples, except for `nothing_to_draw`.
    pub samples_held: f64,
    /// Share of time for which samples wait because nothing in the main tables can be sampled.
    pub nothing_to_draw: f64,
    /// Roles with a process that has lost the accelerator and continues on the CPU.
    pub lost_devices: Vec<String>,
    /// Roles with a process that computes on CUDA without graphs, each with the reason: `actor: reason`.
    pub without_graphs: Vec<String>,
    /// Number of episodes lost to environment failures, over all sessions of the run.
    pub lost_episodes: Option<f64>,
    /// Episodes lost to environment failures per second.
    pub lost_per_second: Option<f64>,
    /// Number of failures in environments and environment processes, over all sessions of the run.
    pub environment_failures: Option<f64>,
    /// Largest value n in a categorical support over the integers from -n to n; `None` if values are not categorical.
    pub support: Option<f64>,
    /// Share of value and reward targets outside the support (0 to 1).
    pub beyond_support_share: Option<f64>,
    /// Largest magnitude of a value or reward target.
    pub target_magnitude_max: Option<f64>,
}

impl Health {
    pub(crate) fn of(processes: &Processes<'_>) -> Self {
        use Role::{Actor, Learner, Replay};
        let refused = processes.counts_by(Replay, "refused_total", "reason");
        let others = [("stale", "stale_total"), ("without_items", "without_items_total")];
        let others = others.into_iter().filter_map(|(why, name)| Some((why.to_owned(), processes.sum(Replay, name)?)));
        let defects = processes.counts_by(Replay, "defects_total", "why");
        let waits = processes.rates_by(Replay, "rate_limiter_wait_seconds_total", ["table", "side", "reason"]);
        let held = |holds: fn(&[String; 3]) -> bool| {
            waits.iter().filter(|(labels, _)| holds(labels)).map(|(_, share)| share).sum()
        };
        let failures = processes.counts_by(Actor, "environment_failures_total", "cause");
        Self {
            fault: None,
            unstored: refused.into_iter().chain(others).filter(|(_, count)| *count > 0.0).collect(),
            defect: greatest(defects),
            weights_refusal: processes.of(Actor).find_map(weights_refusal),
            inserts_held: held(|[_, side, _]| side == "inserts"),
            samples_held: held(|[table, side, reason]| is_of_learner(table, side) && reason != "nothing_to_draw"),
            nothing_to_draw: held(|[table, side, reason]| is_of_learner(table, side) && reason == "nothing_to_draw"),
            lost_devices: Role::ALL.iter().filter(|role| processes.of(**role).any(has_lost_device)).map(name).collect(),
            without_graphs: without_graphs(processes),
            lost_episodes: processes.sum(Actor, "lost_episodes_total"),
            lost_per_second: processes.rate(Actor, "lost_episodes_total", &[]),
            environment_failures: failures.into_values().reduce(|a, b| a + b),
            support: processes.gauges(Learner, "support", &[]).next(),
            beyond_support_share: processes.ratio_of_rates(Learner, ["targets_beyond_support_total", "targets_total"]),
            target_magnitude_max: processes.gauges(Learner, "target_magnitude_max", &[]).reduce(f64::max),
        }
    }

    /// Replaces the counts from actors by sums over all sessions of the run.
    pub(crate) fn over_sessions(self, totals: &BTreeMap<String, f64>) -> Self {
        let failures = metric(Role::Actor, "environment_failures_total{");
        let failures = totals.iter().filter(|(key, _)| key.starts_with(&failures)).map(|(_, count)| *count);
        let lost_episodes = totals.get(&metric(Role::Actor, "lost_episodes_total")).copied();
        Self { lost_episodes, environment_failures: failures.reduce(|a, b| a + b), ..self }
    }

    /// Returns the number of trajectories that replay servers rejected as invalid.
    pub fn refused(&self) -> f64 {
        self.unstored.get("invalid").copied().unwrap_or(0.0)
    }
}

fn name(role: &Role) -> String {
    role.name().to_owned()
}

fn has_lost_device(process: &CounterRates) -> bool {
    process.newest().and_then(|newest| newest.get("zerofleet_device_lost", &[])) > Some(0.0)
}

/// Returns the reasons why processes compute on CUDA without graphs, each after the role.
fn without_graphs(processes: &Processes<'_>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for role in Role::ALL {
        for series in processes.of(role).flat_map(|process| named(process, "zerofleet_device_graphs")) {
            let reason = series.label("reason").filter(|reason| !reason.is_empty() && series.value > 0.0);
            found.extend(reason.map(|reason| format!("{}: {reason}", role.name())));
        }
    }
    found.into_iter().collect()
}

/// Returns the reason why an actor rejects weights that are at least as recent as the weights in use; `None` otherwise.
fn weights_refusal(actor: &CounterRates) -> Option<String> {
    let version = actor.newest()?.get(&metric(Role::Actor, "weights_version"), &[]).unwrap_or(0.0);
    let name = metric(Role::Actor, "weights_refused");
    let current = named(actor, &name).filter(|series| series.value >= version);
    let newest = current.max_by(|a, b| a.value.total_cmp(&b.value))?;
    newest.label("why").map(str::to_owned)
}

/// Returns true for the sampling side of the main table, from which learners sample.
fn is_of_learner(table: &str, side: &str) -> bool {
    table == "main" && side == "samples"
}

/// Returns the text with the highest count above zero; `None` if all counts are zero.
fn greatest(counts: BTreeMap<String, f64>) -> Option<String> {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0.0);
    // Any specific text takes precedence over the label that groups rare texts.
    counts
        .max_by(|a, b| (a.0 != OTHER, a.1).partial_cmp(&(b.0 != OTHER, b.1)).expect("counts are finite"))
        .map(|(text, _)| text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet::exposition::Exposition;

    use super::*;
    use crate::meter::Meter;
    use crate::rates::tests::start;

    /// Returns the health from a single process of `role`, which exported these metrics one second apart.
    fn health(role: Role, texts: &[&str]) -> Health {
        let (mut meter, begin) = (Meter::default(), start());
        let mut health = Health::default();
        for (second, text) in texts.iter().enumerate() {
            let at = begin + Duration::from_secs(second as u64);
            health = meter.read(at, vec![(0, role, Exposition::parse(text))]).health;
        }
        health
    }

    #[test]
    fn the_share_of_targets_beyond_the_support_is_that_of_the_last_seconds() {
        let text = |targets, beyond| {
            format!(
                "zerofleet_learner_targets_total {targets}\nzerofleet_learner_targets_beyond_support_total {beyond}\n\
                 zerofleet_learner_support 25\nzerofleet_learner_target_magnitude_max 700\n"
            )
        };
        let found = health(Role::Learner, &[&text(9000, 9000), &text(9100, 9003)]);
        assert_eq!((found.beyond_support_share, found.target_magnitude_max), (Some(0.03), Some(700.0)));
        assert_eq!(found.support, Some(25.0));
    }

    #[test]
    fn a_replay_server_names_the_defect_of_most_refused_trajectories() {
        let text = "zerofleet_replay_refused_total{reason=\"invalid\"} 9\nzerofleet_replay_stale_total 2\n\
                    zerofleet_replay_refused_total{reason=\"over_memory\"} 0\n\
                    zerofleet_replay_defects_total{why=\"steps: has 9 steps\"} 1\n\
                    zerofleet_replay_defects_total{why=\"other\"} 7\n\
                    zerofleet_replay_defects_total{why=\"steps[0].action: 4224 is not below 4096\"} 3\n";
        let found = health(Role::Replay, &[text]);
        assert_eq!(found.unstored, BTreeMap::from([("invalid".to_owned(), 9.0), ("stale".to_owned(), 2.0)]));
        assert_eq!((found.refused(), found.defect.as_deref()), (9.0, Some("steps[0].action: 4224 is not below 4096")));
    }

    #[test]
    fn a_process_that_was_started_again_without_its_device_is_named_by_role() {
        let found = |role, text: &str| health(role, &[text]).lost_devices;
        assert_eq!(found(Role::Learner, "zerofleet_device_lost 1\n"), ["learner"]);
        assert_eq!(found(Role::Actor, "zerofleet_device_lost 1\n"), ["actor"]);
        assert_eq!(found(Role::Actor, "zerofleet_actor_weights_version 3\n"), [""; 0]);
    }

    #[test]
    fn a_process_that_computes_without_graphs_is_named_by_role_with_the_reason() {
        let text = |reason: &str, value: u8| {
            format!("zerofleet_device_graphs{{what=\"evaluation\",reason=\"{reason}\"}} {value}\n")
        };
        let found = |text: &str| health(Role::Actor, &[text]).without_graphs;
        assert_eq!(found(&text("", 1)), [""; 0]);
        assert_eq!(found(&(text("", 0) + &text("a replay differs", 1))), ["actor: a replay differs"]);
    }

    #[test]
    fn weights_count_as_refused_until_an_actor_plays_with_newer_ones() {
        let text = |version: &str| {
            format!("zerofleet_actor_weights_refused{{why=\"network output is not finite\"}} 3\n{version}")
        };
        let why = |version: &str| health(Role::Actor, &[&text(version)]).weights_refusal;
        assert_eq!(why("").as_deref(), Some("network output is not finite"));
        assert_eq!(why("zerofleet_actor_weights_version 3\n").as_deref(), Some("network output is not finite"));
        assert_eq!(why("zerofleet_actor_weights_version 4\n"), None);
    }

    #[test]
    fn only_what_holds_the_learner_back_excuses_it() {
        let text = |seconds: f64| {
            let wait = "zerofleet_replay_rate_limiter_wait_seconds_total";
            let series = [
                ("main", "samples", "min_items"),
                ("main", "samples", "nothing_to_draw"),
                ("two", "samples", "inserts"),
                ("two", "inserts", "samples"),
            ];
            let lines = series.map(|(table, side, reason)| {
                format!("{wait}{{table=\"{table}\",side=\"{side}\",reason=\"{reason}\"}} {seconds}\n")
            });
            lines.concat()
        };
        let found = health(Role::Replay, &[&text(0.0), &text(0.5)]);
        assert_eq!([found.inserts_held, found.samples_held, found.nothing_to_draw], [0.5; 3]);
    }

    #[test]
    fn lost_episodes_add_up_over_restarts_and_failures_over_their_causes() {
        let text = "zerofleet_actor_lost_episodes_total 3\nzerofleet_actor_environment_failures_total{cause=\"died\"} 2\n\
                    zerofleet_actor_environment_failures_total{cause=\"hung\"} 1\n";
        let first = health(Role::Actor, &[text]);
        assert_eq!((first.lost_episodes, first.environment_failures), (Some(3.0), Some(3.0)));
        let restarted = text.replace('3', "1");
        assert_eq!(health(Role::Actor, &[text, &restarted]).lost_episodes, Some(4.0));
    }
}
