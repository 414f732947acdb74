//! Computes the metrics of a run at one time from the expositions of its processes.
//!
//! Counters of actors restart with every actor process; [`Meter`] adds them up over restarts and sessions. Values that
//! a process keeps over its restarts (steps, items, rated games) are taken as they are. Missing values stay missing.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use fleet::Role;
use fleet::exposition::{Exposition, Series, increase};

use crate::engines::engines;

/// Time over which rates are computed: long enough for a few batches of finished games, short enough to show a stall.
const RATE_SPAN_SECONDS: f64 = 20.0;

/// The metrics of a run at one time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunMetrics {
    /// Time trained so far, over all sessions.
    pub elapsed_seconds: f64,
    /// Seconds since 1970.
    pub unix_seconds: f64,
    /// Episodes finished by all actors.
    pub games: Option<f64>,
    /// Moves made by all actors.
    pub positions: Option<f64>,
    /// Positions evaluated by a network.
    pub evaluations: Option<f64>,
    /// Simulations of all searches.
    pub simulations: Option<f64>,
    /// Finished episodes per second.
    pub games_per_second: Option<f64>,
    /// Moves per second.
    pub positions_per_second: Option<f64>,
    /// Network evaluations per second.
    pub evaluations_per_second: Option<f64>,
    /// Evaluations per batch.
    pub batch_mean: Option<f64>,
    /// Hit rate of the position cache, from 0 to 1.
    pub cache_hit_share: Option<f64>,
    /// Trajectories not yet acknowledged.
    pub unacknowledged: Option<f64>,
    /// Trajectories held by all replay servers.
    pub replay_trajectories: Option<f64>,
    /// Items held by all replay servers.
    pub replay_items: Option<f64>,
    /// Items in the sampling window.
    pub window_items: Option<f64>,
    /// Samples per insert, averaged over the replay servers.
    pub samples_per_insert: Option<f64>,
    /// Bytes of all replay logs.
    pub replay_bytes: Option<f64>,
    /// Training steps.
    pub steps: Option<f64>,
    /// Training steps per second.
    pub steps_per_second: Option<f64>,
    /// The total loss.
    pub loss_total: Option<f64>,
    /// The policy loss.
    pub loss_policy: Option<f64>,
    /// The value loss.
    pub loss_value: Option<f64>,
    /// The norm of the gradient before clipping.
    pub gradient_norm: Option<f64>,
    /// The learning rate.
    pub learning_rate: Option<f64>,
    /// Batches with a loss or gradient that was not finite.
    pub not_finite: Option<f64>,
    /// The newest published weights version.
    pub weights_version: Option<f64>,
    /// Weights versions by which the slowest actor is behind.
    pub weights_lag: Option<f64>,
    /// Mean policy lag of the samples of the last batch, in weights versions.
    pub sample_version_lag: Option<f64>,
    /// Accuracy on solved positions, from 0 to 1, by `search/measure/band`.
    pub accuracy: BTreeMap<String, f64>,
    /// Elo of the newest rated version; random play is 0.
    pub elo: Option<f64>,
    /// The lower bound of its confidence interval.
    pub elo_low: Option<f64>,
    /// The upper bound of its confidence interval.
    pub elo_high: Option<f64>,
    /// Elo of the fixed opponents.
    pub opponents: BTreeMap<String, f64>,
    /// Rated games.
    pub rated_games: Option<f64>,
    /// Seconds spent, by `role/phase`, over all processes of the role.
    pub seconds: BTreeMap<String, f64>,
    /// The training device and the evaluators, by role.
    pub engines: BTreeMap<String, String>,
}

impl RunMetrics {
    /// Returns the accuracy on all solved positions: `accuracy_of("raw", "preserving")`.
    pub fn accuracy_of(&self, search: &str, measure: &str) -> Option<f64> {
        self.accuracy.get(&format!("{search}/{measure}/overall")).copied()
    }

    /// Returns every metric with its name in event files: `loss/policy`, `accuracy/raw/preserving/overall`.
    pub fn scalars(&self) -> Vec<(String, f64)> {
        let named = [
            ("actor/games", self.games),
            ("actor/games_per_second", self.games_per_second),
            ("actor/positions_per_second", self.positions_per_second),
            ("actor/evaluations_per_second", self.evaluations_per_second),
            ("actor/batch_mean", self.batch_mean),
            ("actor/cache_hit_share", self.cache_hit_share),
            ("actor/unacknowledged", self.unacknowledged),
            ("replay/trajectories", self.replay_trajectories),
            ("replay/items", self.replay_items),
            ("replay/window_items", self.window_items),
            ("replay/samples_per_insert", self.samples_per_insert),
            ("learner/steps_per_second", self.steps_per_second),
            ("learner/gradient_norm", self.gradient_norm),
            ("learner/learning_rate", self.learning_rate),
            ("learner/weights_version", self.weights_version),
            ("learner/sample_version_lag", self.sample_version_lag),
            ("loss/total", self.loss_total),
            ("loss/policy", self.loss_policy),
            ("loss/value", self.loss_value),
            ("elo/current", self.elo),
            ("elo/low", self.elo_low),
            ("elo/high", self.elo_high),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let accuracy = self.accuracy.iter().map(|(name, value)| (format!("accuracy/{name}"), *value));
        let opponents = self.opponents.iter().map(|(name, value)| (format!("elo/{name}"), *value));
        named.chain(accuracy).chain(opponents).collect()
    }
}

/// Computes [`RunMetrics`] from scrapes.
#[derive(Debug, Default)]
pub struct Meter {
    /// Sums over all processes and sessions, by series.
    totals: BTreeMap<String, f64>,
    /// The last value of each counter of each running process.
    last: HashMap<(usize, String), f64>,
    /// Earlier sums, for rates; oldest first.
    history: VecDeque<(f64, BTreeMap<String, f64>)>,
    /// The last exposition of the arena, kept while the arena does not run, because strength is measured rarely.
    arena: Exposition,
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

