//! The measuring thread: adopts a weights version, measures it, plays its rated games, waits for the next.
//!
//! It knows no socket and no runtime: whatever is outside comes through [`Outside`]. Start with [`Worker::run`].

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use game::Game;
use inference::Evaluator;
use proto::weights::Published;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weights::{Manifest, WeightsVersion};

use crate::accuracy;
use crate::config::Measurement;
use crate::contestant::{Contestant, Fidelity, PlayoutMover, RandomMover, Searcher, analysis};
use crate::evaluators::Build;
use crate::exhaustive;
use crate::ledger::{Ledger, Rated};
use crate::matches;
use crate::metrics::{self, Answered};
use crate::pacing::Pacing;
use crate::past_versions::PastVersions;
use crate::player::Player;
use crate::rating::expected_score;
use crate::solved::SolvedPosition;

/// After this many intervals a version makes room for a newer one even if it has games left.
const PATIENCE: u32 = 4;

/// How long to wait for weights before looking again.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What every opponent is worth trying at least: a rating may be wrong.
const INFORMATION_MIN: f64 = 0.01;

/// Everything the worker does not have: weights, time, the wish to stop.
pub trait Outside {
    /// The newest weights, if any have arrived.
    fn newest(&mut self) -> Option<Arc<Published>>;

    /// The time.
    fn now(&mut self) -> Instant;

    /// Sleeps; breaks off when the process drains.
    fn sleep(&mut self, duration: Duration) -> ControlFlow<()>;

    /// Waits for newer weights, at most so long; breaks off when the process drains.
    fn wait_for_weights(&mut self, at_most: Duration) -> ControlFlow<()>;
}

/// Whether perfect play is checked by playing every line; only tiny games allow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhaustive {
    /// For every version.
    Check,
    /// Never.
    Skip,
}

/// What a worker starts with.
pub struct Parts<G, O> {
    /// The rules.
    pub game: G,
    /// The rest of the world.
    pub outside: O,
    /// How to measure.
    pub measurement: Measurement,
    /// Every draw descends from it.
    pub seed: u64,
    /// The share of one core to take.
    pub cpu_share: f64,
    /// Makes evaluators.
    pub build: Build,
    /// All games so far.
    pub ledger: Ledger,
    /// Where they are kept.
    pub ratings_path: PathBuf,
    /// Opponents from earlier in the run.
    pub past: PastVersions,
    /// The positions each version is asked; none for games without.
    pub positions: Vec<SolvedPosition>,
    /// Whether perfect play is checked.
    pub exhaustive: Exhaustive,
}

/// The measuring thread's state; see the module.
pub struct Worker<G, O> {
    parts: Parts<G, O>,
    pacing: Pacing,
    ratings: Vec<Rated>,
    current: Option<Current>,
    /// A version whose weights turned out to be unusable: not tried again.
    refused: Option<WeightsVersion>,
}

/// The version being measured.
struct Current {
    published: Arc<Published>,
    evaluator: Box<dyn Evaluator>,
    adopted: Instant,
}

/// Why a measurement did not come to its end.
enum Stop {
    /// The process drains.
    Drain,
    /// The evaluator failed.
    Evaluator(inference::Error),
}

impl From<inference::Error> for Stop {
    fn from(error: inference::Error) -> Self {
        Self::Evaluator(error)
    }
}

impl<G: Game, O: Outside> Worker<G, O> {
    /// Ready to run.
    pub fn new(mut parts: Parts<G, O>) -> Self {
        let pacing = Pacing::new(parts.cpu_share, parts.outside.now());
        let ratings = parts.ledger.ratings();
        Self { parts, pacing, ratings, current: None, refused: None }
    }

