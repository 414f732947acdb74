//! Defines [`NetworkEngine`], which plays over every protocol with the weights of a run.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use anyhow::{Context as _, bail};
use game::{Action, Game as _};
use games::{AnyGame, AnyPosition, GameKind, go};
use inference::Evaluator;
use protocols::{
    Analysis, Cell, Color, Engine, Error, GameResult, GoRules, Identity, Move, Progress, Restriction, RestrictionKind,
    Search, Setup, Size, Status,
};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use selfplay::{Findings, GameSearch, Limits, SearchSettings};
use service::Drain;
use strength::notation::Notation;

use super::board;
use super::opening::{Opening, nearest, passed, usual};
use super::report::Subject;
use crate::game_result::game_result;
use crate::play::leaves_per_batch;
use crate::trained::{LocalWeights, Networks, Trained};

/// Minimum time between two progress reports of a search.
const REPORT_INTERVAL: Duration = Duration::from_millis(20);

/// The settings of an engine, independent of the game.
pub(super) struct Settings {
    /// Search settings of the run. The engine always searches by pUCT, since sequential halving needs the number of
    /// visits in advance.
    pub(super) search: SearchSettings,
    /// Memory limit of a search tree, in bytes.
    pub(super) tree_bytes_max: usize,
    /// True to search during the opponent's turn.
    pub(super) ponders: bool,
    /// Drain that stops every search.
    pub(super) drain: Drain,
    /// Clock for limits and reports: returns the time since an arbitrary fixed moment.
    pub(super) clock: Box<dyn Fn() -> Duration>,
}

/// An engine that searches with the evaluators of an AlphaZero network. The search uses one thread per evaluator, and
/// reuses the search tree from move to move.
pub(super) struct NetworkEngine {
    identity: Identity,
    /// Rules of the run's game at the current board size.
    rules: AnyGame,
    notation: Notation,
    evaluators: Vec<Box<dyn Evaluator>>,
    /// Weights from which evaluators for other board sizes are built; `None` if the board size is fixed.
    weights: Option<LocalWeights>,
    settings: Settings,
    /// The current game and search tree. The rules have the komi of the current game.
    search: GameSearch<AnyGame>,
    rng: ChaCha8Rng,
}

impl NetworkEngine {
    /// Creates an engine with the weights of a run and an empty board.
    ///
    /// # Errors
    /// No protocol supports the game, or the run has a MuZero network.
    pub(super) fn of_trained(run: &str, trained: Trained, settings: Settings) -> anyhow::Result<Self> {
        let Trained { game, networks, weights, .. } = trained;
        let version = networks.attributes().weights_version;
        let Networks::Evaluators(evaluators) = networks else {
            bail!("{game}: the protocols do not support MuZero networks; use zerofleet play or eval");
        };
        let name = format!("zerofleet {run}");
        let engine = Self::new(&game.rules(), evaluators, name, version.to_string(), settings)
            .with_context(|| format!("{game}: the protocols support only Go, Hex, Othello and Gomoku"))?;
        Ok(Self { weights, ..engine })
    }

    /// Creates an engine for the rules of a game; `None` if no protocol supports the game.
    pub(super) fn new(
        rules: &AnyGame,
        evaluators: Vec<Box<dyn Evaluator>>,
        name: String,
        version: String,
        settings: Settings,
    ) -> Option<Self> {
        let notation = Notation::of(rules)?;
        let (go_rules, komi) = usual(rules);
        let identity = Identity { name, version, game: notation.game(), size: notation.size(), komi, rules: go_rules };
        let search = GameSearch::new(rules.clone(), rules.start(), &settings.search);
        let rng = ChaCha8Rng::seed_from_u64(0);
        Some(Self { identity, rules: rules.clone(), notation, evaluators, weights: None, settings, search, rng })
    }

    /// Returns the current board size.
    pub(super) fn size(&self) -> Size {
        self.notation.size()
    }

    /// Changes the board size: replaces rules, evaluators and search tree.
    ///
    /// # Errors
    /// [`Error::Refused`] if the network cannot play on boards of this size; the engine is then unchanged.
    fn change_board(&mut self, size: Size) -> Result<(), Error> {
        let refused = |reason: String| {
            let own = self.size().width();
            Error::refused(format!("the network plays on boards of {own} x {own} cells{reason}"))
        };
        let weights = self.weights.as_ref().ok_or_else(|| refused(String::new()))?;
        if size.width() != size.height() {
            return Err(refused(": boards are square".to_owned()));
        }
        let family = self.rules.spec().name.split('-').next().unwrap_or_default();
        let game: Result<GameKind, _> = format!("{family}-{}", size.width()).parse();
        let game = game.map_err(|error| refused(format!(": {error}")))?;
        let evaluators = weights.evaluators(&game).map_err(|error| refused(format!(": {error:#}")))?;
        let rules = game.rules();
        self.notation =
            Notation::of(&rules).ok_or_else(|| refused(": moves on this board have no names".to_owned()))?;
        self.search = GameSearch::new(rules.clone(), rules.start(), &self.settings.search);
        self.identity.komi = usual(&rules).1;
        (self.rules, self.evaluators) = (rules, evaluators);
        Ok(())
    }

