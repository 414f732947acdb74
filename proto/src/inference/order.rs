//! The legal order of the messages of an evaluation stream, as a pure state machine: the server's side.

use std::collections::HashSet;

use super::v1::evaluate_request::Message;
use super::{Asked, Hello, Welcome, v1};
use crate::convert::evaluation::{ask_from_wire, required_message};
use crate::replay::order::Fault;

/// The event that a client's message stands for.
#[derive(Debug)]
pub enum Evaluate {
    /// The client's identity. A [`Welcome`] is due.
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

    /// Records that the server has answered or rejected a request.
    pub fn answered(&mut self, id: u64) {
        self.unanswered.remove(&id);
    }

    /// Asks without an answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use game::ObservationShape;

    use super::{Evaluate, EvaluateOrder};
    use crate::inference::v1::ask::Observations;
    use crate::inference::v1::evaluate_request::Message;
    use crate::inference::{Hello, Welcome, v1};
    use crate::replay::order::Fault;

    fn hello() -> Message {
        let shape = ObservationShape { planes: 1, height: 2, width: 2 };
        Message::Hello(Hello { name: "test".into(), game: "tic_tac_toe".into(), shape, actions: 4 }.into())
    }

    fn ask(id: u64) -> Message {
        let one = || Bytes::from_static(&[1]);
        let observations = Some(Observations::Bits(one()));
        Message::Ask(v1::Ask {
            id,
            version: 0,
            positions: 1,
            timeout_us: 0,
            observations,
            legal: one(),
            trace: String::new(),
        })
    }

    fn receive(order: &mut EvaluateOrder, message: Message) -> Result<Evaluate, Fault> {
        order.receive(v1::EvaluateRequest { message: Some(message) })
    }

    fn opened() -> EvaluateOrder {
        let mut order = EvaluateOrder::default();
        assert!(matches!(receive(&mut order, hello()), Ok(Evaluate::Hello(_))));
        order.welcomed(Welcome { version: 1, positions_max: 1, asks_max: 2 });
        order
    }

    #[test]
    fn asks_come_after_the_welcome_and_may_be_answered_in_any_order() {
        let mut order = opened();
        for id in [8, 3] {
            assert!(matches!(receive(&mut order, ask(id)), Ok(Evaluate::Ask(asked)) if asked.id == id));
        }
        order.answered(3);
        assert!(receive(&mut order, ask(3)).is_ok());
        assert_eq!(order.unanswered(), 2);
    }

    #[test]
    fn whatever_is_out_of_order_is_named() {
        let mut order = EvaluateOrder::default();
        assert!(matches!(receive(&mut order, ask(0)), Err(Fault::TooEarly { expected: "hello", .. })));
        assert!(matches!(order.receive(v1::EvaluateRequest { message: None }), Err(Fault::Empty)));
        assert!(receive(&mut order, hello()).is_ok());
        assert!(matches!(receive(&mut order, ask(0)), Err(Fault::TooEarly { expected: "the welcome", .. })));

        let mut order = opened();
        assert!(matches!(receive(&mut order, hello()), Err(Fault::Twice { message: "hello" })));
        assert!(receive(&mut order, ask(1)).is_ok());
        assert!(matches!(receive(&mut order, ask(1)), Err(Fault::Twice { message: "ask.id" })));
        assert!(receive(&mut order, ask(2)).is_ok());
        assert!(matches!(receive(&mut order, ask(3)), Err(Fault::OverCredit { credit: 2, .. })));
    }
}
