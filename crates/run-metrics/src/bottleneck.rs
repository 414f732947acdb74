//! Finds the part of a run that limits throughput.
//!
//! [`Load`] holds the shares of time that threads work and wait; [`bottleneck`] applies the rules to a load.

use std::collections::BTreeMap;

use fleet::Role;
use serde::{Deserialize, Serialize};

use crate::processes::{Processes, ratio};

/// Minimum share of working time for a thread to count as busy.
const BUSY: f64 = 0.85;
/// Minimum share of waiting time for a thread to count as blocked.
const BLOCKED: f64 = 0.15;
/// Minimum measured seconds per second of learners, and of actors, for finding a bottleneck.
const MEASURED_SHARE_MIN: f64 = 0.05;

/// The bottleneck of a run, with a symptom and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The limiting part of the run.
    pub part: Part,
    /// The bottleneck and the symptom, in one sentence.
    pub sentence: String,
    /// The recommended change.
    pub remedy: String,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The training thread.
    Learner,
    /// The self-play threads.
    SelfPlay,
    /// The thread that assembles batches.
    Preparing,
    /// Writing weights and checkpoints to disk.
    Publication,
    /// The replay server and the connection to it.
    Replay,
    /// No bottleneck: no thread waits for another.
    Nothing,
}

/// Shares of time from 0 to 1, from which the rules find the bottleneck.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Load {
    /// Training thread: waiting for a batch.
    pub sampling: f64,
    /// Training thread: training steps.
    pub training: f64,
    /// Training thread: writing weights and checkpoints.
    pub publishing: f64,
    /// Preparing thread: assembling batches.
    pub preparing: f64,
    /// Self-play threads: waiting for the replay server to accept inserts.
    pub insert_wait: f64,
    /// Self-play threads: waiting for weights.
    pub without_weights: f64,
    /// Self-play threads: evaluation.
    pub evaluating: f64,
    /// Self-play threads: trees, rules and observations.
    pub searching: f64,
    /// Share of all cores in use; `None` if the system does not report core use.
    pub cores_used: Option<f64>,
}

impl Load {
    /// Computes shares of the measured time of threads. Returns `None` until enough time is measured.
    /// The use of the cores is not in the metrics.
    pub fn of(processes: &Processes<'_>) -> Option<Self> {
        let times = |role, name, label| processes.rates_by(role, name, [label]);
        let training = times(Role::Learner, "seconds_total", "phase");
        let preparing = times(Role::Learner, "prepare_seconds_total", "part");
        let playing = times(Role::Actor, "seconds_total", "phase");
        let waiting = times(Role::Actor, "wait_seconds_total", "part");
        let (of_training, of_playing) = (training.values().sum::<f64>(), playing.values().sum::<f64>());
        if of_training < MEASURED_SHARE_MIN || of_playing < MEASURED_SHARE_MIN {
            return None;
        }
        let share = |times: &BTreeMap<[String; 1], f64>, name: &str, whole: f64| {
            ratio(times.get(&[name.to_owned()]).copied(), Some(whole)).unwrap_or(0.0).min(1.0)
        };
        Some(Self {
            sampling: share(&training, "wait", of_training),
            training: share(&training, "train", of_training),
            publishing: share(&training, "publish", of_training),
            preparing: share(&preparing, "prepare", preparing.values().sum()),
            insert_wait: share(&waiting, "replay", of_playing),
            without_weights: share(&waiting, "weights", of_playing),
            evaluating: share(&playing, "evaluate", of_playing),
            searching: share(&playing, "search", of_playing),
            cores_used: None,
        })
    }
}

