//! Keeps the latest search of a few episodes for spectators. Self-play does not depend on it.

use game::Action;

use crate::analysis::Analysis;

/// Maximum number of actions that are kept for spectators: copying more before each move would slow self-play.
pub const ACTIONS_MAX: usize = 4_096;

/// Maximum number of values in an observation that is kept for spectators.
pub(crate) const OBSERVATION_VALUES_MAX: usize = 4_096;

/// A finished search of an episode in progress, with the action played after it.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedSearch {
    /// Slot of the episode.
    pub slot: usize,
    /// Number of the episode in the slot, as in [`FinishedEpisode::number`](crate::FinishedEpisode::number).
    pub number: u64,
    /// Seed with which the rules start the episode.
    pub seed: u64,
    /// Number of actions before the search.
    pub plies: usize,
    /// The actions before the search; none of more than [`ACTIONS_MAX`].
    pub actions: Vec<Action>,
    /// The searched observation `[C, H, W]` of an environment outside this process, of at most 4,096 values.
    pub observation: Option<Vec<f32>>,
    /// The searched state as drawn by an environment outside this process: see [`game::Environments::picture`].
    pub picture: Option<String>,
    /// The weights version of all predictions in the search.
    pub weights_version: u64,
    /// Number of simulations, including visits from a kept subtree.
    pub simulations: u32,
    /// The result of the search.
    pub analysis: Analysis,
    /// The action played.
    pub played: Action,
}

/// The latest search of each watched slot.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Number of watched slots, from slot 0.
    slots: usize,
    searches: Vec<WatchedSearch>,
}

impl Watch {
    /// Watches only this many slots.
    pub(crate) fn only(&mut self, slots: usize) {
        self.slots = slots;
        self.searches.retain(|search| search.slot < slots);
    }

    pub(crate) fn covers(&self, slot: usize) -> bool {
        slot < self.slots
    }

    /// Replaces the search of the slot, but no search with a picture by one without, because pictures are rare.
    pub(crate) fn keep(&mut self, search: WatchedSearch) {
        match self.searches.iter_mut().find(|earlier| earlier.slot == search.slot) {
            Some(earlier) if earlier.picture.is_some() && search.picture.is_none() => {}
            Some(earlier) => *earlier = search,
            None => self.searches.push(search),
        }
    }

    pub(crate) fn take(&mut self) -> Vec<WatchedSearch> {
        std::mem::take(&mut self.searches)
    }
}

#[cfg(test)]
mod tests {
    use experience::StepKind;
    use game::Game as _;
    use games::TicTacToe;
    use inference::Hashing;

    use super::*;
    use crate::settings::{Settings, SubtreeReuse};
    use crate::{Episodes, FinishedEpisode};

    /// Plays 2,000 rounds; returns the watched searches and the finished episodes.
    fn play(slots: usize) -> (Vec<WatchedSearch>, Vec<FinishedEpisode>) {
        // Each search evaluates a new root, so that no slot plays two moves in a round.
        let (subtree_reuse, full_simulations) = (SubtreeReuse::Discard, 16);
        let settings = Settings { games: 3, subtree_reuse, full_simulations, ..Settings::default() };
        let mut episodes = Episodes::new(TicTacToe::new(), settings, 1.0, 5);
        let mut evaluator = Hashing::new(TicTacToe::new().spec().observation, 9);
        let mut watched = Vec::new();
        for _ in 0..2_000 {
            episodes.watch(slots);
            episodes.advance(&mut evaluator, None).unwrap();
            watched.extend(episodes.take_watched());
        }
        (watched, episodes.drain_finished().collect())
    }

    #[test]
    fn every_search_of_a_watched_episode_is_seen_with_the_recorded_numbers() {
        let (watched, finished) = play(2);
        assert!(finished.len() > 6, "{}", finished.len());
        for episode in &finished {
            let seen: Vec<&WatchedSearch> =
                watched.iter().filter(|it| (it.slot, it.number) == (episode.slot, episode.number)).collect();
            let searched = episode.steps.iter().enumerate().filter(|(_, step)| step.kind != StepKind::Opening);
            let searched: Vec<_> = searched.filter(|_| episode.slot < 2).collect();
            assert_eq!(seen.len(), searched.len());
            for (seen, (ply, step)) in seen.iter().zip(searched) {
                let before: Vec<Action> = episode.steps[..ply].iter().map(|step| step.action).collect();
                assert_eq!((&seen.actions, seen.played), (&before, step.action));
                assert_eq!(step.kind.value(), Some(seen.analysis.value));
                assert_eq!(seen.weights_version, step.weights_version.0);
                assert_eq!((seen.analysis.actions.len(), &seen.observation), (9 - ply, &None));
            }
        }
    }

    #[test]
    fn nothing_is_kept_of_unwatched_episodes_and_they_play_the_same_games() {
        let (watched, finished) = play(0);
        assert_eq!((watched, finished), (Vec::new(), play(3).1));
    }
}
