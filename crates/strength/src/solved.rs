//! Parses solved positions, and scores chosen moves and expected values against them.
//!
//! The format is CSV: a header `moves,band,…`, then one position per line. A line has the moves from the start in the
//! game's notation, a band (a name under which positions are counted together), and one score per action, the i-th
//! for `Action(i)`; empty if the action is illegal. A score is positive if the player to move then wins, 0 for a
//! draw, negative for a loss; larger is better. Moves are separated by spaces, or concatenated in games in which
//! every move is one character.
//!
//! In games with an [oracle](oracles), positions can also be [drawn] from a seed.
//!
//! This module does not search or evaluate: the caller chooses the moves. Start with [`parse`] and [`Accuracy`].

use game::{Action, Game};
use games::{Exhaustive, GameKind, SolvedPositions};
use oracles::LabelledPosition;
use serde::{Serialize, Serializer};

use crate::contestant::Assessment;

/// A non-final position with the exact score of every legal action. Illegal actions have no score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SolvedPosition {
    /// Actions from the start to the position.
    moves: Vec<Action>,
    band: String,
    /// Scores, `[A]`; `None` for illegal actions.
    scores: Vec<Option<i32>>,
    /// Best score.
    best: i32,
}

impl SolvedPosition {
    /// Returns the name of the band in which the position is counted, such as `early`.
    #[must_use]
    pub fn band(&self) -> &str {
        &self.band
    }

    /// Returns the score of an action, or `None` if it is illegal.
    #[must_use]
    pub fn score_of(&self, action: Action) -> Option<i32> {
        self.scores.get(action.index()).copied().flatten()
    }

    /// Returns the position.
    ///
    /// # Panics
    /// `game` differs from the game for which the position was parsed.
    #[must_use]
    pub fn position<G: Game>(&self, game: &G) -> G::Position {
        game.replay(&self.moves).expect("the moves were played when the position was read")
    }
}

/// The reason why a file of solved positions is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Error {
    /// The file, with line and field if the error concerns these.
    place: String,
    problem: String,
}

/// Parses solved positions of `game` from the text of `file`; the file name is used only in errors.
///
/// Empty lines are skipped. Fields are not quoted, because no notation has commas.
///
/// # Errors
/// The file is invalid; [`Error`] names the file, the line, the field and the expected form.
pub fn parse<G: Game>(game: &G, file: &str, text: &str) -> Result<Vec<SolvedPosition>, Error> {
    let error = |place: String, problem: String| Error { place: format!("{file}{place}"), problem };
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()));
    let header = lines.next().map_or("", |(_, line)| line.trim_start_matches('\u{feff}'));
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let actions = game.spec().actions;
    if columns.len() != 2 + actions || columns[..2] != ["moves", "band"] {
        let problem = format!(
            "the header is `{}`, expected `moves,band` and one column for each of {actions} actions",
            abridged(header)
        );
        return Err(error(", line 1".into(), problem));
    }
    let notation = Notation::of(game);
    let mut positions = Vec::new();
    for (line, text) in lines.filter(|(_, text)| !text.is_empty()) {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if fields.len() != columns.len() {
            let problem = format!("{} fields, expected {}", fields.len(), columns.len());
            return Err(error(format!(", line {line}"), problem));
        }
        let in_field = |(column, problem)| error(format!(", line {line}, field `{}`", columns[column]), problem);
        positions.push(parse_position(game, notation, &fields).map_err(in_field)?);
    }
    if positions.is_empty() {
        return Err(error(String::new(), "no positions".into()));
    }
    Ok(positions)
}

/// Returns the solved positions that the registry bundles with `game`; `None` if there are none.
#[must_use]
pub fn bundled<G: Game>(game: &G) -> Option<Vec<SolvedPosition>> {
    let SolvedPositions { file, csv } = game.spec().name.parse::<GameKind>().ok()?.entry().solved?;
    Some(parse(game, file, csv).expect("a test reads the bundled positions of every game"))
}

