//! A simulation of learners with disks, and of the network between the learners.

use std::collections::BTreeMap;
use std::sync::Mutex;

use collective::Collective;
use proto::learners::Secret;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};
use weights::Digest;

use super::super::{
    Arc, Ask, AtomicBool, Candidate, Drain, Driver, Duration, Engine, Error, Form, Formed, Look, Meeting, Membership,
    Ordering, PeerError, Question, Refusal, Roster, Shared, TICK, mpsc, oneshot,
};
use crate::group::library::Library;
use crate::group::numbering::Numbering;

/// Maximum number of learners in a world.
pub(super) const LEARNERS_MAX: usize = 4;
/// Maximum time to wait for other members in a training step.
pub(super) const TIMEOUT: Duration = Duration::from_secs(8);
const ROLL: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(200);
const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);
/// Training steps between two checkpoints.
const CHECKPOINT_STEPS: u64 = 20;
/// Probability that a message is lost while faults are injected.
const LOSS: f64 = 0.005;

/// A deliberate defect of all learners, which the tests must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defect {
    None,
    /// A learner with a late response counts as away.
    LateMeansAway,
    /// Every group assigns numbers from the class of all numbers.
    EveryNumber,
    /// A restarted learner has lost the numbers stored since the latest checkpoint.
    NotNoted,
}

/// The data of a learner that survive a restart of the process.
#[derive(Debug, Clone, Copy, Default)]
struct Disk {
    steps: u64,
    state: u64,
    noted: u64,
    /// Latest number stored at the time of the checkpoint.
    noted_before: u64,
}

#[derive(Default)]
struct Learner {
    /// Channel for queries; `None` while the learner is stopped.
    questions: Option<mpsc::Sender<Question>>,
    tasks: Vec<AbortHandle>,
    disk: Disk,
    answers_after: Duration,
    /// Index that this learner reports in responses.
    answers_as: usize,
    is_beyond_cut: bool,
    /// Secret and number of members of the current group.
    group: Option<([u8; 32], usize)>,
    sizes: Vec<usize>,
    newest_number: u64,
    ended: Option<String>,
}

/// The contribution of one member to a step, or the sum of contributions.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    gradient: u64,
    publish: bool,
    reform: bool,
    /// Steps and state of a new group's source member.
    state: Option<(u64, u64)>,
}

/// The contributions received by a member in a round of a group, by sender.
type Arrived = BTreeMap<([u8; 32], usize, u64), BTreeMap<usize, Part>>;

pub(super) struct World {
    learners: Mutex<Vec<Learner>>,
    rng: Mutex<ChaCha8Rng>,
    arrived: Mutex<Arrived>,
    /// Groups that have lost a member, each with the member that noticed the loss.
    left: Mutex<Vec<([u8; 32], usize)>>,
    /// Group and state for each published version number.
    published: Mutex<BTreeMap<u64, ([u8; 32], u64)>>,
    wrong: Mutex<Option<String>>,
    loss: Mutex<f64>,
    changed: Notify,
    defect: Defect,
}

/// An engine that only creates the secrets of groups.
struct Secrets;

impl Engine for Secrets {
    fn serve(&self, _: Library) -> Result<Meeting, Error> {
        Ok(Meeting::Exchange { secret: Secret::draw().unwrap() })
    }

    fn join(&self, _: &Roster, _: usize, _: &Arc<AtomicBool>) -> Result<Box<dyn Collective>, Error> {
        unreachable!("the learners of a world sum by themselves")
    }
}

/// A connection to a learner from another learner.
#[derive(Clone)]
pub(super) struct Remote {
    world: Arc<World>,
    from: usize,
    to: usize,
}

impl Remote {
    /// Sends a query and returns the response; both pass through the simulated network.
    async fn ask<T: Send>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Question + Send,
        timeout: Duration,
    ) -> Result<T, PeerError> {
        let Self { world, from, to } = self;
        let away = || PeerError::Away { reason: "it does not run".to_owned() };
        let answer = async {
            world.travel(*from, *to).await;
            let questions = world.learner(*to, |learner| learner.questions.clone()).ok_or_else(away)?;
            let (answer, answered) = oneshot::channel();
            questions.send(question(answer)).await.map_err(|_| away())?;
            let answered = answered.await.map_err(|_| away())?;
            sleep(world.learner(*to, |learner| learner.answers_after)).await;
            world.travel(*to, *from).await;
            Ok(answered)
        };
        match tokio::time::timeout(timeout, answer).await {
            Ok(answered) => answered,
            Err(_) if world.defect == Defect::LateMeansAway => Err(away()),
            Err(_) => Err(PeerError::Late),
        }
    }
}

