//! The state that all requests share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::http::Uri;
use fleet::RunDirectory;
use service::security::is_loopback;
use tokio::sync::mpsc::Sender;
use tokio::sync::{Semaphore, watch};
use transport::security::{Caller, Scope, Scopes, Security};

use crate::Settings;
use crate::matches::{self, Matches};
use crate::ratings::Ratings;
use crate::snapshot::{FLEET, Feed, Snapshot};
use crate::thinking::Thinking;

/// Maximum number of event streams: many times the tabs of a team.
const STREAMS_MAX: usize = 64;
/// Maximum number of downloads at once, which leaves most connections to pages.
const DOWNLOADS_MAX: usize = 8;

/// A run with the checks of visitors and the latest snapshot.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) run: RunDirectory,
    /// True if only this machine reaches the console.
    is_local: bool,
    scheme: &'static str,
    pub(crate) security: Security,
    /// Scopes that the console grants at most.
    pub(crate) scopes: Scopes,
    /// A word that only pages of this process contain, against forged forms.
    pub(crate) word: String,
    feed: Feed,
    /// Places for event streams.
    pub(crate) streams: Arc<Semaphore>,
    /// Places for downloads.
    pub(crate) downloads: Arc<Semaphore>,
    pub(crate) ratings: Ratings,
    pub(crate) thinking: Arc<Thinking>,
    /// Receives requested changes, if `zerofleet train` has started the console.
    pub(crate) supervisor: Option<Sender<String>>,
    pub(crate) matches: Matches,
}

impl Site {
    pub(crate) fn new(
        settings: Settings,
        address: SocketAddr,
        security: Security,
        word: String,
        feed: Feed,
        matches: Matches,
    ) -> Self {
        let [streams, downloads] = [STREAMS_MAX, DOWNLOADS_MAX].map(|places| Arc::new(Semaphore::new(places)));
        let Settings { run, listen: _, security: section, scopes, thinker, program: _, supervisor } = settings;
        let (is_local, ratings) = (is_loopback(address.ip()), Ratings::new(run.clone()));
        let (scheme, thinking) = (section.scheme(), Arc::new(Thinking::new(thinker)));
        Self {
            run,
            is_local,
            scheme,
            security,
            scopes,
            word,
            feed,
            streams,
            downloads,
            ratings,
            thinking,
            supervisor,
            matches,
        }
    }

    /// Returns true if the visitor may search.
    pub(crate) fn may_search(&self, caller: &Caller) -> bool {
        self.scopes.contains(Scope::Infer) && caller.has(Scope::Infer)
    }

    /// Returns the word for forms that change something; `None` if the console grants no changes.
    pub(crate) fn word_of_changes(&self) -> Option<&str> {
        self.scopes.contains(Scope::Admin).then_some(self.word.as_str())
    }

    /// Notes that a visitor sees the live page at this path. All of them but fleet and strength show games in progress.
    pub(crate) fn visit(&self, path: &str) {
        if ![FLEET, matches::PAGE].contains(&path) {
            self.feed.visits.note(Instant::now());
        }
    }

    /// Returns what all tabs see now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.feed.snapshots.borrow())
    }

    /// Returns a receiver of all later snapshots.
    pub(crate) fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.feed.snapshots.clone()
    }

    /// Returns true if this is a name of the console. On loopback, a page of another name reached this address through
    /// a name server that its owner controls (DNS rebinding). Elsewhere, the certificate excludes other names.
    pub(crate) fn has_name(&self, host: &str) -> bool {
        let Ok(uri) = host.parse::<Uri>() else { return false };
        let is_bare = uri.authority().is_some_and(|authority| authority.as_str() == host && !host.contains('@'));
        let name = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_own = || name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback);
        is_bare && (!self.is_local || is_own())
    }

    /// Returns the origin of pages from `host`.
    pub(crate) fn origin(&self, host: &str) -> String {
        format!("{}://{host}", self.scheme)
    }

    /// Returns the name of the cookie with the token. Browsers accept the prefix only from `https`, for one host alone.
    pub(crate) fn cookie(&self) -> &'static str {
        if self.is_secure() { "__Host-zerofleet" } else { "zerofleet" }
    }

    /// Returns true if connections use TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == "https"
    }
}
