//! A game record, read from the main line of a tree: [`GameFile`].

use crate::{BoardGame, Cell, Color, GameResult, Ply, Record, Rules, Setup, Size, Stone};

use super::komi::{self, HUNDREDTHS_MIN};
use super::parse::{Error, Problem};
use super::point::{cell_value, move_value, parse_cells, parse_move};
use super::tree::{Node, Property, Tree};

/// Maximum number of cells in stone properties, including rectangles.
const LISTED_CELLS_MAX: usize = 100_000;
/// Maximum number of characters quoted from a value in an error.
const QUOTED_CHARACTERS_MAX: usize = 40;

/// A game record.
#[derive(Debug, Clone, PartialEq)]
pub struct GameFile {
    /// The game played.
    pub game: BoardGame,
    /// Komi in points, if it is clear; otherwise the setup of the record has 0.
    pub komi: Option<f32>,
    /// Start and moves of the main line. The rules in the setup are [`Rules::Usual`]. The first player is from `PL`,
    /// else from the first move, else White with a handicap (`HA`), else the usual player.
    pub record: Record,
    /// Result, if known.
    pub result: Option<GameResult>,
    /// Name of Black.
    pub black: Option<String>,
    /// Name of White.
    pub white: Option<String>,
    /// Name of the rules.
    pub rules: Option<String>,
    /// Descriptions of what was unclear, and of how it was read.
    pub notes: Vec<String>,
    /// The problem at which the record ends, if the main line goes on: a move that is no point of the board, or stones
    /// placed after a move.
    pub rest: Option<Error>,
}

/// Reads the main line of the first game in a file.
///
/// # Errors
/// The errors of [`Tree::parse`], and [`Problem::Value`] for an unknown game, an invalid size, and an invalid point or
/// move before the first valid move.
pub fn read(bytes: &[u8]) -> Result<GameFile, Error> {
    GameFile::from_tree(&Tree::parse(bytes)?)
}

/// Returns the text of a file in UTF-8. Resignations are written only in Hex: in other games they are only a result.
#[must_use]
pub fn write(file: &GameFile) -> String {
    file.to_tree().to_string()
}

impl GameFile {
    /// Returns the file for a record, without names.
    #[must_use]
    pub const fn new(game: BoardGame, record: Record, result: Option<GameResult>) -> Self {
        let komi = Some(record.setup.komi);
        Self { game, komi, record, result, black: None, white: None, rules: None, notes: Vec::new(), rest: None }
    }

    /// Reads the main line of a tree.
    ///
    /// # Errors
    /// [`Problem::Value`], with the offset of the node.
    pub fn from_tree(tree: &Tree) -> Result<Self, Error> {
        let root = &tree.nodes()[0];
        let game = game(root)?;
        let size = size(root, game)?;
        // Some programs write the properties of the game into a node after the root.
        let info = |name| tree.main_line().find_map(|node| node.value(name).filter(|value| !value.trim().is_empty()));
        let mut notes = tree.notes.clone();
        // Japanese records have `KO` in place of `KM`; in other nodes it marks a move.
        let (name, value) = info("KM").map_or(("KO", root.value("KO")), |value| ("KM", Some(value)));
        let komi = komi(root, name, value, &mut notes);
        let mut board = Board { game, size, stones: vec![None; size.len()], listed: 0, plies: Vec::new() };
        let (mut to_move, mut rest) = (None, None);
        for node in tree.main_line() {
            if let Err(error) = board.add(node) {
                if board.plies.is_empty() {
                    return Err(error);
                }
                notes.push(format!("{error}; the record ends after move {}", board.plies.len()));
                rest = Some(error);
                break;
            }
            if let Some(value) = node.value("PL") {
                let color = Color::parse(value.trim());
                notes.extend(color.is_none().then(|| invalid(node, "PL", value, "B or W").to_string()));
                to_move = to_move.or(color.filter(|_| board.plies.is_empty()));
            }
        }
        let placed = board.stones.iter().filter(|stone| **stone == Some(Color::Black)).count();
        let handicap: usize = info("HA").and_then(|value| value.trim().parse().ok()).unwrap_or(0);
        let note = || format!("HA[{handicap}] is the handicap, but AB places {placed} stones");
        notes.extend((handicap >= 2 && handicap != placed).then(note));
        // Black is named too: with black stones only, the usual first player is White.
        let first_player = board.plies.first().map(|ply| ply.color).or((handicap >= 2).then_some(Color::White));
        let stone = |cell: Cell| board.stones[size.index(cell)].map(|color| Stone { color, cell });
        let setup = Setup {
            size,
            komi: komi.unwrap_or(0.0),
            rules: Rules::Usual,
            stones: size.cells().filter_map(stone).collect(),
            to_move: to_move.or(first_player),
        };
        let text = |name| info(name).map(str::to_owned);
        Ok(Self {
            game,
            komi,
            result: info("RE").and_then(GameResult::parse),
            black: text("PB"),
            white: text("PW"),
            rules: text("RU"),
            record: Record { setup, plies: board.plies },
            notes,
            rest,
        })
    }

    /// Returns a tree with one variation.
    #[must_use]
    pub fn to_tree(&self) -> Tree {
        let Record { setup, plies } = &self.record;
        let mut tree = Tree::new(Node::new(self.root_properties()));
        let mut last = 0;
        for ply in plies {
            if let Some(value) = move_value(self.game, setup.size, ply.played) {
                last = tree.add(last, vec![Property::new(&ply.color.letter().to_string(), value)]);
            }
        }
        tree
    }

