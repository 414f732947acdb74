//! Messages of an evaluation stream, and requests for searches.

use std::time::Duration;

use game::ObservationShape;
use inference::{Predictions, Wdl};
use prost::Message as _;
use proto::inference::order::{Evaluate, EvaluateOrder};
use proto::inference::v1::eval_request::Observations;
use proto::inference::v1::evaluate_request::Message;
use proto::inference::{EvalRequest, Hello, Moves, SearchQuery, Welcome, analyse_from_wire, predictions_to_wire, v1};
use proto::limits::{STEPS_MAX, request_positions_max};
use tonic::Status;
use transport::limits::MESSAGE_BYTES_MAX;

/// Maximum number of pending requests in the stream.
const REQUESTS_MAX: usize = 3;
/// Maximum bytes of a status text, which is a header.
const STATUS_BYTES_MAX: usize = 4 << 10;

/// Checks that any bytes are messages of an evaluation stream or end it, that accepted positions are unpacked as by a
/// naive reader, and that each request and response fits into a message.
///
/// The first byte chooses between a stream and a request for a search. In a stream, each message has a length prefix of
/// two little-endian bytes.
pub(crate) fn check(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, request)) => analysis(request),
        Some((1, request)) => selection(request),
        Some((_, messages)) => stream(messages),
        None => {}
    }
}

fn stream(mut rest: &[u8]) {
    let mut order = EvaluateOrder::default();
    let mut opened: Option<(Hello, usize)> = None;
    let mut unanswered = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (message, after) = after.split_at(after.len().min(usize::from(u16::from_le_bytes(*length))));
        rest = after;
        let Ok(message) = v1::EvaluateRequest::decode(message) else { continue };
        match order.receive(message.clone()) {
            Err(fault) => {
                let text = Status::from(fault).message().len();
                assert!(text <= STATUS_BYTES_MAX, "the reason has {text} bytes");
                return;
            }
            Ok(Evaluate::Hello(hello)) => {
                assert!(opened.is_none(), "two greetings");
                let positions_max = request_positions_max(hello.shape, hello.actions);
                order.welcomed(Welcome { version: 1, positions_max, requests_max: REQUESTS_MAX });
                assert_eq!(Hello::try_from(v1::Hello::from(hello.clone())).as_ref(), Ok(&hello));
                opened = Some((hello, positions_max));
            }
            Ok(Evaluate::Request(request)) => {
                let (hello, positions_max) = opened.as_ref().expect("a request comes after the greeting");
                let Some(Message::Request(sent)) = &message.message else { unreachable!("a request was received") };
                assert!(!unanswered.contains(&request.id) && unanswered.len() < REQUESTS_MAX, "over the credit");
                compare(&request, sent, hello.shape, hello.actions, *positions_max);
                // The oldest request gets a response once the credit is used up.
                unanswered.push(request.id);
                if unanswered.len() == REQUESTS_MAX && request.id & 1 == 0 {
                    order.answered(unanswered.remove(0));
                }
            }
        }
    }
}

/// Compares an accepted request with a naive reading of the message.
fn compare(
    request: &EvalRequest,
    sent: &v1::EvalRequest,
    shape: ObservationShape,
    actions: usize,
    positions_max: usize,
) {
    let count = request.positions.count();
    assert_eq!((request.id, count), (sent.id, sent.positions as usize));
    assert!((1..=positions_max).contains(&count));
    assert_eq!(request.version.unwrap_or(0), sent.version);
    assert_eq!(request.timeout.unwrap_or_default(), Duration::from_micros(sent.timeout_us));
    let batch = request.positions.batch(0..count);
    batch.check(shape, actions, positions_max).expect("the positions suit the game");
    let numbers = shape.len();
    let is_set = |bytes: &[u8], bit: usize| bytes[bit / 8] >> (bit % 8) & 1 == 1;
    let mut predictions = Predictions::new();
    for position in 0..count {
        let row = &sent.legal[position * actions.div_ceil(8)..];
        let legal: Vec<usize> = (0..actions).filter(|&action| is_set(row, action)).collect();
        let got: Vec<usize> = batch.legal(position).iter().map(|action| action.index()).collect();
        assert_eq!((&got, request.positions.legal_actions(position)), (&legal, legal.len()));
        assert!(!legal.is_empty());
        let number = |index: usize| match sent.observations.as_ref().expect("it was accepted") {
            Observations::Bits(bits) => f32::from(u8::from(is_set(&bits[position * numbers.div_ceil(8)..], index))),
            Observations::Floats(floats) => {
                let at = (position * numbers + index) * size_of::<f32>();
                f32::from_le_bytes(floats[at..at + size_of::<f32>()].try_into().expect("four bytes"))
            }
        };
        assert!(batch.observation(position).iter().enumerate().all(|(index, &got)| got == number(index)));
        assert!(batch.observation(position).iter().all(|number| (0.0..=1.0).contains(number)));
        predictions.push(&vec![1.0 / legal.len() as f32; legal.len()], Wdl::EVEN);
    }
    let answer = predictions_to_wire(request.id, 1, &predictions);
    assert!(answer.encoded_len() <= MESSAGE_BYTES_MAX, "an answer of {} bytes", answer.encoded_len());
}

