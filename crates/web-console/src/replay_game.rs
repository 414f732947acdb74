//! The page of one stored game: the position at a ply by the rules, the value over all plies, and the search policy
//! that the actor stored, next to the policy of the latest network. Start with [`render`].

use std::collections::BTreeMap;
use std::ops::ControlFlow::Continue;
use std::time::Duration;

use axum::http::StatusCode;
use experience::{Step, StepKind, Trajectory, TrajectoryId};
use figures::plot::{Axis, BLUE, Chart, Figure, GREY, ORANGE, Point, Series, Style};
use game::{Action, Game as _, Place, Player, Players, Scoring};
use games::{AnyGame, AnyPosition, GameKind};
use maud::{Markup, html};
use proto::replay::Located;
use run_metrics::words::{date, percent};
use tokio::time::timeout;
use transport::security::{Caller, Scope};

use crate::boards::{self, Highlights};
use crate::charts::{HEIGHT, WIDTH, chart};
use crate::games::picture;
use crate::page::{hidden, steps, table};
use crate::play::{self, Address};
use crate::problem::{Problem, blocking};
use crate::quarantine;
use crate::replay_servers::{Servers, within};
use crate::site::Site;
use crate::thinker::{Opinion, Question};
use crate::visitors::{Form, address};

/// Path of the page.
pub(crate) const PATH: &str = "/replay/game";

/// Maximum number of listed moves of a search policy.
const MOVES_MAX: usize = 8;
/// Maximum number of points of the value curve.
const POINTS_MAX: usize = 1000;
/// Time limit of the latest network, which leaves the rest of a request to the replay server.
const OPINION_TIMEOUT: Duration = Duration::from_secs(4);
/// Time to wait for other searches: each step through the game asks again.
const TURN_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns the address of a stored game, at the start or at a ply.
pub(crate) fn address_of(id: TrajectoryId, server: &str, ply: Option<usize>) -> String {
    let (id, ply) = (id.slashed(), ply.map(|ply| ply.to_string()));
    let fields = [("server", server), ("id", id.as_str())];
    address(PATH, fields.into_iter().chain(ply.as_deref().map(|ply| ("ply", ply))))
}

/// Reads the id of a stored game.
pub(crate) fn id_in(fields: &Form) -> Result<TrajectoryId, Problem> {
    fields.text("id").parse::<TrajectoryId>().map_err(|error| Problem::invalid(format!("{error}.")))
}

/// Renders the page for the fields `id`, `server` and `ply`, with a form if the caller may change the quarantine. A
/// visitor with the scope `infer` also sees the opinion of the latest network.
pub(crate) async fn render(site: &Site, caller: &Caller, fields: &Form) -> Result<Markup, Problem> {
    let id = id_in(fields)?;
    let ply = match fields.text("ply") {
        "" => 0,
        text => text.parse::<usize>().map_err(|_| Problem::invalid(format!("`{text}` is not the number of a ply.")))?,
    };
    let servers = Servers::of(site, fields.text("server")).await?;
    let Some(located) = within(servers.inspector.get(id)).await? else {
        let text = format!("The replay server does not hold the game {}; old games leave the tables.", id.slashed());
        return Err(Problem::new(StatusCode::NOT_FOUND, text));
    };
    if located.trajectory.id() != id {
        return Err(Problem::unavailable("The replay server returned another game."));
    }
    let word = (site.settings.scopes.contains(Scope::Admin) && caller.has(Scope::Admin)).then(|| site.word.clone());
    let opinion = opinion(site, caller, question(&located.trajectory, ply)).await;
    let view = View { located, server: servers.name, ply, word, opinion };
    // A game may have thousands of plies.
    blocking(move || view.render()).await
}

/// Returns the question for the latest network at a ply; `None` after the last move, and for an environment outside the
/// process.
fn question(trajectory: &Trajectory, ply: usize) -> Option<Question> {
    let game = games::stored(trajectory.game()).ok().filter(|game| !matches!(game, GameKind::Recorded(_)))?;
    let actions = trajectory.steps().take(ply).map(|step| step.action).collect();
    let seed = trajectory.episode().seed;
    (ply < trajectory.plies()).then_some(Question { game, seed, actions, version: None, simulations: 0 })
}

