use anyhow::anyhow;

use super::*;

fn learner(unwritten: &mut Unwritten, checkpoint: u8) -> Vec<String> {
    let text = format!("zerofleet_learner_unwritten{{what=\"checkpoint\"}} {checkpoint}\n");
    unwritten.learner(&Exposition::parse(&text), Path::new("logs/learner.log"))
}

#[test]
fn what_cannot_be_written_is_said_once_with_its_reason_and_once_more_when_it_is_over() {
    let mut unwritten = Unwritten::default();
    assert_eq!(unwritten.kept(&Ok(())), None);
    let full = Err(anyhow!("No space left on device").context("append to metrics.jsonl"));
    let said = unwritten.kept(&full).unwrap();
    assert!(said.starts_with("cannot write the numbers of the run (append to metrics.jsonl: No space left"), "{said}");
    assert_eq!(unwritten.kept(&full), None);
    assert_eq!(unwritten.kept(&Ok(())).unwrap(), "the numbers of the run could be written again");
    assert_eq!(unwritten.kept(&Ok(())), None);
}

#[test]
fn a_learner_that_cannot_write_is_told_of_and_one_that_does_not_answer_is_not() {
    let mut unwritten = Unwritten::default();
    assert_eq!(learner(&mut unwritten, 0), [""; 0]);
    let said = learner(&mut unwritten, 1);
    assert!(said[0].starts_with("cannot write a checkpoint (see logs/learner.log): make room"), "{said:?}");
    assert_eq!(unwritten.learner(&Exposition::default(), Path::new("")), [""; 0]);
    assert_eq!(learner(&mut unwritten, 1), [""; 0]);
    assert_eq!(learner(&mut unwritten, 0), ["a checkpoint could be written again"]);
}
