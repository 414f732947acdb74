//! Computes the state of the fleet at one time, for the table and JSON.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use fleet::Role;
use fleet::bottleneck::{Bottleneck, Load, bottleneck};

use crate::engines::engines;

use super::cost::{Cost, Price, Running, cost};
use super::rates::CounterRates;
use super::roster::{Process, Roster, State};
use super::sanitize::sanitize;

/// Smallest share of waiting time that is reported.
const WAITS_SHARE_MIN: f64 = 0.005;
/// Smallest share of a thread's time that must be measured to find a bottleneck.
const MEASURED_SHARE_MIN: f64 = 0.05;
/// Length at which labels are cut.
const LABEL_LENGTH_MAX: usize = 40;
/// Length at which names of engines are cut.
const ENGINE_LENGTH_MAX: usize = 120;

/// The state of the fleet at one time. Unknown values are missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Snapshot {
    pub(super) unix_seconds: f64,
    pub(super) processes: Vec<Row>,
    /// Number of lost processes that are no longer shown.
    pub(super) gone: usize,
    pub(super) rates: Rates,
    pub(super) replay: Replay,
    pub(super) weights_version: Option<f64>,
    pub(super) strength: Strength,
    /// The training device and the evaluators, by role.
    pub(super) engines: BTreeMap<String, String>,
    pub(super) bottleneck: Option<Bottleneck>,
    pub(super) cost: Option<Cost>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) role: Option<Role>,
    /// The host name, or the name in the run.
    pub(super) name: String,
    pub(super) address: String,
    pub(super) state: &'static str,
    /// The reason why the process is not ready.
    pub(super) reason: Option<String>,
    pub(super) lost_seconds: Option<f64>,
    pub(super) age_seconds: Option<f64>,
    pub(super) version: Option<String>,
    pub(super) weights_version: Option<f64>,
    /// Number of weights versions behind the learner.
    pub(super) lag_versions: Option<f64>,
    /// The work of its role per second.
    pub(super) work_per_second: Option<f64>,
}

/// Rates over all processes that answer.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct Rates {
    pub(super) games_per_second: Option<f64>,
    pub(super) positions_per_second: Option<f64>,
    /// Evaluations of actors, which include those by inference servers.
    pub(super) evaluations_per_second: Option<f64>,
    pub(super) inserts_per_second: Option<f64>,
    pub(super) samples_per_second: Option<f64>,
    pub(super) steps_per_second: Option<f64>,
}

/// All replay servers together.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct Replay {
    pub(super) trajectories: Option<f64>,
    pub(super) items: Option<f64>,
    pub(super) window_items: Option<f64>,
    pub(super) bytes: Option<f64>,
    /// Samples per insert, averaged over the servers.
    pub(super) samples_per_insert: Option<f64>,
    /// The sides that the rate limiter of the main table blocks, the longest wait first.
    pub(super) held_up: Vec<HeldUp>,
}

/// A side that a rate limiter blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct HeldUp {
    /// `inserts` or `samples`.
    pub(super) side: String,
    pub(super) reason: String,
    /// Share of the time, averaged over the servers.
    pub(super) share: f64,
}

/// The strength measured by the arena.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct Strength {
    pub(super) elo: Option<f64>,
    pub(super) elo_low: Option<f64>,
    pub(super) elo_high: Option<f64>,
    pub(super) accuracy_raw: Option<f64>,
    pub(super) accuracy_search: Option<f64>,
}

impl Snapshot {
    /// Computes the snapshot of these processes.
    pub(super) fn of(roster: &Roster, prices: &[Price], now: Instant, unix_seconds: f64) -> Self {
        let fleet = Fleet(roster.processes().map(|(_, process)| process).filter(|process| process.answers()).collect());
        // With several learners, which is a fault, the newest version counts, so that no process is ahead of it.
        let weights_version = fleet.values(Role::Learner, "zerofleet_learner_weights_version").reduce(f64::max);
        let mut processes: Vec<Row> = roster
            .processes()
            .map(|(address, process)| row(address.to_string(), process, weights_version, now, unix_seconds))
            .collect();
        processes.sort_by(|a, b| (order(a.role), &a.name).cmp(&(order(b.role), &b.name)));
        let running = roster.processes().map(|(_, process)| {
            let lost_ago = lost_seconds(process, now).unwrap_or(0.0);
            Running { role: process.role, seconds: process.seconds(lost_ago, unix_seconds), runs: process.answers() }
        });
        let gone = roster.gone().map(|(role, _, seconds)| Running { role, seconds, runs: false });
        Self {
            unix_seconds,
            processes,
            gone: roster.gone().map(|(_, count, _)| count).sum(),
            rates: fleet.rates(),
            replay: fleet.replay(),
            weights_version,
            strength: fleet.strength(),
            engines: fleet.engines(),
            bottleneck: fleet.bottleneck(),
            cost: cost(prices, &running.chain(gone).collect::<Vec<_>>()),
        }
    }
}

