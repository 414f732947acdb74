//! The games of one thread that are traced: for each a span, below it one for each search, and below that one for a
//! batch that the search shared. They are made from what can be seen between two calls of the episodes, so that a
//! search begins where the call before has ended; self-play does not depend on it. Without a collector there are none,
//! and nothing is asked.
//!
//! The spans of a game leave when it has finished, since only then it is known how its moves were searched.

use std::time::{Duration, Instant};

use experience::StepKind;
use game::{Game, Outcome};
use selfplay::{Ending, EpisodeProgress, Episodes, FinishedEpisode};
use service::trace::{self, Kind, Span, TraceContext};

use crate::stopwatch::{Evaluated, Parts};

/// An episode, and what its way to the replay server is traced as.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) episode: FinishedEpisode,
    pub(crate) insert: Option<Span>,
}

/// The traces of one thread.
#[derive(Debug)]
pub(crate) struct Traces {
    games: Vec<Traced>,
    /// The search that the next batch is traced for.
    evaluation: Option<(usize, Span)>,
}

#[derive(Debug)]
struct Traced {
    slot: usize,
    number: u64,
    game: Span,
    search: Search,
    searched: Vec<Searched>,
    /// Its leaves so far, when it was last looked at.
    leaves: u64,
}

/// A search under way.
#[derive(Debug)]
struct Search {
    span: Span,
    before: EpisodeProgress,
    rounds: u64,
    evaluating: Duration,
    /// A batch of it was shown.
    is_shown: bool,
}

/// One that has ended.
#[derive(Debug)]
struct Searched {
    span: Span,
    ended: Instant,
    /// The steps that it made.
    plies: std::ops::Range<usize>,
}

impl Traces {
    /// Of a thread that begins `slots` games now.
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

    /// A call of the episodes begins: what its batch is part of, if it is shown. No batch is shown twice, and no search
    /// has more than one.
    pub(crate) fn begin_evaluation(&mut self) -> Option<TraceContext> {
        // Whichever has waited longest.
        let unshown = self.games.iter_mut().enumerate().filter(|(_, traced)| !traced.search.is_shown);
        let (index, traced) = unshown.min_by_key(|(_, traced)| traced.search.span.begun())?;
        traced.search.is_shown = true;
        let span = traced.search.span.child("evaluation");
        let context = span.context();
        self.evaluation = Some((index, span));
        Some(context)
    }

    /// The call has ended.
    pub(crate) fn advanced<G: Game>(&mut self, episodes: &Episodes<G>, parts: Parts, batch: Option<Evaluated>) {
        let evaluation = self.evaluation.take();
        if self.games.is_empty() {
            return;
        }
        if let Some((index, span)) = evaluation {
            self.show(index, span, episodes, batch);
        }
        let now = Instant::now();
        for traced in &mut self.games {
            traced.advanced(episodes.progress(traced.slot), parts.evaluating, now);
        }
    }

    fn show<G: Game>(&mut self, index: usize, span: Span, episodes: &Episodes<G>, batch: Option<Evaluated>) {
        let traced = &mut self.games[index];
        let Some(Evaluated { begun, ended, positions, weights_version }) = batch else {
            // Everything was known without a batch; the next one is shown.
            traced.search.is_shown = false;
            return;
        };
        let progress = episodes.progress(traced.slot);
        let mut span = span.since(begun).of_kind(Kind::Client);
        span.set("positions", positions);
        // The batch may have ended the game.
        if progress.number == traced.number {
            span.set("leaves", progress.leaves - traced.leaves);
        }
        span.set("weights_version", weights_version);
        span.end_at(ended);
    }

    /// Ends the trace of a finished episode and draws whether the next one in its slot is traced.
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
        // One that has finished keeps its last search until it is handed over.
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

    /// Sends its spans. What its way to the replay server is traced as.
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
        game.set("outcome", outcome(episode.outcome));
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
    }
}
