use super::paper::{self, Delivery, LINKS, PUBLISH_INTERVAL_SECONDS};
use super::report::{FanOutReport, InsertsReport, LoadReport, Report, ScaleReport, ScalingReport};
use crate::digits::{number, time};

/// The report as tables for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Report { cpu, target, cores, seed, descriptors_max, compared, scaling, load } = report;
    let descriptors = descriptors_max.map_or("unknown".to_owned(), |limit| limit.to_string());
    let mut text = format!(
        "# A fleet of actors\n\n\
         - machine: {cpu}, {target}, {cores} cores, shared by all processes, over loopback; seed {seed}\n\
         - file descriptors that a process may have open: {descriptors}\n"
    );
    if let Some(compared) = compared {
        text += &format!("- ×: over {}, measured on {}\n", compared.file, compared.cpu);
    }
    text += &scaling.as_ref().map_or(String::new(), of_scaling);
    text + &load.as_ref().map_or(String::new(), of_load)
}

fn of_scaling(report: &ScalingReport) -> String {
    let ScalingReport { game, delay_us, games, simulations, network, sets, seconds, warm_up_seconds, repeats, .. } =
        report;
    let sets: String = sets.iter().map(|set| format!(", {set}")).collect();
    let mut text = format!(
        "\n## Inserts by actors\n\n\
         - {game}: real processes; each actor has one thread of {games} games, {simulations} simulations a move, and a simulated \
         evaluator that takes {} for every batch; the learner trains {network}{sets}\n\
         - measured: {seconds} s, {warm_up_seconds} s after the first training step; the median of {repeats}\n\n\
         | actors | inserts/s | of linear | samples/s | cores busy: all, actors, replay, learner | self-play held up | limiter holds \
         inserts up | learner busy |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        time(*delay_us as f64),
    );
    for fleet in &report.fleets {
        text += &of_fleet(fleet);
    }
    text
}

fn of_fleet(fleet: &ScaleReport) -> String {
    format!(
        "| {} | {}{} | {:.3} | {} | {}, {}, {}, {} | {} | {} | {} |\n",
        fleet.actors,
        number(fleet.inserts_per_second),
        times(fleet.inserts_ratio),
        fleet.share_of_linear,
        number(fleet.samples_per_second),
        cores(fleet.cpu),
        cores(fleet.actors_cpu),
        cores(fleet.replay_cpu),
        cores(fleet.learner_cpu),
        percent(fleet.held_up_share),
        percent(fleet.insert_wait_share),
        percent(fleet.learner_busy_share),
    )
}

fn of_load(report: &LoadReport) -> String {
    let LoadReport { actors, steps, trajectory_bytes, seconds, .. } = report;
    let text = format!(
        "\n## {actors} actors from one process\n\n\
         - each has a connection and an insert stream to a replay server, and a connection and a subscription to a publisher of \
         weights, both processes of their own; trajectories of Connect Four with {steps} steps, {} bytes each\n\
         - insert rates: {seconds} s each, every insert durable before it is acknowledged; latency: from handing in to the \
         acknowledgement\n\n\
         | | connections | all open after | memory without | with all of them | per connection |\n|---|---:|---:|---:|---:|---:|\n",
        number(*trajectory_bytes),
    );
    let replay = connections(
        "replay-server",
        *actors,
        report.connected_seconds,
        (report.replay_memory_bytes, report.replay_memory_bytes_connected),
    );
    let publisher = connections(
        "publisher of weights",
        *actors,
        report.subscribed_seconds,
        (report.publisher_memory_bytes, report.publisher_memory_bytes_subscribed),
    );
    let publisher = if report.fan_outs.is_empty() { String::new() } else { publisher };
    text + &replay
        + &publisher
        + &of_inserts(report)
        + &of_fan_outs(&report.fan_outs, report.fetches)
        + &on_paper(report)
}

fn connections(name: &str, count: usize, seconds: f64, (before, after): (Option<u64>, Option<u64>)) -> String {
    let each = paper::per_connection(before, after, count);
    let each = each.map_or("–".to_owned(), |bytes| format!("{} kB", number(bytes / 1e3)));
    format!("| {name} | {count} | {} | {} | {} | {each} |\n", time(1e6 * seconds), megabytes(before), megabytes(after))
}

