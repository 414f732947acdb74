use game::{Action, Outcome, Player};

use super::codes::{ActionWidth, Kind, PolicyActions, take_number};
use super::steps::VersionRun;
use super::{
    Extent, FLAG_BIT_SETS, FLAG_WIDE_ACTIONS, FORMAT, Frames, Layout, OBSERVATIONS, POSITIONS, RESERVED, REWARDS, SEED,
    SURPRISES, Span, TRUNCATION,
};
use crate::{Invalid, Limits, invalid};

/// Maximum length of a game's name, in bytes.
const GAME_BYTES_MAX: usize = 256;
/// Tolerance of a policy's sum. Probabilities are computed in float32; the error of a sum over a few thousand entries
/// stays well below this.
const SUM_TOLERANCE: f64 = 1e-3;
const FLOAT_BYTES: usize = size_of::<f32>();

fn step(at: usize, field: &str) -> String {
    format!("steps[{at}].{field}")
}

/// Validates all columns and returns the offset of each. Allocates only the text of an error.
pub(super) fn layout(bytes: &[u8], limits: Limits, extent: Extent) -> Result<Layout, Invalid> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(invalid("columns", format!("have {} bytes, more than any trajectory", bytes.len())));
    }
    let mut reader = Reader { all: bytes, rest: bytes };
    let [format, flags, outcome] = reader.take()?;
    if format != FORMAT {
        return Err(invalid("format", format!("is {format}, this program reads format {FORMAT}")));
    }
    if flags & !(FLAG_WIDE_ACTIONS | FLAG_BIT_SETS) != 0 {
        return Err(invalid("flags", format!("{flags:#04x} has unknown bits")));
    }
    let outcome = match outcome {
        1 => Outcome::Win(Player::First),
        2 => Outcome::Win(Player::Second),
        3 => Outcome::Draw,
        4 => Outcome::Finished,
        5 => Outcome::Truncated,
        code => return Err(invalid("outcome", format!("{code} is not an outcome"))),
    };
    let (game_at, game_bytes) = reader.game(extent)?;
    let (plies, ply, steps) = reader.extent(limits, extent)?;
    let kinds_bytes = reader.count("kinds")?;
    let action_width = if flags & FLAG_WIDE_ACTIONS == 0 { ActionWidth::One } else { ActionWidth::Two };
    let policy_actions = if flags & FLAG_BIT_SETS == 0 {
        PolicyActions::List(action_width)
    } else {
        let bytes = reader.count("set")?;
        let bytes = u16::try_from(bytes).ok().filter(|bytes| (1..=1 << 13).contains(bytes));
        PolicyActions::BitSet { bytes: bytes.ok_or_else(|| invalid("set", "has no valid length of a bit set"))? }
    };
    let optional = reader.optional_columns(steps)?;

    let kinds_at = reader.at();
    let kinds = reader.kinds(kinds_bytes, steps, limits)?;
    let actions_at = reader.at();
    let highest_played = reader.actions(ply, steps, action_width, limits)?;
    let values_at = reader.at();
    reader.floats("value", kinds.values)?;
    let policies_at = reader.at();
    let policies = &bytes[kinds_at as usize..actions_at as usize];
    let highest_in_policies = reader.policies(policies, policy_actions, limits)?;
    let versions_at = reader.at();
    reader.versions(steps)?;
    let rewards_at = reader.at();
    if optional.rewards {
        let rewards = reader.floats("reward", steps)?;
        if extent == Extent::Whole && rewards.iter().all(|&byte| byte == 0) {
            return Err(invalid("rewards", "are all zero; leave the column out"));
        }
    }
    let observations_at = reader.at();
    if let Some(bytes) = optional.observations_bytes {
        let frames = Frames::parse(reader.bytes(bytes)?, Span { plies, ply, steps })?;
        // A segment checks the frames once, when it decodes them.
        if extent == Extent::Whole {
            frames.check()?;
        }
    }
    let truncation_at = reader.at();
    if optional.truncation != (outcome == Outcome::Truncated) {
        let reason = if optional.truncation { "is given for an episode that is not truncated" } else { "is missing" };
        return Err(invalid("truncation", reason));
    }
    if optional.truncation && !f32::from_le_bytes(reader.take()?).is_finite() {
        return Err(invalid("truncation", "is not finite"));
    }
    let seed_at = reader.at();
    if optional.seed && u64::from_le_bytes(reader.take()?) == 0 {
        return Err(invalid("seed", "is 0; leave the column out"));
    }
    let positions_at = reader.at();
    reader.of_full_steps("positions", optional.positions_bytes, kinds.full * size_of::<u64>(), extent)?;
    let surprises_at = reader.at();
    let surprises =
        reader.of_full_steps("surprises", optional.surprises_bytes, kinds.full * FLOAT_BYTES, extent)?.as_chunks().0;
    check_surprises(surprises.iter().map(|&surprise| f32::from_le_bytes(surprise)))?;
    if !reader.rest.is_empty() {
        return Err(invalid("columns", format!("have {} bytes after the end", reader.rest.len())));
    }
    if extent == Extent::Whole {
        let highest = highest_played.max(highest_in_policies);
        let shortest_width = ActionWidth::of(std::iter::once(highest));
        let shortest = PolicyActions::shortest(kinds.full, kinds.entries, highest_in_policies, shortest_width);
        if (action_width, policy_actions) != (shortest_width, shortest) {
            return Err(invalid("flags", "do not describe the shortest encoding"));
        }
    }
    // All counts are below the length, which fits in 32 bits.
    let [plies, ply, steps, full_steps] = [plies, ply, steps, kinds.full].map(|count| count as u32);
    Ok(Layout {
        outcome,
        action_width,
        policy_actions,
        game_at,
        game_bytes,
        kinds_at,
        actions_at,
        values_at,
        policies_at,
        versions_at,
        rewards_at,
        observations_at,
        truncation_at,
        seed_at,
        positions_at,
        surprises_at,
        plies,
        ply,
        steps,
        full_steps,
    })
}

