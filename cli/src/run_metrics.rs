//! Computes the metrics of a run at one time from the Prometheus expositions of all processes.
//!
//! [`RunMetrics`] lists the metrics of a run, [`DeviceUse`] the metrics of a device, and [`Health`] lost or refused
//! work. [`Processes`] computes one value from the processes of a role, and [`CounterRates`] holds the recent
//! expositions of a process. Counters of actors restart at zero with every actor process; [`Meter`] sums the counters
//! over restarts and sessions. Values that a process keeps over restarts (steps, items, rated games) are used
//! unchanged. Missing values stay missing.

mod devices;
mod health;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use fleet::Role;
use fleet::exposition::{Exposition, Series, increase};
use service::devices::CPU;

pub(crate) use devices::DeviceUse;
pub(crate) use health::Health;

/// Time span of rates: long enough for a few batches of finished games, short enough to show a stall.
const RATE_SPAN: Duration = Duration::from_secs(20);

/// Names of the repetition measures in [`RunMetrics::distinct`].
pub(crate) const DISTINCT: [&str; 7] =
    ["overall", "empty/0-7", "empty/8-15", "empty/16-23", "empty/24-", "other", "top_1000"];

/// Declares [`RunMetrics`]. Each line declares a metric with one number: documentation, field, name in event files, and
/// the expression for the value. Metrics without an expression are sums over sessions.
macro_rules! run_metrics {
    (|$processes:ident| $($(#[$doc:meta])* $field:ident $(as $name:literal)? $(= $value:expr)?;)*) => {
        /// The metrics of a run at one time.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub(crate) struct RunMetrics {
            $($(#[$doc])* pub $field: Option<f64>,)*
            /// Training time in seconds, over all sessions.
            pub elapsed_seconds: f64,
            /// Unix time of the reading in seconds.
            pub unix_seconds: f64,
            /// Shares of distinct positions among samples of the latest stored games: `overall`, in games from the
            /// empty board by plies (`empty/0-7`, …), and in `other` games; `top_1000` is the share of the 1,000 most
            /// common positions.
            pub distinct: BTreeMap<String, f64>,
            /// Accuracy on solved positions, from 0 to 1, by `search/measure/band`.
            pub accuracy: BTreeMap<String, f64>,
            /// Elo of the fixed opponents, by name.
            pub opponents: BTreeMap<String, f64>,
            /// Thread time in seconds by `role/phase`, summed over all processes of the role.
            pub seconds: BTreeMap<String, f64>,
            /// Training device and evaluators, by role.
            pub engines: BTreeMap<String, String>,
            /// Devices that hold tensors; the CPU is last.
            pub devices: Vec<DeviceUse>,
            /// Lost, refused or blocked work.
            pub health: Health,
        }

        impl RunMetrics {
            /// Computes all metrics that only depend on recent expositions. Totals since the start of the run and all
            /// times are left at the default.
            pub(crate) fn of($processes: &Processes<'_>) -> Self {
                Self {
                    $($($field: $value,)?)*
                    distinct: $processes.distinct(),
                    accuracy: $processes.accuracy(),
                    opponents: $processes.opponents(),
                    engines: $processes.engines(),
                    devices: devices::of($processes),
                    health: Health::of($processes),
                    ..Self::default()
                }
            }

            /// Returns the metrics with one number, by name in event files.
            fn numbers(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
                [$($(($name, self.$field),)?)*].into_iter()
            }
        }
    };
}

run_metrics! {
    |processes|
    /// Episodes finished by all actors.
    games as "actor/games";
    /// Moves made by all actors.
    positions;
    /// Positions evaluated by a network.
    evaluations;
    /// Simulations of all searches.
    simulations;
    /// Finished episodes per second.
    games_per_second as "actor/games_per_second" = processes.rate(Role::Actor, "games_total");
    /// Moves per second.
    positions_per_second as "actor/positions_per_second" = processes.rate(Role::Actor, "moves_total");
    /// Network evaluations per second.
    // Actors also count evaluations by inference servers.
    evaluations_per_second as "actor/evaluations_per_second" = processes.rate(Role::Actor, "evaluations_total");
    /// Inserted trajectories per second.
    inserts_per_second as "replay/inserts_per_second" = processes.rate(Role::Replay, "inserts_total");
    /// Samples per second.
    samples_per_second as "replay/samples_per_second" = processes.rate(Role::Replay, "samples_total");
    /// Mean number of evaluations per batch.
    batch_mean as "actor/batch_mean" = processes.ratio_of_rates(Role::Actor, ["evaluations_total", "batches_total"]);
    /// Hit rate of the position cache, from 0 to 1.
    cache_hit_share as "actor/cache_hit_share" =
        processes.ratio_of_rates(Role::Actor, ["cache_hits_total", "cache_lookups_total"]);
    /// Trajectories of actors that no replay server has acknowledged yet.
    unacknowledged as "actor/unacknowledged" = processes.sum(Role::Actor, "unacknowledged");
    /// Trajectories held by all replay servers.
    replay_trajectories as "replay/trajectories" = processes.sum(Role::Replay, "trajectories");
    /// Items held by all replay servers.
    replay_items as "replay/items" = processes.sum(Role::Replay, "items");
    /// Items in the sampling windows of all replay servers.
    window_items as "replay/window_items" = processes.sum(Role::Replay, "window_items");
    /// Samples per insert, averaged over the replay servers.
    samples_per_insert as "replay/samples_per_insert" =
        ratio(processes.sum(Role::Replay, "samples_total"), processes.sum(Role::Replay, "items_inserted_total"));
    /// Size of all replay logs in bytes.
    replay_bytes as "replay/log_bytes" = processes.sum(Role::Replay, "bytes");
    /// Memory of all replay tables in bytes.
    replay_memory_bytes as "replay/memory_bytes" = processes.sum(Role::Replay, "memory_bytes");
    /// Number of completed training steps.
    steps = processes.learner("steps_total");
    /// Training steps per second.
    // Several learners compute the same steps.
    steps_per_second as "learner/steps_per_second" = processes.growth(Role::Learner, "steps_total").reduce(f64::max);
    /// Weighted total loss of training.
    loss_total as "loss/total" = processes.loss("total");
    /// Policy loss of training.
    loss_policy as "loss/policy" = processes.loss("policy");
    /// Value loss of training.
    loss_value as "loss/value" = processes.loss("value");
    /// Reward loss of a learned model.
    loss_reward as "loss/reward" = processes.loss("reward");
    /// Consistency loss of a learned model.
    loss_consistency as "loss/consistency" = processes.loss("consistency");
    /// Chance loss of a learned model.
    loss_chance as "loss/chance" = processes.loss("chance");
    /// Policy loss on held-out trajectories.
    validation_loss_policy as "validation/policy" = processes.validation("policy");
    /// Value loss on held-out trajectories, for networks that predict win, draw and loss.
    validation_loss_value as "validation/value" = processes.validation("value");
    /// Share of held-out positions in which network and search policy prefer the same move, from 0 to 1.
    validation_policy_accuracy as "validation/policy_accuracy" = processes.learner("validation_policy_accuracy");
    /// Mean squared error of values on held-out trajectories.
    validation_value_squared_error as "validation/value_squared_error" =
        processes.learner("validation_value_squared_error");
    /// Expected calibration error of the predicted score, from 0 to 1.
    validation_calibration_error as "validation/calibration_error" = processes.learner("validation_calibration_error");
    /// Gradient norm before clipping.
    gradient_norm as "learner/gradient_norm" = processes.learner("gradient_norm");
    /// Current learning rate.
    learning_rate as "learner/learning_rate" = processes.learner("learning_rate");
    /// Number of batches with a non-finite loss or gradient.
    not_finite as "learner/not_finite" = processes.learner("not_finite_total");
    /// Latest published weights version.
    weights_version as "learner/weights_version" = processes.newest_version();
    /// Weights versions from the weights of the slowest actor to the latest version.
    weights_lag as "actor/weights_lag" = processes.weights_lag();
    /// Mean policy lag of the samples in the last batch, in weights versions.
    sample_version_lag as "learner/sample_version_lag" = processes.learner("sample_version_lag");
    /// Elo of the latest rated version; random play is 0.
    elo as "elo/current" = processes.arena("elo");
    /// Lower bound of the confidence interval of `elo`.
    elo_low as "elo/low" = processes.arena("elo_low");
    /// Upper bound of the confidence interval of `elo`.
    elo_high as "elo/high" = processes.arena("elo_high");
    /// Number of games rated by the arena.
    rated_games = processes.arena("games_total");
    /// Mean return of evaluation episodes with the latest measured version, in games with rewards.
    return_mean as "return/mean" = processes.arena("return_mean");
    /// Lower bound of the confidence interval of `return_mean`.
    return_low as "return/low" = processes.arena("return_low");
    /// Upper bound of the confidence interval of `return_mean`.
    return_high as "return/high" = processes.arena("return_high");
    /// Mean number of steps per evaluation episode.
    episode_length as "return/episode_length" = processes.arena("episode_length_mean");
    /// Mean return of random play.
    random_return as "return/random" =
        processes.gauges(Role::Arena, "opponent_return", &[("opponent", "random")]).next();
    /// Number of evaluation episodes.
    evaluation_episodes = processes.arena("episodes_total");
}

impl RunMetrics {
    /// Returns a measure over all solved positions: `accuracy_of("raw", "preserving")`.
    pub(crate) fn accuracy_of(&self, search: &str, measure: &str) -> Option<f64> {
        self.accuracy.get(&format!("{search}/{measure}/overall")).copied()
    }

    /// Returns true if the strength of this run is a mean return rather than Elo.
    pub(crate) fn has_returns(&self) -> bool {
        self.return_mean.is_some() || self.random_return.is_some()
    }

    /// Returns all metrics by name in event files: `loss/policy`, `accuracy/raw/preserving/overall`.
    pub(crate) fn scalars(&self) -> Vec<(String, f64)> {
        let named = self.numbers().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let accuracy = self.accuracy.iter().map(|(name, value)| (format!("accuracy/{name}"), *value));
        let distinct = self.distinct.iter().map(|(name, value)| (format!("distinct/{name}"), *value));
        let opponents = self.opponents.iter().map(|(name, value)| (format!("elo/{name}"), *value));
        let devices = self.devices.iter().flat_map(DeviceUse::scalars);
        named.chain(accuracy).chain(distinct).chain(opponents).chain(devices).collect()
    }
}

/// The expositions of one process over the last [`RATE_SPAN`].
#[derive(Debug, Clone, Default)]
pub(crate) struct CounterRates {
    /// The expositions, oldest first.
    readings: VecDeque<(Instant, Exposition)>,
}

impl CounterRates {
    /// Adds an exposition that was read at `now`.
    pub(crate) fn remember(&mut self, now: Instant, exposition: Exposition) {
        self.readings.push_back((now, exposition));
        // One older exposition stays, so that rates cover at least the span.
        while self.readings.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= RATE_SPAN) {
            self.readings.pop_front();
        }
    }

    /// Removes all expositions: a rate across a gap in the readings would not be recent.
    pub(crate) fn clear(&mut self) {
        self.readings.clear();
    }

    /// Returns the latest exposition.
    pub(crate) fn newest(&self) -> Option<&Exposition> {
        self.readings.back().map(|(_, exposition)| exposition)
    }

    /// Returns the increase of a counter per second.
    pub(crate) fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.gained(name, labels, increase)
    }

    /// Returns the growth of a value per second; a decrease counts as zero.
    fn growth(&self, name: &str) -> Option<f64> {
        self.gained(name, &[], |last, value| (value - last).max(0.0))
    }

    fn gained(&self, name: &str, labels: &[(&str, &str)], gain: fn(f64, f64) -> f64) -> Option<f64> {
        let mut values =
            self.readings.iter().filter_map(|(then, exposition)| Some((*then, exposition.get(name, labels)?)));
        let (begin, first) = values.next()?;
        let (mut end, mut last, mut gained) = (begin, first, 0.0);
        for (then, value) in values {
            gained += gain(last, value);
            (end, last) = (then, value);
        }
        let seconds = end.duration_since(begin).as_secs_f64();
        let rate = gained / seconds;
        (seconds > 0.0 && rate.is_finite()).then_some(rate.max(0.0))
    }
}

/// The recent expositions of all processes, by role. Methods take metric names without the prefix `zerofleet_ROLE_`.
#[derive(Debug)]
pub(crate) struct Processes<'a>(pub(crate) Vec<(Role, &'a CounterRates)>);

