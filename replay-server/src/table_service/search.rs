//! One page of a search over the trajectories of a table.
//!
//! No index is kept for searches, which are rare: a search examines all trajectories and keeps the first of a page. The
//! table service examines a slice for each [`Command::Search`](super::Command::Search), and other commands between two
//! slices. Start with [`Search::advance`].

use std::collections::BTreeMap;

use experience::TrajectoryId;
use proto::convert::{Invalid, invalid};
use proto::replay::{Found, ListOrder, SearchPage, SearchQuery};
use replay::{Held, Table};

/// Maximum number of trajectories in a slice, which takes at most a few milliseconds.
const SLICE_TRAJECTORIES: usize = 1 << 15;

/// The place of a trajectory in an order: unique, and ascending from the first trajectory. A place depends on nothing
/// but the trajectory, so inserts and removals of other trajectories do not affect a cursor.
type Place = [u64; 3];

/// A search for one page.
#[derive(Debug)]
pub struct Search {
    query: SearchQuery,
    /// The last place on the previous page.
    after: Option<Place>,
    /// Trajectories with this number or a higher number need no examination any more.
    below: u64,
    /// The first trajectories after `after` so far: the page, and one more to show that the page is not the last.
    found: BTreeMap<Place, Found>,
    is_complete: bool,
}

impl Search {
    /// Starts a search.
    ///
    /// # Errors
    /// The cursor does not come from a search in this order.
    pub fn new(query: SearchQuery) -> Result<Self, Invalid> {
        let after = query.cursor.as_deref().map(|cursor| place_at(cursor, query.order)).transpose()?;
        let newest = after.filter(|_| query.order == ListOrder::Newest);
        let below = newest.map_or(u64::MAX, |[place, ..]| !place);
        Ok(Self { query, after, below, found: BTreeMap::new(), is_complete: false })
    }

    /// Returns true once the page is complete.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Examines the next slice of the table.
    pub fn advance(&mut self, table: &Table) {
        let is_in_order = self.query.order == ListOrder::Newest;
        let mut examined = 0;
        for (number, held) in table.held_below(self.below).take(SLICE_TRAJECTORIES) {
            (examined, self.below) = (examined + 1, number);
            self.examine(number, held);
            if is_in_order && self.is_beyond_page() {
                break;
            }
        }
        self.is_complete = examined < SLICE_TRAJECTORIES || (is_in_order && self.is_beyond_page());
    }

    /// Returns the page, which must be complete.
    pub fn page(mut self) -> SearchPage {
        let beyond = if self.is_beyond_page() { self.found.pop_last() } else { None };
        let last = self.found.last_key_value().filter(|_| beyond.is_some());
        let next = last.map(|(place, _)| cursor_at(*place, self.query.order));
        SearchPage { found: self.found.into_values().collect(), next }
    }

    /// Returns true if `found` has one trajectory more than the page.
    fn is_beyond_page(&self) -> bool {
        self.found.len() > self.query.limit
    }

    fn examine(&mut self, number: u64, held: Held<'_>) {
        let place = place(number, held, self.query.order);
        let is_earlier = self.after.is_some_and(|after| place <= after);
        let last = self.found.last_key_value().filter(|_| self.is_beyond_page());
        // Few trajectories of a large table pass this test, so that the rest need no look at their content.
        if is_earlier || last.is_some_and(|(last, _)| place > *last) || !self.accepts(held) {
            return;
        }
        self.found.insert(place, found(held));
        if self.found.len() - 1 > self.query.limit {
            self.found.pop_last();
        }
    }

    fn accepts(&self, held: Held<'_>) -> bool {
        let SearchQuery { filter, quarantined, .. } = &self.query;
        quarantined.is_none_or(|quarantined| held.quarantined == quarantined) && filter.accepts(held.trajectory)
    }
}

fn found(held: Held<'_>) -> Found {
    let Held { trajectory, quarantined, surprise, inserted, revision, .. } = held;
    Found {
        id: trajectory.id(),
        plies: trajectory.plies(),
        outcome: trajectory.outcome(),
        weights_version: trajectory.last_weights_version(),
        surprise,
        quarantined,
        inserted_unix_ms: u64::try_from(inserted.as_millis()).unwrap_or(u64::MAX),
        revision,
    }
}

fn place(number: u64, held: Held<'_>, order: ListOrder) -> Place {
    match order {
        ListOrder::Newest => [!number, 0, 0],
        ListOrder::Surprising => {
            // Floats of at least 0 ascend with their bits; trajectories without a surprise come last.
            let surprise = held.surprise.map_or(0, |surprise| u64::from(surprise.to_bits()) + 1);
            [!surprise, !number, 0]
        }
        ListOrder::ASCENDING => {
            let TrajectoryId { actor, epoch, sequence } = held.trajectory.id();
            [actor, epoch, sequence]
        }
    }
}

