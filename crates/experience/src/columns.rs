//! The columns of a whole or partial episode in one byte buffer: the form of a trajectory in memory, on the wire, in
//! the spool and on disk.
//!
//! All integers are little-endian; `n` is an unsigned LEB128 number in the shortest form. The header comes first:
//!
//! | field | bytes |
//! |---|---|
//! | format | `1` |
//! | flags | bit 0: actions take two bytes, not one; bit 1: policies name actions by a bit set, not a list |
//! | outcome | `1` the first player won, `2` the second won, `3` draw; scored by rewards alone: `4` ended, `5` truncated |
//! | game | `n`, then that many bytes of UTF-8; `n` is 0 in a part |
//! | plies | `n`: steps of the episode |
//! | ply | `n`: the first step described; 0 in a whole trajectory |
//! | steps | `n`: steps described; all in a whole trajectory |
//! | kinds | `n`: bytes of the column of kinds |
//! | set | `n`: bytes of each bit set, only with flag bit 1 |
//! | optional | the number of optional columns, one byte; for each, ascending: the id, one byte, and the size, `n` |
//!
//! The columns follow one another without gaps, over the steps described:
//!
//! | column | bytes |
//! |---|---|
//! | kinds | `n` for each: 0 opening, 1 fast search, else a full search with `n` − 1 policy entries |
//! | actions | one or two bytes each, for all steps from the start of the episode to the last described |
//! | values | float32 for each fast or full step: the search's value for the player to move |
//! | policies | for each full step: the actions (a list, ascending, or a bit set), then the probabilities in float32 |
//! | versions | runs of equal weights versions: `n` steps, `n` version |
//! | optional columns | in the order of the header |
//!
//! The optional columns are:
//!
//! | id | column | bytes |
//! |---|---|---|
//! | 1 | rewards | float32 for each step; absent if all are +0 |
//! | 2 | observations | the frames of the steps' observations, in compressed blocks ([`frames`]) |
//! | 5 | truncation | float32: the value to bootstrap from; present exactly if the outcome is `5` |
//! | 6 | seed | 8 bytes: the seed from which the rules recompute the episode; absent if it is 0 |
//! | 7 | positions | 8 bytes for each full step: a hash of the position, equal for all images under symmetries |
//! | 8 | surprises | float32 for each full step: the divergence of the policy from the prior in nats, at least 0 |
//!
//! Truncation and seed are in every part too, since they belong to the episode: a part is complete without the
//! trajectory. Positions and surprises are in no part: they serve the choice of items, which precedes the part. They
//! are absent where they are unknown: in the trajectories of older actors, and positions without rules. Reserved, and
//! rejected until a version implements them: 3 search simulations, 4 root values. A new column needs no new format.
//!
//! The encoding of a whole trajectory is unique: action width and policy form take the fewest bytes, runs are of
//! maximum length, and nothing follows the last column. Observations are the exception, since one block has many
//! compressed forms. A part uses the width and form of the whole.

mod block;
mod builder;
mod codes;
pub(crate) mod frames;
pub(crate) mod parse;
mod span;
mod steps;

use std::hint::black_box;

use bytes::Bytes;
use game::{Action, Outcome, Player};
use weights::WeightsVersion;

use crate::{Episode, Invalid, Limits, Observations, Step, invalid};
use builder::ColumnsBuilder;
pub(crate) use codes::Kind;
use codes::{ActionWidth, Kinds, PolicyActions, put_number};
pub(crate) use frames::Frames;
use span::Span;
use steps::{Steps, VersionRun, VersionRuns};

/// The version of the layout.
const FORMAT: u8 = 1;
const FLAG_WIDE_ACTIONS: u8 = 1;
const FLAG_BIT_SETS: u8 = 2;

