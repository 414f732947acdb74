//! `zerofleet bench fleet`: the delivery of weights to a thousand actors, without games.
//!
//! All actors subscribe from this process to a [`publisher`] of weights in a separate process. The delivery time of a
//! version over slower links is computed. `bench replay --rates` measures the inserts of as many actors, and
//! `bench phases --actors 1,2,4,8` real fleets. Start with [`measure`].

use std::time::Instant;

use anyhow::{Context, ensure};
use proto::weights::v1;
use proto::weights::v1::weights_client::WeightsClient;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Streaming;
use transport::limits::MESSAGE_BYTES_MAX;

use crate::publisher::{self, PublisherArgs, tower_name};
use crate::replay::load::PATIENCE;
use crate::replay::rates::add_connections;
use crate::report::{Report, Unit};
use crate::script::Count;
use crate::usage;

/// Options of `zerofleet bench fleet`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Number of simulated actors in one process, each with a connection.
    #[arg(long, default_value_t = 1_000)]
    pub actors: usize,
    /// Options of the publisher.
    #[command(flatten)]
    pub publisher: PublisherArgs,
}

/// Runs the measurements and returns the report.
///
/// # Errors
/// An option is invalid, or a process dies.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(args.actors > 0, "--actors must be at least 1");
    // Each connection takes a descriptor.
    service::descriptors::raise_limit();
    let mut report = empty_report(args);
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(measure_deliveries(args, &mut report))?;
    Ok(report)
}

/// Returns a report with the settings and conditions of the measurement.
fn empty_report(args: &Args) -> Report {
    let Args { actors, publisher: PublisherArgs { fetches, seed, .. } } = args;
    let mut report = Report::new("fleet", "Weights for a fleet of actors");
    report.set("actors of one process", actors);
    let fetches = fetches.map_or("as many subscribers at once as a learner".to_owned(), |n| format!("{n} at once"));
    report.note(format!(
        "{actors} actors from one process: each has a connection and a subscription to a publisher of weights in \
         another process on the same cores, over loopback; the publisher sends to {fetches}; seed {seed}"
    ));
    report
}

/// Time at which a subscriber held a complete version, and the received bytes.
#[derive(Debug, Clone, Copy)]
struct Held {
    at: Instant,
    bytes: u64,
}

/// Subscribes every actor, then publishes every network once.
async fn measure_deliveries(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let (mut publisher, endpoint) = publisher::start(&args.publisher)?;
    let id = Some(publisher.id());
    let without = usage::memory(id);
    let (sender, mut receiver) = mpsc::channel(args.actors);
    let begun = Instant::now();
    let mut subscribers = JoinSet::new();
    for actor in 0..args.actors {
        // One after the other: of many connections without a call, a server closes the oldest.
        let subscription =
            tokio::time::timeout(PATIENCE, Subscription::open(&endpoint, format!("actor-{actor}"))).await;
        subscribers.spawn(subscription.context("subscribe in time")??.follow(sender.clone()));
    }
    let subscribed = begun.elapsed();
    add_connections(report, "publisher of weights", args.actors, subscribed, [without, usage::memory(id)]);
    for &network in &args.publisher.networks {
        let (memory, us) = (usage::memory(id), Some(std::process::id()));
        let (cpu, clients_cpu) = (usage::cpu_seconds(id), usage::cpu_seconds(us));
        let begun = Instant::now();
        // The publisher responds once the version exists, before subscribers have it.
        let Count { count: size_bytes } = publisher.ask(json!({}), PATIENCE)?;
        let (held, memory_max) = usage::with_peak(id, all_hold_it(args.actors, &mut receiver)).await;
        let held = held?;
        ensure!(held.iter().all(|held| held.bytes == size_bytes), "a subscriber received a wrong number of bytes");
        let fan_out = FanOut {
            size_bytes,
            bytes_sent: held.iter().map(|held| held.bytes).sum(),
            held_seconds: held_seconds(begun, &held),
            publisher_cpu_seconds: usage::cpu_since(id, cpu),
            clients_cpu_seconds: usage::cpu_since(us, clients_cpu),
            publisher_memory: (memory, memory_max),
        };
        add(report, &tower_name(network), &fan_out);
    }
    subscribers.shutdown().await;
    Ok(())
}

const WEIGHTS: &str = "a version to every subscriber";
const ON_PAPER: &str = "a version over the publisher's link, computed";
/// Links between machines, in bits per second.
const LINKS: [(&str, f64); 3] = [("1 Gbit/s", 1e9), ("10 Gbit/s", 10e9), ("25 Gbit/s", 25e9)];
/// Threads of the publisher that serve sockets.
const PUBLISHER_THREADS: f64 = 2.0;

