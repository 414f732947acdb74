//! Computes the metrics of a run from scrapes, and sums counters over restarts and sessions.
//!
//! Counters of actors restart at zero with every actor process. Values that a process keeps over restarts (steps,
//! items, rated games) are used unchanged.

use std::collections::BTreeMap;
use std::time::Instant;

use fleet::Role;
use fleet::exposition::{Exposition, Series, increase};

use crate::metrics::RunMetrics;
use crate::processes::{Processes, metric};
use crate::rates::{CounterRates, RATE_SPAN, named};

/// Computes [`RunMetrics`] from scrapes.
#[derive(Debug, Default)]
pub struct Meter {
    /// Sums over all processes and sessions, by series.
    totals: BTreeMap<String, f64>,
    /// Processes that have responded, by index, with the time of the last response.
    processes: BTreeMap<usize, (Role, Instant, CounterRates)>,
}

impl Meter {
    /// Starts from the totals of earlier sessions.
    pub fn resume(totals: BTreeMap<String, f64>) -> Self {
        Self { totals, ..Self::default() }
    }

    /// Returns the sums over all processes and sessions, for the next session.
    pub fn totals(&self) -> &BTreeMap<String, f64> {
        &self.totals
    }

    /// Returns the number of moves of all actors.
    pub fn moves(&self) -> f64 {
        self.total("moves_total").unwrap_or_default()
    }

    /// Records a restart of process `index`: the counters of the process start at zero again.
    pub fn restarted(&mut self, index: usize) {
        self.processes.remove(&index);
    }

    /// Computes the metrics from one round of scrapes: index, role and exposition of each process that responded. A
    /// process without a response for longer than the time span of rates has no metrics, except for the arena, which
    /// measures rarely.
    pub fn read(&mut self, now: Instant, scrapes: Vec<(usize, Role, Exposition)>) -> RunMetrics {
        for (index, role, exposition) in scrapes {
            let (_, answered, rates) =
                self.processes.entry(index).or_insert_with(|| (role, now, CounterRates::default()));
            for series in exposition.series.iter().filter(|series| begins_anew(role, series)) {
                let before = named(rates, &series.name).find(|before| before.labels == series.labels);
                let before = before.map_or(0.0, |before| before.value);
                *self.totals.entry(key(series)).or_default() += increase(before, series.value);
            }
            *answered = now;
            rates.remember(now, exposition);
        }
        let is_current = |role, answered| role == Role::Arena || now.duration_since(answered) <= RATE_SPAN;
        let current = self.processes.values().filter(|(role, answered, _)| is_current(*role, *answered));
        let processes = Processes(current.map(|(role, _, rates)| (*role, rates)).collect());
        let current = RunMetrics::of(&processes);
        RunMetrics {
            games: self.total("games_total"),
            positions: self.total("moves_total"),
            evaluations: self.total("evaluations_total"),
            simulations: self.total("simulations_total"),
            seconds: self.seconds(),
            health: current.health.over_sessions(&self.totals),
            ..current
        }
    }

    fn total(&self, name: &str) -> Option<f64> {
        self.totals.get(&metric(Role::Actor, name)).copied()
    }

    fn seconds(&self) -> BTreeMap<String, f64> {
        let mut seconds = BTreeMap::new();
        for (key, value) in &self.totals {
            let role = key.strip_prefix("zerofleet_").and_then(|rest| rest.split('_').next());
            let phase =
                key.split_once("_seconds_total{phase=").map(|(_, phase)| phase.trim_end_matches('}').to_owned());
            let wait = ["insert_wait", "sample_wait"].into_iter().find(|wait| key.contains(wait)).map(str::to_owned);
            if let (Some(role), Some(phase)) = (role, phase.or(wait)) {
                seconds.insert(format!("{role}/{phase}"), *value);
            }
        }
        seconds
    }
}

/// Returns true for a series that starts at zero in every new process: counters of actors, and times of all roles.
fn begins_anew(role: Role, series: &Series) -> bool {
    let counts = role == Role::Actor && series.name.ends_with("_total");
    (counts || series.name.ends_with("_seconds_total")) && series.value.is_finite()
}

