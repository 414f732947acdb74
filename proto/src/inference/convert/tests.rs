use std::time::Duration;

use ::inference::{Batch, Predictions, Wdl};
use game::{Action, ObservationShape};

use super::evaluation::{
    predictions_from_wire, predictions_to_wire, rejection_from_wire, rejection_to_wire, request_from_wire,
    request_to_wire,
};
use crate::inference::v1::eval_request::Observations;
use crate::inference::{Hello, RejectReason, Rejection, v1};

const SHAPE: ObservationShape = ObservationShape { planes: 3, height: 2, width: 3 };
const ACTIONS: usize = 11;

fn batch(numbers: impl Fn(usize, usize) -> f32) -> Batch {
    let mut batch = Batch::new(SHAPE);
    for position in 0..5 {
        let legal: Vec<Action> = (0..11).filter(|action| action % (position + 1) == 0).map(Action).collect();
        batch.push(&legal, |planes| {
            for (i, plane) in planes.iter_mut().enumerate() {
                *plane = numbers(usize::from(position), i);
            }
        });
    }
    batch
}

fn assert_same(a: &Batch, b: &Batch) {
    assert_eq!((a.len(), a.observations()), (b.len(), b.observations()));
    for i in 0..a.len() {
        assert_eq!(a.legal(i), b.legal(i));
    }
}

fn wire() -> v1::EvalRequest {
    request_to_wire(&batch(|position, i| ((position + i) % 2) as f32), ACTIONS, Some(7), Some(Duration::from_millis(3)))
}

fn refused(request: v1::EvalRequest) -> String {
    request_from_wire(request, SHAPE, ACTIONS, 5).expect_err("the request is invalid").to_string()
}

#[test]
fn positions_of_zeros_and_ones_travel_as_bits_and_any_others_as_they_are() {
    let (bits, floats) =
        (batch(|position, i| ((position * 5 + i) % 3 / 2) as f32), batch(|p, i| (p + i) as f32 / 32.0));
    for (batch, are_bits) in [(bits, true), (floats, false)] {
        let request = request_to_wire(&batch, ACTIONS, None, None);
        assert_eq!(matches!(request.observations, Some(Observations::Bits(_))), are_bits);
        let came = request_from_wire(request, SHAPE, ACTIONS, 5).unwrap();
        assert_same(&came.positions.batch(0..5), &batch);
        assert_same(&came.positions.batch([3, 1]), &{
            let mut some = Batch::new(SHAPE);
            some.extend_from(&batch, [3, 1]);
            some
        });
        assert_eq!((came.version, came.timeout), (None, None));
    }
    let came = request_from_wire(wire(), SHAPE, ACTIONS, 5).unwrap();
    assert_eq!((came.version, came.timeout), (Some(7), Some(Duration::from_millis(3))));
}

#[test]
fn equal_positions_and_only_they_have_equal_rows() {
    let mut three = Batch::new(SHAPE);
    for (first, legal) in [(1.0, 4), (0.0, 4), (1.0, 4), (1.0, 5)] {
        three.push(&[Action(legal)], |planes| planes[0] = first);
    }
    let rows = request_from_wire(request_to_wire(&three, ACTIONS, None, None), SHAPE, ACTIONS, 5).unwrap().positions;
    assert_eq!(rows.row(0), rows.row(2));
    assert_ne!(rows.row(0), rows.row(1));
    assert_ne!(rows.row(0), rows.row(3));
}

#[test]
fn an_inconsistent_request_is_refused_with_the_field_at_fault() {
    let with = |change: fn(&mut v1::EvalRequest)| {
        let mut request = wire();
        change(&mut request);
        refused(request)
    };
    assert!(with(|request| request.positions = 0).contains("request.positions"));
    assert!(with(|request| request.positions = 6).contains("request.positions"));
    assert!(with(|request| request.positions = 4).contains("request.legal"));
    assert!(with(|request| request.legal = vec![].into()).contains("request.legal"));
    assert!(with(|request| request.legal = vec![0; 10].into()).contains("request.legal[0]"));
    // Action 11, although actions are 0 to 10.
    assert!(
        with(|request| request.legal = vec![1, 0b1000, 1, 0, 1, 0, 1, 0, 1, 0].into()).contains("request.legal[0]")
    );
    assert!(with(|request| request.observations = None).contains("request.observations"));
    assert!(
        with(|request| request.observations = Some(Observations::Bits(vec![0; 14].into()))).contains("request.bits")
    );
    assert!(
        with(|request| request.observations = Some(Observations::Floats(vec![0; 359].into())))
            .contains("request.floats")
    );
    let mut floats = vec![0_u8; 360];
    for wrong in [f32::NAN, f32::INFINITY, -0.5, 1.5, f32::MAX] {
        floats[72..76].copy_from_slice(&wrong.to_le_bytes());
        let mut request = wire();
        request.observations = Some(Observations::Floats(floats.clone().into()));
        assert!(refused(request).contains("request.floats[1]"), "{wrong}");
    }
}

