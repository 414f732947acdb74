use super::*;
use crate::board::Board;

#[test]
fn an_observation_is_read_back_and_its_border_is_zero() {
    let board = Board::new(3, 4);
    let layouts = [Layout::apart(board, 3), Layout::together(board, 3)];
    for (format, layout) in [Format::F32, Format::Bf16].into_iter().flat_map(|format| layouts.map(|to| (format, to))) {
        let mut planes = Planes::new(format, layout, 37);
        let observation: Vec<f32> = (0..37 * 12).map(|i| (i % 100) as f32).collect();
        planes.observe(1, &observation);
        for channel in 0..37 {
            for cell in 0..12 {
                assert_eq!(planes.get(1, cell, channel), observation[channel * 12 + cell]);
                assert_eq!(planes.get(0, cell, channel), 0.0);
            }
        }
        let borders = (0..board.pixels()).filter(|&pixel| !board.is_cell(pixel));
        for (pixel, block) in borders.flat_map(|pixel| (0..format.lines(37)).map(move |block| (pixel, block))) {
            assert_eq!(planes.lines[planes.index(block, 1, pixel)], Line::default());
        }
    }
}
