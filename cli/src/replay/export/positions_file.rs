//! Writes the positions of trajectories to a Parquet file.

use std::fs::File;
use std::sync::Arc;

use anyhow::Context;
use experience::{ActionProbability, Step, StepKind, Trajectory};
use game::{Outcome, Player};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// Number of buffered rows at which a row group is written.
const ROWS_MAX: usize = 1 << 16;
/// Number of buffered search policy entries at which a row group is written.
const POLICY_ENTRIES_MAX: usize = 1 << 20;
/// The Parquet schema. `outcome` is 1 for a win of the first player, -1 for a win of the second player, 0 for a draw,
/// and null in games with rewards. `seed` is 0 in games without randomness.
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
    required int64 seed;
}";

/// An open Parquet file with one row per position.
pub(super) struct PositionsFile {
    writer: SerializedFileWriter<File>,
    /// Trajectories to write in the next row group.
    buffered: Vec<Trajectory>,
    rows: usize,
    policy_entries: usize,
}

/// A reference to one position of a buffered trajectory.
struct Position<'a> {
    trajectory: &'a Trajectory,
    ply: usize,
    step: Step,
}

impl PositionsFile {
    pub(super) fn new(file: File) -> anyhow::Result<Self> {
        let schema = Arc::new(parse_message_type(SCHEMA).context("read the schema")?);
        let compression = Compression::ZSTD(ZstdLevel::default());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let writer = SerializedFileWriter::new(file, schema, properties).context("create the Parquet writer")?;
        Ok(Self { writer, buffered: Vec::new(), rows: 0, policy_entries: 0 })
    }

    pub(super) fn write(&mut self, trajectory: Trajectory) -> anyhow::Result<()> {
        self.rows += trajectory.plies();
        self.policy_entries += trajectory.steps().map(|step| policy(&step).len()).sum::<usize>();
        self.buffered.push(trajectory);
        if self.rows >= ROWS_MAX || self.policy_entries >= POLICY_ENTRIES_MAX {
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
        (self.rows, self.policy_entries) = (0, 0);
        let trajectories = std::mem::take(&mut self.buffered);
        if trajectories.is_empty() {
            return Ok(());
        }
        let positions: Vec<Position<'_>> = trajectories
            .iter()
            .flat_map(|trajectory| {
                trajectory.steps().enumerate().map(move |(ply, step)| Position { trajectory, ply, step })
            })
            .collect();
        let mut rows = self.writer.next_row_group()?;
        write_columns(&mut rows, &positions).context("write positions")?;
        rows.close()?;
        Ok(())
    }
}

/// Writes all columns of a row group in the order of the schema.
fn write_columns(rows: &mut SerializedRowGroupWriter<'_, File>, positions: &[Position<'_>]) -> anyhow::Result<()> {
    // Parquet columns hold signed integers, so that ids are reinterpreted bit by bit.
    column::<Int64Type, _>(rows, positions, |at| [at.trajectory.id().actor.cast_signed()])?;
    column::<Int64Type, _>(rows, positions, |at| [at.trajectory.id().epoch.cast_signed()])?;
    column::<Int64Type, _>(rows, positions, |at| [at.trajectory.id().sequence.cast_signed()])?;
    column::<Int32Type, _>(rows, positions, |at| [i32::try_from(at.ply).unwrap_or(i32::MAX)])?;
    column::<Int32Type, _>(rows, positions, |at| [at.step.action.0.into()])?;
    column::<ByteArrayType, _>(rows, positions, |at| {
        [match at.step.kind {
            StepKind::Full { .. } => "full".into(),
            StepKind::Fast { .. } => "fast".into(),
            StepKind::Opening => "opening".into(),
        }]
    })?;
    column::<FloatType, _>(rows, positions, |at| match at.step.kind {
        StepKind::Full { value, .. } | StepKind::Fast { value } => Some(value),
        StepKind::Opening => None,
    })?;
    column::<FloatType, _>(rows, positions, |at| [at.step.reward])?;
    column::<Int64Type, _>(rows, positions, |at| [at.step.weights_version.0.cast_signed()])?;
    column::<Int32Type, _>(rows, positions, |at| match at.trajectory.outcome() {
        Outcome::Win(Player::First) => Some(1),
        Outcome::Win(Player::Second) => Some(-1),
        Outcome::Draw => Some(0),
        Outcome::Finished | Outcome::Truncated => None,
    })?;
    column::<Int32Type, Vec<_>>(rows, positions, |at| policy(&at.step).iter().map(|e| e.action.0.into()).collect())?;
    column::<FloatType, Vec<_>>(rows, positions, |at| policy(&at.step).iter().map(|e| e.probability).collect())?;
    column::<ByteArrayType, _>(rows, positions, |at| [ByteArray::from(at.trajectory.game())])?;
    column::<Int64Type, _>(rows, positions, |at| [at.trajectory.episode().seed.cast_signed()])
}

fn policy(step: &Step) -> &[ActionProbability] {
    match &step.kind {
        StepKind::Full { policy, .. } => policy,
        StepKind::Fast { .. } | StepKind::Opening => &[],
    }
}

/// Writes one column with the values of all positions. A position has exactly one value, at most one in an optional
/// column, or any number in a repeated column. Definition levels mark present values, and repetition levels mark the
/// start of a list.
fn column<T: DataType, V: IntoIterator<Item = T::T>>(
    rows: &mut SerializedRowGroupWriter<'_, File>,
    positions: &[Position<'_>],
    values_of: impl Fn(&Position<'_>) -> V,
) -> anyhow::Result<()> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for position in positions {
        let before = values.len();
        values.extend(values_of(position));
        let count = values.len() - before;
        for index in 0..count.max(1) {
            defined.push(i16::from(count > 0));
            repeated.push(i16::from(index > 0));
        }
    }
    let mut column = rows.next_column()?.context("the schema has fewer columns")?;
    column.typed::<T>().write_batch(&values, Some(&defined), Some(&repeated))?;
    column.close()?;
    Ok(())
}