#[test]
fn an_answer_comes_back_within_half_precision_and_sums_to_one() {
    let batch = batch(|_, _| 0.0);
    let mut sent = Predictions::new();
    for i in 0..batch.len() {
        let weights: Vec<f32> = batch.legal(i).iter().map(|action| 1.0 / (3.0 + f32::from(action.0))).collect();
        let sum: f32 = weights.iter().sum();
        let priors: Vec<f32> = weights.iter().map(|weight| weight / sum).collect();
        sent.push(&priors, Wdl { win: 0.6, draw: 0.1, loss: 0.3 });
    }
    let message = predictions_to_wire(3, 9, &sent);
    assert_eq!((message.id, message.version), (3, 9));
    let came = predictions_from_wire(&message, &batch).unwrap();
    for i in 0..batch.len() {
        assert!((came.priors(i).iter().sum::<f32>() - 1.0).abs() < 1e-6);
        for (a, b) in came.priors(i).iter().zip(sent.priors(i)) {
            assert!((a - b).abs() < 1e-3, "{a} came for {b}");
        }
        assert!((came.value(i) - 0.3).abs() < 1e-3);
    }
}

#[test]
fn invalid_predictions_are_refused_with_the_field_at_fault() {
    let mut batch = Batch::new(SHAPE);
    batch.push(&[Action(0), Action(1)], |_| {});
    let answer = |priors: [f32; 2], wdl: [f32; 3]| {
        let mut predictions = Predictions::new();
        predictions.push(&priors, Wdl { win: wdl[0], draw: wdl[1], loss: wdl[2] });
        predictions_to_wire(0, 1, &predictions)
    };
    let refused =
        |message: &v1::Predictions| predictions_from_wire(message, &batch).expect_err("it is no answer").to_string();
    assert!(refused(&answer([f32::NAN, 1.0], [1.0, 0.0, 0.0])).contains("predictions.priors[0]"));
    assert!(refused(&answer([0.5, 0.3], [1.0, 0.0, 0.0])).contains("predictions.priors[0]"));
    assert!(refused(&answer([0.5, 0.5], [2.0, 0.0, -1.0])).contains("predictions.wdl[0]"));
    let mut short = answer([0.5, 0.5], [1.0, 0.0, 0.0]);
    short.priors = short.priors.slice(..2);
    assert!(refused(&short).contains("predictions.priors"));
}

#[test]
fn a_rejection_carries_its_reason_and_its_retry_delay() {
    for reason in [RejectReason::Full, RejectReason::Late, RejectReason::Version, RejectReason::Failed] {
        let rejection = Rejection {
            reason,
            message: "no".to_owned(),
            retry_after: (reason == RejectReason::Full).then(|| Duration::from_millis(4)),
        };
        assert_eq!(rejection_from_wire(rejection_to_wire(5, rejection.clone())).unwrap(), (5, rejection));
    }
    assert!(rejection_from_wire(v1::Rejection { reason: 77, ..v1::Rejection::default() }).is_err());
}

#[test]
fn a_hello_of_observations_that_fit_no_message_is_refused() {
    let hello = Hello { name: "a".to_owned(), game: "hex-11".to_owned(), shape: SHAPE, actions: ACTIONS };
    let wire = v1::Hello::from(hello.clone());
    assert_eq!(Hello::try_from(wire.clone()).unwrap(), hello);
    let huge = v1::Hello { planes: 1 << 20, height: 1 << 20, width: 1 << 20, ..wire.clone() };
    assert!(Hello::try_from(huge).is_err());
    assert!(Hello::try_from(v1::Hello { actions: 1 << 17, ..wire.clone() }).is_err());
    assert!(Hello::try_from(v1::Hello { name: String::new(), ..wire }).is_err());
}
