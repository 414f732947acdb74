//! Reads and writes the spool: the file of finished, unacknowledged trajectories that an actor keeps for its next
//! start.
//!
//! The file starts with `zfspool1`. Each record has two copies of `length u32 | crc32c of the length u32`, then
//! `length` bytes: `crc32c of the rest u32 | actor u64 | epoch u64 | sequence u64 | owner | columns`. The owner is a
//! byte (0 none, 1 one of several servers, 2 the only server) and, unless 0, the server's id and endpoint, each after
//! its length in u16. The columns are [`Trajectory::columns`]. Integers are little-endian. A record that cannot be read
//! is skipped.

use experience::{Trajectory, TrajectoryId};
use proto::limits::ANY_TRAJECTORY;
use transport::servers::Server;

/// A trajectory that a replay server has not acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingUpload {
    /// The unacknowledged trajectory, with the final id.
    pub trajectory: Trajectory,
    /// The only server that may receive the trajectory, because that server may have stored it already. `None` if the
    /// trajectory was never sent.
    pub to: Option<Destination>,
}

/// The destination server of a trajectory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    id: String,
    endpoint: String,
    /// True if the destination was the only server. If there is still only one server, that server is the destination,
    /// at any address.
    pub(crate) alone: bool,
}

impl Destination {
    /// Creates the destination for a server; `alone` means that `server` is the only server.
    pub fn new(server: &Server, alone: bool) -> Self {
        // A name that may later resolve to other servers does not identify this server.
        let id = if server.has_own_name { &server.id } else { &server.endpoint };
        Self { id: id.to_string(), endpoint: server.endpoint.to_string(), alone }
    }

    /// Finds the destination among `servers`; returns `None` if it is not there.
    pub(crate) fn among(&self, servers: &[Server]) -> Option<Server> {
        let is_named = |server: &&Server| server.has_own_name && *server.id == *self.id;
        let is_there = |server: &&Server| *server.endpoint == *self.endpoint;
        let only = || if let ([server], true) = (servers, self.alone) { Some(server) } else { None };
        servers.iter().find(is_named).or_else(|| servers.iter().find(is_there)).or_else(only).cloned()
    }
}

/// First bytes of a spool.
const MAGIC: [u8; 8] = *b"zfspool1";
/// Size of a record's length and checksum. A record starts with two copies of both, so that a damaged length affects
/// no other record.
const LENGTH_BYTES: usize = 8;
/// Maximum length of a server's id or endpoint, in bytes.
const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// Encodes all trajectories as one file.
pub fn encode(pending: &[PendingUpload]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for pending in pending {
        let content = content(pending);
        let length = u32::try_from(content.len() + size_of::<u32>()).expect("a trajectory fits a message");
        let length = length.to_le_bytes();
        let with_checksum = [length, crc32c::crc32c(&length).to_le_bytes()].concat();
        out.extend(with_checksum.repeat(2));
        out.extend(crc32c::crc32c(&content).to_le_bytes());
        out.extend(content);
    }
    out
}

/// Decodes a file. Returns the trajectories, and the number (from one) and fault of each invalid record.
pub fn decode(bytes: &[u8]) -> (Vec<PendingUpload>, Vec<(usize, String)>) {
    let (mut pending, mut faults) = (Vec::new(), Vec::new());
    // The magic is not compared, so that a flipped bit there loses nothing. Older versions wrote JSON.
    let Some((_, mut rest)) = bytes.split_at_checked(MAGIC.len()).filter(|_| bytes[0] != b'{') else {
        faults.push((1, "not a spool file of this format version".to_owned()));
        return (pending, faults);
    };
    for number in 1.. {
        if rest.is_empty() {
            break;
        }
        let Some((record, behind)) = split_record(rest) else {
            faults.push((number, format!("the last {} bytes are truncated or damaged", rest.len())));
            break;
        };
        rest = behind;
        match record_of(record) {
            Ok(one) => pending.push(one),
            Err(fault) => faults.push((number, fault)),
        }
    }
    (pending, faults)
}

