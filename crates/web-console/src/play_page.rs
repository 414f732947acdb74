//! The page of a game that a visitor plays or steps through: board, moves, opinion of the network, and forms. Start
//! with [`show`].

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use fleet::RunDirectory;
use fleet::run_directory::load_run;
use game::{Board, Game as _, Outcome, Place, Player, Players, Scoring};
use games::{AnyGame, AnyPosition};
use maud::{Markup, html};
use run_file::RunFile;
use run_metrics::words::percent;
use selfplay::{Analysis, Proven};
use version_store::VersionStore;
use weights::WeightsVersion;

use crate::boards::{Highlights, Link, cell_name, sides};
use crate::games::picture;
use crate::page::{hidden, link, steps, table};
use crate::play::{ANSWER, Address, EVENTS, PATH, Play, RECORD, SIDES, SIMULATIONS_MAX, ways};
use crate::problem::{Problem, blocking};
use crate::site::Site;
use crate::thinker::{Opinion, Thinker};
use crate::visitors::Form;

/// The game to play next to a run whose game has no rules in this program.
const USUAL: &str = "connect_four";
/// Number of moves in the table of a search.
const MOVES_SHOWN: usize = 8;

/// The response to a visitor who plays.
#[derive(Debug)]
pub(crate) enum Shown {
    /// Another address.
    Moved(String),
    /// A page. `next` is the time and the address of another page, as in [`framed`](crate::page::framed).
    Page { status: StatusCode, next: Option<String>, main: Markup },
}

impl Shown {
    /// Returns a whole page.
    pub(crate) fn page(main: Markup) -> Self {
        Self::Page { status: StatusCode::OK, next: None, main }
    }
}

/// Facts about the position besides the rules.
#[derive(Debug, Default)]
pub(crate) struct News<'a> {
    /// Result of a search.
    pub(crate) opinion: Option<&'a Opinion>,
    /// Seconds after which a browser without scripts asks for a search; `None` if no search is to come.
    pub(crate) seconds: Option<u64>,
    /// State of the search, or the reason for the failure.
    pub(crate) text: &'a str,
    /// Status of a request that failed.
    pub(crate) failure: Option<StatusCode>,
}

/// A game with the choices for the next one.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) play: Play,
    /// Kept versions, the latest first; `None` if an inference server chooses the version.
    versions: Option<Vec<WeightsVersion>>,
}

/// Shows the game of an address, or moves on to the address after a typed move.
pub(crate) async fn show(site: &Site, may_search: bool, fields: Form) -> Result<Shown, Problem> {
    // A button comes before the text, which stays in the form.
    let typed = ["choice", "move"].map(|name| fields.text(name)).into_iter().find(|text| !text.is_empty());
    let (typed, is_new) = (typed.map(str::to_owned), Address::starts_anew(&fields));
    let page = Page::read(site, fields).await?;
    match typed.map(|text| page.play.typed(&text)) {
        Some(Ok(address)) => Ok(Shown::Moved(address.link(PATH))),
        Some(Err(problem)) => {
            Ok(page.shown(&News { text: &problem, failure: Some(StatusCode::BAD_REQUEST), ..News::default() }))
        }
        None if is_new => Ok(Shown::Moved(page.play.address.link(PATH))),
        None if page.play.needs_search() && !may_search => {
            Ok(page.shown(&News { text: "A search needs a token with the scope infer.", ..News::default() }))
        }
        None if page.play.needs_search() => {
            Ok(page.shown(&News { text: "Thinking…", seconds: Some(0), ..News::default() }))
        }
        None => Ok(page.shown(&News::default())),
    }
}

/// Renders the state of a search, an element that the script replaces.
pub(crate) fn progress(text: &str) -> Markup {
    html! { p.note id="progress" aria-live="off" { (text) } }
}

impl Page {
    /// Reads the game of an address, on a thread that may wait for a disk.
    pub(crate) async fn read(site: &Site, fields: Form) -> Result<Self, Problem> {
        let (run, thinker) = (site.settings.run.clone(), Arc::clone(&site.thinking.thinker));
        blocking(move || Self::of_run(&run, &*thinker, &fields)).await
    }