fn analysis(request: &[u8]) {
    let Ok(message) = v1::AnalyseRequest::decode(request) else { return };
    if let Ok((query, interval)) = analyse_from_wire(message.clone()) {
        check_query(&query);
        assert_eq!(interval.unwrap_or_default(), Duration::from_millis(message.interval_milliseconds.into()));
    }
}

fn selection(request: &[u8]) {
    let Ok(message) = v1::SelectMoveRequest::decode(request) else { return };
    let Ok(query) = SearchQuery::try_from(message) else { return };
    check_query(&query);
    assert_eq!(SearchQuery::try_from(v1::SelectMoveRequest::from(query.clone())).as_ref(), Ok(&query));
}

fn check_query(query: &SearchQuery) {
    let moves = match &query.moves {
        Moves::Actions(actions) => actions.len(),
        Moves::Notation(moves) => moves.len(),
    };
    assert!(moves <= STEPS_MAX && query.game.as_ref().is_none_or(|game| !game.is_empty()));
}

/// Returns streams with bits and with numbers, and requests for searches.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let wrap = |message| {
        let message = v1::EvaluateRequest { message: Some(message) }.encode_to_vec();
        [&(message.len() as u16).to_le_bytes()[..], &message].concat()
    };
    let stream = |messages: Vec<Message>| {
        let messages: Vec<u8> = messages.into_iter().flat_map(wrap).collect();
        [&[2], messages.as_slice()].concat()
    };
    let shape = ObservationShape { planes: 2, height: 3, width: 3 };
    let hello = || Message::Hello(Hello { name: "fuzz".into(), game: "tic_tac_toe".into(), shape, actions: 9 }.into());
    let request = |id: u64, observations, positions: u32| v1::EvalRequest {
        id,
        version: id,
        positions,
        timeout_us: 1000 * id,
        observations: Some(observations),
        legal: [0b1010_1010, 1].repeat(positions as usize).into(),
        trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
    };
    let bits = |positions: usize| Observations::Bits([0x55, 0xaa, 1].repeat(positions).into());
    let floats = |positions: usize| {
        let numbers = (0..18 * positions).map(|index| index as f32 / (18 * positions) as f32);
        Observations::Floats(numbers.flat_map(f32::to_le_bytes).collect::<Vec<u8>>().into())
    };
    let actions = v1::position::Moves::Actions(v1::ActionList { actions: vec![4, 0, 8] });
    let notation = v1::position::Moves::Notation(v1::NotationList { moves: vec!["b2".into(), "a1".into()] });
    let position = |moves| Some(v1::Position { game: "tic_tac_toe".into(), moves: Some(moves) });
    let analyse = v1::AnalyseRequest {
        position: position(actions.clone()),
        simulations: 40,
        milliseconds: 0,
        interval_milliseconds: 7,
    };
    let select = |moves| v1::SelectMoveRequest { position: position(moves), simulations: 0, milliseconds: 9 };
    vec![
        stream(vec![hello(), Message::Request(request(1, bits(1), 1)), Message::Request(request(2, floats(1), 1))]),
        stream((1..6).map(|id| Message::Request(request(id, bits(2), 2))).fold(vec![hello()], |mut all, message| {
            all.push(message);
            all
        })),
        stream(vec![hello(), Message::Request(request(3, floats(3), 3)), hello()]),
        stream(vec![Message::Request(request(1, bits(1), 1))]),
        [&[0], analyse.encode_to_vec().as_slice()].concat(),
        [&[1], select(actions).encode_to_vec().as_slice()].concat(),
        [&[1], select(notation).encode_to_vec().as_slice()].concat(),
    ]
}
