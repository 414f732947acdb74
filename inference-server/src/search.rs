//! Searches for clients that request moves: each search runs rules and tree on a separate thread and evaluates
//! through the shared queue, so that many searches fill batches together.

use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::time::{Duration, Instant};

use game::{Action, Game};
use inference::{Attributes, Batch, Error, Evaluator, Predictions};
use proto::convert::{self, Invalid, invalid};
use proto::inference::v1::{Analysis, MoveAnalysis};
use proto::inference::{Moves, SearchQuery};
use proto::limits::request_positions_max;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use run_file::inference::{InferenceSection, Settings};
use selfplay::{Findings, GameSearch, Limits};
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::engine::{EvalRequest, Handle};
use crate::metrics;
use crate::places::Places;
use crate::rejection::Rejection;
use crate::versions::Version;

/// Number of leaves per tree that are evaluated together: enough for a few searches to fill a batch, and few enough
/// that a search is almost as good as with one leaf at a time.
const LEAVES_PER_BATCH: usize = 8;
/// Number of simulations if the client requests neither a number nor a time limit.
const SIMULATIONS_DEFAULT: u32 = 400;
/// Default interval between the reports of an analysis.
pub(crate) const INTERVAL_DEFAULT: Duration = Duration::from_millis(250);
/// Minimum and maximum time that a search waits before it repeats an evaluation that was rejected under load.
const PAUSE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(200)];
/// Time after the end of a search for which the queue accepts evaluations, so that none is refused as too late: a
/// search that waits until the end still answers with what it has.
const LATER: Duration = Duration::from_secs(3600);

/// The searches of a server.
#[derive(Debug, Clone)]
pub(crate) struct Searches {
    handle: Handle,
    settings: Arc<Settings>,
    places: Arc<Places>,
    drain: CancellationToken,
}

/// The reports of a search in order; the last report is finished or an error.
pub(crate) type Reports = mpsc::Receiver<Result<Analysis, Status>>;

impl Searches {
    /// Creates the searches of a server that accepts searches until `drain` fires. They end when the engine drains.
    pub(crate) fn new(handle: Handle, settings: Arc<Settings>, drain: CancellationToken) -> Self {
        let places = Arc::new(Places::new(settings.inference.searches_max, handle.draining().clone()));
        Self { handle, settings, places, drain }
    }

    /// Starts a search, which stops when the reports are dropped. `interval` is the time between reports; `None`
    /// gives one report at the end.
    pub(crate) fn start(&self, query: SearchQuery, interval: Option<Duration>, client: u64) -> Result<Reports, Status> {
        let Settings { game, inference, search, .. } = &*self.settings;
        let Budget { simulations, until } = Budget::new(&query, inference)?;
        if let Some(other) = query.game.filter(|other| *other != game.to_string()) {
            let reason = format!("is `{other}`, this server plays {game}");
            return Err(convert::status(&invalid("position.game", reason)));
        }
        let game = game.rules();
        let position = replay(&game, &query.moves).map_err(|invalid| convert::status(&invalid))?;
        if self.drain.is_cancelled() {
            return Err(Rejection::Draining.into());
        }
        let version = self.handle.resident(None).ok_or(Rejection::NoModel)?;
        // An invalid query takes no place from another client.
        let place = self.places.take(client, Instant::now()).map_err(|wait| {
            let most = inference.searches_max;
            let reason = format!("too many concurrent searches (limit {most}, inference.searches_max)");
            transport::retry_after(Status::resource_exhausted(reason), wait)
        })?;
        // The channel holds one report for a slow client; later reports are delayed or skipped.
        let (report_sender, reports) = mpsc::channel(1);
        let ends = Arc::new(Ends { simulations, until, interval, place_lost: place.lost.clone(), report_sender });
        let search = GameSearch::new(game.clone(), position.clone(), search);
        let reporter = Reporter { game, position, version: version.number() };
        let queue_client = QueueClient {
            handle: self.handle.clone(),
            runtime: Runtime::current(),
            client,
            version,
            ends: Arc::clone(&ends),
        };
        // The time is the only limit of the client's choice, so that it ends no search early.
        let is_timed = query.simulations.is_none() && query.time.is_some();
        tokio::task::spawn_blocking(move || {
            let last = search_to_end(search, &reporter, queue_client, &ends);
            if !is_timed && ends.have_cut_short(&last) {
                metrics::searches_out_of_time(1);
            }
            // The place is released first, since a client may start the next search as soon as it has the last report.
            drop(place);
            // A client that does not read must not hold a thread. The caller may have disconnected.
            let sender = ends.report_sender.clone();
            Runtime::current().spawn(async move { drop(sender.send(last).await) });
        });
        Ok(reports)
    }
}

