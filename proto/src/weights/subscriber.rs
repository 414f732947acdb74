use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::weights::{Assembly, AssemblyError, Manifest};
use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::fetch::{FetchError, fetch};
use super::v1::weights_client::WeightsClient;
use super::{Published, v1};
use crate::backoff::Backoff;
use crate::channel::{InvalidEndpoint, channel, is_our_fault};
use crate::convert::Invalid;
use crate::limits::MESSAGE_BYTES_MAX;

/// What a [`Subscriber`] follows, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberSettings {
    /// Who serves weights: `http://host:port`, checked by [`check_endpoint`](crate::check_endpoint).
    pub endpoint: String,
    /// Who asks, for the server's log.
    pub name: String,
    /// The largest version to accept, in bytes.
    pub size_limit_bytes: u64,
}

/// Follows the newest weights: subscribes, fetches each version whole, proves it, and keeps the last good one.
///
/// A task of its own connects, and connects again with growing delays for as long as the subscriber lives. A fetch that
/// breaks goes on where it stopped. Bytes with a wrong digest are thrown away and fetched again; until then the last
/// good version stays. Whatever the server calls the newest is followed, also where its number is lower than before:
/// a learner that goes on from an older checkpoint is right.
#[derive(Debug)]
pub struct Subscriber {
    latest: watch::Receiver<Option<Arc<Published>>>,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

/// What a subscriber has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubscriberStats {
    /// Versions that arrived whole and proved.
    pub versions: u64,
    /// Versions thrown away: wrong digest, wrong size, too large.
    pub refused: u64,
    /// Streams that broke, or could not be opened.
    pub broken_streams: u64,
}

#[derive(Debug, Default)]
struct Counters {
    versions: AtomicU64,
    refused: AtomicU64,
    broken_streams: AtomicU64,
}

impl Subscriber {
    /// Starts the task. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(settings: SubscriberSettings) -> Self {
        let (sender, mut latest) = watch::channel(None);
        latest.mark_unchanged();
        let counters = Arc::new(Counters::default());
        let stop = CancellationToken::new();
        let following = Following {
            settings,
            latest: sender,
            partial: None,
            counters: Arc::clone(&counters),
            backoff: Backoff::from_entropy(),
        };
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let _ = stopped.run_until_cancelled(following.run()).await;
        });
        Self { latest, counters, task, stop: stop.drop_guard() }
    }

    /// The last good version, if one has come yet.
    #[must_use]
    pub fn latest(&self) -> Option<Arc<Published>> {
        self.latest.borrow().clone()
    }

    /// The next version that this has not returned yet; waits for it. Cancel-safe. Versions in between may be missed,
    /// never the newest.
    pub async fn changed(&mut self) -> Arc<Published> {
        loop {
            self.latest.changed().await.expect("the subscriber's task outlives it");
            if let Some(published) = self.latest.borrow_and_update().clone() {
                return published;
            }
        }
    }

    /// A handle for others who follow the same weights. It sees nothing new once the subscriber is gone.
    #[must_use]
    pub fn handle(&self) -> watch::Receiver<Option<Arc<Published>>> {
        self.latest.clone()
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> SubscriberStats {
        let Counters { versions, refused, broken_streams } = &*self.counters;
        SubscriberStats {
            versions: versions.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed),
            broken_streams: broken_streams.load(Ordering::Relaxed),
        }
    }

    /// Ends the stream and joins the task.
    pub async fn close(self) {
        let Self { task, stop, latest: _, counters: _ } = self;
        drop(stop);
        task.await.expect("the subscriber's task does not panic");
    }
}

/// The task of a subscriber: one subscription at a time, and the version that is being put together.
struct Following {
    settings: SubscriberSettings,
    latest: watch::Sender<Option<Arc<Published>>>,
    /// What has arrived of a version; survives broken connections.
    partial: Option<Assembly>,
    counters: Arc<Counters>,
    backoff: Backoff,
}