    fn of_run(run: &RunDirectory, thinker: &dyn Thinker, fields: &Form) -> Result<Self, Problem> {
        let config: RunFile = load_run(run).map_err(anyhow::Error::from)?;
        let is_local = !thinker.is_remote();
        let kept = is_local.then(|| VersionStore::kept(run.path())).transpose()?;
        // An environment outside this program has no rules here.
        let usual = if games::is_outside(&config.run.game) { USUAL } else { &config.run.game };
        let address = Address::read(fields, usual).map_err(Problem::invalid)?;
        let version = address.version.filter(|_| is_local);
        let play = Play::new(Address { version, ..address }).map_err(Problem::invalid)?;
        Ok(Self { play, versions: kept.map(|kept| kept.into_keys().rev().collect()) })
    }

    /// Renders the page with the news about the position.
    pub(crate) fn shown(&self, news: &News<'_>) -> Shown {
        let Self { play, .. } = self;
        let answer = play.address.link(ANSWER);
        let main = html! {
            h1 { (if play.address.ply.is_some() { "Game of " } else { "Play " }) (play.address.game) }
            p role="status" { strong { (state(play)) } @if let Some(score) = score(play) { " " (score) } }
            @if news.seconds.is_some() {
                noscript { p { a href=(answer) { "Show the result of the search" } } }
                div data-events=(play.address.link(EVENTS)) data-answer=(answer) {}
            }
            (self.view(news))
            (self.steps())
            @if play.is_visitors_turn() { (self.moves()) }
            details { summary { "Moves: " (play.moves.len()) } p { @for each in &play.moves { (each.name) " " } } }
            h2 { "Game" }
            (self.options())
            h2 { "Game record" }
            form.search method="post" action=(RECORD) enctype="multipart/form-data" {
                label { "SGF of Go, Hex, Othello or Gomoku" input type="file" name="record" accept=".sgf" required; }
                button { "Step through" }
            }
        };
        let next = news.seconds.map(|seconds| format!("{seconds};url={answer}"));
        Shown::Page { status: news.failure.unwrap_or(StatusCode::OK), next, main }
    }

    /// Renders the board with the cells that the visitor can choose, or with the moves of a search and a table of them;
    /// an element that the script replaces.
    fn view(&self, news: &News<'_>) -> Markup {
        let Self { play, .. } = self;
        let board = play.rules.board(&play.position);
        let mut marks = Highlights { game: &play.address.game, last: play.last, ..Highlights::default() };
        if let Some(board) = board.as_ref().filter(|_| play.is_visitors_turn()) {
            marks.links = links(play, board);
        }
        if let (Some(board), Some(Opinion { analysis, .. })) = (&board, news.opinion) {
            let shares = analysis.actions.iter().zip(&analysis.policy);
            marks.visits = shares.filter_map(|(action, share)| Some((board.place(*action)?, *share))).collect();
            marks.variation = play.variation(analysis).into_iter().map(|(_, place)| place).collect();
        }
        html! {
            div id="view" aria-live="polite" {
                @if news.failure.is_some() { p.warning role="alert" { (news.text) } } @else { (progress(news.text)) }
                div.position { (picture(&play.rules, &play.position, board.as_ref(), &marks)) }
                @if let Some(known) = news.opinion { (opinion(play, known)) }
            }
        }
    }