/// Splits off the first record; returns it and the remaining bytes.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, rest) = bytes.split_at_checked(2 * LENGTH_BYTES)?;
    let length = header.chunks(LENGTH_BYTES).find_map(|copy| {
        let (length, checksum) = copy.split_first_chunk()?;
        (*checksum == crc32c::crc32c(length).to_le_bytes()).then(|| u32::from_le_bytes(*length))
    })?;
    rest.split_at_checked(length as usize)
}

fn record_of(record: &[u8]) -> Result<PendingUpload, String> {
    let (checksum, content) = record.split_first_chunk().ok_or("truncated")?;
    if *checksum != crc32c::crc32c(content).to_le_bytes() {
        return Err("wrong checksum".to_owned());
    }
    let mut rest = content;
    let mut word = || take(&mut rest).map(u64::from_le_bytes);
    let id = TrajectoryId { actor: word()?, epoch: word()?, sequence: word()? };
    let to = match take(&mut rest)? {
        [0] => None,
        [alone] => Some(Destination { id: take_name(&mut rest)?, endpoint: take_name(&mut rest)?, alone: alone == 2 }),
    };
    let trajectory = Trajectory::parse(id, rest, ANY_TRAJECTORY).map_err(|invalid| invalid.to_string())?;
    Ok(PendingUpload { trajectory, to })
}

fn content(PendingUpload { trajectory, to }: &PendingUpload) -> Vec<u8> {
    let TrajectoryId { actor, epoch, sequence } = trajectory.id();
    let mut out = [actor, epoch, sequence].map(u64::to_le_bytes).concat();
    match to {
        None => out.push(0),
        Some(Destination { id, endpoint, alone }) => {
            out.push(if *alone { 2 } else { 1 });
            for name in [id, endpoint] {
                let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
                out.extend((name.len() as u16).to_le_bytes());
                out.extend(name.as_bytes());
            }
        }
    }
    out.extend_from_slice(trajectory.columns());
    out
}

fn take<const BYTES: usize>(rest: &mut &[u8]) -> Result<[u8; BYTES], String> {
    let (&taken, behind) = rest.split_first_chunk().ok_or("truncated")?;
    *rest = behind;
    Ok(taken)
}

fn take_name(rest: &mut &[u8]) -> Result<String, String> {
    let length = u16::from_le_bytes(take(rest)?);
    let (name, behind) = rest.split_at_checked(length.into()).ok_or("truncated")?;
    *rest = behind;
    String::from_utf8(name.to_vec()).map_err(|error| error.to_string())
}

