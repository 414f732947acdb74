//! What inference servers evaluate for others, and how long that takes.

use super::{Dashboard, Panel, Row, Unit};

pub(super) fn dashboard() -> Dashboard {
    Dashboard {
        name: "inference",
        title: "Inference",
        description: "What inference servers evaluate for others, and how long that takes. Empty in a fleet without one.",
        rows: vec![load(), batches(), answers()],
    }
}

fn load() -> Row {
    Row {
        title: "Load",
        panels: vec![
            Panel::lines("Positions per second", Unit::Count, "Answered by the network, by server.")
                .query("{{instance}}", "rate(zerofleet_inference_positions_total[$__rate_interval])"),
            Panel::lines("Asks per second", Unit::Count, "Answered; each asks for some positions at once.")
                .query("{{instance}}", "rate(zerofleet_inference_asks_total[$__rate_interval])"),
            Panel::lines("Clients", Unit::Whole, "Clients of the fast path: actors, mostly.")
                .query("{{instance}}", "zerofleet_inference_streams"),
        ],
    }
}

fn batches() -> Row {
    Row {
        title: "Batches",
        panels: vec![
            Panel::lines(
                "Batch size",
                Unit::Count,
                "Positions in a batch, on average. Small batches waste an accelerator.",
            )
            .query(
                "{{instance}}",
                "rate(zerofleet_inference_batch_positions_total[$__rate_interval]) / sum without (reason) (rate(zerofleet_inference_batches_total[$__rate_interval]))",
            ),
            Panel::stacked(
                "Why batches left",
                Unit::Share,
                "Full: nothing more fitted in. Delay: an ask had waited `inference.queue_delay_us`. Idle: an evaluator was \
                 free, so that there was nothing to wait for.",
            )
            .query(
                "{{reason}}",
                "sum by (reason) (rate(zerofleet_inference_batches_total[$__rate_interval])) / scalar(sum(rate(zerofleet_inference_batches_total[$__rate_interval])))",
            ),
            Panel::lines("Queue", Unit::Count, "Positions that wait for their turn.")
                .query("{{instance}}", "zerofleet_inference_waiting_positions"),
        ],
    }
}

fn answers() -> Row {
    Row {
        title: "Answers",
        panels: vec![
            Panel::quantiles(
                "Time in the queue",
                Unit::Seconds,
                "How long an ask waited for its turn.",
                "zerofleet_inference_queue_seconds",
                None,
            )
            .logarithmic(),
            Panel::quantiles(
                "Time of a batch",
                Unit::Seconds,
                "How long a batch took in the evaluator.",
                "zerofleet_inference_compute_seconds",
                None,
            )
            .logarithmic(),
            Panel::lines(
                "Refused per second",
                Unit::Count,
                "Asks that were not answered. Full, late and expired: too little evaluator for so many clients. Failed: \
                 the evaluator failed.",
            )
            .query("{{why}}", "sum by (why) (rate(zerofleet_inference_refused_total[$__rate_interval]))"),
            Panel::stacked(
                "Who evaluates for actors",
                Unit::Share,
                "The server, or the actor itself while the server does not answer.",
            )
            .query(
                "{{by}}",
                "sum by (by) (rate(zerofleet_actor_remote_positions_total[$__rate_interval])) / scalar(sum(rate(zerofleet_actor_remote_positions_total[$__rate_interval])))",
            ),
            Panel::lines(
                "Answers from the position cache",
                Unit::Share,
                "Share of positions of the fast path that needed no network.",
            )
            .query(
                "{{instance}}",
                "rate(zerofleet_inference_cache_hits_total[$__rate_interval]) / (rate(zerofleet_inference_cache_hits_total[$__rate_interval]) + rate(zerofleet_inference_cache_misses_total[$__rate_interval]))",
            ),
            Panel::lines(
                "Versions",
                Unit::Whole,
                "Weights versions that answer, and how far the newest of them is behind what the learner has published.",
            )
            .query("{{instance}} answering", "zerofleet_inference_versions")
            .query(
                "{{instance}} behind",
                "clamp_min(scalar(max(zerofleet_learner_weights_version)) - zerofleet_inference_weights_version, 0)",
            ),
        ],
    }
}