/// Draws up to `count` positions from a seed, with scores by the game's oracle; `None` if the game has no oracle. A
/// game with fewer positions returns fewer, as described at [`oracles::draw`].
#[must_use]
pub fn drawn(game: &GameKind, seed: u64, count: usize) -> Option<impl Iterator<Item = SolvedPosition> + use<>> {
    let solved = |LabelledPosition { actions, band, scores }: LabelledPosition| {
        let best = best_of(&scores);
        SolvedPosition { moves: actions, band: band.into(), scores, best }
    };
    Some(oracles::draw(game, seed, count)?.map(solved))
}

/// Returns true if the arena measures accuracy in a game: on bundled or drawn positions, unless it plays every line
/// of the game instead.
#[must_use]
pub fn is_measured(game: &GameKind) -> bool {
    let entry = game.entry();
    entry.solved.is_some() || (entry.exhaustive == Exhaustive::Skip && oracles::has_oracle(game))
}

/// Notation in the column `moves` of a file.
#[derive(Debug, Clone, Copy)]
enum Notation {
    RunTogether,
    Separated,
}

impl Notation {
    fn of<G: Game>(game: &G) -> Self {
        let start = game.start();
        let mut legal = Vec::new();
        game.legal_actions(&start, &mut legal);
        let single = |&action: &Action| game.action_name(&start, action).chars().count() == 1;
        if legal.iter().all(single) { Self::RunTogether } else { Self::Separated }
    }

    fn moves(self, text: &str) -> Vec<String> {
        match self {
            Self::RunTogether => text.chars().filter(|c| !c.is_whitespace()).map(String::from).collect(),
            Self::Separated => text.split_whitespace().map(String::from).collect(),
        }
    }
}

/// Parses a line; an error names the column and the problem.
fn parse_position<G: Game>(game: &G, notation: Notation, fields: &[&str]) -> Result<SolvedPosition, (usize, String)> {
    let (moves, position) = parse_moves(game, notation, fields[0]).map_err(|problem| (0, problem))?;
    if fields[1].is_empty() {
        return Err((1, "is empty, expected a name".into()));
    }
    let mut scores = Vec::with_capacity(fields.len() - 2);
    for (column, &field) in fields.iter().enumerate().skip(2) {
        let action = Action(u16::try_from(column - 2).expect("actions fit 16 bits"));
        let legal = game.is_legal(&position, action);
        scores.push(parse_score(field, legal).map_err(|problem| (column, problem))?);
    }
    let best = best_of(&scores);
    Ok(SolvedPosition { moves, band: fields[1].into(), scores, best })
}

fn best_of(scores: &[Option<i32>]) -> i32 {
    scores.iter().flatten().copied().max().expect("an unfinished position has a legal action")
}

fn parse_moves<G: Game>(game: &G, notation: Notation, text: &str) -> Result<(Vec<Action>, G::Position), String> {
    let mut position = game.start();
    let mut actions = Vec::new();
    for (ply, text) in notation.moves(text).into_iter().enumerate() {
        let number = ply + 1;
        let action = game.parse_action(&position, &text).map_err(|error| format!("move {number}: {error}"))?;
        game.try_play(&mut position, action).map_err(|_| format!("move {number}: `{text}` is not legal there"))?;
        actions.push(action);
    }
    match game.outcome(&position) {
        None => Ok((actions, position)),
        Some(_) => Err("the game is over after these moves".into()),
    }
}

fn parse_score(text: &str, legal: bool) -> Result<Option<i32>, String> {
    match (text.is_empty(), legal) {
        (true, false) => Ok(None),
        (true, true) => Err("is empty, and the action is legal".into()),
        (false, false) => Err(format!("holds `{}`, and the action is not legal", abridged(text))),
        (false, true) => text.parse().map(Some).map_err(|_| format!("`{}` is not a whole number", abridged(text))),
    }
}

/// Truncates a text to the maximum length of a quotation in an error.
fn abridged(text: &str) -> String {
    const CHARACTERS: usize = 60;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// Counts of good actions in scored positions, and the sum of value errors.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MoveTally {
    /// Number of scored positions.
    pub positions: u64,
    /// Number of outcome-preserving actions: their score has the sign of the best score, so that the theoretical win,
    /// draw or loss is preserved.
    pub outcome_preserving: u64,
    /// Number of optimal actions, which have the best score.
    pub optimal: u64,
    /// Number of positions with an expected value.
    pub values: u64,
    /// Sum of the distances between expected values and the results of best play, which are −1, 0 or 1.
    pub value_errors: f64,
}

