//! The engine side of a connection: [`serve`].

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow::{Break, Continue};
use std::rc::Rc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{Analysis, Engine, Host, Identity, Input, Line, Rules, Search, Setup};

use super::job::Job;
use super::perspective::Perspective;
use super::query::{FieldMessage, Query, require, take};
use super::response::{Response, View};

/// Maximum length of an input line, in bytes: the moves of a long game take 10,000.
pub const LINE_BYTES_MAX: usize = 256 << 10;
/// Maximum number of waiting positions, and of bytes in the queries. Beyond them, no lines are read until some
/// positions are searched.
const WAITING_MAX: usize = 10_000;
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Maximum number of requests to clear the cache that wait for the end of a search.
const CLEARINGS_MAX: usize = 100;

/// Settings of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Simulations per position for queries without `maxVisits`.
    pub visits: u32,
    /// The side for reported values.
    pub perspective: Perspective,
}

/// Serves queries until the input is closed and all positions are searched.
///
/// # Errors
/// The output cannot be written.
pub fn serve(
    engine: &mut dyn Engine,
    input: &mut dyn Input,
    output: &mut dyn Write,
    host: &Host<'_>,
    settings: &Settings,
) -> io::Result<()> {
    let identity = engine.identity().clone();
    let mut session = Session {
        input,
        output,
        identity,
        settings,
        waiting: BTreeMap::new(),
        waiting_bytes: 0,
        next_number: 0,
        running: None,
        is_terminated: false,
        clearings: Vec::new(),
        is_input_over: false,
        failure: None,
    };
    loop {
        session.read_arrived();
        for echo in std::mem::take(&mut session.clearings) {
            engine.clear_cache();
            session.write(&echo);
        }
        if let Some(failure) = session.failure.take() {
            return Err(failure);
        }
        if let Some((_, task)) = session.waiting.pop_first() {
            analyse(engine, &mut session, host, &task);
            session.release(task);
        } else if session.is_input_over {
            return Ok(());
        } else {
            let line = session.input.next();
            session.take_line(line);
        }
    }
}

/// A position to search.
#[derive(Debug, Clone)]
struct Task {
    job: Rc<Job>,
    turn: usize,
}

/// Plays the moves before a position, from a setup with supported rules.
///
/// # Errors
/// Names the illegal move, as in KataGo, or the reason why the board or the stones are rejected.
fn set_up(engine: &mut dyn Engine, setup: &Setup, Task { job, turn }: &Task) -> Result<(), FieldMessage> {
    engine.start(setup).map_err(|error| FieldMessage::new("", error.to_string()))?;
    let game = engine.identity().game;
    for (number, ply) in job.record.plies.iter().take(*turn).enumerate() {
        engine.play(ply.color, ply.played).map_err(|error| {
            let name = game.move_name(setup.size, ply.played);
            FieldMessage::new("moves", format!("Illegal move {number}: {name}: {error}"))
        })?;
    }
    Ok(())
}

/// Searches a position and writes the responses. If the position cannot be set up, the query has one error for all
/// positions.
fn analyse(engine: &mut dyn Engine, session: &mut Session<'_>, host: &Host<'_>, task: &Task) {
    let Task { job, turn } = task;
    let mut setup = job.record.setup.clone();
    if let Rules::Go(rules) = &mut setup.rules {
        let nearest = engine.nearest_rules(*rules);
        if nearest != *rules && !job.is_warned.replace(true) {
            let message = format!("unsupported rules: the analysis is by the nearest, {}", nearest.json());
            session.report("warning", Some(&job.id), &FieldMessage::new("rules", message));
        }
        *rules = nearest;
    }
    if let Err(refusal) = set_up(engine, &setup, task) {
        let others = session.discard(|waiting| Rc::ptr_eq(&waiting.job, job));
        others.into_iter().for_each(|other| session.release(other));
        session.report("error", Some(&job.id), &refusal);
        return;
    }
    (session.running, session.is_terminated) = (Some(task.clone()), false);
    let visits = Some(job.visits.unwrap_or(session.settings.visits));
    let search = Search { color: engine.to_move(), visits, restrictions: &job.restrictions };
    let mut end_in_time = host.deadline((host.clock)(), job.time);
    let mut report_at = job.report_every.map(|interval| (host.clock)().saturating_add(interval));
    let searched = engine.search(&search, &mut |analysis| {
        session.read_arrived();
        let now = (host.clock)();
        if report_at.is_some_and(|at| now >= at) {
            report_at = job.report_every.map(|interval| now.saturating_add(interval));
            let response = session.response(task, analysis);
            session.write(&Response { is_during_search: true, ..response });
        }
        let is_over = session.is_terminated || session.failure.is_some() || end_in_time();
        if is_over { Break(()) } else { Continue(()) }
    });
    session.running = None;
    match searched {
        Ok(analysis) if analysis.visits == 0 => session.write(&Response::without_results(&job.id, *turn)),
        Ok(analysis) => {
            let response = session.response(task, &analysis);
            session.write(&response);
        }
        Err(error) => session.report("error", Some(&job.id), &FieldMessage::new("analyzeTurns", error.to_string())),
    }
}

/// The state of a connection apart from the engine, so that it can change during a search.
struct Session<'a> {
    input: &'a mut dyn Input,
    output: &'a mut dyn Write,
    identity: Identity,
    settings: &'a Settings,
    /// Waiting positions: highest priority first, then in order of arrival.
    waiting: BTreeMap<(Reverse<i64>, u64), Task>,
    waiting_bytes: usize,
    next_number: u64,
    /// The position being searched.
    running: Option<Task>,
    /// True if the search of this position must stop.
    is_terminated: bool,
    /// Requests to clear the cache, which are echoed when it is cleared.
    clearings: Vec<Value>,
    is_input_over: bool,
    /// The first write failure.
    failure: Option<io::Error>,
}

