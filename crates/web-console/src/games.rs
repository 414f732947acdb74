//! Games in progress: listens to the actors of a run while a visitor watches, and draws the games for all tabs.
//!
//! [`Games`] belongs to the reader of the run. A task per actor keeps the latest search of each game; once a second,
//! the rules compute the positions from seeds and actions. Actors are not trusted: a line that is no snapshot, or
//! breaks the rules, is dropped.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use game::{Action, Board, Error, Game as _, Place, Player, Players, Scoring};
use games::{AnyGame, AnyPosition, GameKind};
use maud::{Markup, html};
use parking_lot::Mutex;
use service::live::{LiveClient, SearchedAction, Snapshot};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use url::form_urlencoded;

use crate::boards::{self, Highlights};
use crate::page::table;

/// Path of the page.
pub(crate) const PATH: &str = "/games";

/// Maximum number of games over all actors, and maximum number of actors that are listened to.
const GAMES_MAX: usize = 16;
/// Maximum number of games on the overview.
const OVERVIEW_GAMES_MAX: usize = 8;
/// Number of actions listed below a board.
const TOP_SHOWN: usize = 5;

/// Time for which a loaded page counts as watched; longer than the interval in which browsers without scripts load it
/// again.
const WATCHED: Duration = Duration::from_secs(15);
/// Time without a search after which a game is paused, and after which it is forgotten.
const PAUSED: Duration = Duration::from_secs(10);
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Time until the next connection to an actor.
const RETRY: Duration = Duration::from_secs(1);
/// Time limit of a connection; the actor ends it earlier.
const CONNECTION_MAX: Duration = Duration::from_secs(30);
/// Maximum number of dropped lines in a connection.
const FAULTS_MAX: usize = 16;

/// Limits on a snapshot, above the limits of an actor.
const NAME_LENGTH_MAX: usize = 100;
const ACTIONS_MAX: usize = 4096;
const TOP_MAX: usize = 64;

/// The visits of pages that show games.
#[derive(Debug, Clone, Default)]
pub(crate) struct Visits(Arc<Mutex<Option<Instant>>>);

impl Visits {
    pub(crate) fn note(&self, now: Instant) {
        *self.0.lock() = Some(now);
    }

    /// Returns true if a visitor still sees such a page.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        self.0.lock().is_some_and(|last| now.saturating_duration_since(last) < WATCHED)
    }
}

/// Identifies a game. The order lets the games of many actors take turns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    place: usize,
    actor: String,
}

impl Key {
    /// Reads the game that the address of a page selects; `None` if it selects none.
    pub(crate) fn of_query(query: Option<&str>) -> Option<Self> {
        let fields: BTreeMap<_, _> = form_urlencoded::parse(query?.as_bytes()).collect();
        Some(Self { place: fields.get("place")?.parse().ok()?, actor: fields.get("actor")?.to_string() })
    }

    fn address(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("actor", &self.actor).append_pair("place", &self.place.to_string());
        format!("{PATH}?{}", query.finish())
    }
}

/// Games that a page can select, as elements with the id `game`. The first page that selects a game draws it, for all
/// tabs.
pub(crate) type Selected = BTreeMap<Key, Large>;
/// A game, drawn large when it is needed.
pub(crate) type Large = LazyLock<String, Box<dyn FnOnce() -> String + Send>>;

/// Returns the element of a selected game, or one that describes the absence.
pub(crate) fn selected(games: &Selected, key: &Key) -> String {
    let absent = || {
        html! {
            section.selected id="game" { p.empty { "Waiting for the next search in game " (key.place) " of " (key.actor) "." } }
        }
    };
    games.get(key).map_or_else(|| absent().into_string(), |large| String::clone(large))
}

/// The games of a run, drawn.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    /// Section of the overview.
    pub(crate) overview: Markup,
    /// Main part of the page.
    pub(crate) page: Markup,
    pub(crate) selected: Selected,
}

