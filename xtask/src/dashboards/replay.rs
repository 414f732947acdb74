//! What the replay servers hold, take in and hand out.

use super::{Dashboard, Panel, Row, Unit};

pub(super) fn dashboard() -> Dashboard {
    Dashboard {
        name: "replay",
        title: "Replay",
        description: "What the replay servers hold, take in and hand out.",
        rows: vec![held(), coming_in(), drawn(), tables()],
    }
}

fn held() -> Row {
    Row {
        title: "Held",
        panels: vec![
            Panel::lines("Positions", Unit::Count, "Positions held, and those in the window, from which is drawn.")
                .query("{{instance}} held", "zerofleet_replay_items")
                .query("{{instance}} window", "zerofleet_replay_window_items"),
            Panel::lines(
                "Memory",
                Unit::Bytes,
                "Memory of all tables and of what is on its way into them; the budget, where there is one. Beyond it \
                 inserts are refused.",
            )
            .query("{{instance}}", "zerofleet_replay_memory_bytes")
            .query("{{instance}} budget", "zerofleet_replay_memory_bytes_max > 0"),
            Panel::lines(
                "Disk",
                Unit::Bytes,
                "Size of the log, of its copy in the archive, and what the file system still takes.",
            )
            .query("{{instance}} log", "zerofleet_replay_bytes")
            .query("{{instance}} archive", "zerofleet_replay_archive_bytes")
            .query("{{instance}} free", "zerofleet_replay_disk_free_bytes")
            .logarithmic(),
            Panel::number("Trajectories", Unit::Count, "Games held.")
                .query("games", "sum(zerofleet_replay_trajectories)"),
            Panel::number("Memory of a position", Unit::Bytes, "Of the main table, on average.")
                .query("bytes", "sum(zerofleet_replay_table_bytes) / sum(zerofleet_replay_items)"),
            Panel::number(
                "Quarantined",
                Unit::Count,
                "Trajectories held that are not drawn, because they break the rules or an operator said so.",
            )
            .query("trajectories", "sum(zerofleet_replay_quarantined)"),
            Panel::number(
                "Replay servers",
                Unit::Whole,
                "Those that the learner knows of; fewer are drawn from while some are empty or away.",
            )
            .query("{{state}}", "max by (state) (zerofleet_learner_replay_servers)"),
            Panel::number(
                "Archive passes that failed",
                Unit::Count,
                "During the last hour. Nothing waits for the archive; the loss of the disk would cost more.",
            )
            .query("failed", "sum(increase(zerofleet_replay_archive_passes_total{result=\"failed\"}[1h]))"),
            Panel::number("Replay servers of an actor", Unit::Whole, "The fewest that an actor knows of.")
                .query("servers", "min(zerofleet_actor_replay_servers)"),
        ],
    }
}

fn coming_in() -> Row {
    Row {
        title: "Coming in",
        panels: vec![
            Panel::stacked("Games per second", Unit::Count, "Trajectories taken in, by server.")
                .query("{{instance}}", "rate(zerofleet_replay_inserts_total[$__rate_interval])"),
            Panel::heatmap(
                "Insert latency",
                Unit::Seconds,
                "From the arrival of a trajectory to its answer, which comes when it is durable. Time that the rate \
                 limiter holds it up counts.",
                "zerofleet_replay_insert_seconds",
            ),
            Panel::quantiles(
                "Insert latency, quantiles",
                Unit::Seconds,
                "The same as lines. Without the rate limiter it is the fsync interval and the disk.",
                "zerofleet_replay_insert_seconds",
                Some("instance"),
            )
            .logarithmic(),
            Panel::lines(
                "Refused per second",
                Unit::Count,
                "Trajectories that break the rules (invalid), that the disk did not take (not_stored), and that found no \
                 room in memory (over_memory). All should be zero.",
            )
            .query("{{reason}}", "sum by (reason) (rate(zerofleet_replay_refused_total[$__rate_interval]))"),
            Panel::lines(
                "Actors",
                Unit::Whole,
                "Actors that insert, and those that have been silent for too long: their lease ran out.",
            )
            .query("{{state}}", "sum by (state) (zerofleet_replay_actors)"),
            Panel::lines(
                "Too old per second",
                Unit::Count,
                "Trajectories that were not taken, for their weights were too far behind the newest.",
            )
            .query("{{instance}}", "rate(zerofleet_replay_stale_total[$__rate_interval])"),
            Panel::lines(
                "Duplicates per second",
                Unit::Count,
                "Trajectories that came again and were not counted again. Some after each restart are what keeps games \
                 from being lost.",
            )
            .query("{{instance}}", "rate(zerofleet_replay_duplicates_total[$__rate_interval])"),
            Panel::lines(
                "Acknowledged per second",
                Unit::Count,
                "Trajectories that actors were told are durable, and those that they still have under way.",
            )
            .query("acknowledged", "sum(rate(zerofleet_actor_inserted_total[$__rate_interval]))")
            .query("under way", "sum(zerofleet_actor_unacknowledged)"),
        ],
    }
}

fn drawn() -> Row {
    Row {
        title: "Drawn",
        panels: vec![
            Panel::quantiles(
                "Time to a batch",
                Unit::Seconds,
                "From the learner's wish for a batch to the batch. Time that the rate limiter holds it up counts.",
                "zerofleet_replay_sample_seconds",
                Some("table"),
            )
            .logarithmic(),
            Panel::quantiles(
                "Age of samples",
                Unit::Seconds,
                "How long ago what is drawn came in.",
                "zerofleet_replay_sample_age_seconds",
                Some("table"),
            )
            .logarithmic(),
            Panel::quantiles(
                "Versions that samples are behind",
                Unit::Count,
                "By how many weights versions what is drawn is behind the newest held.",
                "zerofleet_replay_sample_lag_versions",
                Some("table"),
            ),
        ],
    }
}

fn tables() -> Row {
    Row {
        title: "Tables",
        panels: vec![
            Panel::lines(
                "Positions of each table",
                Unit::Count,
                "Held, and in the window. Trajectories that tables share count in each.",
            )
            .query("{{table}} held", "sum by (table) (zerofleet_replay_tables_items)")
            .query("{{table}} window", "sum by (table) (zerofleet_replay_tables_window_items)"),
            Panel::lines("Samples of each table per second", Unit::Count, "Positions drawn from it.")
                .query("{{table}}", "sum by (table) (rate(zerofleet_replay_tables_samples_total[$__rate_interval]))"),
            Panel::lines("Memory of each table", Unit::Bytes, "Memory that it keeps, shared trajectories too.")
                .query("{{table}}", "sum by (table) (zerofleet_replay_tables_bytes)"),
        ],
    }
}
