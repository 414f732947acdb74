use experience::{ObservationLayout, Observations, StepKind};
use game::{Action, Environments, Outcome, Player, Start, Taken};
use inference::Slot;
use search::Tree;

use crate::episode::{Ending, Episode, FinishedEpisode, Pace, Phase, Workspace};
use crate::latent::batcher::LatentBatcher;
use crate::record::{Choice, EpisodeRecord};
use crate::round::Round;
use crate::settings::Settings;
use crate::watch::OBSERVATION_VALUES_MAX;

/// One of many concurrent episodes with search in a learned model. The slot is also the environment number.
pub(crate) type LatentEpisode = Episode<Slot, InEnvironment>;

/// The part of an episode that depends on the environment.
pub(crate) struct InEnvironment {
    /// The chosen action for the next step of the environment.
    chosen: Option<Chosen>,
    /// The layout of recorded observations; `None` if the rules can recompute observations.
    layout: Option<ObservationLayout>,
    observations: Option<Observations>,
}

/// A chosen action that the environment has not executed yet.
#[derive(Debug)]
struct Chosen {
    choice: Choice,
    mover: Player,
}

/// The effect of an environment step on an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advance {
    /// The slot can search the next action in the same round, possibly in a new episode.
    GoesOn,
    /// The episode was dropped. The next episode starts in the next round.
    Dropped,
}

impl LatentEpisode {
    /// Creates the first episode of a slot. `layout` is the layout of recorded observations; `None` disables recording.
    pub(crate) fn in_environment(
        environments: &dyn Environments,
        settings: &Settings,
        seed: u64,
        slot: usize,
        layout: Option<ObservationLayout>,
    ) -> Self {
        let record = EpisodeRecord::new(environments.spec().players, settings, seed, slot);
        Self::new(record, settings, InEnvironment { chosen: None, layout, observations: None })
    }

    /// Restarts the running search, if any, from the observation.
    pub(crate) fn restart(&mut self) {
        self.search.restart();
    }

    /// Returns the request to start the episode in the environment.
    pub(crate) fn start(&self) -> Start {
        Start { environment: self.record.slot(), seed: self.record.start_seed() }
    }

    /// Starts the episode after the environment has started. `observation` is scratch memory.
    pub(crate) fn begin(&mut self, environments: &dyn Environments, settings: &Settings, observation: &mut [f32]) {
        self.record.draw_opening(settings);
        self.phase = Phase::Opening;
        self.world.observations = self.world.layout.and_then(|layout| Observations::new(layout).ok());
        // If this observation cannot be recorded, the first step drops the episode.
        self.observe(environments, observation);
    }

    /// Drops the episode and all steps.
    pub(crate) fn drop_episode(&mut self, settings: &Settings) {
        self.record.next_episode(settings);
        (self.phase, self.leaves) = (Phase::Fresh, 0);
        (self.world.chosen, self.world.observations) = (None, None);
    }

    /// Records the latest observation, if recording is enabled. Returns false if the observation cannot be stored.
    fn observe(&mut self, environments: &dyn Environments, observation: &mut [f32]) -> bool {
        let InEnvironment { layout, observations, .. } = &mut self.world;
        let Some(stored) = observations else { return layout.is_none() };
        environments.observe(self.record.slot(), observation);
        let is_stored = stored.push(observation).is_ok();
        if !is_stored {
            *observations = None;
        }
        is_stored
    }