/// The games in progress of a run, while a visitor watches.
#[derive(Debug)]
pub(crate) struct Games {
    runtime: Handle,
    /// The tasks that listen to actors, by admin address.
    listeners: BTreeMap<SocketAddr, AbortOnDropHandle<()>>,
    kept: Arc<Kept>,
}

/// The latest search of each game.
#[derive(Debug, Default)]
struct Kept {
    games: Mutex<BTreeMap<Key, Search>>,
    has_warned: AtomicBool,
}

#[derive(Debug, Clone)]
struct Search {
    snapshot: Snapshot,
    received: Instant,
    /// Number of actions before the picture in the snapshot, which may come from an earlier search.
    drawn_plies: usize,
}

impl Games {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, listeners: BTreeMap::new(), kept: Arc::default() }
    }

    /// Listens to these actors, given by admin address and name; `None` stops listening.
    pub(crate) fn listen<'a>(&mut self, actors: Option<impl Iterator<Item = (SocketAddr, &'a str)>>, now: Instant) {
        let Self { runtime, listeners, kept } = self;
        let Some(actors) = actors else {
            listeners.clear();
            kept.games.lock().clear();
            return;
        };
        let actors: BTreeMap<SocketAddr, &str> = actors.take(GAMES_MAX).collect();
        listeners.retain(|address, listener| actors.contains_key(address) && !listener.is_finished());
        for (address, name) in actors {
            let task = || AbortOnDropHandle::new(runtime.spawn(follow(address, name.to_owned(), Arc::clone(kept))));
            listeners.entry(address).or_insert_with(task);
        }
        kept.games.lock().retain(|_, search| now.saturating_duration_since(search.received) < FORGOTTEN);
    }

    /// Draws the games.
    pub(crate) fn draw(&self, now: Instant) -> Drawn {
        let searches = self.kept.games.lock().clone();
        let mut games = Vec::new();
        for (key, search) in searches {
            let rules = rules_of(&search.snapshot);
            match scene(rules.as_ref(), &search, |_| Vec::new()) {
                Ok(scene) => games.push((key, search, scene)),
                Err(error) => {
                    self.kept.warn(&key.actor, &error);
                    self.kept.games.lock().remove(&key);
                }
            }
        }
        let empty = match self.listeners.len() {
            0 => "Games appear here while actors play.".to_owned(),
            actors => format!("Waiting for the next searches; actors: {actors}."),
        };
        let cards = games.iter().map(|(key, search, scene)| article(key, search, scene, now, TOP_SHOWN));
        let page = html! {
            @if games.is_empty() { p.empty { (empty) } }
            div.games { @for card in cards { (card) } }
        };
        let overview = html! {
            h2 { "Games in progress" }
            @if games.is_empty() { p.empty { (empty) } } @else { p { a href=(PATH) { "All games, with searches" } } }
            div.games {
                @for (key, search, scene) in games.iter().take(OVERVIEW_GAMES_MAX) {
                    @let name = format!("{}, ply {}", key.actor, search.snapshot.plies);
                    a.game href=(key.address()) aria-label={ (name) ", game " (key.place) } {
                        (scene.board) span.note { (name) }
                    }
                }
            }
        };
        let selected = games.into_iter().map(|(key, search, _)| {
            let of = key.clone();
            (key, Large::new(Box::new(move || large(&of, &search, now).into_string())))
        });
        Drawn { overview, page, selected: selected.collect() }
    }
}

/// Keeps the searches of an actor, in connection after connection.
async fn follow(admin: SocketAddr, actor: String, kept: Arc<Kept>) {
    loop {
        // The actor is restarting, has too many listeners, or has ended the connection.
        let ended = timeout(CONNECTION_MAX, read(admin, &actor, &kept)).await;
        tracing::debug!(actor, ?ended, "the connection to an actor ended");
        sleep(RETRY).await;
    }
}

