//! Traces some of the games that one thread plays. Each game has a span, each search has a child span of the game, and
//! a batch with search leaves has a child span of the search. Spans are derived from the state of the episodes between
//! two calls, so the span of a search starts at the end of the previous call. Self-play does not depend on spans.
//! Without a collector there are no spans, and the state is not read.
//!
//! Spans are exported at the end of the game, since the kinds of searches are known only then.

use std::time::{Duration, Instant};

use experience::StepKind;
use game::{Game, Outcome};
use selfplay::{Ending, EpisodeProgress, FinishedEpisode};
use service::trace::{self, Kind, Span, TraceContext};

use crate::play::Play;
use crate::stopwatch::{Evaluated, Parts};

/// A finished episode, and the span of the insert into a replay server, if traced.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) episode: FinishedEpisode,
    pub(crate) insert: Option<Span>,
}

/// The traces of one thread, by game.
#[derive(Debug)]
pub(crate) struct Traces {
    games: Vec<Traced>,
    /// Index of the game for which the next batch is traced, and the span of that batch.
    evaluation: Option<(usize, Span)>,
}

#[derive(Debug)]
struct Traced {
    slot: usize,
    number: u64,
    game: Span,
    search: Search,
    searched: Vec<Searched>,
    /// Number of leaves at the end of the last call.
    leaves: u64,
}

/// A search in progress.
#[derive(Debug)]
struct Search {
    span: Span,
    before: EpisodeProgress,
    rounds: u64,
    evaluating: Duration,
    /// True if a batch of the search is traced.
    is_shown: bool,
}

/// A finished search.
#[derive(Debug)]
struct Searched {
    span: Span,
    ended: Instant,
    /// Range of plies played from the search.
    plies: std::ops::Range<usize>,
}

impl Traces {
    /// Creates the traces of a thread that starts `slots` games now.
    pub(crate) fn new(slots: usize) -> Self {
        let mut traces = Self { games: Vec::new(), evaluation: None };
        (0..slots).for_each(|slot| traces.watch(slot, 0));
        traces
    }

    fn watch(&mut self, slot: usize, number: u64) {
        let Some(game) = trace::root("game") else { return };
        let search = Search::begin(&game, EpisodeProgress { number, plies: 0, leaves: 0 });
        self.games.push(Traced { slot, number, game, search, searched: Vec::new(), leaves: 0 });
    }

    /// Returns the trace context for the next batch, if traced. Each batch is traced for at most one search, and each
    /// search has at most one traced batch.
    pub(crate) fn begin_evaluation(&mut self) -> Option<TraceContext> {
        // The oldest of the searches without a traced batch.
        let unshown = self.games.iter_mut().enumerate().filter(|(_, traced)| !traced.search.is_shown);
        let (index, traced) = unshown.min_by_key(|(_, traced)| traced.search.span.begun())?;
        traced.search.is_shown = true;
        let span = traced.search.span.child("evaluation");
        let context = span.context();
        self.evaluation = Some((index, span));
        Some(context)
    }

    /// Updates the traces after a call of the episodes.
    pub(crate) fn advanced<G: Game>(&mut self, play: &Play<G>, parts: Parts, batch: Option<Evaluated>) {
        let evaluation = self.evaluation.take();
        if self.games.is_empty() {
            return;
        }
        if let Some((index, span)) = evaluation {
            self.show(index, span, play, batch);
        }
        let now = Instant::now();
        for traced in &mut self.games {
            traced.advanced(play.progress(traced.slot), parts.evaluating, now);
        }
    }

    fn show<G: Game>(&mut self, index: usize, span: Span, play: &Play<G>, batch: Option<Evaluated>) {
        let traced = &mut self.games[index];
        let Some(Evaluated { begun, ended, positions, weights_version }) = batch else {
            // The call needed no batch; the next batch is traced instead.
            traced.search.is_shown = false;
            return;
        };
        let progress = play.progress(traced.slot);
        let mut span = span.since(begun).of_kind(Kind::Client);
        span.set("positions", positions);
        // The batch may have ended the game.
        if progress.number == traced.number {
            span.set("leaves", progress.leaves - traced.leaves);
        }
        span.set("weights_version", weights_version);
        span.end_at(ended);
    }

    /// Ends the trace of a finished episode and draws whether the next episode in the slot is traced.
    pub(crate) fn finished(&mut self, episode: FinishedEpisode) -> Finished {
        let (slot, number) = (episode.slot, episode.number);
        let index = self.games.iter().position(|traced| (traced.slot, traced.number) == (slot, number));
        let insert = index.map(|index| self.games.swap_remove(index).finish(&episode));
        self.watch(slot, number + 1);
        Finished { episode, insert }
    }
}

impl Search {
    fn begin(game: &Span, before: EpisodeProgress) -> Self {
        Self { span: game.child("search"), before, rounds: 0, evaluating: Duration::ZERO, is_shown: false }
    }

    fn end(self, plies: usize, leaves: Option<u64>, ended: Instant) -> Searched {
        let Self { mut span, before, rounds, evaluating, .. } = self;
        span.set("rounds", rounds);
        if let Some(leaves) = leaves {
            span.set("leaves", leaves - before.leaves);
        }
        span.set("evaluating_ms", evaluating.as_secs_f64() * 1e3);
        Searched { span, ended, plies: before.plies..plies }
    }
}

impl Traced {
    fn advanced(&mut self, progress: EpisodeProgress, evaluating: Duration, now: Instant) {
        // A finished game keeps the last search until the episode is sent.
        self.search.rounds += 1;
        self.search.evaluating += evaluating;
        if progress.number != self.number {
            return;
        }
        self.leaves = progress.leaves;
        if progress.plies > self.search.before.plies {
            let next = Search::begin(&self.game, progress);
            let last = std::mem::replace(&mut self.search, next);
            self.searched.push(last.end(progress.plies, Some(progress.leaves), now));
        }
    }

    /// Ends the spans of the game. Returns the span of the insert.
    fn finish(self, episode: &FinishedEpisode) -> Span {
        let Self { slot, number, mut game, search, mut searched, .. } = self;
        let now = Instant::now();
        searched.push(search.end(episode.steps.len(), None, now));
        for Searched { mut span, ended, plies } in searched {
            span.set("moves", plies.len());
            if let Some((ply, step)) = plies.last().and_then(|ply| Some((ply, episode.steps.get(ply)?))) {
                span.set("ply", ply);
                span.set("weights_version", step.weights_version.0);
                span.set("kind", kind(&step.kind));
            }
            span.end_at(ended);
        }
        game.set("slot", slot);
        game.set("number", number);
        game.set("plies", episode.steps.len());
        game.set("outcome", outcome(episode.facts.outcome));
        game.set("ending", if episode.ending == Ending::Rules { "rules" } else { "resignation" });
        let insert = game.child("insert").of_kind(Kind::Client);
        game.end_at(now);
        insert
    }
}

fn kind(kind: &StepKind) -> &'static str {
    match kind {
        StepKind::Full { .. } => "full",
        StepKind::Fast { .. } => "fast",
        StepKind::Opening => "opening",
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Win(_) => "win",
        Outcome::Draw => "draw",
        Outcome::Finished => "finished",
        Outcome::Truncated => "truncated",
    }
}
