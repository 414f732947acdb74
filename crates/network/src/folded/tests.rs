use tch::{Kind, Tensor};

use super::Folded;
use crate::{
    Precision, tensors,
    testing::{assert_close, batch, complete, numbers, observations, seasoned, small, tiny},
    tower::{Mode, forward},
};

fn differs_from_the_tower_by_at_most(precision: Precision, tolerance: f64) {
    for architecture in [tiny(), small(), complete()] {
        let network = seasoned(&architecture, 21);
        let batch = batch(&architecture, 6, 22);
        let whole = forward(&network, &observations(&architecture, &batch), Kind::Float, Mode::Evaluation).unwrap();

        let mut staged = vec![0.0; batch.observations.len()];
        let cells = architecture.height * architecture.width;
        tensors::channels_last(&batch.observations, architecture.planes, cells, &mut staged);
        let folded = Folded::new(&network, precision).unwrap().forward(&Tensor::from_slice(&staged), 6).unwrap();
        let actions = i64::try_from(architecture.actions).unwrap();
        assert_close(&numbers(&folded.narrow(1, 0, actions)), &numbers(&whole.policy), tolerance);
        assert_close(&numbers(&folded.narrow(1, actions, 3)), &numbers(&whole.value), tolerance);
    }
}

#[test]
fn the_folded_network_answers_as_the_unfolded_one() {
    differs_from_the_tower_by_at_most(Precision::F32, 1e-5);
}

#[test]
fn the_folded_network_in_bf16_stays_near_float32() {
    differs_from_the_tower_by_at_most(Precision::Bf16, 0.05);
}

#[test]
fn what_was_folded_does_not_follow_training() {
    let network = seasoned(&complete(), 23);
    let folded = Folded::new(&network, Precision::F32).unwrap();
    let observations = Tensor::from_slice(&[1.0_f32; 2 * 3 * 4]);
    let before = numbers(&folded.forward(&observations, 1).unwrap());
    tch::no_grad(|| network.flat_parameters().shallow_clone().f_add_scalar_(0.1).map(drop)).unwrap();
    assert_eq!(numbers(&folded.forward(&observations, 1).unwrap()), before);
}