async fn read(admin: SocketAddr, actor: &str, kept: &Kept) -> io::Result<()> {
    let mut client = LiveClient::connect(admin).await?;
    let mut faults = 0;
    while faults < FAULTS_MAX {
        match client.next().await {
            Ok(Some(snapshot)) if is_sound(&snapshot) => kept.keep(actor, snapshot, Instant::now()),
            Ok(None) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
            _ => {
                faults += 1;
                kept.warn(actor, &"no snapshot within the limits");
            }
        }
    }
    Ok(())
}

/// Returns true if a snapshot has a known game, bounded lists and finite numbers.
fn is_sound(snapshot: &Snapshot) -> bool {
    let Snapshot { game, actions, plies, observation, value, top, .. } = snapshot;
    let observation = observation.as_deref().unwrap_or_default();
    let mut numbers = top.iter().flat_map(|each| [each.prior, each.value]).chain([*value]);
    game.len() <= NAME_LENGTH_MAX
        && games::check_name(game).is_ok()
        && actions.len() <= ACTIONS_MAX.min(*plies)
        && observation.len() <= ACTIONS_MAX
        && top.len() <= TOP_MAX
        && numbers.all(f32::is_finite)
}

impl Kept {
    /// Keeps the latest search of a game, with the latest valid picture in the episode. Over the maximum number of
    /// games, the last places go.
    fn keep(&self, actor: &str, mut snapshot: Snapshot, received: Instant) {
        snapshot.picture = snapshot.picture.filter(|picture| boards::is_picture(picture));
        let (mut games, drawn_plies) = (self.games.lock(), snapshot.plies);
        let key = Key { place: snapshot.place, actor: actor.to_owned() };
        let mut search = Search { snapshot, received, drawn_plies };
        if let Some(earlier) = games.remove(&key)
            && search.snapshot.picture.is_none()
            // A restarted actor counts episodes from the start.
            && (search.snapshot.episode, search.snapshot.seed) == (earlier.snapshot.episode, earlier.snapshot.seed)
            && earlier.drawn_plies <= search.snapshot.plies
        {
            (search.snapshot.picture, search.drawn_plies) = (earlier.snapshot.picture, earlier.drawn_plies);
        }
        games.insert(key, search);
        while games.len() > GAMES_MAX {
            games.pop_last();
        }
    }

    /// Warns once that an actor sends lines that are no games.
    fn warn(&self, actor: &str, reason: &dyn std::fmt::Display) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(actor, %reason, "dropped a line that is no game in progress; further lines are dropped without a warning");
        }
    }
}

/// A game in progress, as drawn.
struct Scene {
    /// The position with the last move and shaded cells.
    board: Markup,
    /// Value for the first player, in a game that is won or lost.
    value_first: Option<f32>,
    /// Notation of the most visited actions, and of the action played.
    top: Vec<String>,
    played: String,
}

/// Returns the rules of a game; `None` for an environment outside this program.
fn rules_of(snapshot: &Snapshot) -> Option<AnyGame> {
    snapshot.game.parse::<GameKind>().ok().map(|kind| kind.rules())
}

