//! The web console: pages of a run for browsers, whether the run trains or has ended.
//!
//! A [`Console`] serves on one address. One thread (`reader`) polls the processes and reads the files of the run once a
//! second. It renders what all tabs see into a `snapshot`, from which `pages` responds to requests and `events` sends
//! changes. `overview`, `processes`, `strength_page`, `versions`, `replay`, `replay_game` and `configuration` render
//! the parts, and `page` the frame of a page. While a visitor watches, `games` listens to the actors of the run, and
//! `boards` draws the positions. `ratings` fits all rated games and `charts` draws the metrics, both once per change.
//! `replay_servers` sends requests to the replay servers of the run, `quarantine` those that change something.
//! `control` changes the session. `matches` starts and stops matches between kept versions, and `comparison` compares
//! two rated ones. `thinking` queues the searches for visitors, which a [`Thinker`] makes. [`report()`] renders the
//! parts of a run as one file, and `run_json` as JSON for programs. In a cluster, the reader finds the processes by
//! host names, and keeps the metrics in memory. Every request passes `visitors`, which checks host, origin, token and
//! scope; `connections` bounds memory and time. A `problem` is the reason why a request has no page.
//!
//! `play` holds the state of a visitor's game, which is in the address, `play_page` renders it, and `play_events`
//! searches; `records` opens game records.
//!
//! Losing the process loses nothing: the console writes no file. It reads metrics with `run-metrics` only. It has the
//! result of a search from `selfplay`, but neither searches nor loads networks. Start with [`Console::start`].

mod boards;
mod charts;
mod comparison;
mod configuration;
mod connections;
mod control;
mod events;
mod games;
mod matches;
mod overview;
mod page;
mod pages;
mod play;
mod play_events;
mod play_page;
mod problem;
mod processes;
mod quarantine;
mod ratings;
mod reader;
mod records;
mod replay;
mod replay_game;
mod replay_servers;
mod report;
mod run_json;
mod site;
mod snapshot;
mod strength_page;
mod thinker;
mod thinking;
mod versions;
mod visitors;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use fleet::RunDirectory;
use service::{Drain, SecuritySection, net};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use transport::security::{Scopes, Security, secret_word};

use connections::{Client, Connections};
pub use control::Change;
use matches::Matches;
use ratings::Ratings;
use reader::Reader;
use site::{DOWNLOADS_MAX, STREAMS_MAX, Site};
pub use thinker::{Opinion, Question, Thinker};
use thinking::{Returning, Thinking};

pub use report::report;

/// A run, and the conditions under which visitors see it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the run.
    pub run: RunDirectory,
    /// Address to listen on; port 0 picks a free port.
    pub listen: SocketAddr,
    /// Certificate and tokens. On loopback the default grants every scope to every visitor.
    pub security: SecuritySection,
    /// Scopes that the console grants at most.
    pub scopes: Scopes,
    /// Searches positions for visitors with the scope `infer`.
    pub thinker: Arc<dyn Thinker>,
    /// The program `zerofleet`, which plays matches.
    pub program: PathBuf,
    /// Receives each requested change as a [line](Change::of_line), if the supervisor of the run starts the console.
    pub supervisor: Option<Sender<String>>,
}

/// A console that serves until [`stop`](Self::stop).
#[derive(Debug)]
pub struct Console {
    address: SocketAddr,
    url: String,
    drain: Drain,
    server: JoinHandle<()>,
    reader: thread::JoinHandle<()>,
}

impl Console {
    /// Starts to serve. `drain` starts if the console can no longer read the run.
    ///
    /// # Errors
    /// The address is taken, or needs credentials that `security` lacks.
    pub async fn start(settings: Settings, drain: Drain) -> anyhow::Result<Self> {
        let Settings { run, listen, security: section, thinker, program, .. } = &settings;
        let (security, scheme) = (Security::open_web(section, *listen)?, section.scheme());
        let listener = net::bind(*listen).await?;
        let address = listener.local_addr().context("find the address of the console")?;
        let connections = Connections::new(listener, address, security.clone());
        let word = secret_word().context("no random bytes from the system")?;
        let ratings = Arc::new(Ratings::new(run.clone()));
        let reader = Reader::new(run.clone(), Arc::clone(&ratings));
        let (feed, reader) = reader.follow(drain.clone()).context("start the reader of the run")?;
        let matches = Matches::new(run.clone(), program.clone(), drain.clone());
        let (thinking, returning) = (Arc::new(Thinking::new(Arc::clone(thinker))), Returning::default());
        let [streams, downloads] = [STREAMS_MAX, DOWNLOADS_MAX].map(|places| Arc::new(Semaphore::new(places)));
        let site = Site { settings, security, word, feed, streams, downloads, ratings, thinking, returning, matches };
        let service = pages::router(Arc::new(site)).into_make_service_with_connect_info::<Client>();
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(connections, service).await {
                tracing::error!(%error, "the console stopped");
            }
        });
        Ok(Self { address, url: format!("{scheme}://{address}"), drain, server, reader })
    }

    /// Returns the address on which the console listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address for a browser.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops serving, and ends event streams.
    pub async fn stop(self) {
        self.drain.start();
        self.server.abort();
        // The only error is the cancellation above.
        let _ = self.server.await;
        let reader = self.reader;
        if tokio::task::spawn_blocking(move || reader.join()).await.is_ok_and(|ended| ended.is_err()) {
            tracing::error!("the reader of the run panicked");
        }
    }
}
