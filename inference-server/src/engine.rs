//! Runs the evaluating threads behind a queue. Threads and tokio interact only in this file.
//!
//! The holder of a [`Handle`] sends requests. Requests from all connections wait in one queue, and an idle thread
//! takes requests that share a batch. A request holds the evaluating version, so later weights do not affect it.
//! Start with [`Handle::evaluate`].

mod counts;

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use game::ObservationShape;
use inference::{Batch, Error, Predictions};
use parking_lot::{Condvar, Mutex};
use proto::limits::request_positions_max;
use service::{Drain, Health};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

pub use counts::Counts;

use crate::metrics::{self, Pending};
use crate::queue::{Next, Queue, QueueSettings, Reason, Request};
use crate::rejection::Rejection;
use crate::versions::{Version, Versions};

#[cfg(test)]
pub(crate) mod tests;

/// Interval between scans of the queue for requests without a receiver.
const SWEEP_INTERVAL: Duration = Duration::from_millis(5);

/// Time after which a thread with a batch counts as stalled. The first batch on an accelerator takes seconds.
const STALLED_AFTER: Duration = Duration::from_secs(300);

/// Number of versions after the latest for which a request may wait. One would not suffice, since versions that are
/// published while the server loads another are skipped.
const VERSIONS_AHEAD_MAX: u64 = 16;

/// Positions to evaluate, with a deadline.
#[derive(Debug, Clone)]
pub struct EvalRequest {
    /// Number of the client. Every client gets an equal part of every batch.
    pub client: u64,
    /// Required weights version; `None` for the latest. A request for one of the next few versions waits until it
    /// arrives, at most for the configured time.
    pub version: Option<u64>,
    /// Positions, at least one.
    pub batch: Arc<Batch>,
    /// Deadline of the answer; `None` is the configured time limit.
    pub deadline: Option<Instant>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// Weights version that evaluated the positions.
    pub version: u64,
    /// Predictions, in batch order.
    pub predictions: Predictions,
    /// Time in the queue.
    pub queued: Duration,
    /// Duration of the batch.
    pub computed: Duration,
}

/// The game and the served versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Name of the game, which is also the name of the model.
    pub game: String,
    /// Shape of an observation.
    pub shape: ObservationShape,
    /// A, the number of actions.
    pub actions: usize,
    /// Served weights versions, in ascending order.
    pub versions: Vec<u64>,
    /// The latest served version.
    pub newest: u64,
    /// Maximum number of positions in a batch.
    pub batch_max: usize,
    /// Maximum number of positions in a request.
    pub positions_max: usize,
    /// Human-readable name of the evaluator.
    pub evaluator: Arc<str>,
}

/// Sends requests to the evaluating threads. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    versions: Arc<Versions>,
    state: Mutex<State>,
    /// Apart from the queue, which every request locks.
    counts: Mutex<Counts>,
    /// A condition variable, notified when a request arrives or the engine drains.
    wake: Condvar,
    begun: Instant,
    timeout: Duration,
    /// Fires when the engine drains, while the state is locked.
    draining: CancellationToken,
}

#[derive(Debug)]
struct State {
    queue: Queue<Waiting>,
    swept: Duration,
}

/// A request in the queue, or a part of one that is larger than a batch.
#[derive(Debug)]
struct Waiting {
    version: Arc<Version>,
    batch: Arc<Batch>,
    /// The positions of this part.
    range: Range<usize>,
    since: Duration,
    reply: oneshot::Sender<Result<Answer, Rejection>>,
    /// `None` once the request is in a batch, and in all parts but the last.
    _pending: Option<Pending>,
}

impl Handle {
    /// Returns the served model; `None` before the first weights.
    #[must_use]
    pub fn model(&self) -> Option<Model> {
        let newest = self.shared.versions.newest()?;
        Some(Model {
            game: newest.manifest.architecture.game.clone(),
            shape: newest.shape(),
            actions: newest.actions(),
            versions: self.shared.versions.numbers(),
            newest: newest.number(),
            batch_max: self.shared.state.lock().queue.batch_max(),
            positions_max: request_positions_max(newest.shape(), newest.actions()),
            evaluator: Arc::clone(&newest.name),
        })
    }

    /// Waits for the first weights and returns the served model.
    pub async fn served(&self) -> Model {
        let mut newest = self.shared.versions.watch();
        loop {
            newest.mark_unchanged();
            if let Some(model) = self.model() {
                return model;
            }
            // The sender lives as long as this handle.
            let _ = newest.changed().await;
        }
    }

    /// Queues a request and waits for the answer. Dropping the future removes the request from the queue.
    ///
    /// # Errors
    /// [`Rejection`] if there is no answer.
    pub async fn evaluate(&self, request: EvalRequest) -> Result<Answer, Rejection> {
        self.evaluate_with(None, request, None).await
    }