    /// Measures version after version until the process drains; everything measured is on disk by then.
    ///
    /// # Errors
    /// If ratings or earlier versions cannot be written. Weights that cannot be used are reported and passed over.
    pub fn run(mut self) -> anyhow::Result<()> {
        self.publish_ratings();
        loop {
            let flow = if let Some(published) = self.due() {
                self.adopt(published)?
            } else if let Some((weaker, stronger)) = self.unanchored() {
                self.anchor(weaker, stronger)?
            } else if self.games_left() > 0 {
                self.play_match()?
            } else {
                self.idle()
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }

    /// The version to measure next, if it is time for it.
    fn due(&mut self) -> Option<Arc<Published>> {
        let newest = self.parts.outside.newest()?;
        let version = newest.manifest.version;
        if self.refused == Some(version) {
            return None;
        }
        let Some(current) = &self.current else { return Some(newest) };
        if current.published.manifest.version == version {
            return None;
        }
        let (adopted, interval) = (current.adopted, self.parts.measurement.version_interval);
        let measured = self.parts.outside.now().saturating_duration_since(adopted);
        let is_done = self.games_left() == 0 && measured >= interval;
        (is_done || measured >= interval.saturating_mul(PATIENCE)).then_some(newest)
    }

    fn games_left(&self) -> u64 {
        let Some(current) = &self.current else { return 0 };
        let played = self.parts.ledger.games_of(current.player());
        self.parts.measurement.games_per_version.saturating_sub(played)
    }

    /// Nothing to do until newer weights come, or until the interval of the current ones is over.
    fn idle(&mut self) -> ControlFlow<()> {
        let now = self.parts.outside.now();
        let interval = self.parts.measurement.version_interval;
        let remaining = self
            .current
            .as_ref()
            .map(|current| interval.saturating_sub(now.saturating_duration_since(current.adopted)));
        self.pacing.pause(now);
        let flow = match remaining.filter(|remaining| !remaining.is_zero()) {
            Some(remaining) => self.parts.outside.sleep(remaining),
            None => self.parts.outside.wait_for_weights(WAIT_MAX),
        };
        self.pacing.resume(self.parts.outside.now());
        flow
    }

    /// Makes `published` the version being measured, and measures everything but its games.
    fn adopt(&mut self, published: Arc<Published>) -> anyhow::Result<ControlFlow<()>> {
        if let Some(Current { published, .. }) = self.current.take() {
            self.parts.past.keep(&published.manifest, &published.bytes).context("keep an earlier version")?;
        }
        let version = published.manifest.version;
        let evaluator = match self.evaluator_of(&published.manifest, &published.bytes) {
            Ok(evaluator) => evaluator,
            Err(error) => {
                tracing::error!(%version, error = service::chain(&error), "weights cannot be used");
                self.refused = Some(version);
                return Ok(ControlFlow::Continue(()));
            }
        };
        let adopted = self.parts.outside.now();
        metrics::version(version);
        let mut current = Current { published, evaluator, adopted };
        let measured = self.measure(&mut current);
        self.current = Some(current);
        Ok(self.settle(measured))
    }

    fn evaluator_of(&self, manifest: &Manifest, bytes: &[u8]) -> anyhow::Result<Box<dyn Evaluator>> {
        let game = &self.parts.game.spec().name;
        anyhow::ensure!(manifest.architecture.game == *game, "they are of {}, not {game}", manifest.architecture.game);
        (self.parts.build)(manifest, bytes)
    }

    /// Solved positions, without search and with it, and every line of a tiny game.
    fn measure(&mut self, current: &mut Current) -> Result<(), Stop> {
        let version = current.published.manifest.version;
        let Parts { game, outside, measurement, seed, positions, exhaustive, .. } = &mut self.parts;
        let rng = || draws(*seed, version, 0);
        for (answered, simulations) in [(Answered::Raw, 0), (Answered::Searched, measurement.simulations)] {
            let settings = analysis(simulations, &measurement.search, Fidelity::Exact);
            if !positions.is_empty() {
                let mut searcher =
                    Searcher { evaluator: &mut *current.evaluator, settings: settings.clone(), rng: rng() };
                let mut pause = || pause(outside, &mut self.pacing);
                let measured = accuracy::measure(game, positions, &mut searcher, &mut pause)?.ok_or(Stop::Drain)?;
                metrics::accuracy(answered, &measured);
                let (preserving, optimal) =
                    (measured.overall.outcome_preserving_share(), measured.overall.optimal_share());
                tracing::info!(%version, simulations, positions = positions.len(), preserving, optimal, "solved positions");
            }
            if *exhaustive == Exhaustive::Check {
                let mut searcher = Searcher { evaluator: &mut *current.evaluator, settings, rng: rng() };
                let report = exhaustive::check(game, &mut searcher)?;
                metrics::exhaustive(answered, &report);
                let (lost, drawn, won) = (report.lost, report.drawn, report.won);
                tracing::info!(%version, simulations, lost, drawn, won, "every line played");
                if pause(outside, &mut self.pacing).is_break() {
                    return Err(Stop::Drain);
                }
            }
        }
        metrics::busy(self.pacing.busy());
        Ok(())
    }

    /// Neighbours among the fixed opponents that have never met: until they have, the scale hangs on the prior alone.
    fn unanchored(&self) -> Option<(Player, Player)> {
        let fixed: Vec<Player> = self.fixed_opponents().collect();
        let met = |pair: &[Player]| self.parts.ledger.games_between(pair[0], pair[1]) > 0;
        fixed.windows(2).find(|pair| !met(pair)).map(|pair| (pair[0], pair[1]))
    }

    /// One match between two fixed opponents, once in a run.
    fn anchor(&mut self, weaker: Player, stronger: Player) -> anyhow::Result<ControlFlow<()>> {
        let Parts { game, outside, measurement, seed, ledger, .. } = &mut self.parts;
        let draws = |stream| draws(*seed, WeightsVersion(0), ledger.games().wrapping_mul(4).wrapping_add(stream));
        let (mut a, mut b) = (fixed_contestant(weaker, draws(1)), fixed_contestant(stronger, draws(2)));
        let mut pause = || pause(outside, &mut self.pacing);
        let contestants: [&mut dyn Contestant<G>; 2] = [&mut *a, &mut *b];
        let tally = matches::play(game, contestants, measurement.matches, &mut draws(3), &mut pause);
        metrics::busy(self.pacing.busy());
        match tally.context("play between fixed opponents")? {
            None => Ok(ControlFlow::Break(())),
            Some(tally) => {
                self.enter(weaker, stronger, &tally)?;
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    /// Enters a match into the ledger, on the disk before it counts.
    fn enter(&mut self, player: Player, opponent: Player, tally: &matches::Tally) -> anyhow::Result<()> {
        self.parts.ledger.add(player, opponent, tally);
        self.parts.ledger.save(&self.parts.ratings_path).context("keep the ratings")?;
        self.ratings = self.parts.ledger.ratings();
        self.publish_ratings();
        let rating = self.ratings.iter().find(|rated| rated.player == player).map(|rated| rated.rating);
        let (points, games, elo) = (tally.points(), tally.games(), rating.map(|rating| rating.elo));
        tracing::info!(%player, %opponent, points, games, elo, "match");
        Ok(())
    }

    /// Random play, then random playouts from the smallest budget to the greatest.
    fn fixed_opponents(&self) -> impl Iterator<Item = Player> + '_ {
        let playouts = self.parts.measurement.playouts.iter().map(|&simulations| Player::Playouts { simulations });
        [Player::Random].into_iter().chain(playouts)
    }

    /// One match of the current version against the opponent that tells most about it.
    fn play_match(&mut self) -> anyhow::Result<ControlFlow<()>> {
        let Some(mut current) = self.current.take() else { return Ok(ControlFlow::Continue(())) };
        let player = current.player();
        let opponent = self.opponent_of(player);
        let tally = match self.evaluator_of_opponent(opponent) {
            Ok(evaluator) => self.play_against(&mut current, opponent, evaluator),
            Err((version, error)) => {
                tracing::warn!(%version, error = service::chain(&error), "an earlier version cannot be used");
                self.parts.past.drop_version(version).context("give up an earlier version")?;
                self.current = Some(current);
                return Ok(ControlFlow::Continue(()));
            }
        };
        self.current = Some(current);
        let tally = match tally {
            Ok(tally) => tally,
            Err(stop) => return Ok(self.settle(Err(stop))),
        };
        self.enter(player, opponent, &tally)?;
        Ok(ControlFlow::Continue(()))
    }

    /// The opponent whose next match says most: strength nearest to the player's, and few games between them.
    fn opponent_of(&self, player: Player) -> Player {
        let elo_of = |player| self.ratings.iter().find(|rated| rated.player == player).map(|rated| rated.rating.elo);
        // A version without games is probably about as strong as the one before it.
        let before = self.ratings.iter().rev().find(|rated| matches!(rated.player, Player::Version(_)));
        let elo = elo_of(player).or(before.map(|rated| rated.rating.elo)).unwrap_or(0.0);
        let information = |opponent: Player| {
            let expected = expected_score(elo, elo_of(opponent).unwrap_or(elo));
            let games = self.parts.ledger.games_between(player, opponent) as f64;
            let per_match = 2.0 * self.parts.measurement.matches.openings as f64;
            expected.mul_add(1.0 - expected, INFORMATION_MIN) / (1.0 + games / per_match)
        };
        let past = self.parts.past.manifests().iter().map(|manifest| Player::Version(manifest.version));
        self.fixed_opponents()
            .chain(past)
            .filter(|&opponent| opponent != player)
            .max_by(|&a, &b| information(a).total_cmp(&information(b)))
            .unwrap_or(Player::Random)
    }

    fn evaluator_of_opponent(
        &self,
        opponent: Player,
    ) -> Result<Option<Box<dyn Evaluator>>, (WeightsVersion, anyhow::Error)> {
        let Player::Version(version) = opponent else { return Ok(None) };
        let manifests = self.parts.past.manifests();
        let manifest = manifests.iter().find(|manifest| manifest.version == version).expect("opponents are kept");
        let bytes = self.parts.past.bytes(manifest).map_err(|error| (version, error.into()))?;
        self.evaluator_of(manifest, &bytes).map(Some).map_err(|error| (version, error))
    }

    fn play_against(
        &mut self,
        current: &mut Current,
        opponent: Player,
        mut evaluator: Option<Box<dyn Evaluator>>,
    ) -> Result<matches::Tally, Stop> {
        let version = current.published.manifest.version;
        let Parts { game, outside, measurement, seed, ledger, .. } = &mut self.parts;
        // Other openings for every match, the same again if it is repeated.
        let draws = |stream| draws(*seed, version, ledger.games().wrapping_mul(4).wrapping_add(stream));
        let settings = || analysis(measurement.simulations, &measurement.search, Fidelity::Batched);
        let mut player = Searcher { evaluator: &mut *current.evaluator, settings: settings(), rng: draws(1) };
        let mut other: Box<dyn Contestant<G> + '_> = match &mut evaluator {
            Some(evaluator) => Box::new(Searcher { evaluator: &mut **evaluator, settings: settings(), rng: draws(2) }),
            None => fixed_contestant(opponent, draws(2)),
        };
        let mut pause = || pause(outside, &mut self.pacing);
        let contestants: [&mut dyn Contestant<G>; 2] = [&mut player, &mut *other];
        let tally = matches::play(game, contestants, measurement.matches, &mut draws(3), &mut pause)?;
        metrics::busy(self.pacing.busy());
        tally.ok_or(Stop::Drain)
    }

    /// What follows from how a measurement ended: weights that cannot be evaluated are not tried again.
    fn settle(&mut self, measured: Result<(), Stop>) -> ControlFlow<()> {
        match measured {
            Ok(()) => ControlFlow::Continue(()),
            Err(Stop::Drain) => ControlFlow::Break(()),
            Err(Stop::Evaluator(error)) => {
                if let Some(current) = self.current.take() {
                    let version = current.published.manifest.version;
                    tracing::error!(%version, %error, "weights cannot be evaluated");
                    self.refused = Some(version);
                }
                ControlFlow::Continue(())
            }
        }
    }

    fn publish_ratings(&self) {
        let current = self.current.as_ref().map(|current| current.published.manifest.version);
        metrics::ratings(&self.ratings, current, self.parts.ledger.games());
    }
}

impl Current {
    fn player(&self) -> Player {
        Player::Version(self.published.manifest.version)
    }
}

/// An opponent that needs no weights.
fn fixed_contestant<G: Game>(player: Player, rng: ChaCha8Rng) -> Box<dyn Contestant<G>> {
    match player {
        Player::Playouts { simulations } => Box::new(PlayoutMover::new(simulations, rng)),
        Player::Random | Player::Version(_) => Box::new(RandomMover { rng }),
    }
}

/// Ends a stretch of work and sleeps for as long as the pacing says.
fn pause(outside: &mut impl Outside, pacing: &mut Pacing) -> ControlFlow<()> {
    let sleep = pacing.pause(outside.now());
    let flow = outside.sleep(sleep);
    pacing.resume(outside.now());
    flow
}

/// A generator of its own for every version and stream.
fn draws(seed: u64, version: WeightsVersion, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ version.0.rotate_left(32));
    rng.set_stream(stream);
    rng
}

#[cfg(test)]
mod tests;
