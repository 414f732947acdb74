use super::*;

fn lines(first: u32, len: usize) -> Vec<Line> {
    (first..).take(len).map(|word| Line([word; 16])).collect()
}

#[test]
fn gathered_weights_are_the_same_and_lie_in_one_piece() {
    let all = [lines(1, 7), lines(100, 0), lines(200, 100_000)];
    let mut slabs: Vec<Slab> = all.iter().cloned().map(Slab::from).collect();
    Slab::gather(&mut slabs.iter_mut().collect::<Vec<_>>());
    for (slab, lines) in slabs.iter().zip(&all) {
        assert!(**slab == **lines);
    }
    assert_eq!(slabs[0].as_ptr_range().end, slabs[1].as_ptr());
    assert_eq!(slabs[1].as_ptr(), slabs[2].as_ptr());
    assert_eq!(slabs[0].as_ptr().align_offset(cpu::HUGE_PAGE_BYTES), 0);
}
