//! Runs the measuring thread, which measures a weights version, plays the rated games and waits for the next version.
//!
//! It has no sockets and no runtime: [`Environment`] provides weights, time and the drain. Start with [`Worker::run`].

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use evaluators::{Backend, Network};
use game::{Game, Scoring};
use games::Exhaustive;
use proto::weights::Published;
use rand_chacha::ChaCha8Rng;
use run_file::arena::Settings;
use service::directory::if_exists;
use strength::contestant::{BATCHED, Contestant, RandomMover, Searcher, analysis, draws, fixed_contestant};
use strength::ledger::{Ledger, Player, Rated, Results};
use strength::matches::{Counted, Failure, Opening, Played};
use strength::outside::Outside;
use strength::rating::{ELO_PER_UNIT, NORMAL_95, expected_score};
use strength::returns::{self, Returns};
use strength::{exhaustive, matches, scale};
use version_store::accepted;
use weights::WeightsVersion;

use crate::gate::{Gate, Verdict};
use crate::metrics;
use crate::pacer::{Environment, Pacer};
use crate::past_versions::{Limits, PastVersions};
use crate::regression::{Regression, regression};
use crate::return_ledger::ReturnLedger;
use crate::setup::Setup;

/// Number of measurement intervals after which a later version replaces the current version, even if rated games are
/// left to play.
const PATIENCE: u32 = 4;

/// Number of openings after which the opening sequence of a version repeats, which bounds the random draws per match.
const OPENINGS_MAX: u64 = 1 << 14;

/// Number of the random stream from which a version's openings are drawn. The streams of matches count up from zero.
const OPENINGS_STREAM: u64 = u64::MAX;

/// Minimum information that a game is assumed to give, because a rating may be wrong.
const INFORMATION_MIN: f64 = 0.01;

/// Name of the file with all games, in the run directory.
const RATINGS: &str = "ratings.json";

/// Name of the file with all mean returns, in the run directory.
const RETURNS: &str = "returns.json";

/// The state of the measuring thread; see the [module](self).
pub(crate) struct Worker<G: Game, O> {
    setup: Arc<Setup<G>>,
    ledger: Ledger,
    returns: ReturnLedger,
    /// Environments of evaluation episodes, if the game runs outside this process.
    outside: Option<Outside<G>>,
    past: PastVersions,
    /// Rule that accepts versions for the actors, if the run has a gate.
    gate: Option<Gate>,
    pacer: Pacer<G, O>,
    ratings: Vec<Rated>,
    current: Option<Current>,
    /// A version with unusable weights, which is not retried.
    refused: Option<WeightsVersion>,
}

/// The version being measured.
struct Current {
    published: Arc<Published>,
    network: Network,
    adopted: Instant,
    /// Games that count as evidence, by opponent version. These games are not stored: after a restart, a repeated game
    /// may count again.
    counted: BTreeMap<Player, Counted>,
}

/// The reason why a measurement or match is incomplete.
enum Stop {
    /// The process drains.
    Drain,
    /// The version under measurement cannot be evaluated.
    Evaluator(inference::Error),
    /// The environment failed in an evaluation episode.
    Environment(returns::Error),
    /// The opponent cannot be used.
    Opponent(anyhow::Error),
}

impl From<inference::Error> for Stop {
    fn from(error: inference::Error) -> Self {
        Self::Evaluator(error)
    }
}

impl From<returns::Error> for Stop {
    fn from(error: returns::Error) -> Self {
        match error {
            returns::Error::Network(error) => Self::Evaluator(error),
            error => Self::Environment(error),
        }
    }
}

impl From<matches::Error> for Stop {
    fn from(matches::Error { contestant, source }: matches::Error) -> Self {
        match source {
            Failure::Evaluator(error) if contestant == 0 => Self::Evaluator(error),
            failure => Self::Opponent(failure.into()),
        }
    }
}

