use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use proto::limits::MESSAGE_BYTES_MAX;
use proto::weights::v1;
use proto::weights::v1::weights_client::WeightsClient;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::load::{LoadArgs, PATIENCE, cpu_seconds, cpu_since, memory};
use super::publisher::Publisher;
use super::speeds::{FanOutSpeeds, LoadSpeeds};

/// The interval between two readings of the publisher's memory.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);
/// Shares of the subscribers whose times are reported, beside the first one.
const SHARES: [f64; 6] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

/// A subscriber holds a version whole.
#[derive(Debug, Clone, Copy)]
struct Held {
    at: Instant,
    bytes: u64,
}

/// Every actor subscribes; then every network is published once.
///
/// # Errors
/// A publisher that ends, a subscriber that never gets a version.
pub(super) async fn measure(args: &LoadArgs, mut publisher: Publisher, report: &mut LoadSpeeds) -> anyhow::Result<()> {
    let id = Some(publisher.id());
    report.publisher_memory_bytes = memory(id);
    let (told, mut hear) = mpsc::channel(args.actors.max(1));
    let (opened, mut open) = mpsc::channel(args.actors.max(1));
    let begun = Instant::now();
    let mut subscribers = JoinSet::new();
    for actor in 0..args.actors {
        let name = format!("actor-{actor}");
        subscribers.spawn(follow(publisher.endpoint.clone(), name, opened.clone(), told.clone()));
    }
    for _ in 0..args.actors {
        tokio::select! {
            opened = open.recv() => opened.context("every subscriber is gone")?,
            ended = subscribers.join_next() => return Err(why(ended)),
            () = tokio::time::sleep(PATIENCE) => bail!("not everyone is subscribed after {PATIENCE:?}"),
        }
    }
    report.subscribed_seconds = begun.elapsed().as_secs_f64();
    report.publisher_memory_bytes_subscribed = memory(id);
    for network in &args.networks {
        let (before, us) = (memory(id), Some(std::process::id()));
        let (cpu, clients_cpu) = (cpu_seconds(id), cpu_seconds(us));
        let begun = Instant::now();
        publisher.publish()?;
        let (held, memory_max) = all_hold_it(args.actors, id, &mut hear, &mut subscribers).await?;
        let size_bytes = publisher.published_bytes()?;
        ensure!(held.iter().all(|held| held.bytes == size_bytes), "a subscriber got another number of bytes");
        report.fan_outs.push(FanOutSpeeds {
            network: network.to_string(),
            size_bytes,
            bytes_sent: held.iter().map(|held| held.bytes).sum(),
            held: quantiles(begun, &held),
            publisher_cpu_seconds: cpu_since(id, cpu),
            clients_cpu_seconds: cpu_since(us, clients_cpu),
            publisher_memory_bytes: before,
            publisher_memory_bytes_max: memory_max,
        });
    }
    subscribers.shutdown().await;
    Ok(())
}

/// Waits until so many hold the version, and watches the memory of process `id`.
async fn all_hold_it(
    count: usize,
    id: Option<u32>,
    hear: &mut mpsc::Receiver<Held>,
    subscribers: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<(Vec<Held>, Option<u64>)> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut look = tokio::time::interval(MEMORY_INTERVAL);
    let (mut held, mut memory_max) = (Vec::with_capacity(count), None);
    while held.len() < count {
        tokio::select! {
            told = hear.recv() => held.push(told.context("every subscriber is gone")?),
            _ = look.tick() => memory_max = memory_max.max(memory(id)),
            ended = subscribers.join_next() => return Err(why(ended)),
            () = tokio::time::sleep_until(deadline) => {
                bail!("{} of {count} hold the version after {PATIENCE:?}", held.len());
            }
        }
    }
    held.sort_by_key(|held| held.at);
    Ok((held, memory_max))
}

/// Returns the reason why a subscriber ended, which none does by itself.
fn why(ended: Option<Result<anyhow::Result<()>, JoinError>>) -> anyhow::Error {
    let error = match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(error)) => error.into(),
        Some(Ok(Ok(()))) | None => anyhow!("the publisher closed the subscription"),
    };
    error.context("a subscriber ended")
}

/// Acts as a subscriber on the wire, over a connection of its own, without keeping the bytes: a thousand of them would
/// not fit one machine with a large network.
async fn follow(
    endpoint: String,
    name: String,
    opened: mpsc::Sender<()>,
    told: mpsc::Sender<Held>,
) -> anyhow::Result<()> {
    let mut client = WeightsClient::new(proto::channel(&endpoint)?).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let mut manifests = client.subscribe(v1::SubscribeRequest { name }).await.context("subscribe")?.into_inner();
    opened.send(()).await?;
    while let Some(manifest) = manifests.message().await.context("hear of a version")? {
        let request = v1::FetchRequest { version: manifest.version, digest: manifest.digest, offset: 0 };
        let mut chunks = client.fetch(request).await.context("fetch a version")?.into_inner();
        let mut bytes = 0;
        while let Some(chunk) = chunks.message().await.context("read a chunk")? {
            bytes += chunk.data.len() as u64;
        }
        told.send(Held { at: Instant::now(), bytes }).await?;
    }
    Ok(())
}

/// Until the first held it, and until these shares did, in seconds from `begun` on. `held` is ascending.
fn quantiles(begun: Instant, held: &[Held]) -> Vec<(usize, f64)> {
    let counts = SHARES.iter().map(|share| (held.len() as f64 * share).ceil() as usize);
    let mut counts: Vec<usize> = std::iter::once(1).chain(counts).filter(|&count| count > 0).collect();
    counts.dedup();
    let seconds = |count: usize| Some((count, held.get(count - 1)?.at.saturating_duration_since(begun).as_secs_f64()));
    counts.into_iter().filter_map(seconds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_for_the_first_and_for_shares_of_the_subscribers() {
        let begun = Instant::now();
        let held = |milliseconds| Held { at: begun + Duration::from_millis(milliseconds), bytes: 1 };
        let held: Vec<Held> = (1..=100).map(held).collect();
        let told = quantiles(begun, &held);
        assert_eq!(told, [(1, 0.001), (10, 0.01), (25, 0.025), (50, 0.05), (75, 0.075), (90, 0.09), (100, 0.1)]);
        assert_eq!(quantiles(begun, &held[..1]), [(1, 0.001)]);
        assert_eq!(quantiles(begun, &[]), []);
    }
}