fn of_inserts(report: &LoadReport) -> String {
    if report.inserts.is_empty() {
        return String::new();
    }
    let mut text = "\n| asked per actor | asked | acknowledged | p50, p99 | cores busy: replay server, all actors | memory of the \
                    replay server |\n|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for inserts in &report.inserts {
        let InsertsReport { asked_per_actor, inserts_per_second, latency, .. } = inserts;
        text += &format!(
            "| {asked_per_actor}/s | {}/s | {}/s | {}, {} | {}, {} | {} |\n",
            number(asked_per_actor * report.actors as f64),
            number(*inserts_per_second),
            time(1e3 * latency.p50_ms),
            time(1e3 * latency.p99_ms),
            cores(inserts.replay_cpu),
            cores(inserts.clients_cpu),
            megabytes(inserts.replay_memory_bytes),
        );
    }
    text
}

fn of_fan_outs(fan_outs: &[FanOutReport], fetches: Option<usize>) -> String {
    if fan_outs.is_empty() {
        return String::new();
    }
    let at_once =
        fetches.map_or("as many subscribers at once as a learner".to_owned(), |at_once| format!("{at_once} at once"));
    let mut text = format!("\nThe publisher sends to {at_once}:\n");
    text += "\n| network | a version | sent | the first holds it after | half | all | bytes/s | CPU time: publisher, \
                    subscribers | memory of the publisher: before, at most |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    for fan_out in fan_outs {
        let seconds = |cpu: Option<f64>| cpu.map_or("–".to_owned(), |cpu| format!("{} s", number(cpu)));
        text += &format!(
            "| {} | {:.1} MB | {} | {} | {} | {}{} | {} | {}, {} | {}, {} |\n",
            fan_out.network,
            fan_out.size_bytes as f64 / 1e6,
            gigabytes(fan_out.bytes_sent as f64),
            time(1e6 * fan_out.first_seconds()),
            time(1e6 * fan_out.median_seconds()),
            time(1e6 * fan_out.last_seconds()),
            times(fan_out.seconds_ratio),
            gigabytes(fan_out.bytes_sent as f64 / fan_out.last_seconds()),
            seconds(fan_out.publisher_cpu_seconds),
            seconds(fan_out.clients_cpu_seconds),
            megabytes(fan_out.publisher_memory_bytes),
            megabytes(fan_out.publisher_memory_bytes_max),
        );
    }
    text
}

/// What follows for a fleet on machines of its own.
fn on_paper(report: &LoadReport) -> String {
    let mut text = "\n## On paper\n\n".to_owned();
    for inserts in &report.inserts {
        let bytes = paper::trajectory_bytes_per_second(report, inserts.inserts_per_second);
        text += &format!(
            "- {} inserts/s are {:.1} MB/s of trajectories\n",
            number(inserts.inserts_per_second),
            bytes / 1e6
        );
    }
    if let Some(inserts) = paper::inserts_per_cpu_second(report) {
        text += &format!("- a CPU second of the replay server takes {} inserts\n", number(inserts));
    }
    if report.fan_outs.is_empty() {
        return text;
    }
    for fan_out in &report.fan_outs {
        if let Some(bytes) = fan_out.bytes_per_cpu_second() {
            text += &format!("- a CPU second of the publisher sends {} of {}\n", gigabytes(bytes), fan_out.network);
        }
    }
    text += &format!(
        "\nA version to {} subscribers, by the publisher's link; no shorter interval of publishing reaches all of them \
         (learner.publish_interval_seconds is {PUBLISH_INTERVAL_SECONDS} unless set):\n\n| network |",
        report.actors
    );
    for (link, _) in LINKS {
        text += &format!(" {link} | limit |");
    }
    text += &format!("\n|---|{}\n", "---:|---|".repeat(LINKS.len()));
    for fan_out in &report.fan_outs {
        text += &format!("| {} |", fan_out.network);
        for (_, bits_per_second) in LINKS {
            let delivery = Delivery::new(fan_out, bits_per_second);
            text += &format!(" {} | {} |", time(1e6 * delivery.seconds()), delivery.limit.in_words());
        }
        text.push('\n');
    }
    text
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!(" ×{ratio:.2}"))
}

fn cores(cpu: Option<f64>) -> String {
    cpu.map_or("–".to_owned(), |cpu| format!("{cpu:.2}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

fn megabytes(bytes: Option<u64>) -> String {
    bytes.map_or("–".to_owned(), |bytes| format!("{:.0} MB", bytes as f64 / 1e6))
}

fn gigabytes(bytes: f64) -> String {
    format!("{} GB", number(bytes / 1e9))
}
