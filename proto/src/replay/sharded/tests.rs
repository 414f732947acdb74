use std::collections::BTreeMap;
use std::pin::pin;

use experience::TrajectoryId;
use futures::poll;
use tokio::task::JoinHandle;

use super::*;
use crate::replay::{MAIN_TABLE, v1};
use crate::scripted::{ReplayScript, batch, server, servers as set_of, trajectory, within};

/// Samples per batch in tests that count draws.
const BATCH: usize = 200;
/// A time longer than any test waits.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn shares_are_proportional_to_total_weights_and_zero_without_any() {
    assert_eq!(shares(&[100.0, 0.0, 300.0]), [0.25, 0.0, 0.75]);
    assert_eq!(shares(&[f64::MAX, 0.0, f64::MAX]), [0.5, 0.0, 0.5]);
    for weight in [f64::MIN_POSITIVE, 0.3, 1e300] {
        assert_eq!(shares(&[weight, 0.0]), [1.0, 0.0]);
    }
    assert_eq!(shares(&[0.0; 2]), [0.0, 0.0]);
}

fn settings(batch_size: usize, shard_timeout: Duration) -> ShardedSettings {
    let (game, table) = ("tic_tac_toe".into(), MAIN_TABLE.into());
    let shard = SamplerSettings { game, table, batch_size, unroll_steps: 1, prefetch_batches: 2 };
    ShardedSettings { shard, seed: 11, shard_timeout }
}

/// A table with the given item weights, which may report the total weight.
#[derive(Clone)]
struct Table {
    number: u64,
    weights: Vec<f64>,
    reports_weight: bool,
}

impl Table {
    fn uniform(number: u64, items: usize) -> Self {
        Self { number, weights: vec![1.0; items], reports_weight: false }
    }

