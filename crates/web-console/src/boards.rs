//! Draws boards as inline SVG, with coordinates, the last move and the visits of a search. Start with [`draw`].
//!
//! Pages forbid inline styles: a drawing has classes and presentation attributes. Equal shapes share one path, so that
//! a page with sixteen boards of Go is small. A stone is a line of no length with round ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use game::{Board, Geometry, Mark, Place, Player};
use maud::{Markup, html};
use service::live::PICTURE_BYTES_MAX;

/// Width of a cell, in units of the drawing.
const CELL: usize = 10;
/// Distance between two rows of hexagons.
const HEXAGON_ROW: usize = 9;
/// Height of a hexagon.
const HEXAGON: usize = 12;
/// Width of the space for coordinates.
const MARGIN: usize = 8;
/// Maximum number of observed values to show, and the number per line.
const NUMBERS_MAX: usize = 64;
const NUMBERS_PER_LINE: usize = 8;

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

/// The parts of a position that a drawing points out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Highlights<'a> {
    /// Name of the game, which determines coordinates and names of the players.
    pub(crate) game: &'a str,
    /// Cells of the last action, from the board before the action.
    pub(crate) last: Option<Place>,
    /// Share of the visits of each searched action; empty without a heat map.
    pub(crate) visits: Vec<(Place, f32)>,
    /// Moves that the search expects, numbered on the cells to which they lead.
    pub(crate) variation: Vec<Place>,
    /// Cells that a visitor can choose.
    pub(crate) links: Vec<Link>,
}

/// A cell that leads to another address.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) cell: usize,
    pub(crate) address: String,
    /// Purpose of the link, in words.
    pub(crate) label: String,
    pub(crate) is_chosen: bool,
}

/// Draws a board, described in words for assistive technology.
pub(crate) fn draw(board: &Board, marks: &Highlights<'_>) -> Markup {
    let coordinates = Coordinates::new(marks.game, board.rows);
    let (width, height) = size(board);
    let left = if coordinates.rows.is_empty() { 0 } else { MARGIN };
    let bottom = if coordinates.columns.is_empty() { 0 } else { MARGIN };
    let view = format!("-{left} 0 {} {}", width + left, height + bottom);
    let shape = match board.geometry {
        Geometry::Squares if board.marks.iter().flatten().any(is_object) => "board squares objects",
        Geometry::Squares => "board squares",
        Geometry::Points => "board points",
        Geometry::Hexagons => "board hexagons",
        Geometry::Columns => "board columns",
    };
    // An image would hide its links from assistive technology.
    let role = if marks.links.is_empty() { "img" } else { "group" };
    html! {
        svg class=(shape) viewBox=(view) role=(role) aria-label=(in_words(board, marks, &coordinates)) {
            (ground(board, width, height))
            (heat(board, &marks.visits))
            (pieces(board))
            @for (x, y) in marks.last.map(cells_of).unwrap_or_default().into_iter().map(|cell| centre(board, cell)) {
                @if board.geometry == Geometry::Squares {
                    rect.last x=(x - 5) y=(y - 5) width="10" height="10" {}
                } @else {
                    circle.last cx=(x) cy=(y) r="2.5" {}
                }
            }
            @for (index, cell) in numbered(&marks.variation) {
                @let (x, y) = centre(board, cell);
                text.order x=(x) y=(y) { (index + 1) }
            }
            (coordinates.draw(board, height))
            @for link in &marks.links {
                a href=(link.address) aria-label=(link.label) {
                    @let class = if link.is_chosen { "hit chosen" } else { "hit" };
                    (cover(board, whole(board, link.cell), class, "0", &link.label))
                }
            }
        }
        (legend(board))
    }
}

/// Returns the target cells of moves with the indices; a pass has no cell.
fn numbered(moves: &[Place]) -> impl Iterator<Item = (usize, usize)> {
    moves.iter().enumerate().filter_map(|(index, place)| Some((index, cells_of(*place).pop()?)))
}

