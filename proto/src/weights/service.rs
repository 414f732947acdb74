mod fetch_limiter;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::weights::{Digest, Manifest, WeightsVersion};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::v1::weights_server::{Weights, WeightsServer};
use super::{FetchQuery, Published, v1};
use crate::convert;
use crate::limits::CHUNK_BYTES_MAX;
use fetch_limiter::{FetchLimiter, FetchPermit};

/// Default maximum number of concurrent fetches: enough to saturate any link, and each fetch takes the memory of only a
/// chunk or two.
const FETCHES_MAX: usize = 64;
/// Time after which a fetch no longer blocks other fetches; a link of 100 Mbit/s transfers about 60 MB in that time.
const PERMIT_MAX: Duration = Duration::from_secs(5);

/// Time limit for fetches of a version that is no longer kept, on top of the time at the slowest rate.
const RETIRED_TIMEOUT: Duration = Duration::from_secs(10);
/// Slowest rate for fetches of a version that is no longer kept, in bytes per second: two megabits per second.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// Maximum number of old versions that are kept only for fetches in progress. If a learner publishes faster than
/// fetches finish, the oldest version is dropped.
const RETIRED_MAX: usize = 4;

/// Serves published versions: pushes the latest manifest to subscribers, and sends the bytes of the latest few
/// versions.
#[derive(Debug)]
pub struct WeightsService {
    store: watch::Receiver<VersionStore>,
    drain: CancellationToken,
    limiter: FetchLimiter,
}

/// Publishes through a [`WeightsService`]. Closing or dropping the publisher stops the subscribers' streams.
#[derive(Debug)]
pub struct Publisher {
    store: watch::Sender<VersionStore>,
    keep: usize,
}

/// The latest versions, oldest first, and earlier versions that are still being fetched.
#[derive(Debug, Clone, Default)]
struct VersionStore {
    versions: VecDeque<Arc<Published>>,
    retired: VecDeque<Retired>,
}

/// A version that is no longer kept. A fetch holds no version: a client that stops reading, and is no longer
/// polled, would hold the version until the connection closes.
#[derive(Debug, Clone)]
struct Retired {
    version: Arc<Published>,
    until: Instant,
}

impl VersionStore {
    /// Adds a version, keeps the last `keep` versions, and drops retired versions without fetches, expired or beyond
    /// the limit.
    fn add(&mut self, version: Published, keep: usize, now: Instant) {
        self.versions.push_back(Arc::new(version));
        while self.versions.len() > keep
            && let Some(version) = self.versions.pop_front()
        {
            let at_slowest = Duration::from_secs(version.manifest.size_bytes / BYTES_PER_SECOND_MIN);
            self.retired.push_back(Retired { until: now + RETIRED_TIMEOUT + at_slowest, version });
        }
        self.retired.retain(|retired| Arc::weak_count(&retired.version) > 0 && retired.until > now);
        while self.retired.len() > RETIRED_MAX {
            self.retired.pop_front();
        }
    }
}

/// A reason why a version is not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The version is not above the latest: a version must always identify the same bytes, and the highest version
    /// the latest weights.
    #[error("{version} is not newer than {newest}")]
    NotNewer {
        /// The version to publish.
        version: WeightsVersion,
        /// The latest published version.
        newest: WeightsVersion,
    },
    /// The manifest does not match the bytes.
    #[error("the manifest has {} bytes with digest {}, got {got_bytes} bytes with digest {got}", .manifest.size_bytes, .manifest.digest)]
    OtherBytes {
        /// The manifest, with the expected size and digest.
        manifest: Box<Manifest>,
        /// Number of bytes to publish.
        got_bytes: usize,
        /// Digest of the bytes to publish.
        got: Digest,
    },
}

impl WeightsService {
    /// Creates a service that keeps the latest `keep` versions, at least one. With more than one, fetches of the
    /// previous version can finish.
    #[must_use]
    pub fn new(keep: usize) -> (Self, Publisher) {
        let (sender, store) = watch::channel(VersionStore::default());
        let service = Self { store, drain: CancellationToken::new(), limiter: FetchLimiter::new(FETCHES_MAX) };
        (service, Publisher { store: sender, keep: keep.max(1) })
    }

    /// Limits concurrent fetches to `fetches_max`, at least one; further fetches wait in request order.
    #[must_use]
    pub fn with_fetches_at_once(self, fetches_max: usize) -> Self {
        Self { limiter: FetchLimiter::new(fetches_max), ..self }
    }

