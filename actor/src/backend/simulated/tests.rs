use super::*;

const SHAPE: ObservationShape = ObservationShape { planes: 3, height: 6, width: 7 };

fn batch_of_one() -> Batch {
    let mut batch = Batch::new(SHAPE);
    batch.push(&[game::Action(0), game::Action(3)], |planes| planes.fill(1.0));
    batch
}

#[test]
fn a_simulated_evaluator_keeps_the_promises_of_every_evaluator() {
    inference::conformance::run(&mut Delayed::new(SHAPE, 5, Duration::from_micros(1)), SHAPE, 7, 0.0);
}

#[test]
fn a_batch_is_answered_after_the_delay_and_with_the_version_it_was_made_for() {
    let delay = Duration::from_millis(5);
    let mut evaluator = Delayed::new(SHAPE, 5, delay);
    assert_eq!((&*evaluator.attributes().name, evaluator.attributes().weights_version), (NAME, 5));
    let (start, mut predictions) = (Instant::now(), Predictions::new());
    evaluator.evaluate(&batch_of_one(), &mut predictions).unwrap();
    assert!(start.elapsed() >= delay);
    assert_eq!(predictions.len(), 1);
}
