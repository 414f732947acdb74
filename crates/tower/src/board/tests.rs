use super::*;
use crate::Path;

#[test]
fn every_neighbour_of_a_cell_is_a_cell_of_the_board_or_a_border_pixel() {
    let board = Board::new(6, 7);
    for (board, cell) in [board, board.turned()].into_iter().flat_map(|board| (0..42).map(move |cell| (board, cell))) {
        let (row, column) = ((cell / 7) as isize, (cell % 7) as isize);
        assert_eq!(board.place(board.pixel(cell)), (row as usize, column as usize));
        for (dy, dx) in (-1..=1).flat_map(|dy| (-1..=1).map(move |dx| (dy, dx))) {
            let inside = (0..6).contains(&(row + dy)) && (0..7).contains(&(column + dx));
            let pixel = board.pixel(cell) as isize + dy * board.down() as isize + dx * board.right() as isize;
            // Pixels before the first or after the last belong to a neighbouring position's border, or the margin.
            let wrapped = pixel.rem_euclid(board.pixels() as isize) as usize;
            assert_eq!(board.is_cell(wrapped), inside, "cell {cell}, tap {dy}, {dx}");
        }
    }
}

#[test]
fn cells_and_pixels_match() {
    for board in [Board::new(3, 5), Board::new(3, 5).turned()] {
        let cells: Vec<usize> = (0..board.pixels()).filter(|&pixel| board.is_cell(pixel)).collect();
        let mut pixels: Vec<usize> = (0..board.cells()).map(|cell| board.pixel(cell)).collect();
        pixels.sort_unstable();
        assert_eq!(cells, pixels);
    }
}

#[test]
fn a_board_is_turned_where_its_columns_make_fewer_tiles_and_never_for_matrix_tiles() {
    // Six rows in a tile: seven columns of six cells, or six rows of which each takes two.
    let turns = |path: Path, board: Board| path.turn(board).turned;
    assert!(!turns(Path::Avx512F32, Board::new(6, 7)));
    assert!(turns(Path::Avx512F32, Board::new(15, 3)) || !cfg!(target_arch = "x86_64"));
    assert!(turns(Path::Avx2F32, Board::new(6, 7)) || !cfg!(target_arch = "x86_64"));
    for path in [Path::AmxBf16, Path::AmxI8] {
        assert!(!turns(path, Board::new(15, 3)), "{path}");
    }
}
