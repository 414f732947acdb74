//! Queues requests for the evaluators: forms batches, and rejects requests that would be answered too late.
//!
//! Time is an argument: a [`Duration`] since an instant that the owner chose. The queue itself does not wait, lock or
//! evaluate; the owner calls [`Queue::push`] for each request and [`Queue::next`] when an evaluator is free. Start
//! with [`Queue`].

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use run_file::inference::InferenceSection;

use crate::rejection::Rejection;

/// The batching rules of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// Maximum number of positions in a batch. A larger request becomes a separate batch.
    pub batch_max: usize,
    /// Maximum time for which a request waits, while an evaluator is free, for other requests to share a batch; zero
    /// for no wait.
    pub delay: Duration,
    /// Maximum number of waiting positions.
    pub waiting_max: usize,
    /// Number of batches evaluated concurrently.
    pub evaluators: usize,
}

impl QueueSettings {
    /// Returns the queue settings for `evaluators` evaluators.
    #[must_use]
    pub fn of(section: &InferenceSection, evaluators: usize) -> Self {
        Self {
            // Used until an evaluator reports a preferred size.
            batch_max: section.batch_max.max(1),
            delay: Duration::from_micros(section.queue_delay_us),
            waiting_max: section.waiting_positions_max,
            evaluators,
        }
    }
}

/// Divisor that gives the safety margin: a request is accepted if the deadline leaves time for the expected wait plus
/// 1/`MARGIN` of that wait, since batches differ and answers take time to send.
const MARGIN: u32 = 2;

/// Positions of one client to evaluate together.
#[derive(Debug)]
pub struct Request<T> {
    /// Number of the client. Every client gets an equal part of every batch.
    pub client: u64,
    /// Key of the weights to evaluate with, equal for all requests of a batch.
    pub weights: u64,
    /// Number of positions.
    pub positions: usize,
    /// Deadline of the answer.
    pub deadline: Option<Duration>,
    /// Data that the owner attaches to the request.
    pub payload: T,
}

/// The reason for dispatching a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The batch was full, so that no further request would have fitted.
    Full,
    /// The oldest request had waited for the maximum time.
    Delay,
    /// An evaluator was free, and no request is worth waiting for.
    Idle,
}

/// The next action of a free evaluator.
#[derive(Debug)]
pub enum Next<T> {
    /// Evaluate a batch of requests.
    Batch {
        /// Requests, in turn order; never empty.
        requests: Vec<Request<T>>,
        /// The reason for the dispatch.
        reason: Reason,
    },
    /// Wait until this time, or until a request arrives.
    Wait(Option<Duration>),
}

/// A queue of requests from many clients, served by deficit round robin.
///
/// In deficit round robin (Shreedhar and Varghese 1995), each client may add the same number of positions to a batch,
/// in whole requests. If the client's next request has more positions than that, the client keeps the unused number for
/// the next turn.
#[derive(Debug)]
pub struct Queue<T> {
    settings: QueueSettings,
    /// Clients with requests or reserved positions.
    clients: HashMap<u64, Client<T>>,
    /// Clients with requests, in turn order.
    turns: VecDeque<u64>,
    waiting: usize,
    /// Sum of the reserved positions of all clients.
    reserved: usize,
    in_flight: usize,
    pace: Pace,
}

#[derive(Debug)]
struct Client<T> {
    requests: VecDeque<(Duration, Request<T>)>,
    /// Number of positions in the requests.
    waiting: usize,
    /// Number of positions in requests for weights versions that have not arrived.
    reserved: usize,
    /// Number of positions that the client may add to a batch before the next client has a turn.
    credit: usize,
}

impl<T> Client<T> {
    fn empty() -> Self {
        Self { requests: VecDeque::new(), waiting: 0, reserved: 0, credit: 0 }
    }
}

/// The speed of an evaluator, from recent batches.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    positions: f64,
    seconds: f64,
}

impl Pace {
    /// Factor by which earlier batches are weighted down with each new batch, which averages over about thirty batches.
    const KEPT: f64 = 0.97;

    fn add(&mut self, positions: usize, took: Duration) {
        self.positions = self.positions * Self::KEPT + positions as f64;
        self.seconds = self.seconds * Self::KEPT + took.as_secs_f64();
    }

    /// Returns the seconds per position of one evaluator; 0 before the first measured batch.
    fn seconds_per_position(self) -> f64 {
        if self.positions > 0.0 { self.seconds / self.positions } else { 0.0 }
    }
}