/// Computes the position of a game, with the shares by which `shades` darkens cells.
///
/// # Errors
/// The actions break the rules.
fn scene(
    rules: Option<&AnyGame>,
    Search { snapshot, drawn_plies, .. }: &Search,
    shades: impl FnOnce(&Board) -> Vec<(Place, f32)>,
) -> Result<Scene, Error> {
    let is_sent = snapshot.actions.len() == snapshot.plies;
    let Some(rules) = rules.filter(|_| is_sent) else {
        let board = match (&snapshot.picture, &snapshot.observation) {
            (Some(picture), _) => boards::image(picture, *drawn_plies),
            (None, Some(observation)) => boards::numbers(observation),
            (None, None) => html! { p.empty { "The position is too large to be sent." } },
        };
        let name = |action| Action(action).to_string();
        let top = snapshot.top.iter().map(|each| name(each.action)).collect();
        return Ok(Scene { board, value_first: None, top, played: name(snapshot.played) });
    };
    let actions: Vec<Action> = snapshot.actions.iter().copied().map(Action).collect();
    let is_known = |action: Action| action.index() < rules.spec().actions;
    if let Some((ply, &action)) = actions.iter().enumerate().find(|(_, action)| !is_known(**action)) {
        return Err(Error::IllegalAt { game: rules.spec().name.clone(), ply, action });
    }
    let earlier = &actions[..actions.len().saturating_sub(1)];
    let mut position = rules.replay_from(snapshot.seed, earlier)?;
    let mut marks = Highlights { game: &snapshot.game, ..Highlights::default() };
    if let Some(&last) = actions.last() {
        marks.last = rules.board(&position).and_then(|board| board.place(last));
        rules.try_play(&mut position, last)?;
    }
    let name = |action| {
        let action = Action(action);
        let is_legal = is_known(action) && rules.is_legal(&position, action);
        if is_legal { rules.action_name(&position, action) } else { action.to_string() }
    };
    let (top, played) = (snapshot.top.iter().map(|each| name(each.action)).collect(), name(snapshot.played));
    let is_contest = rules.spec().scoring == Scoring::Outcome && rules.spec().players == Players::Two;
    let sign = if rules.to_move(&position) == Player::First { 1.0 } else { -1.0 };
    let drawn = rules.board(&position);
    marks.visits = drawn.as_ref().map(shades).unwrap_or_default();
    let board = picture(rules, &position, drawn.as_ref(), &marks);
    Ok(Scene { board, value_first: is_contest.then_some(sign * snapshot.value), top, played })
}

/// Returns the share of the visits of each listed action.
fn shares(snapshot: &Snapshot, board: &Board) -> Vec<(Place, f32)> {
    let total = visits(snapshot) as f32;
    let share = |each: &SearchedAction| Some((board.place(Action(each.action))?, each.visits as f32 / total));
    snapshot.top.iter().filter_map(share).collect()
}

/// Draws the board of a position, or writes the position as text in a game without a board.
pub(crate) fn picture(
    rules: &AnyGame,
    position: &AnyPosition,
    board: Option<&Board>,
    marks: &Highlights<'_>,
) -> Markup {
    match board {
        Some(board) => boards::draw(board, marks),
        None => html! { pre { (rules.render(position)) } },
    }
}

/// Returns the number of visits, at least 1: simulations, as a snapshot lists the most visited actions alone.
fn visits(snapshot: &Snapshot) -> u64 {
    let listed = snapshot.top.iter().map(|each| u64::from(each.visits)).sum();
    u64::max(listed, snapshot.simulations.into()).max(1)
}

/// Shows a game with the most visited actions, at most `count`.
fn article(key: &Key, search: &Search, scene: &Scene, now: Instant, count: usize) -> Markup {
    let Snapshot { game, plies, weights_version, simulations, value, top, played, .. } = &search.snapshot;
    let ([first, second], total) = (boards::sides(game), visits(&search.snapshot) as f32);
    let row = |(name, each): (&String, &SearchedAction)| {
        let name = html! { @if each.action == *played { strong { (name) } } @else { (name) } };
        let visits = format!("{} ({:.0} %)", each.visits, 100.0 * each.visits as f32 / total);
        vec![name, html! { (format!("{:.0} %", 100.0 * each.prior)) }, html! { (visits) }]
    };
    let rows: Vec<Vec<Markup>> = scene.top.iter().zip(top).take(count).map(row).collect();
    html! {
        article.game {
            h2 { a href=(key.address()) { (key.actor) ", game " (key.place) } }
            (scene.board)
            @if let Some(value) = scene.value_first {
                @let (width, text) = (50.0 * (1.0 + value.clamp(-1.0, 1.0)), format!("Value {value:+.2} for {first}"));
                svg.bar viewBox="0 0 100 5" preserveAspectRatio="none" role="img" aria-label=(text) {
                    rect.first width=(format!("{width:.0}")) height="5" {}
                }
                p { (text) @if value < 0.0 { ", better for " (second) } }
            } @else { p { "Value " (format!("{value:.2}")) } }
            p.note {
                (game) ", ply " (plies) ", " (simulations) " simulations, weights v" (weights_version) "; "
                (scene.played) " was played"
            }
            @if now.saturating_duration_since(search.received) > PAUSED {
                p.note { "Paused: no search for more than " (PAUSED.as_secs()) " s." }
            }
            // The name of a part with focus does not change with every move.
            (table("Most visited moves", &["move", "prior", "visits"], &rows))
        }
    }
}