fn cursor_at([a, b, c]: Place, order: ListOrder) -> String {
    format!("{}-{a:x}-{b:x}-{c:x}", order as i32)
}

fn place_at(cursor: &str, order: ListOrder) -> Result<Place, Invalid> {
    let mut place = Place::default();
    for (number, digits) in place.iter_mut().zip(cursor.split('-').skip(1)) {
        *number = u64::from_str_radix(digits, 16).unwrap_or_default();
    }
    // A malformed cursor differs from the only cursor at the parsed place.
    if cursor_at(place, order) == cursor {
        return Ok(place);
    }
    Err(invalid("cursor", "does not come from a search in this order"))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};
    use std::time::Duration;

    use experience::{ActionProbability, Filter, Step, StepKind, Trajectory, WeightsVersion};
    use game::{Action, Outcome, Player, mix};
    use proptest::prelude::*;
    use replay::{TableSettings, Window};

    use super::*;

    const ORDERS: [ListOrder; 3] = [ListOrder::ASCENDING, ListOrder::Newest, ListOrder::Surprising];
    const OUTCOMES: [Outcome; 4] =
        [Outcome::Win(Player::First), Outcome::Win(Player::Second), Outcome::Draw, Outcome::Finished];

    /// Returns an empty table with a capacity in items.
    fn table(capacity_items: u64) -> Table {
        let settings = crate::Config::default().settings().unwrap().tables[0].table;
        let window = Window { items_min: 1, capacity_items, ..settings.window };
        Table::new(TableSettings { window, ..settings })
    }

    fn insert(table: &mut Table, trajectory: Trajectory) {
        let _ = table.insert(trajectory, Duration::from_millis(5));
    }

    /// Returns a game with one item.
    fn game(id: TrajectoryId, plies: usize, value: f32, outcome: Outcome, version: u64) -> Trajectory {
        let policy = vec![ActionProbability { action: Action(0), probability: 1.0 }];
        let weights_version = WeightsVersion(version);
        let step = |kind| Step { action: Action(0), reward: 0.0, kind, weights_version };
        let mut steps = vec![step(StepKind::Fast { value }); plies];
        steps[0] = step(StepKind::Full { policy, value });
        Trajectory::of(id, "any", &steps, outcome).unwrap()
    }

    fn page(table: &Table, query: &SearchQuery) -> SearchPage {
        let mut search = Search::new(query.clone()).unwrap();
        while !search.is_complete() {
            search.advance(table);
        }
        let page = search.page();
        assert!(page.found.len() <= query.limit, "{} of {}", page.found.len(), query.limit);
        page
    }

    /// Returns all trajectories of a search, page by page; calls `between` after each page.
    fn pages(table: &mut Table, mut query: SearchQuery, mut between: impl FnMut(&mut Table)) -> Vec<TrajectoryId> {
        let mut ids = Vec::new();
        loop {
            let SearchPage { found, next } = page(table, &query);
            ids.extend(found.into_iter().map(|found| found.id));
            let Some(next) = next else { return ids };
            query.cursor = Some(next);
            between(table);
        }
    }

    proptest! {
        #[test]
        fn pages_hold_what_a_naive_filter_of_all_games_holds(
            games in prop::collection::vec((0..3_u64, 1..6_usize, 0..4_u8, 0..4_usize, 0..5_u64, any::<bool>()), 0..40),
            (outcome, actor) in (prop::option::of(0..4_usize), prop::option::of(0..3_u64)),
            versions in prop_oneof![Just((0_u64, u64::MAX)), Just((1_u64, 3_u64))],
            lengths in prop_oneof![Just((0_u32, 9_u32)), Just((2_u32, 4_u32))],
            (quarantined, limit) in (prop::option::of(any::<bool>()), 1..9_usize),
        ) {
            let mut table = table(1_000);
            for (number, &(actor, plies, value, outcome, version, quarantined)) in games.iter().enumerate() {
                let id = TrajectoryId { actor, epoch: 1, sequence: mix(number as u64) };
                insert(&mut table, game(id, plies, f32::from(value) / 4.0, OUTCOMES[outcome], version));
                if quarantined {
                    let _ = table.quarantine(id);
                }
            }
            let filter = Filter {
                outcome: outcome.map(|outcome| OUTCOMES[outcome]),
                actor,
                weights_versions: versions.0..=versions.1,
                plies: lengths.0..=lengths.1,
            };
            for order in ORDERS {
                let mut naive: Vec<_> = table.held().filter(|held| {
                    let (length, version) = (held.trajectory.plies() as u32, held.trajectory.last_weights_version().0);
                    (filter.outcome.is_none() || filter.outcome == Some(held.trajectory.outcome()))
                        && (actor.is_none() || actor == Some(held.trajectory.id().actor))
                        && (quarantined.is_none() || quarantined == Some(held.quarantined))
                        && (versions.0 <= version && version <= versions.1)
                        && (lengths.0 <= length && length <= lengths.1)
                }).collect();
                match order {
                    ListOrder::Newest => {}
                    ListOrder::ASCENDING => naive.sort_by_key(|held| held.trajectory.id()),
                    ListOrder::Surprising => naive.sort_by(|a, b| {
                        let [a, b] = [a, b].map(|held| held.trajectory.surprise().unwrap_or(-1.0));
                        b.total_cmp(&a)
                    }),
                }
                let naive: Vec<_> = naive.iter().map(|held| held.trajectory.id()).collect();
                let query = SearchQuery { order, filter: filter.clone(), quarantined, limit, ..SearchQuery::default() };
                prop_assert_eq!(pages(&mut table, query, |_| {}), naive, "{:?}", order);
            }
        }
    }

    #[test]
    fn paging_loses_and_repeats_no_game_that_stays_while_others_come_and_go() {
        for order in ORDERS {
            let mut table = table(60);
            let mut alive: VecDeque<TrajectoryId> = VecDeque::new();
            let mut stayed: BTreeSet<TrajectoryId> = BTreeSet::new();
            let mut next = 0;
            let mut come = |table: &mut Table, games: u64, stayed: &mut BTreeSet<TrajectoryId>| {
                for number in next..next + games {
                    let id = TrajectoryId { actor: 1, epoch: 1, sequence: mix(number) };
                    insert(table, game(id, 2, (mix(id.sequence) % 1_000) as f32 / 1e3, Outcome::Draw, 1));
                    alive.push_back(id);
                    if alive.len() > 60 {
                        stayed.remove(&alive.pop_front().unwrap());
                    }
                }
                next += games;
                alive.clone()
            };
            stayed.extend(come(&mut table, 60, &mut BTreeSet::new()));
            let query = SearchQuery { order, limit: 5, ..SearchQuery::default() };
            let listed = pages(&mut table, query, |table| drop(come(table, 2, &mut stayed)));
            let distinct: BTreeSet<_> = listed.iter().copied().collect();
            assert_eq!(distinct.len(), listed.len(), "{order:?} repeats a game");
            assert!((1..60).contains(&stayed.len()) && stayed.is_subset(&distinct), "{order:?} loses a game");
        }
    }

    #[test]
    fn a_command_examines_one_slice_and_keeps_one_page() {
        for order in ORDERS {
            let mut table = table(100_000);
            let first = game(TrajectoryId { actor: 1, epoch: 1, sequence: 0 }, 1, 0.5, Outcome::Draw, 1);
            for sequence in 0..SLICE_TRAJECTORIES as u64 + 10 {
                insert(&mut table, first.with_id(TrajectoryId { actor: sequence.min(1), epoch: 1, sequence }));
            }
            let limit = 3;
            let mut all = Search::new(SearchQuery { order, limit, ..SearchQuery::default() }).unwrap();
            all.advance(&table);
            assert_eq!(all.found.len(), limit + 1);
            let filter = Filter { actor: Some(0), ..Filter::default() };
            let mut oldest = Search::new(SearchQuery { order, filter, limit, ..SearchQuery::default() }).unwrap();
            oldest.advance(&table);
            assert!(!oldest.is_complete() && oldest.found.is_empty());
            assert_eq!(oldest.below, 10, "{order:?}");
            oldest.advance(&table);
            assert!(oldest.is_complete());
            assert_eq!(oldest.page().found.len(), 1);
        }
    }

    #[test]
    fn malformed_cursors_are_refused_and_no_cursor_panics() {
        let search = |cursor: &str| {
            let query = SearchQuery { cursor: Some(cursor.to_owned()), ..SearchQuery::default() };
            Search::new(query).map(|mut search| search.advance(&table(9)))
        };
        let shape = ["", "x", "1", "1-0-0", "1-0-0-0-0"];
        let number = ["1-+1-0-0", "1-01-0-0", "1-g-0-0", "1-A-0-0", "1-10000000000000000-0-0"];
        for cursor in shape.into_iter().chain(number).chain(["2-1-0-0"]) {
            assert_eq!(search(cursor).unwrap_err().field, "cursor", "{cursor}");
        }
        for cursor in ["1-0-0-0", "1-ffffffffffffffff-0-0", "1-1-2-3"] {
            search(cursor).unwrap();
        }
    }
}
