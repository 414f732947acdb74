use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use game::{Action, Game};
use inference::{Batch, Evaluator, Predictions};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use service::cpus::{self, Cpu};
use weights::Manifest;

use super::Args;
use super::play::{Play, Player, SelfplaySpeed};
use crate::evaluators::Evaluators;
use crate::random_weights::random_weights;

/// The evaluator that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) enum Engine {
    /// The one that self-play uses on this machine.
    Selfplay,
    /// libtorch.
    Libtorch,
}

/// One network, and everything that is measured with it.
pub(super) struct Contestants<'a, G: Game> {
    game: &'a G,
    seed: u64,
    threads: usize,
    /// For each thread in turn; empty: anywhere.
    cpus: Vec<Cpu>,
    evaluators: Evaluators,
    manifest: Manifest,
    bytes: Vec<u8>,
}

impl<'a, G: Game> Contestants<'a, G> {
    /// Random weights, as a published version.
    pub(super) fn new(game: &'a G, args: &Args, threads: usize) -> anyhow::Result<Self> {
        let evaluators = Evaluators::new(args.device, args.precision, args.kernel)?;
        evaluators.set_in_flight(args.in_flight);
        let cpus = if args.pin { cpus::allowed().context("pin threads")? } else { Vec::new() };
        let (manifest, bytes) = random_weights(game.spec(), args.blocks, args.channels, args.seed)?;
        Ok(Self { game, seed: args.seed, threads, cpus, evaluators, manifest, bytes })
    }

    pub(super) fn evaluator(&self, engine: Engine) -> anyhow::Result<Box<dyn Evaluator>> {
        match engine {
            Engine::Selfplay => self.evaluators.evaluator(&self.manifest, &self.bytes),
            Engine::Libtorch => self.evaluators.libtorch(&self.manifest, &self.bytes),
        }
    }

    pub(super) fn describe_libtorch(&self) -> String {
        self.evaluators.describe_libtorch()
    }

    pub(super) fn in_flight(&self) -> Option<usize> {
        self.evaluators.in_flight()
    }

    /// Evaluations/s over all threads, on batches of random positions that are ready.
    pub(super) fn alone(&self, engine: Engine, positions: usize, time: Duration) -> anyhow::Result<f64> {
        let speeds = self.in_threads(engine, |index, evaluator, barrier| {
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed.wrapping_add(index as u64));
            let batch = random_batch(self.game, positions, &mut rng);
            let mut predictions = Predictions::new();
            // The first passes choose kernels and grow buffers. A thread that fails still reaches the barrier.
            let warm = (0..3).try_for_each(|_| evaluator.evaluate(&batch, &mut predictions));
            barrier.wait();
            warm?;
            let (start, mut count) = (Instant::now(), 0_usize);
            while start.elapsed() < time {
                evaluator.evaluate(&batch, &mut predictions)?;
                count += batch.len();
            }
            Ok(count as f64 / start.elapsed().as_secs_f64())
        })?;
        Ok(speeds.iter().sum())
    }

    /// Self-play over all threads.
    pub(super) fn play(&self, play: &Play, repeat: u64, time: Duration) -> anyhow::Result<SelfplaySpeed> {
        let cache = play.cache();
        let played = self.in_threads(Engine::Selfplay, |index, evaluator, barrier| {
            let seed = self.seed.wrapping_add(repeat << 32).wrapping_add(index as u64);
            let mut player = Player::new(self.game, play, seed);
            // All games begin with the same position: they must spread out before their speed means anything.
            let warm = player.play(evaluator, cache.as_ref(), time / 2);
            barrier.wait();
            warm?;
            player.play(evaluator, cache.as_ref(), time)
        })?;
        Ok(play.speed(&played))
    }

    /// Runs `body` in every thread with an evaluator of its own; all begin at the same moment, once warm.
    fn in_threads<T: Send>(
        &self,
        engine: Engine,
        body: impl Fn(usize, &mut dyn Evaluator, &Barrier) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let evaluators = (0..self.threads).map(|_| self.evaluator(engine));
        let evaluators = evaluators.collect::<anyhow::Result<Vec<_>>>()?;
        let (barrier, body) = (&Barrier::new(self.threads), &body);
        std::thread::scope(|scope| {
            let threads: Vec<_> = evaluators
                .into_iter()
                .enumerate()
                .map(|(index, mut evaluator)| {
                    let cpu = self.cpus.get(index % self.cpus.len().max(1));
                    scope.spawn(move || {
                        let pinned = cpu.map_or(Ok(()), |cpu| cpu.pin());
                        // Also where that failed: the others wait for each one at the barrier.
                        let result = body(index, evaluator.as_mut(), barrier);
                        pinned.context("pin a thread").and(result)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow!("a thread of the benchmark panicked"))?)
                .collect()
        })
    }
}

/// Positions of random games, each at a random ply.
fn random_batch<G: Game>(game: &G, positions: usize, rng: &mut ChaCha8Rng) -> Batch {
    let mut batch = Batch::new(game.spec().observation);
    let mut legal: Vec<Action> = Vec::new();
    let mut position = game.start();
    while batch.len() < positions {
        game.legal_actions(&position, &mut legal);
        batch.push(&legal, |planes| game.observe(&position, planes));
        game.play(&mut position, legal[rng.random_range(0..legal.len())]);
        if game.outcome(&position).is_some() {
            position = game.start();
        }
    }
    batch
}
