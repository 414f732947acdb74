use std::time::{Duration, Instant};

use anyhow::ensure;
use game::Game;
use inference::Evaluator;
use network_cpu::KernelPreference;
use network_torch::{DevicePreference, PrecisionPreference};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use selfplay::{AnalysisSettings, SearchSettings, analyse_together};

use crate::evaluators::Evaluators;
use crate::random_weights::random_weights;

/// One tree that many threads search with a network, as `play` does.
#[derive(Debug, Clone, clap::Args)]
pub struct TogetherArgs {
    /// Residual blocks of the network that many threads ask for one tree; 0 leaves this part out.
    #[arg(long, default_value_t = 6)]
    pub blocks: usize,
    /// Channels of that network.
    #[arg(long, default_value_t = 64)]
    pub channels: usize,
    /// Leaves that each thread is asked for at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,8")]
    pub leaves: Vec<usize>,
    /// Simulations of that tree.
    #[arg(long, default_value_t = 800)]
    pub together_simulations: u32,
}

impl TogetherArgs {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.leaves.contains(&0), "--leaves needs numbers of at least 1");
        ensure!(self.together_simulations > 0, "--together-simulations must be at least 1");
        Ok(())
    }
}

/// One position, and as many evaluators as there are threads.
pub(super) struct Team<G: Game> {
    game: G,
    evaluators: Vec<Box<dyn Evaluator>>,
    settings: AnalysisSettings,
    rng: ChaCha8Rng,
}

impl<G: Game> Team<G> {
    /// A team with random weights.
    ///
    /// # Errors
    /// A network that cannot be built.
    pub(super) fn new(game: &G, args: &TogetherArgs, threads: usize, leaves: usize, seed: u64) -> anyhow::Result<Self> {
        let (manifest, bytes) = random_weights(game.spec(), args.blocks, args.channels, seed)?;
        let evaluators = Evaluators::new(DevicePreference::Auto, PrecisionPreference::Auto, KernelPreference::Auto)?;
        Ok(Self {
            game: game.clone(),
            evaluators: (0..threads).map(|_| evaluators.evaluator(&manifest, &bytes)).collect::<Result<_, _>>()?,
            settings: AnalysisSettings {
                simulations: args.together_simulations,
                search: SearchSettings::default(),
                leaves_per_tree: leaves,
                batch: leaves,
            },
            rng: ChaCha8Rng::seed_from_u64(seed),
        })
    }
}

/// Teams for any game.
pub(super) trait Search {
    /// Simulations/s of whole searches, at least one.
    ///
    /// # Errors
    /// An evaluator that fails.
    fn rate(&mut self, time: Duration) -> anyhow::Result<f64>;

    /// For people: what evaluates.
    fn evaluator(&self) -> String;
}

impl<G: Game> Search for Team<G> {
    fn rate(&mut self, time: Duration) -> anyhow::Result<f64> {
        let Self { game, evaluators, settings, rng } = self;
        let start = game.start();
        let mut search = || analyse_together(game, &start, settings, evaluators, rng);
        // The first choose kernels and grow buffers.
        search()?;
        let (begun, mut simulations) = (Instant::now(), 0_u64);
        loop {
            simulations += search()?.visit_counts.iter().copied().map(u64::from).sum::<u64>();
            if begun.elapsed() >= time {
                return Ok(simulations as f64 / begun.elapsed().as_secs_f64());
            }
        }
    }

    fn evaluator(&self) -> String {
        self.evaluators[0].attributes().name.to_string()
    }
}
