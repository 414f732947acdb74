use super::*;

fn passes(all: &[Arrangement], positions: usize) -> Vec<(usize, usize)> {
    Arrangement::passes(all, positions).map(|pass| (pass.arrangement, pass.positions)).collect()
}

#[test]
fn a_batch_is_passed_whole_and_in_order() {
    let board = Board::new(6, 7);
    for path in [Path::AmxBf16, Path::PortableF32] {
        let all = Arrangement::of(path, board, 64);
        for positions in 0..100 {
            let mut next = 0;
            for pass in Arrangement::passes(&all, positions) {
                assert_eq!(pass.first, next);
                assert!((1..=all[pass.arrangement].features.positions).contains(&pass.positions));
                next += pass.positions;
            }
            assert_eq!(next, positions, "{path}");
        }
    }
}

#[test]
fn tiles_take_sixteen_positions_side_by_side() {
    let all = Arrangement::of(Path::AmxBf16, Board::new(6, 7), 64);
    assert_eq!(passes(&all, 43), [(0, 16), (0, 16), (1, 11)]);
    assert_eq!(passes(&all, 44), [(0, 16), (0, 16), (0, 12)]);
    assert_eq!(passes(&all, 1), [(1, 1)]);
}

#[test]
fn positions_that_would_leave_the_cache_lie_by_themselves() {
    let all = Arrangement::of(Path::AmxBf16, Board::new(19, 19), 256);
    assert_eq!(passes(&all, 21), [(0, 16), (0, 5)]);
    assert_eq!(all[0].parts(5).collect::<Vec<_>>(), [0..2, 2..4, 4..5]);
}
