use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::{Action, Environments, EnvironmentsError, Game, Play, Player, Spec, Start, Started, Taken};

/// Runs N episodes by the rules of a [`Game`].
///
/// A step allocates nothing. Slow rules can be stepped on several threads; passing a step to another thread takes
/// some ten microseconds, in which simple rules play a thousand actions. Environment `i` belongs to shard
/// `i % shards`, so that the first environments of a batch also occupy every thread.
pub struct RulesEnvironments<G: Game> {
    game: G,
    len: usize,
    /// The first shard is stepped on the caller's thread, each further shard on a separate thread.
    shards: Vec<Shard<G>>,
    threads: Vec<StepThread<G>>,
}

/// The environments of one thread.
struct Shard<G: Game> {
    episodes: Vec<Episode<G>>,
    /// Actions of a step; environments are indices into `episodes`.
    plays: Vec<Play>,
    taken: Vec<Taken>,
}

#[derive(Debug)]
struct Episode<G: Game> {
    position: G::Position,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    UnderWay,
}

/// A thread that steps one shard at a time. The shard moves there and back.
struct StepThread<G: Game> {
    /// `None` only while the thread is being stopped.
    shards: Option<SyncSender<Shard<G>>>,
    stepped: Receiver<Shard<G>>,
    thread: Option<JoinHandle<()>>,
}

impl<G: Game> RulesEnvironments<G> {
    /// Creates `len` idle environments that are stepped on the caller's thread.
    ///
    /// # Panics
    /// If `len` is 0.
    #[must_use]
    pub fn new(game: G, len: usize) -> Self {
        Self::sharded(game, len, 1)
    }

    /// Creates `len` idle environments that are stepped on `threads` threads, including the caller's.
    ///
    /// # Errors
    /// The system cannot start more threads.
    ///
    /// # Panics
    /// If `len` or `threads` is 0.
    pub fn on_threads(game: G, len: usize, threads: usize) -> io::Result<Self> {
        assert!(threads > 0, "environments are stepped on at least one thread");
        let mut environments = Self::sharded(game, len, threads.min(len));
        for number in 1..environments.shards.len() {
            environments.threads.push(StepThread::start(environments.game.clone(), number)?);
        }
        Ok(environments)
    }

    fn sharded(game: G, len: usize, shards: usize) -> Self {
        assert!(len > 0, "there is at least one environment");
        let shard = |first: usize| Shard {
            episodes: (first..len)
                .step_by(shards)
                .map(|_| Episode { position: game.start(), phase: Phase::Idle })
                .collect(),
            plays: Vec::new(),
            taken: Vec::new(),
        };
        Self { len, shards: (0..shards).map(shard).collect(), threads: Vec::new(), game }
    }

    /// Returns the rules of all environments.
    pub fn game(&self) -> &G {
        &self.game
    }

    /// Returns the position of an environment.
    ///
    /// # Panics
    /// If the environment does not exist.
    #[must_use]
    pub fn position(&self, environment: usize) -> &G::Position {
        &self.episode(environment).position
    }

    fn episode(&self, environment: usize) -> &Episode<G> {
        &self.shards[environment % self.shards.len()].episodes[environment / self.shards.len()]
    }
}

