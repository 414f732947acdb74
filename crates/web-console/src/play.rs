//! A game that a visitor plays or steps through. The address of the page holds all of the state: game, options and
//! moves. Start with [`Play::new`].

use game::{Action, Board, Game as _, Outcome, Place, Player, Players};
use games::{AnyGame, AnyPosition, GameKind};
use selfplay::Analysis;
use weights::WeightsVersion;

use crate::boards::cell_name;
use crate::thinker::Question;
use crate::visitors::{Form, address};

/// Paths: the page, a search that the page follows, the page that waits for a search, the form of a game record.
pub(crate) const PATH: &str = "/play";
pub(crate) const EVENTS: &str = "/play/events";
pub(crate) const ANSWER: &str = "/play/answer";
pub(crate) const RECORD: &str = "/play/record";

/// Largest number of simulations of a search.
pub(crate) const SIMULATIONS_MAX: u32 = 10_000;
const SIMULATIONS_USUAL: u32 = 200;
/// Separates moves in an address. No notation contains it, and no address escapes it.
const SEPARATOR: &str = "_";
/// Longest list of moves in bytes: every link to a move repeats the list.
const MOVES_BYTES_MAX: usize = 16 << 10;
/// Longest name of a game in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Maximum number of moves shown from the principal variation.
const VARIATION_PLIES_MAX: usize = 12;
/// Names of the sides in an address.
pub(crate) const SIDES: [(&str, Player); 2] = [("first", Player::First), ("second", Player::Second)];

/// The state of a game in the address of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) game: String,
    /// Side of the visitor.
    pub(crate) side: Player,
    /// Simulations of a search; 0 for the network alone.
    pub(crate) simulations: u32,
    /// `None` for the latest version.
    pub(crate) version: Option<WeightsVersion>,
    /// Seed of the episode, in a game with randomness.
    pub(crate) seed: u64,
    /// Ply at which the visitor looks; `None` to play from the last position.
    pub(crate) ply: Option<usize>,
    pub(crate) is_hint: bool,
    /// Name of the cell with the piece that the visitor moves; empty before the choice.
    pub(crate) from: String,
    /// Names of the moves, separated by [`SEPARATOR`].
    pub(crate) moves: String,
}

impl Address {
    /// Reads the fields of an address; `usual` is the game if there is none. The error is a sentence.
    pub(crate) fn read(fields: &Form, usual: &str) -> Result<Self, String> {
        let text = |name| fields.text(name).to_owned();
        let simulations = fields.number("simulations", "Simulations")?.unwrap_or(SIMULATIONS_USUAL);
        if simulations > SIMULATIONS_MAX {
            return Err(format!("Simulations: {simulations} is more than {SIMULATIONS_MAX}."));
        }
        if fields.text("moves").len() > MOVES_BYTES_MAX || fields.text("game").len() > NAME_BYTES_MAX {
            return Err("The game or the list of moves is too long for an address.".to_owned());
        }
        let found = Self {
            game: Some(text("game")).filter(|game| !game.is_empty()).unwrap_or_else(|| usual.to_owned()),
            side: fields.picked("side", "Side", &SIDES)?,
            simulations,
            version: fields.number("version", "Version")?.map(WeightsVersion),
            seed: fields.number("seed", "Seed")?.unwrap_or_default(),
            ply: fields.number("ply", "Ply")?,
            is_hint: !fields.text("hint").is_empty(),
            from: text("from"),
            moves: text("moves"),
        };
        Ok(if Self::starts_anew(fields) { Self { moves: String::new(), ..found }.of_play() } else { found })
    }

    /// Returns true if the fields of a form start another game: by the button, or as board or seed differ from those of
    /// the moves.
    pub(crate) fn starts_anew(fields: &Form) -> bool {
        let of = fields.text("of");
        let is_other = format!("{} {}", fields.text("game"), fields.number("seed", "Seed").ok().flatten().unwrap_or(0));
        !fields.text("new").is_empty() || !of.is_empty() && of != is_other
    }

    /// Returns board and seed of the moves.
    pub(crate) fn episode(&self) -> String {
        format!("{} {}", self.game, self.seed)
    }

