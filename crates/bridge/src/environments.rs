use std::time::{Duration, Instant};

use game::{
    Action, Environments, EnvironmentsError, Frame, Losses, Outcome, Play, Player, Spec, Start, Started, Taken,
};
use service::DrainPipe;

pub use self::trial::Trial;

use crate::description::Description;
use crate::episode::{Episode, Phase};
use crate::error::Fault;
use crate::frames::{Frames, NotFinite};
use crate::message::{End, Entry, Greeting, Order, Row, parse_answer, parse_picture};
use crate::process;
use crate::worker::{DEATHS_IN_A_ROW_MAX, State, Worker};
use crate::{Error, Settings, package};

mod trial;

/// Maximum number of environments, and of processes: more than any machine runs.
const ENVIRONMENTS_MAX: usize = 65_536;
/// Maximum number of frames in an observation.
const STACK_MAX: usize = 64;
/// Time limit for outstanding requests once the process drains: long for a step, and short for the supervisor of a
/// draining process.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Minimum and maximum time between two pictures of an environment: a multiple of the time for the pictures from all
/// shown environments, so that pictures take a small share of the time.
const PICTURE_INTERVAL_MIN: Duration = Duration::from_secs(1);
const PICTURE_INTERVAL_MAX: Duration = Duration::from_secs(60);
const PICTURE_INTERVAL_FACTOR: u32 = 50;

/// Environments in Python processes, which all step concurrently.
///
/// A process that dies, hangs or breaks the protocol is killed and replaced after a pause; the episodes in it are
/// lost, and episodes in other processes continue. An environment that raises an exception, or sends NaN or a wrong
/// shape, loses only one episode. [`losses`](Environments::losses) counts both. The processes stop when the bridge is
/// dropped, and when the process of the bridge stops.
#[derive(Debug)]
pub struct Bridge {
    settings: Settings,
    spec: Spec,
    /// Description from the first worker.
    description: Description,
    workers: Vec<Worker>,
    drain: Option<DrainPipe>,
    episodes: Vec<Episode>,
    frames: Frames,
    losses: Losses,
    /// Last failure of an environment.
    last_failure: String,
    /// Results of a request, one per row.
    replies: Vec<Reply>,
    failures: Vec<Failure>,
    /// Time of the next picture of each environment; `None` if the environment draws none or has failed to.
    pictures_due: Vec<Option<Instant>>,
    /// Answer to the last request for a picture.
    picture: Option<Result<String, String>>,
    /// Error of the last request for a picture, for the next step to return.
    picture_error: Option<Error>,
}

/// The result of one row in a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reply {
    Missing,
    Arrived { reward: f32, end: Option<End> },
}

#[derive(Debug)]
struct Failure {
    environment: usize,
    reason: String,
}

impl Bridge {
    /// Starts the processes and waits until all have made the environments.
    ///
    /// # Errors
    /// The settings, the Python package or the interpreter cannot be used, or the environment is refused or fails.
    pub fn start(settings: Settings) -> Result<Self, Error> {
        Self::start_until(settings, None)
    }

    /// Starts as [`start`](Self::start) does. Once `drain` fires, waits at most one second for a request, and no
    /// longer for a starting process.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start), and [`Error::Drained`].
    pub fn start_until(settings: Settings, drain: Option<DrainPipe>) -> Result<Self, Error> {
        check(&settings)?;
        package::write(&settings.folder)?;
        let share = |number: usize| number * settings.environments / settings.processes;
        let start = |number| Worker::start(&settings, number, share(number), share(number + 1) - share(number));
        let mut workers = (0..settings.processes).map(start).collect::<Result<Vec<Worker>, Error>>()?;
        let description = greet_all(&mut workers, &settings, drain.as_ref())?;
        let spec = description.spec(&settings)?;
        if settings.render && !description.draws {
            let environment = &settings.environment;
            tracing::warn!(environment, "environment.render is true, but render_mode is not rgb_array: no pictures");
        }
        let len = settings.environments;
        Ok(Self {
            spec,
            workers,
            drain,
            episodes: vec![Episode::IDLE; len],
            frames: Frames::new(len, settings.stack, &description),
            losses: Losses::default(),
            last_failure: String::new(),
            replies: Vec::new(),
            failures: Vec::new(),
            pictures_due: vec![description.draws.then(Instant::now); len],
            picture: None,
            picture_error: None,
            description,
            settings,
        })
    }