    /// Evaluates like [`evaluate`](Self::evaluate), but with the given weights, if any, in place of the requested
    /// version. With `pauses`, the shortest and the longest, a request that the full queue refuses is repeated after a
    /// pause, and counts once.
    pub(crate) async fn evaluate_with(
        &self,
        version: Option<Arc<Version>>,
        request: EvalRequest,
        pauses: Option<[Duration; 2]>,
    ) -> Result<Answer, Rejection> {
        let deadline = request.deadline.unwrap_or_else(|| Instant::now() + self.shared.timeout);
        let answer = loop {
            let answer = self.evaluate_by(version.clone(), request.clone(), deadline).await;
            if let Err(Rejection::Full { retry_after }) = answer
                && let Some([shortest, longest]) = pauses
                && Instant::now() < deadline
            {
                tokio::time::sleep(retry_after.clamp(shortest, longest)).await;
            } else {
                break answer;
            }
        };
        match &answer {
            Ok(answer) => {
                metrics::answered(answer.predictions.len(), answer.queued);
                self.shared.counts.lock().add_answer(answer.queued, answer.computed);
            }
            Err(rejection) => {
                metrics::rejected(rejection);
                let version = version.or_else(|| self.resident(request.version));
                if let Some(version) = version.or_else(|| self.resident(None)) {
                    version.triton.rejected(rejection);
                }
                let counts = &mut self.shared.counts.lock();
                match rejection {
                    Rejection::Failed(_) => counts.failed += 1,
                    _ => counts.rejected += 1,
                }
            }
        }
        answer
    }

    async fn evaluate_by(
        &self,
        version: Option<Arc<Version>>,
        request: EvalRequest,
        deadline: Instant,
    ) -> Result<Answer, Rejection> {
        if request.batch.is_empty() {
            return Err(Rejection::Shape("the request has no position".to_owned()));
        }
        let version = match version {
            Some(version) => version,
            None => self.version(&request, deadline).await?,
        };
        request
            .batch
            .check(version.shape(), version.actions(), request_positions_max(version.shape(), version.actions()))
            .map_err(|error| Rejection::Shape(error.to_string()))?;
        let parts = self.shared.push(request, &version, deadline)?;
        let (since, is_divided) = (Instant::now(), parts.len() > 1);
        let answers = parts.into_iter().map(|part| async { part.await.unwrap_or(Err(Rejection::Draining)) });
        tokio::select! {
            answers = try_join_all(answers) => {
                let mut answer = joined(answers?);
                if is_divided {
                    // Parts may be evaluated at the same time, and wait between each other.
                    let time = since.elapsed();
                    answer.computed = answer.computed.min(time);
                    answer.queued = time - answer.computed;
                }
                version.triton.answered(answer.queued, answer.computed);
                Ok(answer)
            }
            () = tokio::time::sleep_until(deadline.into()) => Err(Rejection::Expired),
        }
    }

    /// Returns the requested version; waits if it is one of the next versions. Meanwhile, the positions of the
    /// request count as waiting.
    async fn version(&self, request: &EvalRequest, deadline: Instant) -> Result<Arc<Version>, Rejection> {
        let versions = &self.shared.versions;
        let Some(wanted) = request.version else { return versions.newest().ok_or(Rejection::NoModel) };
        let mut newest = versions.watch();
        // The deadline of a client may be years away.
        let deadline = deadline.min(Instant::now() + self.shared.timeout);
        let mut reserved = None;
        loop {
            if let Some(version) = versions.get(wanted) {
                return Ok(version);
            }
            // An older version will not be loaded again, and a version far ahead may never come. Before the first
            // version, any may come.
            let newest_version = *newest.borrow_and_update();
            let may_come = newest_version.is_none_or(|newest| wanted > newest && wanted - newest <= VERSIONS_AHEAD_MAX);
            if may_come && reserved.is_none() {
                reserved = Some(self.shared.reserve(request.client, request.batch.len())?);
            }
            let comes = async { may_come && newest.changed().await.is_ok() };
            let comes = self.shared.draining.run_until_cancelled(comes);
            match tokio::time::timeout_at(deadline.into(), comes).await {
                Ok(Some(true)) => {}
                Ok(None) => return Err(Rejection::Draining),
                _ => return Err(Rejection::UnknownVersion { version: wanted, resident: versions.numbers() }),
            }
        }
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let waiting_positions = self.shared.state.lock().queue.waiting();
        Counts { waiting_positions, ..self.shared.counts.lock().clone() }
    }

    /// Sets the batch limit of a newly loaded version.
    pub(crate) fn loaded(&self, batch_max: usize) {
        self.shared.state.lock().queue.set_batch_max(batch_max);
    }

