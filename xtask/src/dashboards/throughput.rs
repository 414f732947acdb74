//! How much the fleet does in a second, and what keeps it from doing more.

use super::{Dashboard, Panel, Row, Unit};

pub(super) fn dashboard() -> Dashboard {
    Dashboard {
        name: "throughput",
        title: "Throughput and bottleneck",
        description: "How much the fleet does in a second, and what keeps it from doing more.",
        rows: vec![rates(), actors(), learner(), held_up()],
    }
}

fn rates() -> Row {
    Row {
        title: "Per second",
        panels: vec![
            Panel::stacked("Games per second", Unit::Count, "Games that each actor has finished.")
                .query("{{instance}}", "rate(zerofleet_actor_games_total[$__rate_interval])"),
            Panel::stacked("Moves per second", Unit::Count, "Moves that each actor has made: positions played.")
                .query("{{instance}}", "rate(zerofleet_actor_positions_total[$__rate_interval])"),
            Panel::lines(
                "Evaluations per second",
                Unit::Count,
                "Positions that went through the network, and simulations of all searches: the difference is the position \
                 cache, and ends of games.",
            )
            .query("evaluations", "sum(rate(zerofleet_actor_evaluations_total[$__rate_interval]))")
            .query("simulations", "sum(rate(zerofleet_actor_simulations_total[$__rate_interval]))"),
            Panel::lines(
                "Inserts and samples per second",
                Unit::Count,
                "Positions that came into the replay servers, and positions drawn from them. The rate limiter holds their \
                 ratio.",
            )
            .query("inserted", "sum(rate(zerofleet_replay_items_inserted_total[$__rate_interval]))")
            .query("drawn", "sum(rate(zerofleet_replay_samples_total[$__rate_interval]))"),
            Panel::lines("Positions trained on per second", Unit::Count, "What the learner makes of what is drawn.")
                .query("trained on", "sum(rate(zerofleet_learner_positions_total[$__rate_interval]))"),
            Panel::lines("Processes", Unit::Whole, "Processes that answer, by role.")
                .query("{{role}}", "sum by (role) (up{job=\"zerofleet\"})"),
            Panel::lines(
                "Builds",
                Unit::Whole,
                "Processes by role and version: more than one version of a role is an update half done.",
            )
            .query("{{role}} {{version}}", "count by (role, version) (zerofleet_process_info)"),
        ],
    }
}

fn actors() -> Row {
    Row {
        title: "Where the time of actors goes",
        panels: vec![
            Panel::stacked(
                "Self-play threads",
                Unit::Share,
                "Trees and rules (search), the network (evaluate), handing over games, taking new weights, and nothing \
                 (wait). Mostly evaluate: a faster evaluator helps. Mostly wait: see what they wait for.",
            )
            .query("{{phase}}", share("zerofleet_actor_seconds_total", "phase", "zerofleet_actor_seconds_total")),
            Panel::stacked(
                "Search",
                Unit::Share,
                "Parts of the time in search: descents to leaves with rules, cache and moves (select); making observations (observe); \
                 expansion and backup (expand).",
            )
            .query("{{part}}", share("zerofleet_actor_search_seconds_total", "part", "zerofleet_actor_search_seconds_total")),
            Panel::stacked(
                "Waiting",
                Unit::Share,
                "What self-play threads wait for: first weights, a replay server that takes no more (the learner is \
                 behind), an evaluator that failed.",
            )
            .query("{{part}}", share("zerofleet_actor_wait_seconds_total", "part", "zerofleet_actor_seconds_total")),
            Panel::lines(
                "Batch size of actors",
                Unit::Count,
                "Positions in a batch of the evaluator. Small batches waste an accelerator.",
            )
            .query(
                "{{instance}}",
                "rate(zerofleet_actor_evaluations_total[$__rate_interval]) / rate(zerofleet_actor_batches_total[$__rate_interval])",
            ),
            Panel::lines(
                "Answers from the position cache",
                Unit::Share,
                "Share of questions that needed no network.",
            )
            .query(
                "{{instance}}",
                "rate(zerofleet_actor_cache_hits_total[$__rate_interval]) / rate(zerofleet_actor_cache_lookups_total[$__rate_interval])",
            ),
            Panel::lines(
                "Trouble of actors per second",
                Unit::Count,
                "Batches that were not evaluated, trajectories that were refused, and changes to another replay server.",
            )
            .query("evaluations failed", "sum(rate(zerofleet_actor_evaluator_failures_total[$__rate_interval]))")
            .query("trajectories refused", "sum(rate(zerofleet_actor_refused_total[$__rate_interval]))")
            .query("other server", "sum(rate(zerofleet_actor_replay_moves_total[$__rate_interval]))"),
        ],
    }
}

fn learner() -> Row {
    Row {
        title: "Where the time of the learner goes",
        panels: vec![
            Panel::stacked(
                "Training thread",
                Unit::Share,
                "Waiting for batches, training, publishing and checkpoints. Mostly wait: self-play or the preparing thread \
                 limits training.",
            )
            .query("{{phase}}", share("zerofleet_learner_seconds_total", "phase", "zerofleet_learner_seconds_total")),
            Panel::stacked(
                "Training steps",
                Unit::Share,
                "Parts of the time in training steps: batch to device, network and losses, gradients, update and average.",
            )
            .query("{{part}}", share("zerofleet_learner_train_seconds_total", "part", "zerofleet_learner_train_seconds_total")),
            Panel::stacked(
                "Preparing thread",
                Unit::Share,
                "Waiting for samples, making batches of them, and waiting for the training thread to take one. Mostly \
                 prepare while the training thread waits: this thread limits training.",
            )
            .query(
                "{{part}}",
                share("zerofleet_learner_prepare_seconds_total", "part", "zerofleet_learner_prepare_seconds_total"),
            ),
        ],
    }
}

fn held_up() -> Row {
    Row {
        title: "What holds the run up",
        panels: vec![
            Panel::lines(
                "Held up by the rate limiter",
                Unit::Share,
                "Share of time in which a table let one side wait, and why. Inserts held up: actors are ahead, the learner \
                 limits the run. Samples held up: the learner is ahead, self-play limits it, and more actors help.",
            )
            .query(
                "{{table}}: {{side}}, {{reason}}",
                "max by (table, side, reason) (rate(zerofleet_replay_held_up_seconds_total[$__rate_interval]))",
            ),
            Panel::lines(
                "Samples per insert",
                Unit::Plain,
                "Positions drawn for each that came in, since the run began. `replay.samples_per_insert` is what it is \
                 held at.",
            )
            .query("{{instance}}", "zerofleet_replay_samples_per_insert"),
            Panel::lines(
                "Trajectories under way",
                Unit::Count,
                "Finished games that no replay server has acknowledged yet, by actor. They grow while one is away or holds \
                 inserts up.",
            )
            .query("{{instance}}", "zerofleet_actor_unacknowledged"),
        ],
    }
}

/// Seconds of a part per second of the whole.
fn share(part: &str, label: &str, whole: &str) -> String {
    format!("sum by ({label}) (rate({part}[$__rate_interval])) / scalar(sum(rate({whole}[$__rate_interval])))")
}