impl MoveTally {
    /// Counts one chosen action and the expected value. An illegal action is neither optimal nor outcome-preserving.
    pub fn add(&mut self, position: &SolvedPosition, Assessment { action, value }: Assessment) {
        let (score, result) = (position.score_of(action), position.best.signum());
        self.positions += 1;
        self.outcome_preserving += u64::from(score.is_some_and(|score| score.signum() == result));
        self.optimal += u64::from(score == Some(position.best));
        if let Some(value) = value {
            self.values += 1;
            self.value_errors += (f64::from(value) - f64::from(result)).abs();
        }
    }

    /// Returns the mean distance between expected values and results of best play, in `[0, 2]`; `None` without values.
    #[must_use]
    pub fn value_error(&self) -> Option<f64> {
        (self.values > 0).then(|| self.value_errors / self.values as f64)
    }

    /// Returns the fraction of outcome-preserving actions, in `[0, 1]`; 0 without positions.
    #[must_use]
    pub fn outcome_preserving_share(&self) -> f64 {
        share(self.outcome_preserving, self.positions)
    }

    /// Returns the fraction of optimal actions, in `[0, 1]`; 0 without positions.
    #[must_use]
    pub fn optimal_share(&self) -> f64 {
        share(self.optimal, self.positions)
    }
}

fn share(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { count as f64 / of as f64 }
}

/// Serialises the counts and the fractions.
impl Serialize for MoveTally {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        let mut tally = serializer.serialize_struct("MoveTally", 6)?;
        tally.serialize_field("positions", &self.positions)?;
        tally.serialize_field("outcome_preserving", &self.outcome_preserving)?;
        tally.serialize_field("optimal", &self.optimal)?;
        tally.serialize_field("outcome_preserving_share", &self.outcome_preserving_share())?;
        tally.serialize_field("optimal_share", &self.optimal_share())?;
        tally.serialize_field("value_error", &self.value_error())?;
        tally.end()
    }
}

/// The tally of one band.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BandTally {
    /// Name of the band.
    pub band: String,
    /// Counts of the band.
    #[serde(flatten)]
    pub tally: MoveTally,
}

/// Tallies by band and overall.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// Counts over all positions.
    pub overall: MoveTally,
    /// Tallies by band, in the order of first appearance.
    pub bands: Vec<BandTally>,
}