/// Returns the bottleneck by the first rule that applies, with a symptom and a remedy.
pub fn bottleneck(load: &Load) -> Bottleneck {
    let part = limiting_part(load);
    let Load { sampling, training, publishing, preparing, insert_wait, .. } = *load;
    let [sampling, training, publishing, preparing, insert_wait] =
        [sampling, training, publishing, preparing, insert_wait].map(percent);
    let (sentence, remedy) = match part {
        Part::Learner => (
            format!(
                "The learner is the bottleneck: it trains {training} of the time, and the self-play threads wait \
                 {insert_wait} of the time for it."
            ),
            "Use the time for deeper searches (selfplay.full_simulations_max); or lower replay.samples_per_insert, so \
             that each position is trained on less often; or make a training step cheaper with a smaller network; or \
             train on an accelerator (learner.device) or more cores (learner.threads, with fewer actor.threads).",
        ),
        Part::SelfPlay => {
            let (phase, share, remedy) = longest_phase(load);
            let share = percent(share);
            let sentence = format!(
                "Self-play is the bottleneck: the learner waits {sampling} of the time for samples, and {phase} takes \
                 {share} of the time of the self-play threads."
            );
            (sentence, remedy)
        }
        Part::Preparing => (
            format!(
                "Batch preparation is the bottleneck: the preparing threads are busy {preparing} of the time, and the \
                 training thread waits {sampling} of the time for them."
            ),
            "Free a core for preparation (fewer actor.threads) and raise learner.prepare_threads, or lower \
             replay.samples_per_insert.",
        ),
        Part::Publication => (
            format!("Writing weights and checkpoints is the bottleneck: it takes {publishing} of the learner's time."),
            "Raise learner.publish_interval_seconds and learner.checkpoint_interval_seconds, or use a faster disk.",
        ),
        Part::Replay => (
            format!(
                "The replay server is the bottleneck: the learner waits {sampling} of the time for samples, while the \
                 self-play threads wait {insert_wait} of the time to insert."
            ),
            "Raise replay.error_items, so that the rate limiter lets both sides run further ahead; or use a faster \
             disk for the run.",
        ),
        Part::Nothing => {
            let used = load.cores_used.map(|used| format!(", with {} of the cores in use", percent(used)));
            let used = used.unwrap_or_default();
            let sentence = format!(
                "Self-play and training are balanced: the learner waits {sampling} of the time, the self-play threads \
                 {insert_wait}{used}."
            );
            let remedy = "More or faster cores or an accelerator speed up both, as do a smaller network or fewer \
                          simulations.";
            (sentence, remedy)
        }
    };
    Bottleneck { part, sentence, remedy: remedy.to_owned() }
}

fn limiting_part(load: &Load) -> Part {
    let (learner_waits, actors_wait) = (load.sampling >= BLOCKED, load.insert_wait >= BLOCKED);
    if load.publishing >= BLOCKED {
        return Part::Publication;
    }
    match (learner_waits, actors_wait) {
        (true, _) if load.preparing >= BUSY => Part::Preparing,
        (true, true) => Part::Replay,
        (false, true) => Part::Learner,
        (true, false) => Part::SelfPlay,
        (false, false) => Part::Nothing,
    }
}