    /// Returns the address after these actions from the start; `None` for a game without rules or with too many moves,
    /// and if the rules refuse an action.
    pub(crate) fn of_actions(kind: &GameKind, seed: u64, actions: impl IntoIterator<Item = Action>) -> Option<Self> {
        let (game, rules) = (kind.to_string(), kind.rules());
        if games::is_outside(&game) {
            return None;
        }
        let (mut position, mut names) = (rules.start_from(seed), Vec::new());
        for action in actions {
            if action.index() >= rules.spec().actions || !rules.is_legal(&position, action) {
                return None;
            }
            names.push(rules.action_name(&position, action));
            rules.play(&mut position, action);
        }
        let (side, moves) = (rules.to_move(&position), names.join(SEPARATOR));
        let usual = Self::read(&Form::default(), &game).ok()?;
        (moves.len() <= MOVES_BYTES_MAX).then_some(Self { side, seed, moves, ..usual })
    }

    /// Returns the address of the game at which the visitor plays on, without a hint.
    fn of_play(self) -> Self {
        Self { ply: None, is_hint: false, from: String::new(), ..self }
    }

    /// Returns the fields that differ from the default, and those with a default that depends on the run.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let known = |text: &String| (!text.is_empty()).then(|| text.clone());
        let side = SIDES[self.side.index()].0.to_owned();
        let fields = [
            ("game", Some(self.game.clone())),
            ("side", Some(side)),
            ("simulations", Some(self.simulations.to_string())),
            ("version", self.version.map(|version| version.0.to_string())),
            ("seed", (self.seed != 0).then(|| self.seed.to_string())),
            ("ply", self.ply.map(|ply| ply.to_string())),
            ("hint", self.is_hint.then(|| "1".to_owned())),
            ("from", known(&self.from)),
            ("moves", known(&self.moves)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Returns the address for a browser, at one of the paths of play.
    pub(crate) fn link(&self, path: &str) -> String {
        let fields = self.fields();
        address(path, fields.iter().map(|(name, value)| (*name, value.as_str())))
    }
}

/// A move of a game.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) name: String,
    mover: Player,
    action: Action,
}

/// A game with the position that the address selects, computed by the rules.
#[derive(Debug)]
pub(crate) struct Play {
    pub(crate) address: Address,
    pub(crate) rules: AnyGame,
    pub(crate) position: AnyPosition,
    /// Number of moves before the position.
    pub(crate) ply: usize,
    /// Cells of the last move before the position.
    pub(crate) last: Option<Place>,
    /// Sum of the rewards before the position.
    pub(crate) reward: f64,
    /// All moves of the game, also after the position.
    pub(crate) moves: Vec<Move>,
    kind: GameKind,
}

impl Play {
    /// Replays the game of an address. The error is a sentence.
    pub(crate) fn new(mut address: Address) -> Result<Self, String> {
        let kind = address.game.parse::<GameKind>().map_err(|error| format!("{error}."))?;
        let rules = kind.rules();
        if rules.spec().players == Players::One {
            address.side = Player::First;
        }
        let (mut end, until) = (rules.start_from(address.seed), address.ply.unwrap_or(usize::MAX));
        let (mut position, mut before, mut reward, mut moves) = (end.clone(), None, 0.0, Vec::<Move>::new());
        for text in address.moves.split(SEPARATOR).filter(|text| !text.is_empty()) {
            let numbered = |error: String| format!("Move {}: {error}", moves.len() + 1);
            let action = legal(&rules, &end, text).map_err(numbered)?;
            let (name, mover) = (rules.action_name(&end, action), rules.to_move(&end));
            let gained = f64::from(rules.play(&mut end, action));
            if moves.len() < until {
                before = Some((std::mem::replace(&mut position, end.clone()), action));
                reward += gained;
            }
            moves.push(Move { name, mover, action });
        }
        let ply = address.ply.unwrap_or(moves.len());
        if ply > moves.len() {
            return Err(format!("The game has {} plies; there is no ply {ply}.", moves.len()));
        }
        let last = before.and_then(|(before, action)| rules.board(&before)?.place(action));
        Ok(Self { address, rules, position, ply, last, reward, moves, kind })
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.rules.outcome(&self.position)
    }

