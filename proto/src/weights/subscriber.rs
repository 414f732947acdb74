use std::sync::{Arc, Mutex, PoisonError};

use ::weights::{Assembly, Manifest};
use experience::Invalid;
use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Streaming};
use transport::Channel;
use transport::limits::MESSAGE_BYTES_MAX;
use transport::reconnect::{Backoff, Broken, Client, Reconnecting, entropy};

use super::convert::chunk_from_wire;
use super::v1::weights_client::WeightsClient;
use super::{FetchQuery, Published, v1};
use crate::convert::invalid;

/// Server and name of a [`Subscriber`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberSettings {
    /// Endpoint of the weights server: `http://host:port` or `https://host:port`, checked by
    /// [`check_endpoint`](transport::check_endpoint).
    pub endpoint: String,
    /// Name of the subscriber, for the server's log.
    pub name: String,
    /// Maximum size of an accepted version, in bytes.
    pub size_limit_bytes: u64,
}

/// Follows the latest weights: subscribes, fetches each version completely, verifies the digest, and keeps the last
/// valid version.
///
/// A background task connects, and reconnects with growing delays until the subscriber is dropped. A broken fetch
/// resumes at the same offset. Bytes with a wrong digest are discarded and fetched again; until then the last valid
/// version remains in use. A new stream may start with a lower version than the last, because a learner may resume
/// from an older checkpoint. Within one stream, which belongs to one learner process, versions only grow: a lower
/// version, or the same version with other bytes, is refused.
#[derive(Debug)]
pub struct Subscriber {
    latest: watch::Receiver<Option<Arc<Published>>>,
    away: watch::Receiver<Option<Instant>>,
    stats: Arc<Mutex<SubscriberStats>>,
    following: Reconnecting<Following>,
}

/// Counters of received weights versions and broken streams since the subscriber started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubscriberStats {
    /// Completely received and verified versions.
    pub versions: u64,
    /// Discarded versions: wrong digest, wrong size, too large, or not above the previous version of the stream.
    pub refused: u64,
    /// Streams that broke, or could not be opened.
    pub broken_streams: u64,
}

impl Subscriber {
    /// Starts the task. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(settings: SubscriberSettings) -> Self {
        let (sender, mut latest) = watch::channel(None);
        latest.mark_unchanged();
        let stats = Arc::<Mutex<SubscriberStats>>::default();
        let (away_sender, away) = watch::channel(Some(Instant::now()));
        let following =
            Following { settings, latest: sender, away: away_sender, partial: None, stats: Arc::clone(&stats) };
        Self { latest, away, stats, following: Reconnecting::start(following, entropy()) }
    }

    /// Returns the last valid version; `None` before the first.
    #[must_use]
    pub fn latest(&self) -> Option<Arc<Published>> {
        self.latest.borrow().clone()
    }

    /// Waits for a version that this method has not returned yet, and returns the latest. Intermediate versions may
    /// be skipped, the latest never. Cancel-safe.
    pub async fn changed(&mut self) -> Arc<Published> {
        loop {
            self.latest.changed().await.expect("the subscriber's task outlives it");
            if let Some(published) = self.latest.borrow_and_update().clone() {
                return published;
            }
        }
    }

    /// Returns a handle for other readers of the same weights. It receives no new versions after the subscriber is
    /// dropped.
    #[must_use]
    pub fn handle(&self) -> watch::Receiver<Option<Arc<Published>>> {
        self.latest.clone()
    }

    /// Returns the time since when newer weights may exist, because there is no stream or the first manifest has not
    /// arrived. `None` while the latest version is present or refused.
    #[must_use]
    pub fn away(&self) -> watch::Receiver<Option<Instant>> {
        self.away.clone()
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn stats(&self) -> SubscriberStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the stream and joins the task.
    pub async fn close(self) {
        drop(self.following.stop().await);
    }
}

/// The client of a subscriber: one subscription at a time, and the partially received version.
#[derive(Debug)]
struct Following {
    settings: SubscriberSettings,
    latest: watch::Sender<Option<Arc<Published>>>,
    away: watch::Sender<Option<Instant>>,
    /// The chunks of a version received so far, which are kept when the connection breaks.
    partial: Option<Assembly>,
    stats: Arc<Mutex<SubscriberStats>>,
}

impl Client for Following {
    const STREAM: &'static str = "weights";

    fn endpoint(&self) -> Arc<str> {
        self.settings.endpoint.as_str().into()
    }