    fn try_begin(&mut self, starts: &[Start], started: &mut Vec<Started>) -> Result<(), Error> {
        started.clear();
        started.resize(starts.len(), Started::NotYet);
        for start in starts {
            let phase = self.episodes[start.environment].phase;
            assert_eq!(phase, Phase::Idle, "environment {} has an episode under way", start.environment);
        }
        self.look_after_workers()?;
        loop {
            for (row, start) in starts.iter().enumerate() {
                if started[row] == Started::NotYet && !self.episodes[start.environment].is_out_of_use() {
                    self.enlist(row, start.environment, Order::Begin { seed: start.seed });
                }
            }
            self.exchange(starts.len())?;
            for (row, start) in starts.iter().enumerate() {
                if let Reply::Arrived { .. } = self.replies[row] {
                    self.episodes[start.environment].begin();
                    started[row] = Started::Now;
                }
            }
            if self.episodes.iter().any(|episode| episode.phase != Phase::Idle) {
                return Ok(());
            }
            if self.episodes.iter().all(Episode::is_out_of_use) {
                return Err(self.settings.failed(format!("cannot play episodes: {}", self.last_failure)));
            }
            if starts.iter().all(|start| self.episodes[start.environment].is_out_of_use()) {
                return Ok(());
            }
            self.await_worker_of(starts)?;
        }
    }

    fn try_step(&mut self, plays: &[Play], taken: &mut Vec<Taken>) -> Result<(), Error> {
        if let Some(error) = self.picture_error.take() {
            return Err(error);
        }
        self.look_after_workers()?;
        for (row, play) in plays.iter().enumerate() {
            match self.episodes[play.environment].phase {
                Phase::UnderWay => self.enlist(row, play.environment, Order::Step { action: play.action.0 }),
                Phase::Lost => {}
                Phase::Idle => panic!("environment {} has no episode under way", play.environment),
            }
        }
        self.exchange(plays.len())?;
        taken.clear();
        for (row, play) in plays.iter().enumerate() {
            let result = match self.replies[row] {
                Reply::Arrived { reward, end } => self.arrive(play.environment, reward, end),
                Reply::Missing => {
                    self.episodes[play.environment].phase = Phase::Idle;
                    Taken::Lost
                }
            };
            taken.push(result);
        }
        Ok(())
    }

    /// Counts a step and ends the episode, if it is over.
    fn arrive(&mut self, environment: usize, reward: f32, end: Option<End>) -> Taken {
        let episode = &mut self.episodes[environment];
        episode.steps += 1;
        let outcome = match end {
            Some(End::Terminated) => Some(Outcome::Finished),
            Some(End::Truncated) => Some(Outcome::Truncated),
            None if episode.steps >= self.spec.max_plies => Some(Outcome::Truncated),
            None => None,
        };
        if outcome.is_some() {
            episode.end();
            let worker = self.worker_of(environment);
            self.workers[worker].deaths_in_a_row = 0;
        }
        Taken::Step { reward, outcome }
    }

    /// Returns the worker index of an environment.
    fn worker_of(&self, environment: usize) -> usize {
        self.workers.partition_point(|worker| worker.first + worker.count <= environment)
    }

    /// Adds a row to the request of a worker, unless the worker has no process at the moment.
    fn enlist(&mut self, row: usize, environment: usize, order: Order) {
        let index = self.worker_of(environment);
        let worker = &mut self.workers[index];
        if worker.is_ready() {
            worker.entries.push(Entry { environment: environment - worker.first, order });
            worker.rows.push(row);
        }
    }

