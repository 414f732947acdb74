use std::future::ready;
use std::task::Poll;

use experience::Trajectory;
use futures::{StreamExt as _, pending, poll};
use proto::replay::{InsertWait, v1};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::unconstrained;
use tokio::time::Instant;
use tokio_util::sync::PollSemaphore;
use tonic::{Status, Streaming};
use transport::reconnect::until;
use transport::security::Caller;

use super::{Answers, ReplayService};
use crate::clients::Share;
use crate::insert_stream::{INSERT_CREDIT, InsertStream, Looked, Received};
use crate::log::{EncodedTrajectory, UnixMillis};
use crate::table_service::{Command, InsertReply, Inserted};

/// The call of one actor; drives an [`InsertStream`].
pub(super) struct InsertCall {
    inbound: Streaming<v1::InsertRequest>,
    stream: InsertStream,
    service: ReplayService,
    answer: mpsc::Sender<Inserted>,
    answers: mpsc::Receiver<Inserted>,
    /// The credits of the client; `None` without a limit.
    credits: Option<PollSemaphore>,
    /// The trajectory waiting for a credit, with its content and the time of its insert.
    uncredited: Option<(Trajectory, EncodedTrajectory, UnixMillis)>,
    share: Share,
    /// The pending reply with the reason why inserts wait.
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
        let share = service.clients.share(caller.name());
        let credits = share.credits().map(PollSemaphore::new);
        let stream = InsertStream::new(&service.settings, actors, quota, caller, address, now());
        // Capacity for all unanswered trajectories: the table service never finds the channel full.
        let (answer, answers) = mpsc::channel(INSERT_CREDIT as usize);
        let (uncredited, wait) = (None, None);
        Self { inbound, stream, service, answer, answers, credits, uncredited, share, wait, _permit: permit }
    }

    pub(super) fn answers(self) -> Answers<v1::InsertResponse> {
        Box::pin(futures::stream::try_unfold(self, async |mut call| {
            // Without `unconstrained`, tokio would end each turn after some forty messages, of any stream.
            let answer = unconstrained(call.next()).await?;
            call.share.pause().await;
            // A client that does not read the responses stops here.
            call.share.end_turn();
            Ok::<_, Status>(answer.map(|answer| (answer, call)))
        }))
    }

    /// Returns the next response; an error or `None` ends the stream.
    async fn next(&mut self) -> Result<Option<v1::InsertResponse>, Status> {
        loop {
            if let Some(end) = self.stream.end() {
                return end.map(|()| None);
            }
            self.share.pause().await;
            let (quota_wait, next_look) = (self.stream.quota_wait(), self.stream.next_look());
            tokio::select! {
                biased;
                Some(inserted) = self.answers.recv() => if let Some(answer) = self.stream.inserted(inserted)? {
                    return Ok(Some(answer));
                },
                () = self.service.drain.cancelled(), if self.stream.is_open() => self.stream.drain(),
                credit = credit(&mut self.credits), if self.uncredited.is_some() => self.insert(credit).await?,
                () = until(quota_wait.map(Instant::from_std)) => self.stream.proceed(),
                // Nothing of this stream can be handled now.
                () = ready(()), if !self.stream.reads() && self.share.has_turn() => self.share.end_turn(),
                message = message(&mut self.inbound, &mut self.share), if self.stream.reads() => match message? {
                    None => self.stream.client_ended(),
                    Some(message) => if let Some(response) = self.receive(message).await? {
                        return Ok(Some(response));
                    }
                },
                Some(wait) = received(&mut self.wait) => if let Some(waiting) = self.stream.waiting(wait) {
                    return Ok(Some(waiting));
                },
                () = until(next_look.map(Instant::from_std)) => match self.stream.look(now())? {
                    // While the tables have not replied, nothing is sent to the client.
                    Looked::FindWait if self.wait.is_none() => self.wait = self.service.handle.ask(Command::InsertWait),
                    Looked::FindWait | Looked::Nothing => {}
                },
            }
        }
    }

    /// Stores the trajectory that waited for `credit`.
    async fn insert(&mut self, credit: Option<OwnedSemaphorePermit>) -> Result<(), Status> {
        self.stream.await_credit(false);
        let Some((trajectory, content, inserted)) = self.uncredited.take() else { return Ok(()) };
        let reply = InsertReply::new(self.answer.clone(), credit);
        Ok(self.service.handle.send(Command::Insert { trajectory, content, inserted, reply }).await?)
    }

    async fn receive(&mut self, message: v1::InsertRequest) -> Result<Option<v1::InsertResponse>, Status> {
        self.share.handled(match &message.message {
            Some(v1::insert_request::Message::Trajectory(trajectory)) => trajectory.columns.len(),
            _ => 0,
        });
        let handle = &self.service.handle;
        match self.stream.receive(message, now(), UnixMillis::now())? {
            Received::Nothing => Ok(None),
            Received::Hello(origin) => {
                self.share.end_turn();
                let highest = handle.request(|reply| Command::HighestEpoch(origin.actor, reply)).await?;
                Ok(Some(self.stream.ready(highest)))
            }
            Received::Insert { trajectory, content, inserted } => {
                self.uncredited = Some((trajectory, content, inserted));
                self.stream.await_credit(true);
                Ok(None)
            }
            Received::Refused(answer) => {
                handle.send(Command::CountRefused).await?;
                Ok(Some(answer))
            }
        }
    }
}

/// Receives the next message during a turn of the client. Cancel-safe.
async fn message(
    inbound: &mut Streaming<v1::InsertRequest>,
    share: &mut Share,
) -> Result<Option<v1::InsertRequest>, Status> {
    loop {
        share.begin_turn().await;
        if let Poll::Ready(message) = poll!(inbound.next()) {
            return message.transpose();
        }
        share.end_turn();
        // The poll has left the waker.
        pending!();
    }
}

/// Waits for a credit, if there is a limit. Cancel-safe.
async fn credit(credits: &mut Option<PollSemaphore>) -> Option<OwnedSemaphorePermit> {
    let credits = credits.as_mut()?;
    std::future::poll_fn(|cx| credits.poll_acquire(cx)).await
}

/// Waits for the pending reply; forever if there is none. Cancel-safe.
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
