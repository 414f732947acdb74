//! The task that owns a learner's membership: it asks the other learners, answers them, and closes rolls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use collective::Error;
use crossbeam_channel::Sender;
use proto::learners::{Candidate, Look, Peer, PeerError, Question, Refusal, Roster};
use service::Drain;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::engine::{Engine, Served};
use super::membership::{Asked, Choice, Membership};

/// The time in which a learner answers what it does.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// The time between two looks of a learner without a group.
const SEEK_INTERVAL: Duration = Duration::from_millis(200);
/// The time between two looks of the coordinator of a group that lacks learners.
const COMPARE_INTERVAL: Duration = Duration::from_secs(3);
/// The time in which a coordinator closes the roll: its members may be in the middle of a training step.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The time between two looks of a member at the others, and the looks after which one of them is lost.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
const WATCHES: u32 = 2;
/// The time between two checks of what is due.
const TICK: Duration = Duration::from_millis(50);

/// The state that the training thread and the driver share beside commands.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The training steps that the state has taken.
    pub(crate) steps: AtomicU64,
    /// Whether the members should form the next group.
    pub(crate) wants_reform: AtomicBool,
}

/// The training thread asks for a place in a group.
pub(crate) struct Form {
    pub(crate) candidate: Candidate,
    pub(crate) formed: Sender<Result<Formed, String>>,
}

/// A group that this learner is a member of, and its store at the coordinator.
pub(crate) struct Formed {
    pub(crate) roster: Roster,
    pub(crate) store: Option<Served>,
    /// Set once a member has left.
    pub(crate) interrupt: Arc<AtomicBool>,
}

/// Drives a [`Membership`].
pub(crate) struct Driver {
    membership: Membership,
    /// The other learners by index; `None` at this one's.
    peers: Vec<Option<Peer>>,
    engine: Arc<dyn Engine>,
    shared: Arc<Shared>,
    /// The answers that candidates wait for, by index.
    parked: HashMap<usize, oneshot::Sender<Result<Roster, Refusal>>>,
    formed: Option<Sender<Result<Formed, String>>>,
    /// At most one.
    work: JoinSet<Done>,
    look_at: Instant,
    /// The interrupt of the newest group, and the looks in a row in which it lacked a member.
    interrupt: Arc<AtomicBool>,
    missed: u32,
}

/// The end of what the driver waits for.
enum Done {
    Looked(Vec<(usize, Result<Look, PeerError>)>),
    Answered(usize, Result<Roster, PeerError>),
    Served(Result<Served, Error>),
}

impl Driver {
    pub(crate) fn new(
        membership: Membership,
        peers: Vec<Option<Peer>>,
        engine: Arc<dyn Engine>,
        shared: Arc<Shared>,
    ) -> Self {
        let (parked, work) = (HashMap::new(), JoinSet::new());
        let (look_at, interrupt) = (Instant::now(), Arc::default());
        Self { membership, peers, engine, shared, parked, formed: None, work, look_at, interrupt, missed: 0 }
    }

    /// Answers questions and commands until the process drains or training has ended.
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
                () = drain.wait() => return,
                Some(question) = questions.recv() => self.answer(question),
                command = commands.recv() => match command {
                    Some(Form { candidate, formed }) => {
                        self.formed = Some(formed);
                        self.look_at = Instant::now();
                        self.membership.seek(Instant::now(), candidate);
                    }
                    None => return,
                },
                Some(done) = self.work.join_next() => match done {
                    Ok(done) => self.done(done),
                    Err(error) => tracing::error!("a task of the group failed: {error}"),
                },
                _ = ticks.tick() => {}
            }
            self.advance(Instant::now());
        }
    }

    fn answer(&mut self, question: Question) {
        match question {
            Question::Look(answer) => {
                // Before training has begun the answer is dropped, and this learner counts as away.
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
            Done::Looked(looks) => self.looked(&looks),
            Done::Answered(index, answer) => self.answered(index, answer),
            Done::Served(Ok(served)) => {
                let (library, reason) = self.membership.library();
                if let Some(roster) = self.membership.close(served.meeting.clone()) {
                    tracing::info!(
                        "the group sums with {library:?}{}",
                        reason.map_or_else(String::new, |why| format!(": {why}"))
                    );
                    for &member in &roster.members {
                        let parked = self.parked.remove(&member);
                        parked.map(|answer| answer.send(Ok(roster.clone())));
                    }
                    self.became_member(roster, Some(served));
                }
            }
            Done::Served(Err(error)) => {
                tracing::error!("no group can be formed, another try follows: {error}");
            }
        }
    }

    fn looked(&mut self, looks: &[(usize, Result<Look, PeerError>)]) {
        let answered: Vec<Look> = looks.iter().filter_map(|(_, look)| look.as_ref().ok().copied()).collect();
        if self.membership.is_seeking() {
            match self.membership.choose(Instant::now(), &answered) {
                Choice::Ask(index) => self.ask(index),
                Choice::Call => tracing::info!("calling the roll of a group of learners"),
                Choice::Wait => {}
            }
            return;
        }
        let steps = self.steps();
        self.membership.compare(&answered, steps);
        let misses = self.membership.must_watch() && self.membership.misses_member(looks);
        self.missed = if misses { self.missed + 1 } else { 0 };
        if self.missed >= WATCHES {
            self.interrupt.store(true, Ordering::Relaxed);
        }
    }

    /// Gives the training thread its place.
    fn became_member(&mut self, roster: Roster, store: Option<Served>) {
        (self.interrupt, self.missed) = (Arc::default(), 0);
        self.form(Ok(Formed { roster, store, interrupt: Arc::clone(&self.interrupt) }));
    }

    fn answered(&mut self, index: usize, answer: Result<Roster, PeerError>) {
        let (roster, reason) = match answer {
            Ok(roster) => (Some(roster), None),
            Err(PeerError::Refused { reason }) => (None, Some(reason)),
            Err(away) => {
                tracing::debug!("learner {index} gives no place: {away}");
                (None, None)
            }
        };
        let is_member = self.membership.answered(roster.clone());
        match (roster, reason) {
            (Some(roster), _) if is_member => self.became_member(roster, None),
            (_, Some(reason)) => self.form(Err(format!("learner {index} refuses this one: {reason}"))),
            _ => {}
        }
    }

    fn form(&mut self, formed: Result<Formed, String>) {
        if let Some(sender) = self.formed.take() {
            // The training thread may have stopped.
            drop(sender.try_send(formed));
        }
    }

    /// Begins what is due.
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
            self.look_at = now + interval;
            self.look();
        }
    }

    /// Looks at all other learners at once.
    fn look(&mut self) {
        let peers = self.peers.iter().cloned().enumerate();
        let peers: Vec<(usize, Peer)> = peers.filter_map(|(index, peer)| Some((index, peer?))).collect();
        self.work.spawn(async move {
            let mut looks = JoinSet::new();
            for (index, peer) in peers {
                looks.spawn(async move { (index, peer.look(LOOK_TIMEOUT).await) });
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
