use std::pin::pin;

use experience::{ActionProbability, Step, StepKind, Trajectory, WeightsVersion};
use futures::poll;
use game::Action;
use prost::Message as _;
use tonic::Status;
use transport::limits::MESSAGE_BYTES_MAX;

use super::{Sampler, SamplerSettings};
use crate::replay::{MAIN_TABLE, NewestWeights, SampleQuery, v1, waiting_to_wire};
use crate::scripted::{Link, ReplayScript, batch, trajectory, until, within};

fn sampler(endpoint: String, prefetch_batches: usize) -> Sampler {
    Sampler::start(&endpoint, settings(2, prefetch_batches))
}

fn settings(batch_size: usize, prefetch_batches: usize) -> SamplerSettings {
    let (game, table) = ("tic_tac_toe".into(), MAIN_TABLE.into());
    SamplerSettings { game, table, batch_size, unroll_steps: 1, prefetch_batches }
}

#[tokio::test]
async fn a_stream_opens_with_the_query_and_batches_arrive_as_they_were_sent() {
    let mut server = ReplayScript::start().await;
    let mut sampler = sampler(server.endpoint(), 2);
    let mut stream = server.sampling().await;
    let (game, table) = ("tic_tac_toe".into(), MAIN_TABLE.into());
    assert_eq!(stream.open().await, SampleQuery { game, batch_size: 2, unroll_steps: 1, table, timeout: None });
    stream.credit_of(2).await;
    stream.batch(&batch(1, 2)).await;
    stream.batch(&batch(2, 2)).await;
    assert_eq!([within(sampler.next()).await, within(sampler.next()).await], [batch(1, 2), batch(2, 2)]);
    sampler.close().await;
}

#[tokio::test]
async fn a_batch_larger_than_a_message_arrives_whole() {
    let entry = |action| ActionProbability { action: Action(action), probability: 1.0 / 65536.0 };
    let policy: Vec<_> = (0..=u16::MAX).map(entry).collect();
    let mut large = batch(1, 50);
    let small = trajectory(1);
    let wide = Step { kind: StepKind::Full { policy, value: 0.5 }, ..small.steps().next().unwrap() };
    let wide = Trajectory::of(small.id(), small.game(), &vec![wide; 3], small.outcome()).unwrap();
    large.samples.iter_mut().for_each(|sample| sample.segment = wide.segment(1, 1).unwrap());
    assert!(v1::Batch::from(&large).encoded_len() > MESSAGE_BYTES_MAX);

    let mut server = ReplayScript::start().await;
    let mut sampler = Sampler::start(&server.endpoint(), settings(50, 1));
    let mut stream = server.sampling().await;
    stream.open().await;
    stream.credit_of(1).await;
    stream.batch(&large).await;
    assert!(within(sampler.next()).await == large, "another batch than the one that was sent");
}

#[tokio::test]
async fn credit_is_given_only_for_batches_that_have_a_place() {
    let mut server = ReplayScript::start().await;
    let mut sampler = sampler(server.endpoint(), 3);
    let mut stream = server.sampling().await;
    stream.open().await;
    stream.credit_of(3).await;
    for number in 0..10 {
        {
            let mut early = pin!(stream.credit());
            for _ in 0..20 {
                assert!(poll!(early.as_mut()).is_pending(), "credit came for a batch that has no place");
                tokio::task::yield_now().await;
            }
        }
        stream.batch(&batch(number, 2)).await;
        assert_eq!(within(sampler.next()).await, batch(number, 2));
        stream.credit_of(1).await;
    }
}

#[tokio::test]
async fn a_learner_sends_the_newest_version_with_its_credit_and_again_on_a_new_stream() {
    let mut server = ReplayScript::start().await;
    let newest = NewestWeights::default();
    let mut sampler = Sampler::with_newest(newest.clone(), &server.endpoint(), settings(2, 1));
    let mut first = server.sampling().await;
    first.open().await;
    assert_eq!(first.whole_credit().await.newest_weights_version, 0, "nothing is published yet");
    newest.set(WeightsVersion(4));
    first.batch(&batch(1, 2)).await;
    within(sampler.next()).await;
    assert_eq!(first.whole_credit().await.newest_weights_version, 4);
    first.end(Status::unavailable("draining")).await;
    let mut second = server.sampling().await;
    second.open().await;
    assert_eq!(second.whole_credit().await.newest_weights_version, 4);
}

