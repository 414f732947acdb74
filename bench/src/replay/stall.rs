//! Measures a writer and a sampler next to a stalled sampler, which grants the maximum credit and reads nothing.

use std::time::Duration;

use anyhow::Context;
use futures::StreamExt as _;
use proto::limits::{CREDIT_BATCHES_MAX, SAMPLES_PER_BATCH_MAX};
use proto::replay::v1;
use proto::replay::v1::sample_request::Message;

use super::{Bench, IN_FLIGHT, INSERTS, SAMPLES, load, start};
use crate::report::{Report, Unit};
use crate::usage;

/// Positions in the table, which is full: any growth of memory is then due to the stalled sampler.
const POSITIONS: u64 = 200_000;

/// Measures the same load twice: without and with a stalled sampler.
///
/// # Errors
/// A server cannot start or does not respond.
pub(super) async fn measure(bench: Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let Bench { args, folder, games, .. } = bench;
    let (mut args, seconds) = (args.clone(), args.stall_seconds);
    args.sets.extend(["capacity_items", "window_items_min"].map(|key| format!("replay.{key}={POSITIONS}")));
    let server = start(&args, &folder.join("stall")).await?;
    load::fill(&server.endpoint, games, POSITIONS).await?;
    let time = Duration::from_secs_f64(seconds);
    let load = async || -> anyhow::Result<(f64, f64)> {
        let inserting = load::insert(&server.endpoint, games, (1, IN_FLIGHT), time);
        let (inserted, sampled) = tokio::join!(inserting, load::sample(&server.endpoint, time));
        Ok((inserted?.speed, sampled.speed))
    };
    let memory = || usage::memory(server.id());
    let before = (load().await?, memory());
    let stalled = stall(&server.endpoint).await?;
    let beside = (load().await?, memory());
    drop(stalled);
    server.stop().await?;
    report.note(format!("beside a stalled sampler: {seconds} s each; memory is that of the server"));
    for (samplers, ((inserts, samples), memory)) in [before, beside].into_iter().enumerate() {
        report
            .at("beside a stalled sampler", &[("stalled samplers", &samplers)])
            .value(INSERTS, Unit::PerSecond, inserts)
            .value(SAMPLES, Unit::PerSecond, samples)
            .value("memory", Unit::Bytes, memory.map(|bytes| bytes as f64));
    }
    Ok(())
}

/// Opens a sample stream with the maximum credit for the largest batches, and never reads them. The stream stays open
/// until the returned value is dropped.
async fn stall(endpoint: &str) -> anyhow::Result<impl Sized + use<>> {
    let game = "connect_four".to_owned();
    let batch_size = u32::try_from(SAMPLES_PER_BATCH_MAX)?;
    let open = Message::Open(v1::Open { game, batch_size, ..v1::Open::default() });
    let credit = Message::Credit(v1::Credit { batches: CREDIT_BATCHES_MAX, newest_weights_version: 0 });
    let requests = [open, credit].map(|message| v1::SampleRequest { message: Some(message) });
    let requests = futures::stream::iter(requests).chain(futures::stream::pending());
    let mut client = proto::replay::client(transport::channel(endpoint)?);
    client.sample(requests).await.context("open the stalled stream")
}