    /// Returns the result if the game is over, by the rules or after two passes.
    pub(super) fn outcome(&mut self) -> Option<GameResult> {
        let is_over = self.search.game().outcome(self.search.position()).is_some();
        if is_over { self.result().ok() } else { None }
    }

    /// Returns a position with `color` to move, or `None` if the current position of the game already is. A pass of the
    /// opponent is inserted, in Othello only if it is the only legal move: some programs leave it out. In Go, it does
    /// not count towards the end of the game, and play continues after two passes.
    ///
    /// # Errors
    /// [`Error::Refused`] if `color` cannot move: in Go after the move limit, in other games after the end, and in
    /// Othello out of turn.
    fn position_for(&self, color: Color) -> Result<Option<AnyPosition>, Error> {
        let (game, position) = (self.search.game(), self.search.position());
        let is_over = |position: &AnyPosition| game.outcome(position).is_some();
        let is_turn = self.to_move() == color;
        if is_turn && !is_over(position) {
            return Ok(None);
        }
        let (AnyGame::Go(go), AnyPosition::Go(at)) = (game, position) else {
            if is_over(position) {
                return Err(Error::refused("the game is over"));
            }
            let forced = || {
                let mut next = position.clone();
                let pass = self.notation.to_action(self.to_move(), Move::Pass)?;
                game.try_play(&mut next, pass).ok().map(|_| next)
            };
            let next = passed(game, position).or_else(forced);
            return next.map(Some).ok_or_else(|| Error::refused("the other player is to move"));
        };
        let over = || {
            let limit = format!("{} moves on this board, inserted passes included", go.spec().max_plies);
            Error::refused(format!("the game has ended: it has at most {limit}"))
        };
        let mut prepared = if is_over(position) { go.resumed(at) } else { go::Position::clone(at) };
        if !is_turn {
            go.try_play(&mut prepared, go.pass()).map_err(|_| over())?;
            // Resets the count of passes, so that a pass of `color` after the inserted pass does not end the game.
            prepared = go.resumed(&prepared);
        }
        if go.outcome(&prepared).is_some() { Err(over()) } else { Ok(Some(AnyPosition::Go(prepared.into()))) }
    }

    /// Returns the legal actions that the restrictions allow; `None` if no restriction applies to `color`. Whatever
    /// depth a restriction states, it applies only to the searched position.
    fn allowed(
        &self,
        position: &AnyPosition,
        color: Color,
        restrictions: &[Restriction],
    ) -> Result<Option<Vec<Action>>, Error> {
        let own = || restrictions.iter().filter(|restriction| restriction.color == color);
        if own().next().is_none() {
            return Ok(None);
        }
        let is_allowed = |action: &Action| {
            let played = self.notation.to_move(color, *action);
            let mut allows = own()
                .map(|restriction| restriction.moves.contains(&played) == (restriction.kind == RestrictionKind::Allow));
            allows.all(|allows| allows)
        };
        let mut actions = Vec::new();
        self.rules.legal_actions(position, &mut actions);
        actions.retain(is_allowed);
        if actions.is_empty() { Err(Error::refused("no allowed move is legal")) } else { Ok(Some(actions)) }
    }

    /// Returns the priors of all legal moves in a position, from a search with a single simulation.
    fn legal_priors(&mut self, position: AnyPosition, subject: &Subject) -> Result<Vec<(Move, f32)>, Error> {
        let mut search = GameSearch::new(self.search.game().clone(), position, &self.settings.search);
        let limits = Limits::of_simulations(1, 1);
        let first = &mut self.evaluators[..1];
        let searched = search.search(&limits, first, &mut self.rng, &mut |_| Continue(()));
        searched.map_err(|error| Error::Failed { reason: error.to_string() })?;
        let findings = search.findings().ok_or_else(|| Error::Failed { reason: "the search found no move".into() })?;
        Ok(subject.priors(&findings.analysis()))
    }

    fn subject(&self, position: &AnyPosition, to_move: Color) -> Subject {
        let game = self.search.game();
        let images = (0..game.symmetries().len()).map(|symmetry| game.hash(&game.image(position, symmetry)));
        let hash = game.hash(position);
        Subject { notation: self.notation, to_move, hash, symmetric_hash: images.min().unwrap_or(hash) }
    }
}

