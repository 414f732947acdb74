//! The legal order of the messages of an evaluation stream, as a pure state machine: the server's side.

use std::collections::HashSet;

use super::v1::evaluate_request::Message;
use super::{Asked, Hello, Welcome, v1};
use crate::convert::evaluation::{ask_from_wire, required_message};
use crate::replay::order::Fault;

#[cfg(test)]
mod tests;

/// What a message of a client means.
#[derive(Debug)]
pub enum Evaluate {
    /// Who asks. A [`Welcome`] is due.
    Hello(Hello),
    /// Positions.
    Ask(Asked),
}

/// Holds one stream to its order.
#[derive(Debug, Default)]
pub struct EvaluateOrder {
    opened: Option<(Hello, Option<Welcome>)>,
    unanswered: HashSet<u64>,
}

impl EvaluateOrder {
    /// The next message.
    ///
    /// # Errors
    /// [`Fault`] ends the stream.
    pub fn receive(&mut self, message: v1::EvaluateRequest) -> Result<Evaluate, Fault> {
        match (required_message(message.message)?, &mut self.opened) {
            (Message::Hello(hello), opened @ None) => {
                let hello = Hello::try_from(hello)?;
                *opened = Some((hello.clone(), None));
                Ok(Evaluate::Hello(hello))
            }
            (Message::Hello(_), Some(_)) => Err(Fault::Twice { message: "hello" }),
            (Message::Ask(_), None) => Err(Fault::TooEarly { got: "ask", expected: "hello" }),
            (Message::Ask(_), Some((_, None))) => Err(Fault::TooEarly { got: "ask", expected: "the welcome" }),
            (Message::Ask(ask), Some((hello, Some(welcome)))) => {
                let asked = ask_from_wire(ask, hello.shape, hello.actions, welcome.positions_max)?;
                if self.unanswered.len() >= welcome.asks_max {
                    let credit = u32::try_from(welcome.asks_max).unwrap_or(u32::MAX);
                    return Err(Fault::OverCredit { message: "ask", credit });
                }
                if !self.unanswered.insert(asked.id) {
                    return Err(Fault::Twice { message: "ask.id" });
                }
                Ok(Evaluate::Ask(asked))
            }
        }
    }

    /// The server has welcomed the client.
    pub fn welcomed(&mut self, welcome: Welcome) {
        if let Some((_, welcomed)) = &mut self.opened {
            *welcomed = Some(welcome);
        }
    }

    /// The server has answered or refused an ask.
    pub fn answered(&mut self, id: u64) {
        self.unanswered.remove(&id);
    }

    /// Asks without an answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }
}
