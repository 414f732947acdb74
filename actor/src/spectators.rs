//! Shows searches of a thread's first games to spectators, who listen at the admin port (`/live`). A round without
//! spectators costs one relaxed atomic load.

use std::ops::Range;
use std::time::{Duration, Instant};

use game::Game;
use selfplay::WatchedSearch;
use service::Live;
use service::live::{SearchedAction, Snapshot};

use crate::metrics;
use crate::play::Play;

/// Maximum number of games that an actor shows.
const GAMES_MAX: usize = 16;
/// Minimum time between two snapshots of one game.
const INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of searched actions in a snapshot.
const TOP_MAX: usize = 32;

/// The spectators of one thread's games.
#[derive(Debug)]
pub(crate) struct Spectators {
    live: Live,
    /// The places of the shown games among all shown games of the actor.
    places: Range<usize>,
    pub(crate) interval: Duration,
    /// Time of the last snapshots.
    shown: Option<Instant>,
}

impl Spectators {
    /// Returns the spectators of the thread with this index: all threads show equally many games, or the first threads
    /// one each.
    pub(crate) fn of_thread(live: &Live, index: usize, threads: usize) -> Self {
        let games = (GAMES_MAX / threads.max(1)).max(1);
        let places = (index * games).min(GAMES_MAX)..((index + 1) * games).min(GAMES_MAX);
        Self { live: live.clone(), places, interval: INTERVAL, shown: None }
    }

    /// Shows the searches that have finished in a round.
    pub(crate) fn show<G: Game>(&mut self, play: &mut Play<G>) {
        let is_watched = self.live.has_listeners();
        play.watch(if is_watched { self.places.len() } else { 0 });
        if !is_watched || self.shown.is_some_and(|shown| shown.elapsed() < self.interval) {
            return;
        }
        let searches = play.take_watched();
        if searches.is_empty() {
            return;
        }
        self.shown = Some(Instant::now());
        metrics::snapshots(searches.len() as u64);
        for search in searches {
            self.live.show(&snapshot(&play.game().spec().name, self.places.start, search));
        }
    }
}

/// Returns the snapshot of a search by a thread with this first place.
fn snapshot(game: &str, first_place: usize, search: WatchedSearch) -> Snapshot {
    let WatchedSearch {
        slot,
        number,
        seed,
        plies,
        actions,
        observation,
        picture,
        weights_version,
        simulations,
        analysis,
        played,
    } = search;
    let searched = (0..analysis.actions.len()).map(|index| SearchedAction {
        action: analysis.actions[index].0,
        prior: analysis.priors[index],
        visits: analysis.visit_counts[index],
        value: analysis.action_values[index],
    });
    let mut top: Vec<SearchedAction> = searched.collect();
    top.sort_by(|one, other| other.visits.cmp(&one.visits).then(other.prior.total_cmp(&one.prior)));
    top.truncate(TOP_MAX);
    Snapshot {
        game: game.to_owned(),
        place: first_place + slot,
        episode: number,
        seed,
        plies,
        actions: actions.iter().map(|action| action.0).collect(),
        observation,
        picture,
        weights_version,
        simulations,
        value: analysis.value,
        top,
        played: played.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_places_of_the_shown_games() {
        for threads in [1, 2, 3, 16, 40] {
            let places = |index| Spectators::of_thread(&Live::default(), index, threads).places;
            let all: Vec<usize> = (0..threads).flat_map(places).collect();
            assert!(all.iter().copied().eq(0..all.len()) && all.len() <= GAMES_MAX, "{threads}: {all:?}");
            assert!(all.len() > GAMES_MAX - threads.min(GAMES_MAX), "{threads}: {all:?}");
        }
    }

    #[test]
    fn games_for_two_players_are_shown_from_the_first_action() {
        let games = games::GAMES.iter().flat_map(|entry| entry.examples());
        for name in games {
            let spec = name.parse::<games::GameKind>().unwrap().rules().spec().clone();
            assert!(spec.players == game::Players::One || spec.max_plies <= selfplay::ACTIONS_MAX, "{name}");
        }
    }
}
