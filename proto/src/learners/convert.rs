//! Conversions between the messages of the learners service and domain types.

use std::collections::BTreeSet;

use crate::convert::{Invalid, between, inside, invalid, one_to, wire_count};
use crate::learners::{Candidate, KEY_BYTES_MAX, LEARNERS_MAX, Look, Meeting, NUMBER_MAX, Phase, Roster, Secret, v1};
use crate::weights::convert::digest_from_wire;

fn index(field: &str, value: u32) -> Result<usize, Invalid> {
    between(field, value, 0, LEARNERS_MAX - 1)
}

/// Converts an identity of N bytes.
fn fixed<const N: usize>(field: &str, bytes: &[u8]) -> Result<[u8; N], Invalid> {
    bytes.try_into().map_err(|_| invalid(field, format!("has {} bytes, expected {N}", bytes.len())))
}

/// Checks the number of a group or of a weights version.
fn number(field: &str, value: u64) -> Result<u64, Invalid> {
    if value > NUMBER_MAX {
        return Err(invalid(field, format!("{value} is more than {NUMBER_MAX}")));
    }
    Ok(value)
}

/// Checks the key of an address.
pub(crate) fn key(key: String) -> Result<String, Invalid> {
    one_to("key", key.len(), "bytes", KEY_BYTES_MAX)?;
    Ok(key)
}

/// Reads the secret of a group.
pub(crate) fn secret(bytes: &[u8]) -> Result<Secret, Invalid> {
    fixed("secret", bytes).map(Secret)
}

impl From<&Look> for v1::LookResponse {
    fn from(&Look { phase, index, steps }: &Look) -> Self {
        let (phase, coordinator) = match phase {
            Phase::Seeking => (v1::Phase::Seeking, None),
            Phase::Calling => (v1::Phase::Calling, Some(index)),
            Phase::Training { coordinator } => (v1::Phase::Training, Some(coordinator)),
        };
        Self { phase: phase.into(), index: wire_count(index), coordinator: coordinator.map(wire_count), steps }
    }
}

impl TryFrom<v1::LookResponse> for Look {
    type Error = Invalid;

    fn try_from(message: v1::LookResponse) -> Result<Self, Invalid> {
        let phase = message.phase();
        let v1::LookResponse { phase: _, index: own, coordinator, steps } = message;
        let coordinator = coordinator.map(|coordinator| index("coordinator", coordinator)).transpose()?;
        let phase = match (phase, coordinator) {
            (v1::Phase::Seeking, _) => Phase::Seeking,
            (v1::Phase::Calling, _) => Phase::Calling,
            (v1::Phase::Training, Some(coordinator)) => Phase::Training { coordinator },
            (v1::Phase::Training, None) => return Err(invalid("coordinator", "is missing")),
            (v1::Phase::Unspecified, _) => return Err(invalid("phase", "is unknown")),
        };
        Ok(Self { phase, index: index("index", own)?, steps })
    }
}

impl From<&Candidate> for v1::JoinRequest {
    fn from(&Candidate { index, steps, generation, weights_version, fingerprint, gpu }: &Candidate) -> Self {
        let (index, fingerprint) = (wire_count(index), fingerprint.to_string());
        Self { index, steps, generation, weights_version, fingerprint, gpu: gpu.map(|gpu| gpu.to_vec().into()) }
    }
}

impl TryFrom<v1::JoinRequest> for Candidate {
    type Error = Invalid;

    fn try_from(message: v1::JoinRequest) -> Result<Self, Invalid> {
        let v1::JoinRequest { index: own, steps, generation, weights_version, fingerprint, gpu } = message;
        let fingerprint = digest_from_wire("fingerprint", &fingerprint)?;
        let gpu = gpu.map(|bytes| fixed("gpu", &bytes)).transpose()?;
        let (generation, weights_version) =
            (number("generation", generation)?, number("weights_version", weights_version)?);
        Ok(Self { index: index("index", own)?, steps, generation, weights_version, fingerprint, gpu })
    }
}

impl From<&Roster> for v1::JoinResponse {
    fn from(Roster { generation, members, source, weights_version, meeting }: &Roster) -> Self {
        let meeting = match meeting {
            Meeting::Exchange { secret: Secret(secret) } => v1::join_response::Meeting::Secret(secret.to_vec().into()),
            Meeting::Nccl { id } => v1::join_response::Meeting::NcclId(id.to_vec().into()),
        };
        Self {
            generation: *generation,
            members: members.iter().map(|&member| wire_count(member)).collect(),
            source: wire_count(*source),
            weights_version: *weights_version,
            meeting: Some(meeting),
        }
    }
}

impl TryFrom<v1::JoinResponse> for Roster {
    type Error = Invalid;