    /// Renders the links to other plies and states of the game.
    fn steps(&self) -> Markup {
        let Self { play, .. } = self;
        let (ply, plies) = (play.ply, play.moves.len());
        let link = |name: &str, to: Option<Address>| link(name, to.map(|address| address.link(PATH)));
        let at = |ply| Address { ply: Some(ply), ..play.until(plies) };
        let from = |side| Some(Address { side, ..play.until(ply) });
        html! {
            nav.plies aria-label="Game" {
                @if play.address.ply.is_some() {
                    (steps(ply, plies, |ply| at(ply).link(PATH)))
                    (link("Play from here", play.played_on()))
                    form method="get" action=(PATH) {
                        (hidden(play.until(plies).fields()))
                        label { "Ply " input type="range" name="ply" min="0" max=(plies) value=(ply) data-submit; }
                        " " (ply) " of " (plies) " " button { "Show" }
                    }
                } @else {
                    (link("Take back", play.taken_back()))
                    (link("Hint", play.is_visitors_turn().then(|| Address { is_hint: true, ..play.until(ply) })))
                    @if play.rules.spec().players == Players::Two {
                        (link("Change sides", from(play.address.side.opponent())))
                    }
                    (link("Step through", (plies > 0).then(|| at(ply))))
                }
            }
        }
    }

    /// Renders the form that plays a move by notation, with buttons for moves that no cell means alone.
    fn moves(&self) -> Markup {
        let Self { play, .. } = self;
        let names = play.off_board().into_iter().map(|action| play.rules.action_name(&play.position, action));
        html! {
            form.plies method="get" action=(PATH) {
                // A fragment with an id would replace what the visitor types.
                label id="moves" { "Move " input name="move" autocomplete="off" maxlength="20"; }
                (hidden(play.until(play.ply).fields()))
                button { "Play" }
                @for name in names { button name="choice" value=(name) { (name) } }
            }
        }
    }

    /// Renders the form that changes the options of the game, or starts another.
    fn options(&self) -> Markup {
        let Self { play, versions } = self;
        let (Play { address, rules, moves, .. }, names) = (play, sides(&play.address.game));
        let number = |name: &str, label: &str, value: u64, max: Option<u32>| {
            html! { label { (label) input type="number" name=(name) value=(value) min="0" max=[max]; } }
        };
        html! {
            form.search method="get" action=(PATH) {
                label { "Board" input name="game" list="games" value=(address.game) required; }
                datalist id="games" {
                    @for game in games::GAMES.iter().flat_map(|entry| entry.examples()) { option value=(game) {} }
                }
                @if rules.spec().players == Players::One { (number("seed", "Seed", address.seed, None)) } @else {
                    label { "You play" select name="side" { @for (value, player) in SIDES {
                        option value=(value) selected[player == address.side] { (names[player.index()]) }
                    } } }
                }
                (number("simulations", "Simulations", address.simulations.into(), Some(SIMULATIONS_MAX)))
                @if let Some(versions) = versions {
                    label { "Weights" select name="version" { option value="" { "latest" } @for version in versions {
                        option value=(version.0) selected[Some(*version) == address.version] { (version) }
                    } } }
                } @else { p.note { "Weights: the latest of the inference server, which serves no other version." } }
                (hidden(address.ply.map(|ply| ("ply", ply))))
                (hidden([("moves", play.until(moves.len()).moves), ("of", address.episode())]))
                button { "Change" }
                button name="new" value="1" { "New game" }
            }
        }
    }
}

/// Returns the cells that a visitor can choose: empty cells, or pieces and then the targets of the chosen piece.
fn links(play: &Play, board: &Board) -> Vec<Link> {
    let (origin, here) = (play.origin(board), play.until(play.ply));
    let name = |cell| cell_name(&play.address.game, board, cell);
    let mut links = BTreeMap::new();
    for &(action, place) in &board.moves {
        if let Place::Step { from: cell, .. } = place {
            let is_chosen = Some(cell) == origin;
            let from = if is_chosen { String::new() } else { name(cell) };
            let verb = if is_chosen { "cancel the choice of" } else { "move from" };
            let (address, label) = (Address { from, ..here.clone() }.link(PATH), format!("{verb} {}", name(cell)));
            links.insert(cell, Link { cell, address, label, is_chosen });
        }
        let (Place::Cell(cell) | Place::Step { to: cell, .. }) = place else { continue };
        if matches!(place, Place::Step { from, .. } if Some(from) != origin) {
            continue;
        }
        let (address, label) = match ways(board, action) {
            1 => (play.after(action).link(PATH), format!("play {}", play.rules.action_name(&play.position, action))),
            _ => ("#moves".to_owned(), format!("choose a move to {} below", name(cell))),
        };
        links.insert(cell, Link { cell, address, label, is_chosen: false });
    }
    links.into_values().collect()
}