/// Measured delivery of one weights version to every subscriber.
#[derive(Debug, Clone, PartialEq)]
struct FanOut {
    /// Bytes of the version.
    size_bytes: u64,
    /// Bytes received by all subscribers.
    bytes_sent: u64,
    /// Seconds from the publish request until the first subscriber, half of the subscribers, and all held the version.
    held_seconds: [f64; 3],
    /// CPU seconds of the publisher.
    publisher_cpu_seconds: Option<f64>,
    /// CPU seconds of this process, which runs all subscribers.
    clients_cpu_seconds: Option<f64>,
    /// Resident memory of the publisher in bytes: before the delivery, and the observed maximum during delivery.
    publisher_memory: (Option<u64>, Option<u64>),
}

impl FanOut {
    /// Computes the seconds to send a version to every subscriber over a link, which is the minimum interval between
    /// versions. Also names the bottleneck: the link, or the threads that serve sockets.
    fn delivery(&self, bits_per_second: f64) -> (f64, &'static str) {
        let link_seconds = 8.0 * self.bytes_sent as f64 / bits_per_second;
        match self.publisher_cpu_seconds.map(|seconds| seconds / PUBLISHER_THREADS) {
            Some(seconds) if seconds > link_seconds => (seconds, "the publisher's CPU (two threads for sockets)"),
            _ => (link_seconds, "the publisher's link"),
        }
    }
}

/// Adds the delivery of a version, and the computed delivery time over links between machines.
fn add(report: &mut Report, network: &str, fan_out: &FanOut) {
    let us = |seconds: f64| 1e6 * seconds;
    let known = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    let [first, half, all] = fan_out.held_seconds;
    report
        .at(WEIGHTS, &[("network", &network)])
        .value("size", Unit::Bytes, fan_out.size_bytes as f64)
        .value("sent", Unit::Bytes, fan_out.bytes_sent as f64)
        .value("first holds it", Unit::Microseconds, us(first))
        .value("half", Unit::Microseconds, us(half))
        .value("all", Unit::Microseconds, us(all))
        .value("CPU of publisher", Unit::Microseconds, fan_out.publisher_cpu_seconds.map(us))
        .value("CPU of subscribers", Unit::Microseconds, fan_out.clients_cpu_seconds.map(us))
        .value("memory of publisher before", Unit::Bytes, known(fan_out.publisher_memory.0))
        .value("at most", Unit::Bytes, known(fan_out.publisher_memory.1));
    for (link, bits_per_second) in LINKS {
        let (seconds, limit) = fan_out.delivery(bits_per_second);
        let cell = report.at(ON_PAPER, &[("network", &network), ("link", &link), ("limit", &limit)]);
        cell.value("time", Unit::Microseconds, us(seconds));
    }
}

/// Waits until `count` subscribers hold the version.
async fn all_hold_it(count: usize, receiver: &mut mpsc::Receiver<anyhow::Result<Held>>) -> anyhow::Result<Vec<Held>> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        let next = tokio::time::timeout_at(deadline, receiver.recv()).await;
        let next = next.with_context(|| format!("only {} of {count} subscribers have the version", held.len()))?;
        held.push(next.context("no subscriber is left")?.context("follow the publisher")?);
    }
    held.sort_by_key(|held| held.at);
    Ok(held)
}

/// A subscriber on the wire, over a separate connection, which keeps no bytes: a thousand copies of a large network
/// would not fit in the memory of one machine.
struct Subscription {
    client: WeightsClient<transport::Channel>,
    manifests: Streaming<v1::Manifest>,
}

impl Subscription {
    async fn open(endpoint: &str, name: String) -> anyhow::Result<Self> {
        let client = WeightsClient::new(transport::channel(endpoint)?);
        let mut client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);
        let manifests = client.subscribe(v1::SubscribeRequest { name }).await.context("subscribe")?.into_inner();
        Ok(Self { client, manifests })
    }

    /// Fetches every version, until one fails or the receiver is dropped.
    async fn follow(mut self, sender: mpsc::Sender<anyhow::Result<Held>>) {
        let mut is_last = false;
        while !is_last {
            let held = self.fetch().await;
            is_last = held.is_err();
            is_last |= sender.send(held).await.is_err();
        }
    }

    /// Waits for the next version, and receives all bytes.
    async fn fetch(&mut self) -> anyhow::Result<Held> {
        let manifest = self.manifests.message().await.context("receive a manifest")?;
        let v1::Manifest { version, digest, .. } = manifest.context("the publisher closed the subscription")?;
        let request = v1::FetchRequest { version, digest, offset: 0 };
        let mut chunks = self.client.fetch(request).await.context("fetch a version")?.into_inner();
        let mut bytes = 0;
        while let Some(chunk) = chunks.message().await.context("read a chunk")? {
            bytes += chunk.data.len() as u64;
        }
        Ok(Held { at: Instant::now(), bytes })
    }
}

