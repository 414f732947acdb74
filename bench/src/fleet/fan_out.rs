use std::time::Instant;

use anyhow::{Context, anyhow, bail, ensure};
use proto::weights::v1;
use proto::weights::v1::weights_client::WeightsClient;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use transport::limits::MESSAGE_BYTES_MAX;

use super::load::{Args, PATIENCE, add_connections, known};
use super::publisher::{self, tower_name};
use crate::report::{Report, Unit};
use crate::script::Count;
use crate::usage;

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
pub(super) async fn measure(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let (mut publisher, endpoint) = publisher::start(&args.networks, args.fetches, args.seed)?;
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
pub(super) struct FanOut {
    /// Bytes of the version.
    pub(super) size_bytes: u64,
    /// Bytes received by all subscribers.
    pub(super) bytes_sent: u64,
    /// Seconds from the publish request until the first subscriber, half of the subscribers, and all held the version.
    pub(super) held_seconds: [f64; 3],
    /// CPU seconds of the publisher.
    pub(super) publisher_cpu_seconds: Option<f64>,
    /// CPU seconds of this process, which runs all subscribers.
    pub(super) clients_cpu_seconds: Option<f64>,
    /// Resident memory of the publisher in bytes: before the delivery, and the observed maximum during delivery.
    pub(super) publisher_memory: (Option<u64>, Option<u64>),
}

impl FanOut {
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