/// The optional columns that are present.
#[derive(Default)]
struct OptionalColumns {
    rewards: bool,
    observations_bytes: Option<usize>,
    truncation: bool,
    seed: bool,
    positions_bytes: Option<usize>,
    surprises_bytes: Option<usize>,
}

/// The sums over the kinds of all steps.
#[derive(Default)]
struct KindTotals {
    values: usize,
    full: usize,
    entries: usize,
}

struct Reader<'a> {
    all: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn at(&self) -> u32 {
        // The length was checked to fit in 32 bits.
        (self.all.len() - self.rest.len()) as u32
    }

    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Invalid> {
        let (&taken, rest) = self.rest.split_first_chunk().ok_or_else(ends_early)?;
        self.rest = rest;
        Ok(taken)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Invalid> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(ends_early)?;
        self.rest = rest;
        Ok(taken)
    }

    fn count(&mut self, field: &str) -> Result<usize, Invalid> {
        let number =
            take_number(&mut self.rest).ok_or_else(|| invalid(field, "is not a number in the shortest encoding"))?;
        usize::try_from(number).map_err(|_| invalid(field, format!("{number} is too large for this machine")))
    }

    fn game(&mut self, extent: Extent) -> Result<(u32, u32), Invalid> {
        let length = self.count("game")?;
        match extent {
            Extent::Whole if length == 0 => return Err(invalid("game", "is empty")),
            Extent::Part if length > 0 => return Err(invalid("game", "is allowed in a whole trajectory only")),
            _ if length > GAME_BYTES_MAX => {
                return Err(invalid("game", format!("has {length} bytes, the limit is {GAME_BYTES_MAX}")));
            }
            _ => {}
        }
        let at = self.at();
        std::str::from_utf8(self.bytes(length)?).map_err(|_| invalid("game", "is not UTF-8"))?;
        Ok((at, length as u32))
    }

    /// Reads the plies of the episode, the first step described and the number of steps described.
    fn extent(&mut self, limits: Limits, extent: Extent) -> Result<(usize, usize, usize), Invalid> {
        let (plies, ply, steps) = (self.count("plies")?, self.count("ply")?, self.count("steps")?);
        if steps == 0 {
            return Err(invalid("steps", "is empty"));
        }
        if plies > limits.steps_max {
            return Err(invalid("steps", format!("has {plies} steps, the limit is {}", limits.steps_max)));
        }
        if ply >= plies || steps > plies - ply {
            return Err(invalid(
                "ply",
                format!("{steps} steps from ply {ply} exceed the {plies} plies of the episode"),
            ));
        }
        if extent == Extent::Whole && steps != plies {
            return Err(invalid("steps", format!("has {steps} of {plies} steps")));
        }
        Ok((plies, ply, steps))
    }

    fn optional_columns(&mut self, steps: usize) -> Result<OptionalColumns, Invalid> {
        let [count] = self.take()?;
        let (mut columns, mut last) = (OptionalColumns::default(), 0);
        for _ in 0..count {
            let ([id], bytes) = (self.take()?, self.count("optional columns")?);
            if id <= last {
                return Err(invalid("optional columns", "are not in ascending order of id"));
            }
            last = id;
            let expect = |name: &str, expected: usize| match bytes {
                _ if bytes == expected => Ok(()),
                _ => Err(invalid(name, format!("has {bytes} bytes, expected {expected}"))),
            };
            match id {
                REWARDS if bytes != steps.saturating_mul(FLOAT_BYTES) => {
                    return Err(invalid("rewards", format!("have {bytes} bytes for {steps} steps")));
                }
                REWARDS => columns.rewards = true,
                OBSERVATIONS => columns.observations_bytes = Some(bytes),
                TRUNCATION => {
                    expect("truncation", FLOAT_BYTES)?;
                    columns.truncation = true;
                }
                SEED => {
                    expect("seed", size_of::<u64>())?;
                    columns.seed = true;
                }
                POSITIONS => columns.positions_bytes = Some(bytes),
                SURPRISES => columns.surprises_bytes = Some(bytes),
                id => {
                    return Err(match RESERVED.iter().find(|(reserved, _)| *reserved == id) {
                        Some((_, name)) => invalid(*name, "is a column that this version does not support"),
                        None => invalid("optional columns", format!("have the unknown column {id}")),
                    });
                }
            }
        }
        Ok(columns)
    }

    /// Reads an optional column of `expected` bytes, which describes the full steps of a whole trajectory.
    fn of_full_steps(
        &mut self,
        field: &str,
        bytes: Option<usize>,
        expected: usize,
        extent: Extent,
    ) -> Result<&'a [u8], Invalid> {
        match bytes {
            None => Ok(&[]),
            Some(_) if extent == Extent::Part => Err(invalid(field, "are allowed in a whole trajectory only")),
            Some(0) => Err(invalid(field, "are empty; leave the column out")),
            Some(bytes) if bytes != expected => Err(invalid(field, format!("have {bytes} bytes, expected {expected}"))),
            Some(bytes) => self.bytes(bytes),
        }
    }

    fn kinds(&mut self, bytes: usize, steps: usize, limits: Limits) -> Result<KindTotals, Invalid> {
        let mut kinds = self.bytes(bytes)?;
        let mut totals = KindTotals::default();
        for at in 0..steps {
            let kind = Kind::take(&mut kinds).ok_or_else(|| invalid(step(at, "kind"), "is missing or not a number"))?;
            totals.values += kind.values();
            if let Some(entries) = kind.entries() {
                if entries > limits.actions {
                    let reason = format!("has {entries} entries for {} actions", limits.actions);
                    return Err(invalid(step(at, "policy"), reason));
                }
                totals.full += 1;
                totals.entries += entries;
            }
        }
        if kinds.is_empty() { Ok(totals) } else { Err(invalid("kinds", format!("are more than the {steps} steps"))) }
    }

    /// Validates the actions and returns the highest one.
    fn actions(&mut self, ply: usize, steps: usize, width: ActionWidth, limits: Limits) -> Result<Action, Invalid> {
        let mut actions = self.bytes((ply + steps).saturating_mul(width.bytes()))?;
        let mut highest = Action(0);
        for at in 0..ply + steps {
            let action = width.take(&mut actions).ok_or_else(ends_early)?;
            if action.index() >= limits.actions {
                return Err(invalid(step(at, "action"), not_below(action, limits)));
            }
            highest = highest.max(action);
        }
        Ok(highest)
    }

    fn floats(&mut self, field: &str, count: usize) -> Result<&'a [u8], Invalid> {
        let bytes = self.bytes(count.saturating_mul(FLOAT_BYTES))?;
        let (floats, _) = bytes.as_chunks();
        match floats.iter().position(|&float| !f32::from_le_bytes(float).is_finite()) {
            Some(at) => Err(invalid(format!("{field}s[{at}]"), "is not finite")),
            None => Ok(bytes),
        }
    }

    /// Validates that each policy is a distribution, ascending by action; returns the highest action in any policy.
    fn policies(&mut self, mut kinds: &[u8], form: PolicyActions, limits: Limits) -> Result<Action, Invalid> {
        let mut highest = Action(0);
        for at in 0.. {
            let Some(kind) = Kind::take(&mut kinds) else { break };
            let Some(entries) = kind.entries() else { continue };
            let refuse = |reason: String| invalid(step(at, "policy"), reason);
            let actions = self.bytes(form.bytes(entries))?;
            let (probabilities, _) = self.bytes(entries.saturating_mul(FLOAT_BYTES))?.as_chunks();
            let (mut count, mut last) = (0, None);
            for action in form.unpack(actions) {
                if last >= Some(action) {
                    return Err(refuse("is not in ascending order of action".to_owned()));
                }
                if action.index() >= limits.actions {
                    return Err(refuse(not_below(action, limits)));
                }
                (count, last) = (count + 1, Some(action));
            }
            if count != entries {
                return Err(refuse(format!("has {count} actions for {entries} probabilities")));
            }
            highest = highest.max(last.unwrap_or(highest));
            let mut sum = 0.0;
            for probability in probabilities.iter().map(|&bytes| f32::from_le_bytes(bytes)) {
                // The condition is negated so that it rejects NaN.
                if !(probability > 0.0 && f64::from(probability) <= 1.0 + SUM_TOLERANCE) {
                    return Err(refuse(format!("{probability} is not a probability")));
                }
                sum += f64::from(probability);
            }
            if (sum - 1.0).abs() > SUM_TOLERANCE {
                return Err(refuse(format!("sums to {sum}, expected 1")));
            }
        }
        Ok(highest)
    }

    fn versions(&mut self, steps: usize) -> Result<(), Invalid> {
        let (mut left, mut last) = (steps, None);
        while left > 0 {
            let run =
                VersionRun::take(&mut self.rest).ok_or_else(|| invalid("versions", format!("lack {left} steps")))?;
            if run.steps == 0 || run.steps > left {
                return Err(invalid("versions", format!("have a run of {} steps, expected 1 to {left}", run.steps)));
            }
            if last == Some(run.weights_version) {
                return Err(invalid("versions", "have two consecutive runs of one version"));
            }
            (left, last) = (left - run.steps, Some(run.weights_version));
        }
        Ok(())
    }
}

/// Checks that surprises are divergences: finite and not negative.
pub(crate) fn check_surprises(mut surprises: impl Iterator<Item = f32>) -> Result<(), Invalid> {
    match surprises.position(|surprise| !(surprise >= 0.0 && surprise.is_finite())) {
        Some(at) => Err(invalid(format!("surprises[{at}]"), "is not a finite number of at least 0")),
        None => Ok(()),
    }
}

fn not_below(action: Action, limits: Limits) -> String {
    format!("{} is not below {}", action.0, limits.actions)
}

fn ends_early() -> Invalid {
    invalid("columns", "are truncated")
}
