//! The measuring thread: adopts a weights version, measures it, plays its rated games, waits for the next.
//!
//! It knows no socket and no runtime: whatever is outside comes through [`Outside`]. Start with [`Worker::run`].

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
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
use crate::breaks::{Breaks, Questions};
use crate::config::Measurement;
use crate::contestant::{Contestant, Fidelity, PlayoutMover, RandomMover, Searcher, analysis};
use crate::evaluators::{Build, evaluator_of};
use crate::exhaustive;
use crate::ledger::{Ledger, Rated};
use crate::matches;
use crate::metrics::{self, Answered};
use crate::past_versions::PastVersions;
use crate::player::Player;
use crate::rating::expected_score;
use crate::solved::SolvedPosition;

/// After this many intervals a version makes room for a newer one even if it has games left.
const PATIENCE: u32 = 4;

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
    game: G,
    measurement: Measurement,
    seed: u64,
    build: Rc<Build>,
    ledger: Ledger,
    ratings_path: PathBuf,
    past: PastVersions,
    positions: Rc<[SolvedPosition]>,
    exhaustive: Exhaustive,
    breaks: Breaks<G, O>,
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

/// Why a match has no tally.
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

impl<G: Game, O: Outside> Worker<G, O> {
    /// Ready to run.
    pub fn new(parts: Parts<G, O>) -> Self {
        let Parts {
            game,
            outside,
            measurement,
            seed,
            cpu_share,
            build,
            ledger,
            ratings_path,
            past,
            positions,
            exhaustive,
        } = parts;
        let (positions, build) = (Rc::from(positions), Rc::new(build));
        let questions = Questions {
            game: game.clone(),
            positions: Rc::clone(&positions),
            build: Rc::clone(&build),
            settings: analysis(0, &measurement.search, Fidelity::Exact),
            seed,
        };
        let breaks = Breaks::new(outside, cpu_share, questions);
        let ratings = ledger.ratings();
        let (current, refused) = (None, None);
        Self {
            game,
            measurement,
            seed,
            build,
            ledger,
            ratings_path,
            past,
            positions,
            exhaustive,
            breaks,
            ratings,
            current,
            refused,
        }
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
        let newest = self.breaks.newest()?;
        let version = newest.manifest.version;
        if self.refused == Some(version) {
            return None;
        }
        let Some(current) = &self.current else { return Some(newest) };
        if current.published.manifest.version == version {
            return None;
        }
        let (adopted, interval) = (current.adopted, self.measurement.version_interval);
        let measured = self.breaks.now().saturating_duration_since(adopted);
        let is_done = self.games_left() == 0 && measured >= interval;
        (is_done || measured >= interval.saturating_mul(PATIENCE)).then_some(newest)
    }

    fn games_left(&self) -> u64 {
        let Some(current) = &self.current else { return 0 };
        let played = self.ledger.games_of(current.player());
        self.measurement.games_per_version.saturating_sub(played)
    }

    /// Nothing to do until newer weights come, or until the interval of the current ones is over.
    fn idle(&mut self) -> ControlFlow<()> {
        let now = self.breaks.now();
        let measured = self.current.as_ref().map(|current| now.saturating_duration_since(current.adopted));
        let remaining = measured.map(|measured| self.measurement.version_interval.saturating_sub(measured));
        self.breaks.idle(remaining.unwrap_or_default())
    }

