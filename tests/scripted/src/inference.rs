use std::net::SocketAddr;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Replies, endpoint, listen, listen_at, within};
use proto::inference::v1::evaluate_request::Message;
use proto::inference::v1::evaluate_response::Message as Reply;
use proto::inference::v1::inference_server::{Inference, InferenceServer};
use proto::inference::{Welcome, v1};
use transport::security::Security;

/// An inference server that passes client streams to the test.
#[derive(Debug)]
pub struct InferenceScript {
    address: SocketAddr,
    streams: mpsc::Receiver<EvalStream>,
    _task: JoinSet<()>,
}

/// Server side of an evaluation stream.
#[derive(Debug)]
pub struct EvalStream {
    requests: Streaming<v1::EvaluateRequest>,
    replies: Replies<v1::EvaluateResponse>,
}

impl InferenceScript {
    /// Starts a server on a free port.
    pub async fn start() -> Self {
        Self::serve(listen().await)
    }

    /// Starts a server at the address of an earlier server.
    pub async fn start_at(address: SocketAddr) -> Self {
        Self::serve(listen_at(address).await)
    }

    fn serve((incoming, address): (tokio_stream::wrappers::TcpListenerStream, SocketAddr)) -> Self {
        let (hand, streams) = mpsc::channel(1);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let service = InferenceServer::new(Handover { hand });
            transport::server(&Security::default())
                .add_service(service)
                .serve_with_incoming(incoming)
                .await
                .expect("the script serves");
        });
        Self { address, streams, _task: task }
    }

    /// Returns the endpoint for clients.
    pub fn endpoint(&self) -> String {
        endpoint(self.address)
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next stream that a client opens.
    pub async fn stream(&mut self) -> EvalStream {
        within(self.streams.recv()).await.expect("the script serves")
    }

    /// Waits for the next stream, and replies to its hello with `welcome`.
    pub async fn welcomed(&mut self, welcome: Welcome) -> EvalStream {
        let mut stream = self.stream().await;
        assert!(matches!(stream.next().await, Message::Hello(_)), "a stream begins with a hello");
        stream.reply(Reply::Welcome(welcome.into())).await;
        stream
    }
}

impl EvalStream {
    /// Waits for the next message of the client.
    pub async fn next(&mut self) -> Message {
        let message = within(self.requests.message()).await.expect("the stream is whole").expect("the client requests");
        message.message.expect("a message holds something")
    }

    /// Waits for the next message, which must be a request.
    pub async fn request(&mut self) -> v1::EvalRequest {
        match self.next().await {
            Message::Request(request) => request,
            Message::Hello(_) => panic!("a request was expected"),
        }
    }

    /// Sends `reply` to the client.
    pub async fn reply(&self, reply: Reply) {
        self.replies.send(v1::EvaluateResponse { message: Some(reply) }).await;
    }
}

struct Handover {
    hand: mpsc::Sender<EvalStream>,
}

#[tonic::async_trait]
impl Inference for Handover {
    type EvaluateStream = ReceiverStream<Result<v1::EvaluateResponse, Status>>;
    type AnalyseStream = ReceiverStream<Result<v1::Analysis, Status>>;

    async fn evaluate(
        &self,
        request: Request<Streaming<v1::EvaluateRequest>>,
    ) -> Result<Response<Self::EvaluateStream>, Status> {
        let (replies, receiver) = mpsc::channel(16);
        let stream = EvalStream { requests: request.into_inner(), replies: Replies::new(replies) };
        self.hand.send(stream).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn stats(&self, _: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        Err(Status::unimplemented("scripts evaluate only"))
    }

    async fn select_move(&self, _: Request<v1::SelectMoveRequest>) -> Result<Response<v1::SelectMoveResponse>, Status> {
        Err(Status::unimplemented("scripts evaluate only"))
    }

    async fn analyse(&self, _: Request<v1::AnalyseRequest>) -> Result<Response<Self::AnalyseStream>, Status> {
        Err(Status::unimplemented("scripts evaluate only"))
    }
}
