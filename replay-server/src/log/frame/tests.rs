use super::*;

fn three() -> (Vec<u8>, [&'static [u8]; 3]) {
    let payloads: [&[u8]; 3] = [b"first record", b"second", b"the third one"];
    let mut bytes = Vec::new();
    payloads.iter().for_each(|payload| append(&mut bytes, payload).unwrap());
    (bytes, payloads)
}

#[test]
fn what_is_appended_is_found() {
    let (bytes, payloads) = three();
    let scan = scan(&bytes);
    assert_eq!(scan.frames.iter().map(|(_, payload)| *payload).collect::<Vec<_>>(), payloads);
    assert_eq!((scan.damage, scan.tail), (Vec::new(), None));
}

#[test]
fn a_file_cut_anywhere_keeps_its_whole_frames_and_names_the_torn_one() {
    let (bytes, _) = three();
    let ends: Vec<usize> = scan(&bytes).frames.iter().map(|(at, payload)| at + HEADER_BYTES + payload.len()).collect();
    for length in 0..bytes.len() {
        let scan = scan(&bytes[..length]);
        let whole = ends.iter().filter(|&&end| end <= length).count();
        assert_eq!(scan.frames.len(), whole, "cut at {length}");
        let end = if whole == 0 { 0 } else { ends[whole - 1] };
        let torn = (length > end).then_some(Damage { offset: end, length: length - end, fault: Fault::Torn });
        assert_eq!(scan.tail, torn, "cut at {length}");
    }
}

#[test]
fn a_flipped_bit_anywhere_costs_the_record_it_is_in_and_no_other() {
    let (bytes, payloads) = three();
    let starts: Vec<usize> = scan(&bytes).frames.iter().map(|(offset, _)| *offset).collect();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let hit = starts.iter().rposition(|&start| start <= at).unwrap();
        let scan = scan(&damaged);
        let mut expected = payloads.to_vec();
        expected.remove(hit);
        assert_eq!(scan.frames.iter().map(|(_, payload)| *payload).collect::<Vec<_>>(), expected, "flipped {at}");
        let named: Vec<usize> = scan.damage.iter().chain(&scan.tail).map(|damage| damage.offset).collect();
        assert_eq!(named, [starts[hit]], "flipped {at}");
    }
}

#[test]
fn a_payload_that_could_not_be_read_back_is_not_written() {
    let mut bytes = Vec::new();
    append(&mut bytes, &vec![0; PAYLOAD_BYTES_MAX + 1]).unwrap_err();
    assert!(bytes.is_empty());
    let largest = vec![0; PAYLOAD_BYTES_MAX];
    append(&mut bytes, &largest).unwrap();
    assert!(scan(&bytes).frames == [(0, largest.as_slice())], "the largest payload is read back");
}