/// The ids of the optional columns in the header.
const REWARDS: u8 = 1;
const OBSERVATIONS: u8 = 2;
const TRUNCATION: u8 = 5;
const SEED: u8 = 6;
const POSITIONS: u8 = 7;
const SURPRISES: u8 = 8;
const RESERVED: [(u8, &str); 2] = [(3, "search_simulations"), (4, "root_values")];

/// Checked columns of a whole episode, or of a part.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    pub(crate) bytes: Bytes,
    pub(crate) layout: Layout,
}

/// The offset of each column, and the fields of the header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) outcome: Outcome,
    action_width: ActionWidth,
    policy_actions: PolicyActions,
    game_at: u32,
    game_bytes: u32,
    kinds_at: u32,
    actions_at: u32,
    values_at: u32,
    policies_at: u32,
    versions_at: u32,
    /// The offsets of the optional columns; an absent column has no bytes.
    rewards_at: u32,
    observations_at: u32,
    truncation_at: u32,
    seed_at: u32,
    positions_at: u32,
    surprises_at: u32,
    /// The number of steps in the episode.
    pub(crate) plies: u32,
    /// The first step described.
    pub(crate) ply: u32,
    /// The number of steps described.
    pub(crate) steps: u32,
    /// Steps with a search policy that is a training target.
    pub(crate) full_steps: u32,
}

/// The steps that columns cover: all of an episode, or a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    Part,
}

/// Columns are equal exactly if the bytes are: the encoding is unique, except that equal observations may have been
/// compressed differently.
impl PartialEq for Columns {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Columns {
    /// Validates columns as far as possible without the rules of the game, before anything is allocated.
    pub(crate) fn parse(bytes: Bytes, limits: Limits, extent: Extent) -> Result<Self, Invalid> {
        let layout = parse::layout(&bytes, limits, extent)?;
        Ok(Self { bytes, layout })
    }

    /// Encodes the columns of a whole episode, and validates them as [`Columns::parse`] does, but without limits.
    pub(crate) fn of<'a>(
        steps: impl IntoIterator<Item = &'a Step>,
        game: &str,
        episode: Episode,
        observations: Option<Observations>,
    ) -> Result<Self, Invalid> {
        let mut builder = ColumnsBuilder::default();
        steps.into_iter().for_each(|step| builder.push(step));
        builder.finish(game, episode, observations)
    }

    /// Returns the facts of the episode.
    pub(crate) fn episode(&self) -> Episode {
        let Layout { outcome, truncation_at, seed_at, positions_at, .. } = self.layout;
        let seed = self.section(seed_at, positions_at).first_chunk().map_or(0, |&seed| u64::from_le_bytes(seed));
        let truncation = self.section(truncation_at, seed_at).first_chunk();
        Episode { seed, outcome, truncation_value: truncation.map_or(0.0, |&value| f32::from_le_bytes(value)) }
    }