    /// Advances the episode in a round and adds requests to the batches. Returns the next action once it is chosen.
    pub(crate) fn gather(
        &mut self,
        environments: &mut dyn Environments,
        batcher: &mut LatentBatcher,
        weights_version: u64,
        settings: &Settings,
        pace: Pace,
        workspace: &mut Workspace,
    ) -> Option<Action> {
        if self.tree_version != weights_version {
            // A tree must not mix two versions, and the state pool of a new model is empty.
            self.tree_version = weights_version;
            self.search.restart();
        }
        let slot = self.record.slot();
        loop {
            match self.phase {
                Phase::Fresh => return None,
                Phase::Opening => {
                    if let Some(action) = self.next_of_opening(environments, &mut workspace.legal) {
                        return self.choose(environments, Choice { action, kind: StepKind::Opening, value: 0.0 });
                    }
                    self.phase = Phase::AtMove;
                }
                Phase::AtMove if pace == Pace::Settle => return None,
                Phase::AtMove => {
                    self.record.draw_kind(settings);
                    self.search.restart();
                    self.phase = Phase::Searching;
                }
                Phase::Searching => {
                    let (simulations, exploration) = self.record.budget(settings);
                    let Self { search, record, .. } = self;
                    let begin = |tree: &mut Tree<Slot>| tree.begin(simulations, exploration, record.rng());
                    let root = (&*environments, slot);
                    let gathered = batcher.gather(&root, search, settings.leaves_per_tree, begin);
                    self.leaves += gathered.waiting as u64;
                    if !gathered.is_finished {
                        return None;
                    }
                    let seen = || (outside(environments, slot), environments.picture(slot));
                    let choice = self.choose_searched(settings, workspace, seen);
                    return self.choose(environments, choice);
                }
                Phase::Truncated => {
                    self.leaves += u64::from(batcher.gather_last(slot, &(&*environments, slot)));
                    return None;
                }
            }
        }
    }

    /// Returns the next opening action, excluding actions known to end the episode. `legal` is scratch memory.
    fn next_of_opening(&mut self, environments: &dyn Environments, legal: &mut Vec<Action>) -> Option<Action> {
        let slot = self.record.slot();
        environments.legal_actions(slot, legal);
        self.record.next_of_opening(legal, |action| !environments.would_end(slot, action))
    }

    fn choose(&mut self, environments: &dyn Environments, choice: Choice) -> Option<Action> {
        let action = choice.action;
        self.world.chosen = Some(Chosen { choice, mover: environments.to_move(self.record.slot()) });
        Some(action)
    }

    /// Records a step of the environment, and finishes the episode after the last step. `observation` is scratch
    /// memory.
    pub(crate) fn step(
        &mut self,
        environments: &dyn Environments,
        settings: &Settings,
        taken: Taken,
        observation: &mut [f32],
        finished: &mut Vec<FinishedEpisode>,
        round: &mut Round,
    ) -> Advance {
        let Chosen { choice, mover } = self.world.chosen.take().expect("a step follows the choice of an action");
        let (reward, outcome) = match taken {
            Taken::Step { reward, outcome } if self.observe(environments, observation) => (reward, outcome),
            Taken::Step { .. } | Taken::Lost => {
                round.episodes_lost += 1;
                self.drop_episode(settings);
                return Advance::Dropped;
            }
        };
        if choice.kind == StepKind::Opening {
            if outcome.is_some() {
                // An episode that ends in the opening has no position to train on.
                self.drop_episode(settings);
                return Advance::Dropped;
            }
            self.record.push(choice.action, reward, choice.kind, self.tree_version);
        } else if let Some(end) = self.record_step(choice, mover, reward, outcome, round) {
            finished.push(self.finish(environments, settings, end, 0.0, round));
        }
        Advance::GoesOn
    }

    /// Finishes the episode, with the value of the last observation after a truncation.
    pub(crate) fn finish(
        &mut self,
        environments: &dyn Environments,
        settings: &Settings,
        end: (Outcome, Ending),
        truncation_value: f32,
        round: &mut Round,
    ) -> FinishedEpisode {
        let seed = environments.stored_seed(self.record.start_seed());
        let finished = self.close(seed, settings, end, truncation_value, round);
        FinishedEpisode { observations: self.world.observations.take(), ..finished }
    }
}

/// Returns the observation of an environment outside this process.
fn outside(environments: &dyn Environments, slot: usize) -> Option<Vec<f32>> {
    let spec = environments.spec();
    let len = spec.recording.map(|_| spec.observation.len()).filter(|&len| len <= OBSERVATION_VALUES_MAX)?;
    let mut values = vec![0.0; len];
    environments.observe(slot, &mut values);
    Some(values)
}
