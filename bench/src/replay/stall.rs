//! A sampler that asks for all it may have and then reads nothing, beside one that draws and a writer that inserts.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt as _;
use proto::limits::{CREDIT_BATCHES_MAX, SAMPLES_PER_BATCH_MAX};
use proto::replay::v1;
use proto::replay::v1::sample_request::Message;

use super::Args;
use super::games::Games;
use super::load;
use super::report::StallReport;
use super::server::Server;
use crate::usage;

/// The table is full: what memory gains meanwhile, it gains for the sampler that stalls.
const POSITIONS: u64 = 200_000;

/// The same load twice, `seconds` each: without a sampler that stalls, and with one.
///
/// # Errors
/// A server that cannot start or does not answer.
pub(super) async fn measure(args: &Args, folder: &Path, games: &Games, seconds: f64) -> anyhow::Result<StallReport> {
    let mut args = args.clone();
    args.sets.extend(["capacity_items", "window_items_min"].map(|key| format!("replay.{key}={POSITIONS}")));
    let server = Server::start(&args, &folder.join("stall")).await?;
    load::fill(&server, games, POSITIONS).await?;
    let time = Duration::from_secs_f64(seconds);
    let load = async || -> anyhow::Result<(f64, f64)> {
        let inserting = load::insert(&server, games, 1, args.in_flight, time);
        let (inserted, sampled) = tokio::join!(inserting, load::sample(&server, &args, time));
        Ok((inserted?.speed, sampled.speed))
    };
    let (inserts_per_second, samples_per_second) = load().await?;
    let memory_bytes = memory();
    let stalled = stall(&server).await?;
    let (inserts_beside, samples_beside) = load().await?;
    let memory_bytes_beside = memory();
    drop(stalled);
    drop(server.stop().await?);
    Ok(StallReport {
        seconds,
        inserts_per_second,
        inserts_per_second_beside: inserts_beside,
        samples_per_second,
        samples_per_second_beside: samples_beside,
        memory_bytes,
        memory_bytes_beside,
    })
}

/// As much credit as one stream may have, for the largest batches; what comes is never read. The stream lives as long as
/// what is returned.
async fn stall(server: &Server) -> anyhow::Result<impl Sized + use<>> {
    let game = "connect_four".to_owned();
    let batch_size = u32::try_from(SAMPLES_PER_BATCH_MAX)?;
    let open = Message::Open(v1::Open { game, batch_size, ..v1::Open::default() });
    let credit = Message::Credit(v1::Credit { batches: CREDIT_BATCHES_MAX, newest_weights_version: 0 });
    let requests = [open, credit].map(|message| v1::SampleRequest { message: Some(message) });
    let requests = futures::stream::iter(requests).chain(futures::stream::pending());
    let mut client = proto::replay::client(proto::channel(&server.endpoint)?);
    client.sample(requests).await.context("open the stream that stalls")
}

/// Of this process, server and clients.
fn memory() -> Option<u64> {
    usage::of(std::process::id())?.memory_bytes
}
