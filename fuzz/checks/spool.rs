//! The spool of an actor: trajectories that were never acknowledged.

use actor::spool::{Destination, PendingUpload, decode, encode};
use experience::Trajectory;
use transport::servers::Server;

/// Checks that any bytes are a spool with faults. Decoding must not keep more bytes than the input has. Decoded
/// trajectories must be written and read again without a fault. A change of one byte must cost at most one trajectory.
///
/// The last bytes choose the change.
pub(crate) fn check(bytes: &[u8]) {
    let (read, faults) = decode(bytes);
    let held: usize = read.iter().map(|pending| pending.trajectory.columns().len()).sum();
    assert!(held <= bytes.len(), "{held} bytes from {}", bytes.len());
    assert!(read.len() + faults.len() <= 1 + bytes.len() / 16, "{} and {}", read.len(), faults.len());
    let mut written = encode(&read);
    assert_eq!(decode(&written), (read.clone(), Vec::new()));
    let Some((rest, &[low, high, flip])) = bytes.split_last_chunk::<3>() else { return };
    if rest.is_empty() || flip == 0 {
        return;
    }
    let at = usize::from(u16::from_le_bytes([low, high])) % written.len();
    written[at] ^= flip;
    // The first byte of a JSON file, which is an older version.
    if written[0] == b'{' {
        return;
    }
    let (kept, _) = decode(&written);
    let is_there = |pending: &&PendingUpload| kept.contains(pending);
    let lost = read.len() - read.iter().filter(is_there).count();
    assert!(lost <= 1, "a change of byte {at} costs {lost} trajectories");
    assert!(kept.iter().all(|pending| read.contains(pending)), "a changed trajectory passes for a whole one");
}

/// Returns spools of these trajectories, destined for a server or for none.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds(trajectories: &[Trajectory]) -> Vec<Vec<u8>> {
    let server =
        Server { id: "http://replay:7001".into(), endpoint: "http://10.0.0.1:7001".into(), has_own_name: true };
    let destinations =
        [None, Some(Destination::new(&server, false)), Some(Destination::new(&server, true))].into_iter().cycle();
    let pending: Vec<PendingUpload> = trajectories
        .iter()
        .zip(destinations)
        .map(|(trajectory, to)| PendingUpload { trajectory: trajectory.clone(), to })
        .collect();
    let ends = [[40, 0, 1], [9, 0, 0x80], [200, 1, 4]];
    let whole = ends.iter().map(|end| [encode(&pending).as_slice(), end].concat());
    let one = [encode(&pending[..1]), encode(&[]), b"{\"actor\":7,\"epoch\":2}\n".to_vec()];
    whole.chain(one).collect()
}
