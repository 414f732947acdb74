use std::time::Instant;

use anyhow::{Context, anyhow, bail, ensure};
use proto::weights::v1;
use proto::weights::v1::weights_client::WeightsClient;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use transport::limits::MESSAGE_BYTES_MAX;

use super::load::{LoadArgs, PATIENCE, add_connections, known};
use super::publisher::{self, tower_name};
use crate::report::{Report, Unit};
use crate::script::Count;
use crate::usage;

/// Shares of the subscribers with reported times, in addition to the first subscriber.
const SHARES: [f64; 6] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

/// Time at which a subscriber held a complete version, and the received bytes.
#[derive(Debug, Clone, Copy)]
struct Held {
    at: Instant,
    bytes: u64,
}

/// Subscribes every actor, then publishes every network once.
///
/// # Errors
/// A publisher exits, or a subscriber never receives a version.
pub(super) async fn measure(args: &LoadArgs, seed: u64, report: &mut Report) -> anyhow::Result<()> {
    let (mut publisher, endpoint) = publisher::start(&args.networks, args.fetches, seed)?;
    let id = Some(publisher.id());
    let without = usage::memory(id);
    let (held_sender, mut held_receiver) = mpsc::channel(args.actors.max(1));
    let (opened, mut open) = mpsc::channel(args.actors.max(1));
    let begun = Instant::now();
    let mut subscribers = JoinSet::new();
    for actor in 0..args.actors {
        let name = format!("actor-{actor}");
        subscribers.spawn(follow(endpoint.clone(), name, opened.clone(), held_sender.clone()));
        // One after the other: a server accepts few new connections from one address at a time.
        tokio::select! {
            opened = open.recv() => opened.context("no subscriber is left")?,
            ended = subscribers.join_next() => return Err(end_reason(ended)),
            () = tokio::time::sleep(PATIENCE) => bail!("not all subscribers connected within {PATIENCE:?}"),
        }
    }
    let subscribed = begun.elapsed();
    add_connections(report, "publisher of weights", args.actors, subscribed, (without, usage::memory(id)));
    for &network in &args.networks {
        let (memory, us) = (usage::memory(id), Some(std::process::id()));
        let (cpu, clients_cpu) = (usage::cpu_seconds(id), usage::cpu_seconds(us));
        let begun = Instant::now();
        // The publisher responds once the version exists, before subscribers have it.
        let Count { count: size_bytes } = publisher.ask(json!({}), PATIENCE)?;
        let all_hold_it = all_hold_it(args.actors, &mut held_receiver, &mut subscribers);
        let (held, memory_max) = usage::with_peak(id, all_hold_it).await;
        let held = held?;
        ensure!(held.iter().all(|held| held.bytes == size_bytes), "a subscriber received a wrong number of bytes");
        let fan_out = FanOut {
            size_bytes,
            bytes_sent: held.iter().map(|held| held.bytes).sum(),
            held: quantiles(begun, &held),
            publisher_cpu_seconds: usage::cpu_since(id, cpu),
            clients_cpu_seconds: usage::cpu_since(us, clients_cpu),
            publisher_memory: (memory, memory_max),
        };
        add(report, &tower_name(network), &fan_out);
    }
    conclude(report, args.actors);
    subscribers.shutdown().await;
    Ok(())
}

const WEIGHTS: &str = "a version to every subscriber";
const HELD: &str = "subscribers that hold the version";
const ON_PAPER: &str = "a version over the publisher's link, computed";
/// Links between machines, in bits per second.
const LINKS: [(&str, f64); 3] = [("1 Gbit/s", 1e9), ("10 Gbit/s", 10e9), ("25 Gbit/s", 25e9)];
/// Threads of the publisher that serve sockets.
const PUBLISHER_THREADS: f64 = 2.0;
/// Default of `learner.publish_interval_seconds`.
const PUBLISH_INTERVAL_SECONDS: f64 = 10.0;

/// Measured delivery of one weights version to every subscriber.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FanOut {
    /// Bytes of the version.
    pub(super) size_bytes: u64,
    /// Bytes received by all subscribers.
    pub(super) bytes_sent: u64,
    /// Delivery times, ascending: a number of subscribers, and the seconds from the publish request until that many
    /// held the version. Includes entries for the first subscriber and for all subscribers.
    pub(super) held: Vec<(usize, f64)>,
    /// CPU seconds of the publisher.
    pub(super) publisher_cpu_seconds: Option<f64>,
    /// CPU seconds of this process, which runs all subscribers.
    pub(super) clients_cpu_seconds: Option<f64>,
    /// Resident memory of the publisher in bytes: before the delivery, and the observed maximum during delivery.
    pub(super) publisher_memory: (Option<u64>, Option<u64>),
}

impl FanOut {
    /// Returns the seconds until this share of the subscribers, and at least the first, held the version.
    pub(super) fn seconds(&self, share: f64) -> f64 {
        let all = self.held.last().map_or(0, |(count, _)| *count);
        let held = self.held.iter().find(|(count, _)| *count as f64 >= share * all as f64);
        held.map_or(f64::NAN, |(_, seconds)| *seconds)
    }

    /// Computes the seconds to send a version to every subscriber over a link, which is the minimum interval between
    /// versions. Also names the bottleneck: the link, or the threads that serve sockets.
    pub(super) fn delivery(&self, bits_per_second: f64) -> (f64, &'static str) {
        let link_seconds = 8.0 * self.bytes_sent as f64 / bits_per_second;
        match self.publisher_cpu_seconds.map(|seconds| seconds / PUBLISHER_THREADS) {
            Some(seconds) if seconds > link_seconds => (seconds, "the publisher's CPU (two threads for sockets)"),
            _ => (link_seconds, "the publisher's link"),
        }
    }
}

