use super::*;

#[test]
fn every_neighbour_of_a_cell_is_a_cell_of_the_board_or_a_border_pixel() {
    let board = Board { height: 6, width: 7 };
    for cell in 0..board.cells() {
        let (row, column) = ((cell / 7) as isize, (cell % 7) as isize);
        for (dy, dx) in (-1..=1).flat_map(|dy| (-1..=1).map(move |dx| (dy, dx))) {
            let inside = (0..6).contains(&(row + dy)) && (0..7).contains(&(column + dx));
            let pixel = board.pixel(cell) as isize + dy * board.pitch() as isize + dx;
            // Pixels before the first or after the last belong to a neighbouring position's border, or the margin.
            let wrapped = pixel.rem_euclid(board.pixels() as isize) as usize;
            assert_eq!(board.is_cell(wrapped), inside, "cell {cell}, tap {dy}, {dx}");
        }
    }
}

#[test]
fn cells_and_pixels_match() {
    let board = Board { height: 3, width: 5 };
    let cells: Vec<usize> = (0..board.pixels()).filter(|&pixel| board.is_cell(pixel)).collect();
    assert_eq!(cells, (0..board.cells()).map(|cell| board.pixel(cell)).collect::<Vec<_>>());
}
