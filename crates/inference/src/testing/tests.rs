use super::*;
use crate::conformance;

const SHAPE: ObservationShape = ObservationShape { planes: 3, height: 4, width: 5 };

#[test]
fn the_uniform_evaluator_conforms() {
    conformance::run(&mut Uniform::new(SHAPE), SHAPE, 20, 0.0);
}

#[test]
fn the_hashing_evaluator_conforms() {
    conformance::run(&mut Hashing::new(SHAPE, 3), SHAPE, 20, 0.0);
}

#[test]
fn a_scripted_evaluator_conforms_if_its_script_does() {
    let script = |_: &[f32], legal: &[Action], priors: &mut [f32]| {
        priors[0] = 1.0;
        Wdl { win: 1.0 / legal.len() as f32, draw: 1.0 - 1.0 / legal.len() as f32, loss: 0.0 }
    };
    conformance::run(&mut Scripted::new(SHAPE, 5, script), SHAPE, 20, 0.0);
}

#[test]
#[should_panic(expected = "is not finite")]
fn the_suite_catches_nan() {
    conformance::run(&mut Faulty::new(SHAPE, Fault::AnswersNan, 1), SHAPE, 20, 0.0);
}

#[test]
#[should_panic(expected = "sum to")]
fn the_suite_catches_priors_that_do_not_sum_to_one() {
    let half = |_: &[f32], _: &[Action], priors: &mut [f32]| {
        priors[0] = 0.5;
        Wdl::EVEN
    };
    conformance::run(&mut Scripted::new(SHAPE, 0, half), SHAPE, 20, 0.0);
}

/// Answers like the evaluator inside, but every value leans towards a win by its distance from the end of the batch.
struct Leaning(Hashing);

impl Evaluator for Leaning {
    fn attributes(&self) -> Attributes {
        self.0.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        let mut straight = Predictions::new();
        self.0.evaluate(batch, &mut straight)?;
        predictions.clear();
        for i in 0..batch.len() {
            let lean = (batch.len() - i) as f32 / MAX_BATCH as f32;
            let Wdl { win, draw, loss } = straight.value(i);
            let value = Wdl { win: win * (1.0 - lean) + lean, draw: draw * (1.0 - lean), loss: loss * (1.0 - lean) };
            predictions.push(straight.priors(i), value);
        }
        Ok(())
    }
}

#[test]
#[should_panic(expected = "with the other positions of the batch")]
fn the_suite_catches_answers_that_depend_on_the_rest_of_the_batch() {
    conformance::run(&mut Leaning(Hashing::new(SHAPE, 3)), SHAPE, 20, 1e-5);
}

#[test]
#[should_panic(expected = "the same batch is answered differently")]
fn the_suite_catches_answers_that_depend_on_what_was_asked_before() {
    let mut asked = 0;
    let drifting = move |_: &[f32], legal: &[Action], priors: &mut [f32]| {
        asked = (asked + 1) % 23;
        priors.fill(1.0 / legal.len() as f32);
        let win = asked as f32 / 23.0;
        Wdl { win, draw: 0.0, loss: 1.0 - win }
    };
    conformance::run(&mut Scripted::new(SHAPE, 0, drifting), SHAPE, 20, 1e-3);
}

#[test]
fn hashing_has_opinions_that_its_seed_decides() {
    let mut batch = Batch::new(SHAPE);
    batch.push(&[Action(0), Action(7)], |planes| planes[3] = 1.0);
    batch.push(&[Action(0), Action(7)], |planes| planes[4] = 1.0);
    let answers = |seed| {
        let mut predictions = Predictions::new();
        Hashing::new(SHAPE, seed).evaluate(&batch, &mut predictions).unwrap();
        (predictions.priors(0).to_vec(), predictions.value(0).value(), predictions.value(1).value())
    };
    assert_eq!(answers(1), answers(1));
    assert_ne!(answers(1), answers(2));
    assert_ne!(answers(1).1, answers(1).2);
}

#[test]
fn a_faulty_evaluator_fails_when_told_and_recovers() {
    let mut evaluator = Faulty::new(SHAPE, Fault::Backend, 2);
    let mut predictions = Predictions::new();
    let batch = Batch::new(SHAPE);
    let fails: Vec<bool> = (0..6).map(|_| evaluator.evaluate(&batch, &mut predictions).is_err()).collect();
    assert_eq!(fails, [false, false, true, false, false, true]);
}
