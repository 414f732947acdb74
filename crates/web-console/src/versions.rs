//! The page of the weights versions that a run keeps, and their download.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use fleet::RunDirectory;
use maud::{Markup, html};
use run_metrics::words::{MISSING, date, unix_seconds};
use service::directory::if_exists;
use tokio_stream::StreamExt as _;
use tokio_util::io::ReaderStream;
use version_store::VersionStore;
use weights::{Manifest, WeightsVersion};

use crate::matches;
use crate::page::table;
use crate::problem::{Problem, blocking, place};
use crate::ratings::{Fit, IN_A_CLUSTER, unreadable};
use crate::site::Site;
use crate::visitors::Form;

/// Path of the page.
pub(crate) const PATH: &str = "/weights";
/// Names of the columns, without the file.
pub(crate) const COLUMNS: [&str; 6] = ["version", "step", "Elo", "written", "MB", "digest"];
/// Maximum number of versions on a page.
pub(crate) const ROWS_MAX: usize = 100;
/// Number of digits of a digest in the table.
const DIGEST_DIGITS: usize = 12;
/// Bytes of a file in memory per download.
const CHUNK_BYTES: usize = 64 << 10;

/// Renders a page of the list, the latest versions first. Blocks the thread: manifests and ratings are on a disk.
///
/// # Errors
/// The versions cannot be listed.
pub(crate) fn render(site: &Site, fields: &Form) -> anyhow::Result<Markup> {
    let kept = VersionStore::kept(site.settings.run.path())?;
    let count = kept.len().div_ceil(ROWS_MAX).max(1);
    let page = fields.text("page").parse::<usize>().unwrap_or(1).clamp(1, count);
    let fit = site.ratings.read();
    let mut columns: Vec<&str> = COLUMNS.into_iter().chain(["file", "play against"]).collect();
    if site.thinking.thinker.is_remote() {
        columns.pop();
    }
    let with_link = |(version, mut cells): (WeightsVersion, Vec<Markup>)| {
        let name = file_name(version);
        cells.push(html! { a href={ "/weights/" (name) } download { (name) } });
        let play = format!("play against {version}");
        cells.push(html! { a href={ "/play?version=" (version.0) } aria-label=(play) { "play" } });
        cells.truncate(columns.len());
        cells
    };
    let rows: Vec<Vec<Markup>> = listed(&kept, page, fit.as_deref().ok()).into_iter().map(with_link).collect();
    Ok(html! {
        h1 { "Weights of " (site.settings.run.name()) }
        (unreadable(&fit))
        @if rows.is_empty() {
            p.empty { "The run keeps no weights yet. The learner publishes them during training; " (IN_A_CLUSTER) }
        } @else {
            p.note { (kept.len()) " versions are kept. Elo is of one fit of all games, with the 95 % interval." }
            (table("Weights versions, the latest first", &columns, &rows))
            nav aria-label="Pages of versions" {
                @if page > 1 { a href={ "/weights?page=" (page - 1) } { "Later versions" } }
                span { "Page " (page) " of " (count) }
                @if page < count { a href={ "/weights?page=" (page + 1) } { "Earlier versions" } }
            }
        }
        p { a href=(matches::PAGE) { "Compare or match two versions" } }
    })
}

/// Returns the versions on a page of the list, the latest first, with the cells of [`COLUMNS`].
pub(crate) fn listed(
    kept: &BTreeMap<WeightsVersion, VersionStore>,
    page: usize,
    fit: Option<&Fit>,
) -> Vec<(WeightsVersion, Vec<Markup>)> {
    let mut rows = Vec::new();
    for (&version, store) in kept.iter().rev().skip(ROWS_MAX * (page - 1)).take(ROWS_MAX) {
        let path = store.manifest_path(version);
        let written = fs::metadata(&path).and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let [step, size, digest] = match store.manifest(version) {
            Ok(Manifest { training_step, size_bytes, digest, .. }) => {
                [training_step.to_string(), format!("{:.1}", size_bytes as f64 / 1e6), digest.to_string()]
            }
            // A training run has removed the version meanwhile.
            Err(_) if !path.exists() => continue,
            Err(_) => ["damaged manifest", MISSING, MISSING].map(str::to_owned),
        };
        let elo = fit.and_then(|fit| fit.elo(version)).unwrap_or_else(|| MISSING.to_owned());
        let cells = [version.to_string(), step, elo, date(unix_seconds(written)), size].map(|cell| html! { (cell) });
        let digest = html! { code title=(digest) { (digest.chars().take(DIGEST_DIGITS).collect::<String>()) } };
        rows.push((version, cells.into_iter().chain([digest]).collect()));
    }
    rows
}

/// Sends the weights of a version, in chunks. Downloads beyond a maximum number are refused.
pub(crate) async fn download(
    State(site): State<Arc<Site>>,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    let (place, shared) = (place(&site.downloads)?, Arc::clone(&site));
    let Some((name, file, size_bytes)) = blocking(move || open(&shared.settings.run, &name)).await? else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "The run does not keep this version."));
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, size_bytes.to_string()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{}-{name}\"", site.settings.run.name())),
    ];
    let chunks = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK_BYTES);
    let chunks = chunks.map(move |chunk| {
        let _held = &place;
        chunk
    });
    Ok((headers, Body::from_stream(chunks)))
}

/// Opens the weights of the kept version with this file name; returns the name, the file and the size in bytes, or
/// `None` if there is none. The path comes from the list of versions, never from the address.
fn open(run: &RunDirectory, name: &str) -> anyhow::Result<Option<(String, File, u64)>> {
    let kept = VersionStore::kept(run.path())?;
    let Some((version, store)) = kept.into_iter().find(|(version, _)| file_name(version) == name) else {
        return Ok(None);
    };
    let path = store.manifest_path(version).with_extension("safetensors");
    let failed = || format!("read {}", path.display());
    let Some(file) = if_exists(File::open(&path)).with_context(failed)? else { return Ok(None) };
    let size_bytes = file.metadata().with_context(failed)?.len();
    Ok(Some((file_name(version), file, size_bytes)))
}

fn file_name(version: impl Display) -> String {
    format!("{version}.safetensors")
}
