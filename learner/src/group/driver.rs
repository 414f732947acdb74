//! The task that drives a learner's group membership: queries other learners, responds to queries, and closes roll
//! calls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use collective::Error;
use crossbeam_channel::Sender;
use proto::learners::{Candidate, Look, Meeting, Peer, PeerError, Question, Refusal, Roster};
use service::Drain;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::engine::Engine;
use super::membership::{Asked, Choice, Membership};

/// Time limit for the response to a status query. A learner without a group doubles the limit for the next query while
/// another learner responds late, up to `LOOK_DOUBLINGS` times.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
const LOOK_DOUBLINGS: u32 = 2;
/// Interval between status queries by a learner without a group.
const SEEK_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between status queries by the coordinator of an incomplete group.
const COMPARE_INTERVAL: Duration = Duration::from_secs(3);
/// Time limit for a coordinator's response to a candidate. The members may be in the middle of a training step.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between status queries to group members, and the number of consecutive queries without a member after which
/// the member counts as lost.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
const WATCHES: u32 = 2;
/// Interval between checks for due work.
const TICK: Duration = Duration::from_millis(50);

/// State shared by the training thread and the driver.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Training steps of the current state, set by the training thread.
    pub(crate) steps: AtomicU64,
    /// True if the members should form the next group, set by the driver.
    pub(crate) wants_reform: AtomicBool,
}

/// The training thread's request for a place in a group.
pub(crate) struct Form {
    pub(crate) candidate: Candidate,
    pub(crate) formed: Sender<Result<Formed, String>>,
}

/// A new group that includes this learner.
pub(crate) struct Formed {
    pub(crate) roster: Roster,
    /// True once a member has left, which interrupts operations of the group.
    pub(crate) interrupt: Arc<AtomicBool>,
}

/// The queries that the driver sends to another learner.
pub(crate) trait Ask: Clone + Send + 'static {
    /// Queries the learner's current status.
    fn look(&self, timeout: Duration) -> impl Future<Output = Result<Look, PeerError>> + Send;

    /// Asks the learner, as coordinator, for a place in the next group.
    fn join(&self, candidate: &Candidate, timeout: Duration) -> impl Future<Output = Result<Roster, PeerError>> + Send;
}

impl Ask for Peer {
    fn look(&self, timeout: Duration) -> impl Future<Output = Result<Look, PeerError>> + Send {
        Self::look(self, timeout)
    }

    fn join(&self, candidate: &Candidate, timeout: Duration) -> impl Future<Output = Result<Roster, PeerError>> + Send {
        Self::join(self, candidate, timeout)
    }
}

/// Updates a [`Membership`] as responses and commands arrive and time passes.
pub(crate) struct Driver<A> {
    membership: Membership,
    /// Endpoints of all learners, by index.
    endpoints: Vec<String>,
    /// Connections to the other learners, by index; `None` at this learner's index.
    peers: Vec<Option<A>>,
    engine: Arc<dyn Engine>,
    shared: Arc<Shared>,
    /// Response channels of candidates that wait for the roll to close, by index.
    parked: HashMap<usize, oneshot::Sender<Result<Roster, Refusal>>>,
    formed: Option<Sender<Result<Formed, String>>>,
    /// The running task of the driver; at most one runs at a time.
    work: JoinSet<Done>,
    look_at: Instant,
    /// Number of consecutive status queries with a late response.
    late: u32,
    /// The learner that most recently responded with the index of a different learner.
    misplaced: Option<usize>,
    /// Interrupt flag of the latest group, and the number of consecutive status queries in which a member was missing.
    interrupt: Arc<AtomicBool>,
    missed: u32,
}

/// The result of a completed driver task.
enum Done {
    Looked(Vec<(usize, Result<Look, PeerError>)>),
    Answered(usize, Result<Roster, PeerError>),
    Served(Result<Meeting, Error>),
}

