//! The state that all requests share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::http::Uri;
use fleet::RunDirectory;
use service::security::is_loopback;
use tokio::sync::{Semaphore, watch};
use transport::security::{Scopes, Security};

use crate::ratings::Ratings;
use crate::snapshot::{FLEET, Feed, Snapshot};
use crate::thinker::Thinker;
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
}

impl Site {
    #[expect(clippy::too_many_arguments, reason = "the parts of the console, each from another source")]
    pub(crate) fn new(
        run: RunDirectory,
        address: SocketAddr,
        scheme: &'static str,
        security: Security,
        scopes: Scopes,
        word: String,
        feed: Feed,
        thinker: Arc<dyn Thinker>,
    ) -> Self {
        let [streams, downloads] = [STREAMS_MAX, DOWNLOADS_MAX].map(|places| Arc::new(Semaphore::new(places)));
        let (is_local, ratings) = (is_loopback(address.ip()), Ratings::new(run.clone()));
        let thinking = Arc::new(Thinking::new(thinker));
        Self { run, is_local, scheme, security, scopes, word, feed, streams, downloads, ratings, thinking }
    }

    /// Notes that a visitor sees the live page at this path. All of them but the fleet show games in progress.
    pub(crate) fn visit(&self, path: &str) {
        if path != FLEET {
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