impl Ask for Remote {
    async fn look(&self, timeout: Duration) -> Result<Look, PeerError> {
        let index = self.world.learner(self.to, |learner| learner.answers_as);
        self.ask(Question::Look, timeout).await.map(|look| Look { index, ..look })
    }

    async fn join(&self, candidate: &Candidate, timeout: Duration) -> Result<Roster, PeerError> {
        match self.ask(|answer| Question::Join(*candidate, answer), timeout).await? {
            Ok(roster) => Ok(roster),
            Err(Refusal::Elsewhere) => Err(PeerError::Away { reason: "it coordinates no group".to_owned() }),
            Err(Refusal::Different(reason)) => Err(PeerError::Refused { reason }),
        }
    }
}

impl World {
    pub(super) fn new(seed: u64, learners: usize, defect: Defect) -> Arc<Self> {
        let learner = |answers_as| Learner { answers_as, ..Learner::default() };
        Arc::new(Self {
            learners: Mutex::new((0..learners).map(learner).collect()),
            rng: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
            arrived: Mutex::default(),
            left: Mutex::default(),
            published: Mutex::default(),
            wrong: Mutex::default(),
            loss: Mutex::default(),
            changed: Notify::new(),
            defect,
        })
    }

    fn count(&self) -> usize {
        self.learners.lock().unwrap().len()
    }

    fn learner<T>(&self, own: usize, of: impl FnOnce(&mut Learner) -> T) -> T {
        of(&mut self.learners.lock().unwrap()[own])
    }

    fn draw(&self, range: std::ops::Range<u64>) -> u64 {
        self.rng.lock().unwrap().random_range(range)
    }

    /// Waits for the transfer time of a message; never returns if the message is lost.
    async fn travel(&self, from: usize, to: usize) {
        sleep(Duration::from_millis(self.draw(1..20))).await;
        let loss = *self.loss.lock().unwrap();
        let is_lost = self.rng.lock().unwrap().random_bool(loss);
        let [is_from_beyond, is_to_beyond] = [from, to].map(|own| self.learner(own, |learner| learner.is_beyond_cut));
        if is_lost || is_from_beyond != is_to_beyond {
            std::future::pending::<()>().await;
        }
    }

    /// Starts the process of a learner.
    pub(super) fn start(self: &Arc<Self>, own: usize) {
        let (asked, questions) = mpsc::channel(256);
        let (commands, receiver) = mpsc::channel(1);
        let shared = Arc::<Shared>::default();
        let count = self.count();
        let membership = Membership::new(own, count, ROLL, TIMEOUT);
        let endpoints = (0..count).map(|learner| format!("http://learner-{learner}")).collect();
        let remote = |to| (to != own).then(|| Remote { world: Arc::clone(self), from: own, to });
        let peers = (0..count).map(remote).collect();
        let driver = Driver::new(membership, endpoints, peers, Arc::new(Secrets), Arc::clone(&shared));
        let driver = tokio::spawn(driver.run(questions, receiver, Drain::new())).abort_handle();
        let training = tokio::spawn(Arc::clone(self).train(own, commands, shared)).abort_handle();
        self.learner(own, |learner| {
            learner.questions = Some(asked);
            learner.tasks = vec![driver, training];
        });
    }

    /// Kills the process of a learner immediately.
    pub(super) fn kill(self: &Arc<Self>, own: usize) {
        self.learner(own, |learner| {
            learner.questions = None;
            learner.tasks.drain(..).for_each(|task| task.abort());
        });
        self.leave(own);
    }

    pub(super) fn answers_after(&self, own: usize, pause: Duration) {
        self.learner(own, |learner| learner.answers_after = pause);
    }

    pub(super) fn answers_as(&self, own: usize, index: usize) {
        self.learner(own, |learner| learner.answers_as = index);
    }

    /// Returns the sizes of all groups that included a learner, in order.
    pub(super) fn sizes_of_groups(&self, own: usize) -> Vec<usize> {
        self.learner(own, |learner| learner.sizes.clone())
    }

    /// Returns the reason why a learner stopped with an error; `None` while it runs.
    pub(super) fn ended(&self, own: usize) -> Option<String> {
        self.learner(own, |learner| learner.ended.clone())
    }

    /// Returns the latest version number published by each learner.
    pub(super) fn newest_numbers(&self) -> Vec<u64> {
        self.learners.lock().unwrap().iter().map(|learner| learner.newest_number).collect()
    }

