//! The measuring thread: takes a weights version, measures it, plays its rated games and waits for the next.
//!
//! It has no sockets and no runtime: weights, time and the drain come through [`Environment`]. Start with
//! [`Worker::run`].

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use bytes::Bytes;
use evaluators::Backend;
use game::Game;
use games::Exhaustive;
use inference::Evaluator;
use proto::weights::Published;
use rand_chacha::ChaCha8Rng;
use weights::{Manifest, WeightsVersion};

use crate::accuracy;
use crate::backend::evaluator_of;
use crate::config::Measurement;
use crate::contestant::{Contestant, Fidelity, PlayoutMover, RandomMover, Searcher, analysis, draws};
use crate::environment::Environment;
use crate::exhaustive;
use crate::ledger::{Ledger, Rated};
use crate::matches;
use crate::metrics::{self, Answered};
use crate::pacer::{Pacer, RawEval};
use crate::past_versions::PastVersions;
use crate::player::Player;
use crate::rating::expected_score;
use crate::solved::SolvedPosition;
use crate::tally::Tally;

/// Number of intervals after which a newer version replaces one that has games left.
const PATIENCE: u32 = 4;

/// Number of openings after which the sequence of a version repeats, which bounds the draws of one match.
const OPENINGS_MAX: u64 = 1 << 14;

/// The random stream of a version's openings; the streams of its matches count up from zero.
const OPENINGS_STREAM: u64 = u64::MAX;

/// Smallest information assigned to an opponent, because a rating may be wrong.
const INFORMATION_MIN: f64 = 0.01;

/// The parts of a worker.
pub struct WorkerConfig<G, O> {
    /// The rules.
    pub game: G,
    /// The source of weights, time and the drain.
    pub environment: O,
    /// The settings of measurement.
    pub measurement: Measurement,
    /// The seed of all random draws.
    pub seed: u64,
    /// The share of one core that measuring may use.
    pub cpu_share: f64,
    /// Builds evaluators.
    pub backend: Arc<dyn Backend>,
    /// All games so far.
    pub ledger: Ledger,
    /// The path of their file.
    pub ratings_path: PathBuf,
    /// Opponents from earlier in the run.
    pub past: PastVersions,
    /// The solved positions on which each version is measured; empty for games without any.
    pub positions: Vec<SolvedPosition>,
    /// Enables the check of perfect play.
    pub exhaustive: Exhaustive,
}

/// The state of the measuring thread; see the module.
pub struct Worker<G, O> {
    game: G,
    measurement: Measurement,
    seed: u64,
    backend: Arc<dyn Backend>,
    ledger: Ledger,
    ratings_path: PathBuf,
    past: PastVersions,
    positions: Rc<[SolvedPosition]>,
    exhaustive: Exhaustive,
    pacer: Pacer<G, O>,
    ratings: Vec<Rated>,
    current: Option<Current>,
    /// A version with unusable weights, which is not tried again.
    refused: Option<WeightsVersion>,
}

/// The version being measured.
struct Current {
    published: Arc<Published>,
    evaluator: Box<dyn Evaluator>,
    adopted: Instant,
}

/// The reason for an incomplete measurement.
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

/// The reason for a match without a tally.
enum Unfinished {
    /// The process drains.
    Drain,
    /// The version being measured cannot be evaluated.
    Player(inference::Error),
    /// The opponent cannot be used.
    Opponent(anyhow::Error),
}

impl From<matches::Error> for Unfinished {
    fn from(matches::Error { contestant, source }: matches::Error) -> Self {
        if contestant == 0 { Self::Player(source) } else { Self::Opponent(source.into()) }
    }
}

impl<G: Game, O: Environment> Worker<G, O> {
    /// Creates a worker.
    pub fn new(parts: WorkerConfig<G, O>) -> Self {
        let WorkerConfig {
            game,
            environment,
            measurement,
            seed,
            cpu_share,
            backend,
            ledger,
            ratings_path,
            past,
            positions,
            exhaustive,
        } = parts;
        let positions = Rc::from(positions);
        let raw_eval = RawEval {
            game: game.clone(),
            positions: Rc::clone(&positions),
            backend: Arc::clone(&backend),
            settings: analysis(0, &measurement.search, Fidelity::Exact),
            seed,
        };
        let pacer = Pacer::new(environment, cpu_share, raw_eval);
        let ratings = ledger.ratings();
        let (current, refused) = (None, None);
        Self {
            game,
            measurement,
            seed,
            backend,
            ledger,
            ratings_path,
            past,
            positions,
            exhaustive,
            pacer,
            ratings,
            current,
            refused,
        }
    }