    /// Returns the version `number`, or the latest version for `None`. Returns `None` if the version is not served now.
    pub(crate) fn resident(&self, number: Option<u64>) -> Option<Arc<Version>> {
        match number {
            Some(number) => self.shared.versions.get(number),
            None => self.shared.versions.newest(),
        }
    }

    /// Returns the keys of the served weights.
    pub(crate) fn keys(&self) -> Vec<u64> {
        self.shared.versions.keys()
    }

    /// Returns the signal on which the engine drains.
    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.shared.draining
    }

    /// Stops the threads and rejects waiting requests.
    pub(crate) fn drain(&self) {
        let mut state = self.shared.state.lock();
        self.shared.draining.cancel();
        for request in state.queue.clear() {
            let _ = request.payload.reply.send(Err(Rejection::Draining));
        }
        self.shared.wake.notify_all();
    }
}

/// The positions of a request for a version that has not arrived yet. They count as waiting until this value is
/// dropped.
struct Reservation<'a> {
    shared: &'a Shared,
    client: u64,
    positions: usize,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().queue.release(self.client, self.positions);
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn reserve(&self, client: u64, positions: usize) -> Result<Reservation<'_>, Rejection> {
        self.state.lock().queue.reserve(client, positions)?;
        Ok(Reservation { shared: self, client, positions })
    }

    /// Queues a request in parts of at most one batch each, so that other clients have turns between the parts of a
    /// large request. Returns the receivers of the answers, in order.
    fn push(
        &self,
        EvalRequest { client, batch, .. }: EvalRequest,
        version: &Arc<Version>,
        deadline: Instant,
    ) -> Result<Vec<oneshot::Receiver<Result<Answer, Rejection>>>, Rejection> {
        let (since, weights) = (self.now(), version.key());
        let deadline = Some(deadline.saturating_duration_since(self.begun));
        // The parts are allocated without the lock, for which other requests and the evaluators wait.
        let part_max = self.state.lock().queue.batch_max().max(1);
        let part = |start: usize| {
            let (reply, answer) = oneshot::channel();
            let range = start..batch.len().min(start + part_max);
            let (version, batch, positions) = (Arc::clone(version), Arc::clone(&batch), range.len());
            // The last part of a request is the last to leave the queue.
            let pending = (range.end == batch.len()).then(|| version.triton.pending());
            let payload = Waiting { version, batch, range, since, reply, _pending: pending };
            (Request { client, weights, positions, deadline, payload }, answer)
        };
        let (parts, answers) = (0..batch.len()).step_by(part_max).map(part).unzip();
        let mut state = self.state.lock();
        if self.draining.is_cancelled() {
            return Err(Rejection::Draining);
        }
        state.queue.push(parts, since)?;
        let waiting = state.queue.waiting();
        drop(state);
        self.wake.notify_all();
        metrics::waiting(waiting);
        Ok(answers)
    }

    /// Waits for the next batch; `None` once the engine drains.
    fn take(&self) -> Option<(Vec<Request<Waiting>>, Reason)> {
        let mut state = self.state.lock();
        loop {
            if self.draining.is_cancelled() {
                return None;
            }
            let now = self.now();
            if now.saturating_sub(state.swept) >= SWEEP_INTERVAL {
                state.swept = now;
                for request in state.queue.remove(now, |waiting| !waiting.reply.is_closed()) {
                    let _ = request.payload.reply.send(Err(Rejection::Expired));
                }
                metrics::waiting(state.queue.waiting());
            }
            match state.queue.next(now) {
                Next::Batch { requests, reason } => {
                    let waiting = state.queue.waiting();
                    drop(state);
                    if waiting > 0 {
                        self.wake.notify_one();
                    }
                    metrics::waiting(waiting);
                    return Some((requests, reason));
                }
                Next::Wait(None) => self.wake.wait(&mut state),
                Next::Wait(Some(until)) => {
                    let _ = self.wake.wait_for(&mut state, until.saturating_sub(now));
                }
            }
        }
    }
}

