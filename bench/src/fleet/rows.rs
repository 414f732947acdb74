//! The rows of a report about fleets.

use super::paper::{self, Delivery, LINKS, PUBLISH_INTERVAL_SECONDS};
use super::scaling::ScalingArgs;
use super::speeds::{FanOutSpeeds, InsertsSpeeds, LoadSpeeds, ScaleSpeeds};
use crate::digits::{bytes, number, time};
use crate::report::{Report, Unit};

pub(super) const FLEETS: &str = "inserts by actors";
pub(super) const CONNECTIONS: &str = "connections";
pub(super) const INSERTS: &str = "inserts of all actors from one process";
pub(super) const WEIGHTS: &str = "a version to every subscriber";
pub(super) const HELD: &str = "subscribers that hold the version";
pub(super) const ON_PAPER: &str = "a version over the publisher's link, computed";
const INSERTS_PER_SECOND: &str = "inserts/s";

/// Adds fleets of real processes.
pub(super) fn add_fleets(report: &mut Report, args: &ScalingArgs, fleets: &[ScaleSpeeds]) {
    if fleets.is_empty() {
        return;
    }
    let ScalingArgs { game, delay_us, games, simulations, seconds, warm_up_seconds, repeats, .. } = args;
    report.set("game", game);
    report.set("simulated evaluator", time(*delay_us as f64));
    report.set("games per actor", games);
    report.set("simulations", simulations);
    let sets: String = args.sets.iter().map(|set| format!(", {set}")).collect();
    report.note(format!(
        "fleets are real processes; each actor has one thread; the learner trains {}{sets}; {seconds} s, {warm_up_seconds} s \
         after the first training step; the median of {repeats}",
        ScalingArgs::NETWORK
    ));
    for fleet in fleets {
        report
            .at(FLEETS, &[("actors", &fleet.actors)])
            .value(INSERTS_PER_SECOND, Unit::PerSecond, fleet.inserts_per_second)
            .value("share of linear", Unit::Share, fleet.share_of_linear)
            .value("samples/s", Unit::PerSecond, fleet.samples_per_second)
            .value("cores of all", Unit::Cores, fleet.cpu)
            .value("cores of actors", Unit::Cores, fleet.actors_cpu)
            .value("cores of replay", Unit::Cores, fleet.replay_cpu)
            .value("cores of learner", Unit::Cores, fleet.learner_cpu)
            .value("self-play waits for replay", Unit::Share, fleet.held_up_share)
            .value("limiter delays inserts", Unit::Share, fleet.insert_wait_share)
            .value("learner busy", Unit::Share, fleet.learner_busy_share);
    }
    report.plot(FLEETS, INSERTS_PER_SECOND, Some("actors"), None);
}

/// Adds what one process does in the name of many actors.
pub(super) fn add_load(report: &mut Report, load: &LoadSpeeds) {
    let LoadSpeeds { actors, steps, trajectory_bytes, seconds, .. } = load;
    report.set("actors of one process", actors);
    let fetches =
        load.fetches.map_or("as many subscribers at once as a learner".to_owned(), |n| format!("{n} at once"));
    report.note(format!(
        "{actors} actors from one process: each has a connection and an insert stream to a replay server, and a connection and a \
         subscription to a publisher of weights, both processes of their own; trajectories of Connect Four with {steps} steps, \
         {} each; {seconds} s for each rate, every insert durable before its acknowledgement; the publisher sends to {fetches}",
        bytes(*trajectory_bytes)
    ));
    let replay = (load.connected_seconds, load.replay_memory_bytes, load.replay_memory_bytes_connected);
    add_connections(report, "replay-server", *actors, replay);
    if !load.fan_outs.is_empty() {
        let publisher = (load.subscribed_seconds, load.publisher_memory_bytes, load.publisher_memory_bytes_subscribed);
        add_connections(report, "publisher of weights", *actors, publisher);
    }
    for inserts in &load.inserts {
        let InsertsSpeeds { asked_per_actor, inserts_per_second, latency, .. } = inserts;
        let traffic = paper::trajectory_bytes_per_second(load, *inserts_per_second);
        report
            .at(INSERTS, &[("wanted per actor and second", asked_per_actor)])
            .value("wanted/s", Unit::PerSecond, asked_per_actor * *actors as f64)
            .value("acknowledged/s", Unit::PerSecond, *inserts_per_second)
            .latency("insert", *latency)
            .value("cores of replay server", Unit::Cores, inserts.replay_cpu)
            .value("cores of all actors", Unit::Cores, inserts.clients_cpu)
            .value("memory of replay server", Unit::Bytes, known(inserts.replay_memory_bytes))
            .value("trajectories", Unit::BytesPerSecond, traffic);
    }
    if let Some(inserts) = paper::inserts_per_cpu_second(load) {
        report.finding(format!("A CPU second of the replay server takes {} inserts.", number(inserts)));
    }
    load.fan_outs.iter().for_each(|fan_out| add_fan_out(report, fan_out));
    if !load.fan_outs.is_empty() {
        report.finding(format!(
            "No shorter interval of publishing than those below reaches all {actors} subscribers \
             (learner.publish_interval_seconds is {PUBLISH_INTERVAL_SECONDS} unless set)."
        ));
        report.plot(HELD, "time", Some("subscribers"), None);
    }
}

fn add_connections(report: &mut Report, to: &str, count: usize, measured: (f64, Option<u64>, Option<u64>)) {
    let (seconds, before, after) = measured;
    report
        .at(CONNECTIONS, &[("to", &to), ("connections", &count)])
        .value("all open after", Unit::Microseconds, 1e6 * seconds)
        .value("memory without", Unit::Bytes, known(before))
        .value("memory with all", Unit::Bytes, known(after))
        .value("per connection", Unit::Bytes, paper::per_connection(before, after, count));
}

fn add_fan_out(report: &mut Report, fan_out: &FanOutSpeeds) {
    let us = |seconds: f64| 1e6 * seconds;
    let network = &fan_out.network;
    report
        .at(WEIGHTS, &[("network", network)])
        .value("size", Unit::Bytes, fan_out.size_bytes as f64)
        .value("sent", Unit::Bytes, fan_out.bytes_sent as f64)
        .value("first holds it", Unit::Microseconds, us(fan_out.first_seconds()))
        .value("half", Unit::Microseconds, us(fan_out.median_seconds()))
        .value("all", Unit::Microseconds, us(fan_out.last_seconds()))
        .value("throughput", Unit::BytesPerSecond, fan_out.bytes_sent as f64 / fan_out.last_seconds())
        .value("CPU of publisher", Unit::Microseconds, fan_out.publisher_cpu_seconds.map(us))
        .value("CPU of subscribers", Unit::Microseconds, fan_out.clients_cpu_seconds.map(us))
        .value("sent per CPU second", Unit::Bytes, fan_out.bytes_per_cpu_second())
        .value("memory of publisher before", Unit::Bytes, known(fan_out.publisher_memory_bytes))
        .value("at most", Unit::Bytes, known(fan_out.publisher_memory_bytes_max));
    for (subscribers, seconds) in &fan_out.held {
        report.at(HELD, &[("network", network), ("subscribers", subscribers)]).value(
            "time",
            Unit::Microseconds,
            us(*seconds),
        );
    }
    for (link, bits_per_second) in LINKS {
        let delivery = Delivery::new(fan_out, bits_per_second);
        report.at(ON_PAPER, &[("network", network), ("link", &link), ("limit", &delivery.limit.in_words())]).value(
            "time",
            Unit::Microseconds,
            us(delivery.seconds()),
        );
    }
}

fn known(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64)
}