    fn stats(&self) -> TableStats {
        let weight = self.weights.iter().sum();
        let total_weight = self.reports_weight.then_some(v1::TotalWeight { weight });
        TableStats { window_items: self.weights.len() as u64, total_weight, ..TableStats::default() }
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> SampleBatch {
        let sum: f64 = self.weights.iter().sum();
        let shares: Vec<f64> = self.weights.iter().map(|weight| weight / sum).collect();
        let sample = |_| {
            let item = pick(&shares, rng.random()).expect("the table holds something");
            let id = TrajectoryId { actor: self.number, epoch: 0, sequence: item as u64 };
            let segment = trajectory(0).with_id(id).segment(1, 1).expect("the trajectory has a second ply");
            Sample { segment, probability: shares[item], table_items: shares.len() as u64 }
        };
        SampleBatch { samples: (0..BATCH).map(sample).collect(), table: self.stats() }
    }

    /// Serves batches for credit, on one stream after another.
    async fn serve(self) -> (Server, JoinHandle<()>) {
        let mut script = ReplayScript::holding(self.stats(), Vec::new()).await;
        let server = server(&script);
        let serving = tokio::spawn(async move {
            let mut rng = ChaCha8Rng::seed_from_u64(self.number);
            loop {
                let mut stream = script.sampling().await;
                stream.open().await;
                while let Some(request) = stream.request().await {
                    let Some(v1::sample_request::Message::Credit(credit)) = request.message else { break };
                    for _ in 0..credit.batches {
                        stream.batch(&self.draw(&mut rng)).await;
                    }
                }
            }
        });
        (server, serving)
    }
}

/// Returns the table and the item of a sample.
fn key(sample: &Sample) -> (u64, u64) {
    (sample.segment.trajectory().actor, sample.segment.trajectory().sequence)
}

/// Draws from all tables together, on average `draws_per_item` times per item. Checks that every item came up in
/// proportion to the weight and reported that probability. Chi-square has one degree of freedom less than there are
/// items; the standard deviation is the root of twice that number, and five standard deviations are allowed. The
/// draws are seeded.
async fn check_union(tables: Vec<Table>, draws_per_item: usize) {
    let weights: BTreeMap<(u64, u64), f64> = tables
        .iter()
        .flat_map(|table| (0..).zip(&table.weights).map(|(item, weight)| ((table.number, item), *weight)))
        .collect();
    let total: f64 = weights.values().sum();
    let mut servers = Vec::new();
    for table in tables {
        servers.push(table.serve().await.0);
    }
    let (_sender, set) = set_of(&servers);
    let mut sampler = ShardedSampler::start(NewestWeights::default(), set, settings(BATCH, LONG));
    let batches = weights.len() * draws_per_item / BATCH;
    let mut counts = BTreeMap::<(u64, u64), f64>::new();
    for _ in 0..batches {
        for sample in within(sampler.next()).await.samples {
            let expected = weights[&key(&sample)] / total;
            assert!((sample.probability / expected - 1.0).abs() < 1e-9, "{:?}: {}", key(&sample), sample.probability);
            assert_eq!(sample.table_items, weights.len() as u64);
            *counts.entry(key(&sample)).or_default() += 1.0;
        }
    }
    let draws = (batches * BATCH) as f64;
    let chi_square: f64 = weights
        .iter()
        .map(|(item, weight)| {
            let expected = draws * weight / total;
            (counts.get(item).unwrap_or(&0.0) - expected).powi(2) / expected
        })
        .sum();
    let freedom = weights.len() as f64 - 1.0;
    let bound = freedom + 5.0 * (2.0 * freedom).sqrt();
    assert!(chi_square < bound, "chi-square is {chi_square}, at most {bound} is expected");
    sampler.close().await;
}

#[tokio::test]
async fn servers_of_unequal_sizes_are_drawn_from_uniformly_over_all_their_items() {
    check_union(vec![Table::uniform(0, 10), Table::uniform(1, 30), Table::uniform(2, 60)], 200).await;
}

#[tokio::test]
async fn prioritised_items_of_several_servers_come_up_in_proportion_to_their_weights_in_all() {
    let weights = |from: u32, to: u32| (from..to).map(|priority| f64::from(priority).powf(0.6)).collect();
    let table = |number, weights| Table { number, weights, reports_weight: true };
    check_union(vec![table(0, weights(1, 50)), table(1, weights(50, 60)), table(2, weights(5, 46))], 200).await;
}

#[tokio::test]
async fn batches_of_one_server_come_as_they_were_sent() {
    let mut script = ReplayScript::start().await;
    let server = server(&script);
    let (_sender, set) = set_of(std::slice::from_ref(&server));
    let mut sampler = ShardedSampler::start(NewestWeights::default(), set, settings(2, Duration::ZERO));
    let mut stream = script.sampling().await;
    stream.open().await;
    stream.credit_of(2).await;
    for number in 1..=2 {
        stream.batch(&batch(number, 2)).await;
    }
    for number in 1..=2 {
        let ShardedBatch { samples, servers } = within(sampler.next()).await;
        assert_eq!(samples, batch(number, 2).samples);
        assert_eq!(servers, [server.clone(), server.clone()]);
        stream.credit_of(1).await;
    }
}

#[tokio::test]
async fn the_only_server_is_waited_for_whatever_the_timeout() {
    let script = ReplayScript::start().await;
    let (_sender, set) = set_of(&[server(&script)]);
    let mut sampler = ShardedSampler::start(NewestWeights::default(), set, settings(2, Duration::ZERO));
    let mut next = pin!(sampler.next());
    for _ in 0..100 {
        assert!(poll!(next.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
}

/// Draws until a batch has samples of all these tables, and of no other table.
async fn draws_from(sampler: &mut ShardedSampler, tables: &[u64]) {
    within(async {
        loop {
            let batch = sampler.next().await;
            let mut found: Vec<u64> = batch.samples.iter().map(|sample| key(sample).0).collect();
            found.sort_unstable();
            found.dedup();
            if found == tables {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_added_server_is_drawn_from_and_a_removed_one_no_more() {
    let (first, _first) = Table::uniform(0, 10).serve().await;
    let (second, _second) = Table::uniform(1, 10).serve().await;
    let (sender, set) = set_of(std::slice::from_ref(&first));
    let mut sampler = ShardedSampler::start(NewestWeights::default(), set, settings(BATCH, LONG));
    draws_from(&mut sampler, &[0]).await;
    sender.send_replace([first, second.clone()].into());
    draws_from(&mut sampler, &[0, 1]).await;
    sender.send_replace([second].into());
    draws_from(&mut sampler, &[1]).await;
}

#[tokio::test]
async fn a_server_that_goes_away_is_left_out_and_comes_back_by_itself() {
    let (first, _first) = Table::uniform(0, 10).serve().await;
    // The test acts as the second server.
    let table = Table::uniform(1, 10);
    let mut script = ReplayScript::holding(table.stats(), Vec::new()).await;
    let (_sender, set) = set_of(&[first, server(&script)]);
    let mut sampler = ShardedSampler::start(NewestWeights::default(), set, settings(BATCH, LONG));
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..2 {
        let mut stream = script.sampling().await;
        stream.open().await;
        stream.batch(&table.draw(&mut rng)).await;
        draws_from(&mut sampler, &[0, 1]).await;
        let address = script.address;
        drop((script, stream));
        draws_from(&mut sampler, &[0]).await;
        script = ReplayScript::again_at(address, table.stats()).await;
    }
}

#[tokio::test]
async fn a_server_that_holds_less_than_its_minimum_has_no_share() {
    let (first, _first) = Table::uniform(0, 10).serve().await;
    let empty =
        TableStats { window_items: 10, total_weight: Some(v1::TotalWeight::default()), ..TableStats::default() };
    let mut script = ReplayScript::holding(empty, Vec::new()).await;
    let (_sender, set) = set_of(&[first, server(&script)]);
    let mut sampler = ShardedSampler::start(NewestWeights::default(), set, settings(BATCH, LONG));
    let mut stream = script.sampling().await;
    stream.open().await;
    stream.reply(crate::replay::waiting_to_wire("the table holds 10 of 100 items".into())).await;
    for _ in 0..5 {
        let batch = within(sampler.next()).await;
        assert!(batch.samples.iter().all(|sample| key(sample).0 == 0 && sample.table_items == 10));
    }
    assert_eq!(sampler.servers(), (2, 1));
}

#[tokio::test]
async fn a_server_that_keeps_the_others_waiting_is_left_out_after_the_timeout() {
    let (first, _first) = Table::uniform(0, 10).serve().await;
    // This table has many items, but the rate limiter blocks samples.
    let script = ReplayScript::holding(Table::uniform(1, 1000).stats(), Vec::new()).await;
    let (_sender, set) = set_of(&[first, server(&script)]);
    let mut sampler = ShardedSampler::start(NewestWeights::default(), set, settings(BATCH, Duration::from_millis(20)));
    draws_from(&mut sampler, &[0]).await;
    let first_seen = within(sampler.next()).await.samples;
    assert!(first_seen.iter().all(|sample| sample.probability == 0.1 && sample.table_items == 10));
}

#[tokio::test]
async fn while_all_servers_are_away_the_draw_waits_for_any_of_them() {
    let (empty_set, table) = (set_of(&[]), Table::uniform(0, 10));
    let mut sampler = ShardedSampler::start(NewestWeights::default(), empty_set.1, settings(BATCH, LONG));
    {
        let mut next = pin!(sampler.next());
        assert!(poll!(next.as_mut()).is_pending());
    }
    let (server, _serving) = table.serve().await;
    empty_set.0.send_replace([server].into());
    draws_from(&mut sampler, &[0]).await;
    assert_eq!(sampler.servers(), (1, 1));
}