    /// Returns true if the program has to move.
    pub(crate) fn is_programs_turn(&self) -> bool {
        let is_other = self.rules.to_move(&self.position) != self.address.side;
        is_other && self.address.ply.is_none() && self.outcome().is_none()
    }

    /// Returns true if the visitor has to move.
    pub(crate) fn is_visitors_turn(&self) -> bool {
        !self.is_programs_turn() && self.address.ply.is_none() && self.outcome().is_none()
    }

    /// Returns true if the page needs a search: for a move of the program, for a hint, or for a look at a position.
    pub(crate) fn needs_search(&self) -> bool {
        self.outcome().is_none() && (!self.is_visitors_turn() || self.address.is_hint)
    }

    pub(crate) fn question(&self) -> Question {
        let Address { seed, version, simulations, .. } = self.address;
        let actions = self.moves[..self.ply].iter().map(|each| each.action).collect();
        Question { game: self.kind.clone(), seed, actions, version, simulations }
    }

    /// Returns the address of the game after the first `ply` moves.
    pub(crate) fn until(&self, ply: usize) -> Address {
        let names: Vec<&str> = self.moves[..ply].iter().map(|each| each.name.as_str()).collect();
        Address { moves: names.join(SEPARATOR), ..self.address.clone() }.of_play()
    }

    /// Returns the address at which a visitor plays on from the position, with the side to move; `None` after the end.
    pub(crate) fn played_on(&self) -> Option<Address> {
        let (side, found) = (self.rules.to_move(&self.position), self.until(self.ply));
        let simulations = if found.simulations == 0 { SIMULATIONS_USUAL } else { found.simulations };
        self.outcome().is_none().then_some(Address { side, simulations, ..found })
    }

    /// Returns the address after a legal action in the position.
    pub(crate) fn after(&self, action: Action) -> Address {
        let mut next = self.until(self.ply);
        if !next.moves.is_empty() {
            next.moves.push_str(SEPARATOR);
        }
        next.moves.push_str(&self.rules.action_name(&self.position, action));
        next
    }

    /// Returns the address after a move in the notation of the game. The error is a sentence.
    pub(crate) fn typed(&self, text: &str) -> Result<Address, String> {
        if self.is_visitors_turn() {
            return legal(&self.rules, &self.position, text).map(|action| self.after(action));
        }
        Err("It is not your turn.".to_owned())
    }

    /// Returns the address before the last move of the visitor; `None` if there is no such move.
    pub(crate) fn taken_back(&self) -> Option<Address> {
        let ply = self.moves[..self.ply].iter().rposition(|each| each.mover == self.address.side)?;
        Some(self.until(ply))
    }

    /// Returns the cell with the piece that the visitor moves.
    pub(crate) fn origin(&self, board: &Board) -> Option<usize> {
        let mut origins = board.moves.iter().filter_map(|&(_, place)| match place {
            Place::Step { from, .. } => Some(from),
            Place::Nowhere | Place::Cell(_) => None,
        });
        let is_chosen = |&cell: &usize| cell_name(&self.address.game, board, cell) == self.address.from;
        origins.find(is_chosen)
    }

    /// Returns the legal actions that no cell of the board means alone: passes, and promotions of the chosen piece; all
    /// actions in a game without a board.
    pub(crate) fn off_board(&self) -> Vec<Action> {
        let mut legal = Vec::new();
        self.rules.legal_actions(&self.position, &mut legal);
        if let Some(board) = self.rules.board(&self.position) {
            let origin = self.origin(&board);
            legal.retain(|&action| match board.place(action) {
                Some(Place::Step { from, .. }) => Some(from) == origin && ways(&board, action) > 1,
                place => place == Some(Place::Nowhere),
            });
        }
        legal
    }

