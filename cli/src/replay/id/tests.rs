use super::*;

#[test]
fn what_is_written_is_read_back() {
    let id = Id(TrajectoryId { actor: 3, epoch: 1, sequence: u64::MAX });
    assert_eq!(id.to_string().parse(), Ok(id));
    for text in ["", "1/2", "1/2/3/4", "1/2/x", "-1/2/3", "1/2/18446744073709551616"] {
        assert!(text.parse::<Id>().unwrap_err().contains("ACTOR/EPOCH/SEQUENCE"), "{text}");
    }
}
