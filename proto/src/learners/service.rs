use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use super::convert as checked;
use super::v1::learners_server::{Learners, LearnersServer};
use super::{Candidate, Exchange, ExchangeError, Look, Roster, v1};
use crate::convert;

/// Maximum number of questions that wait for an answer from the membership: a few from each other learner.
const QUESTIONS_MAX: usize = 256;

/// A question from another learner, and the channel for the response.
#[derive(Debug)]
pub enum Question {
    /// Requests the activity of this learner.
    Look(oneshot::Sender<Look>),
    /// Requests a place in the next group.
    Join(Candidate, oneshot::Sender<Result<Roster, Refusal>>),
}

/// A reason why a candidate gets no place in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// This learner coordinates no group.
    Elsewhere,
    /// The candidate does not fit the group.
    Different(String),
}

/// The gRPC service for questions from other learners.
#[derive(Debug)]
pub struct LearnersService {
    questions: mpsc::Sender<Question>,
    exchange: Exchange,
}

impl LearnersService {
    /// Creates a service and the receiver of questions. Members of a group that this learner coordinates exchange
    /// addresses at `exchange`.
    #[must_use]
    pub fn new(exchange: Exchange) -> (Self, mpsc::Receiver<Question>) {
        let (questions, receiver) = mpsc::channel(QUESTIONS_MAX);
        (Self { questions, exchange }, receiver)
    }

    /// Returns the service, to add to a server.
    pub(crate) fn into_server(self) -> LearnersServer<Self> {
        LearnersServer::new(self)
    }

    /// Passes a question on and waits for the response.
    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Result<T, Status> {
        let (answer, answered) = oneshot::channel();
        let gone = |()| Status::unavailable("this learner is stopping");
        self.questions.send(question(answer)).await.map_err(|_| gone(()))?;
        answered.await.map_err(|_| gone(()))
    }
}

#[tonic::async_trait]
impl Learners for LearnersService {
    async fn look(&self, request: Request<v1::LookRequest>) -> Result<Response<v1::LookResponse>, Status> {
        let v1::LookRequest {} = request.into_inner();
        let look = self.ask(Question::Look).await?;
        Ok(Response::new((&look).into()))
    }

    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinResponse>, Status> {
        let candidate = Candidate::try_from(request.into_inner()).map_err(|error| convert::status(&error))?;
        match self.ask(|answer| Question::Join(candidate, answer)).await? {
            Ok(roster) => Ok(Response::new((&roster).into())),
            Err(Refusal::Elsewhere) => Err(Status::unavailable("this learner is not a coordinator")),
            Err(Refusal::Different(reason)) => Err(Status::failed_precondition(convert::cut(reason))),
        }
    }

    async fn set_address(
        &self,
        request: Request<v1::SetAddressRequest>,
    ) -> Result<Response<v1::SetAddressResponse>, Status> {
        let v1::SetAddressRequest { secret, key, address } = request.into_inner();
        let secret = checked::secret(&secret).map_err(|error| convert::status(&error))?;
        let key = checked::key(key).map_err(|error| convert::status(&error))?;
        self.exchange.set(secret, &key, address).map_err(exchange_status)?;
        Ok(Response::new(v1::SetAddressResponse {}))
    }

    async fn get_address(
        &self,
        request: Request<v1::GetAddressRequest>,
    ) -> Result<Response<v1::GetAddressResponse>, Status> {
        let v1::GetAddressRequest { secret, key } = request.into_inner();
        let secret = checked::secret(&secret).map_err(|error| convert::status(&error))?;
        let key = checked::key(key).map_err(|error| convert::status(&error))?;
        let address = self.exchange.get(secret, &key).await.map_err(exchange_status)?;
        Ok(Response::new(v1::GetAddressResponse { address }))
    }
}

fn exchange_status(error: ExchangeError) -> Status {
    let reason = error.to_string();
    match error {
        ExchangeError::Unknown => Status::not_found(reason),
        ExchangeError::Taken => Status::already_exists(reason),
        ExchangeError::Full => Status::resource_exhausted(reason),
    }
}
