//! Whether the player gets stronger, and what training does for it.

use super::{Dashboard, Panel, Row, Unit};

pub(super) fn dashboard() -> Dashboard {
    Dashboard {
        name: "training",
        title: "Training",
        description: "Whether the player gets stronger, and what training does for it.",
        rows: vec![at_a_glance(), strength(), learning(), versions()],
    }
}

fn at_a_glance() -> Row {
    Row {
        title: "At a glance",
        panels: vec![
            Panel::number("Training steps", Unit::Count, "Steps of the run so far.")
                .query("steps", "max(zerofleet_learner_steps_total)"),
            Panel::number("Weights version", Unit::Whole, "The newest version that the learner has published.")
                .query("version", "max(zerofleet_learner_weights_version)"),
            Panel::number("Games", Unit::Count, "Games that the replay servers have taken in during the run.")
                .query("games", "sum(zerofleet_replay_inserts_total)"),
            Panel::number(
                "Accuracy",
                Unit::Share,
                "Solved positions in which a search keeps the outcome, of the version being measured.",
            )
            .query(
                "accuracy",
                "max(zerofleet_arena_accuracy{search=\"search\", measure=\"preserving\", band=\"overall\"})",
            ),
            Panel::number("Rating", Unit::Plain, "Rating of the version being measured; random play is 0.")
                .query("Elo", "max(zerofleet_arena_elo)"),
            Panel::number("Processes", Unit::Whole, "Processes that answer, of all roles.")
                .query("processes", "sum(up{job=\"zerofleet\"})"),
        ],
    }
}

fn strength() -> Row {
    Row {
        title: "Strength",
        panels: vec![
            Panel::lines(
                "Accuracy on solved positions",
                Unit::Share,
                "Share of solved positions in which the move keeps the outcome. Raw is the network's first choice with the \
                 newest weights; search is what a search makes of the version being measured.",
            )
            .query("{{search}}", "zerofleet_arena_accuracy{measure=\"preserving\", band=\"overall\"}"),
            Panel::lines(
                "Accuracy by stage of the game",
                Unit::Share,
                "The same with search, for early, middle and late positions. Openings are learnt last.",
            )
            .query("{{band}}", "zerofleet_arena_accuracy{search=\"search\", measure=\"preserving\", band!=\"overall\"}"),
            Panel::lines(
                "Elo",
                Unit::Plain,
                "Rating of the version being measured with its 95 % interval, from all games of the run; random play is 0. \
                 The fixed opponents are there for scale.",
            )
            .query("being measured", "zerofleet_arena_elo")
            .query("low", "zerofleet_arena_elo_low")
            .query("high", "zerofleet_arena_elo_high")
            .query("{{opponent}}", "zerofleet_arena_opponent_elo"),
        ],
    }
}

fn learning() -> Row {
    Row {
        title: "Learning",
        panels: vec![
            Panel::lines(
                "Loss",
                Unit::Plain,
                "Losses of the newest step. The policy loss cannot fall below the entropy of the search's policies.",
            )
            .query("{{part}}", "zerofleet_learner_loss"),
            Panel::lines(
                "Gradient norm",
                Unit::Plain,
                "Of the newest step, before clipping. Spikes that last mean a learning rate that is too high.",
            )
            .query("gradient norm", "zerofleet_learner_gradient_norm"),
            Panel::lines(
                "Learning rate",
                Unit::Plain,
                "Of the next step: it warms up, and falls over the run's schedule.",
            )
            .query("learning rate", "zerofleet_learner_learning_rate"),
            Panel::lines(
                "Training steps per second",
                Unit::Count,
                "Zero while fewer positions are held than a table must have before the first draw.",
            )
            .query("steps", "rate(zerofleet_learner_steps_total[$__rate_interval])"),
            Panel::lines("Positions trained on per second", Unit::Count, "Steps times batch size.")
                .query("positions", "rate(zerofleet_learner_positions_total[$__rate_interval])"),
            Panel::lines(
                "Refused by the learner",
                Unit::Count,
                "Steps that the guard against numbers that are not finite stopped, and trajectories that break the rules, \
                 per second. Both should be zero.",
            )
            .query("steps not finite", "rate(zerofleet_learner_not_finite_total[$__rate_interval])")
            .query("trajectories", "rate(zerofleet_learner_rejected_trajectories_total[$__rate_interval])"),
        ],
    }
}

fn versions() -> Row {
    Row {
        title: "Versions",
        panels: vec![
            Panel::lines(
                "Weights versions",
                Unit::Whole,
                "The newest published version, and what each process works with. The arena stays with a version while it \
                 plays its games.",
            )
            .query("published", "max(zerofleet_learner_weights_version)")
            .query("oldest actor", "min(zerofleet_actor_weights_version)")
            .query("inference {{instance}}", "zerofleet_inference_weights_version")
            .query("arena", "zerofleet_arena_weights_version"),
            Panel::lines(
                "Versions that actors are behind",
                Unit::Count,
                "How many versions the actor furthest behind, and actors on average, are behind the newest.",
            )
            .query(
                "furthest",
                "clamp_min(scalar(max(zerofleet_learner_weights_version)) - min(zerofleet_actor_weights_version), 0)",
            )
            .query("mean", "clamp_min(scalar(max(zerofleet_learner_weights_version)) - avg(zerofleet_actor_weights_version), 0)"),
            Panel::lines(
                "Versions that samples are behind",
                Unit::Count,
                "Mean age of what the learner trains on, in versions. It grows with the window.",
            )
            .query("mean", "zerofleet_learner_sample_version_lag"),
            Panel::lines(
                "Rated games per minute",
                Unit::Count,
                "Games of the arena; its share of a core limits them.",
            )
            .query("games", "60 * rate(zerofleet_arena_games_total[$__rate_interval])"),
            Panel::lines(
                "Time the arena measures",
                Unit::Share,
                "Share of the last five minutes; `arena.cpu_share` limits it. A long stretch of work counts when it ends.",
            )
            .query("measuring", "rate(zerofleet_arena_busy_seconds_total[5m])"),
        ],
    }
}