impl<T> Queue<T> {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            clients: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            reserved: 0,
            in_flight: 0,
            pace: Pace::default(),
        }
    }

    /// Sets the maximum number of positions in later batches.
    pub fn set_batch_max(&mut self, batch_max: usize) {
        self.settings.batch_max = batch_max;
    }

    /// Returns the maximum number of positions in a batch.
    #[must_use]
    pub fn batch_max(&self) -> usize {
        self.settings.batch_max
    }

    /// Returns the number of waiting positions.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Counts the positions of a request of client `id` that cannot be queued yet as waiting, until they are
    /// [released](Self::release).
    ///
    /// # Errors
    /// [`Rejection::Full`].
    pub fn reserve(&mut self, id: u64, positions: usize) -> Result<(), Rejection> {
        self.check_room(id, positions)?;
        self.clients.entry(id).or_insert_with(Client::empty).reserved += positions;
        self.reserved += positions;
        Ok(())
    }

    /// Stops counting reserved positions of a client.
    pub fn release(&mut self, id: u64, positions: usize) {
        self.reserved = self.reserved.saturating_sub(positions);
        // Many requests that wait for a version release their positions at once: look at this client alone.
        if let Some(client) = self.clients.get_mut(&id) {
            client.reserved = client.reserved.saturating_sub(positions);
            if client.reserved == 0 && client.requests.is_empty() {
                self.clients.remove(&id);
            }
        }
    }

    fn check_room(&self, id: u64, positions: usize) -> Result<(), Rejection> {
        let (held, most) = (self.waiting + self.reserved, self.settings.waiting_max);
        let client = self.clients.get(&id);
        let others = self.clients.len() - usize::from(client.is_some());
        let own = client.map_or(0, |client| client.waiting + client.reserved) + positions;
        // A client within the equal share is also accepted by a queue that the other clients have filled.
        let is_within_share = own * (others + 1) <= most && held + positions <= 2 * most;
        // An empty queue accepts a request of any size: there would never be more capacity.
        if held == 0 || held + positions <= most || is_within_share {
            return Ok(());
        }
        Err(Rejection::Full { retry_after: self.expected(self.waiting, 0) })
    }

    /// Returns the expected wait for a request of `positions` positions that arrives now, after `waiting` positions in
    /// the queue; zero before the first measured batch.
    #[must_use]
    pub fn expected(&self, waiting: usize, positions: usize) -> Duration {
        let ahead = (waiting + self.in_flight) as f64 / self.settings.evaluators.max(1) as f64;
        Duration::try_from_secs_f64((ahead + positions as f64) * self.pace.seconds_per_position())
            .unwrap_or(Duration::MAX)
    }

    /// Adds the parts of one request: all of them or none.
    ///
    /// # Errors
    /// [`Rejection`] if the queue is full or the answer would be too late.
    pub fn push(&mut self, parts: Vec<Request<T>>, now: Duration) -> Result<(), Rejection> {
        let Some(&Request { client: id, deadline, .. }) = parts.first() else { return Ok(()) };
        let positions: usize = parts.iter().map(|part| part.positions).sum();
        self.check_room(id, positions)?;
        let before = self.clients.get(&id).map_or(0, |client| client.waiting);
        let (others, own) = (self.turns.len() - usize::from(before > 0), before + positions);
        // In turns, each other client adds as many positions as this client, in whole requests.
        let ahead = self.waiting.min(own * (others + 1) + self.settings.batch_max);
        let expected = self.expected(ahead, positions);
        if let Some(deadline) = deadline
            && now.saturating_add(expected + expected / MARGIN) > deadline
        {
            // By then half of the positions ahead are evaluated.
            return Err(Rejection::Late { expected, retry_after: expected / 2 });
        }
        self.waiting += positions;
        let client = self.clients.entry(id).or_insert_with(Client::empty);
        if client.requests.is_empty() {
            client.credit = 0;
            self.turns.push_back(id);
        }
        client.waiting = own;
        client.requests.extend(parts.into_iter().map(|part| (now, part)));
        Ok(())
    }

    /// Returns the next step for a free evaluator. The caller reports each batch as [`done`](Self::done).
    pub fn next(&mut self, now: Duration) -> Next<T> {
        let Some(first) = self.first() else { return Next::Wait(None) };
        let (since, weights) = (first.0, first.1.weights);
        let due = self.oldest().unwrap_or(since).saturating_add(self.settings.delay);
        let is_full = self.waiting >= self.settings.batch_max;
        if !is_full && now < due {
            return Next::Wait(Some(due));
        }
        let requests = self.take(weights);
        let positions: usize = requests.iter().map(|request| request.positions).sum();
        self.waiting -= positions;
        self.in_flight += positions;
        let reason = match () {
            () if positions >= self.settings.batch_max || (is_full && self.waiting > 0) => Reason::Full,
            () if self.settings.delay > Duration::ZERO => Reason::Delay,
            () => Reason::Idle,
        };
        Next::Batch { requests, reason }
    }

    /// Records that a batch of `positions` took `took`, or failed if `took` is `None`.
    pub fn done(&mut self, positions: usize, took: Option<Duration>) {
        self.in_flight = self.in_flight.saturating_sub(positions);
        if let Some(took) = took {
            self.pace.add(positions, took);
        }
    }

    /// Removes the requests that are past the deadline or for which `is_wanted` returns false, so that nothing waits
    /// for the answer.
    pub fn remove(&mut self, now: Duration, mut is_wanted: impl FnMut(&T) -> bool) -> Vec<Request<T>> {
        let mut removed = Vec::new();
        for client in self.clients.values_mut() {
            for _ in 0..client.requests.len() {
                let Some((since, request)) = client.requests.pop_front() else { break };
                if request.deadline.is_some_and(|deadline| deadline <= now) || !is_wanted(&request.payload) {
                    self.waiting -= request.positions;
                    client.waiting -= request.positions;
                    removed.push(request);
                } else {
                    client.requests.push_back((since, request));
                }
            }
        }
        self.remove_idle_clients();
        removed
    }

    /// Removes and returns all requests.
    pub fn clear(&mut self) -> Vec<Request<T>> {
        self.turns.clear();
        self.waiting = 0;
        self.clients.drain().flat_map(|(_, client)| client.requests).map(|(_, request)| request).collect()
    }

    /// Returns the next request in turn order.
    fn first(&self) -> Option<&(Duration, Request<T>)> {
        self.turns.front().and_then(|id| self.clients.get(id)).and_then(|client| client.requests.front())
    }

    /// Returns the arrival time of the oldest request; requests of one client are in order.
    fn oldest(&self) -> Option<Duration> {
        self.clients.values().filter_map(|client| client.requests.front()).map(|(since, _)| *since).min()
    }

    /// Takes requests for `weights` into one batch, in turn order.
    fn take(&mut self, weights: u64) -> Vec<Request<T>> {
        let share = (self.settings.batch_max / self.turns.len().max(1)).max(1);
        let (mut taken, mut room) = (Vec::new(), self.settings.batch_max);
        let mut credit = Some(share);
        while let Some(more) = credit.take() {
            for id in &self.turns {
                let Some(client) = self.clients.get_mut(id) else { continue };
                client.credit = client.credit.saturating_add(more);
                while let Some((_, request)) = client.requests.front()
                    && request.weights == weights
                    && (request.positions <= room || taken.is_empty())
                {
                    if request.positions > client.credit {
                        // The client gets another turn in this batch, once the credit suffices for the first such
                        // request.
                        let lacks = (request.positions - client.credit).max(share);
                        credit = Some(credit.map_or(lacks, |least| least.min(lacks)));
                        break;
                    }
                    let Some((_, request)) = client.requests.pop_front() else { break };
                    client.credit -= request.positions;
                    client.waiting -= request.positions;
                    room = room.saturating_sub(request.positions);
                    taken.push(request);
                }
            }
            if room == 0 {
                break;
            }
        }
        // Saved credit is for one request that did not fit, not for many later requests, so it is limited to a batch.
        let most = self.settings.batch_max;
        self.clients.values_mut().for_each(|client| client.credit = client.credit.min(most));
        // The first client of this batch is the last of the next batch.
        self.turns.rotate_left(1);
        self.remove_idle_clients();
        taken
    }

    fn remove_idle_clients(&mut self) {
        self.clients.retain(|_, client| !client.requests.is_empty() || client.reserved > 0);
        let clients = &self.clients;
        self.turns.retain(|id| clients.get(id).is_some_and(|client| !client.requests.is_empty()));
    }
}

#[cfg(test)]
mod tests;