impl<G: Game, O: Environment> Worker<G, O> {
    /// Opens the games and earlier versions in the run directory.
    ///
    /// # Errors
    /// The run directory is unusable or contains files of another run.
    pub(crate) fn open(game: G, settings: Settings, backend: Arc<dyn Backend>, environment: O) -> anyhow::Result<Self> {
        let directory = &settings.run.directory;
        let ledger = Ledger::load(&directory.join(RATINGS), &game.spec().name)?;
        let returns = ReturnLedger::load(&directory.join(RETURNS), &game.spec().name)?;
        let limits = Limits { spread_max: settings.arena.past_versions, best_max: settings.arena.best_versions };
        let past = PastVersions::open(directory, limits)?;
        let gate = match settings.gate {
            Some(rule) => Some(Gate::open(rule, &directory.join(accepted::FILE))?),
            None => {
                // Actors play with later versions from now on. A gate in a later process must not rank these versions
                // below the accepted version.
                if_exists(fs::remove_file(directory.join(accepted::FILE))).context("remove the accepted version")?;
                None
            }
        };
        let setup = Arc::new(Setup::new(game, settings, backend));
        let (pacer, ratings) = (Pacer::new(environment, Arc::clone(&setup)), ledger.ratings());
        let mut worker =
            Self { setup, ledger, returns, outside: None, past, gate, pacer, ratings, current: None, refused: None };
        worker.accept_again();
        Ok(worker)
    }

    /// Plays evaluation episodes in environments outside this process.
    pub(crate) fn outside(self, outside: Outside<G>) -> Self {
        Self { outside: Some(outside), ..self }
    }

