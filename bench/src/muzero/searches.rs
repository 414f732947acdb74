//! The speed of searches alone: with latent states in the pool or on the host, and of one environment or of many.

use std::sync::Arc;
use std::time::{Duration, Instant};

use game::Game;
use games::{GameKind, MarketMaking, with_game};
use inference::LatentModel;
use proto::weights::Published;
use selfplay::{LatentEpisodes, Round};

use super::Bench;
use super::engine::{Calls, Engine, Latents};
use super::traffic::Traffic;
use super::workload::{DISCOUNT, Workload};
use crate::machine;
use crate::report::{Report, Unit, Value, value_of};
use crate::threads::together;

pub(super) const POOL: &str = "latents of a search";
pub(super) const TRADING: &str = "trading";
const STEPS: &str = "steps/s";
pub(super) const SIMULATIONS: &str = "simulations/s";
/// Latent states that are copied, in both directions.
pub(super) const LATENT_BYTES: &str = "latents copied per simulation";
/// Policy, value and reward as float32, which every caller receives.
pub(super) const ANSWER_BYTES: &str = "answers per simulation";
const MEAN_BATCH: &str = "mean batch";
pub(super) const OVER_HOST: &str = "over latents on the host";
pub(super) const OVER_SEQUENTIAL: &str = "over one environment";

/// Simulations of one search in one batch of the second row of each engine.
const MANY_LEAVES: usize = 16;

/// Searches of one kind.
struct Case<'a> {
    engine: &'a Engine,
    weights: &'a Published,
    latents: Latents,
    environments: usize,
    threads: usize,
    workload: Workload,
}

/// Adds the speed of searches with latents in the pool and on the host.
///
/// # Errors
/// An engine that fails.
pub(super) fn add_pool(report: &mut Report, bench: &Bench, kind: GameKind) -> anyhow::Result<()> {
    with_game!(kind, |game| {
        let (weights, engines) = bench.engines(game.spec())?;
        for leaves in [1, MANY_LEAVES] {
            let workload = Workload { leaves, ..bench.workload.clone() };
            for (name, engine) in &engines {
                let case = |latents| {
                    let (environments, threads) = (bench.environments, machine::threads(workload.threads));
                    Case { engine, weights: &weights, latents, environments, threads, workload: workload.clone() }
                };
                let [pool, host] = measure(&game, bench, [Latents::Pool, Latents::Host].map(case))?;
                let speeds = [&pool, &host].map(|values| value_of(values, SIMULATIONS));
                let over = speeds[0].zip(speeds[1]).map(|(pool, host)| pool / host);
                for (place, values, over) in [("pool", &pool, over), ("host", &host, None)] {
                    report
                        .at(POOL, &[("game", &kind), ("engine", name), ("leaves", &leaves), ("latents", &place)])
                        .values(values)
                        .value(OVER_HOST, Unit::Ratio, over);
                }
            }
        }
        Ok(())
    })
}

/// Adds the speed of market making with search: of one environment at a time, and of many.
///
/// # Errors
/// An engine that fails.
pub(super) fn add_trading(report: &mut Report, bench: &Bench) -> anyhow::Result<()> {
    let game = MarketMaking::new();
    let (weights, engines) = bench.engines(game.spec())?;
    for (name, engine) in &engines {
        let case = |(environments, threads)| {
            let workload = bench.workload.clone();
            Case { engine, weights: &weights, latents: Latents::Pool, environments, threads, workload }
        };
        let sizes = [(1, 1), (bench.environments, 1), (bench.environments, machine::threads(bench.workload.threads))];
        let measured = measure(&game, bench, sizes.map(case))?;
        let sequential = value_of(&measured[0], STEPS);
        for ((environments, threads), values) in sizes.into_iter().zip(&measured) {
            let over = value_of(values, STEPS).zip(sequential).map(|(steps, sequential)| steps / sequential);
            report
                .at(TRADING, &[("engine", name), ("environments", &environments), ("threads", &threads)])
                .values(values)
                .value(OVER_SEQUENTIAL, Unit::Ratio, over);
        }
    }
    Ok(())
}

