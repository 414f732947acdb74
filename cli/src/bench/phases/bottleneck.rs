use serde::{Deserialize, Serialize};

use super::report::{Phase, Threads, ThreadsName};

/// Whoever works so much of its time is busy.
const BUSY: f64 = 0.85;
/// Whoever waits so much of its time is held up.
const HELD_UP: f64 = 0.15;

/// What holds up everything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// Which part of the run.
    pub part: Part,
    /// What it is and how that shows, in one sentence.
    pub sentence: String,
    /// What to change.
    pub remedy: String,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The training thread.
    Learner,
    /// The threads that play.
    SelfPlay,
    /// The thread that makes batches.
    Preparing,
    /// Weights and checkpoints on their way to the disk.
    Publication,
    /// The replay server and the way to it.
    Replay,
    /// None: nobody waits for another.
    Nothing,
}

/// Shares of time that the rules go by.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Load {
    /// Of the training thread: it has no batch.
    pub(crate) sampling: f64,
    /// Of the training thread: forward, backward and what belongs to a step.
    pub(crate) training: f64,
    /// Of the training thread: weights and checkpoints.
    pub(crate) publishing: f64,
    /// Of the preparing thread: it makes batches.
    pub(crate) preparing: f64,
    /// Of the self-play threads: the replay server takes no more.
    pub(crate) held_up: f64,
    /// Of the self-play threads: there is nothing to evaluate with.
    pub(crate) without_weights: f64,
    /// Of the self-play threads: the evaluator.
    pub(crate) evaluating: f64,
    /// Of the self-play threads: trees, rules and observations.
    pub(crate) searching: f64,
    /// Of all cores; unknown where the system does not tell.
    pub(crate) cores_used: Option<f64>,
}

impl Load {
    pub(super) fn new(threads: &[Threads], cores_used: Option<f64>) -> Self {
        let of = |name: ThreadsName, phases: &[Phase]| {
            let named = threads.iter().filter(|threads| threads.name == name);
            named.flat_map(|threads| phases.iter().map(|phase| threads.wall_share(*phase))).sum::<f64>()
        };
        let step = [Phase::Staging, Phase::Transfer, Phase::Forward, Phase::Backward, Phase::Optimiser];
        let search = [Phase::Selection, Phase::Observation, Phase::Expansion];
        Self {
            sampling: of(ThreadsName::Training, &[Phase::Sampling]),
            training: of(ThreadsName::Training, &step),
            publishing: of(ThreadsName::Training, &[Phase::Publication, Phase::Checkpoint]),
            preparing: of(ThreadsName::Preparing, &[Phase::Preparation]),
            held_up: of(ThreadsName::SelfPlay, &[Phase::WaitingForReplay]),
            without_weights: of(ThreadsName::SelfPlay, &[Phase::WaitingForWeights]),
            evaluating: of(ThreadsName::SelfPlay, &[Phase::Evaluation]),
            searching: of(ThreadsName::SelfPlay, &search),
            cores_used,
        }
    }
}

/// What holds up everything else: the first rule that applies.
pub(crate) fn bottleneck(load: &Load) -> Bottleneck {
    let (learner_waits, actors_wait) = (load.sampling >= HELD_UP, load.held_up >= HELD_UP);
    if load.publishing >= HELD_UP {
        return publication(load);
    }
    match (learner_waits, actors_wait) {
        (true, _) if load.preparing >= BUSY => preparing(load),
        (true, true) => replay(load),
        (false, true) => learner(load),
        (true, false) => self_play(load),
        (false, false) => nothing(load),
    }
}

fn learner(load: &Load) -> Bottleneck {
    let Load { training, held_up, .. } = load;
    Bottleneck {
        part: Part::Learner,
        sentence: format!(
            "The learner is the bottleneck: it trains {} of its time, and the self-play threads wait {} of theirs for it.",
            percent(*training),
            percent(*held_up)
        ),
        remedy:
            "Let searches go deeper in that time (selfplay.full_simulations_max); or lower replay.samples_per_insert, so \
                 that each position is trained on less often; or make a training step \
                 cheaper with a smaller network; or train on an accelerator (learner.device) or more cores \
                 (learner.threads, with fewer actor.threads)."
                .to_owned(),
    }
}

fn self_play(load: &Load) -> Bottleneck {
    let Load { sampling, evaluating, searching, without_weights, .. } = load;
    let (most, share, remedy) = if without_weights.max(HELD_UP) > evaluating.max(*searching) {
        ("waiting for weights", without_weights, "Look into the logs for why the learner's weights do not arrive.")
    } else if evaluating >= searching {
        (
            "evaluation",
            evaluating,
            "Add actors or cores; or make an evaluation cheaper with a smaller network, actor.precision or an accelerator \
             (actor.device); or search fewer simulations (selfplay.full_simulations, selfplay.full_share); or raise \
             replay.samples_per_insert, so that each position is trained on more often.",
        )
    } else {
        (
            "search",
            searching,
            "Add actors or cores; or search fewer simulations (selfplay.full_simulations, selfplay.full_share); or raise \
             replay.samples_per_insert, so that each position is trained on more often.",
        )
    };
    Bottleneck {
        part: Part::SelfPlay,
        sentence: format!(
            "Self-play is the bottleneck: the learner waits {} of its time for samples, and {most} takes {} of the time of \
             the self-play threads.",
            percent(*sampling),
            percent(*share)
        ),
        remedy: remedy.to_owned(),
    }
}

fn preparing(load: &Load) -> Bottleneck {
    let Load { preparing, sampling, .. } = load;
    Bottleneck {
        part: Part::Preparing,
        sentence: format!(
            "Making batches is the bottleneck: its one thread is busy {} of its time, and the training thread waits {} of \
             its for it.",
            percent(*preparing),
            percent(*sampling)
        ),
        remedy: "Leave that thread a core of its own (fewer actor.threads), or lower replay.samples_per_insert."
            .to_owned(),
    }
}

fn publication(load: &Load) -> Bottleneck {
    Bottleneck {
        part: Part::Publication,
        sentence: format!(
            "Writing weights and checkpoints is the bottleneck: it takes {} of the learner's time.",
            percent(load.publishing)
        ),
        remedy:
            "Raise learner.publish_interval_seconds and learner.checkpoint_interval_seconds, or take a faster disk."
                .to_owned(),
    }
}

fn replay(load: &Load) -> Bottleneck {
    let Load { sampling, held_up, .. } = load;
    Bottleneck {
        part: Part::Replay,
        sentence: format!(
            "The replay server is the bottleneck: the learner waits {} of its time for samples while the self-play threads \
             wait {} of theirs to hand in.",
            percent(*sampling),
            percent(*held_up)
        ),
        remedy:
            "Raise replay.error_items, so that its rate limiter lets both sides run ahead further; or take a faster \
                 disk for the run."
                .to_owned(),
    }
}

fn nothing(load: &Load) -> Bottleneck {
    let Load { sampling, held_up, cores_used, .. } = load;
    let used = cores_used.map_or_else(String::new, |used| format!(", with {} of the cores in use", percent(used)));
    Bottleneck {
        part: Part::Nothing,
        sentence: format!(
            "Self-play and training are balanced: the learner waits {} of its time, the self-play threads {} of \
             theirs{used}.",
            percent(*sampling),
            percent(*held_up)
        ),
        remedy:
            "Only more or faster cores, or an accelerator, speed up both; a smaller network or fewer simulations make \
                 both do more with these."
                .to_owned(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests;