impl Processes<'_> {
    fn of(&self, role: Role) -> impl Iterator<Item = &CounterRates> {
        self.0.iter().filter(move |(of, _)| *of == role).map(|(_, rates)| *rates)
    }

    /// Returns the latest value of a metric in each process that exports it.
    fn gauges(&self, role: Role, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = f64> {
        let name = metric(role, name);
        self.of(role).filter_map(move |rates| rates.newest()?.get(&name, labels))
    }

    fn sum(&self, role: Role, name: &str) -> Option<f64> {
        self.gauges(role, name, &[]).reduce(|a, b| a + b)
    }

    fn learner(&self, name: &str) -> Option<f64> {
        self.gauges(Role::Learner, name, &[]).next()
    }

    fn arena(&self, name: &str) -> Option<f64> {
        self.gauges(Role::Arena, name, &[]).next()
    }

    fn loss(&self, part: &str) -> Option<f64> {
        self.gauges(Role::Learner, "loss", &[("part", part)]).next()
    }

    fn validation(&self, part: &str) -> Option<f64> {
        self.gauges(Role::Learner, "validation_loss", &[("part", part)]).next()
    }

    /// Returns the latest weights version: the maximum over all learners.
    fn newest_version(&self) -> Option<f64> {
        self.gauges(Role::Learner, "weights_version", &[]).reduce(f64::max)
    }

    fn weights_lag(&self) -> Option<f64> {
        let slowest = self.gauges(Role::Actor, "weights_version", &[]).reduce(f64::min)?;
        self.newest_version().map(|newest| (newest - slowest).max(0.0))
    }

    /// Returns the growth of a value per second in each process; a decrease counts as zero.
    fn growth(&self, role: Role, name: &str) -> impl Iterator<Item = f64> {
        let name = metric(role, name);
        self.of(role).filter_map(move |rates| rates.growth(&name))
    }

    /// Returns the increase of a counter per second, summed over all processes of the role.
    fn rate(&self, role: Role, name: &str) -> Option<f64> {
        let name = metric(role, name);
        self.of(role).filter_map(|rates| rates.rate(&name, &[])).reduce(|a, b| a + b)
    }

    fn ratio_of_rates(&self, role: Role, [above, below]: [&str; 2]) -> Option<f64> {
        ratio(self.rate(role, above), self.rate(role, below))
    }

    /// Returns the rates per second of all series with this name, summed over processes, by the values of `labels`.
    pub(crate) fn rates_by<const N: usize>(
        &self,
        role: Role,
        name: &str,
        labels: [&str; N],
    ) -> BTreeMap<[String; N], f64> {
        let name = metric(role, name);
        let mut sums = BTreeMap::new();
        for rates in self.of(role) {
            for series in named(rates, &name).filter(|series| labels.iter().all(|l| series.label(l).is_some())) {
                let labels = labels.map(|label| (label, series.label(label).unwrap_or_default()));
                if let Some(rate) = rates.rate(&name, &labels) {
                    *sums.entry(labels.map(|(_, value)| value.to_owned())).or_default() += rate;
                }
            }
        }
        sums
    }

    fn accuracy(&self) -> BTreeMap<String, f64> {
        let name = metric(Role::Arena, "accuracy");
        let shares = self.of(Role::Arena).flat_map(|rates| named(rates, &name));
        let by_name = shares.filter(|series| series.value.is_finite()).filter_map(|series| {
            let name = format!("{}/{}/{}", series.label("search")?, series.label("measure")?, series.label("band")?);
            Some((name, series.value))
        });
        let errors = metric(Role::Arena, "value_error");
        let errors = self.of(Role::Arena).flat_map(|rates| named(rates, &errors)).filter_map(|series| {
            Some((format!("{}/value_error/{}", series.label("search")?, series.label("band")?), series.value))
        });
        by_name.chain(errors).collect()
    }

    /// Returns the measures of repetition, averaged over the replay servers that export them.
    fn distinct(&self) -> BTreeMap<String, f64> {
        let mean = |part: &&str| {
            let values: Vec<f64> = match *part {
                "top_1000" => self.gauges(Role::Replay, "top_1000_share", &[]).collect(),
                part => self.gauges(Role::Replay, "distinct_share", &[("part", part)]).collect(),
            };
            let known = || values.iter().filter(|value| value.is_finite());
            let mean = ratio(Some(known().sum()), Some(known().count() as f64))?;
            Some(((*part).to_owned(), mean))
        };
        DISTINCT.iter().filter_map(mean).collect()
    }

    fn opponents(&self) -> BTreeMap<String, f64> {
        let name = metric(Role::Arena, "opponent_elo");
        let ratings = self.of(Role::Arena).flat_map(|rates| named(rates, &name));
        ratings.filter_map(|series| Some((series.label("opponent")?.to_owned(), series.value))).collect()
    }

    /// Returns the engines by role: device and precision for `learner`, evaluators for `actor`, `arena` and
    /// `inference`. Different engines within a role are separated by `; `.
    fn engines(&self) -> BTreeMap<String, String> {
        let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (role, rates) in &self.0 {
            if let Some(engine) = engine(*role, rates) {
                found.entry(role.name()).or_default().insert(engine);
            }
        }
        let joined = |engines: BTreeSet<String>| engines.into_iter().collect::<Vec<_>>().join("; ");
        found.into_iter().map(|(name, engines)| (name.to_owned(), joined(engines))).collect()
    }
}