/// Returns the opinion of the latest network, or why there is none; `None` for a visitor without the scope `infer`.
async fn opinion(site: &Site, caller: &Caller, question: Option<Question>) -> Option<Result<Opinion, String>> {
    let question = question.filter(|_| site.may_search(caller))?;
    let busy = || Some(Err("others search at the moment; load the page again.".to_owned()));
    let Some(mut ticket) = site.thinking.join(caller.name()) else { return busy() };
    if timeout(TURN_TIMEOUT, ticket.turn(|_| ())).await.is_err() {
        return busy();
    }
    Some(match timeout(OPINION_TIMEOUT, ticket.think(question, |_| Continue(()))).await {
        Ok(thought) => thought.map_err(|error| format!("{error:#}.")),
        Err(_) => Err("it took more than 4 s; load the page again.".to_owned()),
    })
}

/// A stored game at a ply.
struct View {
    located: Located,
    server: String,
    ply: usize,
    /// Word against forged forms, if the visitor may change the quarantine.
    word: Option<String>,
    /// The opinion of the latest network on the position, or why it is missing; `None` if the visitor may see none.
    opinion: Option<Result<Opinion, String>>,
}

/// A game, replayed by the rules.
struct Replayed {
    /// The position at the ply, or the last position that is known.
    position: AnyPosition,
    /// The move at the ply, with the search; `None` after the last move.
    step: Option<Step>,
    /// Cells of the move before the ply.
    last: Option<Place>,
    /// The value of each searched position for the first player, by ply.
    values: Vec<Point>,
    /// The ply of the first move that breaks the rules.
    illegal: Option<usize>,
}

impl Replayed {
    fn new(game: &AnyGame, trajectory: &Trajectory, ply: usize) -> Self {
        let mut position = game.start_from(trajectory.episode().seed);
        let (mut shown, mut last, mut values, mut illegal) = (None, None, Vec::new(), None);
        for (index, step) in trajectory.steps().enumerate() {
            if let Some(value) = step.kind.value() {
                let sign = if game.to_move(&position) == Player::First { 1.0 } else { -1.0 };
                values.push(Point { x: index as f64, y: sign * f64::from(value) });
            }
            let action = step.action;
            if index + 1 == ply {
                last = game.board(&position).and_then(|board| board.place(action));
            }
            if index == ply {
                shown = Some((position.clone(), step));
            }
            if !is_action(game, action) || game.try_play(&mut position, action).is_err() {
                illegal = Some(index);
                break;
            }
        }
        let (position, step) = shown.map_or((position, None), |(position, step)| (position, Some(step)));
        Self { position, step, last, values, illegal }
    }
}

/// Returns true if the game has this action. Replay servers do not know the rules.
fn is_action(game: &AnyGame, action: Action) -> bool {
    action.index() < game.spec().actions
}

/// Draws the position with the last move, shaded by the stored search.
fn position(game: &AnyGame, name: &str, Replayed { position, step, last, .. }: &Replayed) -> Markup {
    let mut marks = Highlights { game: name, last: *last, ..Highlights::default() };
    let board = game.board(position);
    if let (Some(board), Some(step)) = (&board, step) {
        let policy = step.kind.policy().iter();
        marks.visits = policy.filter_map(|entry| Some((board.place(entry.action)?, entry.probability))).collect();
    }
    html! { div.position { (picture(game, position, board.as_ref(), &marks)) } }
}

/// Shows the stored observation of an environment outside this program; `None` for a game with rules.
fn observed(trajectory: &Trajectory, ply: usize) -> Option<Markup> {
    // The observation after the last move belongs to the segment of this move.
    let from = ply.min(trajectory.plies().saturating_sub(1));
    let segment = trajectory.segment(from, 0)?;
    let mut values = vec![0.0; segment.observation_layout()?.observation_values()];
    segment.observation(ply - from, &mut values)?;
    Some(boards::numbers(&values))
}

impl View {
    fn render(&self) -> Result<Markup, Problem> {
        let trajectory = &self.located.trajectory;
        let kind = games::stored(trajectory.game()).map_err(|error| Problem::unavailable(format!("{error}.")))?;
        let (game, plies) = (kind.rules(), trajectory.plies());
        if self.ply > plies {
            return Err(Problem::invalid(format!("The game has {plies} plies; there is no ply {}.", self.ply)));
        }
        let replayed = Replayed::new(&game, trajectory, self.ply);
        let shown = replayed.illegal.map_or(self.ply, |illegal| self.ply.min(illegal));
        let actions = trajectory.steps().map(|step| step.action).take(shown);
        Ok(html! {
            h1 { "Game " (trajectory.id().slashed()) " of " (trajectory.game()) }
            (self.facts())
            h2 { "Position after " (shown) " of " (plies) " plies" }
            @if let Some(illegal) = replayed.illegal {
                p.warning role="alert" { "The move at ply " (illegal) " breaks the rules; later positions are unknown." }
            }
            (self.steps(plies))
            (position(&game, trajectory.game(), &replayed))
            @if let Some(observed) = observed(trajectory, shown) { (observed) }
            @if let Some(address) = Address::of_actions(&kind, trajectory.episode().seed, actions) {
                p { a href=(address.link(play::PATH)) { "Play from here" } }
            }
            @if let Some(step) = &replayed.step {
                (search(&game, &replayed.position, step, self.opinion.as_ref()))
            } @else if replayed.illegal.is_none() {
                p { "The game is over: " (trajectory.outcome().name()) "." }
            }
            h2 { "Value" }
            div.charts { (chart(self.curve(&game, replayed.values))) }
            (self.changes())
        })
    }

