//! Sums, rates and labels over the processes of a role.

use std::collections::{BTreeMap, BTreeSet};

use fleet::Role;
use fleet::exposition::Series;

use crate::rates::{CounterRates, named};

/// Names of the repetition measures in [`RunMetrics::distinct`](crate::RunMetrics::distinct).
pub const DISTINCT: [&str; 7] = ["overall", "empty/0-7", "empty/8-15", "empty/16-23", "empty/24-", "other", "top_1000"];

/// The recent expositions of all processes, by role. Methods take metric names without the prefix `zerofleet_ROLE_`.
#[derive(Debug)]
pub struct Processes<'a>(pub Vec<(Role, &'a CounterRates)>);

impl<'a> Processes<'a> {
    pub(crate) fn of(&self, role: Role) -> impl Iterator<Item = &'a CounterRates> {
        self.0.iter().filter(move |(of, _)| *of == role).map(|(_, rates)| *rates)
    }

    /// Returns the latest series with this name of all processes of a role.
    fn series(&self, role: Role, name: &str) -> impl Iterator<Item = &'a Series> {
        let name = metric(role, name);
        let newest = self.of(role).filter_map(CounterRates::newest);
        newest.flat_map(|exposition| &exposition.series).filter(move |series| series.name == name)
    }

    /// Returns the latest value of a metric in each process that exports it.
    pub(crate) fn gauges(&self, role: Role, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = f64> {
        let name = metric(role, name);
        self.of(role).filter_map(move |rates| rates.newest()?.get(&name, labels))
    }

    pub(crate) fn sum(&self, role: Role, name: &str) -> Option<f64> {
        self.gauges(role, name, &[]).reduce(|a, b| a + b)
    }

    pub(crate) fn learner(&self, name: &str) -> Option<f64> {
        self.gauges(Role::Learner, name, &[]).next()
    }

    pub(crate) fn arena(&self, name: &str) -> Option<f64> {
        self.gauges(Role::Arena, name, &[]).next()
    }

    /// Returns a metric of a learner for one part of the loss.
    pub(crate) fn part(&self, name: &str, part: &str) -> Option<f64> {
        self.gauges(Role::Learner, name, &[("part", part)]).next()
    }

    /// Returns the latest weights version: the maximum over all learners.
    pub(crate) fn newest_version(&self) -> Option<f64> {
        self.gauges(Role::Learner, "weights_version", &[]).reduce(f64::max)
    }

    pub(crate) fn weights_lag(&self) -> Option<f64> {
        let slowest = self.gauges(Role::Actor, "weights_version", &[]).reduce(f64::min)?;
        self.newest_version().map(|newest| (newest - slowest).max(0.0))
    }

    /// Returns the growth of a value per second in each process; a decrease counts as zero.
    pub(crate) fn growth(&self, role: Role, name: &str) -> impl Iterator<Item = f64> {
        let name = metric(role, name);
        self.of(role).filter_map(move |rates| rates.growth(&name))
    }

    /// Returns the increase of a counter per second, summed over all processes of the role.
    pub fn rate(&self, role: Role, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let name = metric(role, name);
        self.of(role).filter_map(|rates| rates.rate(&name, labels)).reduce(|a, b| a + b)
    }

    /// Returns a label of the latest series with this name; with several series, from the one with the greatest value.
    pub fn label(&self, role: Role, name: &str, label: &str) -> Option<&'a str> {
        let newest = self.series(role, name).max_by(|a, b| a.value.total_cmp(&b.value));
        newest?.label(label)
    }

    pub(crate) fn ratio_of_rates(&self, role: Role, [above, below]: [&str; 2]) -> Option<f64> {
        ratio(self.rate(role, above, &[]), self.rate(role, below, &[]))
    }

    /// Returns the rates per second of all series with this name, summed over processes, by the values of `labels`.
    pub fn rates_by<const N: usize>(&self, role: Role, name: &str, labels: [&str; N]) -> BTreeMap<[String; N], f64> {
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

    /// Returns the latest values of a metric by label value, summed over all processes of the role.
    pub(crate) fn counts_by(&self, role: Role, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for series in self.series(role, name).filter(|series| series.value.is_finite()) {
            if let Some(value) = series.label(label) {
                *sums.entry(value.to_owned()).or_default() += series.value;
            }
        }
        sums
    }

    pub(crate) fn accuracy(&self) -> BTreeMap<String, f64> {
        let entry = |series: &Series, measure: &str| {
            Some((format!("{}/{measure}/{}", series.label("search")?, series.label("band")?), series.value))
        };
        let shares = self.series(Role::Arena, "accuracy").filter(|series| series.value.is_finite());
        let shares = shares.filter_map(|series| entry(series, series.label("measure")?));
        let errors = self.series(Role::Arena, "value_error").filter_map(|series| entry(series, "value_error"));
        shares.chain(errors).collect()
    }

    /// Returns the measures of repetition, averaged over the replay servers that export them.
    pub(crate) fn distinct(&self) -> BTreeMap<String, f64> {
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

    pub(crate) fn opponents(&self) -> BTreeMap<String, f64> {
        let ratings = self.series(Role::Arena, "opponent_elo");
        ratings.filter_map(|series| Some((series.label("opponent")?.to_owned(), series.value))).collect()
    }

    /// Returns the engines by role: device and precision for `learner`, evaluators for `actor`, `arena` and
    /// `inference`. Different engines within a role are separated by `; `.
    pub(crate) fn engines(&self) -> BTreeMap<String, String> {
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
pub fn metric(role: Role, name: &str) -> String {
    format!("zerofleet_{}_{name}", role.name())
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

/// Returns a quotient; `None` unless the divisor is above zero.
pub(crate) fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    let (above, below) = above.zip(below)?;
    (below > 0.0).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::{exported, rates_of};

    #[test]
    fn rates_come_by_label() {
        let rates = rates_of(&[0.0, 2.0]);
        let actors = Processes(vec![(Role::Actor, &rates), (Role::Actor, &rates), (Role::Arena, &rates)]);
        let by_part = actors.rates_by(Role::Actor, "a", ["part"]);
        assert_eq!(by_part.into_iter().collect::<Vec<_>>(), [(["x".to_owned()], 4.0)], "the sum of both actors");
        assert!(actors.rates_by(Role::Actor, "a", ["part", "table"]).is_empty());
    }

    #[test]
    fn rates_are_summed_over_the_processes_of_a_role() {
        let [first, second] = [["5", "25"], ["0", "30"]].map(|games| {
            exported(&games.map(|games| format!("zerofleet_actor_games_total {games}")).each_ref().map(String::as_str))
        });
        let actors = Processes(vec![(Role::Actor, &first), (Role::Actor, &second), (Role::Learner, &second)]);
        assert_eq!(actors.rate(Role::Actor, "games_total", &[]), Some(50.0));
        assert_eq!(actors.rate(Role::Actor, "plies_total", &[]), None);
    }

    #[test]
    fn every_role_that_computes_has_the_engine_of_its_newest_weights() {
        let actor = |evaluator| format!("zerofleet_actor_evaluator{{evaluator=\"{evaluator}\"}} 3");
        let learner = "zerofleet_learner_device{device=\"cuda\",precision=\"bf16\"} 1";
        let arena = "zerofleet_arena_evaluator{evaluator=\"cpu amx-bf16\"} 7\n\
                     zerofleet_arena_evaluator{evaluator=\"cpu avx512-f32\"} 9";
        let (first, second) = (actor("cpu avx2-f32"), actor("libtorch cuda bf16"));
        let rates = [first.as_str(), second.as_str(), learner, arena, ""].map(|text| exported(&[text]));
        let roles = [Role::Actor, Role::Actor, Role::Learner, Role::Arena, Role::Replay];
        let processes = Processes(roles.into_iter().zip(&rates).collect());
        let engines =
            [("actor", "cpu avx2-f32; libtorch cuda bf16"), ("arena", "cpu avx512-f32"), ("learner", "cuda bf16")];
        let engines = engines.map(|(role, engine)| (role.to_owned(), engine.to_owned()));
        assert_eq!(processes.engines(), BTreeMap::from(engines));
        assert_eq!(processes.label(Role::Arena, "evaluator", "evaluator"), Some("cpu avx512-f32"));
        assert_eq!(processes.label(Role::Learner, "evaluator", "evaluator"), None);
    }
}