    /// Records a restart of process `index`, whose counters start at zero.
    pub fn restarted(&mut self, index: usize) {
        self.last.retain(|(process, _), _| *process != index);
    }

    /// Computes the metrics from one round of scrapes: index, role and exposition of each process that answered.
    pub fn read(&mut self, elapsed_seconds: f64, scrapes: &[(usize, Role, Exposition)]) -> RunMetrics {
        for (index, role, exposition) in scrapes {
            for series in &exposition.series {
                if begins_anew(*role, series) {
                    self.add(*index, series);
                }
            }
            if *role == Role::Arena {
                self.arena = exposition.clone();
            }
        }
        let find = |role| scrapes.iter().find(|(_, r, _)| *r == role).map(|(_, _, exposition)| exposition);
        let learner = |name: &str| find(Role::Learner)?.get(&format!("zerofleet_learner_{name}"), &[]);
        let loss = |part| find(Role::Learner)?.get("zerofleet_learner_loss", &[("part", part)]);
        // One value for each replay server.
        let replays = |name: &str| -> Vec<f64> {
            let servers = scrapes.iter().filter(|(_, role, _)| *role == Role::Replay);
            servers.filter_map(|(_, _, server)| server.get(&format!("zerofleet_replay_{name}"), &[])).collect()
        };
        let replay = |name: &str| replays(name).into_iter().reduce(|a, b| a + b);
        let actors = |name: &'static str| {
            let actors = scrapes.iter().filter(|(_, role, _)| *role == Role::Actor);
            actors.filter_map(move |(_, _, exposition)| exposition.get(&format!("zerofleet_actor_{name}"), &[]))
        };

        let mut now = self.totals.clone();
        let steps = learner("steps_total");
        if let Some(steps) = steps {
            now.insert(STEPS.to_owned(), steps);
        }
        self.remember(elapsed_seconds, now);

        let weights_version = learner("weights_version");
        let slowest = actors("weights_version").min_by(f64::total_cmp);
        let unacknowledged: Vec<f64> = actors("unacknowledged").collect();
        RunMetrics {
            elapsed_seconds,
            unix_seconds: 0.0,
            games: self.total("games"),
            positions: self.total("moves"),
            evaluations: self.total("evaluations"),
            simulations: self.total("simulations"),
            games_per_second: self.rate(&actor_total("games")),
            positions_per_second: self.rate(&actor_total("moves")),
            evaluations_per_second: self.rate(&actor_total("evaluations")),
            batch_mean: self.ratio(&actor_total("evaluations"), &actor_total("batches")),
            cache_hit_share: self.ratio(&actor_total("cache_hits"), &actor_total("cache_lookups")),
            unacknowledged: (!unacknowledged.is_empty()).then(|| unacknowledged.iter().sum()),
            replay_trajectories: replay("trajectories"),
            replay_items: replay("items"),
            window_items: replay("window_items"),
            samples_per_insert: replay("samples_per_insert")
                .map(|sum| sum / replays("samples_per_insert").len() as f64),
            replay_bytes: replay("bytes"),
            steps,
            steps_per_second: self.rate(STEPS),
            loss_total: loss("total"),
            loss_policy: loss("policy"),
            loss_value: loss("value"),
            gradient_norm: learner("gradient_norm"),
            learning_rate: learner("learning_rate"),
            not_finite: learner("not_finite_total"),
            weights_version,
            weights_lag: weights_version.zip(slowest).map(|(newest, slowest)| (newest - slowest).max(0.0)),
            sample_version_lag: learner("sample_version_lag"),
            accuracy: self.accuracy(),
            elo: self.arena.get("zerofleet_arena_elo", &[]),
            elo_low: self.arena.get("zerofleet_arena_elo_low", &[]),
            elo_high: self.arena.get("zerofleet_arena_elo_high", &[]),
            opponents: self.opponents(),
            rated_games: self.arena.get("zerofleet_arena_games_total", &[]),
            seconds: self.seconds(),
            engines: engines(scrapes.iter().map(|(_, role, exposition)| (*role, exposition))),
        }
    }

