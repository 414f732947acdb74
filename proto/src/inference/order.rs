//! The legal order of messages in an evaluation stream, as a pure state machine: the server's side.

use std::collections::HashSet;

use super::convert::evaluation::request_from_wire;
use super::v1::evaluate_request::Message;
use super::{EvalRequest, Hello, Welcome, v1};
use crate::replay::order::Fault;

/// The event that a message from the client causes.
#[derive(Debug)]
pub enum Evaluate {
    /// The identity of the client: respond with a [`Welcome`].
    Hello(Hello),
    /// Positions to evaluate, checked against the client's shape and number of actions.
    Request(EvalRequest),
}

/// Checks the order of the messages in one stream.
#[derive(Debug, Default)]
pub struct EvaluateOrder {
    opened: Option<(Hello, Option<Welcome>)>,
    unanswered: HashSet<u64>,
}

impl EvaluateOrder {
    /// Takes the next message from the client.
    ///
    /// # Errors
    /// The [`Fault`] for which the server must close the stream.
    pub fn receive(&mut self, message: v1::EvaluateRequest) -> Result<Evaluate, Fault> {
        match (message.message.ok_or(Fault::Empty)?, &mut self.opened) {
            (Message::Hello(hello), opened @ None) => {
                let hello = Hello::try_from(hello)?;
                *opened = Some((hello.clone(), None));
                Ok(Evaluate::Hello(hello))
            }
            (Message::Hello(_), Some(_)) => Err(Fault::Twice { message: "hello" }),
            (Message::Request(_), None) => Err(Fault::TooEarly { got: "request", expected: "hello" }),
            (Message::Request(_), Some((_, None))) => Err(Fault::TooEarly { got: "request", expected: "welcome" }),
            (Message::Request(request), Some((hello, Some(welcome)))) => {
                let request = request_from_wire(request, hello.shape, hello.actions, welcome.positions_max)?;
                if self.unanswered.len() >= welcome.requests_max {
                    let credit = u32::try_from(welcome.requests_max).unwrap_or(u32::MAX);
                    return Err(Fault::OverCredit { message: "request", credit });
                }
                if !self.unanswered.insert(request.id) {
                    return Err(Fault::Twice { message: "request.id" });
                }
                Ok(Evaluate::Request(request))
            }
        }
    }

    /// Records that the server has sent a welcome.
    pub fn welcomed(&mut self, welcome: Welcome) {
        if let Some((_, welcomed)) = &mut self.opened {
            *welcomed = Some(welcome);
        }
    }

    /// Records that the server has sent the response or rejection of a request.
    pub fn answered(&mut self, id: u64) {
        self.unanswered.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use game::ObservationShape;

    use super::{Evaluate, EvaluateOrder};
    use crate::inference::v1::eval_request::Observations;
    use crate::inference::v1::evaluate_request::Message;
    use crate::inference::{Hello, Welcome, v1};
    use crate::replay::order::Fault;

    fn hello() -> Message {
        let shape = ObservationShape { planes: 1, height: 2, width: 2 };
        Message::Hello(Hello { name: "test".into(), game: "tic_tac_toe".into(), shape, actions: 4 }.into())
    }

    fn request(id: u64) -> Message {
        let one = || Bytes::from_static(&[1]);
        let observations = Some(Observations::Bits(one()));
        Message::Request(v1::EvalRequest {
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
        order.welcomed(Welcome { version: 1, positions_max: 1, requests_max: 2 });
        order
    }

    #[test]
    fn requests_come_after_the_welcome_and_may_be_answered_in_any_order() {
        let mut order = opened();
        for id in [8, 3] {
            assert!(matches!(receive(&mut order, request(id)), Ok(Evaluate::Request(got)) if got.id == id));
        }
        order.answered(3);
        assert!(receive(&mut order, request(3)).is_ok());
        assert_eq!(order.unanswered.len(), 2);
    }

    #[test]
    fn each_protocol_violation_is_refused_with_its_fault() {
        let mut order = EvaluateOrder::default();
        assert!(matches!(receive(&mut order, request(0)), Err(Fault::TooEarly { expected: "hello", .. })));
        assert!(matches!(order.receive(v1::EvaluateRequest { message: None }), Err(Fault::Empty)));
        assert!(receive(&mut order, hello()).is_ok());
        assert!(matches!(receive(&mut order, request(0)), Err(Fault::TooEarly { expected: "welcome", .. })));

        let mut order = opened();
        assert!(matches!(receive(&mut order, hello()), Err(Fault::Twice { message: "hello" })));
        assert!(receive(&mut order, request(1)).is_ok());
        assert!(matches!(receive(&mut order, request(1)), Err(Fault::Twice { message: "request.id" })));
        assert!(receive(&mut order, request(2)).is_ok());
        assert!(matches!(receive(&mut order, request(3)), Err(Fault::OverCredit { credit: 2, .. })));
    }
}