/// Returns the current time, which a test may pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl<A: Ask> Driver<A> {
    pub(crate) fn new(
        membership: Membership,
        endpoints: Vec<String>,
        peers: Vec<Option<A>>,
        engine: Arc<dyn Engine>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            membership,
            endpoints,
            peers,
            engine,
            shared,
            parked: HashMap::new(),
            formed: None,
            work: JoinSet::new(),
            look_at: now(),
            late: 0,
            misplaced: None,
            interrupt: Arc::default(),
            missed: 0,
        }
    }

    /// Handles queries and commands until the process drains or training stops.
    pub(crate) async fn run(
        mut self,
        mut questions: mpsc::Receiver<Question>,
        mut commands: mpsc::Receiver<Form>,
        drain: Drain,
    ) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // A fixed order makes tests deterministic, on a single thread with virtual time.
                biased;
                () = drain.wait() => return,
                Some(done) = self.work.join_next() => match done {
                    Ok(done) => self.done(done),
                    Err(error) => tracing::error!("group task failed: {error}"),
                },
                command = commands.recv() => match command {
                    Some(Form { candidate, formed }) => {
                        self.formed = Some(formed);
                        (self.look_at, self.late, self.misplaced) = (now(), 0, None);
                        self.membership.seek(now(), candidate);
                    }
                    None => return,
                },
                Some(question) = questions.recv() => self.answer(question),
                _ = ticks.tick() => {}
            }
            self.advance(now());
        }
    }

    fn answer(&mut self, question: Question) {
        match question {
            Question::Look(answer) => {
                // Dropping the channel before training starts makes this learner count as away.
                if let Some(look) = self.membership.look(self.steps()) {
                    let _ = answer.send(look);
                }
            }
            Question::Join(candidate, answer) => match self.membership.asked(candidate) {
                Asked::Waits => drop(self.parked.insert(candidate.index, answer)),
                Asked::Refused(refusal) => drop(answer.send(Err(refusal))),
            },
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Looked(looks) => self.looked(looks),
            Done::Answered(index, answer) => self.answered(index, answer),
            Done::Served(Ok(meeting)) => {
                let (library, reason) = self.membership.library();
                if let Some(roster) = self.membership.close(meeting) {
                    tracing::info!(
                        "gradient sums use {library:?}{}",
                        reason.map_or_else(String::new, |why| format!(": {why}"))
                    );
                    for &member in &roster.members {
                        let parked = self.parked.remove(&member);
                        parked.map(|answer| answer.send(Ok(roster.clone())));
                    }
                    self.became_member(roster);
                }
            }
            Done::Served(Err(error)) => {
                tracing::error!("cannot form a group; retrying: {error}");
            }
        }
    }

    fn looked(&mut self, mut looks: Vec<(usize, Result<Look, PeerError>)>) {
        if let Some(reason) = self.exclude_misplaced(&mut looks) {
            self.form(Err(reason));
            return;
        }
        if self.membership.is_seeking() {
            let is_late = looks.iter().any(|(_, look)| *look == Err(PeerError::Late));
            self.late = if is_late { (self.late + 1).min(LOOK_DOUBLINGS) } else { 0 };
            match self.membership.choose(now(), &looks) {
                Choice::Ask(index) => self.ask(index),
                Choice::Call => tracing::info!("collecting the members of a group"),
                Choice::Wait => {}
            }
            return;
        }
        let answered: Vec<Look> = looks.iter().filter_map(|(_, look)| look.as_ref().ok().copied()).collect();
        let steps = self.steps();
        self.membership.compare(&answered, steps);
        let misses = self.membership.must_watch() && self.membership.misses_member(&looks);
        self.missed = if misses { self.missed + 1 } else { 0 };
        if self.missed >= WATCHES {
            self.interrupt.store(true, Ordering::Relaxed);
        }
    }

    /// Treats a learner that responds with the index of a different learner as away. Returns an error message if this
    /// learner has not been in a group, which stops it: two learners with the same index would not detect each other. A
    /// learner that has been in a group has a valid index, and continues.
    fn exclude_misplaced(&mut self, looks: &mut [(usize, Result<Look, PeerError>)]) -> Option<String> {
        let mut reason = None;
        for (index, look) in looks {
            let Some(answered) = look.as_ref().ok().map(|look| look.index).filter(|answered| answered != index) else {
                continue;
            };
            let endpoint = |index: usize| self.endpoints.get(index).map_or("no learner in the list", String::as_str);
            let text = format!(
                "{} is learner {index} in learner.group but has learner.index = {answered}, which is {}; set \
                 learner.index of each learner to the position of the learner's address in learner.group",
                endpoint(*index),
                endpoint(answered)
            );
            if self.misplaced.replace(*index) != Some(*index) {
                tracing::error!("learner.index: {text}");
            }
            *look = Err(PeerError::Away { reason: text.clone() });
            reason = Some(text);
        }
        reason.filter(|_| self.membership.is_new())
    }

    /// Passes the new group to the training thread.
    fn became_member(&mut self, roster: Roster) {
        (self.interrupt, self.missed) = (Arc::default(), 0);
        self.form(Ok(Formed { roster, interrupt: Arc::clone(&self.interrupt) }));
    }

    fn answered(&mut self, index: usize, answer: Result<Roster, PeerError>) {
        let (roster, reason) = match answer {
            Ok(roster) => (Some(roster), None),
            Err(PeerError::Refused { reason }) => (None, Some(reason)),
            Err(away) => {
                tracing::debug!("learner {index} offers no place: {away}");
                (None, None)
            }
        };
        let is_member = self.membership.answered(roster.clone());
        match (roster, reason) {
            (Some(roster), _) if is_member => self.became_member(roster),
            (_, Some(reason)) => self.form(Err(format!("learner {index} rejects this learner: {reason}"))),
            _ => {}
        }
    }

    fn form(&mut self, formed: Result<Formed, String>) {
        if let Some(sender) = self.formed.take() {
            // The training thread may have stopped already.
            drop(sender.try_send(formed));
        }
    }

    /// Starts a driver task if work is due and no task is running.
    fn advance(&mut self, now: Instant) {
        let gone: Vec<usize> =
            self.parked.iter().filter(|(_, answer)| answer.is_closed()).map(|(&index, _)| index).collect();
        for index in gone {
            self.parked.remove(&index);
            self.membership.withdrew(index);
        }
        self.shared.wants_reform.store(self.membership.wants_reform(), Ordering::Relaxed);
        if !self.work.is_empty() {
            return;
        }
        if self.membership.is_complete(now) {
            let (engine, (library, _)) = (Arc::clone(&self.engine), self.membership.library());
            self.work.spawn_blocking(move || Done::Served(engine.serve(library)));
        } else if now >= self.look_at {
            let interval = match () {
                () if self.membership.is_seeking() => SEEK_INTERVAL,
                () if self.membership.must_watch() => WATCH_INTERVAL,
                () if self.membership.may_find_another() => COMPARE_INTERVAL,
                () => return,
            };
            let doublings = if self.membership.is_seeking() { self.late } else { 0 };
            self.look_at = now + interval;
            self.look(LOOK_TIMEOUT * 2_u32.pow(doublings));
        }
    }

    /// Queries the status of all other learners concurrently.
    fn look(&mut self, timeout: Duration) {
        let peers = self.peers.iter().cloned().enumerate();
        let peers: Vec<(usize, A)> = peers.filter_map(|(index, peer)| Some((index, peer?))).collect();
        self.work.spawn(async move {
            let mut looks = JoinSet::new();
            for (index, peer) in peers {
                looks.spawn(async move { (index, peer.look(timeout).await) });
            }
            Done::Looked(looks.join_all().await)
        });
    }

    fn ask(&mut self, index: usize) {
        let peer = self.peers.get(index).cloned().flatten();
        let (Some(peer), Some(candidate)) = (peer, self.membership.candidate()) else {
            self.membership.answered(None);
            return;
        };
        self.work.spawn(async move { Done::Answered(index, peer.join(&candidate, JOIN_TIMEOUT).await) });
    }

    fn steps(&self) -> u64 {
        self.shared.steps.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
