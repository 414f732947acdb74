//! The state that all requests share.

use std::sync::Arc;
use std::time::Instant;

use axum::http::Uri;
use service::security::is_loopback;
use tokio::sync::{Semaphore, watch};
use transport::security::{Caller, Scope, Security};

use crate::Settings;
use crate::matches::{self, Matches};
use crate::ratings::Ratings;
use crate::snapshot::{FLEET, Feed, Snapshot};
use crate::thinking::{Returning, Thinking};

/// Maximum number of event streams: many times the tabs of a team.
pub(crate) const STREAMS_MAX: usize = 64;
/// Maximum number of downloads at once, which leaves most connections to pages.
pub(crate) const DOWNLOADS_MAX: usize = 8;

/// A run with the checks of visitors and the latest snapshot.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) settings: Settings,
    pub(crate) security: Security,
    /// A word that only pages of this process contain, against forged forms.
    pub(crate) word: String,
    pub(crate) feed: Feed,
    /// Places for event streams.
    pub(crate) streams: Arc<Semaphore>,
    /// Places for downloads.
    pub(crate) downloads: Arc<Semaphore>,
    pub(crate) ratings: Arc<Ratings>,
    pub(crate) thinking: Arc<Thinking>,
    pub(crate) returning: Returning,
    pub(crate) matches: Matches,
}

impl Site {
    /// Returns true if the visitor may search.
    pub(crate) fn may_search(&self, caller: &Caller) -> bool {
        self.settings.scopes.contains(Scope::Infer) && caller.has(Scope::Infer)
    }

    /// Returns the word for forms that change something; `None` if the console grants no changes.
    pub(crate) fn word_of_changes(&self) -> Option<&str> {
        self.settings.scopes.contains(Scope::Admin).then_some(self.word.as_str())
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
        // Only this machine reaches an address of loopback.
        is_bare && (!is_loopback(self.settings.listen.ip()) || is_own())
    }

    /// Returns the origin of pages from `host`.
    pub(crate) fn origin(&self, host: &str) -> String {
        format!("{}://{host}", self.settings.security.scheme())
    }

    /// Returns the name of the cookie with the token. Browsers accept the prefix only from `https`, for one host alone.
    pub(crate) fn cookie(&self) -> &'static str {
        if self.is_secure() { "__Host-zerofleet" } else { "zerofleet" }
    }

    /// Returns true if connections use TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.settings.security.scheme() == "https"
    }
}