    /// Measures version after version until the process drains; all results are on disk when it returns.
    ///
    /// # Errors
    /// Ratings or earlier versions cannot be written. Unusable weights are reported and skipped.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        self.publish_ratings();
        metrics::regression(None);
        metrics::accepted(self.gate.as_ref().and_then(Gate::accepted).unwrap_or_default());
        metrics::episodes(self.returns.episodes());
        if self.setup.draw_positions(&mut || self.pacer.look()).is_break() {
            return Ok(());
        }
        tracing::info!(games = self.ledger.games(), positions = self.setup.positions().len(), "measuring");
        loop {
            let flow = if let Some(published) = self.due() {
                self.adopt(published)?
            } else if self.is_scored_by_rewards() {
                if self.publish_returns(Player::Random) { self.idle() } else { self.measure_random_play()? }
            } else if let Some((weaker, stronger)) = self.unanchored().filter(|&(weaker, _)| self.needs_anchor(weaker))
            {
                self.anchor(weaker, stronger)?
            } else if self.games_left() > 0 || self.is_pending() {
                self.play_match()?
            } else {
                self.idle()
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }

    /// Returns the version to measure next, if it is due.
    fn due(&mut self) -> Option<Arc<Published>> {
        let newest = self.pacer.environment.newest()?;
        let version = newest.manifest.version;
        if self.refused == Some(version) {
            return None;
        }
        let Some(current) = &self.current else { return Some(newest) };
        if current.published.manifest.version == version {
            return None;
        }
        let (adopted, interval) = (current.adopted, self.setup.settings.version_interval);
        let measured = self.pacer.environment.now().saturating_duration_since(adopted);
        if self.is_pending() {
            return None;
        }
        let is_done = self.games_left() == 0 && measured >= interval;
        (is_done || measured >= interval.saturating_mul(PATIENCE)).then_some(newest)
    }

    /// Returns true if versions are measured by mean returns, without opponents.
    fn is_scored_by_rewards(&self) -> bool {
        self.setup.game.spec().scoring == Scoring::Rewards
    }

    fn games_left(&self) -> u64 {
        if self.is_scored_by_rewards() {
            return 0;
        }
        let Some(current) = &self.current else { return 0 };
        let played = self.ledger.games_of(current.player());
        self.setup.settings.arena.games_per_version.saturating_sub(played)
    }

    /// Returns true while the gate needs more games of the current version.
    fn is_pending(&self) -> bool {
        let (Some(gate), Some(current)) = (&self.gate, &self.current) else { return false };
        gate.verdict(&self.ledger, current.published.manifest.version) == Verdict::Pending
    }

    fn judge_current(&mut self) {
        if let Some(published) = self.current.as_ref().map(|current| Arc::clone(&current.published)) {
            self.judge(&published);
        }
    }

    /// Serves a version to the actors if it passes the gate and differs from the actors' current version.
    fn judge(&mut self, published: &Arc<Published>) {
        let version = published.manifest.version;
        let Some(gate) = &mut self.gate else { return };
        match gate.verdict(&self.ledger, version) {
            Verdict::Pending => return,
            Verdict::Fails => {
                let accepted = gate.accepted().unwrap_or_default();
                tracing::info!(%version, %accepted, "version rejected by the gate");
                return;
            }
            Verdict::Passes if gate.accepted() == Some(version) => return,
            Verdict::Passes => {}
        }
        // The version is kept before the file names it: a restart serves it again.
        self.past.protect(version);
        let kept = self.past.keep(&published.manifest, &published.bytes, &self.ratings);
        if let (Err(_), Some(accepted)) = (&kept, gate.accepted()) {
            // Actors stay with the version on disk; a later version is tested against that.
            self.past.protect(accepted);
            return log_failure(kept.context("store the accepted version"));
        }
        log_failure(kept.and_then(|()| gate.accept(version)).context("store the accepted version"));
        tracing::info!(%version, "version accepted by the gate");
        metrics::accepted(version);
        self.pacer.environment.accept(published);
    }

    /// Serves the accepted version of an earlier process again. If the weights are missing, the next version passes.
    fn accept_again(&mut self) {
        let Some(gate) = &mut self.gate else { return };
        let Some(version) = gate.accepted() else { return };
        let (manifest, bytes) = match self.past.read(version) {
            Ok(kept) => kept,
            Err(error) => {
                let error = service::chain(&error);
                tracing::error!(%version, error, "accepted version missing or damaged; accepting the next version");
                return gate.forget();
            }
        };
        self.past.protect(version);
        self.pacer.environment.accept(&Published { manifest, bytes: bytes.into() });
    }

    /// Waits until later weights arrive or the interval of the current version is over.
    fn idle(&mut self) -> ControlFlow<()> {
        let now = self.pacer.environment.now();
        let measured = self.current.as_ref().map(|current| now.saturating_duration_since(current.adopted));
        let remaining = measured.map(|measured| self.setup.settings.version_interval.saturating_sub(measured));
        self.pacer.idle(remaining.unwrap_or_default())
    }

    /// Makes `published` the version under measurement, and runs all measurements except for games.
    fn adopt(&mut self, published: Arc<Published>) -> anyhow::Result<ControlFlow<()>> {
        if self.games_left() > 0 {
            // A version that is replaced before the last game gets no other regression check.
            self.report_regression();
        }
        if let Some(Current { published, .. }) = self.current.take() {
            let kept = self.past.keep(&published.manifest, &published.bytes, &self.ratings);
            log_failure(kept.context("store an earlier version"));
        }
        let version = published.manifest.version;
        let network = match self.setup.network(&published.manifest, &published.bytes) {
            Ok(network) => network,
            Err(error) => {
                tracing::error!(%version, error = service::chain(&error), "cannot use weights");
                self.refused = Some(version);
                return Ok(ControlFlow::Continue(()));
            }
        };
        let adopted = self.pacer.environment.now();
        metrics::version(version);
        metrics::evaluator(&network.attributes().name, version);
        let mut current = Current { published, network, adopted, counted: BTreeMap::new() };
        let measured = self.evaluate(&mut current).and_then(|()| {
            self.judge(&current.published);
            self.measure(&mut current)
        });
        self.current = Some(current);
        self.report_measured();
        Ok(measured.map_or_else(|stop| self.settle(stop), ControlFlow::Continue))
    }

    /// Evaluates a version without search on solved positions and, under a gate, on the start of the game, because few
    /// games have solved positions. The first verdict waits only for these short evaluations, since actors without
    /// weights wait for the verdict. Weights that fail here are never served.
    fn evaluate(&mut self, current: &mut Current) -> Result<(), Stop> {
        let Self { setup, pacer, gate, .. } = self;
        let version = current.published.manifest.version;
        if gate.is_some() {
            setup.searcher(version, 0, &mut current.network).choose(&setup.game, &[setup.game.start()])?;
        }
        match pacer.evaluate(version, &mut current.network)? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Drain),
        }
    }

    /// Measures solved positions with search, every line of a tiny game, and the mean return.
    fn measure(&mut self, current: &mut Current) -> Result<(), Stop> {
        let Self { setup, pacer, .. } = self;
        let Settings { game, arena, .. } = &setup.settings;
        let version = current.published.manifest.version;
        let network = &mut current.network;
        if setup.measure_accuracy(version, arena.simulations, network, &mut || pacer.take())?.is_break() {
            return Err(Stop::Drain);
        }
        if game.entry().exhaustive == Exhaustive::Check {
            for simulations in [0, arena.simulations] {
                let report = exhaustive::check(&setup.game, &mut setup.searcher(version, simulations, network))?;
                metrics::exhaustive(simulations, &report);
                let (lost, drawn, won) = (report.lost, report.drawn, report.won);
                tracing::info!(%version, simulations, lost, drawn, won, "every line played: exhaustive check finished");
                if pacer.take().is_break() {
                    return Err(Stop::Drain);
                }
            }
        }
        if self.is_scored_by_rewards() { self.measure_returns(current) } else { Ok(()) }
    }

    /// Measures the mean return of a version, unless it was measured before.
    fn measure_returns(&mut self, current: &mut Current) -> Result<(), Stop> {
        let (player, setup) = (current.player(), Arc::clone(&self.setup));
        if self.publish_returns(player) {
            return Ok(());
        }
        let version = current.published.manifest.version;
        let mut contestant = setup.searcher(version, setup.settings.arena.simulations, &mut current.network);
        let measured = self.play_episodes(&mut contestant)?;
        self.enter_returns(player, measured);
        Ok(())
    }

    /// Measures the mean return of random play, once per run.
    fn measure_random_play(&mut self) -> anyhow::Result<ControlFlow<()>> {
        let rng = draws(self.setup.settings.run.seed, WeightsVersion(0), 0);
        match self.play_episodes(&mut RandomMover { rng }) {
            Ok(measured) => self.enter_returns(Player::Random, measured),
            Err(Stop::Drain) => return Ok(ControlFlow::Break(())),
            Err(Stop::Environment(error)) => return Err(error).context("play random episodes"),
            Err(Stop::Evaluator(error)) => return Err(error).context("play random episodes"),
            Err(Stop::Opponent(error)) => return Err(error),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Plays the evaluation episodes of the run, which are the same for every player.
    fn play_episodes(&mut self, contestant: &mut dyn Contestant<G>) -> Result<Returns, Stop> {
        let Self { setup, pacer, outside, .. } = self;
        // The complement separates these seeds from the seeds of `zerofleet eval` with the seed of the run.
        let seeds = returns::seeds(!setup.settings.run.seed, setup.settings.arena.episodes);
        let pause = &mut || pacer.take();
        let played = match outside {
            Some(outside) => outside.play(&setup.game, contestant, seeds, pause),
            None => returns::play(&setup.game, contestant, seeds, pause),
        };
        Ok(Returns::of(&played?.ok_or(Stop::Drain)?))
    }

    /// Adds the returns of a player to the file; after a failed write, the next write includes them.
    fn enter_returns(&mut self, player: Player, returns: Returns) {
        self.returns.enter(player, returns);
        let path = self.setup.settings.run.directory.join(RETURNS);
        log_failure(self.returns.save(&path).context("store the returns"));
        metrics::episodes(self.returns.episodes());
        self.publish_returns(player);
        let Returns { episodes, mean, low, high, length } = returns;
        tracing::info!(%player, episodes, mean, low, high, length, "played evaluation episodes");
    }

    /// Publishes the returns of a player as metrics. Returns false if the player has no measured returns.
    fn publish_returns(&self, player: Player) -> bool {
        let returns = self.returns.of(player);
        returns.iter().for_each(|returns| metrics::returns(player, returns));
        returns.is_some()
    }

    /// Returns two neighbouring fixed opponents that have not met, if the strength of the stronger is unknown, because
    /// its rating would otherwise follow from the prior alone.
    fn unanchored(&self) -> Option<(Player, Player)> {
        let fixed: Vec<Player> = self.fixed_opponents().collect();
        let is_known = |player: Player| scale::elo(&self.setup.game.spec().name, &player.to_string()).is_some();
        let met = |pair: &[Player]| self.ledger.games_between(pair[0], pair[1]) > 0 || is_known(pair[1]);
        fixed.windows(2).find(|pair| !met(pair)).map(|pair| (pair[0], pair[1]))
    }

    /// Returns true if the fixed opponent above `weaker` should be rated now. The first opponent is rated at once, and
    /// each further opponent once a version is as strong as `weaker`, or no other match is left. In slow games, matches
    /// between opponents that are far stronger than any version yet would delay the first ratings of versions.
    fn needs_anchor(&self, weaker: Player) -> bool {
        let newest = self.ratings.iter().rev().find(|rated| matches!(rated.player, Player::Version(_)));
        weaker == Player::Random
            || (self.games_left() == 0 && !self.is_pending())
            || newest.zip(self.elo_of(weaker)).is_some_and(|(version, elo)| version.elo >= elo)
    }

    /// Plays one match between two fixed opponents, once per run.
    fn anchor(&mut self, weaker: Player, stronger: Player) -> anyhow::Result<ControlFlow<()>> {
        let draws = self.draws_of_match(WeightsVersion(0));
        let contestants = [(weaker, draws(1)), (stronger, draws(2))]
            .map(|(player, rng)| fixed_contestant(player, rng).expect("fixed opponents need no weights"));
        let openings = matches::openings(&self.setup.game, self.setup.settings.matches(), 0, &mut draws(3));
        let mut played = Played::default();
        let flow = self.play(contestants, &openings, &mut played).context("play between fixed opponents")?;
        if flow.is_continue() {
            self.enter(weaker, stronger, played.tally_with_repetitions().into());
        }
        Ok(flow)
    }

    /// Returns the random number generators of the next match of a version, by stream.
    fn draws_of_match(&self, version: WeightsVersion) -> impl Fn(u64) -> ChaCha8Rng + use<G, O> {
        let (seed, first) = (self.setup.settings.run.seed, self.ledger.games().wrapping_mul(4));
        move |stream| draws(seed, version, first.wrapping_add(stream))
    }

    /// Plays a match; breaks if the process drains.
    fn play(
        &mut self,
        [mut a, mut b]: [Box<dyn Contestant<G> + '_>; 2],
        openings: &[Opening<G::Position>],
        played: &mut Played,
    ) -> Result<ControlFlow<()>, matches::Error> {
        let pause = &mut |_| self.pacer.take();
        matches::play(&self.setup.game, [&mut a, &mut b], openings, played, pause)
    }

    /// Adds a match to the ledger and writes the file; after a failed write, the next write includes both matches.
    fn enter(&mut self, player: Player, opponent: Player, results: Results) {
        self.ledger.add(player, opponent, results);
        self.ratings = self.ledger.ratings();
        let path = self.setup.settings.run.directory.join(RATINGS);
        log_failure(self.ledger.save(&path, &self.ratings).context("store the ratings"));
        self.publish_ratings();
        let Results { tally, repeated } = results;
        let (points, games, elo) = (tally.points(), tally.games(), self.elo_of(player));
        tracing::info!(%player, %opponent, points, games, repeated_games = 2 * repeated, elo, "match");
    }

    /// Returns random play, then random playouts by ascending budget, then alpha-beta by ascending depth.
    fn fixed_opponents(&self) -> impl Iterator<Item = Player> + '_ {
        let arena = &self.setup.settings.arena;
        let playouts = arena.playouts.iter().map(|&simulations| Player::Playouts { simulations });
        let alpha_beta = arena.alphabeta.iter().map(|&depth| Player::AlphaBeta { depth });
        [Player::Random].into_iter().chain(playouts).chain(alpha_beta)
    }

    /// Plays one match of the current version against the most informative opponent.
    fn play_match(&mut self) -> anyhow::Result<ControlFlow<()>> {
        let was_pending = self.is_pending();
        let Some(player) = self.current.as_ref().map(Current::player) else { return Ok(ControlFlow::Continue(())) };
        let opponent = self.opponent_of(player);
        let Some(mut current) = self.current.take() else { return Ok(ControlFlow::Continue(())) };
        let played = self.play_against(&mut current, opponent);
        self.current = Some(current);
        match played {
            Ok(results) => {
                self.enter(player, opponent, results);
                if was_pending {
                    self.judge_current();
                }
                self.report_measured();
            }
            Err(Stop::Opponent(error)) => self.give_up(opponent, error)?,
            Err(stop) => return Ok(self.settle(stop)),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Removes an earlier version that cannot be used; other opponents remain.
    fn give_up(&mut self, opponent: Player, error: anyhow::Error) -> anyhow::Result<()> {
        let Player::Version(version) = opponent else { return Err(error.context(format!("play against {opponent}"))) };
        tracing::warn!(%version, error = service::chain(&error), "cannot use an earlier version");
        self.past.remove(version).context("drop an earlier version")?;
        if let Some(gate) = &mut self.gate
            && gate.accepted() == Some(version)
        {
            gate.forget();
            self.judge_current();
        }
        Ok(())
    }

    /// Returns the opponent of the next match: the opponent in a pending test of the gate, or else the opponent that
    /// narrows the player's interval most.
    fn opponent_of(&self, player: Player) -> Player {
        let of_test = self.gate.as_ref().and_then(Gate::opponent);
        if let (Some(opponent), true) = (of_test, self.is_pending()) {
            return opponent;
        }
        // A version without games is assumed to be as strong as the version before it.
        let before = self.ratings.iter().rev().find(|rated| matches!(rated.player, Player::Version(_)));
        let elo = self.rating_of(player).or(before.copied()).map_or(0.0, |rated| rated.elo);
        let information = |opponent: Rated| {
            let per_match = 2.0 * self.setup.settings.arena.openings_per_match as f64;
            let played = self.ledger.games_between(player, opponent.player) as f64;
            let of = |games| information(games, elo, &opponent);
            of(played + per_match) - of(played)
        };
        let past = self.past.versions().iter().copied().map(Player::Version);
        self.fixed_opponents()
            .chain(past)
            // A decided test gets no more games: the verdict is final. A match against a player without games shows
            // nothing about the distance to random play.
            .filter(|&opponent| opponent != player && Some(opponent) != of_test)
            .filter_map(|opponent| self.rating_of(opponent))
            .max_by(|&a, &b| information(a).total_cmp(&information(b)))
            .map_or(Player::Random, |opponent| opponent.player)
    }

    /// Returns the rating of a player with games, or of known strength.
    fn rating_of(&self, player: Player) -> Option<Rated> {
        let known = scale::elo(&self.setup.game.spec().name, &player.to_string());
        let known = known.map(|elo| Rated { player, elo, low: elo, high: elo, games: 0 });
        known.or_else(|| self.ratings.iter().find(|rated| rated.player == player).copied())
    }

    fn elo_of(&self, player: Player) -> Option<f64> {
        self.rating_of(player).map(|rated| rated.elo)
    }

    /// Returns the network of an opponent; `None` unless it is an earlier version.
    fn network_of_opponent(&self, opponent: Player) -> anyhow::Result<Option<Network>> {
        let Player::Version(version) = opponent else { return Ok(None) };
        let (manifest, bytes) = self.past.read(version)?;
        self.setup.network(&manifest, &bytes.into()).map(Some)
    }

    /// Plays a match of the current version. Two versions search without randomness, so a pair with a repeated game
    /// does not count. All other opponents play at random, so a repeated game does count: if it did not, short games,
    /// which repeat most often, would be underrepresented.
    fn play_against(&mut self, current: &mut Current, opponent: Player) -> Result<Results, Stop> {
        let mut network = self.network_of_opponent(opponent).map_err(Stop::Opponent)?;
        let version = current.published.manifest.version;
        let Settings { run, arena, search, .. } = &self.setup.settings;
        // Every match of a version has different openings, and a repeated match has the same openings. The ledger also
        // includes games that do not count, so that the next match starts after the openings of those games.
        let skipped = (self.ledger.games_of(current.player()) / 2 % OPENINGS_MAX) as usize;
        let mut rng = draws(run.seed, version, OPENINGS_STREAM);
        let openings = matches::openings(&self.setup.game, self.setup.settings.matches(), skipped, &mut rng);
        let draws = self.draws_of_match(version);
        let settings = || analysis(arena.simulations, search, run.discount, BATCHED);
        let player = Box::new(Searcher::new(&mut current.network, settings(), draws(1)));
        let other: Box<dyn Contestant<G> + '_> = match &mut network {
            Some(network) => Box::new(Searcher::new(network, settings(), draws(2))),
            None => fixed_contestant(opponent, draws(2)).expect("opponents without a network need no weights"),
        };
        let mut played = Played::after(current.counted.remove(&opponent).unwrap_or_default());
        if self.play([player, other], &openings, &mut played)?.is_break() {
            return Err(Stop::Drain);
        }
        if !matches!(opponent, Player::Version(_)) {
            return Ok(played.tally_with_repetitions().into());
        }
        let results = played.results();
        current.counted.insert(opponent, played.into_counted());
        Ok(results)
    }

    /// Handles a measurement that stopped early: weights that cannot be evaluated are not retried.
    fn settle(&mut self, stop: Stop) -> ControlFlow<()> {
        let error: anyhow::Error = match stop {
            Stop::Evaluator(error @ inference::Error::Lost { .. }) => service::device_loss::end(&error),
            Stop::Evaluator(error) => error.into(),
            Stop::Environment(error) => error.into(),
            Stop::Drain | Stop::Opponent(_) => return ControlFlow::Break(()),
        };
        if let Some(current) = self.current.take() {
            let version = current.published.manifest.version;
            tracing::error!(%version, error = service::chain(&error), "cannot evaluate weights");
            self.refused = Some(version);
        }
        ControlFlow::Continue(())
    }

    /// Reports a regression once the current version has played all rated games. A check after every match would have
    /// many chances of a false alarm.
    fn report_measured(&self) {
        if self.games_left() == 0 && !self.is_pending() {
            self.report_regression();
        }
    }

    /// Warns if the current version is significantly weaker than the best version before it, unless it has no games.
    fn report_regression(&self) {
        let Some(player) = self.current.as_ref().map(Current::player) else { return };
        if self.ledger.games_of(player) == 0 {
            return;
        }
        let found = regression(&self.ledger, &self.ratings, player);
        metrics::regression(found.as_ref());
        if let Some(Regression { best, difference: Rated { elo, low, high, .. } }) = found {
            tracing::warn!(%player, %best, elo, low, high, "version weaker than an earlier version");
        }
    }

    fn publish_ratings(&self) {
        let of_version = |rated: &Rated| match rated.player {
            Player::Version(version) => Some(version),
            _ => None,
        };
        // At the start, the version that an earlier process rated last.
        let newest = || self.ratings.iter().rev().find_map(of_version);
        let current = self.current.as_ref().map(|current| current.published.manifest.version).or_else(newest);
        metrics::ratings(&self.ratings, current, self.ledger.games());
    }
}

impl Current {
    fn player(&self) -> Player {
        Player::Version(self.published.manifest.version)
    }
}

/// Returns how much information this number of games gives about a player with this rating, as an inverse variance in
/// natural units. The variance adds the noise of the games and the uncertainty of the opponent's rating.
fn information(games: f64, elo: f64, opponent: &Rated) -> f64 {
    let expected = expected_score(elo, opponent.elo);
    let deviation = (opponent.high - opponent.low) / (2.0 * NORMAL_95 * ELO_PER_UNIT);
    let of_games = games * expected.mul_add(1.0 - expected, INFORMATION_MIN);
    of_games / of_games.mul_add(deviation.powi(2), 1.0)
}

/// Logs a failed write: a full disk must not stop measurements.
fn log_failure(kept: anyhow::Result<()>) {
    if let Err(error) = kept {
        tracing::error!("{error:#}; measurements continue");
    }
}

#[cfg(test)]
mod tests;