    fn try_from(message: v1::JoinResponse) -> Result<Self, Invalid> {
        let v1::JoinResponse { generation, members, source, weights_version, meeting } = message;
        one_to("members", members.len(), "entries", LEARNERS_MAX)?;
        let members: Vec<usize> = (0..members.len())
            .map(|rank| index("member", members[rank]).map_err(inside(format!("members[{rank}]"))))
            .collect::<Result<_, _>>()?;
        if members.iter().collect::<BTreeSet<_>>().len() < members.len() {
            return Err(invalid("members", "lists a learner twice"));
        }
        let source = between("source", source, 0, members.len() - 1)?;
        let meeting = match meeting {
            Some(v1::join_response::Meeting::Secret(bytes)) => Meeting::Exchange { secret: secret(&bytes)? },
            Some(v1::join_response::Meeting::NcclId(id)) => Meeting::Nccl { id: Box::new(fixed("nccl_id", &id)?) },
            None => return Err(invalid("meeting", "is missing")),
        };
        let (generation, weights_version) =
            (number("generation", generation)?, number("weights_version", weights_version)?);
        Ok(Self { generation, members, source, weights_version, meeting })
    }
}

#[cfg(test)]
mod tests {
    use weights::Digest;

    use super::*;

    #[test]
    fn what_learners_say_to_each_other_survives_the_wire() {
        for phase in [Phase::Seeking, Phase::Calling, Phase::Training { coordinator: 2 }] {
            let look = Look { phase, index: 3, steps: 7 };
            assert_eq!(Look::try_from(v1::LookResponse::from(&look)), Ok(look));
        }
        let fingerprint = Digest::of(b"a network");
        for gpu in [None, Some([7; 16])] {
            let candidate = Candidate { index: 63, steps: 1, generation: 2, weights_version: 3, fingerprint, gpu };
            assert_eq!(Candidate::try_from(v1::JoinRequest::from(&candidate)), Ok(candidate));
        }
        for meeting in [Meeting::Exchange { secret: Secret([8; 32]) }, Meeting::Nccl { id: Box::new([9; 128]) }] {
            let roster = Roster { generation: 9, members: vec![4, 0, 2], source: 2, weights_version: 5, meeting };
            assert_eq!(Roster::try_from(v1::JoinResponse::from(&roster)), Ok(roster));
        }
    }

    #[test]
    fn each_invalid_field_is_named() {
        use v1::join_response::Meeting::{NcclId, Secret};
        let meeting = Some(Secret(vec![1; 32].into()));
        let good = || v1::JoinResponse {
            generation: 1,
            members: vec![1, 0],
            source: 1,
            weights_version: 0,
            meeting: meeting.clone(),
        };
        for (field, bad) in [
            ("members", v1::JoinResponse { members: Vec::new(), ..good() }),
            ("members", v1::JoinResponse { members: vec![1, 1], ..good() }),
            ("members", v1::JoinResponse { members: vec![0; 65], ..good() }),
            ("members[1].member", v1::JoinResponse { members: vec![1, 64], ..good() }),
            ("source", v1::JoinResponse { source: 2, ..good() }),
            ("secret", v1::JoinResponse { meeting: Some(Secret(vec![1; 31].into())), ..good() }),
            ("generation", v1::JoinResponse { generation: NUMBER_MAX + 1, ..good() }),
            ("weights_version", v1::JoinResponse { weights_version: u64::MAX, ..good() }),
            ("nccl_id", v1::JoinResponse { meeting: Some(NcclId(vec![1; 127].into())), ..good() }),
            ("meeting", v1::JoinResponse { meeting: None, ..good() }),
        ] {
            assert_eq!(Roster::try_from(bad.clone()).unwrap_err().field, field, "{bad:?}");
        }
        let fingerprint = Digest::of(b"a network").to_string();
        let good = || v1::JoinRequest { fingerprint: fingerprint.clone(), ..v1::JoinRequest::default() };
        for (field, bad) in [
            ("index", v1::JoinRequest { index: 64, ..good() }),
            ("generation", v1::JoinRequest { generation: u64::MAX, ..good() }),
            ("weights_version", v1::JoinRequest { weights_version: NUMBER_MAX + 1, ..good() }),
            ("fingerprint", v1::JoinRequest { fingerprint: "ab".to_owned(), ..good() }),
            ("gpu", v1::JoinRequest { gpu: Some(vec![1; 17].into()), ..good() }),
        ] {
            assert_eq!(Candidate::try_from(bad.clone()).unwrap_err().field, field, "{bad:?}");
        }
        assert!(key("k".repeat(KEY_BYTES_MAX)).is_ok() && secret(&[0; 32]).is_ok());
        for invalid in [key(String::new()), key("k".repeat(KEY_BYTES_MAX + 1))] {
            assert_eq!(invalid.unwrap_err().field, "key");
        }
        assert_eq!(secret(&[0; 33]).unwrap_err().field, "secret");
        for (field, bad) in [
            ("phase", v1::LookResponse::default()),
            ("phase", v1::LookResponse { phase: 9, ..v1::LookResponse::default() }),
            ("coordinator", v1::LookResponse { phase: v1::Phase::Training.into(), ..v1::LookResponse::default() }),
        ] {
            assert_eq!(Look::try_from(bad).unwrap_err().field, field, "{bad:?}");
        }
    }
}
