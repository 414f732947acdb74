use std::collections::HashSet;

use super::*;

#[test]
fn every_pixel_of_every_position_has_a_line_of_its_own() {
    let board = Board::new(3, 4);
    for layout in [Layout::apart(board, 5), Layout::together(board, 16)] {
        let lines: HashSet<usize> = (0..layout.positions)
            .flat_map(|position| (0..board.pixels()).map(move |pixel| layout.line(position, pixel)))
            .collect();
        assert_eq!(lines.len(), layout.positions * board.pixels());
        assert!(lines.into_iter().all(|line| line < layout.block_lines));
    }
}

#[test]
fn an_offset_leads_to_another_pixel_of_the_same_position() {
    let board = Board::new(3, 4);
    for layout in [Layout::apart(board, 5), Layout::together(board, 16)] {
        let from = layout.line(2, board.pixel(5)) as isize;
        let to = layout.line(2, board.pixel(10)) as isize;
        let pixels = (board.pixel(10) - board.pixel(5)) as isize;
        assert_eq!(from + layout.offset(pixels, 0), to);
        assert_eq!(from + layout.offset(pixels, 3), to + 3 * layout.block_lines as isize);
    }
}
