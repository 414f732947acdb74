use super::*;

#[test]
fn a_batch_larger_than_the_rate_limiter_ever_hands_out_is_refused() {
    let mut fleet = Fleet::default();
    (fleet.replay.error_items, fleet.replay.samples_per_insert) = (100.0, 8.0);
    fleet.learner.batch_size = 192;
    fleet.check().unwrap();
    fleet.learner.batch_size = 193;
    let error = fleet.check().unwrap_err().to_string();
    assert!(error.starts_with("learner.batch_size: is 193, more than the 192 samples"), "{error}");
}
