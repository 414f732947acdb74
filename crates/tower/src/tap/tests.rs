use super::*;

const BOARD: Board = Board::new(3, 4);

fn hidden(cells: &[usize]) -> Vec<u8> {
    let hidden = Taps::hidden(BOARD, cells.iter().map(|&cell| BOARD.pixel(cell)));
    Tap::all().into_iter().filter(|&tap| hidden.contain(tap)).map(|tap| tap.0).collect()
}

#[test]
fn taps_are_hidden_where_every_cell_has_the_border() {
    assert_eq!(hidden(&[0]), [0, 1, 2, 3, 6]);
    assert_eq!(hidden(&[1]), [0, 1, 2]);
    assert!(hidden(&[5]).is_empty());
    assert_eq!(hidden(&[11]), [2, 5, 6, 7, 8]);
    assert_eq!(hidden(&[0, 1]), [0, 1, 2]);
    assert_eq!(hidden(&[0, 4]), [0, 3, 6]);
    assert_eq!(hidden(&[0, 11]), [2, 6]);
}

#[test]
fn pixels_of_a_tap_lead_to_the_neighbour() {
    let offsets: Vec<isize> = Tap::all().into_iter().map(|tap| tap.pixels(BOARD)).collect();
    assert_eq!(offsets, [-6, -5, -4, -1, 0, 1, 4, 5, 6]);
    assert_eq!(Tap::HERE.pixels(BOARD), 0);
}

#[test]
fn a_walk_around_the_board_meets_cells_with_the_same_edges_together() {
    let board = Board::new(6, 7);
    let mut cells: Vec<Taps> =
        (0..board.cells()).map(|cell| Taps::hidden(board, std::iter::once(board.pixel(cell)))).collect();
    cells.sort_by_key(|hidden| hidden.around());
    let computed: usize = cells
        .chunks(3)
        .map(|three| {
            let common = three.iter().copied().reduce(Taps::and).unwrap_or_default();
            Tap::all().into_iter().filter(|&tap| !common.contain(tap)).count() * three.len()
        })
        .sum();
    // 304 taps lie on the board; 378 are there in all.
    assert_eq!(computed, 315);
}
