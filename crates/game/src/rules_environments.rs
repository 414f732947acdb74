use crate::{Action, Environments, EnvironmentsError, Game, Play, Player, Spec, Start, Started, Taken};

/// Runs N episodes by the rules of a [`Game`], on the caller's thread. A step allocates nothing.
#[derive(Debug)]
pub struct RulesEnvironments<G: Game> {
    game: G,
    episodes: Vec<Episode<G>>,
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

impl<G: Game> RulesEnvironments<G> {
    /// Creates `len` idle environments.
    ///
    /// # Panics
    /// If `len` is 0.
    #[must_use]
    pub fn new(game: G, len: usize) -> Self {
        assert!(len > 0, "there is at least one environment");
        let idle = |_| Episode::<G> { position: game.start(), phase: Phase::Idle };
        Self { episodes: (0..len).map(idle).collect(), game }
    }

    /// Returns the position of an environment.
    ///
    /// # Panics
    /// If the environment does not exist.
    #[must_use]
    pub fn position(&self, environment: usize) -> &G::Position {
        &self.episodes[environment].position
    }
}

impl<G: Game> Environments for RulesEnvironments<G> {
    fn spec(&self) -> &Spec {
        self.game.spec()
    }

    fn len(&self) -> usize {
        self.episodes.len()
    }

    fn begin(&mut self, starts: &[Start], started: &mut Vec<Started>) -> Result<(), EnvironmentsError> {
        started.clear();
        for &Start { environment, seed } in starts {
            let episode = &mut self.episodes[environment];
            assert_eq!(episode.phase, Phase::Idle, "environment {environment} has an episode under way");
            *episode = Episode { position: self.game.start_from(seed), phase: Phase::UnderWay };
            started.push(Started::Now);
        }
        Ok(())
    }

    fn step(&mut self, plays: &[Play], taken: &mut Vec<Taken>) -> Result<(), EnvironmentsError> {
        let Self { game, episodes } = self;
        taken.clear();
        taken.extend(plays.iter().map(|play| episodes[play.environment].step(game, play.action)));
        Ok(())
    }

    fn observe(&self, environment: usize, values: &mut [f32]) {
        self.game.observe(self.position(environment), values);
    }

    fn legal_actions(&self, environment: usize, actions: &mut Vec<Action>) {
        match &self.episodes[environment] {
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

/// Returns the seed to store with an episode: 0 if seed 0 starts the same episode. Positions hold the state of the
/// random generator, so equal starts imply equal episodes.
pub fn stored_seed<G: Game>(game: &G, seed: u64) -> u64 {
    if game.start_from(seed) == game.start() { 0 } else { seed }
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

#[cfg(test)]
mod tests;