/// Returns trajectories of every outcome, with steps of every kind, with or without a destination.
#[cfg(test)]
pub(crate) fn examples() -> Vec<PendingUpload> {
    use experience::{ActionProbability, Step, StepKind, WeightsVersion};
    use game::{Action, Outcome, Player};

    let step = |action, kind| Step { action: Action(action), reward: 0.0, kind, weights_version: WeightsVersion(3) };
    let policy = vec![
        ActionProbability { action: Action(0), probability: 1.0 / 3.0 },
        ActionProbability { action: Action(8), probability: 2.0 / 3.0 },
    ];
    let steps = vec![
        step(4, StepKind::Opening),
        step(0, StepKind::Full { policy, value: -0.123_456_79 }),
        step(8, StepKind::Fast { value: 0.1 }),
    ];
    let outcomes = [Outcome::Win(Player::First), Outcome::Win(Player::Second), Outcome::Draw, Outcome::Finished];
    (0..)
        .zip(outcomes)
        .map(|(sequence, outcome)| {
            let id = TrajectoryId { actor: 7, epoch: 2, sequence };
            let trajectory = Trajectory::of(id, "tic_tac_toe", &steps, outcome).unwrap();
            let endpoint = "http://10.0.0.1:7001".into();
            let server = Server { id: "http://replay:7001".into(), endpoint, has_own_name: true };
            PendingUpload { trajectory, to: (sequence > 0).then(|| Destination::new(&server, sequence == 1)) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_trajectories_are_decoded_bit_for_bit() {
        let trajectories = examples();
        assert_eq!(decode(&encode(&trajectories)), (trajectories, vec![]));
        assert_eq!(decode(&encode(&[])), (vec![], vec![]));
    }

    #[test]
    fn a_broken_record_is_named_and_costs_only_itself() {
        let trajectories = examples();
        let mut bytes = encode(&trajectories);
        bytes[MAGIC.len() + 2 * LENGTH_BYTES + 9] ^= 1;
        let (kept, faults) = decode(&bytes);
        assert_eq!(kept, trajectories[1..]);
        assert_eq!(faults, [(1, "wrong checksum".to_owned())]);
    }

    #[test]
    fn a_file_that_ends_in_the_middle_of_a_record_keeps_the_others() {
        let trajectories = examples();
        let bytes = encode(&trajectories);
        let (kept, faults) = decode(&bytes[..bytes.len() - 20]);
        assert_eq!((kept.len(), faults.len()), (trajectories.len() - 1, 1));
        (0..bytes.len()).for_each(|length| drop(decode(&bytes[..length])));
    }

    #[test]
    fn a_flipped_byte_anywhere_costs_at_most_the_record_it_is_in() {
        let trajectories = examples();
        let bytes = encode(&trajectories);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x80;
            assert!(decode(&damaged).0.len() >= trajectories.len() - 1, "flipped {at}");
        }
    }

    #[test]
    fn a_spool_of_an_older_version_is_refused_in_words() {
        let (pending, faults) = decode(b"{\"actor\":7,\"epoch\":2}\n");
        assert_eq!((pending.len(), faults.len()), (0, 1));
        assert!(faults[0].1.contains("not a spool file of this format version"), "{faults:?}");
    }

    /// Describes the content of a spool, as text.
    fn text_of(spool: &[u8]) -> String {
        let (pending, faults) = decode(spool);
        assert_eq!(faults, []);
        let line = |PendingUpload { trajectory, to }: &PendingUpload| {
            let steps: Vec<_> = trajectory.steps().map(|step| (step.action.0, step.weights_version.0)).collect();
            let to = to.as_ref().map(|to| (&to.id, &to.endpoint, to.alone));
            format!("{} of {}, {:?}, to {to:?}: {steps:?}\n", trajectory.id(), trajectory.game(), trajectory.outcome())
        };
        pending.iter().map(line).collect()
    }

    #[test]
    fn the_spool_of_every_earlier_revision_is_read_with_its_content() {
        for path in earlier_revisions::of_each("unacknowledged.spool").unwrap() {
            let expected = std::fs::read_to_string(path.with_extension("txt")).unwrap();
            assert_eq!(text_of(&std::fs::read(&path).unwrap()), expected, "{}", path.display());
        }
    }

    #[test]
    #[ignore = "writes the spool of a new revision: ZEROFLEET_REVISION names its folder"]
    fn write_the_spool_of_this_revision() {
        let folder = earlier_revisions::make_new().unwrap();
        let spool = encode(&examples());
        std::fs::write(folder.join("unacknowledged.txt"), text_of(&spool)).unwrap();
        std::fs::write(folder.join("unacknowledged.spool"), spool).unwrap();
    }

    fn server(id: &str, endpoint: &str, has_own_name: bool) -> Server {
        Server { id: id.into(), endpoint: endpoint.into(), has_own_name }
    }

    #[test]
    fn a_server_with_a_name_of_its_own_is_found_by_it_and_any_other_by_its_address() {
        let (named, unnamed) =
            (server("http://a:1", "http://10.0.0.1:1", true), server("http://a:1", "http://10.0.0.1:1", false));
        let moved = server("http://a:1", "http://10.0.0.9:1", true);
        let other = server("http://b:1", "http://10.0.0.2:1", true);
        assert_eq!(Destination::new(&named, false).among(&[other.clone(), moved.clone()]), Some(moved.clone()));
        assert_eq!(Destination::new(&unnamed, false).among(&[other.clone(), moved]), None);
        assert_eq!(Destination::new(&unnamed, false).among(&[other.clone(), named.clone()]), Some(named));
        assert_eq!(Destination::new(&other, false).among(&[]), None);
    }

    #[test]
    fn a_destination_of_the_only_server_matches_any_single_server_and_none_of_several() {
        let destination = Destination::new(&Server::at("http://127.0.0.1:7001"), true);
        let (elsewhere, other) = (Server::at("http://127.0.0.1:9000"), Server::at("http://127.0.0.1:9001"));
        assert_eq!(destination.among(std::slice::from_ref(&elsewhere)), Some(elsewhere.clone()));
        assert_eq!(destination.among(&[elsewhere, other]), None);
    }
}