impl Accuracy {
    /// Computes the accuracy of one chosen action per position, up to the length of the shorter argument.
    pub fn of<'a>(
        positions: impl IntoIterator<Item = &'a SolvedPosition>,
        chosen: impl IntoIterator<Item = Assessment>,
    ) -> Self {
        let mut accuracy = Self::default();
        for (position, chosen) in positions.into_iter().zip(chosen) {
            accuracy.add(position, chosen);
        }
        accuracy
    }

    /// Counts one chosen action and the expected value.
    pub fn add(&mut self, position: &SolvedPosition, chosen: Assessment) {
        self.overall.add(position, chosen);
        match self.bands.iter_mut().find(|band| band.band == position.band) {
            Some(band) => band.tally.add(position, chosen),
            None => {
                let mut tally = MoveTally::default();
                tally.add(position, chosen);
                self.bands.push(BandTally { band: position.band.clone(), tally });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use games::{ConnectFour, Hex, TicTacToe};

    use super::*;

    const HEADER: &str = "moves,band,c1,c2,c3,c4,c5,c6,c7";

    fn read(lines: &str) -> Result<Vec<SolvedPosition>, Error> {
        parse(&ConnectFour::new(), "some.csv", &format!("{HEADER}\n{lines}"))
    }

    fn refuses(lines: &str, expected: &str) {
        assert_eq!(read(lines).unwrap_err().to_string(), expected);
    }

    fn position(scores: &str) -> SolvedPosition {
        read(&format!(",early,{scores}")).unwrap().remove(0)
    }

    /// Returns whether an action is outcome-preserving, and whether it is optimal.
    fn score(action: Action, position: &SolvedPosition) -> (bool, bool) {
        let mut tally = MoveTally::default();
        tally.add(position, Assessment { action, value: None });
        (tally.outcome_preserving == 1, tally.optimal == 1)
    }

    #[test]
    fn a_position_has_the_score_of_each_action() {
        let position = &read("444444,middle,-2,0,3,,1,1,-1").unwrap()[0];
        assert_eq!(position.moves, [Action(3); 6]);
        assert_eq!(position.band(), "middle");
        assert_eq!(position.best, 3);
        assert_eq!([2, 3, 7].map(|action| position.score_of(Action(action))), [Some(3), None, None]);
    }

    #[test]
    fn a_move_that_keeps_the_win_preserves_the_outcome_and_the_quickest_is_optimal() {
        let scores = "5,9,0,-1,9,1,-2";
        assert_eq!(
            [1, 0, 2, 3].map(|action| score(Action(action), &position(scores))),
            [(true, true), (true, false), (false, false), (false, false)]
        );
    }

    #[test]
    fn in_a_lost_position_every_move_preserves_the_outcome() {
        let scores = "-5,-9,-1,-1,-9,-3,-2";
        assert_eq!([0, 2].map(|action| score(Action(action), &position(scores))), [(true, false), (true, true)]);
    }

    #[test]
    fn an_illegal_action_is_never_good() {
        let full = &read("444444,late,0,0,0,,0,0,0").unwrap()[0];
        assert_eq!([3, u16::MAX].map(|action| score(Action(action), full)), [(false, false); 2]);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        refuses(
            "48,early,1,1,1,1,1,1,1",
            "some.csv, line 2, field `moves`: move 2: `8` is not a move: expected a column from 1 to 7",
        );
        refuses("4444444,early,1,1,1,1,1,1,1", "some.csv, line 2, field `moves`: move 7: `4` is not legal there");
        refuses("1212121,early,1,1,1,1,1,1,1", "some.csv, line 2, field `moves`: the game is over after these moves");
        refuses("4,,1,1,1,1,1,1,1", "some.csv, line 2, field `band`: is empty, expected a name");
        refuses(
            "4,early,1,1,1,1,1,1,1\n\n4,early,1,1,x,1,1,1,1",
            "some.csv, line 4, field `c3`: `x` is not a whole number",
        );
        refuses("4,early,1,1,99999999999,1,1,1,1", "some.csv, line 2, field `c3`: `99999999999` is not a whole number");
        refuses("4,early,1,1,,1,1,1,1", "some.csv, line 2, field `c3`: is empty, and the action is legal");
        refuses("444444,early,1,1,1,1,1,1,1", "some.csv, line 2, field `c4`: holds `1`, and the action is not legal");
        refuses("4,early,1,1", "some.csv, line 2: 4 fields, expected 9");
        refuses("", "some.csv: no positions");
    }

    #[test]
    fn a_file_of_another_form_is_refused_by_its_header() {
        let header = |game: &TicTacToe, text: &str| parse(game, "some.csv", text).unwrap_err().to_string();
        assert_eq!(
            header(&TicTacToe::new(), HEADER),
            "some.csv, line 1: the header is `moves,band,c1,c2,c3,c4,c5,c6,c7`, \
         expected `moves,band` and one column for each of 9 actions"
        );
        assert!(header(&TicTacToe::new(), "").starts_with("some.csv, line 1: the header is ``"));
        let binary = "\u{0}é".repeat(500);
        assert!(header(&TicTacToe::new(), &binary).chars().count() < 200, "errors do not repeat whole files");
    }

    #[test]
    fn windows_line_ends_and_spaces_are_read() {
        let text = format!("\u{feff}{HEADER}\r\n4 4, early ,1, 2,3,4,5,6,7\r\n");
        let positions = parse(&ConnectFour::new(), "some.csv", &text).unwrap();
        assert_eq!(positions[0].moves, [Action(3); 2]);
        assert_eq!((positions[0].band(), positions[0].best), ("early", 7));
    }

    #[test]
    fn moves_of_more_than_one_character_are_separated_by_spaces() {
        let hex = Hex::new(games::hex::Size::MIN);
        let text = "moves,band,a1,b1,c1,a2,b2,c2,a3,b3,c3,swap\nb2 swap a1,only,,1,1,1,,1,1,1,1,\n";
        let position = &parse(&hex, "hex.csv", text).unwrap()[0];
        assert_eq!(position.moves, [Action(4), hex.swap(), Action(0)]);
        assert_eq!(hex.to_move(&position.position(&hex)), game::Player::Second);
    }

    #[test]
    fn accuracy_counts_by_band_and_overall() {
        let positions = read("4,late,5,9,0,-1,9,1,-2\n3,early,5,9,0,-1,9,1,-2\n5,late,5,9,0,-1,9,1,-2").unwrap();
        let values = [Some(0.5), None, Some(-0.25)];
        let chosen = std::iter::zip([0, 1, 2].map(Action), values);
        let accuracy = Accuracy::of(&positions, chosen.map(|(action, value)| Assessment { action, value }));
        let (values, value_errors) = (2, 1.75);
        assert_eq!(
            accuracy.overall,
            MoveTally { positions: 3, outcome_preserving: 2, optimal: 1, values, value_errors }
        );
        assert_eq!(
            serde_json::to_value(&accuracy.bands).unwrap(),
            serde_json::json!([
                {"band": "late", "positions": 2, "outcome_preserving": 1, "optimal": 0,
                 "outcome_preserving_share": 0.5, "optimal_share": 0.0, "value_error": 0.875},
                {"band": "early", "positions": 1, "outcome_preserving": 1, "optimal": 1,
                 "outcome_preserving_share": 1.0, "optimal_share": 1.0, "value_error": null},
            ])
        );
    }

    #[test]
    fn an_accuracy_without_positions_has_a_share_of_zero() {
        assert_eq!(Accuracy::default().overall.outcome_preserving_share(), 0.0);
    }

    #[test]
    fn bundled_positions_of_every_registered_game_are_read() {
        for name in games::GAMES.iter().flat_map(|entry| entry.examples()) {
            let kind: GameKind = name.parse().unwrap();
            let positions = bundled(&kind.rules());
            assert_eq!(positions.is_some(), kind.entry().solved.is_some(), "{name}");
        }
    }

    #[test]
    fn the_bundled_positions_are_read_for_their_game_only() {
        let positions = bundled(&ConnectFour::new()).unwrap();
        let count = |band| positions.iter().filter(|position| position.band() == band).count();
        assert_eq!(["early", "middle", "late"].map(count), [304, 484, 472]);
        assert_eq!(bundled(&TicTacToe::new()), None);
    }

    #[test]
    fn drawn_positions_are_scored_like_those_of_a_file_and_only_games_with_an_oracle_have_them() {
        let hex: GameKind = "hex-3".parse().unwrap();
        let positions: Vec<SolvedPosition> = drawn(&hex, 1, 20).unwrap().collect();
        assert_eq!(positions.len(), 20);
        for position in &positions {
            let board = position.position(&hex.rules());
            let mut legal = Vec::new();
            hex.rules().legal_actions(&board, &mut legal);
            let outcomes = legal.iter().map(|&action| score(action, position).0);
            assert!(outcomes.clone().any(|preserved| preserved) && !outcomes.clone().all(|preserved| preserved));
        }
        let is_measured = |name: &str| is_measured(&name.parse().unwrap());
        assert!(drawn(&"hex-6".parse().unwrap(), 1, 20).is_none() && !is_measured("hex-6"));
        assert!(is_measured("hex-5") && is_measured("connect_four") && !is_measured("tic_tac_toe"));
    }

    /// A uniformly random player preserves the outcome in 37.5 % of the bundled positions, a known property of the
    /// data.
    #[test]
    fn random_play_keeps_the_outcome_of_three_eighths_of_the_bundled_positions() {
        let positions = bundled(&ConnectFour::new()).unwrap();
        let expected = positions.iter().map(|position| {
            let legal: Vec<Action> = (0..7).map(Action).filter(|&action| position.score_of(action).is_some()).collect();
            let good = legal.iter().filter(|&&action| score(action, position).0).count();
            good as f64 / legal.len() as f64
        });
        let mean = expected.sum::<f64>() / positions.len() as f64;
        assert!((mean - 0.375).abs() < 0.001, "{mean}");
    }
}