    fn facts(&self) -> Markup {
        let Located { trajectory, inserted_unix_ms, quarantined, revision, .. } = &self.located;
        let state = if *quarantined { "in quarantine" } else { "sampled" };
        html! {
            p {
                strong { (trajectory.outcome().name()) } " · actor " (trajectory.id().actor) " · weights v"
                (trajectory.last_weights_version().0) " · " strong { (state) } " · stored "
                (date(*inserted_unix_ms as f64 / 1000.0)) " · revision " (revision)
            }
        }
    }

    /// Renders the links and the form that lead to other plies.
    fn steps(&self, plies: usize) -> Markup {
        let (id, ply) = (self.located.trajectory.id(), self.ply);
        html! {
            nav.plies aria-label="Plies" {
                (steps(ply, plies, |ply| address_of(id, &self.server, Some(ply))))
                form method="get" action=(PATH) {
                    (hidden([("server", self.server.clone()), ("id", id.slashed())]))
                    label { "Ply " input type="range" name="ply" min="0" max=(plies) value=(ply) data-submit; }
                    " " button { "Show" }
                }
            }
        }
    }

    /// Returns the curve of values, with a mark at the ply and a line at the outcome.
    fn curve(&self, game: &AnyGame, values: Vec<Point>) -> Figure {
        let trajectory = &self.located.trajectory;
        let outcome =
            (game.spec().scoring == Scoring::Outcome).then(|| f64::from(trajectory.outcome().value_for(Player::First)));
        let title = match outcome {
            Some(_) => "Value of the search for the first player",
            None => "Return that the search expects",
        };
        let here = values.iter().copied().filter(|point| point.x == self.ply as f64).collect();
        let plies = trajectory.plies() as f64;
        let y = match outcome {
            Some(_) => Axis::new(-1.0, 1.0),
            None => Axis::around(values.iter().map(|point| point.y)),
        };
        let every = values.len().div_ceil(POINTS_MAX).max(1);
        let line = |label: &str, colour, style, points| Series { label: label.to_owned(), colour, style, points };
        let ends = |y: f64| [0.0, plies].map(|x| Point { x, y }).to_vec();
        let series = vec![
            line("outcome", GREY, Style::Thin, outcome.map(ends).unwrap_or_default()),
            line("search", BLUE, Style::Thick, values.into_iter().step_by(every).collect()),
            line("", ORANGE, Style::Discs, here),
        ];
        let (title, x_name) = (title.to_owned(), "plies".to_owned());
        let (width, height, x) = (WIDTH, HEIGHT, Axis::new(0.0, plies));
        Figure { title: String::new(), columns: vec![vec![Chart { title, width, height, x_name, x, y, series }]] }
    }

    /// Renders the form that quarantines or releases the game or the actor.
    fn changes(&self) -> Markup {
        let (id, quarantined) = (self.located.trajectory.id(), self.located.quarantined);
        let (change, verb) = if quarantined { ("release", "Release") } else { ("quarantine", "Quarantine") };
        html! {
            @if let Some(word) = &self.word {
                h2 { "Quarantine" }
                p.note {
                    "Games in quarantine are not sampled. A game is in quarantine while the game or the actor is."
                }
                form method="post" action=(quarantine::PATH) {
                    (hidden([("word", word.as_str()), ("server", self.server.as_str()), ("change", change)]))
                    (hidden([("id", id.slashed())]))
                    @if !quarantined { p { label { "Reason " input name="reason" maxlength="200"; } } }
                    p { label { input type="checkbox" name="confirm" value="yes" required; " " (verb) ", I am sure" } }
                    button name="suspect" value="game" { (verb) " this game" }
                    " " button name="suspect" value="actor" { (verb) " all games of actor " (id.actor) }
                }
            }
        }
    }
}