    /// Partitions the network between these learners and all other learners: messages are lost.
    pub(super) fn cut(&self, is_beyond: impl Fn(usize) -> bool) {
        let mut learners = self.learners.lock().unwrap();
        (0..).zip(learners.iter_mut()).for_each(|(own, learner)| learner.is_beyond_cut = is_beyond(own));
    }

    /// Clears all faults and starts the stopped learners.
    pub(super) fn heal(self: &Arc<Self>) {
        self.cut(|_| false);
        *self.loss.lock().unwrap() = 0.0;
        for own in 0..self.count() {
            self.answers_after(own, Duration::ZERO);
            if self.learner(own, |learner| learner.questions.is_none()) {
                self.start(own);
            }
        }
    }

    /// Injects faults for the given time.
    pub(super) async fn trouble(self: &Arc<Self>, time: Duration) {
        let end = Instant::now() + time;
        let count = self.count();
        while Instant::now() < end {
            sleep(Duration::from_millis(self.draw(100..8000))).await;
            let own = self.draw(0..count as u64) as usize;
            match self.draw(0..8) {
                0 | 1 => {
                    let sides = self.draw(0..1 << count);
                    self.cut(|learner| sides >> learner & 1 == 1);
                }
                2 => self.cut(|_| false),
                3 | 4 => {
                    let runs = self.learner(own, |learner| learner.questions.is_some());
                    if runs { self.kill(own) } else { self.start(own) }
                }
                5 => {
                    let pause = self.draw(0..3000);
                    self.answers_after(own, Duration::from_millis(pause));
                }
                6 => *self.loss.lock().unwrap() = LOSS,
                _ => *self.loss.lock().unwrap() = 0.0,
            }
        }
    }

    /// Waits until all learners are members of one group and publish.
    pub(super) async fn is_one_group_within(&self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        let groups = || self.learners.lock().unwrap().iter().map(|learner| learner.group).collect::<Vec<_>>();
        let is_one = |groups: &[Option<([u8; 32], usize)>]| {
            groups.iter().all(|group| *group == groups[0]) && groups[0].is_some_and(|(_, size)| size == groups.len())
        };
        let before = self.newest_numbers().into_iter().max();
        // A message lost before the faults were cleared may still break a group that formed afterwards.
        let publishes = |newest: &[u64]| newest.iter().all(|own| *own == newest[0] && Some(*own) > before);
        while !(is_one(&groups()) && publishes(&self.newest_numbers())) {
            if Instant::now() > end {
                let newest = self.newest_numbers();
                return Err(format!("{time:?} after the last fault the groups are {:?}, {newest:?}", groups()));
            }
            sleep(STEP).await;
        }
        Ok(())
    }

    /// Returns an error for the first version with two different states or from two groups.
    pub(super) fn check(&self) -> Result<(), String> {
        self.wrong.lock().unwrap().take().map_or(Ok(()), Err)
    }

    fn publish(&self, own: usize, number: u64, group: [u8; 32], state: u64) {
        self.learner(own, |learner| learner.newest_number = number);
        let known = *self.published.lock().unwrap().entry(number).or_insert((group, state));
        if known != (group, state) {
            let text = format!("learner {own} publishes version {number} of {state:x}, which is of {:x}", known.1);
            self.wrong.lock().unwrap().get_or_insert(text);
        }
    }

