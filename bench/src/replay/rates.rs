//! Measures the connections of many writers, and inserts at fixed rates, as in a fleet.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::load::{self, Client, LOOK_INTERVAL, PATIENCE};
use super::{Bench, INSERTS, start};
use crate::report::{Report, Unit};
use crate::usage;

/// Connects `writers` writers, then inserts at every rate. Each writer waits for the acknowledgement of each insert.
///
/// # Errors
/// A server cannot start or does not respond.
pub(super) async fn measure(bench: Bench<'_>, writers: usize, report: &mut Report) -> anyhow::Result<()> {
    let Bench { args, folder, games, time } = bench;
    let server = start(args, &folder.join(format!("writers-{writers}"))).await?;
    let (without, begun) = (usage::memory(server.id()), Instant::now());
    let mut clients = Client::start(&server.endpoint, writers, 1).await?;
    while clients.iter().any(Client::is_away) {
        ensure!(begun.elapsed() < PATIENCE, "not all insert streams opened within {PATIENCE:?}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    add_connections(report, "replay-server", writers, begun.elapsed(), [without, usage::memory(server.id())]);
    for rate in &args.rates {
        let cpu = [server.id(), Some(std::process::id())].map(|id| (id, usage::cpu_seconds(id)));
        let (wanted, begun, mut turns) = (rate * writers as f64, Instant::now(), Vec::new());
        for _ in 0..args.turns.repeats {
            let (loaded, back) = load::insert_with(clients, games, wanted, time).await?;
            clients = back;
            turns.push(loaded);
        }
        // Warm-ups have the same load.
        let seconds = begun.elapsed().as_secs_f64();
        let [server_cores, own_cores] = cpu.map(|(id, cpu)| usage::cpu_since(id, cpu).map(|cpu| cpu / seconds));
        let mut loaded = args.turns.turn.of(turns, |loaded| loaded.speed).unwrap_or_default();
        report
            .at("by rate of each writer", &[("writers", &writers), ("wanted per writer and second", rate)])
            .value("wanted/s", Unit::PerSecond, wanted)
            .value(INSERTS, Unit::PerSecond, loaded.speed)
            .latency("insert", &mut loaded.took)
            .value("cores of replay server", Unit::Cores, server_cores)
            .value("cores of all writers", Unit::Cores, own_cores)
            .value("memory of replay server", Unit::Bytes, usage::memory(server.id()).map(|bytes| bytes as f64))
            .value("trajectories", Unit::BytesPerSecond, games.mean_wire_bytes() * loaded.speed);
    }
    for client in clients {
        client.close().await?;
    }
    server.stop().await
}

/// Adds the time until all connections to a server were open, and the server memory before and after.
pub(crate) fn add_connections(report: &mut Report, to: &str, count: usize, time: Duration, memory: [Option<u64>; 2]) {
    let [before, after] = memory.map(|bytes| bytes.map(|bytes| bytes as f64));
    let grown = before.zip(after).map(|(before, after)| (after - before).max(0.0));
    report
        .at("connections", &[("to", &to), ("connections", &count)])
        .value("all open after", Unit::Microseconds, 1e6 * time.as_secs_f64())
        .value("memory without", Unit::Bytes, before)
        .value("memory with all", Unit::Bytes, after)
        .value("per connection", Unit::Bytes, grown.map(|grown| grown / count as f64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_computed_per_connection() {
        let of = |memory, count| {
            let mut report = Report::new("replay", "Connections");
            add_connections(&mut report, "replay-server", count, Duration::from_millis(500), memory);
            report.value("connections", &[("to", "replay-server")], "per connection")
        };
        assert_eq!(of([Some(10_000_000), Some(60_000_000)], 1_000), Some(50_000.0));
        assert_eq!(of([Some(5), Some(3)], 1), Some(0.0), "memory was given back");
        assert_eq!([of([Some(5), Some(6)], 0), of([None, Some(6)], 1)], [None, None]);
    }
}
