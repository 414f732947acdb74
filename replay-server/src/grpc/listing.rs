//! Sends a list of ids. The list occupies memory, and blocks other lists, until the client has read it or the time
//! limit passes. A stream without a reader is not polled, so only a separate task can release them.

use std::time::Duration;

use experience::TrajectoryId;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use proto::replay::v1;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Status;

use super::Answers;

/// Number of ids in one message.
const PART_IDS: usize = 1024;

/// Time limit for reading the list, enough for ten million ids over a slow link.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A message from the task to the connection; `None` once every id has been read.
type Part = Option<Vec<TrajectoryId>>;

/// Returns a stream of `ids`; releases `turn` once they are read.
pub(super) fn send(ids: Vec<TrajectoryId>, turn: OwnedSemaphorePermit) -> Answers<v1::TrajectoryId> {
    let (sender, parts) = mpsc::channel(1);
    let mut sending = JoinSet::new();
    // After the time limit the sender is dropped, which shows the connection that the list is incomplete.
    sending.spawn(async move { drop(timeout(TIME_LIMIT, send_parts(ids, turn, sender)).await) });
    // The task is aborted with the stream, which holds it.
    let answers = stream::try_unfold((parts, sending), |(mut parts, sending)| async move {
        let late = || format!("the client did not read the list within {} s", TIME_LIMIT.as_secs());
        let part: Part = parts.recv().await.ok_or_else(|| Status::deadline_exceeded(late()))?;
        let answer = |id| Ok::<_, Status>(v1::TrajectoryId::from(id));
        Ok::<_, Status>(part.map(|ids| (stream::iter(ids).map(answer), (parts, sending))))
    });
    Box::pin(answers.try_flatten())
}

async fn send_parts(ids: Vec<TrajectoryId>, turn: OwnedSemaphorePermit, sender: mpsc::Sender<Part>) {
    for part in ids.chunks(PART_IDS) {
        // A client that has left reads no more.
        if sender.send(Some(part.to_vec())).await.is_err() {
            return;
        }
    }
    drop((ids, turn));
    drop(sender.send(None).await);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use tonic::Code;

    use super::*;

    fn ids(count: u64) -> Vec<TrajectoryId> {
        (0..count).map(|sequence| TrajectoryId { actor: 1, epoch: 1, sequence }).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_keeps_its_turn_until_it_is_read() {
        let turns = Arc::new(Semaphore::new(1));
        let mut answers = send(ids(5000), Arc::clone(&turns).acquire_owned().await.unwrap());
        for sequence in 0..5000 {
            assert_eq!(answers.next().await.unwrap().unwrap().sequence, sequence);
            // The last parts may still be under way.
            assert!(sequence > 2000 || turns.available_permits() == 0, "{sequence}");
        }
        assert!(answers.next().await.is_none());
        assert_eq!(turns.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_list_loses_its_turn() {
        let turns = Arc::new(Semaphore::new(1));
        let mut answers = send(ids(5000), Arc::clone(&turns).acquire_owned().await.unwrap());
        let start = tokio::time::Instant::now();
        // The next list waits for the turn, and the test clock runs meanwhile.
        drop(Arc::clone(&turns).acquire_owned().await.unwrap());
        assert!(start.elapsed() < 2 * TIME_LIMIT, "{:?}", start.elapsed());
        let (mut read, mut status) = (0, None);
        while let Some(answer) = answers.next().await {
            read += 1;
            status = answer.err();
        }
        // A partial list is not mistaken for a complete list.
        assert_eq!(status.map(|status| status.code()), Some(Code::DeadlineExceeded));
        assert!(read < 5000, "{read}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_gives_its_turn_back() {
        let turns = Arc::new(Semaphore::new(1));
        let answers = send(ids(5000), Arc::clone(&turns).acquire_owned().await.unwrap());
        drop(answers);
        let start = tokio::time::Instant::now();
        drop(turns.acquire().await.unwrap());
        assert!(start.elapsed() < TIME_LIMIT);
    }
}