/// Names the objects on a board in the colours of their cells.
fn legend(board: &Board) -> Markup {
    let objects = board.marks.iter().flatten().filter(|mark| is_object(mark));
    let objects: BTreeMap<_, _> = objects.map(|mark| (mark.kind, &mark.label)).collect();
    html! {
        @if objects.len() > 1 {
            p.legend {
                @for (kind, label) in objects { span { span class={ "object " (kind) } { (label) } " " (kind) } " " }
            }
        }
    }
}

/// Returns true for an object of an environment.
fn is_object(mark: &Mark) -> bool {
    mark.owner.is_none()
}

/// Shows a picture, for which [`is_picture`] returns true, that an environment drew after this number of actions.
pub(crate) fn image(picture: &str, plies: usize) -> Markup {
    html! {
        img.board src={ "data:image/png;base64," (picture) } alt={ "The environment at ply " (plies) };
        p.note { "Picture of ply " (plies) }
    }
}

/// Returns true for a bounded PNG in base64 with sides below 256 pixels: a few bytes can be a picture that fills the
/// memory of a browser.
pub(crate) fn is_picture(base64: &str) -> bool {
    // The head is the signature, the length and name of the first chunk, and width and height in four bytes each. All
    // but the last byte of a side are zero. Every fourth letter from A holds the lower half of the width.
    let is_small = matches!(
        base64.as_bytes().strip_prefix(b"iVBORw0KGgoAAAANSUhEUgAAA"),
        Some([b'A'..=b'P', width, b'A', b'A', b'A', b'A'..=b'D', ..]) if b"AEIMQUYcgkosw048".contains(width)
    );
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    is_small && base64.len() <= PICTURE_BYTES_MAX && base64.bytes().all(is_base64)
}

/// Returns the name of a cell in the notation of a game.
pub(crate) fn cell_name(game: &str, board: &Board, cell: usize) -> String {
    Coordinates::new(game, board.rows).name(board, cell)
}

/// Shows observed values of an environment that has no rules in this program.
pub(crate) fn numbers(observation: &[f32]) -> Markup {
    let shown = &observation[..observation.len().min(NUMBERS_MAX)];
    let line = |values: &[f32]| values.iter().map(|value| format!("{value:>8.2}")).collect::<String>();
    let lines: Vec<String> = shown.chunks(NUMBERS_PER_LINE).map(line).collect();
    html! {
        pre { (lines.join("\n")) }
        @if observation.len() > shown.len() { p.note { "The first " (shown.len()) " of " (observation.len()) " values" } }
    }
}

/// Returns the names of the first and the second player.
pub(crate) fn sides(game: &str) -> [&'static str; 2] {
    match family(game) {
        "chess" => ["White", "Black"],
        "go" | "gomoku" | "othello" => ["Black", "White"],
        _ => ["first player", "second player"],
    }
}

/// Returns the name of a game without the size.
fn family(game: &str) -> &str {
    game.split('-').next().unwrap_or_default()
}

/// The names of rows and columns in the notation of a game; empty where the notation has none.
struct Coordinates {
    /// One character per column.
    columns: &'static str,
    rows: Vec<String>,
}

impl Coordinates {
    fn new(game: &str, rows: usize) -> Self {
        let downwards = || (1..=rows).map(|row| row.to_string());
        match family(game) {
            "go" => Self { columns: "ABCDEFGHJKLMNOPQRSTUVWXYZ", rows: downwards().rev().collect() },
            "chess" | "gomoku" | "breakthrough" => Self { columns: LETTERS, rows: downwards().rev().collect() },
            "hex" | "othello" => Self { columns: LETTERS, rows: downwards().collect() },
            "connect_four" => Self { columns: "123456789", rows: Vec::new() },
            _ => Self { columns: "", rows: Vec::new() },
        }
    }

    /// Returns the name of a cell.
    fn name(&self, board: &Board, cell: usize) -> String {
        let (row, column) = row_and_column(board, cell);
        match (self.columns.chars().nth(column), self.rows.get(row)) {
            (Some(letter), Some(number)) => format!("{letter}{number}"),
            (Some(letter), None) => format!("column {letter}"),
            (None, _) => format!("row {}, column {}", row + 1, column + 1),
        }
    }

