//! A service for tests, under a name in the table of methods. It streams numbers in place of
//! manifests.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::body::Body;
use tonic::client;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, ServerStreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::within;
use crate::Channel;

/// Sends the latest number of the test to every subscriber. Intermediate numbers may be skipped.
#[derive(Debug, Clone)]
pub(super) struct Numbers(watch::Receiver<u64>);

impl Numbers {
    /// Returns the service, without a number, and the sender of numbers.
    pub(super) fn new() -> (Self, watch::Sender<u64>) {
        let (sender, numbers) = watch::channel(0);
        (Self(numbers), sender)
    }
}

impl NamedService for Numbers {
    const NAME: &'static str = "zerofleet.weights.v1.Weights";
}

impl Service<http::Request<Body>> for Numbers {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let numbers = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<u64, String>::default());
            Ok(grpc.server_streaming(numbers, request).await)
        })
    }
}

impl ServerStreamingService<String> for Numbers {
    type Response = u64;
    type ResponseStream = BoxStream<'static, Result<u64, Status>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _: Request<String>) -> Self::Future {
        ready(Ok(Response::new(WatchStream::from_changes(self.0.clone()).map(Ok).boxed())))
    }
}

/// Subscribes to the numbers of a server.
pub(super) async fn subscription(channel: &Channel) -> Result<Streaming<u64>, Status> {
    let mut grpc = client::Grpc::new(channel.clone());
    within(grpc.ready()).await.map_err(|error| Status::unknown(format!("service was not ready: {error}")))?;
    let path = PathAndQuery::from_static("/zerofleet.weights.v1.Weights/Subscribe");
    let codec = ProstCodec::<String, u64>::default();
    within(grpc.server_streaming(Request::new("test".to_owned()), path, codec)).await.map(Response::into_inner)
}