    /// Measures version after version until the process drains; all results are on disk when it returns.
    ///
    /// # Errors
    /// If ratings or earlier versions cannot be written. Unusable weights are reported and skipped.
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

    /// Returns the version to measure next, if its time has come.
    fn due(&mut self) -> Option<Arc<Published>> {
        let newest = self.pacer.newest()?;
        let version = newest.manifest.version;
        if self.refused == Some(version) {
            return None;
        }
        let Some(current) = &self.current else { return Some(newest) };
        if current.published.manifest.version == version {
            return None;
        }
        let (adopted, interval) = (current.adopted, self.measurement.version_interval);
        let measured = self.pacer.now().saturating_duration_since(adopted);
        let is_done = self.games_left() == 0 && measured >= interval;
        (is_done || measured >= interval.saturating_mul(PATIENCE)).then_some(newest)
    }

    fn games_left(&self) -> u64 {
        let Some(current) = &self.current else { return 0 };
        let played = self.ledger.games_of(current.player());
        self.measurement.games_per_version.saturating_sub(played)
    }

    /// Waits until newer weights arrive or the interval of the current ones is over.
    fn idle(&mut self) -> ControlFlow<()> {
        let now = self.pacer.now();
        let measured = self.current.as_ref().map(|current| now.saturating_duration_since(current.adopted));
        let remaining = measured.map(|measured| self.measurement.version_interval.saturating_sub(measured));
        self.pacer.idle(remaining.unwrap_or_default())
    }

    /// Makes `published` the version being measured, and runs all measurements except its games.
    fn adopt(&mut self, published: Arc<Published>) -> anyhow::Result<ControlFlow<()>> {
        if let Some(Current { published, .. }) = self.current.take() {
            try_again_later(self.past.keep(&published.manifest, &published.bytes).context("keep an earlier version"));
        }
        let version = published.manifest.version;
        let evaluator = match self.evaluator(&published.manifest, &published.bytes) {
            Ok(evaluator) => evaluator,
            Err(error) => {
                tracing::error!(%version, error = service::chain(&error), "weights cannot be used");
                self.refused = Some(version);
                return Ok(ControlFlow::Continue(()));
            }
        };
        let adopted = self.pacer.now();
        metrics::version(version);
        metrics::evaluator(&evaluator.attributes().name, version);
        let mut current = Current { published, evaluator, adopted };
        let measured = self.measure(&mut current);
        self.current = Some(current);
        Ok(self.settle(measured))
    }

    fn evaluator(&self, manifest: &Manifest, bytes: &Bytes) -> anyhow::Result<Box<dyn Evaluator>> {
        evaluator_of(&*self.backend, &self.game.spec().name, manifest, bytes)
    }

    /// Measures solved positions, without search and with it, and every line of a tiny game.
    fn measure(&mut self, current: &mut Current) -> Result<(), Stop> {
        let version = current.published.manifest.version;
        if self.pacer.evaluate(version, &mut *current.evaluator)?.is_break() {
            return Err(Stop::Drain);
        }
        self.measure_search(current)?;
        if self.exhaustive == Exhaustive::Check {
            for (answered, simulations) in [(Answered::Raw, 0), (Answered::Searched, self.measurement.simulations)] {
                self.play_every_line(current, answered, simulations)?;
            }
        }
        metrics::busy(self.pacer.busy());
        Ok(())
    }

    /// Measures solved positions with search.
    fn measure_search(&mut self, current: &mut Current) -> Result<(), Stop> {
        if self.positions.is_empty() {
            return Ok(());
        }
        let Self { game, measurement, seed, positions, pacer, .. } = self;
        let (version, simulations) = (current.published.manifest.version, measurement.simulations);
        let settings = analysis(simulations, &measurement.search, Fidelity::Exact);
        let mut searcher = Searcher { evaluator: &mut *current.evaluator, settings, rng: draws(*seed, version, 0) };
        let mut pause = || pacer.take();
        let measured = accuracy::measure(game, positions, &mut searcher, &mut pause)?.ok_or(Stop::Drain)?;
        metrics::accuracy(Answered::Searched, &measured);
        let (preserving, optimal) = (measured.overall.outcome_preserving_share(), measured.overall.optimal_share());
        tracing::info!(%version, simulations, positions = positions.len(), preserving, optimal, "solved positions");
        Ok(())
    }