    /// Returns the stored frames; `None` if the rules recompute the observations.
    pub(crate) fn frames(&self) -> Option<Frames<'_>> {
        let column = self.observations();
        let frames =
            || Frames::parse(column, self.layout.span()).expect("the frames were checked when they were parsed");
        (!column.is_empty()).then(frames)
    }

    /// Returns the column of observations; empty if there is none.
    pub(crate) fn observations(&self) -> &[u8] {
        self.section(self.layout.observations_at, self.layout.truncation_at)
    }

    /// Returns the hashes of the positions of full steps, little-endian; empty if they are unknown.
    pub(crate) fn positions(&self) -> &[[u8; 8]] {
        self.section(self.layout.positions_at, self.layout.surprises_at).as_chunks().0
    }

    /// Returns the surprises of full steps, little-endian; empty if they are unknown.
    pub(crate) fn surprises(&self) -> &[[u8; 4]] {
        self.bytes[self.layout.surprises_at as usize..].as_chunks().0
    }

    pub(crate) fn game(&self) -> &str {
        let name = self.section(self.layout.game_at, self.layout.game_at + self.layout.game_bytes);
        std::str::from_utf8(name).expect("the name was checked when it was parsed")
    }

    /// Returns the actions from the start of the episode to the last step described.
    pub(crate) fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        let mut actions = self.section(self.layout.actions_at, self.layout.values_at);
        std::iter::from_fn(move || self.layout.action_width.take(&mut actions))
    }

    pub(crate) fn kinds(&self) -> Kinds<'_> {
        Kinds::new(self.section(self.layout.kinds_at, self.layout.actions_at))
    }

    /// Returns the index of each searched step, counted from the first step described, with the value.
    pub(crate) fn values(&self) -> impl Iterator<Item = (usize, f32)> + '_ {
        let searched = self.kinds().enumerate().filter(|(_, kind)| *kind != Kind::Opening).map(|(at, _)| at);
        let (values, _) = self.section(self.layout.values_at, self.layout.policies_at).as_chunks();
        searched.zip(values.iter().map(|&value| f32::from_le_bytes(value)))
    }

    pub(crate) fn first_weights_version(&self) -> Option<WeightsVersion> {
        self.versions().next().map(|run| run.weights_version)
    }

    pub(crate) fn last_weights_version(&self) -> Option<WeightsVersion> {
        self.versions().last().map(|run| run.weights_version)
    }

    /// Returns the steps described.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.steps_from(0)
    }

    /// Returns the columns of `steps` steps from index `from` on, which must exist. The columns are copied without
    /// decoding them.
    pub(crate) fn part(&self, from: usize, steps: usize) -> Self {
        let first = self.steps_from(from);
        let mut behind = first.clone();
        behind.skip_plies(steps);
        let kinds = before(first.kinds.bytes(), behind.kinds.bytes());
        let actions = before(self.section(self.layout.actions_at, self.layout.values_at), behind.actions);
        let (values, policies) = (before(first.values, behind.values), before(first.policies, behind.policies));
        let rewards = before(first.rewards, behind.rewards);
        let ply = self.layout.ply as usize + from;
        let span = Span { plies: self.layout.plies as usize, ply, steps };
        let observations = self.frames().map(|frames| frames.part(span)).unwrap_or_default();
        let Layout { outcome, action_width, policy_actions, truncation_at, seed_at, positions_at, .. } = self.layout;
        let (truncation, seed) = (self.section(truncation_at, seed_at), self.section(seed_at, positions_at));
        let header = Header {
            outcome,
            action_width,
            policy_actions,
            game: "",
            plies: self.layout.plies as usize,
            ply,
            steps,
            kinds_bytes: kinds.len(),
            optional: [
                (REWARDS, rewards.len()),
                (OBSERVATIONS, observations.len()),
                (TRUNCATION, truncation.len()),
                (SEED, seed.len()),
                (POSITIONS, 0),
                (SURPRISES, 0),
            ],
        };
        let optional: usize = header.optional.iter().map(|(_, bytes)| bytes).sum();
        let columns = kinds.len() + actions.len() + values.len() + policies.len() + optional;
        let mut out = Vec::with_capacity(Header::BYTES_USUAL + columns);
        header.put(&mut out);
        // All offsets fit in 32 bits, since the offsets in the whole do.
        let mut put = |column: &[u8]| {
            let at = out.len() as u32;
            out.extend_from_slice(column);
            at
        };
        let (kinds_at, actions_at, values_at, policies_at) = (put(kinds), put(actions), put(values), put(policies));
        let versions_at = out.len() as u32;
        let (mut versions, mut left) = (first.versions, steps);
        while left > 0
            && let Some(run) = versions.next()
        {
            let covered = run.steps.min(left);
            VersionRun { steps: covered, ..run }.put(&mut out);
            left -= covered;
        }
        let mut put = |column: &[u8]| {
            let at = out.len() as u32;
            out.extend_from_slice(column);
            at
        };
        let (rewards_at, observations_at, truncation_at, seed_at) =
            (put(rewards), put(&observations), put(truncation), put(seed));
        let end = out.len() as u32;
        let full_steps = Kinds::new(kinds).filter(|kind| matches!(kind, Kind::Full { .. })).count() as u32;
        let layout = Layout {
            game_bytes: 0,
            kinds_at,
            actions_at,
            values_at,
            policies_at,
            versions_at,
            rewards_at,
            observations_at,
            truncation_at,
            seed_at,
            positions_at: end,
            surprises_at: end,
            ply: header.ply as u32,
            steps: steps as u32,
            full_steps,
            ..self.layout
        };
        Self { bytes: out.into(), layout }
    }

    /// Returns the rewards of the steps described.
    pub(crate) fn rewards(&self) -> impl Iterator<Item = f32> + '_ {
        let (rewards, _) = self.section(self.layout.rewards_at, self.layout.observations_at).as_chunks();
        let mut rewards = rewards.iter();
        (0..self.layout.steps).map(move |_| rewards.next().map_or(0.0, |&reward| f32::from_le_bytes(reward)))
    }

    /// Returns these columns of a whole trajectory with other observations, positions and surprises, all checked; an
    /// empty column is absent. Nothing is decoded.
    ///
    /// # Errors
    /// The columns are longer than any trajectory.
    pub(crate) fn with(&self, observations: &[u8], positions: &[u8], surprises: &[u8]) -> Result<Self, Invalid> {
        let Layout { outcome, action_width, policy_actions, kinds_at, actions_at, rewards_at, .. } = self.layout;
        let Layout { observations_at, truncation_at, seed_at, positions_at, .. } = self.layout;
        let plies = self.layout.plies as usize;
        let (truncation, seed) = (self.section(truncation_at, seed_at), self.section(seed_at, positions_at));
        let header = Header {
            outcome,
            action_width,
            policy_actions,
            game: self.game(),
            plies,
            ply: 0,
            steps: plies,
            kinds_bytes: (actions_at - kinds_at) as usize,
            optional: [
                (REWARDS, (observations_at - rewards_at) as usize),
                (OBSERVATIONS, observations.len()),
                (TRUNCATION, truncation.len()),
                (SEED, seed.len()),
                (POSITIONS, positions.len()),
                (SURPRISES, surprises.len()),
            ],
        };
        let added = observations.len() + positions.len() + surprises.len();
        let mut out = Vec::with_capacity(Header::BYTES_USUAL + self.bytes.len() + added);
        header.put(&mut out);
        let begin = out.len();
        out.extend_from_slice(self.section(kinds_at, observations_at));
        let ends = [observations, truncation, seed, positions, surprises].map(|column| {
            out.extend_from_slice(column);
            out.len()
        });
        if u32::try_from(out.len()).is_err() {
            let reason = format!("have {} bytes, more than any trajectory", out.len());
            return Err(invalid("columns", reason));
        }
        // All offsets are at most the length, which was checked to fit in 32 bits.
        let moved = |at: u32| begin as u32 + (at - kinds_at);
        let [truncation_at, seed_at, positions_at, surprises_at, _] = ends.map(|end| end as u32);
        let layout = Layout {
            kinds_at: moved(kinds_at),
            actions_at: moved(actions_at),
            values_at: moved(self.layout.values_at),
            policies_at: moved(self.layout.policies_at),
            versions_at: moved(self.layout.versions_at),
            rewards_at: moved(rewards_at),
            observations_at: moved(observations_at),
            truncation_at,
            seed_at,
            positions_at,
            surprises_at,
            ..self.layout
        };
        Ok(Self { bytes: out.into(), layout })
    }

    /// Prefetches the memory that [`Columns::part`] will probably read for the full step with index `item`, by reading
    /// single bytes at estimated offsets. Called for several trajectories before the first is cut, it overlaps the
    /// cache misses.
    pub(crate) fn fetch(&self, item: usize) {
        let Layout { kinds_at, actions_at, values_at, policies_at, versions_at, full_steps, .. } = self.layout;
        let past =
            |section: u32, end: u32| section as usize + (end - section) as usize * item / full_steps.max(1) as usize;
        let (values, policies) = (past(values_at, policies_at), past(policies_at, versions_at));
        // A policy may span two cache lines.
        for at in [kinds_at as usize, actions_at as usize, values, policies, policies + 32, versions_at as usize] {
            black_box(self.bytes.get(at).copied());
        }
    }

    fn section(&self, from: u32, to: u32) -> &[u8] {
        &self.bytes[from as usize..to as usize]
    }

    fn versions(&self) -> VersionRuns<'_> {
        VersionRuns::new(self.section(self.layout.versions_at, self.layout.rewards_at))
    }

    /// Returns the steps from index `from` on, counted from the first step described; empty if there is no such step.
    fn steps_from(&self, from: usize) -> Steps<'_> {
        let Layout { action_width, policy_actions, actions_at, values_at, policies_at, versions_at, .. } = self.layout;
        // The steps before the first step described have actions only.
        let described_at = actions_at + self.layout.ply * action_width.bytes() as u32;
        let mut steps = Steps {
            action_width,
            policy_actions,
            kinds: self.kinds(),
            actions: self.section(described_at, values_at),
            rewards: self.section(self.layout.rewards_at, self.layout.observations_at),
            values: self.section(values_at, policies_at),
            policies: self.section(policies_at, versions_at),
            versions: self.versions(),
        };
        steps.skip_plies(from);
        steps
    }
}