    fn add(&mut self, index: usize, series: &Series) {
        let key = key(series);
        let last = self.last.insert((index, key.clone()), series.value).unwrap_or(0.0);
        *self.totals.entry(key).or_default() += increase(last, series.value);
    }

    fn remember(&mut self, elapsed_seconds: f64, now: BTreeMap<String, f64>) {
        self.history.push_back((elapsed_seconds, now));
        while self.history.front().is_some_and(|(then, _)| elapsed_seconds - then > RATE_SPAN_SECONDS) {
            self.history.pop_front();
        }
    }

    fn total(&self, name: &str) -> Option<f64> {
        self.totals.get(&actor_total(name)).copied()
    }

    /// Returns the increase of a sum over the span, and the time in seconds.
    fn growth(&self, key: &str) -> Option<(f64, f64)> {
        let (end, newest) = self.history.back()?;
        let newest = newest.get(key)?;
        // A series that appeared within the span is measured from its first reading.
        let (begin, oldest) =
            self.history.iter().find_map(|(then, values)| values.get(key).map(|value| (then, value)))?;
        (end > begin).then(|| ((newest - oldest).max(0.0), end - begin))
    }

    fn rate(&self, key: &str) -> Option<f64> {
        self.growth(key).map(|(gained, seconds)| gained / seconds)
    }

    fn ratio(&self, above: &str, below: &str) -> Option<f64> {
        let (above, below) = (self.growth(above)?.0, self.growth(below)?.0);
        (below > 0.0).then(|| above / below)
    }

    fn accuracy(&self) -> BTreeMap<String, f64> {
        let shares = self.arena.series.iter().filter(|series| series.name == "zerofleet_arena_accuracy");
        let named = shares.filter(|series| series.value.is_finite()).filter_map(|series| {
            let name = format!("{}/{}/{}", series.label("search")?, series.label("measure")?, series.label("band")?);
            Some((name, series.value))
        });
        named.collect()
    }

    fn opponents(&self) -> BTreeMap<String, f64> {
        let ratings = self.arena.series.iter().filter(|series| series.name == "zerofleet_arena_opponent_elo");
        ratings.filter_map(|series| Some((series.label("opponent")?.to_owned(), series.value))).collect()
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

/// Key of the training steps in the history.
const STEPS: &str = "steps";

fn actor_total(name: &str) -> String {
    format!("zerofleet_actor_{name}_total")
}

/// Returns true for a series that starts at zero with every process: the counters of actors, and the times of all
/// roles.
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
    use super::*;

    fn actor(text: &str) -> Vec<(usize, Role, Exposition)> {
        vec![(0, Role::Actor, Exposition::parse(text))]
    }

    #[test]
    fn counters_add_up_over_restarts_and_sessions() {
        let mut meter = Meter::resume(BTreeMap::from([("zerofleet_actor_games_total".to_owned(), 100.0)]));
        assert_eq!(meter.read(1.0, &actor("zerofleet_actor_games_total 5")).games, Some(105.0));
        assert_eq!(meter.read(2.0, &actor("zerofleet_actor_games_total 7")).games, Some(107.0));
        meter.restarted(0);
        assert_eq!(meter.read(3.0, &actor("zerofleet_actor_games_total 9")).games, Some(116.0));
        assert_eq!(meter.read(4.0, &actor("zerofleet_actor_games_total 1")).games, Some(117.0), "an unseen restart");
    }

    #[test]
    fn rates_are_growth_over_time_and_missing_numbers_stay_missing() {
        let mut meter = Meter::default();
        let text = |games, batches| {
            actor(&format!("zerofleet_actor_evaluations_total {games}\nzerofleet_actor_batches_total {batches}"))
        };
        assert_eq!(meter.read(0.0, &text(0, 0)).evaluations_per_second, None);
        let readings = meter.read(2.0, &text(400, 4));
        assert_eq!(readings.evaluations_per_second, Some(200.0));
        assert_eq!(readings.batch_mean, Some(100.0));
        assert_eq!((readings.loss_total, readings.elo, readings.games), (None, None, None));
    }

    #[test]
    fn positions_are_the_moves_of_actors() {
        let mut meter = Meter::default();
        meter.read(0.0, &actor("zerofleet_actor_moves_total 10"));
        let read = meter.read(2.0, &actor("zerofleet_actor_moves_total 50"));
        assert_eq!((read.positions, read.positions_per_second), (Some(50.0), Some(20.0)));
    }

    #[test]
    fn several_replay_servers_are_shown_as_one() {
        let server = |index, text: &str| (index, Role::Replay, Exposition::parse(text));
        let first = server(0, "zerofleet_replay_items 100\nzerofleet_replay_samples_per_insert 4");
        let second = server(1, "zerofleet_replay_items 20\nzerofleet_replay_samples_per_insert 3");
        let readings = Meter::default().read(1.0, &[first, second]);
        assert_eq!((readings.replay_items, readings.samples_per_insert), (Some(120.0), Some(3.5)));
        assert_eq!(readings.window_items, None);
    }
}