/// Returns the seconds from `begun` until the first subscriber, half of the subscribers, and all held the version; NaN
/// without subscribers. `held` is ascending.
fn held_seconds(begun: Instant, held: &[Held]) -> [f64; 3] {
    let seconds = |held: &Held| held.at.saturating_duration_since(begun).as_secs_f64();
    [1, held.len().div_ceil(2), held.len()].map(|count| held.get(count.saturating_sub(1)).map_or(f64::NAN, seconds))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::{args, parsed};

    /// Returns a report with made-up numbers.
    fn report(line: &str) -> Report {
        let mut report = empty_report(&args(line));
        let memory = [Some(110_000_000), None];
        add_connections(&mut report, "publisher of weights", 1_000, Duration::from_millis(250), memory);
        add(&mut report, "6x64", &fan_out());
        report
    }

    fn fan_out() -> FanOut {
        FanOut {
            size_bytes: 2_000_000,
            bytes_sent: 2_000_000_000,
            held_seconds: [0.1, 1.0, 2.0],
            publisher_cpu_seconds: Some(1.0),
            clients_cpu_seconds: Some(1.5),
            publisher_memory: (Some(110_000_000), Some(400_000_000)),
        }
    }

    #[test]
    fn delivery_is_limited_by_a_slow_link_or_else_by_the_publishers_cpu() {
        // 2 GB are 16 Gbit; two threads take half a second.
        assert_eq!(fan_out().delivery(1e9), (16.0, "the publisher's link"));
        assert_eq!(fan_out().delivery(64e9), (0.5, "the publisher's CPU (two threads for sockets)"));
        let unknown = FanOut { publisher_cpu_seconds: None, ..fan_out() };
        assert_eq!(unknown.delivery(64e9).1, "the publisher's link");
    }

    #[test]
    fn the_tables_list_every_measurement_and_show_unknown_values_as_a_dash() {
        let text = report("").markdown();
        for row in [
            "1000 actors from one process: ",
            "the publisher sends to as many subscribers at once as a learner; seed 1\n",
            "| publisher of weights | 1000 | 250 ms | 110 MB | – | – |",
            "| 6x64 | 2.00 MB | 2.00 GB | 100 ms | 1.00 s | 2.00 s | 1.00 s | 1.50 s | 110 MB | 400 MB |",
            "| 6x64 | 1 Gbit/s | the publisher's link | 16.0 s |",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
    }

    #[test]
    fn loads_of_different_actors_are_not_compared() {
        let mut now = report("");
        now.compare("earlier.json".as_ref(), &report(""));
        assert!(now.rows.iter().filter(|row| row.value > Some(0.0)).all(|row| row.change.is_some()), "{now:?}");
        now.compare("earlier.json".as_ref(), &report("--actors 5"));
        assert!(now.rows.iter().all(|row| row.change.is_none()), "{now:?}");
    }

    #[test]
    fn options_that_make_no_sense_are_named_before_anything_starts() {
        let error = |line: &str| format!("{:#}", crate::tests::run("fleet", line, &mut Vec::new()).unwrap_err());
        assert!(error("--actors 0").contains("--actors"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        let network = parsed::<Args>(["--networks", "6-64"]).unwrap_err().to_string();
        assert!(network.contains("BLOCKSxCHANNELS"), "{network}");
    }

    #[test]
    fn delivery_times_are_reported_for_the_first_half_and_all_of_the_subscribers() {
        let begun = Instant::now();
        let held = |milliseconds| Held { at: begun + Duration::from_millis(milliseconds), bytes: 1 };
        let held: Vec<Held> = (1..=100).map(held).collect();
        assert_eq!(held_seconds(begun, &held), [0.001, 0.05, 0.1]);
        assert_eq!(held_seconds(begun, &held[..1]), [0.001; 3]);
        assert!(held_seconds(begun, &[]).iter().all(|seconds| seconds.is_nan()));
    }
}
