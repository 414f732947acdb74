use experience::{ObservationLayout, Observations, StepKind};
use game::{Action, Environments, Outcome, Player, Start, Taken};
use inference::Slot;
use search::Tree;

use crate::episode::{Ending, EpisodeProgress, FinishedEpisode, Pace, Workspace};
use crate::latent::batcher::LatentBatcher;
use crate::record::{Choice, EpisodeRecord};
use crate::round::Round;
use crate::settings::Settings;
use crate::tree_search::TreeSearch;

/// One of many concurrent episodes: the search tree and the record. The slot is also the environment number.
pub(crate) struct LatentEpisode {
    record: EpisodeRecord,
    pub(crate) search: TreeSearch<Slot>,
    /// The weights version of all predictions in the tree, during and after a search.
    tree_version: u64,
    phase: Phase,
    /// The chosen action for the next step of the environment.
    chosen: Option<Chosen>,
    /// The layout of recorded observations; `None` if the rules can recompute observations.
    layout: Option<ObservationLayout>,
    observations: Option<Observations>,
    /// Number of observations and recurrent steps of this episode added to batches so far.
    leaves: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The episode has not started.
    Fresh,
    /// The opening plies, before the first search.
    Opening,
    /// Between two moves, without a running search.
    AtMove,
    Searching,
    /// The episode was truncated and waits for the value of the last observation.
    Truncated,
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
    pub(crate) fn new(environments: &dyn Environments, settings: &Settings, seed: u64, slot: usize) -> Self {
        Self {
            record: EpisodeRecord::new(environments.spec().players, settings, seed, slot),
            search: TreeSearch::new(&settings.search, slot),
            tree_version: 0,
            phase: Phase::Fresh,
            chosen: None,
            layout: None,
            observations: None,
            leaves: 0,
        }
    }

    /// Sets the layout for recording the observations of future episodes; `None` disables recording.
    pub(crate) fn recorded(mut self, layout: Option<ObservationLayout>) -> Self {
        self.layout = layout;
        self
    }

    pub(crate) fn progress(&self) -> EpisodeProgress {
        EpisodeProgress { number: self.record.number(), plies: self.record.plies(), leaves: self.leaves }
    }

    /// Returns true if the episode has started.
    pub(crate) fn is_under_way(&self) -> bool {
        self.phase != Phase::Fresh
    }

    /// Returns true if the episode waits for no prediction: neither searching nor truncated.
    pub(crate) fn is_at_move(&self) -> bool {
        !matches!(self.phase, Phase::Searching | Phase::Truncated)
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
        self.observations = self.layout.and_then(|layout| Observations::new(layout).ok());
        // If this observation cannot be recorded, the first step drops the episode.
        self.observe(environments, observation);
    }

    /// Drops the episode and all steps.
    pub(crate) fn drop_episode(&mut self, settings: &Settings) {
        self.record.next_episode(settings);
        self.become_fresh();
    }

    fn become_fresh(&mut self) {
        (self.phase, self.chosen, self.observations, self.leaves) = (Phase::Fresh, None, None, 0);
    }

    /// Records the latest observation, if recording is enabled. Returns false if the observation cannot be stored.
    fn observe(&mut self, environments: &dyn Environments, observation: &mut [f32]) -> bool {
        let Some(observations) = &mut self.observations else { return self.layout.is_none() };
        environments.observe(self.record.slot(), observation);
        let is_stored = observations.push(observation).is_ok();
        if !is_stored {
            self.observations = None;
        }
        is_stored
    }

    /// Advances the episode in a round and adds requests to the batches. Returns the next action once it is chosen.
    pub(crate) fn gather(
        &mut self,
        environments: &dyn Environments,
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
                    let root = (environments, slot);
                    let gathered = batcher.gather(&root, search, settings.leaves_per_tree, begin);
                    self.leaves += gathered.waiting as u64;
                    if !gathered.is_finished {
                        return None;
                    }
                    let choice = self.record.choose(settings, &self.search.tree, &mut workspace.policy);
                    return self.choose(environments, choice);
                }
                Phase::Truncated => {
                    self.leaves += u64::from(batcher.gather_last(slot, &(environments, slot)));
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
        self.chosen = Some(Chosen { choice, mover: environments.to_move(self.record.slot()) });
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
        let Chosen { choice, mover } = self.chosen.take().expect("a step follows the choice of an action");
        let (reward, outcome) = match taken {
            Taken::Step { reward, outcome } if self.observe(environments, observation) => (reward, outcome),
            Taken::Step { .. } | Taken::Lost => {
                round.episodes_lost += 1;
                self.drop_episode(settings);
                return Advance::Dropped;
            }
        };
        let Choice { action, kind, value } = choice;
        let is_opening = kind == StepKind::Opening;
        self.record.push(action, reward, kind, self.tree_version);
        if is_opening {
            if outcome.is_some() {
                // An episode that ends in the opening has no position to train on.
                self.drop_episode(settings);
                return Advance::Dropped;
            }
            return Advance::GoesOn;
        }
        round.moves += 1;
        let resigned = self.record.resigned(mover, value).map(|outcome| (outcome, Ending::Resignation));
        match outcome.map(|outcome| (outcome, Ending::Rules)).or(resigned) {
            None => self.phase = Phase::AtMove,
            Some((Outcome::Truncated, _)) => self.phase = Phase::Truncated,
            Some(end) => finished.push(self.finish(environments, settings, end, 0.0, round)),
        }
        Advance::GoesOn
    }

    /// Finishes a truncated episode with the value of the last observation.
    pub(crate) fn finish_truncated(
        &mut self,
        environments: &dyn Environments,
        settings: &Settings,
        value: f32,
        round: &mut Round,
    ) -> FinishedEpisode {
        self.finish(environments, settings, (Outcome::Truncated, Ending::Rules), value, round)
    }

    fn finish(
        &mut self,
        environments: &dyn Environments,
        settings: &Settings,
        end: (Outcome, Ending),
        truncation_value: f32,
        round: &mut Round,
    ) -> FinishedEpisode {
        let seed = environments.stored_seed(self.record.start_seed());
        let finished = self.record.finish(seed, settings, end, truncation_value, round);
        let finished = FinishedEpisode { observations: self.observations.take(), ..finished };
        self.become_fresh();
        finished
    }
}