/// Returns the rank of a role in the table, in the order of the flow of data.
fn order(role: Option<Role>) -> u8 {
    match role {
        Some(Role::Replay) => 0,
        Some(Role::Learner) => 1,
        Some(Role::Inference) => 2,
        Some(Role::Arena) => 3,
        Some(Role::Actor) => 4,
        None => 5,
    }
}

fn lost_seconds(process: &Process, now: Instant) -> Option<f64> {
    match process.state {
        State::Lost(since) => Some(now.saturating_duration_since(since).as_secs_f64()),
        _ => None,
    }
}

fn row(address: String, process: &Process, newest: Option<f64>, now: Instant, unix_seconds: f64) -> Row {
    let Process { name, role, version, state, started, rates, .. } = process;
    let exposition = rates.newest().filter(|_| process.answers());
    let weights = role.and_then(weights_of).and_then(|series| exposition?.get(series, &[]));
    // Without weights the lag would be the number of all versions, which is not informative.
    let weights_version = weights.filter(|version| *version > 0.0);
    let work = role.filter(|_| process.answers()).and_then(work_of).and_then(|series| rates.rate(series, &[]));
    Row {
        role: *role,
        name: name.clone(),
        address,
        state: match state {
            State::Ready => "ready",
            State::NotReady(_) => "not ready",
            State::Silent => "no answer",
            State::Lost(_) => "lost",
        },
        reason: match state {
            State::NotReady(reason) => Some(reason.clone()),
            _ => None,
        },
        lost_seconds: lost_seconds(process, now),
        age_seconds: started
            .filter(|_| process.answers())
            .map(|started| unix_seconds - started)
            .filter(|age| *age >= 0.0),
        version: version.clone(),
        weights_version,
        lag_versions: newest
            .zip(weights_version)
            .filter(|_| *role != Some(Role::Learner))
            .map(|(newest, own)| (newest - own).max(0.0)),
        work_per_second: work,
    }
}

fn weights_of(role: Role) -> Option<&'static str> {
    match role {
        Role::Actor => Some("zerofleet_actor_weights_version"),
        Role::Learner => Some("zerofleet_learner_weights_version"),
        Role::Arena => Some("zerofleet_arena_weights_version"),
        Role::Inference => Some("zerofleet_inference_weights_version"),
        Role::Replay => None,
    }
}

fn work_of(role: Role) -> Option<&'static str> {
    match role {
        Role::Actor => Some("zerofleet_actor_moves_total"),
        Role::Learner => Some("zerofleet_learner_steps_total"),
        Role::Replay => Some("zerofleet_replay_inserts_total"),
        Role::Inference => Some("zerofleet_inference_positions_total"),
        Role::Arena => Some("zerofleet_arena_games_total"),
    }
}

/// The processes that answer.
struct Fleet<'a>(Vec<&'a Process>);