/// Why a subscription is over.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    #[error(transparent)]
    Status(#[from] Status),
    #[error(transparent)]
    Manifest(#[from] Invalid),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the server ended the stream")]
    Ended,
}

impl Following {
    async fn run(mut self) {
        loop {
            let broken = match self.subscription().await {
                Err(broken) => broken,
                Ok(never) => match never {},
            };
            self.counters.broken_streams.fetch_add(1, Ordering::Relaxed);
            let delay = self.backoff.delay();
            let (endpoint, delay_ms) = (&self.settings.endpoint, delay.as_millis());
            match &broken {
                Broken::Status(status) | Broken::Fetch(FetchError::Status(status)) if !is_our_fault(status) => {
                    tracing::info!(endpoint, %broken, delay_ms, "weights stream broke");
                }
                Broken::Ended => tracing::info!(endpoint, %broken, delay_ms, "weights stream broke"),
                // Nothing that waiting surely cures: a human must look.
                _ => tracing::error!(endpoint, %broken, delay_ms, "weights stream broke"),
            }
            tokio::time::sleep(delay).await;
        }
    }

    /// One subscription, to its end.
    async fn subscription(&mut self) -> Result<std::convert::Infallible, Broken> {
        let channel = channel(&self.settings.endpoint)?;
        let mut client = WeightsClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let request = v1::SubscribeRequest { name: self.settings.name.clone() };
        let mut manifests = client.subscribe(request).await?.into_inner();
        loop {
            let manifest = newest(&mut manifests).await?;
            self.follow(&mut client, manifest).await?;
        }
    }

    /// Fetches the version of `manifest` unless it is there, going on with what has arrived of it.
    async fn follow(&mut self, client: &mut WeightsClient<Channel>, manifest: Manifest) -> Result<(), Broken> {
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
        match self.complete(client, &mut assembly).await {
            Ok(()) => {}
            // It has left the shelf: the stream has a newer one, or is about to.
            Err(FetchError::Status(status)) if status.code() == Code::NotFound => return Ok(()),
            Err(error @ FetchError::Status(_)) => {
                self.partial = Some(assembly);
                return Err(error.into());
            }
            Err(error @ FetchError::Assembly(AssemblyError::TooShort { .. })) => {
                self.partial = Some(assembly);
                return Err(error.into());
            }
            Err(error) => {
                self.refuse(&manifest, &error);
                return Err(error.into());
            }
        }
        let bytes = assembly.finish().map_err(|error| {
            self.refuse(&manifest, &error);
            FetchError::from(error)
        })?;
        self.counters.versions.fetch_add(1, Ordering::Relaxed);
        self.backoff.reset();
        self.latest.send_replace(Some(Arc::new(Published { manifest, bytes })));
        Ok(())
    }

    async fn complete(
        &mut self,
        client: &mut WeightsClient<Channel>,
        assembly: &mut Assembly,
    ) -> Result<(), FetchError> {
        let before = assembly.next_offset();
        let result = fetch(client, assembly).await;
        let link_broke =
            matches!(result, Err(FetchError::Status(_) | FetchError::Assembly(AssemblyError::TooShort { .. })));
        // A link that breaks often is worth trying soon if it makes progress; bytes that are wrong are not.
        if link_broke && assembly.next_offset() > before {
            self.backoff.reset();
        }
        result
    }

    fn refuse(&self, manifest: &Manifest, error: &dyn std::error::Error) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        tracing::error!(version = %manifest.version, %error, "weights version refused");
    }
}

/// The newest manifest that has arrived; waits for one.
async fn newest(manifests: &mut Streaming<v1::Manifest>) -> Result<Manifest, Broken> {
    let mut manifest = manifests.message().await?.ok_or(Broken::Ended)?;
    // A stream that is over is noticed after what it said last is followed.
    while let Some(Ok(Some(newer))) = manifests.message().now_or_never() {
        manifest = newer;
    }
    Ok(manifest.try_into()?)
}

#[cfg(test)]
mod tests;
