//! The side of a connection that drives an engine: [`Controller`].

use std::io::{self, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{BoardGame, Color, Move, Ply, Size};

use super::response::{self, Event};

/// Maximum length of a command, in bytes: a pipe holds them, so that an engine that reads nothing does not block the
/// controller.
const COMMAND_BYTES_MAX: usize = 4096;
/// Maximum length of a response, and of a line outside responses, in bytes.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// Number of responses read ahead. An engine that prints more waits.
const RESPONSES_AHEAD: usize = 2;
/// Maximum number of responses from an engine that is expected to exit.
const EVENTS_AT_END_MAX: usize = 100;
/// Time limit for the output of a killed engine to close.
const ENDING: Duration = Duration::from_secs(1);
/// Time between two calls of the function that may interrupt a wait.
const LOOK: Duration = Duration::from_millis(50);

/// Drives an engine over pipes, one command at a time.
///
/// An engine that does not respond in time, or violates the protocol, is killed together with all processes in its
/// process group; every later command is then an error. Dropping the controller also kills the engine.
pub struct Controller {
    name: String,
    input: Box<dyn Write + Send>,
    events: Receiver<Event>,
    reader: Option<JoinHandle<()>>,
    child: Option<Child>,
    is_interrupted: Box<dyn Fn() -> bool + Send>,
    is_ended: bool,
    next_id: u32,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).field("is_ended", &self.is_ended).finish_non_exhaustive()
    }
}

impl Controller {
    /// Starts a program with pipes to the input and output. The standard error is that of `command`. Errors contain
    /// `name`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Self, Error> {
        let error = |fault| Error { engine: name.into(), command: "start".into(), fault };
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|source| error(Fault::Pipe(source)))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = (input.expect("the input is piped"), output.expect("the output is piped"));
        match Self::over(name, input, output) {
            Ok(mut controller) => {
                controller.child = Some(child);
                Ok(controller)
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Drives an engine over any pipes.
    ///
    /// # Errors
    /// The reader thread cannot be started.
    pub fn over(
        name: &str,
        input: impl Write + Send + 'static,
        output: impl Read + Send + 'static,
    ) -> Result<Self, Error> {
        let error = |source| Error { engine: name.into(), command: "start".into(), fault: Fault::Pipe(source) };
        let (sender, events) = sync_channel(RESPONSES_AHEAD);
        let reader =
            thread::Builder::new().name("engine".into()).spawn(move || read(output, &sender)).map_err(error)?;
        Ok(Self {
            name: name.into(),
            input: Box::new(input),
            events,
            reader: Some(reader),
            child: None,
            is_interrupted: Box::new(|| false),
            is_ended: false,
            next_id: 1,
        })
    }

    /// Sets a function that is called several times per second during a wait for a response. Once it returns true,
    /// the engine is killed, and the command fails with [`Fault::Interrupted`].
    pub fn interrupt_when(&mut self, is_interrupted: impl Fn() -> bool + Send + 'static) {
        self.is_interrupted = Box::new(is_interrupted);
    }

    /// Sends a command and returns the text of the response.
    ///
    /// # Errors
    /// [`Fault::Refused`] if the command failed in the engine, which can continue. After all other faults except
    /// [`Fault::Command`], the engine is killed.
    pub fn send(&mut self, command: &str, timeout: Duration) -> Result<String, Error> {
        self.exchange(command, timeout).map_err(|fault| {
            if !matches!(fault, Fault::Refused { .. } | Fault::Command) {
                self.end();
            }
            Error { engine: self.name.clone(), command: command.into(), fault }
        })
    }

    fn exchange(&mut self, command: &str, timeout: Duration) -> Result<String, Fault> {
        if command.len() > COMMAND_BYTES_MAX || command.trim().is_empty() || command.contains(|c: char| c.is_control())
        {
            return Err(Fault::Command);
        }
        if self.is_ended {
            return Err(Fault::Ended);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1).max(1);
        let sent = writeln!(self.input, "{id} {command}").and_then(|()| self.input.flush());
        sent.map_err(
            |source| if source.kind() == io::ErrorKind::BrokenPipe { Fault::Ended } else { Fault::Pipe(source) },
        )?;
        let response = match self.next_event(timeout)? {
            Event::Response(response) => response,
            Event::TooLong => return Err(Fault::TooLong { bytes_max: RESPONSE_BYTES_MAX }),
            Event::End => return Err(Fault::Ended),
        };
        // One command at a time needs no ids, and small engines ignore them.
        if let Some(found) = response.id.filter(|found| *found != id) {
            return Err(Fault::Id { expected: id, found });
        }
        if response.is_success { Ok(response.text) } else { Err(Fault::Refused { message: response.text }) }
    }

    fn next_event(&self, timeout: Duration) -> Result<Event, Fault> {
        let mut left = timeout;
        loop {
            let wait = left.min(LOOK);
            match self.events.recv_timeout(wait) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Disconnected) => return Ok(Event::End),
                Err(RecvTimeoutError::Timeout) => left -= wait,
            }
            if (self.is_interrupted)() {
                return Err(Fault::Interrupted);
            }
            if left.is_zero() {
                return Err(Fault::Timeout { timeout });
            }
        }
    }

    /// Sends a player's move.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    pub fn play(&mut self, game: BoardGame, size: Size, ply: Ply, timeout: Duration) -> Result<(), Error> {
        let command = format!("play {} {}", ply.color.letter(), game.move_name(size, ply.played));
        self.send(&command, timeout).map(|_| ())
    }

    /// Requests a move, which the engine plays.
    ///
    /// # Errors
    /// Same as [`send`](Self::send), and [`Fault::Move`] for a response that is no move; the engine can continue.
    pub fn genmove(&mut self, game: BoardGame, size: Size, color: Color, timeout: Duration) -> Result<Move, Error> {
        let command = format!("genmove {}", color.letter());
        let text = self.send(&command, timeout)?;
        let name = text.split('#').next().unwrap_or_default().trim();
        game.parse_move(size, name).ok_or_else(|| Error {
            engine: self.name.clone(),
            command,
            fault: Fault::Move { text },
        })
    }

    /// Waits until the output is closed. Returns false if it is still open after `timeout`.
    fn await_end(&mut self, timeout: Duration) -> bool {
        let mut events = (0..EVENTS_AT_END_MAX).map(|_| self.events.recv_timeout(timeout));
        events.find_map(Result::err) == Some(RecvTimeoutError::Disconnected)
    }

    /// Kills the engine and waits for the exit.
    fn end(&mut self) {
        self.is_ended = true;
        self.input = Box::new(io::sink());
        let Some(mut child) = self.child.take() else { return };
        // The group is gone if the engine has exited by itself.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.end();
        // A process outside the group may still hold the pipe: the thread is then left running.
        if self.await_end(ENDING) {
            let _ = self.reader.take().map(JoinHandle::join);
        }
    }
}