impl<G: Game> Environments for RulesEnvironments<G> {
    fn spec(&self) -> &Spec {
        self.game.spec()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn begin(&mut self, starts: &[Start], started: &mut Vec<Started>) -> Result<(), EnvironmentsError> {
        started.clear();
        let count = self.shards.len();
        for &Start { environment, seed } in starts {
            let episode = &mut self.shards[environment % count].episodes[environment / count];
            assert_eq!(episode.phase, Phase::Idle, "environment {environment} has an episode under way");
            *episode = Episode { position: self.game.start_from(seed), phase: Phase::UnderWay };
            started.push(Started::Now);
        }
        Ok(())
    }

    fn step(&mut self, plays: &[Play], taken: &mut Vec<Taken>) -> Result<(), EnvironmentsError> {
        let count = self.shards.len();
        for shard in &mut self.shards {
            shard.plays.clear();
        }
        for &Play { environment, action } in plays {
            self.shards[environment % count].plays.push(Play { environment: environment / count, action });
        }
        let (own, others) = self.shards.split_first_mut().expect("there is at least one shard");
        for (thread, shard) in self.threads.iter().zip(others.iter_mut()).filter(|(_, shard)| !shard.plays.is_empty()) {
            thread.send(std::mem::take(shard));
        }
        own.step(&self.game);
        for (thread, shard) in self.threads.iter_mut().zip(others).filter(|(_, shard)| shard.episodes.is_empty()) {
            *shard = thread.receive();
        }
        gather(&mut self.shards, plays, taken);
        Ok(())
    }

    fn observe(&self, environment: usize, values: &mut [f32]) {
        self.game.observe(self.position(environment), values);
    }

    fn legal_actions(&self, environment: usize, actions: &mut Vec<Action>) {
        match self.episode(environment) {
            Episode { position, phase: Phase::UnderWay } => self.game.legal_actions(position, actions),
            Episode { phase: Phase::Idle, .. } => actions.clear(),
        }
    }

    fn to_move(&self, environment: usize) -> Player {
        self.game.to_move(self.position(environment))
    }

    fn would_end(&self, environment: usize, action: Action) -> bool {
        let mut next = self.position(environment).clone();
        self.game.play(&mut next, action);
        self.game.outcome(&next).is_some()
    }

    fn stored_seed(&self, seed: u64) -> u64 {
        stored_seed(&self.game, seed)
    }
}

impl<G: Game> std::fmt::Debug for RulesEnvironments<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RulesEnvironments").field("game", &self.game).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Returns the seed to store with an episode: 0 if seed 0 starts the same episode. Positions hold the state of the
/// random generator, so equal starts imply equal episodes.
pub fn stored_seed<G: Game>(game: &G, seed: u64) -> u64 {
    if game.start_from(seed) == game.start() { 0 } else { seed }
}

/// Merges the shards' results in the order of `plays`.
fn gather<G: Game>(shards: &mut [Shard<G>], plays: &[Play], taken: &mut Vec<Taken>) {
    // After the reversal, the next result of a shard is the last in the vector.
    for shard in &mut *shards {
        shard.taken.reverse();
    }
    let count = shards.len();
    let results = plays.iter().map(|play| shards[play.environment % count].taken.pop());
    taken.clear();
    taken.extend(results.map(|result| result.expect("each play has a result")));
}

impl<G: Game> Default for Shard<G> {
    /// Returns the placeholder for a shard that is on its thread. It allocates nothing.
    fn default() -> Self {
        Self { episodes: Vec::new(), plays: Vec::new(), taken: Vec::new() }
    }
}

impl<G: Game> Shard<G> {
    fn step(&mut self, game: &G) {
        let Self { episodes, plays, taken } = self;
        taken.clear();
        taken.extend(plays.iter().map(|play| episodes[play.environment].step(game, play.action)));
    }
}

impl<G: Game> Episode<G> {
    fn step(&mut self, game: &G, action: Action) -> Taken {
        assert_eq!(self.phase, Phase::UnderWay, "an action needs an episode under way");
        let reward = game.play(&mut self.position, action);
        let outcome = game.outcome(&self.position);
        if outcome.is_some() {
            self.phase = Phase::Idle;
        }
        Taken::Step { reward, outcome }
    }
}

impl<G: Game> StepThread<G> {
    fn start(game: G, number: usize) -> io::Result<Self> {
        let (shards, received) = sync_channel::<Shard<G>>(1);
        let (answers, stepped) = sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("environments-{number}")).spawn(move || {
            for mut shard in received {
                shard.step(&game);
                if answers.send(shard).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { shards: Some(shards), stepped, thread: Some(thread) })
    }

    fn send(&self, shard: Shard<G>) {
        let shards = self.shards.as_ref().expect("the thread runs until it is dropped");
        // A thread stops early only by a panic, which `receive` passes on.
        let _ = shards.send(shard);
    }

    fn receive(&mut self) -> Shard<G> {
        if let Ok(shard) = self.stepped.recv() {
            return shard;
        }
        let panic = self.thread.take().and_then(|thread| thread.join().err());
        std::panic::resume_unwind(panic.unwrap_or_else(|| Box::new("a thread of environments has ended")))
    }
}

impl<G: Game> Drop for StepThread<G> {
    fn drop(&mut self) {
        self.shards = None;
        if let Some(thread) = self.thread.take() {
            // `receive` has passed on a panic of the thread, or the panic belongs to a step that another panic
            // abandoned.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