    async fn stream(&mut self, channel: Channel, backoff: &mut Backoff) -> Result<(), Broken> {
        let mut client = WeightsClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let request = v1::SubscribeRequest { name: self.settings.name.clone() };
        let mut manifests = client.subscribe(request).await?.into_inner();
        let mut announced: Option<Manifest> = None;
        loop {
            let manifest = newest(&mut manifests).await?;
            match announced.as_ref().map(|announced| goes_back(announced, &manifest)) {
                Some(Some(reason)) => self.refuse(&manifest, &reason),
                _ => {
                    announced = Some(manifest.clone());
                    self.follow(&mut client, manifest, backoff).await?;
                }
            }
            self.away.send_if_modified(|away| away.take().is_some());
        }
    }

    fn broke(&mut self, _: &Broken) {
        self.count(|stats| stats.broken_streams += 1);
        self.away.send_if_modified(|away| {
            let is_new = away.is_none();
            away.get_or_insert_with(Instant::now);
            is_new
        });
    }
}

/// Returns the reason why `next` cannot follow `announced` from the same learner; `None` if it can.
fn goes_back(announced: &Manifest, next: &Manifest) -> Option<Invalid> {
    let is_same = announced == next;
    let reason = || format!("{} was announced after {} by the same learner", next.version, announced.version);
    (next.version <= announced.version && !is_same).then(|| invalid("version", reason()))
}

impl Following {
    /// Fetches the version of `manifest` unless present; resumes a partial fetch of this version.
    async fn follow(
        &mut self,
        client: &mut WeightsClient<Channel>,
        manifest: Manifest,
        backoff: &mut Backoff,
    ) -> Result<(), Broken> {
        if self.latest.borrow().as_ref().is_some_and(|latest| latest.manifest == manifest) {
            return Ok(());
        }
        let mut assembly = match self.partial.take().filter(|partial| *partial.manifest() == manifest) {
            Some(partial) => partial,
            None => match Assembly::new(manifest.clone(), self.settings.size_limit_bytes) {
                Ok(assembly) => assembly,
                Err(too_large) => {
                    // The same manifest would fail again: wait for the next one instead.
                    self.refuse(&manifest, &too_large);
                    return Ok(());
                }
            },
        };
        let before = assembly.next_offset();
        match fetch(client, &mut assembly).await {
            Ok(()) => {}
            // The server no longer keeps this version: the stream has a later version, or will have one soon.
            Err(Broken::Status(status)) if status.code() == Code::NotFound => return Ok(()),
            Err(link @ (Broken::Status(_) | Broken::Ended)) => {
                // A connection that breaks often is retried soon if it makes progress.
                if assembly.next_offset() > before {
                    backoff.reset();
                }
                self.partial = Some(assembly);
                return Err(link);
            }
            Err(wrong) => {
                self.refuse(&manifest, &wrong);
                return Err(wrong);
            }
        }
        let bytes = assembly.finish().inspect_err(|wrong| self.refuse(&manifest, wrong)).map_err(Broken::invalid)?;
        self.count(|stats| stats.versions += 1);
        self.latest.send_replace(Some(Arc::new(Published { manifest, bytes })));
        backoff.reset();
        Ok(())
    }

    fn count(&self, change: impl FnOnce(&mut SubscriberStats)) {
        change(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn refuse(&self, manifest: &Manifest, error: &dyn std::error::Error) {
        self.count(|stats| stats.refused += 1);
        tracing::error!(version = %manifest.version, %error, "weights version refused");
    }
}

/// Fetches the missing bytes of the assembly. After an error, received bytes stay in the assembly.
async fn fetch(client: &mut WeightsClient<Channel>, assembly: &mut Assembly) -> Result<(), Broken> {
    let manifest = assembly.manifest();
    let query = FetchQuery { version: manifest.version, digest: manifest.digest, offset: assembly.next_offset() };
    let mut chunks = client.fetch(v1::FetchRequest::from(query)).await?.into_inner();
    while let Some(chunk) = chunks.message().await? {
        let (offset, data) = chunk_from_wire(chunk).map_err(Broken::invalid)?;
        assembly.add(offset, &data).map_err(Broken::invalid)?;
    }
    if assembly.is_complete() { Ok(()) } else { Err(Broken::Ended) }
}

/// Waits for a manifest and returns the last that has arrived.
async fn newest(manifests: &mut Streaming<v1::Manifest>) -> Result<Manifest, Broken> {
    let mut manifest = manifests.message().await?.ok_or(Broken::Ended)?;
    // A closed stream is noticed after handling the last manifest.
    while let Some(Ok(Some(newer))) = manifests.message().now_or_never() {
        manifest = newer;
    }
    Manifest::try_from(manifest).map_err(Broken::invalid)
}

#[cfg(test)]
mod tests;