    fn root_properties(&self) -> Vec<Property> {
        let Setup { size, stones, to_move, .. } = &self.record.setup;
        let side =
            if size.is_square() { size.width().to_string() } else { format!("{}:{}", size.width(), size.height()) };
        let mut properties = vec![
            Property::new("FF", "4"),
            Property::new("CA", "UTF-8"),
            Property::new("GM", self.game.sgf_number().to_string()),
            Property::new("SZ", side),
        ];
        let of_color = |color: Color| stones.iter().filter(move |stone| stone.color == color);
        let handicap = of_color(Color::Black).count();
        let has_handicap = self.game == BoardGame::Go && handicap >= 2 && *to_move == Some(Color::White);
        let optional = [
            ("KM", self.komi.map(komi_value)),
            ("HA", has_handicap.then(|| handicap.to_string())),
            ("PB", self.black.clone()),
            ("PW", self.white.clone()),
            ("RU", self.rules.clone()),
            ("RE", self.result.map(|result| result.to_string())),
            ("PL", to_move.map(|color| color.letter().to_string())),
        ];
        properties.extend(optional.into_iter().filter_map(|(name, value)| Some(Property::new(name, value?))));
        for (name, color) in [("AB", Color::Black), ("AW", Color::White)] {
            let values: Vec<String> = of_color(color).map(|stone| cell_value(self.game, *size, stone.cell)).collect();
            if !values.is_empty() {
                properties.push(Property { name: name.into(), values });
            }
        }
        properties
    }
}

/// Stones and moves of the nodes so far.
struct Board {
    game: BoardGame,
    size: Size,
    /// Stones before the first move.
    stones: Vec<Option<Color>>,
    /// Number of cells listed in stone properties.
    listed: usize,
    plies: Vec<Ply>,
}

impl Board {
    fn add(&mut self, node: &Node) -> Result<(), Error> {
        for Property { name, values } in &node.properties {
            match name.as_str() {
                "AB" => self.place(node, name, values, Some(Color::Black))?,
                "AW" => self.place(node, name, values, Some(Color::White))?,
                "AE" => self.place(node, name, values, None)?,
                "B" => self.play(node, name, values, Color::Black)?,
                "W" => self.play(node, name, values, Color::White)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn place(&mut self, node: &Node, name: &str, values: &[String], stone: Option<Color>) -> Result<(), Error> {
        for value in values.iter().filter(|value| !value.trim().is_empty()) {
            if !self.plies.is_empty() {
                return Err(invalid(node, name, value, "stones before the first move only"));
            }
            let cells = parse_cells(self.game, self.size, value);
            let cells = cells.ok_or_else(|| invalid(node, name, value, "a point of the board, or a rectangle"))?;
            self.listed += cells.len();
            if self.listed > LISTED_CELLS_MAX {
                let problem = Problem::TooMany { what: "listed points", max: LISTED_CELLS_MAX };
                return Err(Error { offset: node.offset, problem });
            }
            for cell in cells {
                self.stones[self.size.index(cell)] = stone;
            }
        }
        Ok(())
    }

    fn play(&mut self, node: &Node, name: &str, values: &[String], color: Color) -> Result<(), Error> {
        let [value] = values else { return Err(invalid(node, name, &values.join("]["), "one move")) };
        let played = parse_move(self.game, self.size, value);
        let played = played.ok_or_else(|| invalid(node, name, value, "a point of the board, or a pass"))?;
        self.plies.push(Ply { color, played });
        Ok(())
    }
}

fn invalid(node: &Node, name: &str, value: &str, expected: &str) -> Error {
    let value = value.chars().take(QUOTED_CHARACTERS_MAX).collect();
    let problem = Problem::Value { name: name.into(), value, expected: expected.into() };
    Error { offset: node.offset, problem }
}

/// Returns the game of a file; Go if it names none.
fn game(root: &Node) -> Result<BoardGame, Error> {
    let Some(value) = root.value("GM") else { return Ok(BoardGame::Go) };
    let number = value.trim().parse().ok();
    let game = BoardGame::ALL.into_iter().find(|game| Some(game.sgf_number()) == number);
    game.ok_or_else(|| invalid(root, "GM", value, "1 (Go), 2 (Othello), 4 (Gomoku) or 11 (Hex)"))
}

/// Returns the board size; the usual size for the game if the file has none.
fn size(root: &Node, game: BoardGame) -> Result<Size, Error> {
    let usual = match game {
        BoardGame::Go => "19",
        BoardGame::Othello => "8",
        BoardGame::Gomoku => "15",
        BoardGame::Hex => "11",
    };
    let value = root.value("SZ").map(str::trim).filter(|value| !value.is_empty()).unwrap_or(usual);
    let (width, height) = value.split_once([':', 'x', 'X', '×']).unwrap_or((value, value));
    let side = |text: &str| text.trim().parse::<usize>().ok();
    let size = side(width).zip(side(height)).and_then(|(width, height)| Size::new(width, height));
    size.ok_or_else(|| invalid(root, "SZ", value, "a number from 1 to 52, or two with a colon"))
}

/// Returns the komi of a file; `None` if the file has none or the value is unclear, which a note says.
fn komi(root: &Node, name: &'static str, value: Option<&str>, notes: &mut Vec<String>) -> Option<f32> {
    let value = value.map(str::trim).filter(|value| !value.is_empty())?;
    let points = komi::points(value);
    let note = match points {
        None => Some(invalid(root, name, value, "a number of points; the usual komi is used").to_string()),
        Some(points) => {
            (value.parse::<f32>() != Ok(points)).then(|| format!("{name}[{value}] is read as {points} points"))
        }
    };
    notes.extend(note);
    points
}

/// Returns the value of a komi in points: with a decimal point where an integer would be read as hundredths.
fn komi_value(points: f32) -> String {
    if points.abs() < HUNDREDTHS_MIN { points.to_string() } else { format!("{points:?}") }
}