#[tokio::test]
async fn a_cut_link_is_replaced_and_the_open_credit_given_again() {
    let mut server = ReplayScript::start().await;
    let link = Link::to(server.address).await;
    let mut sampler = sampler(link.endpoint(), 3);
    let mut first = server.sampling().await;
    first.open().await;
    first.credit_of(3).await;
    first.batch(&batch(1, 2)).await;
    // The batch has arrived and still occupies a slot.
    until(|| !sampler.batches.is_empty()).await;
    link.cut();

    let mut second = server.sampling().await;
    second.open().await;
    second.credit_of(2).await;
    second.batch(&batch(2, 2)).await;
    assert_eq!(within(sampler.next()).await, batch(1, 2));
    assert_eq!(within(sampler.next()).await, batch(2, 2));
    assert_eq!(link.connections(), 2);
}

#[tokio::test]
async fn a_stream_that_the_server_ends_is_opened_again() {
    let mut server = ReplayScript::start().await;
    let mut sampler = sampler(server.endpoint(), 1);
    server.sampling().await.end(Status::unavailable("draining")).await;
    let mut stream = server.sampling().await;
    stream.open().await;
    stream.credit_of(1).await;
    stream.batch(&batch(1, 2)).await;
    assert_eq!(within(sampler.next()).await, batch(1, 2));
}

#[tokio::test]
async fn the_waiting_reason_is_reported_until_a_batch_arrives() {
    let mut server = ReplayScript::start().await;
    let mut sampler = sampler(server.endpoint(), 1);
    let mut stream = server.sampling().await;
    stream.open().await;
    stream.credit_of(1).await;
    let reason = "the table holds 120 of the 1000 trajectories it waits for";
    stream.reply(waiting_to_wire(reason.into())).await;
    until(|| sampler.waiting_reason().as_deref() == Some(reason)).await;
    stream.batch(&batch(1, 2)).await;
    within(sampler.next()).await;
    assert_eq!(sampler.waiting_reason(), None);
}

#[tokio::test]
async fn an_unavailable_server_is_the_waiting_reason_until_it_is_back() {
    let mut server = ReplayScript::start().await;
    let sampler = sampler(server.endpoint(), 1);
    let stream = server.sampling().await;
    stream.end(Status::unavailable("draining")).await;
    until(|| sampler.waiting_reason().is_some_and(|reason| reason.contains("draining"))).await;
    let mut stream = server.sampling().await;
    stream.open().await;
    until(|| sampler.waiting_reason().is_none()).await;
}

#[tokio::test]
async fn a_batch_that_does_not_match_the_query_is_discarded_with_its_stream() {
    for wrong in [batch(1, 3), {
        let mut long = batch(1, 2);
        long.samples[1].segment = trajectory(1).segment(0, 2).unwrap();
        long
    }] {
        let mut server = ReplayScript::start().await;
        let mut sampler = sampler(server.endpoint(), 1);
        let mut first = server.sampling().await;
        first.open().await;
        first.credit_of(1).await;
        first.batch(&wrong).await;
        let mut second = server.sampling().await;
        second.open().await;
        second.credit_of(1).await;
        second.batch(&batch(2, 2)).await;
        assert_eq!(within(sampler.next()).await, batch(2, 2));
    }
}

#[tokio::test]
async fn a_batch_over_the_credit_is_thrown_away_with_its_stream() {
    let mut server = ReplayScript::start().await;
    let mut sampler = sampler(server.endpoint(), 1);
    let mut first = server.sampling().await;
    first.open().await;
    first.credit_of(1).await;
    first.batch(&batch(1, 2)).await;
    first.batch(&batch(2, 2)).await;
    until(|| sampler.waiting_reason().is_some_and(|reason| reason.contains("exceeds the credit"))).await;
    assert_eq!(within(sampler.next()).await, batch(1, 2));
    let mut second = server.sampling().await;
    second.open().await;
    second.credit_of(1).await;
    second.batch(&batch(3, 2)).await;
    assert_eq!(within(sampler.next()).await, batch(3, 2));
}

#[tokio::test]
async fn closing_ends_the_stream() {
    let mut server = ReplayScript::start().await;
    let sampler = sampler(server.endpoint(), 1);
    let mut stream = server.sampling().await;
    stream.open().await;
    stream.credit_of(1).await;
    within(sampler.close()).await;
    assert_eq!(stream.request().await, None);
}