/// Renders value, expected moves and the best moves of a search.
fn opinion(play: &Play, Opinion { analysis, version }: &Opinion) -> Markup {
    let row = |index: usize| {
        let action = analysis.actions[index];
        let name = play.rules.action_name(&play.position, action);
        let link = html! { a href=(play.after(action).link(PATH)) { (name) } };
        let [policy, prior] = [&analysis.policy, &analysis.priors].map(|shares| percent(Some(shares[index].into())));
        let value = format!("{:+.2}", analysis.action_values[index]);
        let cells = [policy, analysis.visit_counts[index].to_string(), prior, value];
        [link].into_iter().chain(cells.map(|cell| html! { (cell) })).collect()
    };
    let mut ranked: Vec<usize> = (0..analysis.actions.len()).collect();
    let is_best = |index: usize| analysis.actions[index] == analysis.best;
    ranked.sort_by(|&a, &b| is_best(b).cmp(&is_best(a)).then(analysis.policy[b].total_cmp(&analysis.policy[a])));
    let rows: Vec<Vec<Markup>> = ranked.into_iter().take(MOVES_SHOWN).map(row).collect();
    html! {
        p { (summary(play, analysis)) " Weights " (version) "." }
        (table("Best moves of the search", &["move", "policy", "visits", "prior", "value"], &rows))
    }
}

/// Returns the player to move, or the result.
fn state(play: &Play) -> String {
    let names = sides(&play.address.game);
    let side = play.address.side;
    match play.outcome() {
        None if play.rules.spec().players == Players::One => "The game goes on.".to_owned(),
        None if play.is_visitors_turn() => format!("You are to move, as {}.", names[side.index()]),
        None => format!("To move: {}.", names[play.rules.to_move(&play.position).index()]),
        Some(Outcome::Win(winner)) if play.address.ply.is_some() => format!("Winner: {}.", names[winner.index()]),
        Some(Outcome::Win(winner)) if winner == side => "You win.".to_owned(),
        Some(Outcome::Win(_)) => "The program wins.".to_owned(),
        Some(Outcome::Draw) => "The game is a draw.".to_owned(),
        Some(Outcome::Finished | Outcome::Truncated) => "The game is over.".to_owned(),
    }
}

/// Returns the score of the position: areas in Go, rewards; `None` in other games.
fn score(play: &Play) -> Option<String> {
    if play.rules.spec().scoring == Scoring::Rewards {
        return Some(format!("Return so far: {:.2}.", play.reward));
    }
    let (AnyGame::Go(go), AnyPosition::Go(at)) = (&play.rules, &play.position) else { return None };
    let [black, white] = [Player::First, Player::Second].map(|player| go.area(at).points(player));
    Some(format!("Area: Black {black}, White {white} and komi {}.", go.komi().points()))
}

/// Describes the value of a search and the moves that it expects, in a sentence.
pub(crate) fn summary(play: &Play, analysis: &Analysis) -> String {
    let Analysis { value, network_value, .. } = analysis;
    let mover = sides(&play.address.game)[play.rules.to_move(&play.position).index()];
    let proven = match analysis.proven {
        Proven::Unknown => "",
        Proven::Win => ", a proven win",
        Proven::Draw => ", a proven draw",
        Proven::Loss => ", a proven loss",
    };
    let expected: Vec<String> = play.variation(analysis).into_iter().map(|(name, _)| name).collect();
    let expected = expected.join(" ");
    let of = if play.rules.spec().players == Players::One { String::new() } else { format!(" for {mover}") };
    format!("Value {value:+.2}{of} (network {network_value:+.2}){proven}; expects {expected}.")
}

