//! Prioritised replay, from the learner's losses to the draw probabilities.

use std::time::Duration;

use proto::replay::{MAIN_TABLE, Sampler, SamplerSettings};
use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, wait_until};

const DEADLINE: Duration = Duration::from_secs(90);
const STEPS: &str = "zerofleet_learner_steps_total";

/// Returns the ratio of the greatest to the smallest draw probability in a batch.
async fn spread(endpoint: &str) -> f64 {
    let settings = SamplerSettings {
        game: "tic_tac_toe".to_owned(),
        table: MAIN_TABLE.to_owned(),
        batch_size: 64,
        unroll_steps: 0,
        prefetch_batches: 1,
    };
    let mut sampler = Sampler::start(endpoint, settings);
    let batch = sampler.next().await;
    sampler.close().await;
    let probabilities = batch.samples.iter().map(|sample| sample.probability);
    probabilities.clone().fold(0.0, f64::max) / probabilities.fold(f64::INFINITY, f64::min)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn priorities_from_the_learner_make_draw_probabilities_unequal() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    cluster.process(Role::Replay).argue(&["--set", "replay.selector=prioritised"]);
    cluster.start(&[Role::Replay, Role::Learner, Role::Actor]).unwrap();
    wait_until("the learner trains", DEADLINE, || {
        Ok(cluster.metric(Role::Learner, STEPS).is_some_and(|steps| steps > 40.0))
    })
    .unwrap();
    let endpoint = cluster.replay_endpoint();
    let spread = spread(&endpoint).await;
    assert!(spread > 1.5, "the likeliest draw is only {spread} times as likely as the least likely");
}
