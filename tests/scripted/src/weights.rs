use std::net::SocketAddr;

use ::weights::{Architecture, Manifest, WeightsVersion};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{endpoint, listen, within};
use proto::weights::v1::weights_server::{Weights, WeightsServer};
use proto::weights::{FetchQuery, Published, v1};
use transport::security::Security;

/// A weights server that passes client streams to the test.
#[derive(Debug)]
pub struct WeightsScript {
    address: SocketAddr,
    subscriptions: mpsc::Receiver<Replies<v1::Manifest>>,
    fetches: mpsc::Receiver<(FetchQuery, Replies<v1::Chunk>)>,
    _task: JoinSet<()>,
}

/// Sender of a client's stream; dropping it ends the stream without an error.
#[derive(Debug)]
pub struct Replies<R>(mpsc::Sender<Result<R, Status>>);

impl WeightsScript {
    /// Starts a server that has published no weights.
    pub async fn start() -> Self {
        let (incoming, address) = listen().await;
        let (subscribe, subscriptions) = mpsc::channel(1);
        let (fetch, fetches) = mpsc::channel(1);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let service = WeightsServer::new(Handover { subscribe, fetch });
            transport::server(&Security::default())
                .add_service(service)
                .serve_with_incoming(incoming)
                .await
                .expect("the script serves");
        });
        Self { address, subscriptions, fetches, _task: task }
    }

    /// Returns the endpoint for clients.
    pub fn endpoint(&self) -> String {
        endpoint(self.address)
    }

    /// Waits for the next subscription that a client opens.
    pub async fn subscription(&mut self) -> Replies<v1::Manifest> {
        within(self.subscriptions.recv()).await.expect("the script serves")
    }

    /// Waits for the next fetch of a client.
    pub async fn fetch(&mut self) -> (FetchQuery, Replies<v1::Chunk>) {
        within(self.fetches.recv()).await.expect("the script serves")
    }
}

impl<R> Replies<R> {
    pub(crate) fn new(sender: mpsc::Sender<Result<R, Status>>) -> Self {
        Self(sender)
    }

    /// Sends `reply`; does nothing if the client has disconnected.
    pub async fn send(&self, reply: R) {
        let _ = within(self.0.send(Ok(reply))).await;
    }

    /// Ends the stream with a status.
    pub async fn end(self, status: Status) {
        let _ = within(self.0.send(Err(status))).await;
    }
}

impl Replies<v1::Manifest> {
    /// Announces the latest version.
    pub async fn announce(&self, published: &Published) {
        self.send((&published.manifest).into()).await;
    }
}

impl Replies<v1::Chunk> {
    /// Sends `data` as the bytes from `offset` on.
    pub async fn chunk(&self, offset: u64, data: &[u8]) {
        self.send(v1::Chunk { offset, data: Bytes::copy_from_slice(data) }).await;
    }
}

struct Handover {
    subscribe: mpsc::Sender<Replies<v1::Manifest>>,
    fetch: mpsc::Sender<(FetchQuery, Replies<v1::Chunk>)>,
}

#[tonic::async_trait]
impl Weights for Handover {
    type SubscribeStream = ReceiverStream<Result<v1::Manifest, Status>>;
    type FetchStream = ReceiverStream<Result<v1::Chunk, Status>>;

    async fn subscribe(&self, _: Request<v1::SubscribeRequest>) -> Result<Response<Self::SubscribeStream>, Status> {
        let (replies, receiver) = mpsc::channel(16);
        let over = |_| Status::unavailable("the test is over");
        self.subscribe.send(Replies(replies)).await.map_err(over)?;
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn fetch(&self, request: Request<v1::FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        let query = FetchQuery::try_from(request.into_inner()).map_err(|e| proto::convert::status(&e))?;
        let (replies, receiver) = mpsc::channel(16);
        let over = |_| Status::unavailable("the test is over");
        self.fetch.send((query, Replies(replies))).await.map_err(over)?;
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Returns a version with these bytes.
pub fn version(number: u64, bytes: impl Into<Bytes>) -> Published {
    let bytes = bytes.into();
    let architecture = Architecture::plain("tic_tac_toe", [3, 3, 3], 9, [8, 2]);
    let manifest = Manifest::of(&bytes, WeightsVersion(number), number * 100, architecture);
    Published { manifest, bytes }
}