    /// Sends the requests of all workers and waits for the answers; sets `replies`, one for each of `rows`.
    fn exchange(&mut self, rows: usize) -> Result<(), Error> {
        self.replies.clear();
        self.replies.resize(rows, Reply::Missing);
        let (begin, mut limit) = (Instant::now(), "environment.step_timeout_seconds");
        let mut deadline = begin + self.settings.step_timeout;
        let mut drain = self.drain.clone();
        for index in 0..self.workers.len() {
            if let Err(fault) = self.workers[index].send() {
                self.replace(index, &fault)?;
            }
        }
        while self.workers.iter().any(Worker::is_busy) {
            let left = deadline.saturating_duration_since(Instant::now());
            let busy = self.workers.iter().filter(|worker| worker.is_busy()).filter_map(Worker::process);
            if self.wait(process::wait(busy, drain.as_ref(), left))? {
                // Imminent answers may end episodes.
                (deadline, limit) = (deadline.min(Instant::now() + DRAIN_TIME), "the process is draining");
                drain = None;
            }
            for index in 0..self.workers.len() {
                if !self.workers[index].is_busy() {
                    continue;
                }
                match self.read_answer(index) {
                    Ok(true) => {}
                    // The answer is checked once more after the deadline, since this process may have been suspended.
                    Ok(false) if !left.is_zero() => {}
                    Ok(false) => self.replace(index, &Fault::Hung { after: deadline - begin, limit })?,
                    Err(fault) => self.replace(index, &fault)?,
                }
            }
        }
        self.report_failures();
        Ok(())
    }

    /// Reads the answer of a worker; returns false if it is not complete.
    fn read_answer(&mut self, index: usize) -> Result<bool, Fault> {
        let Self { workers, frames, replies, failures, description, picture, .. } = self;
        let Worker { first, state, entries, rows, .. } = &mut workers[index];
        let State::Ready(process) = state else { return Ok(false) };
        let Some(message) = process.exchange()? else { return Ok(false) };
        if let [Entry { order: Order::Render, .. }] = entries[..] {
            *picture = Some(parse_picture(message)?);
        } else {
            parse_answer(message, entries.len(), description.frame_bytes(), |index, row| {
                let Entry { environment, order } = entries[index];
                let environment = *first + environment;
                match take(frames, environment, order, row) {
                    Ok(reply) => replies[rows[index]] = reply,
                    Err(reason) => failures.push(Failure { environment, reason }),
                }
            })?;
        }
        process.forget_message();
        entries.clear();
        rows.clear();
        Ok(true)
    }

    /// Counts and logs the failures of environments.
    fn report_failures(&mut self) {
        for Failure { environment, reason } in self.failures.drain(..) {
            let episode = &mut self.episodes[environment];
            self.losses.environments_failed += 1;
            self.losses.episodes += u64::from(episode.phase == Phase::UnderWay);
            episode.fail();
            let (name, failures) = (&self.settings.environment, self.losses.environments_failed);
            // An environment that fails in every episode would fill the disk.
            if failures.is_power_of_two() {
                tracing::error!(name, environment, failures, reason, "environment failed; episode lost");
            }
            if episode.is_out_of_use() {
                tracing::error!(name, environment, reason, "environment failed too often; no longer used");
            }
            self.last_failure = reason;
        }
    }

    /// Kills the process of a worker, which loses its episodes, and plans the next process.
    fn replace(&mut self, index: usize, fault: &Fault) -> Result<(), Error> {
        match fault {
            Fault::Hung { .. } => self.losses.processes_hung += 1,
            Fault::Died { .. } | Fault::Violation(_) | Fault::Changed { .. } | Fault::Pipe(_) => {
                self.losses.processes_died += 1
            }
        }
        let worker = &mut self.workers[index];
        let mut lost = 0_u64;
        for episode in &mut self.episodes[worker.first..][..worker.count] {
            if episode.phase == Phase::UnderWay {
                episode.phase = Phase::Lost;
                lost += 1;
            }
        }
        self.losses.episodes += lost;
        self.last_failure = fault.to_string();
        let pause = worker.replace();
        if worker.deaths_in_a_row >= DEATHS_IN_A_ROW_MAX {
            let often = format!("failed {DEATHS_IN_A_ROW_MAX} times without a finished episode");
            return Err(self.settings.failed(format!("{often}: {fault}")));
        }
        let environment = &self.settings.environment;
        let (reason, pause_seconds) = (fault.to_string(), pause.as_secs_f64());
        tracing::warn!(environment, process = index, lost, reason, pause_seconds, "replacing a process");
        Ok(())
    }

    /// Starts processes after their pauses, and accepts processes that have made the environments. Never blocks.
    fn look_after_workers(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        for index in 0..self.workers.len() {
            let worker = &mut self.workers[index];
            worker.restart_if_due(&self.settings, now)?;
            let fault = match worker.greeting(&self.settings, now) {
                Ok(None) => continue,
                Ok(Some(greeting)) => admit(worker, greeting, &self.description).err(),
                Err(fault) => Some(fault),
            };
            if let Some(fault) = fault {
                self.replace(index, &fault)?;
            }
        }
        Ok(())
    }