    /// Stops the subscribers' streams when `drain` fires, so that a server with subscribers can stop.
    #[must_use]
    pub fn until(self, drain: CancellationToken) -> Self {
        Self { drain, ..self }
    }

    /// Returns the service, to add to a server. Requests are small, so tonic's default limit applies.
    #[must_use]
    pub fn into_server(self) -> WeightsServer<Self> {
        WeightsServer::new(self)
    }

    fn find(&self, FetchQuery { version, digest, offset: _ }: FetchQuery) -> Result<Arc<Published>, Status> {
        let is_it =
            |published: &&Arc<Published>| published.manifest.version == version && published.manifest.digest == digest;
        let store = self.store.borrow();
        store
            .versions
            .iter()
            .find(is_it)
            .cloned()
            .ok_or_else(|| Status::not_found(format!("{version} with digest {digest} is not available")))
    }
}

impl Publisher {
    /// Announces a new version to subscribers and serves it; the oldest stored version may be dropped.
    ///
    /// # Errors
    /// [`PublishError`]; nothing has changed then.
    pub fn publish(&self, manifest: Manifest, bytes: Bytes) -> Result<(), PublishError> {
        let got = Digest::of(&bytes);
        if got != manifest.digest || manifest.size_bytes != bytes.len() as u64 {
            return Err(PublishError::OtherBytes { manifest: Box::new(manifest), got_bytes: bytes.len(), got });
        }
        let (version, newest) = (manifest.version, self.newest().map(|newest| newest.manifest.version));
        if let Some(newest) = newest.filter(|&newest| version <= newest) {
            return Err(PublishError::NotNewer { version, newest });
        }
        self.store.send_modify(|store| {
            store.add(Published { manifest, bytes }, self.keep, Instant::now());
        });
        Ok(())
    }

    /// Returns the latest version.
    #[must_use]
    pub fn newest(&self) -> Option<Arc<Published>> {
        self.store.borrow().versions.back().cloned()
    }

    /// Stops the subscribers' streams, so that the server can drain.
    pub fn close(self) {}
}

#[tonic::async_trait]
impl Weights for WeightsService {
    type SubscribeStream = BoxStream<'static, Result<v1::Manifest, Status>>;
    type FetchStream = BoxStream<'static, Result<v1::Chunk, Status>>;

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let name = super::convert::subscribe_from_wire(request.into_inner()).map_err(|e| convert::status(&e))?;
        tracing::info!(name, "weights subscriber");
        let manifests = WatchStream::new(self.store.clone())
            .filter_map(async |store| store.versions.back().map(|newest| Ok(v1::Manifest::from(&newest.manifest))));
        let drained = self.drain.clone().cancelled_owned();
        Ok(Response::new(manifests.take_until(drained).boxed()))
    }

    async fn fetch(&self, request: Request<v1::FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        let query = FetchQuery::try_from(request.into_inner()).map_err(|e| convert::status(&e))?;
        let published = self.find(query)?;
        let size = published.bytes.len();
        let Some(offset) = usize::try_from(query.offset).ok().filter(|&offset| offset <= size) else {
            let reason = format!("offset {} is past the end of {size} bytes", query.offset);
            return Err(Status::out_of_range(reason));
        };
        let permit = self.limiter.clone().next(PERMIT_MAX);
        let published = Arc::downgrade(&published);
        Ok(Response::new(
            stream::once(permit).flat_map(move |permit| chunks(published.clone(), offset..size, permit)).boxed(),
        ))
    }
}

/// Returns the bytes of a range, in chunks sliced on sending, and only then copied for the connection. The permit is
/// released after the last chunk. If the version is gone, the stream stops with an error.
fn chunks(
    published: Weak<Published>,
    range: Range<usize>,
    permit: FetchPermit,
) -> impl Stream<Item = Result<v1::Chunk, Status>> {
    let size = range.end;
    let chunk = move |start: usize| -> Result<v1::Chunk, Status> {
        let _ends_with_the_last = &permit;
        let gone = || Status::not_found("this version was removed during the fetch, which took too long");
        let published = published.upgrade().ok_or_else(gone)?;
        let end = (start + CHUNK_BYTES_MAX).min(size);
        Ok(v1::Chunk { offset: start as u64, data: published.bytes.slice(start..end) })
    };
    let mut has_failed = false;
    let chunks = range.step_by(CHUNK_BYTES_MAX).map(chunk);
    stream::iter(chunks.take_while(move |chunk| !std::mem::replace(&mut has_failed, chunk.is_err())))
}

#[cfg(test)]
mod tests;