/// The limits of a search.
#[derive(Debug, Clone, Copy)]
struct Budget {
    simulations: u32,
    until: Instant,
}

impl Budget {
    fn new(query: &SearchQuery, limits: &InferenceSection) -> Result<Self, Status> {
        let over = |field: &str, got: String, most: String| {
            convert::status(&invalid(field, format!("is {got}, the limit is {most}")))
        };
        if let Some(wanted) = query.simulations.filter(|wanted| *wanted > limits.simulations_max) {
            let most = format!("{} (inference.simulations_max)", limits.simulations_max);
            return Err(over("simulations", wanted.to_string(), most));
        }
        let time_max = Duration::from_millis(limits.search_ms_max);
        if let Some(wanted) = query.time.filter(|wanted| *wanted > time_max) {
            let most = format!("{} ms (inference.search_ms_max)", limits.search_ms_max);
            return Err(over("milliseconds", wanted.as_millis().to_string(), most));
        }
        let simulations = match (query.simulations, query.time) {
            (Some(simulations), _) => simulations,
            (None, Some(_)) => limits.simulations_max,
            (None, None) => SIMULATIONS_DEFAULT.min(limits.simulations_max),
        };
        Ok(Self { simulations, until: Instant::now() + query.time.unwrap_or(time_max) })
    }
}

/// Returns the position after `moves`.
fn replay<G: Game>(game: &G, moves: &Moves) -> Result<G::Position, Invalid> {
    let mut position = game.start();
    let play = |position: &mut G::Position, field: String, action: Action| {
        let refuse = |error: game::Error| invalid(field, error.to_string());
        game.try_play(position, action).map(drop).map_err(refuse)
    };
    match moves {
        Moves::Actions(actions) => {
            for (ply, &action) in actions.iter().enumerate() {
                play(&mut position, format!("position.actions[{ply}]"), action)?;
            }
        }
        Moves::Notation(moves) => {
            for (ply, text) in moves.iter().enumerate() {
                let field = format!("position.notation[{ply}]");
                let action = game.parse_action(&position, text);
                let action = action.map_err(|error| invalid(&field, error.to_string()))?;
                play(&mut position, field, action)?;
            }
        }
    }
    match game.outcome(&position) {
        None => Ok(position),
        Some(_) => Err(invalid("position", "is final: there is no move to choose")),
    }
}

/// The limits of a search, the other events that end it, and the receiver of the reports.
struct Ends {
    simulations: u32,
    until: Instant,
    interval: Option<Duration>,
    /// Fires when another client takes the place, and when the server closes.
    place_lost: CancellationToken,
    /// Closed when the client has disconnected.
    report_sender: mpsc::Sender<Result<Analysis, Status>>,
}

impl Ends {
    fn have_come(&self) -> bool {
        Instant::now() >= self.until || self.place_lost.is_cancelled() || self.report_sender.is_closed()
    }

    /// Waits for `work`; returns `None` if the search ends first.
    async fn unless_come<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.place_lost.cancelled() => None,
            () = self.report_sender.closed() => None,
            () = tokio::time::sleep_until(self.until.into()) => None,
        }
    }

    /// Returns true if the search with this last report has ended by the time limit, before the last simulation.
    fn have_cut_short(&self, last: &Result<Analysis, Status>) -> bool {
        let is_complete = last.as_ref().is_ok_and(|report| report.simulations >= self.simulations);
        let is_given_up = self.place_lost.is_cancelled() || self.report_sender.is_closed();
        Instant::now() >= self.until && !is_complete && !is_given_up
    }

    /// Returns the status of a search that has ended before the first evaluation.
    fn without_evaluation(&self) -> Status {
        let code = if self.place_lost.is_cancelled() { Code::Unavailable } else { Code::DeadlineExceeded };
        Status::new(code, "the search ended before the first evaluation")
    }
}

