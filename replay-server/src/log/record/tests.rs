use super::*;

fn framed(content: &[u8]) -> Framed {
    Framed::trajectory(TrajectoryId { actor: 1, epoch: 2, sequence: 3 }, 4, UnixMillis(5), content).unwrap()
}

#[test]
fn a_trajectory_comes_back_with_its_id_items_and_time() {
    for content in [&b""[..], b"a trajectory", &[7; 100_000]] {
        let framed = framed(content);
        let [(0, payload)] = frame::scan(framed.bytes()).frames[..] else { panic!("one frame") };
        let id = TrajectoryId { actor: 1, epoch: 2, sequence: 3 };
        let record = TrajectoryRecord { id, items: 4, inserted: Some(UnixMillis(5)), content: content.to_vec() };
        assert_eq!(Record::decode(payload), Ok(Record::Trajectory(record)));
    }
}

#[test]
fn a_trajectory_that_could_not_be_read_back_is_not_written() {
    let content = vec![0; CONTENT_BYTES_MAX + 1];
    let id = TrajectoryId { actor: 1, epoch: 2, sequence: 3 };
    Framed::trajectory(id, 4, UnixMillis(5), &content).unwrap_err();
}

#[test]
fn content_that_claims_to_be_larger_than_any_is_refused_before_memory_is_taken() {
    let compressed = zstd::bulk::compress(&vec![0; CONTENT_BYTES_MAX + 1], 1).unwrap();
    let payload = [&[KIND_TRAJECTORY; 1 + 24 + 4 + 8][..], &compressed].concat();
    assert!(matches!(Record::decode(&payload), Err(UnreadableRecord::Content(_))));
}

#[test]
fn a_cut_or_unknown_payload_is_refused() {
    let framed = framed(b"a trajectory");
    let payload = &framed.bytes()[frame::HEADER_BYTES..];
    (0..payload.len()).for_each(|length| drop(Record::decode(&payload[..length]).unwrap_err()));
    (12..=u8::MAX).for_each(|kind| drop(Record::decode(&[&[kind], &payload[1..]].concat()).unwrap_err()));
}
