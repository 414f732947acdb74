use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::device::{Device, DeviceError};
use super::queue::{Lane, Part, Queue};
use super::request::Request;
use super::schedule::{Flight, Portion, Schedule, Step};
use super::{Load, Shared};

/// The thread that owns a device and makes every device call. Dropping it, even by a panic, completes every request
/// with an error and frees the weights.
pub(super) struct DeviceThread<D: Device> {
    // Fields are dropped in this order: batches, then the weights in use, then the device.
    in_flight: VecDeque<Batch<D>>,
    weights: HashMap<u64, D::Weights>,
    device: D,
    schedule: Schedule,
    /// Requests without a complete answer, by number.
    requests: HashMap<u64, Request<D>>,
    /// Parts of requests that are not in flight.
    queue: Queue,
    /// Requests with a complete answer that is not sent yet.
    finished: Vec<Request<D>>,
    numbers: u64,
    clock: Box<dyn Fn() -> Instant + Send>,
    begun: Instant,
    report: Box<dyn Fn(String) + Send>,
    shared: Arc<Shared<D>>,
}

/// A batch in flight.
struct Batch<D: Device> {
    on_device: D::InFlight,
    parts: Vec<Part>,
    flight: Flight,
    submitted: Duration,
}

/// The engine was dropped, so the thread must stop.
struct Closed;

impl<D: Device> DeviceThread<D> {
    pub(super) fn new(
        shared: Arc<Shared<D>>,
        device: D,
        batch_sizes: Vec<usize>,
        clock: Box<dyn Fn() -> Instant + Send>,
        report: Box<dyn Fn(String) + Send>,
    ) -> Self {
        let begun = clock();
        let schedule = Schedule::new(batch_sizes, shared.in_flight.load(Ordering::Relaxed));
        let (in_flight, weights, requests) = (VecDeque::new(), HashMap::new(), HashMap::new());
        let (queue, finished, numbers) = (Queue::default(), Vec::new(), 0);
        Self { in_flight, weights, device, schedule, requests, queue, finished, numbers, clock, begun, report, shared }
    }

    /// Serves requests until the engine is dropped or the device fails.
    pub(super) fn run(mut self) {
        loop {
            if let Err(Closed) = self.receive() {
                // Batches on the device are completed; waiting requests fail when `self` is dropped.
                while !self.in_flight.is_empty() && self.collect().is_ok() {}
                self.wake();
                self.end("the engine was stopped");
                return;
            }
            if let Err(reason) = self.turn() {
                self.wake();
                self.end(&reason);
                return;
            }
        }
    }

    /// Takes all messages from the inbox.
    fn receive(&mut self) -> Result<(), Closed> {
        let (requests, loads, unloads) = {
            let mut inbox = self.shared.inbox();
            if inbox.is_closed {
                return Err(Closed);
            }
            let inbox = &mut *inbox;
            (std::mem::take(&mut inbox.requests), std::mem::take(&mut inbox.loads), std::mem::take(&mut inbox.unloads))
        };
        for request in requests {
            self.schedule.arrived(request.caller, request.positions);
            self.queue.push(self.numbers, request.lane(), request.positions);
            self.requests.insert(self.numbers, request);
            self.numbers += 1;
        }
        for version in unloads {
            self.weights.remove(&version);
        }
        for Load { number, prepared, reply } in loads {
            let loaded = self.device.load(prepared).map(|weights| drop(self.weights.insert(number, weights)));
            // If the caller is gone, the version will be unloaded too.
            let _ = reply.send(loaded);
        }
        self.schedule.depth = self.shared.in_flight.load(Ordering::Relaxed);
        Ok(())
    }

    /// Takes one step of the schedule; fails if the device fails.
    fn turn(&mut self) -> Result<(), String> {
        let (lane, waiting) = self.queue.next(self.schedule.target(), self.schedule.depth);
        let flights: Vec<Flight> = self.in_flight.iter().map(|batch| batch.flight).collect();
        match self.schedule.next(self.now(), waiting, &flights) {
            Step::Submit(portion) => {
                self.submit(lane, portion)?;
                self.wake();
            }
            Step::Await => {
                self.wake();
                self.collect()?;
            }
            Step::Hold(until) => {
                self.wake();
                match self.in_flight.front() {
                    Some(oldest) if self.device.has_ended(&oldest.on_device) => self.collect()?,
                    _ => self.sleep(Some(until.saturating_sub(self.now()))),
                }
            }
            Step::Idle => {
                self.wake();
                self.sleep(None);
            }
        }
        Ok(())
    }