/// Searches until a limit is reached, sends all reports but the last, and returns the last.
fn search_to_end<G: Game>(
    mut search: GameSearch<G>,
    reporter: &Reporter<G>,
    queue_client: QueueClient,
    ends: &Ends,
) -> Result<Analysis, Status> {
    let limits = Limits::of_simulations(ends.simulations, LEAVES_PER_BATCH);
    let mut last_report = Instant::now();
    let mut progress = |findings: &Findings<'_, G::Position>| {
        if findings.simulations() >= ends.simulations || ends.have_come() {
            return Break(());
        }
        if ends.interval.is_some_and(|interval| last_report.elapsed() >= interval)
            && ends.report_sender.try_send(Ok(reporter.report(findings, false))).is_ok()
        {
            last_report = Instant::now();
        }
        Continue(())
    };
    let mut evaluators: [Box<dyn Evaluator>; 1] = [Box::new(queue_client)];
    // The search is greedy and draws no random numbers.
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let searched = search.search(&limits, &mut evaluators, &mut rng, &mut progress);
    match searched {
        // At the end, the evaluation in progress is cancelled, and the search keeps the earlier ones.
        Err(error) if !ends.have_come() => Err(Status::unavailable(error.to_string())),
        _ => {
            let findings = search.findings().ok_or_else(|| ends.without_evaluation())?;
            Ok(reporter.report(&findings, true))
        }
    }
}

/// Converts the results of a search to reports.
struct Reporter<G: Game> {
    game: G,
    position: G::Position,
    /// Version of the evaluating weights.
    version: u64,
}

impl<G: Game> Reporter<G> {
    fn report(&self, findings: &Findings<'_, G::Position>, is_finished: bool) -> Analysis {
        let analysis = findings.analysis();
        let mut moves: Vec<MoveAnalysis> = (0..analysis.actions.len())
            .map(|i| MoveAnalysis {
                r#move: self.game.action_name(&self.position, analysis.actions[i]),
                action: analysis.actions[i].0.into(),
                visit_count: analysis.visit_counts[i],
                prior: analysis.priors[i],
                value: analysis.action_values[i],
            })
            .collect();
        // The move to play comes first, even with fewer visits: it may be proven.
        moves
            .sort_by_key(|report| (report.action != u32::from(analysis.best.0), std::cmp::Reverse(report.visit_count)));
        Analysis {
            version: self.version,
            simulations: findings.simulations(),
            value: analysis.value,
            moves,
            principal_variation: line(&self.game, &self.position, &analysis.principal_variation),
            finished: is_finished,
        }
    }
}

/// Formats moves in player notation.
fn line<G: Game>(game: &G, position: &G::Position, actions: &[Action]) -> Vec<String> {
    let mut position = position.clone();
    let mut names = Vec::with_capacity(actions.len());
    for &action in actions {
        names.push(game.action_name(&position, action));
        if game.try_play(&mut position, action).is_err() {
            break;
        }
    }
    names
}

/// An evaluator for one search, which sends requests for one weights version to the queue.
struct QueueClient {
    handle: Handle,
    runtime: Runtime,
    client: u64,
    /// The version that evaluates the search, also after the server has replaced it.
    version: Arc<Version>,
    ends: Arc<Ends>,
}

impl Evaluator for QueueClient {
    fn attributes(&self) -> Attributes {
        Attributes {
            name: Arc::clone(&self.version.name),
            weights_version: self.version.number(),
            preferred_batch: LEAVES_PER_BATCH,
            max_batch: request_positions_max(self.version.shape(), self.version.actions()),
        }
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        let request = EvalRequest {
            client: self.client,
            version: None,
            batch: Arc::new(batch.clone()),
            deadline: Some(self.ends.until + LATER),
        };
        let evaluation = self.handle.evaluate_with(Some(Arc::clone(&self.version)), request, Some(PAUSE));
        match self.runtime.block_on(self.ends.unless_come(evaluation)) {
            Some(Ok(answer)) => *predictions = answer.predictions,
            Some(Err(rejection)) => return Err(Error::Backend(rejection.to_string())),
            None => return Err(Error::Backend("the search has ended".to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_early_if_the_time_ends_it_before_the_last_simulation_and_nothing_else_has() {
        let (report_sender, reports) = mpsc::channel(1);
        let (until, place_lost) = (Instant::now(), CancellationToken::new());
        let ends = Ends { simulations: 10, until, interval: None, place_lost, report_sender };
        let report = |simulations| Ok(Analysis { simulations, ..Analysis::default() });
        assert!(ends.have_cut_short(&report(9)) && ends.have_cut_short(&Err(ends.without_evaluation())));
        assert!(!ends.have_cut_short(&report(10)));
        let later = Ends { until: until + LATER, ..ends };
        assert!(!later.have_cut_short(&report(9)));
        let ends = Ends { until, ..later };
        ends.place_lost.cancel();
        assert!(!ends.have_cut_short(&report(9)));
        let ends = Ends { place_lost: CancellationToken::new(), ..ends };
        drop(reports);
        assert!(!ends.have_cut_short(&report(9)));
    }
}
