//! Trajectories as lines of JSON: what was finished and never acknowledged, kept for the next start.
//!
//! Only an actor reads what an actor wrote, so this is no wire format; a line that cannot be read is left out.

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome, Player};
use proto::servers::Server;
use serde::{Deserialize, Serialize};
use weights::WeightsVersion;

/// A trajectory that is owed to a replay server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Owed {
    pub(crate) trajectory: Trajectory,
    /// The server that may have stored it: no other may get it. `None` if it was never sent.
    pub(crate) to: Option<Owner>,
}

/// A server that something is owed to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Owner {
    id: String,
    endpoint: String,
    /// It was the only one there was. Where there is still only one, it is this one, whatever its address.
    alone: bool,
}

impl Owner {
    pub(crate) fn new(server: &Server, alone: bool) -> Self {
        // A name that others may go by tomorrow is none of its own.
        let id = if server.has_own_name { &server.id } else { &server.endpoint };
        Self { id: id.to_string(), endpoint: server.endpoint.to_string(), alone }
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Which of the servers it is.
    pub(crate) fn among(&self, servers: &[Server]) -> Option<Server> {
        let is_named = |server: &&Server| server.has_own_name && *server.id == *self.id;
        let is_there = |server: &&Server| *server.endpoint == *self.endpoint;
        let only = || if let ([server], true) = (servers, self.alone) { Some(server) } else { None };
        servers.iter().find(is_named).or_else(|| servers.iter().find(is_there)).or_else(only).cloned()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    actor: u64,
    epoch: u64,
    sequence: u64,
    game: String,
    outcome: Ended,
    steps: Vec<Record>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<Owner>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ended {
    FirstWins,
    SecondWins,
    Draw,
    Finished,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    action: u16,
    reward: f32,
    weights_version: u64,
    kind: Kind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Full { policy: Vec<(u16, f32)>, value: f32 },
    Fast { value: f32 },
    Opening,
}

/// One line each.
pub(crate) fn encode(owed: &[Owed]) -> String {
    let mut text = String::new();
    for owed in owed {
        text += &serde_json::to_string(&Line::from(owed)).expect("a record of numbers and words is JSON");
        text.push('\n');
    }
    text
}

/// The trajectories, and what is wrong with the lines that are none, counted from one.
pub(crate) fn decode(text: &[u8]) -> (Vec<Owed>, Vec<(usize, String)>) {
    let (mut owed, mut faults) = (Vec::new(), Vec::new());
    for (i, line) in text.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        match serde_json::from_slice::<Line>(line) {
            Ok(line) => owed.push(line.into()),
            Err(error) => faults.push((i + 1, error.to_string())),
        }
    }
    (owed, faults)
}

impl From<&Owed> for Line {
    fn from(Owed { trajectory, to }: &Owed) -> Self {
        let Trajectory { id, game, steps, outcome } = trajectory;
        let outcome = match outcome {
            Outcome::Win(Player::First) => Ended::FirstWins,
            Outcome::Win(Player::Second) => Ended::SecondWins,
            Outcome::Draw => Ended::Draw,
            Outcome::Finished => Ended::Finished,
        };
        let steps = steps.iter().map(Record::from).collect();
        let (TrajectoryId { actor, epoch, sequence }, game, server) = (*id, game.clone(), to.clone());
        Self { actor, epoch, sequence, game, outcome, steps, server }
    }
}

impl From<Line> for Owed {
    fn from(Line { actor, epoch, sequence, game, outcome, steps, server }: Line) -> Self {
        let outcome = match outcome {
            Ended::FirstWins => Outcome::Win(Player::First),
            Ended::SecondWins => Outcome::Win(Player::Second),
            Ended::Draw => Outcome::Draw,
            Ended::Finished => Outcome::Finished,
        };
        let steps = steps.into_iter().map(Step::from).collect();
        let id = TrajectoryId { actor, epoch, sequence };
        Self { trajectory: Trajectory { id, game, steps, outcome }, to: server }
    }
}

impl From<&Step> for Record {
    fn from(Step { action, reward, kind, weights_version }: &Step) -> Self {
        let kind = match kind {
            StepKind::Full { policy, value } => {
                let policy = policy.iter().map(|entry| (entry.action.0, entry.probability)).collect();
                Kind::Full { policy, value: *value }
            }
            StepKind::Fast { value } => Kind::Fast { value: *value },
            StepKind::Opening => Kind::Opening,
        };
        Self { action: action.0, reward: *reward, weights_version: weights_version.0, kind }
    }
}

impl From<Record> for Step {
    fn from(Record { action, reward, weights_version, kind }: Record) -> Self {
        let kind = match kind {
            Kind::Full { policy, value } => {
                let entry = |(action, probability)| ActionProbability { action: Action(action), probability };
                StepKind::Full { policy: policy.into_iter().map(entry).collect(), value }
            }
            Kind::Fast { value } => StepKind::Fast { value },
            Kind::Opening => StepKind::Opening,
        };
        Self { action: Action(action), reward, kind, weights_version: WeightsVersion(weights_version) }
    }
}

/// One trajectory of every outcome, with steps of every kind, owed to a server or to none.
#[cfg(test)]
pub(crate) fn examples() -> Vec<Owed> {
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
            let trajectory = Trajectory { id, game: "tic_tac_toe".to_owned(), steps: steps.clone(), outcome };
            let endpoint = "http://10.0.0.1:7001".into();
            let server = Server { id: "http://replay:7001".into(), endpoint, has_own_name: true };
            Owed { trajectory, to: (sequence > 0).then(|| Owner::new(&server, sequence == 1)) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
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

    fn server(id: &str, endpoint: &str, has_own_name: bool) -> Server {
        Server { id: id.into(), endpoint: endpoint.into(), has_own_name }
    }

    #[test]
    fn a_server_with_a_name_of_its_own_is_found_by_it_and_any_other_by_its_address() {
        let (named, unnamed) =
            (server("http://a:1", "http://10.0.0.1:1", true), server("http://a:1", "http://10.0.0.1:1", false));
        let moved = server("http://a:1", "http://10.0.0.9:1", true);
        let other = server("http://b:1", "http://10.0.0.2:1", true);
        assert_eq!(Owner::new(&named, false).among(&[other.clone(), moved.clone()]), Some(moved.clone()));
        assert_eq!(Owner::new(&unnamed, false).among(&[other.clone(), moved]), None);
        assert_eq!(Owner::new(&unnamed, false).among(&[other.clone(), named.clone()]), Some(named));
        assert_eq!(Owner::new(&other, false).among(&[]), None);
    }

    #[test]
    fn the_only_server_is_the_only_server_and_never_one_of_several() {
        let owner = Owner::new(&Server::at("http://127.0.0.1:7001"), true);
        let (elsewhere, other) = (Server::at("http://127.0.0.1:9000"), Server::at("http://127.0.0.1:9001"));
        assert_eq!(owner.among(std::slice::from_ref(&elsewhere)), Some(elsewhere.clone()));
        assert_eq!(owner.among(&[elsewhere, other]), None);
    }

    #[test]
    fn what_was_spooled_before_there_were_several_servers_is_owed_to_nobody() {
        let owed = &examples()[..1];
        assert_eq!(owed[0].to, None);
        assert!(!encode(owed).contains("server"), "{}", encode(owed));
        assert_eq!(decode(encode(owed).as_bytes()).0, owed);
    }
}