impl Layout {
    pub(crate) fn span(&self) -> Span {
        Span { plies: self.plies as usize, ply: self.ply as usize, steps: self.steps as usize }
    }
}

/// Returns the bytes of `all` before the suffix `rest`.
fn before<'a>(all: &'a [u8], rest: &[u8]) -> &'a [u8] {
    &all[..all.len() - rest.len()]
}

/// The header: the fields before the columns.
#[derive(Debug)]
struct Header<'a> {
    outcome: Outcome,
    action_width: ActionWidth,
    policy_actions: PolicyActions,
    game: &'a str,
    plies: usize,
    ply: usize,
    steps: usize,
    kinds_bytes: usize,
    /// The ids of all optional columns, ascending, with sizes in bytes; 0 if the column is absent.
    optional: [(u8, usize); 6],
}

impl Header<'_> {
    /// The capacity for most headers without a name, and for a run of versions.
    const BYTES_USUAL: usize = 24;

    fn put(&self, out: &mut Vec<u8>) {
        let wide = if self.action_width == ActionWidth::Two { FLAG_WIDE_ACTIONS } else { 0 };
        let sets = if let PolicyActions::BitSet { .. } = self.policy_actions { FLAG_BIT_SETS } else { 0 };
        let outcome = match self.outcome {
            Outcome::Win(Player::First) => 1,
            Outcome::Win(Player::Second) => 2,
            Outcome::Draw => 3,
            Outcome::Finished => 4,
            Outcome::Truncated => 5,
        };
        out.extend_from_slice(&[FORMAT, wide | sets, outcome]);
        put_number(out, self.game.len() as u64);
        out.extend_from_slice(self.game.as_bytes());
        for number in [self.plies, self.ply, self.steps, self.kinds_bytes] {
            put_number(out, number as u64);
        }
        if let PolicyActions::BitSet { bytes } = self.policy_actions {
            put_number(out, bytes.into());
        }
        let present = self.optional.iter().filter(|(_, bytes)| *bytes > 0);
        // There are at most six.
        out.push(present.clone().count() as u8);
        for &(id, bytes) in present {
            out.push(id);
            put_number(out, bytes as u64);
        }
    }
}

#[cfg(test)]
mod tests;
