//! Connect Four on boards of other sizes, by the same rules. Start with [`ConnectFourBoards`].

use crate::connect_four::{self, Board, Rules};
use crate::entry::{BoardSize, Boards, Entry, Variants};

/// The registry entry of the boards. The usual board has a separate entry, with solved positions.
pub const ENTRY: Entry = Entry::new(
    connect_four::ENTRY.name,
    Variants::Boards(Boards {
        usual: USUAL,
        examples: &[
            BoardSize { columns: 4, rows: 4 },
            BoardSize { columns: 6, rows: 5 },
            // These two take 63 and 64 bits.
            BoardSize { columns: 9, rows: 6 },
            BoardSize { columns: 4, rows: 15 },
        ],
        condition: "4 to 9 columns, at least 4 rows, columns * (rows + 1) at most 64",
    }),
    connect_four::ENTRY.preset,
);

const USUAL: BoardSize = BoardSize { columns: 7, rows: 6 };

/// Bits of a position: a column takes one bit more than it has cells.
const BITS: u8 = 64;

/// The size of a board: 4 to 9 columns, which have one-digit names, and at least 4 rows, but not the usual size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(BoardSize);

impl Size {
    /// Returns the size with this number, 16 · columns + rows; `None` if there is no such board.
    #[must_use]
    pub fn new(variant: u8) -> Option<Self> {
        let size = BoardSize::of_variant(variant);
        let fits = (4..=9).contains(&size.columns) && size.rows >= 4 && size.columns * (size.rows + 1) <= BITS;
        (fits && size != USUAL).then_some(Self(size))
    }

    /// Returns the number of the size.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0.variant() as usize
    }
}

impl Board for Size {
    fn name(self) -> String {
        ENTRY.name_of(self.get())
    }

    fn columns(self) -> usize {
        self.0.columns.into()
    }

    fn rows(self) -> usize {
        self.0.rows.into()
    }
}

/// Implements the rules of Connect Four on boards of other sizes.
pub type ConnectFourBoards = Rules<Size>;

impl ConnectFourBoards {
    /// Returns the rules for a board of this size.
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self::on(size)
    }
}

#[cfg(test)]
mod tests {
    use game::{Action, Game, Outcome};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use reference_games::{compare, compare_tree, perft, reference};

    use super::*;
    use crate::grid::narrow;

    fn sizes() -> impl Iterator<Item = Size> {
        (0..=u8::MAX).filter_map(Size::new)
    }

    fn of_size(columns: u8, rows: u8) -> ConnectFourBoards {
        ConnectFourBoards::new(Size::new(BoardSize { columns, rows }.variant()).unwrap())
    }

    #[test]
    fn the_trees_of_other_boards_have_as_many_nodes_as_those_of_a_slow_implementation() {
        for (columns, rows, depth) in [(4, 4, 8), (4, 15, 7), (5, 4, 7), (8, 7, 5), (9, 6, 5)] {
            let game = of_size(columns, rows);
            let name = &game.spec().name;
            let nodes = compare_tree(&game, &*reference(name).unwrap(), depth);
            assert_eq!(perft(&game, &game.start(), depth), nodes, "{name} to depth {depth}");
        }
    }

    #[test]
    fn random_episodes_on_every_board_agree_with_a_slow_implementation() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let (mut wins, mut draws) = ([0; 2], 0);
        for size in sizes().flat_map(|size| [size; 6]) {
            let game = ConnectFourBoards::new(size);
            let mut slow = reference(&game.spec().name).unwrap();
            let end = compare(&game, &mut *slow, |legal| Some(rng.random_range(0..legal)));
            match game.outcome(&end) {
                Some(Outcome::Win(winner)) => wins[winner.index()] += 1,
                _ => draws += 1,
            }
        }
        assert!(wins.iter().all(|&count| count > 0) && draws > 0, "{wins:?}, {draws}");
    }

    /// On each board, three stones at the top of a column and one at the bottom of the next are adjacent in memory.
    #[test]
    fn a_line_does_not_run_over_the_edge_of_a_column() {
        for size in sizes() {
            let game = ConnectFourBoards::new(size);
            // Both players alternate in the first column up to three cells below the top; the second player has the
            // last of these stones.
            let below = size.rows() - 3;
            let mut moves = if below.is_multiple_of(2) { Vec::new() } else { vec![size.columns() - 1] };
            moves.extend(std::iter::repeat_n(0, below).chain([0, 2, 0, 3, 0, 2, 1]));
            let actions: Vec<Action> = moves.into_iter().map(|column| Action(narrow(column))).collect();
            let position = game.replay(&actions).unwrap();
            assert_eq!(game.outcome(&position), None, "{size:?}\n{}", game.render(&position));
        }
    }

    /// The number of positions with 4 columns and 4 rows, published by John Tromp (tromp.github.io/c4/c4.html).
    #[test]
    fn the_board_of_4_columns_and_4_rows_has_the_published_number_of_positions() {
        let game = of_size(4, 4);
        let mut seen = std::collections::HashSet::from([game.hash(&game.start())]);
        let mut unseen = vec![game.start()];
        let mut legal = Vec::new();
        while let Some(position) = unseen.pop() {
            game.legal_actions(&position, &mut legal);
            for &action in &legal {
                let mut next = position;
                game.play(&mut next, action);
                if seen.insert(game.hash(&next)) {
                    unseen.push(next);
                }
            }
        }
        assert_eq!(seen.len(), 161_029);
    }

    #[test]
    fn the_boards_are_those_that_64_bits_hold_apart_from_the_usual_one() {
        assert_eq!(sizes().count(), 37);
        let cases = [("connect_four-4x4", true), ("connect_four-8x7", true), ("connect_four-4x16", false)];
        for (name, exists) in cases.into_iter().chain([("connect_four-8x8", false), ("connect_four-10x4", false)]) {
            assert_eq!(name.parse::<crate::GameKind>().is_ok(), exists, "{name}");
        }
    }

    #[test]
    fn the_usual_board_is_refused_with_its_name_and_others_with_the_condition() {
        let refusal = |name: &str| name.parse::<crate::GameKind>().unwrap_err().to_string();
        assert_eq!(refusal("connect_four-7x6"), "`connect_four-7x6` is the usual board: write `connect_four`");
        for name in ["connect_four-3x4", "connect_four-06x5", "connect_four-6", "connect_four-x", "connect_four-9x7"] {
            assert_eq!(
                refusal(name),
                format!(
                    "`{name}` is not a size of connect_four; sizes are connect_four-COLUMNSxROWS (4 to 9 columns, at \
                     least 4 rows, columns * (rows + 1) at most 64)"
                )
            );
        }
    }
}