    /// Returns the first moves of the principal variation, each with the cells.
    pub(crate) fn variation(&self, analysis: &Analysis) -> Vec<(String, Place)> {
        let mut position = self.position.clone();
        let next = |&action: &Action| {
            let place = self.rules.board(&position).and_then(|board| board.place(action));
            let is_legal = self.rules.is_legal(&position, action);
            let name = is_legal.then(|| self.rules.action_name(&position, action))?;
            self.rules.play(&mut position, action);
            Some((name, place.unwrap_or(Place::Nowhere)))
        };
        analysis.principal_variation.iter().take(VARIATION_PLIES_MAX).map_while(next).collect()
    }
}

/// Returns the number of actions with the same cells as a legal action.
pub(crate) fn ways(board: &Board, action: Action) -> usize {
    let place = board.place(action);
    board.moves.iter().filter(|(_, other)| Some(*other) == place).count()
}

/// Parses a legal action. The error is a sentence.
fn legal(rules: &AnyGame, position: &AnyPosition, text: &str) -> Result<Action, String> {
    let action = rules.parse_action(position, text).map_err(|error| format!("{error}."))?;
    if rules.is_legal(position, action) { Ok(action) } else { Err(format!("{text} is not legal in this position.")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the address in a query.
    fn address_of(query: &str) -> Result<Address, String> {
        Address::read(&Form::of_query(&format!("{PATH}?{query}").parse().unwrap()), "hex-5")
    }

    fn play(query: &str) -> Result<Play, String> {
        address_of(query).and_then(Play::new)
    }

    /// Returns the moves in the address of a later position.
    fn moves(address: Option<Address>) -> Option<String> {
        address.map(|address| address.moves)
    }

    #[test]
    fn an_address_is_read_as_it_was_written() {
        let usual = address_of("").unwrap();
        assert_eq!((usual.game.as_str(), usual.side, usual.ply, usual.version), ("hex-5", Player::First, None, None));
        let all = Address {
            game: "chess".into(),
            side: Player::Second,
            simulations: 0,
            version: Some(WeightsVersion(7)),
            seed: 9,
            ply: Some(1),
            is_hint: true,
            from: "e2".into(),
            moves: "e2e4_e7e5".into(),
        };
        for address in [usual, all] {
            let link = address.link(PATH);
            assert_eq!(address_of(link.split_once('?').unwrap().1).as_ref(), Ok(&address), "{link}");
        }
        let new = address_of("game=chess&moves=e2e4&ply=1&hint=1&from=e2&new=1").unwrap();
        assert_eq!((new.moves.as_str(), new.ply, new.is_hint, new.from.as_str()), ("", None, false, ""));
    }

    #[test]
    fn no_notation_contains_the_separator_or_needs_to_be_trimmed() {
        for name in games::GAMES.iter().flat_map(|entry| entry.examples()) {
            let rules = name.parse::<GameKind>().unwrap().rules();
            let (mut position, mut legal) = (rules.start(), Vec::new());
            for ply in 0..40 {
                rules.legal_actions(&position, &mut legal);
                for &action in &legal {
                    let text = rules.action_name(&position, action);
                    assert!(!text.contains(SEPARATOR) && text.trim() == text && !text.is_empty(), "{name}: {text}");
                    assert_eq!(rules.parse_action(&position, &text), Ok(action), "{name}: {text}");
                }
                let Some(&action) = legal.get(ply * 7 % legal.len().max(1)) else { break };
                rules.play(&mut position, action);
            }
        }
    }

    #[test]
    fn addresses_beyond_the_limits_and_against_the_rules_are_refused_with_a_sentence() {
        let long = format!("moves={}", "a1_".repeat(MOVES_BYTES_MAX));
        let name = format!("game={}", "x".repeat(NAME_BYTES_MAX + 1));
        for (query, reason) in [
            (long.as_str(), "too long for an address."),
            (name.as_str(), "too long for an address."),
            ("simulations=10001", "Simulations: 10001 is more than 10000."),
            ("simulations=-1", "Simulations: `-1` is not a whole number in range."),
            ("side=third", "Side: `third` is not a choice."),
            ("version=x", "Version: `x` is not a whole number in range."),
            ("game=hexx-5", "`hexx-5` is not a game"),
            ("game=gym:Any-v0", "`gym:Any-v0` runs outside this program"),
            ("moves=a1_z9", "Move 2: `z9` is not a move"),
            ("game=tic_tac_toe&moves=5_5", "Move 2: 5 is not legal in this position."),
            ("game=tic_tac_toe&moves=1_4_2_5_3_6", "Move 6: 6 is not legal in this position."),
            ("moves=a1&ply=2", "The game has 1 plies; there is no ply 2."),
        ] {
            let error = play(query).map(|play| play.address).unwrap_err();
            assert!(error.contains(reason), "{query}: {error}");
        }
    }

    #[test]
    fn the_turn_and_the_move_that_is_taken_back_follow_from_the_side() {
        let turns = |query: &str| {
            let play = play(query).unwrap();
            (play.is_visitors_turn(), play.needs_search(), moves(play.taken_back()))
        };
        let moves = |text: &str| Some(text.to_owned());
        assert_eq!(turns("game=tic_tac_toe"), (true, false, None));
        assert_eq!(turns("game=tic_tac_toe&moves=1_5"), (true, false, moves("")));
        assert_eq!(turns("game=tic_tac_toe&moves=1_5&hint=1"), (true, true, moves("")));
        assert_eq!(turns("game=tic_tac_toe&moves=1_5&side=second"), (false, true, moves("1")));
        assert_eq!(turns("game=tic_tac_toe&moves=1_5&ply=1"), (false, true, moves("")));
        assert_eq!(turns("game=tic_tac_toe&moves=1_4_2_5_3"), (false, false, moves("1_4_2_5")));
        // The only player of an environment has no other side.
        assert_eq!(turns("game=catch&side=second&seed=3&moves=left"), (true, false, moves("")));
    }

    #[test]
    fn a_typed_move_is_written_in_the_notation_of_addresses() {
        let chess = play("game=chess&moves=e4_e5").unwrap();
        assert_eq!(chess.typed(" Nf3 ").map(|next| next.moves), Ok("e2e4_e7e5_g1f3".into()));
        assert_eq!(chess.until(1).moves, "e2e4");
        assert!(chess.typed("e2e5").unwrap_err().contains("e2e5"));
        let over = play("game=tic_tac_toe&moves=1_4_2_5_3").unwrap();
        assert_eq!(over.typed("6"), Err("It is not your turn.".to_owned()));
    }

    #[test]
    fn the_position_at_a_ply_has_the_rewards_and_the_last_move_before_it() {
        let at = |ply: &str| play(&format!("game=tic_tac_toe&moves=5_1_9{ply}")).unwrap();
        assert_eq!((at("&ply=1").last, at("&ply=1").moves.len()), (Some(Place::Cell(4)), 3));
        assert_eq!((at("&ply=0").last, at("").last), (None, Some(Place::Cell(8))));
        assert_eq!(at("&ply=2").question().actions, [4, 0].map(Action));
        let kind = "2048".parse::<GameKind>().unwrap();
        let (rules, mut legal, mut actions) = (kind.rules(), Vec::new(), Vec::new());
        let mut position = rules.start();
        for _ in 0..20 {
            rules.legal_actions(&position, &mut legal);
            actions.push(legal[0]);
            rules.play(&mut position, legal[0]);
        }
        let whole = Address::of_actions(&kind, 0, actions).unwrap();
        let reward = |ply| Play::new(Address { ply, ..whole.clone() }).unwrap().reward;
        assert_eq!((reward(Some(0)), reward(Some(20))), (0.0, reward(None)));
        assert!(reward(Some(1)) < reward(None), "{}", reward(None));
    }

    #[test]
    fn actions_become_an_address_and_illegal_ones_do_not() {
        let kind = "tic_tac_toe".parse::<GameKind>().unwrap();
        let of = |actions: &[u16]| Address::of_actions(&kind, 0, actions.iter().copied().map(Action));
        let address = of(&[4, 0, 8]).unwrap();
        assert_eq!((address.moves.as_str(), address.side), ("5_1_9", Player::Second));
        assert_eq!((of(&[4, 4]), of(&[u16::MAX])), (None, None));
        assert_eq!(Address::of_actions(&games::stored("gym:Any-v0").unwrap(), 0, []), None);
    }
}
