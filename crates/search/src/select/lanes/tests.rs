use super::*;

#[test]
fn every_lane_is_computed_and_summed() {
    let mut values = [0.0; LANES];
    fill(&mut values, |lane| lane as f32 + 0.5);
    assert_eq!(values, [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]);
    assert_eq!(sum(&values), 32.0);
}

#[test]
fn the_greatest_is_found_in_every_lane() {
    for lane in 0..LANES {
        let mut scores = [-1.0; LANES];
        scores[lane] = -0.5;
        assert_eq!((greatest(&scores), first_lane(&scores, -0.5)), (-0.5, lane));
    }
}

#[test]
fn the_first_of_equals_counts() {
    for bits in 1..1_u32 << LANES {
        let mut scores = [f32::NEG_INFINITY; LANES];
        (0..LANES).filter(|lane| bits >> lane & 1 == 1).for_each(|lane| scores[lane] = 0.5);
        assert_eq!((greatest(&scores), first_lane(&scores, 0.5)), (0.5, bits.trailing_zeros() as usize));
    }
}
