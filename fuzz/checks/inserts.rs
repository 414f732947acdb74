//! Messages of an insert stream.

use std::time::Duration;

use experience::{Limits, Segment, Step, Trajectory};
use prost::Message as _;
use proto::replay::order::{InsertOrder, Inserted};
use proto::replay::v1;
use replay_server::log::UnixMillis;

/// Checks that any bytes are valid messages of an insert stream or end it, and that accepted trajectories survive
/// conversions.
///
/// Each message has a length prefix of two little-endian bytes.
pub(crate) fn check(bytes: &[u8]) {
    let limits = Limits { steps_max: 64, actions: 64 };
    let mut order = InsertOrder::new("connect_four", 8, limits, Duration::ZERO);
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (message, after) = after.split_at(after.len().min(usize::from(u16::from_le_bytes(*length))));
        rest = after;
        let Ok(message) = v1::InsertRequest::decode(message) else { continue };
        match order.receive(message) {
            Err(_) => return,
            Ok(Inserted::Hello(_)) => drop(order.ready(0)),
            Ok(Inserted::Refused(_)) => order.answered(),
            Ok(Inserted::Heartbeat | Inserted::Goodbye) => {}
            Ok(Inserted::Trajectory(trajectory)) => {
                let steps: Vec<Step> = trajectory.steps().collect();
                // Observations have many compressed forms.
                if !trajectory.has_observations() {
                    let episode = trajectory.episode();
                    let again = Trajectory::of_episode(trajectory.id(), trajectory.game(), &steps, episode);
                    let (positions, surprises): (Vec<_>, Vec<_>) =
                        (trajectory.positions().collect(), trajectory.surprises().collect());
                    let again = again.and_then(|again| again.with_positions(&positions, &surprises));
                    assert_eq!(again.as_ref(), Ok(&trajectory), "there is one encoding of each");
                }
                for ply in 0..trajectory.plies() {
                    let segment = trajectory.segment(ply, 2).expect("there is such a ply");
                    let read = Segment::parse(trajectory.id(), segment.columns().clone(), limits);
                    assert_eq!(read.as_ref(), Ok(&segment));
                }
                replay_server::storage::encode(&trajectory, UnixMillis(0)).expect("it is within the limits");
                order.answered();
            }
        }
    }
}

/// Returns streams of trajectories, with and without the message that must come first.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds(trajectories: &[Trajectory]) -> Vec<Vec<u8>> {
    use v1::insert_request::Message;
    let wrap = |message| {
        let message = v1::InsertRequest { message: Some(message), ..v1::InsertRequest::default() }.encode_to_vec();
        [&(message.len() as u16).to_le_bytes()[..], &message].concat()
    };
    let hello = || {
        let hello = v1::Hello { actor: 1, epoch: 1, game: "connect_four".into(), revision: 1 };
        wrap(Message::Hello(hello))
    };
    let trajectories: Vec<u8> =
        trajectories.iter().flat_map(|trajectory| wrap(Message::Trajectory(trajectory.clone().into()))).collect();
    let end = [wrap(Message::Heartbeat(v1::Heartbeat::default())), wrap(Message::Goodbye(v1::Goodbye::default()))];
    vec![
        [hello(), trajectories.clone()].concat(),
        [hello(), hello()].concat(),
        trajectories.clone(),
        [hello(), trajectories, end.concat()].concat(),
    ]
}