#[cfg(test)]
mod tests {
    use game::Action;

    use super::*;

    fn page(query: &str) -> Page {
        let fields = Form::of_query(&format!("{PATH}?{query}").parse().unwrap());
        let play = Address::read(&fields, "chess").and_then(Play::new).unwrap();
        Page { play, versions: Some(vec![WeightsVersion(3)]) }
    }

    fn shown(query: &str) -> String {
        match page(query).shown(&News::default()) {
            Shown::Page { main, .. } => main.into_string(),
            Shown::Moved(address) => panic!("{address}"),
        }
    }

    #[test]
    fn a_piece_is_chosen_before_its_target() {
        let start = shown("");
        assert!(
            start.contains("aria-label=\"move from e2\"") && !start.contains("aria-label=\"play e2e4\""),
            "{start}"
        );
        assert_eq!(start.matches("class=\"hit\"").count(), 10, "eight pawns and two knights");
        let chosen = shown("from=e2");
        for part in ["aria-label=\"play e2e4\"", "aria-label=\"play e2e3\"", "hit chosen", "moves=e2e4\""] {
            assert!(chosen.contains(part), "{part} is not in {chosen}");
        }
        assert!(shown("from=e5").contains("aria-label=\"move from e2\""), "no piece of the player is on e5");
    }

    #[test]
    fn a_promotion_is_a_choice_below_the_board() {
        let page = shown("moves=a2a4_h7h5_a4a5_h5h4_a5a6_h4h3_a6b7_h3g2&from=b7");
        assert!(page.contains("href=\"#moves\" aria-label=\"choose a move to a8 below\""), "{page}");
        for name in ["b7a8q", "b7a8r", "b7a8b", "b7a8n", "b7c8n"] {
            assert!(page.contains(&format!("<button name=\"choice\" value=\"{name}\">{name}</button>")), "{page}");
        }
    }

    #[test]
    fn a_pass_is_a_button_and_a_column_is_a_link() {
        let go = shown("game=go-5&moves=C3_pass");
        assert!(go.contains("value=\"pass\">pass") && go.contains("Area: Black 25, White 0 and komi"), "{go}");
        assert_eq!(go.matches("class=\"hit\"").count(), 24);
        let four = shown("game=connect_four");
        assert!(four.contains("aria-label=\"play 4\"") && !four.contains("name=\"choice\""), "{four}");
        assert!(shown("game=cartpole-v1").contains("value=\"left\">left"), "a game without a board");
        assert!(shown("game=othello-6").contains("Black: 2 stones; White: 2 stones"), "discs are counted in words");
    }

    #[test]
    fn an_opinion_has_the_best_move_first_and_is_drawn() {
        let page = page("game=tic_tac_toe&hint=1");
        let analysis = Analysis {
            actions: [0, 4, 8].map(Action).to_vec(),
            visit_counts: vec![10, 60, 30],
            priors: vec![0.5, 0.3, 0.2],
            policy: vec![0.1, 0.3, 0.6],
            action_values: vec![0.0, 0.5, 0.25],
            value: 0.5,
            network_value: 0.25,
            principal_variation: [4, 0].map(Action).to_vec(),
            best: Action(4),
            proven: Proven::Win,
        };
        let opinion = Opinion { analysis, version: WeightsVersion(3) };
        let view = page.view(&News { opinion: Some(&opinion), ..News::default() }).into_string();
        let value = "Value +0.50 for first player (network +0.25), a proven win; expects 5 1. Weights v3.";
        let row = "moves=5\">5</a></th><td>30.0 %</td><td>60</td><td>30.0 %</td><td>+0.50</td>";
        for part in [value, row, "60 % of the search", "class=\"order\" x=\"15\" y=\"15\">1<"] {
            assert!(view.contains(part), "{part} is not in {view}");
        }
        let [best, other] = ["moves=5\">5</a>", "moves=9\">9</a>"].map(|part| view.find(part).unwrap());
        assert!(best < other && view.matches("<tr>").count() == 4, "{view}");
    }
}