    /// Submits a batch of a lane. If the memory is too small, the requests wait again, for a smaller batch.
    fn submit(&mut self, lane: Lane, portion: Portion) -> Result<(), String> {
        let begun = self.now();
        let parts = self.queue.take(lane, portion.positions);
        let Some(weights) = self.weights.get(&lane.version) else {
            return Err("weights were freed before the last request".to_owned());
        };
        let requests = &self.requests;
        let mut stage = |staged: &mut [f32]| {
            let row = staged.len() / portion.size;
            let mut rest = staged;
            for Part { request, positions, .. } in &parts {
                let (rows, behind) = rest.split_at_mut(positions.len() * row);
                rest = behind;
                let observations = &requests[request].buffers.observations;
                rows.copy_from_slice(&observations[positions.start * row..positions.end * row]);
            }
            rest.fill(0.0);
        };
        let submitted = self.device.submit(weights, lane.kind, portion.size, &mut stage);
        let now = self.now();
        self.count(|counts| counts.thread += now.saturating_sub(begun));
        match submitted {
            Ok(on_device) => {
                self.schedule.submitted();
                let starts_now = self.in_flight.is_empty().then_some(now);
                let flight = Flight { portion, begun: starts_now };
                self.in_flight.push_back(Batch { on_device, parts, flight, submitted: now });
                Ok(())
            }
            Err(error) => self.try_smaller(error, portion.size, parts),
        }
    }

    /// Waits for the oldest batch and copies the logits to the requests.
    fn collect(&mut self) -> Result<(), String> {
        let Some(Batch { on_device, parts, flight, submitted }) = self.in_flight.pop_front() else { return Ok(()) };
        let size = flight.portion.size;
        let (requests, clock) = (&mut self.requests, &self.clock);
        let mut ended = clock();
        let waited = self.device.wait(on_device, &mut |logits| {
            ended = clock();
            let row = logits.len() / size;
            let mut rest = logits;
            for Part { request, positions, .. } in &parts {
                let (rows, behind) = rest.split_at(positions.len() * row);
                rest = behind;
                if let Some(request) = requests.get_mut(request) {
                    request.buffers.logits[positions.start * row..positions.end * row].copy_from_slice(rows);
                }
            }
        });
        let ended = ended.saturating_duration_since(self.begun);
        if let Some(next) = self.in_flight.front_mut() {
            next.flight.begun = Some(ended.max(next.submitted));
        }
        if let Err(error) = waited {
            return self.try_smaller(error, size, parts);
        }
        let begun = flight.begun.unwrap_or(submitted);
        self.schedule.took(size, ended.saturating_sub(begun));
        for Part { request, positions, .. } in parts {
            let Some(mut of_part) = self.requests.remove(&request) else { continue };
            of_part.unanswered -= positions.len();
            if of_part.unanswered > 0 {
                self.requests.insert(request, of_part);
                continue;
            }
            self.schedule.answered(of_part.caller);
            self.finished.push(of_part);
        }
        // A device without work comes first: the next batch is submitted before threads are woken.
        if !self.in_flight.is_empty() {
            self.wake();
        }
        let now = self.now();
        self.count(|counts| {
            counts.batches += 1;
            counts.positions += flight.portion.positions as u64;
            counts.padded_positions += size as u64;
            counts.busy += ended.saturating_sub(begun);
            counts.in_flight += ended.saturating_sub(submitted);
            counts.thread += now.saturating_sub(ended);
        });
        Ok(())
    }

    /// Returns the parts of a batch of `size` that exceeded the memory to the queue, for a smaller batch. Fails for
    /// any other error, and if there is no smaller size.
    fn try_smaller(&mut self, error: DeviceError, size: usize, parts: Vec<Part>) -> Result<(), String> {
        let reason = match error {
            DeviceError::Failed(reason) => return Err(reason),
            DeviceError::OutOfMemory(reason) => reason,
        };
        self.count(|counts| counts.out_of_memory += 1);
        self.queue.put_back(parts);
        let before = self.schedule.largest();
        if !self.schedule.exclude_from(size) {
            return Err(format!("not enough memory for the smallest batch ({size}): {reason}"));
        }
        // Several batches of a size may have been in flight.
        let (device, smaller) = (&self.shared.device, self.schedule.largest());
        if smaller < before {
            (self.report)(format!(
                "not enough memory on {device} for batches of {size}; using up to {smaller}: {reason}"
            ));
        }
        Ok(())
    }

    /// Sends the complete answers.
    fn wake(&mut self) {
        for request in self.finished.drain(..) {
            request.answer(Ok(()));
        }
    }

    /// Waits for a message, at most for the given time.
    fn sleep(&self, time: Option<Duration>) {
        let inbox = self.shared.inbox();
        let has_mail = !(inbox.requests.is_empty() && inbox.loads.is_empty() && inbox.unloads.is_empty());
        if has_mail || inbox.is_closed {
            return;
        }
        let arrived = &self.shared.arrived;
        match time {
            None => drop(arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner)),
            Some(time) => drop(arrived.wait_timeout(inbox, time).unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn now(&self) -> Duration {
        (self.clock)().saturating_duration_since(self.begun)
    }

    fn count(&self, change: impl FnOnce(&mut super::EngineCounts)) {
        change(&mut self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Accepts nothing further, for the given reason.
    fn end(&self, reason: &str) {
        let _inbox = self.shared.inbox();
        let _ = self.shared.end.set(reason.to_owned());
    }
}

impl<D: Device> Drop for DeviceThread<D> {
    fn drop(&mut self) {
        // Without effect if the reason is already set.
        self.end("the thread panicked");
        let (requests, loads) = {
            let mut inbox = self.shared.inbox();
            (std::mem::take(&mut inbox.requests), std::mem::take(&mut inbox.loads))
        };
        // The drop completes them with an error, without the lock.
        drop((requests, loads));
    }
}