    /// Checks perfect play against every reply.
    fn play_every_line(&mut self, current: &mut Current, answered: Answered, simulations: u32) -> Result<(), Stop> {
        let version = current.published.manifest.version;
        let settings = analysis(simulations, &self.measurement.search, Fidelity::Exact);
        let mut searcher = Searcher { evaluator: &mut *current.evaluator, settings, rng: draws(self.seed, version, 0) };
        let report = exhaustive::check(&self.game, &mut searcher)?;
        metrics::exhaustive(answered, &report);
        let (lost, drawn, won) = (report.lost, report.drawn, report.won);
        tracing::info!(%version, simulations, lost, drawn, won, "every line played");
        if self.pacer.take().is_break() { Err(Stop::Drain) } else { Ok(()) }
    }

    /// Returns neighbouring fixed opponents that have not met: until they do, only the prior fixes the scale between
    /// them.
    fn unanchored(&self) -> Option<(Player, Player)> {
        let fixed: Vec<Player> = self.fixed_opponents().collect();
        let met = |pair: &[Player]| self.ledger.games_between(pair[0], pair[1]) > 0;
        fixed.windows(2).find(|pair| !met(pair)).map(|pair| (pair[0], pair[1]))
    }

    /// Plays one match between two fixed opponents, once per run.
    fn anchor(&mut self, weaker: Player, stronger: Player) -> anyhow::Result<ControlFlow<()>> {
        let Self { game, measurement, seed, ledger, pacer, .. } = self;
        let draws = |stream| draws(*seed, WeightsVersion(0), ledger.games().wrapping_mul(4).wrapping_add(stream));
        let (mut a, mut b) = (fixed_contestant(weaker, draws(1)), fixed_contestant(stronger, draws(2)));
        let mut pause = || pacer.take();
        let contestants: [&mut dyn Contestant<G>; 2] = [&mut *a, &mut *b];
        let openings = matches::openings(game, measurement.matches, 0, &mut draws(3));
        let tally = matches::play(game, contestants, &openings, &mut pause);
        metrics::busy(pacer.busy());
        match tally.context("play between fixed opponents")? {
            None => Ok(ControlFlow::Break(())),
            Some(tally) => {
                self.enter(weaker, stronger, tally);
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    /// Adds a match to the ledger and writes the file; after a failed write, the next match writes both.
    fn enter(&mut self, player: Player, opponent: Player, tally: Tally) {
        self.ledger.add(player, opponent, tally);
        try_again_later(self.ledger.save(&self.ratings_path).context("keep the ratings"));
        self.ratings = self.ledger.ratings();
        self.publish_ratings();
        let rating = self.ratings.iter().find(|rated| rated.player == player).map(|rated| rated.rating);
        let (points, games, elo) = (tally.points(), tally.games(), rating.map(|rating| rating.elo));
        tracing::info!(%player, %opponent, points, games, elo, "match");
    }

    /// Returns random play, then random playouts by ascending budget.
    fn fixed_opponents(&self) -> impl Iterator<Item = Player> + '_ {
        let playouts = self.measurement.playouts.iter().map(|&simulations| Player::Playouts { simulations });
        [Player::Random].into_iter().chain(playouts)
    }

    /// Plays one match of the current version against the most informative opponent.
    fn play_match(&mut self) -> anyhow::Result<ControlFlow<()>> {
        let Some(mut current) = self.current.take() else { return Ok(ControlFlow::Continue(())) };
        let player = current.player();
        let opponent = self.opponent_of(player);
        let played = match self.evaluator_of_opponent(opponent) {
            Ok(evaluator) => self.play_against(&mut current, opponent, evaluator),
            Err(error) => Err(Unfinished::Opponent(error)),
        };
        self.current = Some(current);
        match played {
            Ok(tally) => self.enter(player, opponent, tally),
            Err(Unfinished::Drain) => return Ok(ControlFlow::Break(())),
            Err(Unfinished::Player(error)) => return Ok(self.settle(Err(Stop::Evaluator(error)))),
            Err(Unfinished::Opponent(error)) => self.give_up(opponent, error)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Removes an earlier version that cannot be used; other opponents remain.
    fn give_up(&mut self, opponent: Player, error: anyhow::Error) -> anyhow::Result<()> {
        let Player::Version(version) = opponent else { return Err(error.context(format!("play against {opponent}"))) };
        tracing::warn!(%version, error = service::chain(&error), "an earlier version cannot be used");
        self.past.drop_version(version).context("give up an earlier version")
    }

    /// Returns the opponent whose next match is the most informative: of similar strength, and with few games so far.
    fn opponent_of(&self, player: Player) -> Player {
        let elo_of = |player| self.ratings.iter().find(|rated| rated.player == player).map(|rated| rated.rating.elo);
        // A version without games is assumed to be as strong as the one before it.
        let before = self.ratings.iter().rev().find(|rated| matches!(rated.player, Player::Version(_)));
        let elo = elo_of(player).or(before.map(|rated| rated.rating.elo)).unwrap_or(0.0);
        let information = |opponent: Player| {
            let expected = expected_score(elo, elo_of(opponent).unwrap_or(elo));
            let games = self.ledger.games_between(player, opponent) as f64;
            let per_match = 2.0 * self.measurement.matches.openings as f64;
            expected.mul_add(1.0 - expected, INFORMATION_MIN) / (1.0 + games / per_match)
        };
        let past = self.past.manifests().iter().map(|manifest| Player::Version(manifest.version));
        self.fixed_opponents()
            .chain(past)
            .filter(|&opponent| opponent != player)
            .max_by(|&a, &b| information(a).total_cmp(&information(b)))
            .unwrap_or(Player::Random)
    }

    /// Returns the weights of an opponent; `None` unless it is an earlier version.
    fn evaluator_of_opponent(&self, opponent: Player) -> anyhow::Result<Option<Box<dyn Evaluator>>> {
        let Player::Version(version) = opponent else { return Ok(None) };
        let manifests = self.past.manifests();
        let manifest = manifests.iter().find(|manifest| manifest.version == version).expect("opponents are kept");
        self.evaluator(manifest, &self.past.bytes(manifest)?.into()).map(Some)
    }

    fn play_against(
        &mut self,
        current: &mut Current,
        opponent: Player,
        mut evaluator: Option<Box<dyn Evaluator>>,
    ) -> Result<Tally, Unfinished> {
        let version = current.published.manifest.version;
        let Self { game, measurement, seed, ledger, pacer, .. } = self;
        // Every match of a version has other openings, and a repeated match has the same ones.
        let played = (ledger.games_of(current.player()) / 2 % OPENINGS_MAX) as usize;
        let openings =
            matches::openings(game, measurement.matches, played, &mut draws(*seed, version, OPENINGS_STREAM));
        let draws = |stream| draws(*seed, version, ledger.games().wrapping_mul(4).wrapping_add(stream));
        let settings = || analysis(measurement.simulations, &measurement.search, Fidelity::Batched);
        let mut player = Searcher { evaluator: &mut *current.evaluator, settings: settings(), rng: draws(1) };
        let mut other: Box<dyn Contestant<G> + '_> = match &mut evaluator {
            Some(evaluator) => Box::new(Searcher { evaluator: &mut **evaluator, settings: settings(), rng: draws(2) }),
            None => fixed_contestant(opponent, draws(2)),
        };
        let mut pause = || pacer.take();
        let contestants: [&mut dyn Contestant<G>; 2] = [&mut player, &mut *other];
        let tally = matches::play(game, contestants, &openings, &mut pause)?;
        metrics::busy(pacer.busy());
        tally.ok_or(Unfinished::Drain)
    }

    /// Handles the end of a measurement: weights that cannot be evaluated are not tried again.
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
        metrics::ratings(&self.ratings, current, self.ledger.games());
    }
}

impl Current {
    fn player(&self) -> Player {
        Player::Version(self.published.manifest.version)
    }
}

/// Logs a failed write: a full disk must not end the measuring, and the next write includes this one.
fn try_again_later(kept: anyhow::Result<()>) {
    if let Err(error) = kept {
        tracing::error!("measuring goes on: {error:#}");
    }
}

/// Returns an opponent that needs no weights.
fn fixed_contestant<G: Game>(player: Player, rng: ChaCha8Rng) -> Box<dyn Contestant<G>> {
    match player {
        Player::Playouts { simulations } => Box::new(PlayoutMover::new(simulations, rng)),
        Player::Random | Player::Version(_) => Box::new(RandomMover { rng }),
    }
}

#[cfg(test)]
mod tests;