    fn draw(&self, board: &Board, height: usize) -> Markup {
        let last_row = board.columns * board.rows.saturating_sub(1);
        html! {
            @for (column, letter) in self.columns.chars().take(board.columns).enumerate() {
                text.coordinate x=(centre(board, last_row + column).0) y=(height + MARGIN / 2) { (letter) }
            }
            @for (row, number) in self.rows.iter().enumerate() {
                @let (x, y) = centre(board, row * board.columns);
                text.coordinate dx="-9" x=(x) y=(y) { (number) }
            }
        }
    }
}

fn row_and_column(board: &Board, cell: usize) -> (usize, usize) {
    let columns = board.columns.max(1);
    (cell / columns, cell % columns)
}

/// Returns the centre of a cell.
fn centre(board: &Board, cell: usize) -> (usize, usize) {
    let (row, column) = row_and_column(board, cell);
    match board.geometry {
        Geometry::Hexagons => (CELL / 2 * (2 * column + row + 1), HEXAGON_ROW * row + HEXAGON / 2),
        _ => (CELL * column + CELL / 2, CELL * row + CELL / 2),
    }
}

/// Returns width and height of the cells.
fn size(board: &Board) -> (usize, usize) {
    let (rows, columns) = (board.rows, board.columns);
    match board.geometry {
        Geometry::Hexagons => (CELL * columns + CELL / 2 * rows.saturating_sub(1), HEXAGON_ROW * rows + 3),
        _ => (CELL * columns, CELL * rows),
    }
}

/// Returns the cells of an action.
fn cells_of(place: Place) -> Vec<usize> {
    match place {
        Place::Nowhere => Vec::new(),
        Place::Cell(cell) => vec![cell],
        Place::Step { from, to } => vec![from, to],
    }
}

/// Returns a path with the same lines from the centre of each cell.
fn path(board: &Board, cells: impl Iterator<Item = usize>, lines: &str) -> String {
    let mut path = String::new();
    for cell in cells {
        let (x, y) = centre(board, cell);
        // A string takes all text.
        let _ = write!(path, "M{x} {y}{lines}");
    }
    path
}

fn ground(board: &Board, width: usize, height: usize) -> Markup {
    let cells = 0..board.marks.len();
    // Chess and its relatives are played on two colours.
    let is_checkered = board.marks.iter().flatten().any(|mark| mark.owner.is_some() && mark.kind != "stone");
    let dark = |cell: &usize| {
        let (row, column) = row_and_column(board, *cell);
        (row + column) % 2 == 1
    };
    html! {
        @if board.geometry != Geometry::Hexagons { rect.ground width=(width) height=(height) {} }
        @match board.geometry {
            Geometry::Squares if is_checkered => path.dark d=(path(board, cells.filter(dark), "m-5-5h10v10h-10z")) {},
            Geometry::Squares => path.line d=(grid(0, width, height)) {},
            Geometry::Points => {
                path.line d=(grid(CELL / 2, width, height)) {}
                path.star d=(path(board, cells.filter(|cell| is_star(board, *cell)), "h0")) {}
            },
            Geometry::Hexagons => path.cell d=(path(board, cells, "m0-6l5 3v6l-5 3-5-3v-6z")) {},
            Geometry::Columns => path.hole d=(path(board, cells, "h0")) {},
        }
    }
}

/// Returns the lines of a square grid, at this distance from the edge.
fn grid(margin: usize, width: usize, height: usize) -> String {
    let mut lines = String::new();
    for y in (margin..=height).step_by(CELL) {
        let _ = write!(lines, "M{margin} {y}H{}", width.saturating_sub(margin));
    }
    for x in (margin..=width).step_by(CELL) {
        let _ = write!(lines, "M{x} {margin}V{}", height.saturating_sub(margin));
    }
    lines
}

/// Returns true for a star point of a board of Go.
fn is_star(board: &Board, cell: usize) -> bool {
    let (side, (row, column)) = (board.rows, row_and_column(board, cell));
    if side != board.columns || side < 9 || side.is_multiple_of(2) {
        return false;
    }
    let (edge, middle) = (if side < 13 { 2 } else { 3 }, side / 2);
    let is_on = |index: usize| [edge, middle, side - 1 - edge].contains(&index);
    // Small boards have no stars between two corners.
    is_on(row) && is_on(column) && (side > 13 || (row == middle) == (column == middle))
}