impl Fleet<'_> {
    fn of(&self, role: Role) -> impl Iterator<Item = &CounterRates> {
        self.0.iter().filter(move |process| process.role == Some(role)).map(|process| &process.rates)
    }

    fn values(&self, role: Role, name: &str) -> impl Iterator<Item = f64> {
        self.of(role).filter_map(move |rates| rates.newest()?.get(name, &[]))
    }

    fn sum(&self, role: Role, name: &str) -> Option<f64> {
        self.values(role, name).reduce(|a, b| a + b)
    }

    fn rate(&self, role: Role, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.of(role).filter_map(|rates| rates.rate(name, labels)).reduce(|a, b| a + b)
    }

    fn rates(&self) -> Rates {
        // The evaluations of actors include those by inference servers.
        Rates {
            games_per_second: self.rate(Role::Actor, "zerofleet_actor_games_total", &[]),
            positions_per_second: self.rate(Role::Actor, "zerofleet_actor_moves_total", &[]),
            evaluations_per_second: self.rate(Role::Actor, "zerofleet_actor_evaluations_total", &[]),
            inserts_per_second: self.rate(Role::Replay, "zerofleet_replay_inserts_total", &[]),
            samples_per_second: self.rate(Role::Replay, "zerofleet_replay_samples_total", &[]),
            steps_per_second: self.rate(Role::Learner, "zerofleet_learner_steps_total", &[]),
        }
    }

    fn replay(&self) -> Replay {
        let servers = self.of(Role::Replay).count().max(1) as f64;
        let mut shares: BTreeMap<(String, String), f64> = BTreeMap::new();
        for rates in self.of(Role::Replay) {
            let rates = rates.rates_by("zerofleet_replay_held_up_seconds_total", &["table", "side", "reason"]);
            for (labels, rate) in rates {
                if let [table, side, reason] = labels.as_slice()
                    && table == "main"
                {
                    let key = (sanitize(side, LABEL_LENGTH_MAX), sanitize(reason, LABEL_LENGTH_MAX));
                    *shares.entry(key).or_default() += rate / servers;
                }
            }
        }
        let mut held_up: Vec<HeldUp> = shares
            .into_iter()
            .filter(|(_, share)| *share >= WAITS_SHARE_MIN)
            .map(|((side, reason), share)| HeldUp { side, reason, share })
            .collect();
        held_up.sort_by(|a, b| b.share.total_cmp(&a.share));
        Replay {
            trajectories: self.sum(Role::Replay, "zerofleet_replay_trajectories"),
            items: self.sum(Role::Replay, "zerofleet_replay_items"),
            window_items: self.sum(Role::Replay, "zerofleet_replay_window_items"),
            bytes: self.sum(Role::Replay, "zerofleet_replay_bytes"),
            samples_per_insert: self
                .sum(Role::Replay, "zerofleet_replay_samples_per_insert")
                .map(|ratio| ratio / servers),
            held_up,
        }
    }

    fn engines(&self) -> BTreeMap<String, String> {
        let newest = self.0.iter().filter_map(|process| Some((process.role?, process.rates.newest()?)));
        let shown = |(role, engine): (String, String)| (role, sanitize(&engine, ENGINE_LENGTH_MAX));
        engines(newest).into_iter().map(shown).collect()
    }

    fn strength(&self) -> Strength {
        let arena = |name: &str, labels: &[(&str, &str)]| {
            self.of(Role::Arena).find_map(|rates| rates.newest()?.get(name, labels))
        };
        let accuracy = |search| {
            let labels = [("search", search), ("measure", "preserving"), ("band", "overall")];
            arena("zerofleet_arena_accuracy", &labels)
        };
        Strength {
            elo: arena("zerofleet_arena_elo", &[]),
            elo_low: arena("zerofleet_arena_elo_low", &[]),
            elo_high: arena("zerofleet_arena_elo_high", &[]),
            accuracy_raw: accuracy("raw"),
            accuracy_search: accuracy("search"),
        }
    }

    /// Returns the bottleneck, by the rules of `zerofleet bench phases`; `None` until enough time is measured.
    fn bottleneck(&self) -> Option<Bottleneck> {
        let shares = |role, series, label| {
            let mut times: BTreeMap<String, f64> = BTreeMap::new();
            for rates in self.of(role) {
                for (value, rate) in rates.rates_by(series, &[label]) {
                    *times.entry(value.concat()).or_default() += rate;
                }
            }
            times
        };
        let training = shares(Role::Learner, "zerofleet_learner_seconds_total", "phase");
        let preparing = shares(Role::Learner, "zerofleet_learner_prepare_seconds_total", "part");
        let playing = shares(Role::Actor, "zerofleet_actor_seconds_total", "phase");
        let waiting = shares(Role::Actor, "zerofleet_actor_wait_seconds_total", "part");
        let (of_training, of_playing) = (training.values().sum::<f64>(), playing.values().sum::<f64>());
        if of_training < MEASURED_SHARE_MIN || of_playing < MEASURED_SHARE_MIN {
            return None;
        }
        let share = |times: &BTreeMap<String, f64>, name: &str, whole: f64| {
            if whole > 0.0 { (times.get(name).copied().unwrap_or(0.0) / whole).min(1.0) } else { 0.0 }
        };
        Some(bottleneck(&Load {
            sampling: share(&training, "wait", of_training),
            training: share(&training, "train", of_training),
            publishing: share(&training, "publish", of_training),
            preparing: share(&preparing, "prepare", preparing.values().sum()),
            held_up: share(&waiting, "replay", of_playing),
            without_weights: share(&waiting, "weights", of_playing),
            evaluating: share(&playing, "evaluate", of_playing),
            searching: share(&playing, "search", of_playing),
            cores_used: None,
        }))
    }
}