    /// Waits until a worker of one of these environments is ready.
    fn await_worker_of(&mut self, starts: &[Start]) -> Result<(), Error> {
        let usable = |bridge: &Self, start: &Start| {
            let is_ready = bridge.workers[bridge.worker_of(start.environment)].is_ready();
            is_ready && !bridge.episodes[start.environment].is_out_of_use()
        };
        while !starts.iter().any(|start| usable(self, start)) {
            let due = self.workers.iter().filter_map(Worker::due).min().expect("a worker is not ready");
            let left = due.saturating_duration_since(Instant::now());
            let starting = self.workers.iter().filter(|worker| !worker.is_ready()).filter_map(Worker::process);
            if self.wait(process::wait(starting, self.drain.as_ref(), left))? {
                return Err(Error::Drained { environment: self.settings.environment.clone() });
            }
            self.look_after_workers()?;
        }
        Ok(())
    }

    fn wait(&self, waited: std::io::Result<bool>) -> Result<bool, Error> {
        waited.map_err(|source| Error::Poll { environment: self.settings.environment.clone(), source })
    }

    fn failed(&self, error: Error) -> EnvironmentsError {
        EnvironmentsError { environment: self.spec.name.clone(), source: Box::new(error) }
    }
}

impl Environments for Bridge {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn len(&self) -> usize {
        self.episodes.len()
    }

    fn begin(&mut self, starts: &[Start], started: &mut Vec<Started>) -> Result<(), EnvironmentsError> {
        self.try_begin(starts, started).map_err(|error| self.failed(error))
    }

    fn step(&mut self, plays: &[Play], taken: &mut Vec<Taken>) -> Result<(), EnvironmentsError> {
        self.try_step(plays, taken).map_err(|error| self.failed(error))
    }

    fn observe(&self, environment: usize, values: &mut [f32]) {
        self.frames.observe(environment, values);
    }

    fn frame(&self, environment: usize) -> Option<Frame<'_>> {
        Some(self.frames.newest(environment))
    }

    fn picture(&mut self, environment: usize) -> Option<String> {
        let (begin, is_under_way) = (Instant::now(), self.episodes[environment].phase == Phase::UnderWay);
        self.pictures_due[environment].take_if(|due| is_under_way && *due <= begin)?;
        self.enlist(0, environment, Order::Render);
        self.picture_error = self.exchange(1).err();
        let reason = match self.picture.take() {
            Some(Ok(picture)) => {
                let others = self.pictures_due.iter().flatten().map(|due| u32::from(*due > begin)).sum();
                self.pictures_due[environment] = Some(Instant::now() + picture_interval(begin.elapsed(), others));
                return Some(picture);
            }
            Some(Err(reason)) => reason,
            None => {
                // The picture ended the process. Pictures of other environments could end the next.
                self.pictures_due.fill(None);
                self.last_failure.clone()
            }
        };
        let name = &self.settings.environment;
        tracing::warn!(name, environment, reason, "environment failed to draw; no further pictures of it");
        None
    }

    fn legal_actions(&self, environment: usize, actions: &mut Vec<Action>) {
        actions.clear();
        if self.episodes[environment].phase != Phase::Idle {
            let count = u16::try_from(self.spec.actions).expect("a description has at most 65,535 actions");
            actions.extend((0..count).map(Action));
        }
    }

    fn to_move(&self, _: usize) -> Player {
        Player::First
    }

    fn losses(&self) -> Losses {
        self.losses
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // All processes stop concurrently; dropping each then waits for it. A process that owes an answer may hang,
        // and is killed.
        for worker in self.workers.iter_mut().filter(|worker| !worker.is_busy()) {
            if let State::Ready(process) = &mut worker.state {
                process.close();
            }
        }
    }
}