    /// Makes `published` the version being measured, and measures everything but its games.
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
        let adopted = self.breaks.now();
        metrics::version(version);
        let mut current = Current { published, evaluator, adopted };
        let measured = self.measure(&mut current);
        self.current = Some(current);
        Ok(self.settle(measured))
    }

    fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> anyhow::Result<Box<dyn Evaluator>> {
        evaluator_of(&self.build, &self.game.spec().name, manifest, bytes)
    }

    /// Solved positions, without search and with it, and every line of a tiny game.
    fn measure(&mut self, current: &mut Current) -> Result<(), Stop> {
        let version = current.published.manifest.version;
        if self.breaks.ask(version, &mut *current.evaluator)?.is_break() {
            return Err(Stop::Drain);
        }
        self.measure_search(current)?;
        if self.exhaustive == Exhaustive::Check {
            for (answered, simulations) in [(Answered::Raw, 0), (Answered::Searched, self.measurement.simulations)] {
                self.play_every_line(current, answered, simulations)?;
            }
        }
        metrics::busy(self.breaks.busy());
        Ok(())
    }

    /// Solved positions with search.
    fn measure_search(&mut self, current: &mut Current) -> Result<(), Stop> {
        if self.positions.is_empty() {
            return Ok(());
        }
        let Self { game, measurement, seed, positions, breaks, .. } = self;
        let (version, simulations) = (current.published.manifest.version, measurement.simulations);
        let settings = analysis(simulations, &measurement.search, Fidelity::Exact);
        let mut searcher = Searcher { evaluator: &mut *current.evaluator, settings, rng: draws(*seed, version, 0) };
        let mut pause = || breaks.take();
        let measured = accuracy::measure(game, positions, &mut searcher, &mut pause)?.ok_or(Stop::Drain)?;
        metrics::accuracy(Answered::Searched, &measured);
        let (preserving, optimal) = (measured.overall.outcome_preserving_share(), measured.overall.optimal_share());
        tracing::info!(%version, simulations, positions = positions.len(), preserving, optimal, "solved positions");
        Ok(())
    }

    /// Perfect play, checked against every reply.
    fn play_every_line(&mut self, current: &mut Current, answered: Answered, simulations: u32) -> Result<(), Stop> {
        let version = current.published.manifest.version;
        let settings = analysis(simulations, &self.measurement.search, Fidelity::Exact);
        let mut searcher = Searcher { evaluator: &mut *current.evaluator, settings, rng: draws(self.seed, version, 0) };
        let report = exhaustive::check(&self.game, &mut searcher)?;
        metrics::exhaustive(answered, &report);
        let (lost, drawn, won) = (report.lost, report.drawn, report.won);
        tracing::info!(%version, simulations, lost, drawn, won, "every line played");
        if self.breaks.take().is_break() { Err(Stop::Drain) } else { Ok(()) }
    }

    /// Neighbours among the fixed opponents that have never met: until they have, the scale hangs on the prior alone.
    fn unanchored(&self) -> Option<(Player, Player)> {
        let fixed: Vec<Player> = self.fixed_opponents().collect();
        let met = |pair: &[Player]| self.ledger.games_between(pair[0], pair[1]) > 0;
        fixed.windows(2).find(|pair| !met(pair)).map(|pair| (pair[0], pair[1]))
    }

    /// One match between two fixed opponents, once in a run.
    fn anchor(&mut self, weaker: Player, stronger: Player) -> anyhow::Result<ControlFlow<()>> {
        let Self { game, measurement, seed, ledger, breaks, .. } = self;
        let draws = |stream| draws(*seed, WeightsVersion(0), ledger.games().wrapping_mul(4).wrapping_add(stream));
        let (mut a, mut b) = (fixed_contestant(weaker, draws(1)), fixed_contestant(stronger, draws(2)));
        let mut pause = || breaks.take();
        let contestants: [&mut dyn Contestant<G>; 2] = [&mut *a, &mut *b];
        let tally = matches::play(game, contestants, measurement.matches, &mut draws(3), &mut pause);
        metrics::busy(breaks.busy());
        match tally.context("play between fixed opponents")? {
            None => Ok(ControlFlow::Break(())),
            Some(tally) => {
                self.enter(weaker, stronger, &tally);
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    /// Enters a match into the ledger, on the disk before it counts; if it finds no room there, with the next match.
    fn enter(&mut self, player: Player, opponent: Player, tally: &matches::Tally) {
        self.ledger.add(player, opponent, tally);
        try_again_later(self.ledger.save(&self.ratings_path).context("keep the ratings"));
        self.ratings = self.ledger.ratings();
        self.publish_ratings();
        let rating = self.ratings.iter().find(|rated| rated.player == player).map(|rated| rated.rating);
        let (points, games, elo) = (tally.points(), tally.games(), rating.map(|rating| rating.elo));
        tracing::info!(%player, %opponent, points, games, elo, "match");
    }

    /// Random play, then random playouts from the smallest budget to the greatest.
    fn fixed_opponents(&self) -> impl Iterator<Item = Player> + '_ {
        let playouts = self.measurement.playouts.iter().map(|&simulations| Player::Playouts { simulations });
        [Player::Random].into_iter().chain(playouts)
    }

    /// One match of the current version against the opponent that tells most about it.
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
            Ok(tally) => self.enter(player, opponent, &tally),
            Err(Unfinished::Drain) => return Ok(ControlFlow::Break(())),
            Err(Unfinished::Player(error)) => return Ok(self.settle(Err(Stop::Evaluator(error)))),
            Err(Unfinished::Opponent(error)) => self.give_up(opponent, error)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Gives up an earlier version that cannot be used; there are others to measure against.
    fn give_up(&mut self, opponent: Player, error: anyhow::Error) -> anyhow::Result<()> {
        let Player::Version(version) = opponent else { return Err(error.context(format!("play against {opponent}"))) };
        tracing::warn!(%version, error = service::chain(&error), "an earlier version cannot be used");
        self.past.drop_version(version).context("give up an earlier version")
    }

    /// The opponent whose next match says most: strength nearest to the player's, and few games between them.
    fn opponent_of(&self, player: Player) -> Player {
        let elo_of = |player| self.ratings.iter().find(|rated| rated.player == player).map(|rated| rated.rating.elo);
        // A version without games is probably about as strong as the one before it.
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

    /// What an opponent needs to choose; nothing, unless it is an earlier version.
    fn evaluator_of_opponent(&self, opponent: Player) -> anyhow::Result<Option<Box<dyn Evaluator>>> {
        let Player::Version(version) = opponent else { return Ok(None) };
        let manifests = self.past.manifests();
        let manifest = manifests.iter().find(|manifest| manifest.version == version).expect("opponents are kept");
        self.evaluator(manifest, &self.past.bytes(manifest)?).map(Some)
    }

    fn play_against(
        &mut self,
        current: &mut Current,
        opponent: Player,
        mut evaluator: Option<Box<dyn Evaluator>>,
    ) -> Result<matches::Tally, Unfinished> {
        let version = current.published.manifest.version;
        let Self { game, measurement, seed, ledger, breaks, .. } = self;
        // Other openings for every match, the same again if it is repeated.
        let draws = |stream| draws(*seed, version, ledger.games().wrapping_mul(4).wrapping_add(stream));
        let settings = || analysis(measurement.simulations, &measurement.search, Fidelity::Batched);
        let mut player = Searcher { evaluator: &mut *current.evaluator, settings: settings(), rng: draws(1) };
        let mut other: Box<dyn Contestant<G> + '_> = match &mut evaluator {
            Some(evaluator) => Box::new(Searcher { evaluator: &mut **evaluator, settings: settings(), rng: draws(2) }),
            None => fixed_contestant(opponent, draws(2)),
        };
        let mut pause = || breaks.take();
        let contestants: [&mut dyn Contestant<G>; 2] = [&mut player, &mut *other];
        let tally = matches::play(game, contestants, measurement.matches, &mut draws(3), &mut pause)?;
        metrics::busy(breaks.busy());
        tally.ok_or(Unfinished::Drain)
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
        metrics::ratings(&self.ratings, current, self.ledger.games());
    }
}

impl Current {
    fn player(&self) -> Player {
        Player::Version(self.published.manifest.version)
    }
}

/// A full disk must not end the measuring: what could not be kept is kept with what comes next.
fn try_again_later(kept: anyhow::Result<()>) {
    if let Err(error) = kept {
        tracing::error!("measuring goes on: {error:#}");
    }
}

/// An opponent that needs no weights.
fn fixed_contestant<G: Game>(player: Player, rng: ChaCha8Rng) -> Box<dyn Contestant<G>> {
    match player {
        Player::Playouts { simulations } => Box::new(PlayoutMover::new(simulations, rng)),
        Player::Random | Player::Version(_) => Box::new(RandomMover { rng }),
    }
}

/// A generator of its own for every version and stream.
pub(crate) fn draws(seed: u64, version: WeightsVersion, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ version.0.rotate_left(32));
    rng.set_stream(stream);
    rng
}

#[cfg(test)]
mod tests;
