//! Writes a Parquet file with a row for each position.

use std::fs::File;
use std::sync::Arc;

use anyhow::Context;
use experience::{StepKind, Trajectory};
use game::{Outcome, Player};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// The Parquet schema. `outcome` is 1 if the first player won, −1 if the second did, 0 for a draw and null in games
/// scored by rewards.
const SCHEMA: &str = "message position {
    required int64 actor;
    required int64 epoch;
    required int64 sequence;
    required int32 ply;
    required int32 action;
    required binary kind (UTF8);
    optional float value;
    required float reward;
    required int64 weights_version;
    optional int32 outcome;
    repeated int32 policy_action;
    repeated float policy_probability;
    required binary game (UTF8);
}";
/// Number of rows buffered per row group.
const ROWS_MAX: usize = 1 << 16;
/// Number of search policy entries buffered per row group.
const POLICY_ENTRIES_MAX: usize = 1 << 20;

/// Buffered rows as columns. Definition levels mark present optional values; repetition levels mark the start of a
/// list.
#[derive(Default)]
struct Columns {
    actors: Vec<i64>,
    epochs: Vec<i64>,
    sequences: Vec<i64>,
    plies: Vec<i32>,
    actions: Vec<i32>,
    kinds: Vec<ByteArray>,
    values: Vec<f32>,
    values_defined: Vec<i16>,
    rewards: Vec<f32>,
    versions: Vec<i64>,
    outcomes: Vec<i32>,
    outcomes_defined: Vec<i16>,
    policy_actions: Vec<i32>,
    policy_probabilities: Vec<f32>,
    policy_defined: Vec<i16>,
    policy_repeated: Vec<i16>,
    games: Vec<ByteArray>,
}

/// An open Parquet file.
pub(super) struct PositionsFile {
    writer: SerializedFileWriter<File>,
    columns: Columns,
}

impl PositionsFile {
    pub(super) fn new(file: File) -> anyhow::Result<Self> {
        let schema = Arc::new(parse_message_type(SCHEMA).context("read the schema")?);
        let compression = Compression::ZSTD(ZstdLevel::default());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let writer = SerializedFileWriter::new(file, schema, properties).context("create the Parquet writer")?;
        Ok(Self { writer, columns: Columns::default() })
    }

    pub(super) fn write(&mut self, trajectory: &Trajectory) -> anyhow::Result<()> {
        self.columns.push(trajectory);
        if self.columns.plies.len() >= ROWS_MAX || self.columns.policy_actions.len() >= POLICY_ENTRIES_MAX {
            self.write_rows()?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.write_rows()?;
        self.writer.close().context("close the Parquet writer")?;
        Ok(())
    }

    fn write_rows(&mut self) -> anyhow::Result<()> {
        let columns = std::mem::take(&mut self.columns);
        if columns.plies.is_empty() {
            return Ok(());
        }
        let mut rows = self.writer.next_row_group()?;
        columns.write(&mut rows).context("write positions")?;
        rows.close()?;
        Ok(())
    }
}

impl Columns {
    fn push(&mut self, trajectory: &Trajectory) {
        let outcome = match trajectory.outcome() {
            Outcome::Win(Player::First) => Some(1),
            Outcome::Win(Player::Second) => Some(-1),
            Outcome::Draw => Some(0),
            Outcome::Finished => None,
        };
        let game = ByteArray::from(trajectory.game());
        for (ply, step) in trajectory.steps().enumerate() {
            // Parquet has no unsigned integers; ids keep their bits.
            self.actors.push(trajectory.id().actor.cast_signed());
            self.epochs.push(trajectory.id().epoch.cast_signed());
            self.sequences.push(trajectory.id().sequence.cast_signed());
            self.plies.push(i32::try_from(ply).unwrap_or(i32::MAX));
            self.actions.push(step.action.0.into());
            self.games.push(game.clone());
            self.rewards.push(step.reward);
            self.versions.push(step.weights_version.0.cast_signed());
            self.outcomes.extend(outcome);
            self.outcomes_defined.push(i16::from(outcome.is_some()));
            let (kind, value, policy) = match &step.kind {
                StepKind::Full { policy, value } => ("full", Some(*value), policy.as_slice()),
                StepKind::Fast { value } => ("fast", Some(*value), [].as_slice()),
                StepKind::Opening => ("opening", None, [].as_slice()),
            };
            self.kinds.push(kind.into());
            self.values.extend(value);
            self.values_defined.push(i16::from(value.is_some()));
            if policy.is_empty() {
                self.policy_defined.push(0);
                self.policy_repeated.push(0);
            }
            for (index, entry) in policy.iter().enumerate() {
                self.policy_actions.push(entry.action.0.into());
                self.policy_probabilities.push(entry.probability);
                self.policy_defined.push(1);
                self.policy_repeated.push(i16::from(index > 0));
            }
        }
    }

    /// Writes the columns in the order of the schema.
    fn write(&self, rows: &mut SerializedRowGroupWriter<'_, File>) -> anyhow::Result<()> {
        let (defined, repeated) = (Some(&self.policy_defined[..]), Some(&self.policy_repeated[..]));
        column::<Int64Type>(rows, &self.actors, None, None)?;
        column::<Int64Type>(rows, &self.epochs, None, None)?;
        column::<Int64Type>(rows, &self.sequences, None, None)?;
        column::<Int32Type>(rows, &self.plies, None, None)?;
        column::<Int32Type>(rows, &self.actions, None, None)?;
        column::<ByteArrayType>(rows, &self.kinds, None, None)?;
        column::<FloatType>(rows, &self.values, Some(&self.values_defined), None)?;
        column::<FloatType>(rows, &self.rewards, None, None)?;
        column::<Int64Type>(rows, &self.versions, None, None)?;
        column::<Int32Type>(rows, &self.outcomes, Some(&self.outcomes_defined), None)?;
        column::<Int32Type>(rows, &self.policy_actions, defined, repeated)?;
        column::<FloatType>(rows, &self.policy_probabilities, defined, repeated)?;
        column::<ByteArrayType>(rows, &self.games, None, None)
    }
}

fn column<T: DataType>(
    rows: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    defined: Option<&[i16]>,
    repeated: Option<&[i16]>,
) -> anyhow::Result<()> {
    let mut column = rows.next_column()?.context("the schema has fewer columns")?;
    column.typed::<T>().write_batch(values, defined, repeated)?;
    column.close()?;
    Ok(())
}