/// Stores the frame of an answer; returns the reason if the answer is refused.
fn take(frames: &mut Frames, environment: usize, order: Order, row: Row<'_>) -> Result<Reply, String> {
    let (reward, end, frame) = match row {
        Row::Failed { reason } => return Err(reason),
        Row::Arrived { reward, .. } if !reward.is_finite() => return Err(format!("the reward is {reward}")),
        Row::Arrived { reward, end, frame } => (reward, end, frame),
    };
    let stored = match order {
        Order::Begin { .. } => frames.begin(environment, frame),
        Order::Step { .. } => frames.push(environment, frame),
        Order::Render => unreachable!("a picture is no row"),
    };
    stored.map_err(|NotFinite| "the observation has a value that is NaN or infinite".to_owned())?;
    Ok(Reply::Arrived { reward, end })
}

/// Returns the time to the next picture of an environment after a picture that took `time`, while this number of other
/// environments are shown.
fn picture_interval(time: Duration, others: u32) -> Duration {
    (PICTURE_INTERVAL_FACTOR * (1 + others) * time).clamp(PICTURE_INTERVAL_MIN, PICTURE_INTERVAL_MAX)
}

fn check(settings: &Settings) -> Result<(), Error> {
    let within = |setting, value: usize, max, expected| {
        if (1..=max).contains(&value) { Ok(()) } else { Err(Error::Setting { setting, expected }) }
    };
    within("environments", settings.environments, ENVIRONMENTS_MAX, "from 1 to 65,536")?;
    within("processes", settings.processes, settings.environments, "from 1 to the number of environments")?;
    within("stack", settings.stack, STACK_MAX, "from 1 to 64")?;
    within("steps_max", settings.steps_max.unwrap_or(1), usize::MAX, "at least 1")?;
    for (setting, time) in [("step_timeout", settings.step_timeout), ("start_timeout", settings.start_timeout)] {
        if time < Duration::from_millis(1) || time > Duration::from_secs(86_400) {
            return Err(Error::Setting { setting, expected: "from a millisecond to a day" });
        }
    }
    Ok(())
}

/// Waits until all workers have described the environments; returns the description of the first.
fn greet_all(workers: &mut [Worker], settings: &Settings, drain: Option<&DrainPipe>) -> Result<Description, Error> {
    let environment = || settings.environment.clone();
    let mut first: Option<Description> = None;
    while let Some(deadline) = workers.iter().filter_map(Worker::due).min() {
        let left = deadline.saturating_duration_since(Instant::now());
        let starting = workers.iter().filter(|worker| !worker.is_ready()).filter_map(Worker::process);
        let is_drained = process::wait(starting, drain, left);
        if is_drained.map_err(|source| Error::Poll { environment: environment(), source })? {
            return Err(Error::Drained { environment: environment() });
        }
        for worker in workers.iter_mut() {
            let failed = |fault: Fault| settings.failed(format!("cannot be started: {fault}"));
            let Some(greeting) = worker.greeting(settings, Instant::now()).map_err(failed)? else { continue };
            let description = match greeting {
                Greeting::Hello(description) => description,
                Greeting::Refusal(reason) => return Err(settings.failed(format!("cannot be run: {reason}"))),
            };
            let first = first.get_or_insert_with(|| description.clone());
            if !is_alike(first, &description) {
                return Err(settings.failed(format!("differs between processes: {first} and {description}")));
            }
            admit(worker, Greeting::Hello(description), first).map_err(failed)?;
        }
    }
    Ok(first.expect("there is at least one worker"))
}

/// Makes a worker ready if the environments match the description of the first process.
fn admit(worker: &mut Worker, greeting: Greeting, first: &Description) -> Result<(), Fault> {
    let changed = |other: String| Fault::Changed { other };
    let description = match greeting {
        Greeting::Hello(description) => description,
        Greeting::Refusal(reason) => return Err(changed(reason)),
    };
    if !is_alike(first, &description) || description.count != worker.count {
        return Err(changed(description.to_string()));
    }
    worker.become_ready(&description)
}

/// Returns true if two processes have the same environment, in any number.
fn is_alike(first: &Description, other: &Description) -> bool {
    *first == Description { count: first.count, ..other.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_of_all_shown_environments_share_a_fiftieth_of_the_time() {
        for (milliseconds, others, seconds) in [(10, 0, 1), (100, 0, 5), (20, 15, 16), (20, 65_535, 60)] {
            let interval = picture_interval(Duration::from_millis(milliseconds), others);
            assert_eq!(interval, Duration::from_secs(seconds), "{milliseconds} ms, {others} others");
        }
    }
}
