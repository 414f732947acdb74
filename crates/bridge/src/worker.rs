use std::time::{Duration, Instant};

use crate::description::Description;
use crate::error::Fault;
use crate::message::{Entry, Greeting, answer_bytes_max, parse_greeting};
use crate::process::PythonProcess;
use crate::{Error, Settings};

/// Maximum number of consecutive failures of a process, without a finished episode in between.
pub(crate) const DEATHS_IN_A_ROW_MAX: u32 = 6;
/// Pause before the first replacement of a process; it doubles with every consecutive failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a replacement.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A share of the environments, and the current Python process for them.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Index among all workers, for the log.
    pub(crate) number: usize,
    /// Index of the first environment.
    pub(crate) first: usize,
    /// Number of environments in the share.
    pub(crate) count: usize,
    pub(crate) state: State,
    pub(crate) deaths_in_a_row: u32,
    /// The request under construction.
    pub(crate) entries: Vec<Entry>,
    /// Row of each entry in the call that makes the request.
    pub(crate) rows: Vec<usize>,
}

/// The state of a worker's process.
#[derive(Debug)]
pub(crate) enum State {
    /// The process failed; the next process starts at this time.
    Pausing { until: Instant },
    /// The process imports modules and makes the environments.
    Starting { process: PythonProcess, deadline: Instant },
    /// The process takes requests.
    Ready(PythonProcess),
}

impl Worker {
    /// Starts the process for a share of the environments.
    ///
    /// # Errors
    /// [`Error::Python`].
    pub(crate) fn start(settings: &Settings, number: usize, first: usize, count: usize) -> Result<Self, Error> {
        let state = State::starting(settings, count, number)?;
        Ok(Self { number, first, count, state, deaths_in_a_row: 0, entries: Vec::new(), rows: Vec::new() })
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    /// Returns true if a request was sent and the answer is outstanding.
    pub(crate) fn is_busy(&self) -> bool {
        !self.entries.is_empty()
    }

    pub(crate) fn process(&self) -> Option<&PythonProcess> {
        match &self.state {
            State::Pausing { .. } => None,
            State::Starting { process, .. } | State::Ready(process) => Some(process),
        }
    }

    /// Returns the last line printed by the process, if any.
    pub(crate) fn last_line(&mut self) -> Option<String> {
        match &mut self.state {
            State::Pausing { .. } => None,
            State::Starting { process, .. } | State::Ready(process) => process.last_line(),
        }
    }

    /// Returns the time for the next check of a process that is not ready, even if the process sends nothing.
    pub(crate) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Pausing { until: due } | State::Starting { deadline: due, .. } => Some(*due),
            State::Ready(_) => None,
        }
    }

    /// Sends the request of `entries`, unless empty.
    pub(crate) fn send(&mut self) -> Result<(), Fault> {
        match &mut self.state {
            State::Ready(process) if !self.entries.is_empty() => process.request(&self.entries),
            _ => Ok(()),
        }
    }

    /// Starts the next process after the pause that follows a failure.
    ///
    /// # Errors
    /// [`Error::Python`].
    pub(crate) fn restart_if_due(&mut self, settings: &Settings, now: Instant) -> Result<(), Error> {
        if matches!(self.state, State::Pausing { until } if until <= now) {
            self.state = State::starting(settings, self.count, self.number)?;
        }
        Ok(())
    }

    /// Reads the first message of a starting process; returns `None` if it is outstanding.
    pub(crate) fn greeting(&mut self, settings: &Settings, now: Instant) -> Result<Option<Greeting>, Fault> {
        let State::Starting { process, deadline } = &mut self.state else { return Ok(None) };
        match process.exchange()? {
            Some(message) => Ok(Some(parse_greeting(message)?)),
            None if *deadline <= now => {
                Err(Fault::Hung { after: settings.start_timeout, limit: "environment.start_timeout_seconds" })
            }
            None => Ok(None),
        }
    }

    /// Accepts requests after the first message.
    pub(crate) fn become_ready(&mut self, description: &Description) -> Result<(), Fault> {
        let bytes_max = answer_bytes_max(description)?;
        let pausing = State::Pausing { until: Instant::now() };
        if let State::Starting { mut process, .. } = std::mem::replace(&mut self.state, pausing) {
            process.forget_message();
            process.accept_up_to(bytes_max);
            self.state = State::Ready(process);
        }
        Ok(())
    }

    /// Kills the process and plans the next. Returns the pause before the next process.
    pub(crate) fn replace(&mut self) -> Duration {
        let pause = PAUSE_MIN.saturating_mul(1 << self.deaths_in_a_row.min(10)).min(PAUSE_MAX);
        self.deaths_in_a_row += 1;
        self.entries.clear();
        self.rows.clear();
        self.state = State::Pausing { until: Instant::now() + pause };
        pause
    }
}

impl State {
    fn starting(settings: &Settings, count: usize, number: usize) -> Result<Self, Error> {
        let process = PythonProcess::start(settings, count, number)?;
        Ok(Self::Starting { process, deadline: Instant::now() + settings.start_timeout })
    }
}