impl Engine for NetworkEngine {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn start(&mut self, setup: &Setup) -> Result<(), Error> {
        if setup.size != self.size() {
            self.change_board(setup.size)?;
        }
        if setup.stones.iter().any(|stone| !setup.size.contains(stone.cell)) {
            return Err(Error::refused("a stone is outside the board"));
        }
        let Opening { game, position } = Opening::new(&self.rules, setup)?;
        self.search = GameSearch::new(game, position, &self.settings.search);
        Ok(())
    }

    fn play(&mut self, color: Color, played: Move) -> Result<(), Error> {
        let illegal = || Error::refused("illegal move");
        let prepared = match self.position_for(color) {
            Err(_) if played == Move::Pass && self.legal_moves().is_empty() => return Ok(()),
            prepared => prepared?,
        };
        let (game, position) = (self.search.game(), prepared.as_ref().unwrap_or(self.search.position()));
        if played == Move::Pass
            && let Some(next) = passed(game, position)
        {
            self.search.replace(next);
            return Ok(());
        }
        let action = self.notation.to_action(color, played).ok_or_else(illegal)?;
        if !game.is_legal(position, action) {
            return Err(illegal());
        }
        if let Some(position) = prepared {
            self.search.replace(position);
        }
        self.search.play(action);
        Ok(())
    }

    fn to_move(&self) -> Color {
        self.search.game().to_move(self.search.position()).into()
    }

    fn nearest_rules(&self, rules: GoRules) -> GoRules {
        nearest(rules)
    }

    fn legal_moves(&self) -> Vec<Move> {
        let (color, mut actions) = (self.to_move(), Vec::new());
        self.search.game().legal_actions(self.search.position(), &mut actions);
        actions.into_iter().map(|action| self.notation.to_move(color, action)).collect()
    }

    fn search(&mut self, search: &Search<'_>, progress: &mut Progress<'_>) -> Result<Analysis, Error> {
        if self.settings.drain.started() {
            return Err(Error::Failed { reason: "the search was interrupted".into() });
        }
        let prepared = self.position_for(search.color)?;
        let position = prepared.as_ref().unwrap_or(self.search.position());
        let actions = self.allowed(position, search.color, search.restrictions)?;
        let subject = self.subject(position, search.color);
        let restricted = actions.is_some().then(|| position.clone());
        let legal_priors = restricted.map(|position| self.legal_priors(position, &subject)).transpose()?;
        let legal_priors = legal_priors.as_deref();
        let leaves_per_batch = leaves_per_batch(search.visits, self.evaluators.len());
        let tree_bytes_max = self.settings.tree_bytes_max;
        let position_heap_bytes = self.search.position().boxed_bytes();
        let simulations = search.visits;
        let limits = Limits { simulations, leaves_per_batch, tree_bytes_max, position_heap_bytes, actions };
        // A position with an inserted pass is searched in a separate tree.
        let mut apart =
            prepared.map(|position| GameSearch::new(self.search.game().clone(), position, &self.settings.search));
        let Self { settings, evaluators, rng, search, .. } = self;
        let tree = apart.as_mut().unwrap_or(search);
        let mut report_at = (settings.clock)() + REPORT_INTERVAL;
        let mut report = |findings: &Findings<'_, AnyPosition>| {
            if settings.drain.started() {
                return Break(());
            }
            let now = (settings.clock)();
            if now < report_at {
                return Continue(());
            }
            report_at = now + REPORT_INTERVAL;
            progress(&subject.report(findings, legal_priors))
        };
        let searched = tree.search(&limits, evaluators, rng, &mut report);
        searched.map_err(|error| Error::Failed { reason: error.to_string() })?;
        let findings = tree.findings().ok_or_else(|| Error::Failed { reason: "the search found no move".into() })?;
        Ok(subject.report(&findings, legal_priors))
    }

    fn result(&mut self) -> Result<GameResult, Error> {
        let (game, position) = (self.search.game(), self.search.position());
        game_result(game, position).ok_or_else(|| Error::refused("the game is not over"))
    }

    /// Returns the chains of Go stones with this status. All stones count as alive, since players must capture dead
    /// stones before passing.
    fn status(&mut self, status: Status) -> Result<Vec<Vec<Cell>>, Error> {
        let (AnyGame::Go(go), AnyPosition::Go(position)) = (self.search.game(), self.search.position()) else {
            return Err(Error::refused("only Go stones have a status"));
        };
        if status != Status::Alive {
            return Ok(Vec::new());
        }
        let size = self.notation.size();
        let cell = |index: usize| size.cell(index % size.width(), index / size.width());
        Ok(go.chains(position).into_iter().map(|chain| chain.into_iter().filter_map(cell).collect()).collect())
    }

    fn render(&self) -> String {
        board::render(self.notation, &board::stones(self.search.game(), self.search.position()))
    }

    fn ponders(&self) -> bool {
        self.settings.ponders
    }

    fn clear_cache(&mut self) {
        self.search.forget();
    }
}