impl Session<'_> {
    /// Handles all lines that have arrived, while there is capacity for more positions.
    fn read_arrived(&mut self) {
        while !self.is_input_over && !self.is_full() && self.input.waiting().is_some() {
            let line = self.input.next();
            self.take_line(line);
        }
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || self.waiting_bytes >= WAITING_BYTES_MAX
    }

    fn take_line(&mut self, line: Line) {
        match line {
            Line::Text(line) if line.trim().is_empty() => {}
            Line::Text(line) => self.handle(&line),
            Line::TooLong => self.write(&json!({ "error": format!("a line has at most {LINE_BYTES_MAX} bytes") })),
            Line::End => self.is_input_over = true,
        }
    }

    fn handle(&mut self, line: &str) {
        let object = match serde_json::from_str(line) {
            Ok(Value::Object(object)) => object,
            other => {
                let column = other.err().map_or(1, |error| error.column());
                let message = format!("the line is not a JSON object: wrong at column {column}");
                return self.report("error", None, &FieldMessage::new("", message));
            }
        };
        let id = object.get("id").and_then(Value::as_str).map(str::to_owned);
        let handled = if object.contains_key("action") { self.act(object) } else { self.enqueue(object, line.len()) };
        if let Err(message) = handled {
            self.report("error", id.as_deref(), &message);
        }
    }

    fn enqueue(&mut self, object: Map<String, Value>, bytes: usize) -> Result<(), FieldMessage> {
        let (query, mut warnings) = Query::from_object(object)?;
        let job = Job::new(query, &self.identity, bytes, &mut warnings)?;
        for warning in &warnings {
            self.report("warning", Some(&job.id), warning);
        }
        let job = Rc::new(job);
        for turn in &job.turns {
            self.next_number += 1;
            let task = Task { job: Rc::clone(&job), turn: turn.number };
            self.waiting.insert((Reverse(turn.priority), self.next_number), task);
        }
        self.waiting_bytes += if job.turns.is_empty() { 0 } else { bytes };
        Ok(())
    }

    fn act(&mut self, mut object: Map<String, Value>) -> Result<(), FieldMessage> {
        let mut echo = object.clone();
        let _: String = require(&mut object, "id")?;
        let action: String = require(&mut object, "action")?;
        match action.as_str() {
            "query_version" => {
                echo.insert("version".into(), self.identity.version.clone().into());
                echo.insert("git_hash".into(), "<omitted>".into());
            }
            "query_models" => {
                let name = format!("{} {}", self.identity.name, self.identity.version);
                let model = json!({ "name": name, "internalName": name, "usesHumanSLProfile": false });
                echo.insert("models".into(), json!([model]));
            }
            "clear_cache" if self.clearings.len() < CLEARINGS_MAX => {
                self.clearings.push(echo.into());
                return Ok(());
            }
            "clear_cache" => return Err(FieldMessage::new("action", "too many requests are waiting")),
            "terminate" => {
                let id: String = require(&mut object, "terminateId")?;
                self.terminate(Some(&id), take(&mut object, "turnNumbers")?);
            }
            "terminate_all" => self.terminate(None, take(&mut object, "turnNumbers")?),
            _ => return Err(FieldMessage::new("action", format!("`{action}` is not an action"))),
        }
        self.write(&echo);
        Ok(())
    }

    /// Terminates positions of the query with this id, or of all queries, with these turn numbers, or with any.
    fn terminate(&mut self, id: Option<&str>, turns: Option<Vec<usize>>) {
        let is_meant = |task: &Task| {
            id.is_none_or(|id| id == task.job.id) && turns.as_ref().is_none_or(|turns| turns.contains(&task.turn))
        };
        self.is_terminated |= self.running.as_ref().is_some_and(is_meant);
        for task in self.discard(is_meant) {
            self.write(&Response::without_results(&task.job.id, task.turn));
            self.release(task);
        }
    }

    /// Removes waiting positions and returns them, for [`release`](Self::release).
    fn discard(&mut self, is_meant: impl Fn(&Task) -> bool) -> Vec<Task> {
        self.waiting.extract_if(.., |_, task| is_meant(task)).map(|(_, task)| task).collect()
    }

    /// Drops a position; dropping the last position of a query frees the query's bytes.
    fn release(&mut self, task: Task) {
        if let Some(job) = Rc::into_inner(task.job) {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(job.bytes);
        }
    }

    fn response(&self, task: &Task, analysis: &Analysis) -> Response {
        let view = match task.job.perspective.unwrap_or(self.settings.perspective) {
            Perspective::Of(color) if color != analysis.to_move => View::Opponent,
            Perspective::Of(_) | Perspective::SideToMove => View::Own,
        };
        Response::new(&task.job, task.turn, self.identity.game, analysis, view)
    }

    /// Writes an error or a warning.
    fn report(&mut self, kind: &str, id: Option<&str>, message: &FieldMessage) {
        let mut object = Map::new();
        object.insert(kind.into(), message.message.clone().into());
        if !message.field.is_empty() {
            object.insert("field".into(), message.field.clone().into());
        }
        if let Some(id) = id {
            object.insert("id".into(), id.into());
        }
        self.write(&object);
    }

    /// Writes a line; keeps the first failure, which stops the session.
    fn write(&mut self, message: &impl Serialize) {
        let mut write = || {
            let text = serde_json::to_string(message).map_err(io::Error::other)?;
            writeln!(self.output, "{text}")?;
            self.output.flush()
        };
        if self.failure.is_none() {
            self.failure = write().err();
        }
    }
}