/// Measures cases in turns, and returns the values of the reported turn of each.
fn measure<G: Game, const N: usize>(game: &G, bench: &Bench, cases: [Case<'_>; N]) -> anyhow::Result<[Vec<Value>; N]> {
    let time = bench.turns.time()?;
    let mut turns = [const { Vec::new() }; N];
    for _ in 0..bench.turns.repeats {
        for (case, turns) in cases.iter().zip(&mut turns) {
            turns.push(case.measure(game, time)?);
        }
    }
    let speed = |values: &Vec<Value>| value_of(values, SIMULATIONS).unwrap_or(f64::NAN);
    Ok(turns.map(|turns| bench.turns.turn.of(turns, speed).unwrap_or_default()))
}

/// The searches of one thread.
struct Searcher {
    episodes: LatentEpisodes,
    model: Box<dyn LatentModel>,
    traffic: Arc<Traffic>,
}

/// The counts of one thread.
struct Searched {
    round: Round,
    seconds: f64,
    latent_bytes: u64,
}

impl Searcher {
    /// Plays for a time.
    fn play(&mut self, time: Duration) -> anyhow::Result<Searched> {
        let (start, bytes, mut round) = (Instant::now(), self.traffic.bytes(), Round::default());
        loop {
            round += self.episodes.advance(self.model.as_mut())?;
            self.episodes.drain_finished().for_each(drop);
            let elapsed = start.elapsed();
            if elapsed >= time {
                return Ok(Searched {
                    round,
                    seconds: elapsed.as_secs_f64(),
                    latent_bytes: self.traffic.bytes() - bytes,
                });
            }
        }
    }
}

impl Case<'_> {
    fn measure<G: Game>(&self, game: &G, time: Duration) -> anyhow::Result<Vec<Value>> {
        // Each thread computes by itself.
        network_torch::set_threads(1);
        let Self { engine, weights, latents, environments, threads, workload } = self;
        let workload = Workload { threads: *threads, ..workload.clone() };
        let searchers: anyhow::Result<Vec<_>> = (0..)
            .zip(workload.shares(*environments))
            .map(|(thread, environments)| {
                let (seed, traffic) = (workload.seed.wrapping_add(thread), Arc::default());
                let episodes = LatentEpisodes::new(game.clone(), workload.settings(environments), DISCOUNT, seed);
                let model = engine.build(weights, *latents, Calls::Batched, &traffic)?;
                Ok(Searcher { episodes, model, traffic })
            })
            .collect();
        let warm_up = |searcher: &mut Searcher| searcher.play(time / 4).map(drop);
        let played = together(&[], &mut searchers?, warm_up, |searcher| searcher.play(time))?;
        Ok(speed(&played, game.spec().actions))
    }
}

/// The speed of all threads together.
fn speed(played: &[Searched], actions: usize) -> Vec<Value> {
    let per_second = |count: fn(&Round) -> usize| -> f64 {
        played.iter().map(|played| count(&played.round) as f64 / played.seconds).sum()
    };
    let sum = |count: fn(&Searched) -> f64| played.iter().map(count).sum::<f64>();
    let simulations = sum(|played| played.round.simulations as f64);
    let evaluated = sum(|played| played.round.evaluated as f64);
    let answer_bytes = ((actions + 2) * size_of::<f32>()) as f64;
    vec![
        (STEPS, Unit::PerSecond, Some(per_second(|round| round.moves))),
        (SIMULATIONS, Unit::PerSecond, Some(per_second(|round| round.simulations))),
        (MEAN_BATCH, Unit::Count, Some(evaluated / sum(|played| played.round.batches as f64))),
        (LATENT_BYTES, Unit::Bytes, Some(sum(|played| played.latent_bytes as f64) / simulations)),
        (ANSWER_BYTES, Unit::Bytes, Some(answer_bytes * evaluated / simulations)),
    ]
}
