use proto::replay::{InsertWait, v1};
use proto::security::Caller;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::{Answers, ReplayService, until};
use crate::insert_stream::{INSERT_CREDIT, InsertStream, Looked, Received};
use crate::log::UnixMillis;
use crate::table_service::{Command, Inserted};

/// The call of one actor: drives its [`InsertStream`].
pub(super) struct InsertCall {
    inbound: Streaming<v1::InsertRequest>,
    stream: InsertStream,
    service: ReplayService,
    answer: mpsc::Sender<Inserted>,
    answers: mpsc::Receiver<Inserted>,
    /// The reply to the question why inserts wait, while there is one.
    wait: Option<oneshot::Receiver<InsertWait>>,
    _permit: OwnedSemaphorePermit,
}

impl InsertCall {
    pub(super) fn new(
        inbound: Streaming<v1::InsertRequest>,
        service: ReplayService,
        caller: Caller,
        address: String,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let (actors, quota) = (service.actors.clone(), service.quota.clone());
        let stream = InsertStream::new(&service.settings, actors, quota, caller, address, now());
        // Capacity for the answers to all unanswered trajectories: the table service never finds the channel full.
        let (answer, answers) = mpsc::channel(INSERT_CREDIT as usize);
        Self { inbound, stream, service, answer, answers, wait: None, _permit: permit }
    }

    pub(super) fn answers(self) -> Answers<v1::InsertResponse> {
        Box::pin(futures::stream::try_unfold(self, async |mut call| {
            Ok::<_, Status>(call.next().await?.map(|answer| (answer, call)))
        }))
    }

    /// Returns the next answer; an error or `None` ends the stream.
    async fn next(&mut self) -> Result<Option<v1::InsertResponse>, Status> {
        loop {
            if let Some(end) = self.stream.end() {
                return end.map(|()| None);
            }
            let (quota_wait, next_look) = (self.stream.quota_wait(), self.stream.next_look());
            tokio::select! {
                biased;
                Some(inserted) = self.answers.recv() => if let Some(answer) = self.stream.inserted(inserted)? {
                    return Ok(Some(answer));
                },
                () = self.service.drain.cancelled(), if self.stream.is_open() => self.stream.drain(),
                () = until(quota_wait.map(Instant::from_std)) => self.stream.proceed(),
                message = self.inbound.message(), if self.stream.reads() => match message? {
                    None => self.stream.client_ended(),
                    Some(message) => if let Some(response) = self.receive(message).await? {
                        return Ok(Some(response));
                    }
                },
                Some(wait) = received(&mut self.wait) => if let Some(waiting) = self.stream.waiting(wait) {
                    return Ok(Some(waiting));
                },
                () = until(next_look.map(Instant::from_std)) => match self.stream.look(now())? {
                    // Without a reply of the tables, nothing is sent to the client.
                    Looked::FindWait if self.wait.is_none() => self.wait = self.service.handle.ask(Command::InsertWait),
                    Looked::FindWait | Looked::Nothing => {}
                },
            }
        }
    }

    async fn receive(&mut self, message: v1::InsertRequest) -> Result<Option<v1::InsertResponse>, Status> {
        let handle = &self.service.handle;
        match self.stream.receive(message, now(), UnixMillis::now())? {
            Received::Nothing => Ok(None),
            Received::Hello(origin) => {
                let highest = handle.request(|reply| Command::HighestEpoch(origin.actor, reply)).await?;
                Ok(Some(self.stream.ready(highest)))
            }
            Received::Insert { trajectory, content, inserted } => {
                let command = Command::Insert { trajectory, content, inserted, reply: self.answer.clone() };
                handle.send(command).await?;
                Ok(None)
            }
            Received::Refused(answer) => {
                handle.send(Command::CountRefused).await?;
                Ok(Some(answer))
            }
        }
    }
}

/// Waits for a reply, if there is one to come. Cancel-safe.
async fn received(reply: &mut Option<oneshot::Receiver<InsertWait>>) -> Option<InsertWait> {
    let wait = match reply {
        Some(reply) => reply.await.ok(),
        None => std::future::pending().await,
    };
    *reply = None;
    wait
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}