/// Returns the full name of a metric of a role.
pub(crate) fn metric(role: Role, name: &str) -> String {
    format!("zerofleet_{}_{name}", role.name())
}

/// Returns the series `name` in the latest exposition of a process.
fn named<'a>(rates: &'a CounterRates, name: &str) -> impl Iterator<Item = &'a Series> {
    rates.newest().into_iter().flat_map(|exposition| &exposition.series).filter(move |series| series.name == name)
}

fn engine(role: Role, rates: &CounterRates) -> Option<String> {
    // The process uses the evaluator with the latest weights.
    let newest = |name| named(rates, &metric(role, name)).max_by(|a, b| a.value.total_cmp(&b.value));
    if role == Role::Learner {
        let device = newest("device")?;
        return Some(format!("{} {}", device.label("device")?, device.label("precision")?));
    }
    newest("evaluator")?.label("evaluator").map(str::to_owned)
}

/// Formats engines as one line: `actor cpu avx512-f32, learner cuda bf16`.
pub(crate) fn engines_line(engines: &BTreeMap<String, String>) -> String {
    engines.iter().map(|(role, engine)| format!("{role} {engine}")).collect::<Vec<_>>().join(", ")
}

/// Formats devices, one per line: `cuda H100 80GB HBM3 (actor, learner): busy 87 %, 12.3 of 85.0 GB`. A run on CPUs
/// alone has the line `cpu`.
pub(crate) fn device_lines(devices: &[DeviceUse]) -> Vec<String> {
    match devices {
        [] => Vec::new(),
        _ if devices.iter().all(|used| used.device == CPU) => vec![CPU.to_owned()],
        _ => devices.iter().map(DeviceUse::line).collect(),
    }
}

fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    let (above, below) = above.zip(below)?;
    (below > 0.0).then(|| above / below)
}

/// Returns the Unix time in seconds; 0 if the clock shows a time before 1970.
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Computes [`RunMetrics`] from scrapes.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Sums over all processes and sessions, by series.
    totals: BTreeMap<String, f64>,
    /// Processes that have responded, by index, with the time of the last response.
    processes: BTreeMap<usize, (Role, Instant, CounterRates)>,
}

impl Meter {
    /// Starts from the totals of earlier sessions.
    pub(crate) fn resume(totals: BTreeMap<String, f64>) -> Self {
        Self { totals, ..Self::default() }
    }

    /// Returns the sums over all processes and sessions, for the next session.
    pub(crate) fn totals(&self) -> &BTreeMap<String, f64> {
        &self.totals
    }

    /// Records a restart of process `index`: the counters of the process start at zero again.
    pub(crate) fn restarted(&mut self, index: usize) {
        self.processes.remove(&index);
    }

    /// Computes the metrics from one round of scrapes: index, role and exposition of each process that responded. A
    /// process without a response for longer than [`RATE_SPAN`] has no metrics, except for the arena, which measures
    /// rarely.
    pub(crate) fn read(&mut self, now: Instant, scrapes: Vec<(usize, Role, Exposition)>) -> RunMetrics {
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
    use super::*;

    fn actor(text: &str) -> Vec<(usize, Role, Exposition)> {
        vec![(0, Role::Actor, Exposition::parse(text))]
    }

    /// Reads the metrics of an actor at each of these seconds.
    fn read(meter: &mut Meter, readings: &[(u64, String)]) -> Vec<RunMetrics> {
        let begin = Instant::now();
        let at = |second: &u64| begin + Duration::from_secs(*second);
        readings.iter().map(|(second, text)| meter.read(at(second), actor(text))).collect()
    }

    #[test]
    fn counters_add_up_over_restarts_and_sessions() {
        let mut meter = Meter::resume(BTreeMap::from([("zerofleet_actor_games_total".to_owned(), 100.0)]));
        let games = |meter: &mut Meter, games| {
            meter.read(Instant::now(), actor(&format!("zerofleet_actor_games_total {games}"))).games
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
        let (mut meter, begin) = (Meter::default(), Instant::now());
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
        let readings = Meter::default().read(Instant::now(), vec![first, second]);
        assert_eq!((readings.replay_items, readings.samples_per_insert), (Some(120.0), Some(3.5)));
        assert_eq!(readings.window_items, None);
    }

    /// Returns the rates of a process that exported these values of `zerofleet_actor_a{part="x"}`, one second apart.
    fn rates_of(values: &[f64]) -> CounterRates {
        let begin = Instant::now();
        let mut rates = CounterRates::default();
        for (second, value) in values.iter().enumerate() {
            let exposition = Exposition::parse(&format!("zerofleet_actor_a{{part=\"x\"}} {value}\n"));
            rates.remember(begin + Duration::from_secs(second as u64), exposition);
        }
        rates
    }

    #[test]
    fn a_rate_is_the_increase_since_the_first_poll() {
        assert_eq!(
            rates_of(&[1000.0, 1010.0, 1020.0]).rate("zerofleet_actor_a", &[]),
            Some(10.0),
            "the first value is not an increase"
        );
        assert_eq!(rates_of(&[1000.0]).rate("zerofleet_actor_a", &[]), None);
        assert_eq!(rates_of(&[1000.0, 1010.0]).rate("zerofleet_actor_b", &[]), None);
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
        let reading = Meter::default().read(Instant::now(), servers);
        let expected = [("distinct/empty/0-7", 0.125), ("distinct/overall", 0.625), ("distinct/top_1000", 0.5)];
        let scalars = reading.scalars();
        let found = scalars.iter().filter(|(name, _)| name.starts_with("distinct/"));
        assert!(found.map(|(name, value)| (name.as_str(), *value)).eq(expected), "{scalars:?}");
    }

    #[test]
    fn a_counter_reset_never_makes_a_negative_rate() {
        assert_eq!(rates_of(&[1000.0, 5.0, 15.0]).rate("zerofleet_actor_a", &[]), Some(7.5));
    }

    #[test]
    fn only_the_last_seconds_count() {
        let values: Vec<f64> = (0..100).map(|second| if second < 60 { 0.0 } else { f64::from(second) }).collect();
        let rates = rates_of(&values);
        assert_eq!(rates.rate("zerofleet_actor_a", &[]), Some(1.0));
        assert!(rates.readings.len() <= 22, "{} readings", rates.readings.len());
    }

    #[test]
    fn rates_come_by_label() {
        let rates = rates_of(&[0.0, 2.0]);
        let actors = Processes(vec![(Role::Actor, &rates), (Role::Actor, &rates), (Role::Arena, &rates)]);
        let by_part = actors.rates_by(Role::Actor, "a", ["part"]);
        assert_eq!(by_part.into_iter().collect::<Vec<_>>(), [(["x".to_owned()], 4.0)], "the sum of both actors");
        assert!(actors.rates_by(Role::Actor, "a", ["part", "table"]).is_empty());
    }

    #[test]
    fn every_role_that_computes_has_the_engine_of_its_newest_weights() {
        let actor = |evaluator| Exposition::parse(&format!("zerofleet_actor_evaluator{{evaluator=\"{evaluator}\"}} 3"));
        let learner = Exposition::parse("zerofleet_learner_device{device=\"cuda\",precision=\"bf16\"} 1");
        let arena = "zerofleet_arena_evaluator{evaluator=\"cpu amx-bf16\"} 7\n\
                     zerofleet_arena_evaluator{evaluator=\"cpu avx512-f32\"} 9";
        let arena = Exposition::parse(arena);
        let (first, second, replay) = (actor("cpu avx2-f32"), actor("libtorch cuda bf16"), Exposition::default());
        let rates = [first, second, learner, arena, replay].map(|exposition| {
            let mut rates = CounterRates::default();
            rates.remember(Instant::now(), exposition);
            rates
        });
        let roles = [Role::Actor, Role::Actor, Role::Learner, Role::Arena, Role::Replay];
        let engines = Processes(roles.into_iter().zip(&rates).collect()).engines();
        assert_eq!(
            engines_line(&engines),
            "actor cpu avx2-f32; libtorch cuda bf16, arena cpu avx512-f32, learner cuda bf16"
        );
    }
}