/// The evaluating threads.
#[derive(Debug)]
pub(crate) struct Engine {
    threads: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Starts one thread per evaluator in `queue.evaluators`; all threads stop when the handle drains. `drain` fires
    /// if a thread stops for any other reason.
    pub(crate) fn start(
        versions: Arc<Versions>,
        queue: QueueSettings,
        timeout: Duration,
        drain: &Drain,
        health: &Health,
    ) -> anyhow::Result<(Self, Handle)> {
        let count = queue.evaluators;
        let state = State { queue: Queue::new(queue), swept: Duration::ZERO };
        let (state, wake, begun) = (Mutex::new(state), Condvar::new(), Instant::now());
        let shared = Arc::new(Shared {
            versions,
            state,
            counts: Mutex::default(),
            wake,
            begun,
            timeout,
            draining: CancellationToken::new(),
        });
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            // If one thread stops, the process drains: running with fewer threads would hide a bug.
            let (shared, ends_together) = (Arc::clone(&shared), drain.token().drop_guard());
            let beats = health.heartbeat("evaluate", STALLED_AFTER);
            let work = move || {
                let _ends_together = ends_together;
                let _beats = beats.of_thread();
                Evaluating { shared, index, merged: None, predictions: Predictions::new() }.run();
            };
            let builder = std::thread::Builder::new().name(format!("evaluate-{index}"));
            threads.push(builder.spawn(work).context("start an evaluator thread")?);
        }
        Ok((Self { threads }, Handle { shared }))
    }

    /// Waits for all threads, after [`Handle::drain`].
    pub(crate) fn join(self) -> anyhow::Result<()> {
        // All threads are joined, even if the first panicked.
        let joined: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        ensure!(joined.iter().all(Result::is_ok), "an evaluator thread panicked");
        Ok(())
    }
}

/// The state of one evaluating thread.
struct Evaluating {
    shared: Arc<Shared>,
    index: usize,
    /// The merged batch, reused whenever several requests share a batch.
    merged: Option<Batch>,
    predictions: Predictions,
}

impl Evaluating {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while let Some((requests, reason)) = service::waiting(|| shared.take()) {
            self.evaluate(requests, reason);
        }
    }

    fn evaluate(&mut self, requests: Vec<Request<Waiting>>, reason: Reason) {
        let positions: usize = requests.iter().map(|request| request.positions).sum();
        let dequeued = |request: Request<Waiting>| Waiting { _pending: None, ..request.payload };
        let (waiting, begun): (Vec<Waiting>, _) = (requests.into_iter().map(dequeued).collect(), self.shared.now());
        let Some(version) = waiting.first().map(|first| Arc::clone(&first.version)) else { return };
        let result = match waiting.as_slice() {
            [only] if only.range.len() == only.batch.len() => {
                version.evaluator(self.index).lock().evaluate(&only.batch, &mut self.predictions)
            }
            several => {
                let merged = merge(&mut self.merged, version.shape(), several);
                version.evaluator(self.index).lock().evaluate(merged, &mut self.predictions)
            }
        };
        let computed = self.shared.now().saturating_sub(begun);
        self.shared.state.lock().queue.done(positions, result.is_ok().then_some(computed));
        metrics::batch(positions, reason, computed);
        match result {
            Ok(()) => {
                self.shared.counts.lock().add_batch(positions, reason, computed);
                version.triton.batch(positions);
                self.answer(waiting, &version, begun, computed);
            }
            Err(error @ Error::Lost { .. }) => service::device_loss::end(&error),
            Err(error) => fail(waiting, &error),
        }
    }

    /// Sends each request the corresponding part of the predictions.
    fn answer(&mut self, waiting: Vec<Waiting>, version: &Version, begun: Duration, computed: Duration) {
        let mut next = 0;
        let is_alone = waiting.len() == 1;
        for Waiting { range, since, reply, .. } in waiting {
            let predictions = if is_alone {
                std::mem::take(&mut self.predictions)
            } else {
                let mut predictions = Predictions::new();
                predictions.extend_from(&self.predictions, next..next + range.len());
                predictions
            };
            next += range.len();
            let queued = begun.saturating_sub(since);
            // The caller may have stopped waiting.
            let _ = reply.send(Ok(Answer { version: version.number(), predictions, queued, computed }));
        }
    }
}

fn merge<'a>(merged: &'a mut Option<Batch>, shape: ObservationShape, waiting: &[Waiting]) -> &'a Batch {
    if merged.as_ref().is_none_or(|batch| batch.shape() != shape) {
        *merged = None;
    }
    let merged = merged.get_or_insert_with(|| Batch::new(shape));
    merged.clear();
    for Waiting { batch, range, .. } in waiting {
        merged.extend_from(batch, range.clone());
    }
    merged
}

/// Merges the answers to the parts of a request.
fn joined(parts: Vec<Answer>) -> Answer {
    let joined = parts.into_iter().reduce(|mut all, part| {
        all.predictions.extend_from(&part.predictions, 0..part.predictions.len());
        all.computed += part.computed;
        all
    });
    joined.expect("a request has a position, and so a part")
}

fn fail(waiting: Vec<Waiting>, error: &Error) {
    tracing::error!(%error, requests = waiting.len(), "cannot evaluate a batch");
    for waiting in waiting {
        let _ = waiting.reply.send(Err(Rejection::Failed(error.to_string())));
    }
}