/// Shades cells by the visit share of the moves to them; in a game of columns, down to the cell.
fn heat(board: &Board, visits: &[(Place, f32)]) -> Markup {
    let mut shares = BTreeMap::<usize, f32>::new();
    for &(place, share) in visits {
        if let Some(&to) = cells_of(place).last() {
            *shares.entry(to).or_default() += share;
        }
    }
    html! {
        @for (cell, share) in shares.into_iter().filter(|&(_, share)| share > 0.0) {
            @let opacity = format!("{:.2}", 0.1 + 0.8 * share.min(1.0));
            (cover(board, cell, "heat", &opacity, &format!("{:.0} % of the search", 100.0 * share)))
        }
    }
}

/// Covers a cell; in a game of columns, also the cells above.
fn cover(board: &Board, cell: usize, class: &str, opacity: &str, title: &str) -> Markup {
    let (x, y) = centre(board, cell);
    let top = if board.geometry == Geometry::Columns { 0 } else { y - 5 };
    html! {
        @if matches!(board.geometry, Geometry::Points | Geometry::Hexagons) {
            circle class=(class) cx=(x) cy=(y) r="4.5" fill-opacity=(opacity) { title { (title) } }
        } @else {
            rect class=(class) x=(x - 5) y=(top) width="10" height=(y + 5 - top) fill-opacity=(opacity) {
                title { (title) }
            }
        }
    }
}

/// Returns the lowest cell that means the same action: in a game of columns, every cell of a column does.
fn whole(board: &Board, cell: usize) -> usize {
    let lowest = board.columns * board.rows.saturating_sub(1) + row_and_column(board, cell).1;
    if board.geometry == Geometry::Columns { lowest } else { cell }
}

fn pieces(board: &Board) -> Markup {
    let stones = |player: Player| {
        let is_stone = |mark: &Mark| mark.owner == Some(player) && glyph(mark.kind).is_none();
        let cells = board.marks.iter().enumerate().filter(|(_, mark)| matches!(mark, Some(mark) if is_stone(mark)));
        path(board, cells.map(|(cell, _)| cell), "h0")
    };
    html! {
        @for (class, stones) in [("first", stones(Player::First)), ("second", stones(Player::Second))] {
            @if !stones.is_empty() {
                path.rim d=(stones) {}
                path class={ "stone " (class) } d=(stones) {}
            }
        }
        @for (cell, mark) in board.marks.iter().enumerate().filter_map(|(cell, mark)| Some((cell, mark.as_ref()?))) {
            @let (x, y) = centre(board, cell);
            @if let Some(glyph) = glyph(mark.kind) {
                text.piece.second[mark.owner == Some(Player::Second)] x=(x) y=(y) { (glyph) }
            } @else if is_object(mark) {
                rect class={ "object " (mark.kind) } x=(x - 5) y=(y - 5) width="10" height="10" {}
                text.label.small[mark.label.len() > 2] x=(x) y=(y) { (mark.label) }
            }
        }
    }
}

/// Returns the symbol of a chess piece. The selector after it asks for text in place of a coloured picture.
fn glyph(kind: &str) -> Option<&'static str> {
    let kinds = ["king", "queen", "rook", "bishop", "knight", "pawn"];
    let index = kinds.iter().position(|known| *known == kind)?;
    Some(["♚\u{fe0e}", "♛\u{fe0e}", "♜\u{fe0e}", "♝\u{fe0e}", "♞\u{fe0e}", "♟\u{fe0e}"][index])
}