fn key(series: &Series) -> String {
    if series.labels.is_empty() {
        return series.name.clone();
    }
    let labels: Vec<String> = series.labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    format!("{}{{{}}}", series.name, labels.join(","))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rates::tests::start;

    fn actor(text: &str) -> Vec<(usize, Role, Exposition)> {
        vec![(0, Role::Actor, Exposition::parse(text))]
    }

    /// Reads the metrics of an actor at each of these seconds.
    fn read(meter: &mut Meter, readings: &[(u64, String)]) -> Vec<RunMetrics> {
        let begin = start();
        let at = |second: &u64| begin + Duration::from_secs(*second);
        readings.iter().map(|(second, text)| meter.read(at(second), actor(text))).collect()
    }

    #[test]
    fn counters_add_up_over_restarts_and_sessions() {
        let mut meter = Meter::resume(BTreeMap::from([("zerofleet_actor_games_total".to_owned(), 100.0)]));
        let games = |meter: &mut Meter, games| {
            meter.read(start(), actor(&format!("zerofleet_actor_games_total {games}"))).games
        };
        assert_eq!(games(&mut meter, 5), Some(105.0));
        assert_eq!(games(&mut meter, 7), Some(107.0));
        meter.restarted(0);
        assert_eq!(games(&mut meter, 9), Some(116.0));
        assert_eq!(games(&mut meter, 1), Some(117.0), "an unseen restart");
    }

    #[test]
    fn rates_are_growth_over_time_and_missing_numbers_stay_missing() {
        let text = |games, batches| {
            format!("zerofleet_actor_evaluations_total {games}\nzerofleet_actor_batches_total {batches}")
        };
        let readings = read(&mut Meter::default(), &[(0, text(0, 0)), (2, text(400, 4))]);
        assert_eq!(readings[0].evaluations_per_second, None);
        assert_eq!(readings[1].evaluations_per_second, Some(200.0));
        assert_eq!(readings[1].batch_mean, Some(100.0));
        assert_eq!((readings[1].loss_total, readings[1].elo, readings[1].games), (None, None, None));
    }

    #[test]
    fn positions_are_the_moves_of_actors() {
        let text = |moves| format!("zerofleet_actor_moves_total {moves}");
        let readings = read(&mut Meter::default(), &[(0, text(10)), (2, text(50))]);
        assert_eq!((readings[1].positions, readings[1].positions_per_second), (Some(50.0), Some(20.0)));
    }

    #[test]
    fn a_process_that_stops_answering_keeps_its_metrics_for_a_while_and_the_arena_for_ever() {
        let (mut meter, begin) = (Meter::default(), start());
        let learner = (0, Role::Learner, Exposition::parse("zerofleet_learner_steps_total 7"));
        let arena = (1, Role::Arena, Exposition::parse("zerofleet_arena_elo 900"));
        meter.read(begin, vec![learner, arena]);
        let soon = meter.read(begin + Duration::from_secs(1), Vec::new());
        assert_eq!((soon.steps, soon.elo), (Some(7.0), Some(900.0)));
        let late = meter.read(begin + RATE_SPAN + Duration::from_secs(1), Vec::new());
        assert_eq!((late.steps, late.elo), (None, Some(900.0)));
    }

    #[test]
    fn several_replay_servers_are_shown_as_one() {
        let server = |index, text: &str| (index, Role::Replay, Exposition::parse(text));
        let text = |items, samples, inserted| {
            format!(
                "zerofleet_replay_items {items}\nzerofleet_replay_samples_total {samples}\n\
                 zerofleet_replay_items_inserted_total {inserted}"
            )
        };
        let first = server(0, &text(100, 600, 150));
        let second = server(1, &text(20, 100, 50));
        let readings = Meter::default().read(start(), vec![first, second]);
        assert_eq!((readings.replay_items, readings.samples_per_insert), (Some(120.0), Some(3.5)));
        assert_eq!(readings.window_items, None);
    }

    #[test]
    fn repetition_is_the_mean_of_the_replay_servers_that_measured_it() {
        let server = |index, overall, early, top| {
            let text = format!(
                "zerofleet_replay_distinct_share{{part=\"overall\"}} {overall}\n\
                 zerofleet_replay_distinct_share{{part=\"empty/0-7\"}} {early}\nzerofleet_replay_top_1000_share {top}"
            );
            (index, Role::Replay, Exposition::parse(&text))
        };
        let silent = (2, Role::Replay, Exposition::parse("zerofleet_replay_items 7"));
        let servers = vec![server(0, "0.5", "NaN", "0.25"), server(1, "0.75", "0.125", "0.75"), silent];
        let reading = Meter::default().read(start(), servers);
        let expected = [("distinct/empty/0-7", 0.125), ("distinct/overall", 0.625), ("distinct/top_1000", 0.5)];
        let scalars = reading.scalars();
        let found = scalars.iter().filter(|(name, _)| name.starts_with("distinct/"));
        assert!(found.map(|(name, value)| (name.as_str(), *value)).eq(expected), "{scalars:?}");
    }
}