/// Renders the move at a ply, the search policy from which it was drawn, and the raw policy of the latest network.
fn search(game: &AnyGame, at: &AnyPosition, step: &Step, opinion: Option<&Result<Opinion, String>>) -> Markup {
    let name = |action: Action| if is_action(game, action) { game.action_name(at, action) } else { action.to_string() };
    let player = match (game.spec().players, game.to_move(at)) {
        (Players::One, _) => "Next action",
        (Players::Two, Player::First) => "The first player plays",
        (Players::Two, Player::Second) => "The second player plays",
    };
    let without = match step.kind {
        StepKind::Opening => Some("The move was drawn at random, without a search."),
        StepKind::Fast { .. } => Some("A fast search chose the move; its policy is not stored."),
        StepKind::Full { .. } => None,
    };
    let shares = shares(step, opinion);
    let columns = &["move", "stored", "now"][..if matches!(opinion, Some(Ok(_))) { 3 } else { 2 }];
    let row = |&(action, of_action): &(Action, [Option<f64>; 2])| {
        let name = html! { @if action == step.action { strong { (name(action)) } } @else { (name(action)) } };
        let cells = of_action.map(|share| html! { (percent(share)) });
        [name].into_iter().chain(cells).take(columns.len()).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<Markup>> = shares.iter().take(MOVES_MAX).map(row).collect();
    html! {
        p {
            (player) " " strong { (name(step.action)) } ", weights v" (step.weights_version.0)
            @if let Some(value) = step.kind.value() { "; value for the player to move " (format!("{value:+.3}")) }
            "."
        }
        @if let Some(without) = without { p.note { (without) } }
        @match opinion {
            Some(Ok(Opinion { analysis, version })) => {
                p {
                    "The latest network, " (version) " without a search: value for the player to move "
                    (format!("{:+.3}", analysis.network_value)) "."
                }
            }
            Some(Err(reason)) => { p.note { "The latest network is not shown: " (reason) } }
            None => {}
        }
        @if !shares.is_empty() { (table("Policy", columns, &rows)) }
        @if shares.len() > MOVES_MAX { p.note { (shares.len() - MOVES_MAX) " more moves" } }
    }
}

/// Returns the share of each move in the stored policy and in the policy of the latest network, the largest first.
fn shares(step: &Step, opinion: Option<&Result<Opinion, String>>) -> Vec<(Action, [Option<f64>; 2])> {
    let mut shares: BTreeMap<Action, [Option<f64>; 2]> = BTreeMap::new();
    for entry in step.kind.policy() {
        shares.entry(entry.action).or_default()[0] = Some(entry.probability.into());
    }
    if let Some(Ok(Opinion { analysis, .. })) = opinion {
        for (&action, &prior) in analysis.actions.iter().zip(&analysis.priors) {
            shares.entry(action).or_default()[1] = Some(prior.into());
        }
    }
    let mut shares: Vec<_> = shares.into_iter().collect();
    let largest = |shares: &[Option<f64>; 2]| shares.iter().flatten().copied().fold(0.0, f64::max);
    shares.sort_by(|(_, a), (_, b)| largest(b).total_cmp(&largest(a)));
    shares
}

#[cfg(test)]
mod tests {
    use experience::{ActionProbability, Element, Episode, ObservationLayout, Observations, WeightsVersion};
    use game::Outcome;

    use super::*;

    #[test]
    fn the_stored_observations_of_an_environment_are_numbers_at_every_ply() {
        let layout = ObservationLayout { element: Element::F32, frame_values: 1, stack: 1 };
        let mut observations = Observations::new(layout).unwrap();
        (0_u8..3).for_each(|ply| observations.push(&[f32::from(ply) + 0.25]).unwrap());
        let weights_version = WeightsVersion(1);
        let step = |kind| Step { action: Action(1), reward: 0.0, kind, weights_version };
        let policy = vec![ActionProbability { action: Action(1), probability: 1.0 }];
        let steps = [step(StepKind::Opening), step(StepKind::Full { policy, value: 0.5 })];
        let id = TrajectoryId { actor: 7, epoch: 3, sequence: 0 };
        let episode = Episode::of(Outcome::Finished);
        let trajectory = Trajectory::of_recorded(id, "gym:CartPole-v1", &steps, episode, observations).unwrap();
        for (ply, expected) in ["0.25", "1.25", "2.25"].into_iter().enumerate() {
            let shown = observed(&trajectory, ply).unwrap().into_string();
            assert!(shown.contains(expected), "{ply}: {shown}");
        }
        assert!(observed(&trajectory, 3).is_none());
        let without = Trajectory::of(id, "tic_tac_toe", &steps, Outcome::Draw).unwrap();
        assert!(observed(&without, 0).is_none());
    }
}