    /// Trains like the training thread of a learner.
    async fn train(self: Arc<Self>, own: usize, commands: mpsc::Sender<Form>, shared: Arc<Shared>) {
        let Disk { mut steps, mut state, noted, noted_before } = self.learner(own, |learner| learner.disk);
        let noted = if self.defect == Defect::NotNoted { noted_before } else { noted };
        let numbered = if self.defect == Defect::EveryNumber { 1 } else { self.count() };
        let (mut numbering, mut generation) = (Numbering::new(numbered, noted), 0);
        loop {
            self.leave(own);
            shared.steps.store(steps, Ordering::Relaxed);
            let (fingerprint, weights_version) = (Digest::of(b"a network"), numbering.noted);
            let candidate = Candidate { index: own, steps, generation, weights_version, fingerprint, gpu: None };
            let roster = match formed(&commands, candidate).await {
                Ok(roster) => roster,
                Err(reason) => return self.learner(own, |learner| learner.ended = Some(reason)),
            };
            generation = roster.generation;
            numbering.joined(&roster);
            let Meeting::Exchange { secret: Secret(secret) } = roster.meeting else { unreachable!() };
            let size = roster.members.len();
            self.learner(own, |learner| {
                learner.group = Some((secret, size));
                learner.sizes.push(size);
            });
            let is_source = roster.rank_of(own) == Some(roster.source);
            let mine = Part { state: is_source.then_some((steps, state)), ..Part::default() };
            let Some(begun) = self.sum(own, &roster, secret, 0, mine).await else { continue };
            (steps, state) = begun.state.expect("the source gives its state");
            let mut published_at = Instant::now();
            for round in 1.. {
                sleep(STEP + Duration::from_millis(self.draw(0..50))).await;
                numbering.note(numbering.next().unwrap());
                self.learner(own, |learner| learner.disk.noted = numbering.noted);
                let mut mine = Part { gradient: self.draw(0..u64::MAX), ..Part::default() };
                if roster.coordinator() == own {
                    mine.publish = published_at.elapsed() >= PUBLISH_INTERVAL;
                    mine.reform = shared.wants_reform.load(Ordering::Relaxed);
                }
                let Some(sum) = self.sum(own, &roster, secret, round, mine).await else { break };
                steps += 1;
                state = (state ^ sum.gradient).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
                shared.steps.store(steps, Ordering::Relaxed);
                if sum.publish {
                    self.publish(own, numbering.give().unwrap(), secret, state);
                    published_at = Instant::now();
                }
                if steps.is_multiple_of(CHECKPOINT_STEPS) {
                    let noted = numbering.noted;
                    self.learner(own, |learner| learner.disk = Disk { steps, state, noted, noted_before: noted });
                }
                if sum.reform {
                    break;
                }
            }
        }
    }

    /// Sums contributions over the members; `None` if a member has left or is late.
    async fn sum(
        self: &Arc<Self>,
        own: usize,
        roster: &Roster,
        secret: [u8; 32],
        round: u64,
        mine: Part,
    ) -> Option<Part> {
        self.arrive(own, own, secret, round, mine);
        for &to in roster.members.iter().filter(|&&member| member != own) {
            let world = Arc::clone(self);
            tokio::spawn(async move {
                world.travel(own, to).await;
                world.arrive(own, to, secret, round, mine);
            });
        }
        let end = Instant::now() + TIMEOUT;
        loop {
            let changed = self.changed.notified();
            let parts = self.arrived.lock().unwrap().get(&(secret, own, round)).cloned().unwrap_or_default();
            if parts.len() == roster.members.len() {
                self.arrived.lock().unwrap().remove(&(secret, own, round));
                return Some(parts.into_values().fold(Part::default(), Part::and));
            }
            let has_left = self.left.lock().unwrap().contains(&(secret, own));
            if has_left || timeout_at(end, changed).await.is_err() {
                return None;
            }
        }
    }

    fn arrive(&self, from: usize, to: usize, secret: [u8; 32], round: u64, part: Part) {
        self.arrived.lock().unwrap().entry((secret, to, round)).or_default().insert(from, part);
        self.changed.notify_waiters();
    }

    /// Closes a member's connections to the other group members.
    fn leave(self: &Arc<Self>, own: usize) {
        let Some((secret, _)) = self.learner(own, |learner| learner.group.take()) else { return };
        for to in (0..self.count()).filter(|&to| to != own) {
            let world = Arc::clone(self);
            tokio::spawn(async move {
                // Messages sent earlier arrive first.
                sleep(Duration::from_millis(20)).await;
                world.travel(own, to).await;
                world.left.lock().unwrap().push((secret, to));
                world.changed.notify_waiters();
            });
        }
    }
}

impl Part {
    fn and(self, other: Self) -> Self {
        Self {
            gradient: self.gradient.wrapping_add(other.gradient),
            publish: self.publish || other.publish,
            reform: self.reform || other.reform,
            state: self.state.or(other.state),
        }
    }
}

/// Waits for a place in a group.
async fn formed(commands: &mpsc::Sender<Form>, candidate: Candidate) -> Result<Roster, String> {
    let ended = || "the driver has ended".to_owned();
    let (formed, answer) = crossbeam_channel::bounded(1);
    commands.send(Form { candidate, formed }).await.map_err(|_| ended())?;
    loop {
        match answer.try_recv() {
            Ok(formed) => return formed.map(|Formed { roster, .. }| roster),
            Err(crossbeam_channel::TryRecvError::Empty) => sleep(TICK).await,
            Err(crossbeam_channel::TryRecvError::Disconnected) => return Err(ended()),
        }
    }
}