/// Returns the phase with the largest share of self-play time, with the share and a remedy.
fn longest_phase(load: &Load) -> (&'static str, f64, &'static str) {
    let Load { evaluating, searching, without_weights, .. } = *load;
    if without_weights.max(BLOCKED) > evaluating.max(searching) {
        ("waiting for weights", without_weights, "Check the logs: no weights arrive from the learner.")
    } else if evaluating >= searching {
        (
            "evaluation",
            evaluating,
            "Add actors or cores; or make an evaluation cheaper with a smaller network, actor.precision or an accelerator \
             (actor.device); or search fewer simulations (selfplay.full_simulations, selfplay.full_search_probability); or raise \
             replay.samples_per_insert, so that each position is trained on more often.",
        )
    } else {
        (
            "search",
            searching,
            "Add actors or cores; or search fewer simulations (selfplay.full_simulations, selfplay.full_search_probability); or raise \
             replay.samples_per_insert, so that each position is trained on more often.",
        )
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::exported;

    /// Returns the load of a balanced run: every thread works, and no thread waits for long.
    fn balanced() -> Load {
        Load {
            training: 0.9,
            preparing: 0.1,
            sampling: 0.05,
            insert_wait: 0.05,
            evaluating: 0.7,
            searching: 0.2,
            ..Load::default()
        }
    }

    fn part(load: Load) -> Part {
        bottleneck(&load).part
    }

    #[test]
    fn the_load_is_the_share_of_each_phase_in_the_measured_time() {
        let load = |learner: &str, actor: &str| {
            let [learner, actor] = [learner, actor].map(|text| exported(&[&text.replace("} 1", "} 0"), text]));
            Load::of(&Processes(vec![(Role::Learner, &learner), (Role::Actor, &actor)]))
        };
        let learner = "zerofleet_learner_seconds_total{phase=\"wait\"} 1\n\
                       zerofleet_learner_seconds_total{phase=\"train\"} 1\n\
                       zerofleet_learner_prepare_seconds_total{part=\"prepare\"} 1\n";
        let actor = "zerofleet_actor_seconds_total{phase=\"search\"} 1\n\
                     zerofleet_actor_seconds_total{phase=\"wait\"} 1\n\
                     zerofleet_actor_wait_seconds_total{part=\"replay\"} 1\n";
        let (sampling, training, insert_wait, searching) = (0.5, 0.5, 0.5, 0.5);
        let expected = Load { sampling, training, preparing: 1.0, insert_wait, searching, ..Load::default() };
        assert_eq!(load(learner, actor), Some(expected));
        assert_eq!(load("", actor), None, "no time of the learner is measured yet");
    }

    #[test]
    fn a_learner_that_actors_wait_for_is_the_bottleneck() {
        let load = Load { training: 0.97, sampling: 0.0, insert_wait: 0.4, ..balanced() };
        let Bottleneck { part, sentence, remedy } = bottleneck(&load);
        assert_eq!(part, Part::Learner);
        assert_eq!(
            sentence,
            "The learner is the bottleneck: it trains 97 % of the time, and the self-play threads wait \
             40 % of the time for it."
        );
        assert!(remedy.contains("replay.samples_per_insert"), "{remedy}");
    }

    #[test]
    fn self_play_that_the_learner_waits_for_is_the_bottleneck_and_its_larger_part_is_named() {
        let waits = Load { training: 0.3, sampling: 0.7, insert_wait: 0.0, ..balanced() };
        let evaluation = bottleneck(&waits);
        assert_eq!(evaluation.part, Part::SelfPlay);
        assert!(evaluation.sentence.contains("evaluation takes 70 %"), "{evaluation:?}");
        assert!(evaluation.remedy.contains("actor.device"), "{evaluation:?}");
        let search = bottleneck(&Load { evaluating: 0.2, searching: 0.75, ..waits });
        assert_eq!(search.part, Part::SelfPlay);
        assert!(search.sentence.contains("search takes 75 %"), "{search:?}");
        assert!(!search.remedy.contains("actor.device"), "a faster evaluator does not help: {search:?}");
    }

    #[test]
    fn actors_without_weights_are_distinguished_from_slow_ones() {
        let load =
            Load { sampling: 1.0, training: 0.0, evaluating: 0.0, searching: 0.0, without_weights: 1.0, ..balanced() };
        assert!(bottleneck(&load).sentence.contains("waiting for weights takes 100 %"));
    }

    #[test]
    fn a_run_without_waiting_threads_is_balanced() {
        let load = Load { cores_used: Some(0.98), ..balanced() };
        let Bottleneck { part, sentence, .. } = bottleneck(&load);
        assert_eq!(part, Part::Nothing);
        assert!(sentence.contains("with 98 % of the cores in use"), "{sentence}");
        assert!(!bottleneck(&balanced()).sentence.contains("cores"), "unmeasured core use is left out");
    }

    #[test]
    fn the_replay_server_is_the_bottleneck_if_both_sides_wait() {
        assert_eq!(part(Load { sampling: 0.4, insert_wait: 0.4, ..balanced() }), Part::Replay);
    }

    #[test]
    fn a_busy_preparing_thread_is_the_bottleneck_only_if_training_waits() {
        assert_eq!(part(Load { preparing: 0.95, sampling: 0.5, ..balanced() }), Part::Preparing);
        assert_eq!(part(Load { preparing: 0.95, sampling: 0.5, insert_wait: 0.5, ..balanced() }), Part::Preparing);
        assert_eq!(part(Load { preparing: 0.95, ..balanced() }), Part::Nothing);
    }

    #[test]
    fn weights_and_checkpoints_that_block_training_are_the_bottleneck() {
        assert_eq!(part(Load { publishing: 0.2, insert_wait: 0.5, ..balanced() }), Part::Publication);
    }

    #[test]
    fn waiting_counts_from_fifteen_percent_on() {
        assert_eq!(part(Load { insert_wait: 0.149, ..balanced() }), Part::Nothing);
        assert_eq!(part(Load { insert_wait: 0.15, ..balanced() }), Part::Learner);
        assert_eq!(part(Load { sampling: 0.149, ..balanced() }), Part::Nothing);
        assert_eq!(part(Load { sampling: 0.15, ..balanced() }), Part::SelfPlay);
    }
}
