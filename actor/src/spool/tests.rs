use super::*;

#[test]
fn what_is_encoded_is_decoded_to_the_last_bit() {
    let trajectories = examples();
    assert_eq!(decode(encode(&trajectories).as_bytes()), (trajectories, vec![]));
}

#[test]
fn a_broken_line_is_named_and_costs_only_itself() {
    let trajectories = examples();
    let text = encode(&trajectories).replacen("\"actor\"", "\"acto\"", 1);
    let (kept, faults) = decode(text.as_bytes());
    assert_eq!(kept, trajectories[1..]);
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].0, 1);
    assert!(faults[0].1.contains("acto"), "{faults:?}");
}

#[test]
fn a_file_that_ends_in_the_middle_of_a_line_keeps_the_others() {
    let trajectories = examples();
    let text = encode(&trajectories);
    let (kept, faults) = decode(&text.as_bytes()[..text.len() - 20]);
    assert_eq!((kept.len(), faults.len()), (trajectories.len() - 1, 1));
}

#[test]
fn a_flipped_byte_anywhere_costs_at_most_the_lines_it_is_in() {
    let trajectories = examples();
    let text = encode(&trajectories).into_bytes();
    for at in 0..text.len() {
        let mut damaged = text.clone();
        damaged[at] ^= 0x80;
        // A line that ends nowhere takes the next one with it.
        let hit = 1 + usize::from(text[at] == b'\n');
        assert!(decode(&damaged).0.len() >= trajectories.len() - hit, "flipped {at}");
    }
}
