//! The queue before the evaluators: forms batches, and rejects requests whose answer would come too late.
//!
//! Time is an argument: a [`Duration`] since an instant that the owner chose. The queue itself does not wait, lock or
//! evaluate; the owner calls [`Queue::push`] for each request and [`Queue::next`] when an evaluator is free. Start with
//! [`Queue`].

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::config::InferenceSection;
use crate::rejection::Rejection;

/// The rules by which a queue forms batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// The maximum number of positions in a batch. A larger request is evaluated as a separate batch.
    pub batch_max: usize,
    /// The time for which a request may wait for others to share its batch while an evaluator is free; with zero it
    /// does not wait.
    pub delay: Duration,
    /// The maximum number of waiting positions.
    pub waiting_max: usize,
    /// The number of batches evaluated concurrently.
    pub evaluators: usize,
}

impl QueueSettings {
    /// Returns the settings of the queue for the given number of evaluators.
    #[must_use]
    pub fn of(section: &InferenceSection, evaluators: usize) -> Self {
        Self {
            // The value is used until an evaluator reports its preferred size.
            batch_max: section.batch_max.max(1),
            delay: Duration::from_micros(section.queue_delay_us),
            waiting_max: section.waiting_positions_max,
            evaluators,
        }
    }
}

/// The divisor of the expected wait that yields the margin: a request is accepted if its deadline is later than the
/// expected wait plus this fraction of it, because batches differ, and answers take time to send.
const MARGIN: u32 = 2;

/// Positions of one client to evaluate together.
#[derive(Debug)]
pub struct Request<T> {
    /// The client: each client gets the same share of every batch.
    pub client: u64,
    /// The key of the weights that must answer; all requests of a batch have the same one.
    pub weights: u64,
    /// The number of positions.
    pub positions: usize,
    /// The deadline of the answer.
    pub deadline: Option<Duration>,
    /// The owner's data.
    pub payload: T,
}

/// The reason for which a batch was dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The batch was full: no further request fits.
    Full,
    /// The oldest of its requests had waited for the maximum time.
    Delay,
    /// An evaluator was free, and no request is worth waiting for.
    Idle,
}

/// The next action of a free evaluator.
#[derive(Debug)]
pub enum Next<T> {
    /// Evaluate a batch of requests.
    Batch {
        /// The requests, in the order of their turns; never empty.
        requests: Vec<Request<T>>,
        /// The reason for the dispatch.
        reason: Reason,
    },
    /// Wait until the given time, or until a request arrives.
    Wait(Option<Duration>),
}

/// A queue of the requests of many clients, served by deficit round robin.
///
/// In deficit round robin (Shreedhar and Varghese 1995) each client may put the same number of positions into a batch,
/// in whole requests; if its next request is larger than its share, the unused share is kept for its next turn.
#[derive(Debug)]
pub struct Queue<T> {
    settings: QueueSettings,
    clients: HashMap<u64, Client<T>>,
    /// The clients that have requests, in the order of their turns.
    turns: VecDeque<u64>,
    waiting: usize,
    /// The positions of requests whose weights version has not arrived.
    reserved: usize,
    in_flight: usize,
    pace: Pace,
}

#[derive(Debug)]
struct Client<T> {
    requests: VecDeque<(Duration, Request<T>)>,
    /// The number of positions the client may put into a batch before the turn of the next client.
    credit: usize,
}

/// The speed of an evaluator, from recent batches.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    positions: f64,
    seconds: f64,
}

impl Pace {
    /// The weight of earlier batches when a batch is added, equivalent to an average over about thirty batches.
    const KEPT: f64 = 0.97;

    fn add(&mut self, positions: usize, took: Duration) {
        self.positions = self.positions * Self::KEPT + positions as f64;
        self.seconds = self.seconds * Self::KEPT + took.as_secs_f64();
    }

    /// Returns the seconds per position of one evaluator; 0 until a batch was measured.
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

    /// Sets the maximum number of positions in a batch from now on.
    pub fn set_batch_max(&mut self, batch_max: usize) {
        self.settings.batch_max = batch_max;
    }

    /// Returns the maximum number of positions in a batch.
    #[must_use]
    pub fn batch_max(&self) -> usize {
        self.settings.batch_max
    }

    /// The number of waiting positions.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Counts the positions of a request that cannot be queued yet, until they are [released](Self::release).
    ///
    /// # Errors
    /// [`Rejection::Full`].
    pub fn reserve(&mut self, positions: usize) -> Result<(), Rejection> {
        self.check_room(positions)?;
        self.reserved += positions;
        Ok(())
    }

    /// Counts reserved positions no longer.
    pub fn release(&mut self, positions: usize) {
        self.reserved = self.reserved.saturating_sub(positions);
    }