/// Describes size, pieces of each side and the last move.
fn in_words(board: &Board, marks: &Highlights<'_>, coordinates: &Coordinates) -> String {
    let [first, second] = sides(marks.game);
    let mut parts = vec![format!("Board with {} rows and {} columns", board.rows, board.columns)];
    for (name, owner) in [(first, Some(Player::First)), (second, Some(Player::Second)), ("objects", None)] {
        let mut kinds = BTreeMap::<&str, usize>::new();
        for mark in board.marks.iter().flatten().filter(|mark| mark.owner == owner) {
            *kinds.entry(mark.kind).or_default() += 1;
        }
        let counts = kinds.iter().map(|(kind, count)| format!("{count} {kind}{}", if *count == 1 { "" } else { "s" }));
        let counts: Vec<String> = counts.collect();
        if !counts.is_empty() {
            parts.push(format!("{name}: {}", counts.join(", ")));
        }
    }
    if parts.len() == 1 {
        parts.push("empty".to_owned());
    }
    if let Some(last) = marks.last {
        let cells: Vec<String> = cells_of(last).into_iter().map(|cell| coordinates.name(board, cell)).collect();
        let cells = if cells.is_empty() { "on no cell".to_owned() } else { cells.join(" to ") };
        parts.push(format!("last move: {cells}"));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use game::Game as _;
    use games::GameKind;

    use super::*;

    /// Draws the position after these moves, with the last move and equal visits of all legal moves.
    fn drawn(name: &str, moves: &str) -> String {
        let rules = name.parse::<GameKind>().unwrap().rules();
        let (mut position, mut last) = (rules.start(), None);
        for text in moves.split_whitespace() {
            let action = rules.parse_action(&position, text).unwrap();
            last = rules.board(&position).unwrap().place(action);
            rules.try_play(&mut position, action).unwrap();
        }
        let board = rules.board(&position).unwrap();
        let share = 1.0 / board.moves.len() as f32;
        let visits = board.moves.iter().map(|&(_, place)| (place, share)).collect();
        draw(&board, &Highlights { game: name, last, visits, ..Highlights::default() }).into_string()
    }

    #[test]
    fn a_board_of_go_has_lines_stars_and_round_stones() {
        let svg = drawn("go-9", "D4 F6");
        for part in [
            "class=\"board points\" viewBox=\"-8 0 98 98\" role=\"img\"",
            "Board with 9 rows and 9 columns; Black: 1 stone; White: 1 stone; last move: F6",
            "class=\"line\" d=\"M5 5H85M5 15H85",
            "class=\"star\" d=\"M25 25h0M65 25h0M45 45h0M25 65h0M65 65h0\"",
            "class=\"stone first\" d=\"M35 55h0\"",
            "class=\"stone second\" d=\"M55 35h0\"",
            "<circle class=\"last\" cx=\"55\" cy=\"35\"",
            ">J</text>",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(!svg.contains(">I</text>"), "{svg}");
    }

    #[test]
    fn a_board_of_chess_has_two_colours_and_pieces() {
        let svg = drawn("chess", "e2e4");
        assert!(svg.contains("class=\"dark\" d=\"M15 5m-5-5h10v10h-10zM35 5"), "{svg}");
        assert!(svg.contains("White: 2 bishops, 1 king, 2 knights, 8 pawns, 1 queen, 2 rooks"), "{svg}");
        assert!(svg.contains("last move: e2 to e4") && svg.matches("class=\"last\"").count() == 2, "{svg}");
        assert_eq!((svg.matches("♚").count(), svg.matches("piece second").count()), (2, 16), "{svg}");
    }

    #[test]
    fn hexagons_lie_half_a_cell_to_the_right_of_the_row_above() {
        let svg = drawn("hex-3", "b1 a2");
        assert!(svg.contains("viewBox=\"-8 0 48 38\""), "{svg}");
        assert!(svg.contains("d=\"M5 6m0-6l5 3v6l-5 3-5-3v-6zM15 6") && svg.contains("zM10 15m"), "{svg}");
        assert!(svg.contains("first player: 1 stone; second player: 1 stone; last move: a2"), "{svg}");
    }

    #[test]
    fn a_column_is_shaded_down_to_the_cell_of_the_next_stone() {
        let svg = drawn("connect_four", "4");
        assert!(svg.contains("x=\"30\" y=\"0\" width=\"10\" height=\"50\" fill-opacity=\"0.21\""), "{svg}");
        assert!(svg.contains("14 % of the search") && svg.contains("last move: column 4"), "{svg}");
        assert!(svg.contains("class=\"stone first\" d=\"M35 55h0\""), "{svg}");
    }

    #[test]
    fn cells_that_can_be_chosen_are_links_with_names_and_a_column_is_one_link() {
        let rules = "connect_four".parse::<GameKind>().unwrap().rules();
        let board = rules.board(&rules.start()).unwrap();
        let link = Link { cell: 38, address: "/a?b&c".into(), label: "play 4".into(), is_chosen: false };
        let marks = Highlights { variation: vec![Place::Cell(38)], links: vec![link], ..Highlights::default() };
        let svg = draw(&board, &marks).into_string();
        assert!(svg.contains("role=\"group\"") && svg.contains("<text class=\"order\" x=\"35\" y=\"55\">1<"), "{svg}");
        assert!(svg.contains("<a href=\"/a?b&amp;c\" aria-label=\"play 4\"><rect class=\"hit\" x=\"30\" y=\"0\" width=\"10\" height=\"60\""), "{svg}");
    }

    #[test]
    fn every_board_of_every_game_can_be_drawn_without_inline_styles() {
        for name in games::GAMES.iter().flat_map(|entry| entry.examples()) {
            let rules = name.parse::<GameKind>().unwrap().rules();
            let Some(board) = rules.board(&rules.start()) else { continue };
            let svg = draw(&board, &Highlights { game: &name, ..Highlights::default() }).into_string();
            assert!(svg.contains("Board with") && !svg.contains("style="), "{name}: {svg}");
        }
    }

    #[test]
    fn the_objects_of_an_environment_have_colours_and_a_legend() {
        let svg = drawn("breakout-deterministic", "");
        for part in [
            "class=\"board squares objects\"",
            "<rect class=\"object paddle\" x=\"40\" y=\"90\"",
            "<span class=\"object brick\">#</span> brick",
            "<span class=\"object ball\">o</span> ball",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        // The ball covers one of the 30 bricks.
        assert_eq!(svg.matches("class=\"object brick\" x").count(), 29, "{svg}");
        assert!(!drawn("2048", "").contains("legend") && !drawn("chess", "").contains("legend"));
    }

    #[test]
    fn a_picture_is_a_bounded_png_with_small_sides() {
        // The head of a picture of 150 × 100 pixels.
        let head = "iVBORw0KGgoAAAANSUhEUgAAAJYAAABkCAIAAAA";
        assert!(is_picture(head) && is_picture(&format!("{head}{}+/==", "A".repeat(60_000))));
        let changed = |at: usize, to: &str| is_picture(&[&head[..at], to, &head[at + to.len()..]].concat());
        // Height and width of 256 pixels and more, in each byte.
        for (at, to) in [(30, "E"), (29, "B"), (28, "B"), (27, "B"), (26, "Z"), (25, "Q"), (24, "B"), (23, "B")] {
            assert!(!changed(at, to), "{to} at {at}");
        }
        assert!(
            changed(31, "l") && !changed(0, "R0lGOD") && !changed(12, "C") && !changed(35, "\"") && !is_picture("")
        );
        assert!(!is_picture(&format!("{head}{}", "A".repeat(PICTURE_BYTES_MAX))) && !is_picture(&head[..30]));
        let image = image(head, 7).into_string();
        assert!(image.contains(&format!("src=\"data:image/png;base64,{head}\" alt=\"The environment at ply 7\"")));
    }

    #[test]
    fn labels_are_escaped_and_numbers_are_bounded() {
        let mark = |_| Some(Mark { owner: None, kind: "wall", label: "<&>".into() });
        let board = Board::new(Geometry::Squares, 1, 2, mark);
        let svg = draw(&board, &Highlights { last: Some(Place::Nowhere), ..Highlights::default() }).into_string();
        assert!(svg.contains("&lt;&amp;&gt;") && svg.contains("objects: 2 walls; last move: on no cell"), "{svg}");
        let text = numbers(&[0.5; 100]).into_string();
        assert!(text.contains("The first 64 of 100 values") && text.matches("0.50").count() == 64, "{text}");
    }
}