/// Reads responses until the output is closed or the controller is dropped.
fn read(output: impl Read, events: &SyncSender<Event>) {
    let mut output = BufReader::new(output);
    loop {
        let event = response::read(&mut output, RESPONSE_BYTES_MAX);
        let is_last = matches!(event, Event::End | Event::TooLong);
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// The error of a command to an engine.
#[derive(Debug, thiserror::Error)]
#[error("{engine} at `{command}`: {fault}")]
pub struct Error {
    /// Name of the engine.
    pub engine: String,
    /// The failed command.
    pub command: String,
    /// Reason for the failure.
    pub fault: Fault,
}

/// The reason why a command to an engine failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The engine responded with an error.
    #[error("the engine responded `{message}`")]
    Refused {
        /// The engine's message.
        message: String,
    },
    /// The command is empty, too long, or contains control characters. It was not sent.
    #[error("a command is one line of 1 to {} bytes", COMMAND_BYTES_MAX)]
    Command,
    /// The engine responded to `genmove` with something else.
    #[error("`{text}` is not a move")]
    Move {
        /// Text of the response.
        text: String,
    },
    /// The engine did not respond in time.
    #[error("no response within {timeout:?}")]
    Timeout {
        /// The time limit.
        timeout: Duration,
    },
    /// The wait for the response was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The engine has exited.
    #[error("the engine exited")]
    Ended,
    /// The response is too long.
    #[error("the response has more than {bytes_max} bytes")]
    TooLong {
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// The response has the id of another command.
    #[error("the response has the id {found}, expected {expected}")]
    Id {
        /// Id of the command.
        expected: u32,
        /// Id of the response.
        found: u32,
    },
    /// The pipes failed, or the program could not be started.
    #[error("{0}")]
    Pipe(io::Error),
}
