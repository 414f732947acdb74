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
