use std::time::Duration;

use super::{Invalid, cut, invalid, sentence};
use crate::limits::ACTORS_MAX;
use crate::replay::{Actor, ActorState, Actors, v1};

impl From<Actors> for v1::ActorsResponse {
    fn from(Actors { actors, lost_total, heartbeat }: Actors) -> Self {
        let heartbeat_ms = u32::try_from(heartbeat.as_millis()).unwrap_or(u32::MAX);
        Self { actors: actors.into_iter().map(Into::into).collect(), lost_total, heartbeat_ms }
    }
}

impl TryFrom<v1::ActorsResponse> for Actors {
    type Error = Invalid;

    fn try_from(v1::ActorsResponse { actors, lost_total, heartbeat_ms }: v1::ActorsResponse) -> Result<Self, Invalid> {
        if actors.len() > ACTORS_MAX {
            return Err(invalid("actors", format!("are {}, at most {ACTORS_MAX} are listed", actors.len())));
        }
        let actors = actors.into_iter().map(Actor::try_from).collect::<Result<_, _>>()?;
        Ok(Self { actors, lost_total, heartbeat: Duration::from_millis(heartbeat_ms.into()) })
    }
}

impl From<Actor> for v1::Actor {
    fn from(actor: Actor) -> Self {
        let Actor { actor, epoch, state, address, since, silent, weights_version, trajectories, unanswered, credit } =
            actor;
        let state = match state {
            ActorState::Live => v1::ActorState::Live,
            ActorState::Draining => v1::ActorState::Draining,
            ActorState::Lost => v1::ActorState::Lost,
        };
        let (since_ms, silent_ms) = (milliseconds(since), milliseconds(silent));
        let (state, address) = (state.into(), cut(address));
        Self { actor, epoch, state, address, since_ms, silent_ms, weights_version, trajectories, unanswered, credit }
    }
}

impl TryFrom<v1::Actor> for Actor {
    type Error = Invalid;

    fn try_from(message: v1::Actor) -> Result<Self, Invalid> {
        let v1::Actor {
            actor,
            epoch,
            state,
            address,
            since_ms,
            silent_ms,
            weights_version,
            trajectories,
            unanswered,
            credit,
        } = message;
        let state = match v1::ActorState::try_from(state) {
            Ok(v1::ActorState::Live) => ActorState::Live,
            Ok(v1::ActorState::Draining) => ActorState::Draining,
            Ok(v1::ActorState::Lost) => ActorState::Lost,
            Ok(v1::ActorState::Unspecified) | Err(_) => {
                return Err(invalid("state", format!("{state} is not a state of an actor")));
            }
        };
        let (since, silent) = (Duration::from_millis(since_ms), Duration::from_millis(silent_ms));
        let address = sentence("address", address)?;
        Ok(Self { actor, epoch, state, address, since, silent, weights_version, trajectories, unanswered, credit })
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