    fn check_room(&self, positions: usize) -> Result<(), Rejection> {
        // With an empty queue a request of any size is accepted: there would never be more capacity.
        let held = self.waiting + self.reserved;
        if held > 0 && held + positions > self.settings.waiting_max {
            return Err(Rejection::Full { retry_after: self.expected(0) });
        }
        Ok(())
    }

    /// Returns the expected wait of a request for `positions` that arrives now; zero until a batch was measured.
    #[must_use]
    pub fn expected(&self, positions: usize) -> Duration {
        let ahead = (self.waiting + self.in_flight) as f64 / self.settings.evaluators.max(1) as f64;
        Duration::try_from_secs_f64((ahead + positions as f64) * self.pace.seconds_per_position())
            .unwrap_or(Duration::MAX)
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`Rejection`], with the request, if the queue is full or the answer would be too late.
    pub fn push(&mut self, request: Request<T>, now: Duration) -> Result<(), (Rejection, Request<T>)> {
        if let Err(full) = self.check_room(request.positions) {
            return Err((full, request));
        }
        let expected = self.expected(request.positions);
        if let Some(deadline) = request.deadline
            && now.saturating_add(expected + expected / MARGIN) > deadline
        {
            // By then half of the positions ahead of it are evaluated.
            return Err((Rejection::Late { expected, retry_after: expected / 2 }, request));
        }
        self.waiting += request.positions;
        let (id, turns) = (request.client, &mut self.turns);
        let client = self.clients.entry(id).or_insert_with(|| {
            turns.push_back(id);
            Client { requests: VecDeque::new(), credit: 0 }
        });
        client.requests.push_back((now, request));
        Ok(())
    }

    /// Returns the next step of a free evaluator. The caller reports each batch as [`done`](Self::done).
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

    /// Records that a batch of `positions` has ended after `took`, or that it failed if that is `None`.
    pub fn done(&mut self, positions: usize, took: Option<Duration>) {
        self.in_flight = self.in_flight.saturating_sub(positions);
        if let Some(took) = took {
            self.pace.add(positions, took);
        }
    }

    /// Removes the requests that have no receiver: those whose deadline has passed, and those for which `is_wanted`
    /// returns false.
    pub fn remove(&mut self, now: Duration, mut is_wanted: impl FnMut(&T) -> bool) -> Vec<Request<T>> {
        let mut removed = Vec::new();
        for client in self.clients.values_mut() {
            for _ in 0..client.requests.len() {
                let Some((since, request)) = client.requests.pop_front() else { break };
                if request.deadline.is_some_and(|deadline| deadline <= now) || !is_wanted(&request.payload) {
                    self.waiting -= request.positions;
                    removed.push(request);
                } else {
                    client.requests.push_back((since, request));
                }
            }
        }
        self.remove_idle_clients();
        removed
    }

    /// Removes all requests.
    pub fn clear(&mut self) -> Vec<Request<T>> {
        self.turns.clear();
        self.waiting = 0;
        self.clients.drain().flat_map(|(_, client)| client.requests).map(|(_, request)| request).collect()
    }

    /// The next request in turn order.
    fn first(&self) -> Option<&(Duration, Request<T>)> {
        self.turns.front().and_then(|id| self.clients.get(id)).and_then(|client| client.requests.front())
    }

    /// Returns the arrival time of the oldest request; those of one client are in order.
    fn oldest(&self) -> Option<Duration> {
        self.clients.values().filter_map(|client| client.requests.front()).map(|(since, _)| *since).min()
    }

    /// Takes requests of `weights` for one batch, in turns.
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
                        // The client gets another turn in this batch, as soon as the credit suffices for the first such
                        // request.
                        let lacks = (request.positions - client.credit).max(share);
                        credit = Some(credit.map_or(lacks, |least| least.min(lacks)));
                        break;
                    }
                    let Some((_, request)) = client.requests.pop_front() else { break };
                    client.credit -= request.positions;
                    room = room.saturating_sub(request.positions);
                    taken.push(request);
                }
            }
            if room == 0 {
                break;
            }
        }
        // Saved credit is for one request that did not fit, not for many later ones, so it is limited to a batch.
        let most = self.settings.batch_max;
        self.clients.values_mut().for_each(|client| client.credit = client.credit.min(most));
        // The first client of this batch is the last one in the next.
        self.turns.rotate_left(1);
        self.remove_idle_clients();
        taken
    }

    fn remove_idle_clients(&mut self) {
        self.clients.retain(|_, client| !client.requests.is_empty());
        let clients = &self.clients;
        self.turns.retain(|id| clients.contains_key(id));
    }
}

#[cfg(test)]
mod tests;