/// Shows a selected game.
fn large(key: &Key, search: &Search, now: Instant) -> Markup {
    let snapshot = &search.snapshot;
    let rules = rules_of(snapshot);
    let shaded = scene(rules.as_ref(), search, |board| shares(snapshot, board));
    html! {
        section.selected id="game" {
            @if let Ok(scene) = &shaded { (article(key, search, scene, now, TOP_MAX)) }
            p { @if rules.is_some() { "Moves are shaded by visits. " } a href=(PATH) { "Close this game" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(game: &str, place: usize, actions: &[u16]) -> Snapshot {
        Snapshot {
            game: game.into(),
            place,
            episode: 1,
            seed: 3,
            plies: actions.len(),
            actions: actions.to_vec(),
            observation: None,
            picture: None,
            weights_version: 7,
            simulations: 32,
            value: 0.5,
            top: [(4, 24), (0, 8)]
                .map(|(action, visits)| SearchedAction { action, prior: 0.25, visits, value: 0.5 })
                .into(),
            played: 4,
        }
    }

    /// Draws these snapshots of the actor `a<b`, received at `received`.
    fn drawn(snapshots: Vec<Snapshot>, received: Instant, now: Instant) -> (Drawn, usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let games = Games::new(runtime.handle().clone());
        for snapshot in snapshots {
            assert!(is_sound(&snapshot), "{snapshot:?}");
            games.kept.keep("a<b", snapshot, received);
        }
        let drawn = games.draw(now);
        let kept = games.kept.games.lock().len();
        (drawn, kept)
    }

    #[test]
    fn a_game_has_a_board_the_value_and_the_search() {
        let now = Instant::now();
        let (drawn, _) = drawn(vec![snapshot("tic_tac_toe", 2, &[8])], now, now);
        let page = drawn.page.into_string();
        for part in [
            "/games?actor=a%3Cb&amp;place=2\">a&lt;b, game 2",
            "Board with 3 rows and 3 columns; first player: 1 stone; last move: row 3, column 3",
            "Value -0.50 for first player, better for second player",
            "tic_tac_toe, ply 1, 32 simulations, weights v7",
            "5 was played",
            "<td>25 %</td><td>24 (75 %)</td>",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        let key = Key::of_query(Some("actor=a%3Cb&place=2")).unwrap();
        let selected = selected(&drawn.selected, &key);
        assert!(selected.contains("75 % of the search") && !page.contains("% of the search"), "{selected}");
        assert!(drawn.overview.into_string().contains("aria-label=\"a&lt;b, ply 1, game 2\""));
    }

    #[test]
    fn games_without_a_board_are_text_or_numbers_and_too_long_ones_are_described() {
        let now = Instant::now();
        let mut outside = snapshot("gym:LunarLander-v3", 1, &[]);
        outside.observation = Some(vec![0.25; 8]);
        let mut long = snapshot("chess", 2, &[]);
        long.plies = 5000;
        let (drawn, kept) = drawn(vec![snapshot("cartpole-v1", 0, &[]), outside, long], now, now);
        let page = drawn.page.into_string();
        assert!(kept == 3 && page.contains("<pre>") && page.contains("0.25"), "{page}");
        assert!(page.contains("action 4") && page.contains("The position is too large to be sent."), "{page}");
    }

    #[test]
    fn a_picture_replaces_the_numbers_until_the_episode_ends_or_the_next_picture() {
        let now = Instant::now();
        let shown = |snapshots| {
            let page = drawn(snapshots, now, now).0.page.into_string();
            (page.matches("<img").count(), page)
        };
        let search = |episode, plies, picture: Option<&str>| {
            let (observation, picture) = (Some(vec![0.25; 8]), picture.map(str::to_owned));
            Snapshot { episode, plies, observation, picture, ..snapshot("gym:LunarLander-v3", 0, &[]) }
        };
        let [first, second] = ["iVBORw0KGgoAAAANSUhEUgAAAJYAAABkCAIA", "iVBORw0KGgoAAAANSUhEUgAAAJYAAABkCAIAB"];
        let (images, page) = shown(vec![search(1, 3, Some(first)), search(1, 5, None)]);
        assert!(images == 1 && page.contains("alt=\"The environment at ply 3\"") && page.contains("ply 5"), "{page}");
        let (images, page) = shown(vec![search(1, 3, Some(first)), search(1, 5, Some(second))]);
        assert!(images == 1 && page.contains(second) && page.contains("Picture of ply 5"), "{page}");
        let (images, page) = shown(vec![search(1, 3, Some(first)), search(2, 0, None)]);
        assert!(images == 0 && page.contains("0.25"), "{page}");
        let restarted = Snapshot { seed: 4, ..search(1, 5, None) };
        for other in [restarted, search(1, 2, None)] {
            let (images, page) = shown(vec![search(1, 3, Some(first)), other]);
            assert!(images == 0 && page.contains("0.25"), "{page}");
        }
        let (images, page) = shown(vec![search(1, 3, Some(&format!("{first}\"")))]);
        assert!(images == 0 && page.contains("0.25"), "{page}");
    }

    #[test]
    fn actions_against_the_rules_are_dropped_and_paused_games_say_so() {
        let now = Instant::now();
        let illegal = [vec![4, 4], vec![u16::MAX], vec![9]].into_iter().enumerate();
        let mut snapshots: Vec<_> = illegal.map(|(place, actions)| snapshot("tic_tac_toe", place, &actions)).collect();
        snapshots.push(snapshot("tic_tac_toe", 7, &[4]));
        let (drawn, kept) = drawn(snapshots, now, now + PAUSED + RETRY);
        let page = drawn.page.into_string();
        assert!(kept == 1 && page.contains("game 7") && page.contains("Paused: no search"), "{page}");
    }

    #[test]
    fn many_games_are_bounded_and_small_on_the_page() {
        let now = Instant::now();
        let games = (0..100).map(|place| snapshot("go-19", place, &(0..300).collect::<Vec<_>>())).collect();
        let (drawn, kept) = drawn(games, now, now);
        let (page, overview) = (drawn.page.into_string(), drawn.overview.into_string());
        assert_eq!((kept, page.matches("<svg class=\"board").count()), (GAMES_MAX, GAMES_MAX));
        assert_eq!(overview.matches("<svg class=\"board").count(), OVERVIEW_GAMES_MAX);
        assert!(page.len() < 200_000 && overview.len() < 100_000, "{} and {} bytes", page.len(), overview.len());
    }

    #[test]
    fn snapshots_beyond_the_limits_are_not_sound() {
        fn change(change: impl FnOnce(&mut Snapshot)) -> bool {
            let mut changed = snapshot("tic_tac_toe", 0, &[4]);
            change(&mut changed);
            is_sound(&changed)
        }
        assert!(change(|_| {}));
        assert!(!change(|each| each.game = "no_game".into()));
        assert!(!change(|each| each.game = format!("gym:{}", "x".repeat(100))));
        assert!(!change(|each| each.value = f32::INFINITY));
        assert!(!change(|each| each.plies = 0));
        assert!(
            !change(|each| each.actions = vec![0; 5000]) && !change(|each| each.observation = Some(vec![0.0; 5000]))
        );
        assert_eq!(Key::of_query(Some("actor=a&place=x")), None);
    }
}