/// Adds the delivery of a version, and the computed delivery time over links between machines.
pub(super) fn add(report: &mut Report, network: &str, fan_out: &FanOut) {
    let us = |seconds: f64| 1e6 * seconds;
    let sent = fan_out.bytes_sent as f64;
    let cpu_seconds = fan_out.publisher_cpu_seconds;
    report
        .at(WEIGHTS, &[("network", &network)])
        .value("size", Unit::Bytes, fan_out.size_bytes as f64)
        .value("sent", Unit::Bytes, sent)
        .value("first holds it", Unit::Microseconds, us(fan_out.seconds(0.0)))
        .value("half", Unit::Microseconds, us(fan_out.seconds(0.5)))
        .value("all", Unit::Microseconds, us(fan_out.seconds(1.0)))
        .value("throughput", Unit::BytesPerSecond, sent / fan_out.seconds(1.0))
        .value("CPU of publisher", Unit::Microseconds, cpu_seconds.map(us))
        .value("CPU of subscribers", Unit::Microseconds, fan_out.clients_cpu_seconds.map(us))
        .value("sent per CPU second", Unit::Bytes, cpu_seconds.map(|seconds| sent / seconds))
        .value("memory of publisher before", Unit::Bytes, known(fan_out.publisher_memory.0))
        .value("at most", Unit::Bytes, known(fan_out.publisher_memory.1));
    for (subscribers, seconds) in &fan_out.held {
        let cell = report.at(HELD, &[("network", &network), ("subscribers", subscribers)]);
        cell.value("time", Unit::Microseconds, us(*seconds));
    }
    for (link, bits_per_second) in LINKS {
        let (seconds, limit) = fan_out.delivery(bits_per_second);
        let cell = report.at(ON_PAPER, &[("network", &network), ("link", &link), ("limit", &limit)]);
        cell.value("time", Unit::Microseconds, us(seconds));
    }
}

/// Adds the conclusion from all versions, and the plot.
pub(super) fn conclude(report: &mut Report, actors: usize) {
    report.finding(format!(
        "No shorter interval of publishing than those below reaches all {actors} subscribers \
         (learner.publish_interval_seconds is {PUBLISH_INTERVAL_SECONDS} unless set)."
    ));
    report.plot(HELD, "time", Some("subscribers"), None);
}

/// Waits until `count` subscribers hold the version.
async fn all_hold_it(
    count: usize,
    held_receiver: &mut mpsc::Receiver<Held>,
    subscribers: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<Vec<Held>> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        tokio::select! {
            next = held_receiver.recv() => held.push(next.context("no subscriber is left")?),
            ended = subscribers.join_next() => return Err(end_reason(ended)),
            () = tokio::time::sleep_until(deadline) => {
                bail!("only {} of {count} subscribers have the version after {PATIENCE:?}", held.len());
            }
        }
    }
    held.sort_by_key(|held| held.at);
    Ok(held)
}

/// Returns the reason why a subscriber stopped; subscribers never stop by themselves.
fn end_reason(ended: Option<Result<anyhow::Result<()>, JoinError>>) -> anyhow::Error {
    let error = match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(error)) => error.into(),
        Some(Ok(Ok(()))) | None => anyhow!("the publisher closed the subscription"),
    };
    error.context("follow the publisher")
}

/// Acts as a subscriber on the wire, over a separate connection, without keeping the bytes: a thousand copies of a
/// large network would not fit in the memory of one machine.
async fn follow(
    endpoint: String,
    name: String,
    opened: mpsc::Sender<()>,
    held_sender: mpsc::Sender<Held>,
) -> anyhow::Result<()> {
    let mut client = WeightsClient::new(transport::channel(&endpoint)?).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let mut manifests = client.subscribe(v1::SubscribeRequest { name }).await.context("subscribe")?.into_inner();
    opened.send(()).await?;
    while let Some(manifest) = manifests.message().await.context("receive a manifest")? {
        let request = v1::FetchRequest { version: manifest.version, digest: manifest.digest, offset: 0 };
        let mut chunks = client.fetch(request).await.context("fetch a version")?.into_inner();
        let mut bytes = 0;
        while let Some(chunk) = chunks.message().await.context("read a chunk")? {
            bytes += chunk.data.len() as u64;
        }
        held_sender.send(Held { at: Instant::now(), bytes }).await?;
    }
    Ok(())
}

/// Computes the seconds from `begun` until the first subscriber, and each share in [`SHARES`], held the version;
/// returns them with the number of subscribers. `held` is ascending.
fn quantiles(begun: Instant, held: &[Held]) -> Vec<(usize, f64)> {
    let counts = SHARES.iter().map(|share| (held.len() as f64 * share).ceil() as usize);
    let mut counts: Vec<usize> = std::iter::once(1).chain(counts).filter(|&count| count > 0).collect();
    counts.dedup();
    let seconds = |count: usize| Some((count, held.get(count - 1)?.at.saturating_duration_since(begun).as_secs_f64()));
    counts.into_iter().filter_map(seconds).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn delivery_times_are_reported_for_the_first_and_for_fixed_shares_of_the_subscribers() {
        let begun = Instant::now();
        let held = |milliseconds| Held { at: begun + Duration::from_millis(milliseconds), bytes: 1 };
        let held: Vec<Held> = (1..=100).map(held).collect();
        let all = quantiles(begun, &held);
        assert_eq!(all, [(1, 0.001), (10, 0.01), (25, 0.025), (50, 0.05), (75, 0.075), (90, 0.09), (100, 0.1)]);
        assert_eq!(quantiles(begun, &held[..1]), [(1, 0.001)]);
        assert_eq!(quantiles(begun, &[]), []);
    }
}
